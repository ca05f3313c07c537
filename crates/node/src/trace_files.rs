//! `nodrop-node trace cut`, `replicate` and `merge`: a part of a capture, what a replay of its replicas would send, and several captures
//! as one, as files.

use std::fmt::Display;
use std::fs::{File, Permissions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use nodrop_proto::{Flows, JobError, ReplaySpec};
use nodrop_sys::file::create;
use nodrop_trace::prepare::with_ethernet_headers;
use nodrop_wire::capture::Reader;
use nodrop_wire::pcap::{file_header, file_header_of, record_header};
use nodrop_wire::record::{Record, Source};
use tempfile::{Builder, NamedTempFile};

use crate::capture::contents;
use crate::job::replay::{macs, scheduled};
use crate::progress::Progress;

#[derive(Args)]
pub struct CutArgs {
    /// Capture file: pcap, pcapng, snoop or ERF, also packed with gzip, zstd, xz or lz4
    trace: PathBuf,
    /// Capture file to write: pcap with times in ns
    out: PathBuf,
    /// Leave out what comes before this time after the first packet
    #[arg(long, default_value_t = 0.0, value_parser = seconds)]
    from_s: f64,
    /// Leave out what comes at this time after the first packet or later
    #[arg(long, value_parser = seconds)]
    to_s: Option<f64>,
    /// Leave out so many of the packets within that time
    #[arg(long, default_value_t = 0)]
    skip: u64,
    /// Write at most so many packets
    #[arg(long)]
    packets: Option<u64>,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    tolerate_truncated: bool,
}

#[derive(Args)]
pub struct ReplicateArgs {
    /// Capture file: pcap, pcapng, snoop or ERF, also packed with gzip, zstd, xz or lz4
    trace: PathBuf,
    /// Capture file to write: pcap with times in ns
    out: PathBuf,
    /// Replicas, the trace itself included (NX); the last one carries a part of the flows if this is no whole number
    #[arg(long)]
    multiplier: f64,
    /// Chooses the flows of a replica that is not whole
    #[arg(long, default_value_t = 1)]
    flow_seed: u64,
    /// Whether replicas are flows of their own
    #[arg(long, value_enum, default_value_t)]
    flows: Flows,
    /// Start the replicas a little apart, by this seed, as a replay does; in step if it is left out
    #[arg(long)]
    seed: Option<u64>,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    tolerate_truncated: bool,
}

#[derive(Args)]
pub struct MergeArgs {
    /// Capture files: pcap, pcapng, snoop or ERF, also packed with gzip, zstd, xz or lz4
    #[arg(required = true, num_args = 2..)]
    traces: Vec<PathBuf>,
    /// Capture file to write: pcap with times in ns
    #[arg(long)]
    out: PathBuf,
    /// One address for each trace, written over the destination address of its frames; each begins with the first packet
    #[arg(long, value_delimiter = ',')]
    dst_macs: Vec<String>,
    /// Keep the times of all packets, also where the captures overlap or lie far apart
    #[arg(long, conflicts_with = "dst_macs")]
    own_times: bool,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    tolerate_truncated: bool,
}

/// Refuses to write over a capture that is read: its packets would be lost.
pub fn must_be_another(out: &Path, traces: &[&Path]) -> Result<(), JobError> {
    if traces.iter().any(|trace| is_same(trace, out)) {
        let words = format!("{} is the capture itself", out.display());
        return Err(JobError::new("spec", words).hint("give what is written another name"));
    }
    Ok(())
}

fn is_same(trace: &Path, out: &Path) -> bool {
    let found = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    out.is_file() && found(trace) == found(out)
}

/// Writes a part of a capture; its frames, their times and lengths on the wire stay what they are.
pub fn cut(args: &CutArgs) -> anyhow::Result<()> {
    must_be_another(&args.out, &[&args.trace])?;
    let progress = Progress::by_hand(&args.trace, false);
    let bytes = contents(&args.trace, args.tolerate_truncated, &progress)?;
    let bad = |words: &dyn Display| unusable(&args.trace, words);
    let (from_ns, to_ns) = (after(args.from_s), args.to_s.map_or(u64::MAX, after));
    let mut begin = None;
    let mut kept = 0;
    let most = args.packets.unwrap_or(u64::MAX);
    write(&args.out, |out| {
        out.write_all(&file_header())?;
        let mut skipped = 0;
        for record in Reader::new(&bytes, args.tolerate_truncated).map_err(|e| bad(&e))? {
            let record = record.map_err(|e| bad(&e))?;
            let at = record
                .timestamp_ns
                .saturating_sub(*begin.get_or_insert(record.timestamp_ns));
            if at < from_ns || at >= to_ns {
                continue;
            }
            if skipped < args.skip {
                skipped += 1;
                continue;
            }
            if kept == most {
                break;
            }
            kept += 1;
            let length = u32::try_from(record.frame.len())?;
            out.write_all(&record_header(
                record.timestamp_ns,
                length,
                record.original_bytes,
            ))?;
            out.write_all(record.frame)?;
        }
        if kept == 0 {
            return Err(bad(&"no packet is left").into());
        }
        Ok(())
    })?;
    let result = serde_json::json!({"packets": kept});
    report(&args.out, &result)
}

/// Writes what a replay of the replicas at the trace's own timing sends.
pub fn replicate(args: &ReplicateArgs) -> anyhow::Result<()> {
    must_be_another(&args.out, &[&args.trace])?;
    // Offsets come with distinct flows: replicas in step are asked for by a request without.
    let spec = ReplaySpec {
        multiplier: args.multiplier,
        flow_seed: args.flow_seed,
        flows: args.flows,
        seed: args.seed.unwrap_or(0),
        tolerate_truncated: args.tolerate_truncated,
        ..serde_json::from_value(serde_json::json!({
            "trace": args.trace, "interface": "", "speed": 1.0,
        }))?
    };
    let (trace, plan) = scheduled(&spec, args.seed.is_some())?;
    let mut buffer = trace.buffer();
    let mut as_is = 0;
    write(&args.out, |out| {
        out.write_all(&file_header())?;
        for slot in plan.slots(&trace) {
            let (frame, not_rewritten) = trace.frame(slot.packet, slot.copy, &mut buffer);
            as_is += u64::from(not_rewritten);
            let length = u32::try_from(frame.len())?;
            out.write_all(&record_header(
                trace.begins_ns() + slot.due_ns,
                length,
                length,
            ))?;
            out.write_all(frame)?;
        }
        Ok(())
    })?;
    let result = serde_json::json!({
        "packets": plan.intended_packets(),
        "not_rewritten_packets": as_is,
        "same_flows": trace.same_flows(),
    });
    report(&args.out, &result)
}

/// Pieces of one capture may overlap by so much, for a packet is written a little after its time.
const MOST_OVERLAP_NS: u64 = 1_000_000_000;
/// Longest silence between two captures of one rotation.
const LONGEST_SILENCE_NS: u64 = 3_600_000_000_000;

/// Writes captures as one. Pieces of one capture, whose times follow each other, keep their times; others begin together: what senders of
/// their own would send.
pub fn merge(args: &MergeArgs) -> anyhow::Result<()> {
    let read: Vec<_> = args.traces.iter().map(PathBuf::as_path).collect();
    must_be_another(&args.out, &read)?;
    let macs = macs(&args.dst_macs)?;
    if !macs.is_empty() && macs.len() != args.traces.len() {
        let (macs, traces) = (macs.len(), args.traces.len());
        let words = format!("dst_macs: {macs} for {traces} traces");
        return Err(JobError::new("spec", words)
            .hint("name one for each trace, or none")
            .into());
    }
    let files = (args.traces.iter())
        .map(|path| {
            contents(
                path,
                args.tolerate_truncated,
                &Progress::by_hand(path, false),
            )
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut spans = (args.traces.iter().zip(&files))
        .map(|(path, bytes)| Span::of(path, bytes, args.tolerate_truncated))
        .collect::<Result<Vec<_>, _>>()?;
    // A rotation leaves pieces without a packet.
    let is_needed = |span: &Option<Span>| span.is_some() || !args.own_times;
    let needed: Vec<bool> = if spans.iter().any(Option::is_some) {
        spans.iter().map(is_needed).collect()
    } else {
        vec![true; spans.len()]
    };
    spans.retain(is_needed);
    let spans: Vec<Span> = spans.into_iter().flatten().collect();
    let is_joined = args.own_times || macs.is_empty() && follow_each_other(&spans);
    let source = is_joined.then(|| one_link(&spans)).flatten();
    let files = (args.traces.iter().zip(files))
        .map(|(path, bytes)| {
            if is_joined && source.is_none() {
                with_headers(path, &bytes, args.tolerate_truncated)
            } else {
                Ok(bytes)
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut sides = (args.traces.iter().zip(&files))
        .zip(needed)
        .filter(|(_, needed)| *needed)
        .map(|((path, bytes), _)| Side::new(path, bytes, args.tolerate_truncated, is_joined))
        .collect::<Result<Vec<_>, _>>()?;
    let begins_ns = if is_joined {
        0
    } else {
        sides.first().map_or(0, |first| first.begins_ns)
    };
    let mut packets = vec![0_u64; sides.len()];
    write(&args.out, |out| {
        out.write_all(&source.map_or_else(file_header, file_header_of))?;
        while let Some(number) = earliest(&sides) {
            let Some((at_ns, record)) = sides[number].take()? else {
                continue;
            };
            packets[number] += 1;
            let length = u32::try_from(record.frame.len())?;
            out.write_all(&record_header(
                begins_ns + at_ns,
                length,
                record.original_bytes,
            ))?;
            match (macs.get(number), record.frame.split_at_checked(6)) {
                (Some(mac), Some((_, rest))) => {
                    out.write_all(mac)?;
                    out.write_all(rest)?;
                }
                _ => out.write_all(record.frame)?,
            }
        }
        Ok(())
    })?;
    report(
        &args.out,
        &serde_json::json!({"packets": packets, "joined": is_joined}),
    )
}

/// The time that a capture covers, and its link if it has one.
struct Span {
    begin_ns: u64,
    end_ns: u64,
    source: Option<Source>,
}

impl Span {
    /// `None` if it holds no packet.
    fn of(path: &Path, bytes: &[u8], tolerate_truncated: bool) -> Result<Option<Self>, JobError> {
        let mut span: Option<Self> = None;
        if bytes.is_empty() {
            return Ok(span);
        }
        let reader = Reader::of_any_link(bytes, tolerate_truncated);
        for record in reader.map_err(|e| unusable(path, &e))? {
            let record = record.map_err(|e| unusable(path, &e))?;
            let (at_ns, source) = (record.timestamp_ns, link_of(&record));
            let span = span.get_or_insert(Self {
                begin_ns: at_ns,
                end_ns: at_ns,
                source: Some(source),
            });
            span.begin_ns = span.begin_ns.min(at_ns);
            span.end_ns = span.end_ns.max(at_ns);
            span.source = span.source.filter(|before| *before == source);
        }
        Ok(span)
    }
}

/// The capture with an Ethernet header for each packet of another link.
fn with_headers(path: &Path, bytes: &[u8], tolerate_truncated: bool) -> Result<Vec<u8>, JobError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let reader = Reader::of_any_link(bytes, tolerate_truncated).map_err(|e| unusable(path, &e))?;
    let (made, _) = with_ethernet_headers(reader).map_err(|e| unusable(path, &e))?;
    Ok(made)
}

/// Link type and check sequence, as the header of a pcap file has them.
fn link_of(record: &Record<'_>) -> Source {
    Source {
        fcs_bytes: record.source.fcs_bytes,
        ..Source::of(record.source.linktype)
    }
}

/// Whether these are pieces of one capture, as `tcpdump -C` and `-G` write them, in whatever order they are named.
fn follow_each_other(spans: &[Span]) -> bool {
    let mut times: Vec<_> = spans.iter().map(|s| (s.begin_ns, s.end_ns)).collect();
    times.sort_unstable();
    times.windows(2).all(|two| {
        let ((_, end), (begin, _)) = (two[0], two[1]);
        end <= begin.saturating_add(MOST_OVERLAP_NS.min((end - two[0].0) / 10))
            && begin <= end.saturating_add(LONGEST_SILENCE_NS)
    })
}

/// The link that all packets have; `None` if they differ.
fn one_link(spans: &[Span]) -> Option<Source> {
    let first = spans.first()?.source?;
    spans
        .iter()
        .all(|span| span.source == Some(first))
        .then_some(first)
}

/// Of those that have a packet left, the one whose next is due first; of two the one that was named first.
fn earliest(sides: &[Side]) -> Option<usize> {
    let due = sides.iter().enumerate().filter(|(_, s)| s.next.is_some());
    due.min_by_key(|(_, side)| side.at_ns).map(|(n, _)| n)
}

/// One of several captures that are read at once, by time after its first packet.
struct Side<'a> {
    path: &'a Path,
    reader: Reader<'a>,
    begins_ns: u64,
    /// When the next packet is due; one whose time lies before that of an earlier packet is due with it.
    at_ns: u64,
    next: Option<Record<'a>>,
    at_own_times: bool,
}

impl<'a> Side<'a> {
    /// Read from its own beginning, or `at_own_times`.
    fn new(
        path: &'a Path,
        bytes: &'a [u8],
        tolerate_truncated: bool,
        at_own_times: bool,
    ) -> Result<Self, JobError> {
        let mut reader = if at_own_times {
            Reader::of_any_link(bytes, tolerate_truncated)
        } else {
            Reader::new(bytes, tolerate_truncated)
        }
        .map_err(|e| unusable(path, &e))?;
        let first = following(path, &mut reader)?;
        let first = first.ok_or_else(|| unusable(path, &"the trace holds no packets"))?;
        Ok(Self {
            path,
            reader,
            begins_ns: if at_own_times { 0 } else { first.timestamp_ns },
            at_ns: if at_own_times { first.timestamp_ns } else { 0 },
            next: Some(first),
            at_own_times,
        })
    }

    fn take(&mut self) -> Result<Option<(u64, Record<'a>)>, JobError> {
        let taken = self.next.take().map(|record| (self.at_ns, record));
        self.next = following(self.path, &mut self.reader)?;
        if let Some(next) = &self.next {
            let after_ns = next.timestamp_ns.saturating_sub(self.begins_ns);
            // Pieces keep their order of time too: the load's own key decides on it.
            self.at_ns = if self.at_own_times {
                after_ns
            } else {
                self.at_ns.max(after_ns)
            };
        }
        Ok(taken)
    }
}

fn following<'a>(path: &Path, reader: &mut Reader<'a>) -> Result<Option<Record<'a>>, JobError> {
    reader.next().transpose().map_err(|e| unusable(path, &e))
}

pub fn unusable(path: &Path, words: &dyn Display) -> JobError {
    JobError::new("trace", format!("{}: {words}", path.display()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time after the first packet, not negative; what is too large saturates"
)]
fn after(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
        .ok_or_else(|| "must be a number of seconds, 0 or more".into())
}

/// What was done, on stdout; on stderr if the frames have gone there.
pub fn report(out: &Path, result: &serde_json::Value) -> anyhow::Result<()> {
    if is_stdout(out) {
        return Ok(writeln!(std::io::stderr(), "{result}")?);
    }
    Ok(writeln!(std::io::stdout(), "{result}")?)
}

fn is_stdout(out: &Path) -> bool {
    let file = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    file(out) == file(Path::new("/dev/stdout"))
}

/// An empty file without a name, in the folder of the file that is to be written; where temporary files are if that takes none.
pub fn spool(out: &Path) -> anyhow::Result<File> {
    let beside = folder_of(out).and_then(|folder| tempfile::tempfile_in(folder).ok());
    Ok(beside.map_or_else(tempfile::tempfile, Ok)?)
}

/// The folder in which a file can stand beside this one; `None` if it is /dev, or of /proc: /dev/stdout has no neighbours.
pub fn folder_of(out: &Path) -> Option<PathBuf> {
    let folder = match out.parent()? {
        here if here == Path::new("") => Path::new("."),
        folder => folder,
    };
    let folder = folder.canonicalize().ok()?;
    (folder != Path::new("/dev") && !folder.starts_with("/proc")).then_some(folder)
}

/// Writes a file that is there as a whole. Until it is, what has that name stays: it may be the capture that is read.
pub fn write(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let refused = |error: std::io::Error| match error.kind() {
        ErrorKind::InvalidInput => {
            JobError::new("spec", format!("{}: {error}", path.display())).into()
        }
        _ => anyhow!(error).context(format!("cannot write {}", path.display())),
    };
    let (file, part) = match replaceable(path) {
        Some(to) => {
            let (file, part) = beside(&to).map_err(refused)?.into_parts();
            (file, Some((part, to)))
        }
        None => (create(path).map_err(refused)?, None),
    };
    let mut out = BufWriter::new(file);
    content(&mut out)
        .and_then(|()| Ok(out.flush()?))
        .map_err(|error| match error.downcast::<std::io::Error>() {
            // Not the quiet end of `| head`: a file was asked for, and is not whole.
            Ok(gone) if gone.kind() == ErrorKind::BrokenPipe && !is_stdout(path) => {
                anyhow!("cannot write {}: whoever read it has gone", path.display())
            }
            Ok(error) => refused(error),
            Err(other) => other,
        })?;
    part.map_or(Ok(()), |(part, to)| {
        part.persist(to).map_err(|failed| refused(failed.error))
    })
}

/// The regular file that this is or will be, by the name that no link leads on from; `None` for a pipe, a device and stdout.
fn replaceable(path: &Path) -> Option<PathBuf> {
    let folder = folder_of(path)?;
    if path.symlink_metadata().is_err() {
        return Some(folder.join(path.file_name()?));
    }
    (path.is_file() && !is_stdout(path)).then(|| path.canonicalize().ok())?
}

/// A new file in the same folder, for anybody to read whom the umask lets.
fn beside(to: &Path) -> std::io::Result<NamedTempFile> {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".");
    Builder::new()
        .prefix(&name)
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(to.parent().unwrap_or(Path::new("/")))
}
