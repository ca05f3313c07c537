//! Job `trace`: the facts of a trace, and what the kernel's reassembly will do to the replay that is planned.

mod forecast;

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use nodrop_proto::{JobError, TraceSpec};
use nodrop_replay::trace::Bytes;
use nodrop_sys::file::MappedFile;
use nodrop_trace::info::{BadRecord, Info};
use nodrop_trace::prepare::{
    Changes, LONGEST_FRAME_BYTES, Options, PrepareError, SHORTEST_FRAME_BYTES, prepare,
    with_ethernet_headers,
};
use nodrop_trace::reassembly::Counts;
use nodrop_trace::survey::Surveyor;
use nodrop_wire::capture::Reader;
use nodrop_wire::packed::Unpacked;
use nodrop_wire::pcap::{LAST_NS, file_header, record_header};
use nodrop_wire::record::{CaptureError, LINKTYPE_ETHERNET};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::capture::{TOLERATING, unpack};
use crate::job::{Job, replay};
use crate::progress::Progress;
use crate::session::Session;
use crate::trace_files::unusable;
use forecast::{Planned, TapLengths};

/// Looks into a trace.
pub struct Trace {
    spec: TraceSpec,
    file: Arc<MappedFile>,
}

/// What the trace holds.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TraceResult")]
pub struct Outcome {
    /// Of the whole file.
    sha256: String,
    /// What it holds.
    #[serde(flatten)]
    pub info: Info,
    /// What the trial will send.
    pub planned: Planned,
    /// What reassembly will do in the trial: loops, replicas and speed considered.
    pub fragments_in_trial: Counts,
    /// The same if reassembly refuses nothing: what it takes out then, it takes out at any load.
    pub fragments_unrefused: Counts,
    /// What the sockets of the receiver are handed, by length.
    pub tap_lengths: TapLengths,
}

impl Job for Trace {
    const NAME: &'static str = "trace";
    type Spec = TraceSpec;
    type Ready = ();
    type Outcome = Outcome;

    fn prepare(spec: TraceSpec, _session: &Session) -> Result<(Self, ()), JobError> {
        let file = open(&spec.trace)?;
        Ok((Self { spec, file }, ()))
    }

    fn run(&mut self, session: &Session) -> Result<Outcome, JobError> {
        look(&self.spec, &self.file, &Progress::of_job(session))
    }
}

/// Maps the file.
pub fn open(path: &Path) -> Result<Arc<MappedFile>, JobError> {
    MappedFile::open(path).map(Arc::new).map_err(|error| {
        JobError::new("trace", format!("{}: {error}", path.display()))
            .hint("a pcap file of Ethernet frames that this user may read")
    })
}

/// The facts of the trace, and the forecast for its replay.
pub fn look(
    spec: &TraceSpec,
    file: &Arc<MappedFile>,
    progress: &Progress,
) -> Result<Outcome, JobError> {
    replay::check(&spec.as_replay())?;
    let unpacked = unpack(&spec.trace, file, spec.tolerate_truncated, progress)?;
    let (bytes, cut) = match unpacked {
        Some(Unpacked { bytes, cut }) => (Bytes::from(bytes), cut),
        None => (Bytes::shared(Arc::clone(file)), None),
    };
    progress.expect(bytes.len(), 2);
    // Both take a second for a gigabyte.
    let (looked, digest) = std::thread::scope(|scope| {
        let digest = scope.spawn(|| Sha256::digest(&***file));
        (survey_of_any_link(spec, bytes, progress), digest.join())
    });
    let (bytes, mut info) = looked?;
    must_be_sendable(spec, &bytes, &info)?;
    let digest = digest.map_err(|_| JobError::new("trace", "its sha256 cannot be made"))?;
    info.bad_record = info.bad_record.or_else(|| {
        let message = cut?.to_string();
        Some(BadRecord { message })
    });
    let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    // Refused here, before anything is touched, if there are not so many fresh addresses.
    let (trace, plan) = replay::scheduled_of(&spec.as_replay(), bytes)?;
    let fragments = if info.fragments_in_pass.offered_packets > 0 {
        forecast::fragments(&trace, &plan)?
    } else {
        forecast::Fate::default()
    };
    Ok(Outcome {
        sha256,
        planned: forecast::planned(&trace, &plan, spec.speed.unwrap_or(1.0)),
        tap_lengths: forecast::tap_lengths(&trace, &plan, &fragments),
        info,
        fragments_in_trial: fragments.by_default,
        fragments_unrefused: fragments.unrefused,
    })
}

/// Refuses a capture of which no packet can be sent, as `prepare` does.
fn must_be_sendable(spec: &TraceSpec, bytes: &[u8], info: &Info) -> Result<(), JobError> {
    let lengths = SHORTEST_FRAME_BYTES as u64..=LONGEST_FRAME_BYTES as u64;
    if lengths.contains(&info.shortest_frame_bytes) && lengths.contains(&info.longest_frame_bytes) {
        return Ok(());
    }
    let read = || Reader::new(bytes, spec.tolerate_truncated);
    let done = prepare(read, &Options::default(), |_, _, _| Ok::<_, Infallible>(()));
    done.map_err(|error| unusable(&spec.trace, &error))?;
    Ok(())
}

/// The capture with an Ethernet header for each packet of another link, in memory; and where it ended early.
fn with_headers(
    spec: &TraceSpec,
    bytes: &[u8],
) -> Result<(Bytes, Changes, Option<CaptureError>), JobError> {
    let failed = |error: &dyn std::fmt::Display| unusable(&spec.trace, error);
    let mut reader =
        Reader::of_any_link(bytes, spec.tolerate_truncated).map_err(|error| failed(&error))?;
    let (made, changes) = with_ethernet_headers(reader.by_ref()).map_err(|error| {
        let refused = failed(&error);
        match error {
            PrepareError::Capture(cut) if cut.is_tolerable() => refused.hint(TOLERATING),
            _ => refused,
        }
    })?;
    Ok((made.into(), changes, reader.cut().cloned()))
}

/// The capture as it was looked at, and its facts.
fn survey_of_any_link(
    spec: &TraceSpec,
    bytes: Bytes,
    progress: &Progress,
) -> Result<(Bytes, Info), JobError> {
    if let Some(info) = survey(spec, &bytes, progress)? {
        return in_order_of_time(spec, bytes, info);
    }
    let (bytes, changes, cut) = with_headers(spec, &bytes)?;
    let mut info = survey(spec, &bytes, progress)?
        .ok_or_else(|| unusable(&spec.trace, &"it holds packets of other links"))?;
    info.bad_record = cut.map(|cut| BadRecord {
        message: cut.to_string(),
    });
    info.odd_fraction_packets = changes.odd_fraction_packets;
    info.given_header_packets = changes.given_header_packets;
    info.left_out = changes.left_out;
    in_order_of_time(spec, bytes, info)
}

/// A capture whose time steps back is looked at in the order of its time, in which a replay sends it.
fn in_order_of_time(
    spec: &TraceSpec,
    bytes: Bytes,
    stored: Info,
) -> Result<(Bytes, Info), JobError> {
    if stored.backwards.packets == 0 {
        return Ok((bytes, stored));
    }
    let failed = |error: CaptureError| unusable(&spec.trace, &error);
    let mut records = (1..)
        .zip(Reader::new(&bytes, spec.tolerate_truncated).map_err(failed)?)
        .map(|(number, record)| record.map(|record| (number, record)))
        .collect::<Result<Vec<(u64, _)>, _>>()
        .map_err(failed)?;
    records.sort_by_key(|(_, record)| record.timestamp_ns);
    let first_ns = (records.first()).map_or(0, |(_, record)| record.timestamp_ns);
    let mut surveyor = Surveyor::new(spec.speed.unwrap_or(1.0));
    let mut file = file_header().to_vec();
    for (_, record) in &records {
        surveyor.add(record);
        let length = u32::try_from(record.frame.len()).unwrap_or(u32::MAX);
        // From its own beginning: a pcap file holds no time after 2106.
        let at_ns = (record.timestamp_ns - first_ns).min(LAST_NS);
        file.extend(record_header(at_ns, length, record.original_bytes));
        file.extend_from_slice(record.frame);
    }
    let mut info = surveyor.finish(LINKTYPE_ETHERNET, stored.bad_record);
    if let Some(before) = info.longest_gap.after_packet.checked_sub(1) {
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        info.longest_gap.after_packet = records.get(before).map_or(0, |(number, _)| *number);
    }
    info.backwards = stored.backwards;
    info.odd_fraction_packets = stored.odd_fraction_packets;
    info.given_header_packets = stored.given_header_packets;
    info.left_out = stored.left_out;
    Ok((file.into(), info))
}

/// `None` if it holds packets of other links, or some without a whole Ethernet header.
fn survey(spec: &TraceSpec, bytes: &[u8], progress: &Progress) -> Result<Option<Info>, JobError> {
    let failed = |error: &dyn std::fmt::Display| unusable(&spec.trace, error);
    let mut reader = Reader::new(bytes, spec.tolerate_truncated).map_err(|error| failed(&error))?;
    let mut surveyor = Surveyor::new(spec.speed.unwrap_or(1.0));
    for record in reader.by_ref() {
        let record = match record {
            Err(CaptureError::LinkType { .. }) => return Ok(None),
            Err(error) if error.is_tolerable() => return Err(failed(&error).hint(TOLERATING)),
            record => record.map_err(|error| failed(&error))?,
        };
        if record.frame.len() < SHORTEST_FRAME_BYTES {
            return Ok(None);
        }
        surveyor.add(&record);
        progress.at(record.offset);
    }
    let bad_record = reader.cut().map(|cut| BadRecord {
        message: cut.to_string(),
    });
    let info = surveyor.finish(LINKTYPE_ETHERNET, bad_record);
    if info.packets == 0 {
        return Err(failed(&"the trace holds no packets"));
    }
    Ok(Some(info))
}
