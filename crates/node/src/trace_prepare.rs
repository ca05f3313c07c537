//! `nodrop-node trace prepare`: a capture made into one that an Ethernet port can send.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use nodrop_proto::JobError;
use nodrop_trace::prepare::{Changes, Options, PrepareError, prepare};
use nodrop_wire::capture::Reader;
use nodrop_wire::packed::bound;
use nodrop_wire::pcap::{LAST_NS, file_header, record_header};

use crate::capture::{TOLERATING, contents};
use crate::progress::Progress;
use crate::trace_files::{must_be_another, report, unusable, write};

#[derive(Args)]
pub struct PrepareArgs {
    /// Capture file: pcap, pcapng, snoop or ERF, also packed with gzip, zstd, xz or lz4
    trace: PathBuf,
    /// Capture file to write: pcap of Ethernet frames with times in ns
    out: PathBuf,
    /// Frames longer than the wire carries (TSO, GRO, loopback): as the segments and fragments that it carries, or as they are
    #[arg(long, value_enum, default_value_t)]
    offloaded: Offloaded,
    /// Frames that the capture cut: filled with zeros to the length they had, also to the length in their IP header, or as they are
    #[arg(long, value_enum, default_value_t)]
    cut: Cut,
    /// Packets equal, from the network header on, to one at most 2 ms before: sent, or left out
    #[arg(long, value_enum, default_value_t)]
    duplicates: Duplicates,
    /// Packets in the order of their time, or as they stand in the file
    #[arg(long, value_enum, default_value_t)]
    order: Order,
    /// Leave out the frames of these link types (LINKTYPE_ numbers) instead of refusing the capture
    #[arg(long, value_delimiter = ',')]
    skip_link_types: Vec<u32>,
    /// Make longer times between two packets so long
    #[arg(long, value_parser = seconds)]
    longest_gap_s: Option<f64>,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    tolerate_truncated: bool,
    /// Take the fractions of a second in a pcap file for nanoseconds, whatever its header says
    #[arg(long)]
    nanoseconds: bool,
    /// Write nothing if the capture needs no change
    #[arg(long)]
    if_changed: bool,
    /// Say on stderr how much is read
    #[arg(long, hide = true)]
    progress: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Offloaded {
    #[default]
    Split,
    AsIs,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Cut {
    #[default]
    Pad,
    PadIp,
    AsIs,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Duplicates {
    #[default]
    Keep,
    Drop,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Order {
    #[default]
    Time,
    File,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
        .ok_or_else(|| "must be a number of seconds above 0".into())
}

/// Writes the prepared capture, and says what was changed.
pub fn run(args: &PrepareArgs) -> anyhow::Result<()> {
    must_be_another(&args.out, &[&args.trace])?;
    let progress = Progress::by_hand(&args.trace, args.progress);
    let bytes = contents(&args.trace, args.tolerate_truncated, &progress)?;
    let mut options = Options {
        split_offloaded: matches!(args.offloaded, Offloaded::Split),
        pad_cut: !matches!(args.cut, Cut::AsIs),
        pad_to_ip: matches!(args.cut, Cut::PadIp),
        drop_duplicates: matches!(args.duplicates, Duplicates::Drop),
        by_time: matches!(args.order, Order::Time),
        skip_link_types: args.skip_link_types.clone(),
        longest_gap_ns: args.longest_gap_s.map(ns),
        earlier_ns: 0,
        nanoseconds: args.nanoseconds,
        most_padding_bytes: bound(bytes.len()) as u64,
    };
    let read = || {
        let reader = Reader::of_any_link(&bytes, args.tolerate_truncated)?;
        let reader = if args.nanoseconds {
            reader.in_nanoseconds()
        } else {
            reader
        };
        Ok(reader.inspect(|record| {
            if let Ok(record) = record {
                progress.at(record.offset);
            }
        }))
    };
    let refused = |error: PrepareError<std::io::Error>| refused(args, error);

    // Two passes, and two more if there is something to write.
    progress.expect(bytes.len(), if args.if_changed { 2 } else { 4 });
    let mut times: Option<(u64, u64)> = None;
    let changes = prepare(read, &options, |at_ns, _, _| {
        times.get_or_insert((at_ns, at_ns)).1 = at_ns;
        Ok(())
    })
    .map_err(refused)?;
    let (first_ns, last_ns) = times.unwrap_or_default();
    let writes = !args.if_changed || changes.any();
    if !writes {
        return report(&args.out, &said(&changes));
    }
    if last_ns > LAST_NS {
        options.earlier_ns = first_ns;
    }
    if last_ns - options.earlier_ns > LAST_NS {
        let words = format!(
            "its packets are more than 136 years apart, which a pcap file cannot hold: {:.0} s pass after packet {}",
            changes.longest_gap_ns as f64 / 1e9,
            changes.longest_gap_after_packet
        );
        return Err(unusable(&args.trace, &words)
            .hint("make long gaps shorter: --longest-gap-s 10")
            .into());
    }
    let mut written = None;
    write(&args.out, |out| {
        out.write_all(&file_header())?;
        let changes = prepare(read, &options, |at_ns, frame, wire| {
            let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            out.write_all(&record_header(at_ns, length, wire))?;
            out.write_all(frame)
        });
        written = Some(changes.map_err(refused)?);
        Ok(())
    })?;
    drop(progress);
    report(&args.out, &said(&written.unwrap_or(changes)))
}

fn said(changes: &Changes) -> serde_json::Value {
    let mut said = serde_json::json!(changes);
    said["changed"] = changes.any().into();
    said
}

fn refused(args: &PrepareArgs, error: PrepareError<std::io::Error>) -> anyhow::Error {
    let said = unusable(&args.trace, &error);
    let hinted: JobError = match error {
        PrepareError::Write(error) => return error.into(),
        PrepareError::Link { linktype, .. } => {
            said.hint(format!("--skip-link-types {linktype} leaves them out"))
        }
        PrepareError::Padding { .. } => said.hint("--cut as-is sends them as short as they are"),
        PrepareError::Capture(error) if error.is_tolerable() => said.hint(TOLERATING),
        PrepareError::Capture(_) | PrepareError::Nothing { .. } => said,
    };
    hinted.into()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time above 0; what is too large saturates"
)]
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
