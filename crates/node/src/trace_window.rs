//! `nodrop-node trace window`: the stretch of a capture that a load sends, as a file, and how it stands to the whole.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use nodrop_proto::JobError;
use nodrop_trace::info::Share;
use nodrop_trace::window::{Beginnings, Finder, Span, Wanted};
use nodrop_wire::capture::Reader;
use nodrop_wire::pcap::{file_header, record_header};
use nodrop_wire::record::Record;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::capture::{TOLERATING, unpack};
use crate::job::trace::open;
use crate::progress::Progress;
use crate::trace_files::{must_be_another, unusable, write};

#[derive(Args)]
pub struct WindowArgs {
    /// Capture file: pcap, pcapng, snoop or ERF, also packed with gzip, zstd, xz or lz4
    trace: PathBuf,
    /// Capture file to write: pcap with times in ns; none is written if the window is the whole trace
    #[arg(long)]
    out: Option<PathBuf>,
    /// whole, first:SECONDS, busiest:SECONDS (the stretch of this length that holds most packets), or FROM..TO in seconds after the first packet
    #[arg(long)]
    window: Wanted,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    tolerate_truncated: bool,
    /// Say on stderr how much is read
    #[arg(long, hide = true)]
    progress: bool,
}

/// On stdout.
#[derive(Serialize)]
struct Found {
    /// Of the whole file.
    sha256: String,
    /// As FROM..TO, exactly.
    window: String,
    from_ns: u64,
    /// The window ends before this time.
    to_ns: u64,
    /// From its first packet to its last.
    lasts_ns: u64,
    #[serde(flatten)]
    within: Share,
    /// Packets of flows in the window.
    of_flows: Share,
    /// Of those, packets of flows that begin in the window.
    of_begun: Share,
    whole: Whole,
    is_whole: bool,
}

#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    total: Share,
    /// From the first packet to the last.
    duration_ns: u64,
    /// The most packets, and the most bytes, within any second.
    peak_second: Share,
}

/// Finds the window, counts what is in it and writes it; frames, their times and lengths on the wire stay what they are.
pub fn window(args: &WindowArgs) -> Result<()> {
    let path = args.trace.as_path();
    if let Some(out) = &args.out {
        must_be_another(out, &[path])?;
    }
    let file = open(path)?;
    let digest = std::thread::spawn({
        let file = Arc::clone(&file);
        move || Sha256::digest(&**file)
    });
    let progress = Progress::by_hand(path, args.progress);
    let unpacked = unpack(path, &file, args.tolerate_truncated, &progress)?;
    let bytes = unpacked.as_ref().map_or(&**file, |found| &found.bytes);
    progress.expect(bytes.len(), 2);
    let records = || records(path, bytes, args.tolerate_truncated, &progress);

    let mut finder = Finder::new(args.window);
    for record in records()? {
        let (at_ns, record) = record?;
        finder.add(at_ns, record.frame);
    }
    if finder.total.packets == 0 {
        return Err(unusable(path, &"the trace holds no packets").into());
    }
    let span = finder.span();
    must_lie_within(span, &finder)?;

    let (mut beginnings, mut within) = (Beginnings::default(), Share::default());
    let mut ends = None;
    let mut look = |at_ns: u64, record: &Record<'_>| {
        if span.holds(at_ns) {
            ends.get_or_insert((at_ns, at_ns)).1 = at_ns;
            within.add(record.frame);
            beginnings.add(record.frame);
        } else if at_ns < span.from_ns {
            beginnings.add_before(record.frame);
        }
    };
    let is_whole = span.from_ns == 0 && span.holds(finder.duration_ns());
    match args.out.as_deref().filter(|_| !is_whole) {
        None => {
            for record in records()? {
                let (at_ns, record) = record?;
                look(at_ns, &record);
            }
        }
        Some(out) => write(out, |out| {
            out.write_all(&file_header())?;
            for record in records()? {
                let (at_ns, record) = record?;
                look(at_ns, &record);
                if span.holds(at_ns) {
                    let length = u32::try_from(record.frame.len())?;
                    let original = record.original_bytes;
                    out.write_all(&record_header(record.timestamp_ns, length, original))?;
                    out.write_all(record.frame)?;
                }
            }
            Ok(())
        })?,
    }
    if within.packets == 0 {
        return Err(nothing_there(span).into());
    }
    let digest = digest
        .join()
        .map_err(|_| unusable(path, &"its sha256 cannot be made"))?;
    let found = Found {
        sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        window: span.to_string(),
        from_ns: span.from_ns,
        to_ns: span.to_ns,
        lasts_ns: ends.map_or(0, |(first, last)| last - first),
        within,
        of_flows: beginnings.of_flows,
        of_begun: beginnings.of_begun,
        whole: Whole {
            total: finder.total,
            duration_ns: finder.duration_ns(),
            peak_second: finder.peak(),
        },
        is_whole,
    };
    Ok(writeln!(
        std::io::stdout(),
        "{}",
        serde_json::to_string(&found)?
    )?)
}

fn must_lie_within(span: Span, finder: &Finder) -> Result<(), JobError> {
    if span.from_ns < span.to_ns {
        return Ok(());
    }
    let words = format!(
        "the window begins at {} s, and the trace lasts {} s",
        seconds(span.from_ns),
        seconds(finder.duration_ns())
    );
    Err(JobError::new("spec", words).hint("times count from the first packet of the trace"))
}

fn nothing_there(span: Span) -> JobError {
    let words = format!("the trace has no packet in its window {span}");
    JobError::new("spec", words).hint("times count from the first packet of the trace")
}

/// In ms at least as close as a person looks.
fn seconds(ns: u64) -> String {
    format!("{:.3}", std::time::Duration::from_nanos(ns).as_secs_f64())
}

/// Of a capture, with the time of each after the first; one whose time lies before that of an earlier one is due with it.
fn records<'a>(
    path: &'a Path,
    bytes: &'a [u8],
    tolerate_truncated: bool,
    progress: &'a Progress,
) -> Result<impl Iterator<Item = Result<(u64, Record<'a>), JobError>>, JobError> {
    let reader = Reader::new(bytes, tolerate_truncated).map_err(|error| unusable(path, &error))?;
    let mut ends: Option<(u64, u64)> = None;
    Ok(reader.map(move |record| {
        let record = record.map_err(|error| {
            let refused = unusable(path, &error);
            if error.is_tolerable() {
                refused.hint(TOLERATING)
            } else {
                refused
            }
        })?;
        progress.at(record.offset);
        let now_ns = record.timestamp_ns;
        let (first_ns, latest_ns) = ends.get_or_insert((now_ns, now_ns));
        *latest_ns = now_ns.max(*latest_ns);
        Ok((*latest_ns - *first_ns, record))
    }))
}
