//! A capture of any link made into one that a port can send: frames that a port takes, in order, and what was made needs no more changes.
//!
//! The input is a byte of options and a capture file.

use std::convert::Infallible;

use nodrop_trace::prepare::{Changes, Options, PrepareError, prepare};
use nodrop_wire::capture::Reader;
use nodrop_wire::pcap::{file_header, record_header};

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    let Some((flags, file)) = bytes.split_first() else {
        return;
    };
    let has = |bit: u8| flags & bit != 0;
    let options = Options {
        split_offloaded: !has(1),
        pad_cut: !has(2),
        pad_to_ip: has(32),
        drop_duplicates: has(64),
        by_time: !has(4),
        skip_link_types: if has(8) { vec![105, 220] } else { Vec::new() },
        longest_gap_ns: has(16).then_some(1_000_000_000),
        earlier_ns: 0,
        nanoseconds: false,
        most_padding_bytes: 1 << 22,
    };
    let Ok((changes, made, fits)) = prepared(file, &options) else {
        return;
    };
    let left_out: u64 = changes.left_out.values().map(|left| left.packets).sum();
    let whole = changes.read_packets - left_out;
    let joined = changes.split_packets + changes.fragmented_packets;
    let pieces = changes.split_into_packets + changes.fragmented_into_packets;
    assert_eq!(changes.written_packets, whole - joined + pieces);
    if !fits {
        return; // a file has 32 bits of seconds: whoever writes one moves the times
    }
    let Ok((again, ..)) = prepared(&made, &options) else {
        return; // padded once more, it is too much
    };
    assert_eq!(again.read_packets, changes.written_packets);
    assert_eq!(
        (
            again.reordered_packets,
            again.late_packets,
            again.fcs_packets,
            again.beyond_wire_packets
        ),
        (0, 0, 0, 0)
    );
    assert_eq!((again.shortened_gaps, again.left_out.len()), (0, 0));
    if options.pad_cut && options.split_offloaded {
        assert_eq!(again.cut_packets, changes.cut_packets);
    }
}

/// The changes, the capture, and whether its times fit a file.
fn prepared(
    file: &[u8],
    options: &Options,
) -> Result<(Changes, Vec<u8>, bool), PrepareError<Infallible>> {
    let mut made = file_header().to_vec();
    let (mut written, mut latest_ns, mut fits) = (0, 0, true);
    let changes = prepare(
        || Reader::of_any_link(file, true),
        options,
        |at_ns, frame, wire| {
            assert!((14..=65_549).contains(&frame.len()));
            assert!(at_ns >= latest_ns && wire as usize >= frame.len());
            latest_ns = at_ns;
            fits &= at_ns / 1_000_000_000 <= u64::from(u32::MAX);
            written += 1;
            let length = u32::try_from(frame.len()).expect("a port takes it");
            made.extend(record_header(at_ns, length, wire));
            made.extend(frame);
            Ok(())
        },
    )?;
    assert_eq!(written, changes.written_packets);
    Ok((changes, made, fits))
}
