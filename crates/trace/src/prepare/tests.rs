#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
use super::*;
use nodrop_wire::capture::Reader;
use nodrop_wire::pcap::{file_header, record_header};
use proptest::prelude::*;
use std::convert::Infallible;

const AS_THE_WIRE: Options = Options {
    split_offloaded: true,
    pad_cut: true,
    pad_to_ip: false,
    drop_duplicates: false,
    by_time: true,
    skip_link_types: Vec::new(),
    longest_gap_ns: None,
    earlier_ns: 0,
    nanoseconds: false,
    most_padding_bytes: 1 << 20,
};

/// Frames with their times in ms, and their lengths on the wire; `None` = as captured.
fn file(linktype: u32, frames: &[(u64, Option<u32>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = file_header().to_vec();
    bytes[20..].copy_from_slice(&linktype.to_le_bytes());
    for (at_ms, wire, frame) in frames {
        let length = frame.len() as u32;
        bytes.extend(record_header(
            at_ms * 1_000_000,
            length,
            wire.unwrap_or(length),
        ));
        bytes.extend(frame);
    }
    bytes
}

type Written = Vec<(u64, Vec<u8>, u32)>;

fn prepared(bytes: &[u8], options: &Options) -> Result<(Changes, Written), String> {
    let mut written = Vec::new();
    let changes = prepare(
        || Reader::of_any_link(bytes, false),
        options,
        |at_ns, frame, wire| {
            written.push((at_ns / 1_000_000, frame.to_vec(), wire));
            Ok::<_, Infallible>(())
        },
    );
    changes
        .map(|changes| (changes, written))
        .map_err(|error| error.to_string())
}

fn ip(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()).min(65_535) as u16;
    let mut ip = vec![
        0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip.extend(payload);
    ip
}

fn ethernet(ip: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &[8, 0], ip].concat()
}

fn udp(payload: usize) -> Vec<u8> {
    ip(17, &vec![1; payload + 8])
}

fn tcp(port: u8, flags: u8, options: &[u8], payload: usize) -> Vec<u8> {
    let words = 5 + options.len() as u8 / 4;
    let header = [
        4,
        port,
        0,
        80,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        9,
        words << 4,
        flags,
        1,
        0,
        7,
        7,
        0,
        0,
    ];
    ethernet(&ip(6, &[&header[..], options, &vec![5; payload]].concat()))
}

fn lengths(written: &Written) -> Vec<usize> {
    written.iter().map(|(_, frame, _)| frame.len()).collect()
}

#[test]
fn a_capture_that_needs_nothing_is_not_changed() {
    let frames: Vec<_> = (0..5).map(|n| (n, None, ethernet(&udp(100)))).collect();
    let (changes, written) = prepared(&file(1, &frames), &AS_THE_WIRE).unwrap();
    assert!(!changes.any());
    assert_eq!((changes.read_packets, changes.written_packets), (5, 5));
    let as_read: Written = (frames.into_iter())
        .map(|(at, _, frame)| (at, frame.clone(), frame.len() as u32))
        .collect();
    assert_eq!(written, as_read);
}

#[test]
fn packets_are_put_in_the_order_of_their_time() {
    let frames: Vec<_> = [5, 6, 1, 2, 7]
        .map(|at| (at, None, ethernet(&udp(at as usize + 20))))
        .into();
    let bytes = file(1, &frames);
    let (changes, written) = prepared(&bytes, &AS_THE_WIRE).unwrap();
    let times = |written: &Written| written.iter().map(|(at, ..)| *at).collect::<Vec<_>>();
    assert_eq!(
        (times(&written), changes.reordered_packets),
        (vec![1, 2, 5, 6, 7], 2)
    );
    assert_eq!(lengths(&written), [63, 64, 67, 68, 69]);

    let by_file = Options {
        by_time: false,
        ..AS_THE_WIRE
    };
    let (changes, written) = prepared(&bytes, &by_file).unwrap();
    assert_eq!(
        (times(&written), changes.late_packets),
        (vec![5, 6, 6, 6, 7], 2)
    );
    assert!(!changes.any());
}

/// Seen: "no packet for 16 min after packet 0", and 256 empty frames that "leave at once" and are left out.
#[test]
fn a_gap_is_named_by_the_packet_that_is_sent_before_it() {
    for (times, gap_ms, after) in [
        (&[900_u64, 901, 5, 6][..], 894, 4),
        (&[7, 500, 8, 9, 10], 490, 5),
        (&[7, 300, 301], 293, 1),
    ] {
        let frames: Vec<_> = (times.iter())
            .map(|at| (*at, None, ethernet(&udp(20))))
            .collect();
        let (changes, _) = prepared(&file(1, &frames), &AS_THE_WIRE).unwrap();
        let found = (changes.longest_gap_ns, changes.longest_gap_after_packet);
        assert_eq!(found, (gap_ms * 1_000_000, after), "{times:?}");
    }
    for empty in [1, 5] {
        let mut frames = vec![(9, None, ethernet(&udp(20)))];
        frames.resize(1 + empty, (0, None, Vec::new()));
        frames.push((10, None, ethernet(&udp(20))));
        let (changes, _) = prepared(&file(1, &frames), &AS_THE_WIRE).unwrap();
        assert_eq!((changes.late_packets, changes.written_packets), (0, 2));
    }
}

#[test]
fn joined_segments_are_split_by_the_handshake_or_the_usual_size() {
    let syn = |port, size: u16| {
        let [high, low] = size.to_be_bytes();
        tcp(port, 2, &[2, 4, high, low], 0)
    };
    let frames = vec![
        (0, None, syn(1, 1_000)),
        (1, None, syn(2, 8_960)),
        (2, None, syn(3, 65_483)), // a loopback
        (3, None, tcp(1, 0x18, &[], 2_500)),
        (4, None, tcp(2, 0x18, &[], 8_960)),
        (5, None, tcp(3, 0x18, &[], 2_920)),
        (6, None, tcp(4, 0x18, &[1; 12], 2_896)),
        (7, None, tcp(4, 0x18, &[], 12_000)),
    ];
    let bytes = file(1, &frames);
    let (changes, written) = prepared(&bytes, &AS_THE_WIRE).unwrap();
    let data = &lengths(&written)[3..];
    let mut expected = vec![1_054, 1_054, 554, 9_014, 1_514, 1_514, 1_514, 1_514];
    expected.extend([1_514; 8]);
    expected.push(54 + 12_000 - 8 * 1_460);
    assert_eq!(data, expected);
    assert_eq!(
        (changes.split_packets, changes.split_into_packets),
        (4, 3 + 2 + 2 + 9)
    );
    assert_eq!(changes.long_packets, 1);

    let as_is = Options {
        split_offloaded: false,
        ..AS_THE_WIRE
    };
    let (changes, written) = prepared(&bytes, &as_is).unwrap();
    assert_eq!((written.len(), changes.any()), (frames.len(), false));
}

#[test]
fn the_frames_of_a_jumbo_wire_stay() {
    for (mtu, long, splits) in [
        (9_000, 30, 0),
        (4_470, 9, 0),
        (4_470, 7, 7),
        (3_000, 30, 30),
        (9_217, 30, 30),
    ] {
        let mut frames: Vec<_> = (0..long)
            .map(|n| (n, None, tcp(9, 0x10, &[], mtu - 40)))
            .collect();
        frames.extend((0..20).map(|n| (100 + n, None, tcp(9, 0x10, &[], 2_000 + n as usize))));
        let (changes, _) = prepared(&file(1, &frames), &AS_THE_WIRE).unwrap();
        let others = if splits > 0 { 20 } else { 0 };
        assert_eq!(changes.split_packets, splits + others, "{mtu}");
    }
}

#[test]
fn datagrams_that_never_left_their_host_become_fragments() {
    let (changes, written) =
        prepared(&file(1, &[(0, None, ethernet(&udp(20_000)))]), &AS_THE_WIRE).unwrap();
    assert_eq!(
        (changes.fragmented_packets, changes.fragmented_into_packets),
        (1, 14)
    );
    assert!(lengths(&written).iter().all(|length| *length <= 1_514));
}

#[test]
fn cut_frames_are_filled_to_their_length() {
    let whole = tcp(1, 0x18, &[], 1_460);
    let bytes = file(1, &[(0, Some(1_514), whole[..54].to_vec())]);
    let (changes, written) = prepared(&bytes, &AS_THE_WIRE).unwrap();
    assert_eq!((changes.padded_packets, changes.padded_bytes), (1, 1_460));
    let [(_, frame, 1_514)] = &written[..] else {
        panic!("{written:?}")
    };
    assert!(frame[54..].iter().all(|byte| *byte == 0) && frame.len() == 1_514);
    let mut again = frame.clone();
    write_checksums(&mut again);
    assert_eq!(*frame, again, "the checksum is right");

    let as_is = Options {
        pad_cut: false,
        ..AS_THE_WIRE
    };
    let (changes, written) = prepared(&bytes, &as_is).unwrap();
    assert_eq!((changes.cut_packets, changes.any()), (1, false));
    assert_eq!(written, [(0, whole[..54].to_vec(), 1_514)]);

    let hostile: Vec<_> = (0..9)
        .map(|n| (n, Some(200_000), whole[..54].to_vec()))
        .collect();
    let error = prepared(&file(1, &hostile), &AS_THE_WIRE).unwrap_err();
    assert!(error.contains("bytes longer on the wire"), "{error}");
}

/// Seen: 3,200 frames, each 4 bytes shorter than its own datagram, without a word.
#[test]
fn frames_shorter_than_their_own_datagram_are_counted_and_filled_where_asked() {
    let whole = ethernet(&udp(60));
    for (taken, short) in [(4, 2), (20, 2), (0, 0)] {
        let stub = whole[..whole.len() - taken].to_vec();
        let frames: Vec<_> = [whole.clone(), stub.clone(), stub.clone()]
            .into_iter()
            .map(|frame| (0, None, frame))
            .collect();
        let bytes = file(1, &frames);
        let (changes, written) = prepared(&bytes, &AS_THE_WIRE).unwrap();
        assert_eq!(changes.short_packets, short);
        assert_eq!(changes.first_short_packet, short);
        assert_eq!((changes.any(), written[1].1.len()), (false, stub.len()));
        let filled = Options {
            pad_to_ip: true,
            ..AS_THE_WIRE
        };
        let (changes, written) = prepared(&bytes, &filled).unwrap();
        assert_eq!(
            (changes.padded_packets, changes.padded_bytes),
            (short, 2 * taken as u64)
        );
        assert!(
            written
                .iter()
                .all(|(_, frame, _)| frame.len() == whole.len())
        );
    }
    // Padding behind the datagram makes no frame short; nor does a cut that the capture names.
    let padded = [&ethernet(&udp(2))[..], &[0; 9]].concat();
    let cut = (0, Some(whole.len() as u32), whole[..50].to_vec());
    let (changes, _) = prepared(&file(1, &[(0, None, padded), cut]), &AS_THE_WIRE).unwrap();
    assert_eq!(changes.short_packets, 0);
}

#[test]
fn a_packet_that_a_mirror_copied_is_counted_and_left_out_where_asked() {
    let (one, other) = (ethernet(&udp(60)), ethernet(&udp(61)));
    let tagged = [&one[..12], &[0x81, 0, 0, 7], &one[12..]].concat();
    let readdressed = [&[4; 12][..], &one[12..]].concat();
    for (copy, apart_ms, duplicates) in [
        (&one, 1, 1),
        (&tagged, 2, 1),
        (&readdressed, 0, 1),
        (&one, 3, 0),
        (&other, 0, 0),
    ] {
        let frames = [
            (100, None, one.clone()),
            (100 + apart_ms, None, copy.clone()),
        ];
        let bytes = file(1, &frames);
        let (changes, written) = prepared(&bytes, &AS_THE_WIRE).unwrap();
        assert_eq!((changes.duplicate_packets, written.len()), (duplicates, 2));
        let dropping = Options {
            drop_duplicates: true,
            ..AS_THE_WIRE
        };
        let (changes, written) = prepared(&bytes, &dropping).unwrap();
        let left: u64 = changes.left_out.values().map(|left| left.packets).sum();
        assert_eq!((left, written.len() as u64), (duplicates, 2 - duplicates));
        assert_eq!(changes.any(), duplicates > 0);
    }
    // A third copy after the time of the first is a packet again.
    let thrice: Vec<_> = [0, 1, 3].map(|at| (at, None, one.clone())).to_vec();
    let (changes, _) = prepared(&file(1, &thrice), &AS_THE_WIRE).unwrap();
    assert_eq!(changes.duplicate_packets, 1);
}

#[test]
fn a_clock_that_was_set_back_is_named_and_can_be_followed() {
    let frame = |n: u64| ethernet(&udp(60 + n as usize));
    for (back_ms, named) in [(3_600_000, true), (61_000, true), (500, false)] {
        let begin = 7_200_000;
        let times = [0, 100, 200].map(|after| begin + after);
        let later = [300, 400].map(|after| begin + after - back_ms);
        let frames: Vec<_> = (0..)
            .zip(times.into_iter().chain(later))
            .map(|(n, at)| (at, None, frame(n)))
            .collect();
        let bytes = file(1, &frames);
        let (changes, _) = prepared(&bytes, &AS_THE_WIRE).unwrap();
        assert_eq!(changes.steps_back_ns, (back_ms - 100) * 1_000_000);
        assert_eq!(changes.steps_back_after_packet, 3);
        let as_filed = Options {
            by_time: false,
            ..AS_THE_WIRE
        };
        let (changes, written) = prepared(&bytes, &as_filed).unwrap();
        let at: Vec<_> = written.iter().map(|(at, ..)| at - begin).collect();
        let expected = if named {
            [0, 100, 200, 200, 300]
        } else {
            [0, 100, 200, 200, 200]
        };
        assert_eq!((at, changes.late_packets == 0), (expected.to_vec(), named));
        assert_eq!(
            (changes.moved_packets, changes.any()),
            (if named { 2 } else { 0 }, named)
        );
    }
}

#[test]
fn what_no_port_sends_is_left_out_and_counted() {
    let fits = ethernet(&udp(60));
    let frames = [
        (0, None, fits.clone()),
        (1, None, vec![]),
        (2, None, fits[..13].to_vec()),
        (
            3,
            None,
            [&[2; 12][..], &[0x88, 0xb5], &vec![3; 70_000]].concat(),
        ),
    ];
    let (changes, written) = prepared(&file(1, &frames), &AS_THE_WIRE).unwrap();
    assert_eq!(written, [(0, fits.clone(), fits.len() as u32)]);
    let left = |reason: &str| changes.left_out[reason];
    let expected = LeftOut {
        packets: 2,
        first_packet: 2,
    };
    assert_eq!(left("shorter than an Ethernet header"), expected);
    let expected = LeftOut {
        packets: 1,
        first_packet: 4,
    };
    assert_eq!(left("longer than any port takes"), expected);

    let error = prepared(&file(1, &frames[1..3]), &AS_THE_WIRE).unwrap_err();
    assert_eq!(
        error,
        "no packet of 2 can be sent: shorter than an Ethernet header"
    );
}

#[test]
fn other_links_get_a_header_or_are_refused() {
    let raw: Vec<_> = (0..3).map(|n| (n, None, udp(10))).collect();
    let (changes, written) = prepared(&file(101, &raw), &AS_THE_WIRE).unwrap();
    assert_eq!(
        changes.given_header_packets,
        BTreeMap::from([("raw IP (101)".into(), 3)])
    );
    assert_eq!(changes.own_address_packets, 3);
    assert!(
        written
            .iter()
            .all(|(_, frame, wire)| frame.len() == 52 && *wire == 52)
    );

    let error = prepared(&file(220, &raw), &AS_THE_WIRE).unwrap_err();
    assert_eq!(
        error,
        "3 packets of link type 220 (USB) on interface 0 cannot be put on an Ethernet port: packet 1 is the first"
    );
    let skips = Options {
        skip_link_types: vec![220],
        ..AS_THE_WIRE
    };
    let error = prepared(&file(220, &raw), &skips).unwrap_err();
    assert_eq!(error, "no packet of 3 can be sent: link type 220 (USB)");
    let error = prepared(&file(231, &[(0, None, vec![0; 60])]), &AS_THE_WIRE).unwrap_err();
    assert!(
        error.starts_with("1 packet of link type 231 (D-Bus)"),
        "{error}"
    );
    let error = prepared(&file(1, &[]), &AS_THE_WIRE).unwrap_err();
    assert_eq!(error, "the trace holds no packets");
}

#[test]
fn check_sequences_and_bytes_beyond_the_wire_stay_behind() {
    let plain = ethernet(&udp(100));
    let longer = [&plain[..], &[0; 16]].concat();
    let bytes = file(1, &[(0, Some(plain.len() as u32), longer)]);
    let (changes, written) = prepared(&bytes, &AS_THE_WIRE).unwrap();
    assert_eq!(
        (changes.beyond_wire_packets, changes.beyond_wire_bytes),
        (1, 16)
    );
    assert_eq!(written, [(0, plain.clone(), plain.len() as u32)]);

    let mut checked = file(1, &[(0, None, [&plain[..], &[9; 4]].concat())]);
    checked[20..24].copy_from_slice(&0x2400_0001_u32.to_le_bytes());
    let (changes, written) = prepared(&checked, &AS_THE_WIRE).unwrap();
    assert_eq!(changes.fcs_packets, 1);
    assert_eq!(written, [(0, plain.clone(), plain.len() as u32)]);
}

#[test]
fn long_gaps_are_named_and_shortened_if_asked() {
    let frames: Vec<_> = [0, 10, 90_010, 90_020]
        .map(|at| (at, None, ethernet(&udp(30))))
        .into();
    let bytes = file(1, &frames);
    let (changes, _) = prepared(&bytes, &AS_THE_WIRE).unwrap();
    assert_eq!(
        (changes.longest_gap_ns, changes.longest_gap_after_packet),
        (90_000_000_000, 2)
    );
    let shorter = Options {
        longest_gap_ns: Some(1_000_000_000),
        ..AS_THE_WIRE
    };
    let (changes, written) = prepared(&bytes, &shorter).unwrap();
    let times: Vec<_> = written.iter().map(|(at, ..)| *at).collect();
    assert_eq!(times, [0, 10, 1_010, 1_020]);
    assert_eq!(
        (changes.shortened_gaps, changes.shortened_ns),
        (1, 89_000_000_000)
    );
}

proptest! {
    #[test]
    fn any_capture_is_borne(linktype in 0u32..300, frames in proptest::collection::vec((0u64..9, 0u32..2_000, proptest::collection::vec(any::<u8>(), 0..90)), 0..9), pad: bool, by_time: bool) {
        let frames: Vec<_> = frames.into_iter().map(|(at, wire, frame)| (at, Some(wire), frame)).collect();
        let options = Options { pad_cut: pad, by_time, ..AS_THE_WIRE };
        if let Ok((changes, written)) = prepared(&file(linktype, &frames), &options) {
            prop_assert_eq!(changes.written_packets as usize, written.len());
            prop_assert_eq!(changes.read_packets as usize, frames.len());
            prop_assert!(written.is_sorted_by_key(|(at, ..)| *at));
            prop_assert!(written.iter().all(|(_, frame, wire)| frame.len() >= 14 && frame.len() <= *wire as usize));
        }
    }
}
