//! Job `replay`: send a trace on an absolute schedule, and say what was really sent.

mod guard;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::errno::Errno;
use nodrop_io::packed::unpacked;
use nodrop_io::thread::{self, mono_ns};
use nodrop_io::tx::PacketSender;
use nodrop_io::xdp::{self, XdpSender};
use nodrop_proto::{
    Achieved, Flows, JobError, ReplayReady, ReplayResult, ReplaySample, ReplaySpec, ScheduleError,
    SendBackend,
};
use nodrop_replay::schedule::Request;
use nodrop_replay::sender::ScheduleErrorNs;
use nodrop_replay::{Backend, Load, Mac, Outcome, Plan, Profile, Trace, TraceError};

use crate::job::{Job, interface_error};
use crate::session::Session;

/// The first packet would else be late by the time it takes to start.
const HEAD_START_NS: u64 = 1_000_000;
const SAMPLE: Duration = Duration::from_millis(500);

/// A trace in memory and a socket to send it on.
pub struct Replay {
    trace: Trace,
    plan: Plan,
    backend: Backend,
    limit_ns: Option<u64>,
    realtime: bool,
}

impl Job for Replay {
    const NAME: &'static str = "replay";
    type Spec = ReplaySpec;
    type Ready = ReplayReady;
    type Outcome = ReplayResult;

    fn prepare(spec: ReplaySpec, session: &Session) -> Result<(Self, ReplayReady), JobError> {
        if !session.is_controlled() && !spec.yes {
            guard::refuse_port_in_use(&spec.interface)?;
        }
        let request = request(&spec)?;
        // Before the trace is read: the cheap errors come first.
        let sender = PacketSender::open(&spec.interface).map_err(|e| interface_error(&e))?;
        let trace = load(&spec)?;
        let backend = backend(&spec, &trace, sender)?;
        let plan = plan(&trace, &request)?;
        if let Some(cpu) = spec.cpu {
            thread::pin(cpu)
                .map_err(|e| JobError::new("spec", format!("cpu {cpu}: cannot pin to it: {e}")))?;
        }
        // Not locked where the limit is low: then a host that swaps shows in the schedule error.
        let _ = thread::lock_memory();
        thread::exact_timers();
        // At top speed there is nothing to be on time for, and a real-time thread would starve its CPU.
        let realtime = spec.realtime && plan.is_paced() && thread::realtime();
        let ready = ReplayReady {
            trace_packets: trace.packets().len() as u64,
            trace_bytes: trace.frame_bytes(),
            trace_duration_ns: trace.duration_ns(),
            intended_packets: plan.intended_packets(),
            intended_duration_ns: plan.intended_duration_ns(&trace),
            realtime,
            backend: backend.name().into(),
            replica_offsets_ns: plan.replica_offsets_ns().to_vec(),
        };
        let limit_ns = request.duration_ns;
        Ok((
            Self {
                trace,
                plan,
                backend,
                limit_ns,
                realtime,
            },
            ready,
        ))
    }

    fn run(mut self, session: &Session) -> Result<ReplayResult, JobError> {
        let sent_packets = AtomicU64::new(0);
        let replay = nodrop_replay::Replay::new(
            &self.trace,
            &self.plan,
            &mut self.backend,
            self.realtime,
            self.limit_ns,
        )
        .telling(&sent_packets);
        let start = session.wait_start_in(HEAD_START_NS);
        let outcome = std::thread::scope(|scope| {
            let (sending, ended) = channel();
            scope.spawn(|| tell(session, &sent_packets, ended));
            let outcome = replay.run(start, || session.stopped());
            drop(sending);
            outcome
        });
        thread::not_realtime();
        let outcome = outcome.map_err(|e| {
            JobError::new("interface_down", e.to_string())
                .hint("the interface went down or away while packets were sent")
        })?;
        Ok(self.result(outcome))
    }
}

impl Replay {
    fn result(&self, outcome: Outcome) -> ReplayResult {
        ReplayResult {
            intended_packets: outcome.intended_packets,
            sent_packets: outcome.sent_packets,
            sent_bytes: outcome.sent_bytes,
            refused_packets: named(&outcome.refused_packets),
            unsent_packets: outcome.intended_packets - outcome.sent_packets,
            first_sent_mono_ns: outcome.first_sent_mono_ns,
            last_sent_mono_ns: outcome.last_sent_mono_ns,
            intended_duration_ns: self.plan.intended_duration_ns(&self.trace),
            schedule_error_us: outcome.schedule_error_ns.map(in_us),
            cpu_s: outcome.cpu_ns as f64 / 1e9,
            backend: self.backend.name().into(),
            realtime: self.realtime,
            not_rewritten_packets: outcome.not_rewritten_packets,
            same_flows: self.trace.same_flows(),
            replica_offsets_ns: self.plan.replica_offsets_ns().to_vec(),
            achieved: Achieved {
                interval_ns: nodrop_replay::Achieved::INTERVAL_NS,
                packets: outcome.achieved.packets,
                bytes: outcome.achieved.bytes,
                largest_error_ns: outcome.achieved.largest_error_ns,
            },
        }
    }
}

/// Says every half second what was sent, until the sender is gone. A thread of its own: a controller that does not read would
/// block the sender.
fn tell(session: &Session, sent_packets: &AtomicU64, ended: Receiver<()>) {
    thread::not_realtime();
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SAMPLE) {
        session.sample(&ReplaySample {
            mono_ns: mono_ns(),
            sent_packets: sent_packets.load(Ordering::Relaxed),
        });
    }
}

/// A trace and the schedule of its replay, without the replay; `with_offsets` where replicas start apart, not in step.
pub fn scheduled(spec: &ReplaySpec, with_offsets: bool) -> Result<(Trace, Plan), JobError> {
    let mut request = request(spec)?;
    request.offsets_from = request.offsets_from.filter(|_| with_offsets);
    let trace = load(spec)?;
    let plan = plan(&trace, &request)?;
    Ok((trace, plan))
}

fn plan(trace: &Trace, request: &Request) -> Result<Plan, JobError> {
    Plan::new(trace, request).map_err(|e| {
        let error = JobError::new("spec", e.to_string());
        error.hint("see `nodrop-node replay --help`")
    })
}

/// AF_XDP at top speed where it is to be had and takes every frame, else send(2).
fn backend(spec: &ReplaySpec, trace: &Trace, sender: PacketSender) -> Result<Backend, JobError> {
    let fits = trace.longest_frame() <= xdp::LONGEST_FRAME;
    match spec.backend {
        SendBackend::Auto if !spec.top_speed || !fits => Ok(Backend::Packet(sender)),
        SendBackend::AfPacket => Ok(Backend::Packet(sender)),
        SendBackend::AfXdp if !spec.top_speed => Err(JobError::new(
            "spec",
            "backend af_xdp sends in batches: it needs top_speed",
        )),
        SendBackend::AfXdp | SendBackend::Auto => {
            match XdpSender::open(&spec.interface, trace.in_place()) {
                Ok(sender) => Ok(Backend::Xdp(Box::new(sender))),
                Err(_) if spec.backend == SendBackend::Auto => Ok(Backend::Packet(sender)),
                Err(e) => Err(interface_error(&e)),
            }
        }
    }
}

fn request(spec: &ReplaySpec) -> Result<Request, JobError> {
    let profile = spec
        .profile
        .as_deref()
        .map(|path| profile(path, spec.ramp))
        .transpose()?;
    let loads: Vec<Load> = [
        spec.speed.map(|speed| Load::Timing { speed }),
        spec.pps.map(|pps| Load::Rate {
            pps,
            burst: spec.burst,
        }),
        spec.bps.map(|bps| Load::Bits { bps }),
        profile.map(Load::Profile),
        spec.top_speed.then_some(Load::TopSpeed),
    ]
    .into_iter()
    .flatten()
    .collect();
    let [load] = <[Load; 1]>::try_from(loads).map_err(|_| {
        JobError::new(
            "spec",
            "exactly one of speed, pps, bps, profile and top_speed is needed",
        )
    })?;
    let distinct = spec.flows == Flows::Distinct;
    Ok(Request {
        load,
        loops: spec.loops,
        replicas: spec.multiplier,
        duration_ns: spec.duration_s.map(duration_ns).transpose()?,
        offsets_from: distinct.then_some(spec.seed),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of seconds; one that is too large saturates"
)]
fn duration_ns(seconds: f64) -> Result<u64, JobError> {
    if seconds.is_finite() && seconds > 0.0 {
        return Ok((seconds * 1e9) as u64);
    }
    Err(JobError::new(
        "spec",
        format!("duration_s = {seconds}: must be a positive number"),
    ))
}

fn profile(path: &Path, ramp: bool) -> Result<Profile, JobError> {
    let bad = |words: &dyn std::fmt::Display| {
        JobError::new("spec", format!("profile {}: {words}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|e| bad(&e))?;
    Profile::from_csv(&text, ramp).map_err(|e| bad(&e))
}

fn load(spec: &ReplaySpec) -> Result<Trace, JobError> {
    let paths: Vec<&PathBuf> = std::iter::once(&spec.trace).chain(&spec.merge).collect();
    let files = paths
        .iter()
        .map(|path| contents(path))
        .collect::<Result<_, _>>()?;
    let failed = |number: usize, e: &TraceError| {
        let error = JobError::new("trace", format!("{}: {e}", paths[number].display()));
        match e {
            TraceError::Capture(cut) if cut.is_tolerable() => {
                error.hint("--tolerate-truncated uses the packets before that place")
            }
            TraceError::Rewrite(_) => error.hint("use fewer replicas, or flows \"same\""),
            _ => error,
        }
    };
    let trace = Trace::merged(files, spec.tolerate_truncated);
    let mut trace = trace.map_err(|(number, e)| failed(number, &e))?;
    if spec.flows == Flows::Distinct {
        trace
            .make_replicas_distinct(spec.multiplier)
            .map_err(|e| failed(0, &e))?;
    }
    let macs: Result<Vec<Mac>, JobError> = spec.dst_macs.iter().map(|text| mac(text)).collect();
    trace.share_among(macs?);
    Ok(trace)
}

fn mac(text: &str) -> Result<Mac, JobError> {
    let bytes: Option<Vec<u8>> = (text.split(':'))
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes
        .and_then(|bytes| Mac::try_from(bytes).ok())
        .ok_or_else(|| {
            let words = format!("dst_macs: `{text}` is no Ethernet address");
            JobError::new("spec", words).hint("write six bytes such as 02:00:00:00:00:01")
        })
}

/// A capture file in memory: read, not mapped, so that nobody who changes the file changes what is sent.
pub fn contents(path: &Path) -> Result<Vec<u8>, JobError> {
    let failed =
        |e: std::io::Error| JobError::new("trace", format!("{}: cannot read: {e}", path.display()));
    let bytes = std::fs::read(path).map_err(failed)?;
    Ok(unpacked(&bytes).map_err(failed)?.unwrap_or(bytes))
}

fn named(refused: &BTreeMap<i32, u64>) -> BTreeMap<String, u64> {
    let name = |errno: &i32| format!("{:?}", Errno::from_raw(*errno)).to_lowercase();
    refused
        .iter()
        .map(|(errno, packets)| (name(errno), *packets))
        .collect()
}

fn in_us(error: ScheduleErrorNs) -> ScheduleError {
    let us = |ns: u64| ns as f64 / 1e3;
    ScheduleError {
        p50: us(error.p50),
        p99: us(error.p99),
        p999: us(error.p999),
        max: us(error.max),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(load: &str) -> ReplaySpec {
        serde_json::from_str(&format!(r#"{{"trace":"t","interface":"i",{load}}}"#)).unwrap()
    }

    #[test]
    fn exactly_one_load_is_needed() {
        assert_eq!(
            request(&spec(r#""pps":5"#)).unwrap().load,
            Load::Rate { pps: 5.0, burst: 1 }
        );
        for bad in [
            r#""pps":5,"bps":2"#,
            r#""loops":1"#,
            r#""speed":1,"top_speed":true"#,
        ] {
            assert_eq!(request(&spec(bad)).unwrap_err().kind, "spec");
        }
    }

    #[test]
    fn replicas_in_step_have_no_seed() {
        let of = |flows| request(&spec(&format!(r#""pps":5,"seed":3,"flows":"{flows}""#))).unwrap();
        assert_eq!(of("distinct").offsets_from, Some(3));
        assert_eq!(of("same").offsets_from, None);
    }

    #[test]
    fn an_ethernet_address_has_six_bytes() {
        assert_eq!(mac("02:00:5e:0a:FF:01").unwrap(), [2, 0, 0x5e, 10, 255, 1]);
        for bad in [
            "",
            "02:00:5e:0a:ff",
            "02:00:5e:0a:ff:01:02",
            "02:00:5e:0a:ff:1ff",
        ] {
            assert_eq!(mac(bad).unwrap_err().kind, "spec");
        }
    }

    #[test]
    fn refusals_are_named_as_the_kernel_does() {
        let refused = BTreeMap::from([(90, 3), (105, 1)]);
        assert_eq!(
            named(&refused),
            BTreeMap::from([("emsgsize".into(), 3), ("enobufs".into(), 1)])
        );
    }
}
