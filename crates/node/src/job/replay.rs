//! Job `replay`: send a trace on an absolute schedule, and say what was really sent.

mod guard;
mod offer;
mod ports;
mod result;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nodrop_proto::{
    Flows, JobError, LedBy, ReplayReady, ReplayResult, ReplaySpec, SendBackend, SpreadOver,
};
use nodrop_replay::trace::Bytes;
use nodrop_replay::{
    Copies, Load, Mac, Plan, PlanError, Profile, Replicas, Request, Spread, Trace, TraceError,
};
use nodrop_sys::file::read_text;
use nodrop_sys::idle::ShallowIdle;
use nodrop_sys::thread;

use crate::capture::{TOLERATING, contents};
use crate::job::Job;
use crate::progress::Progress;
use crate::session::Session;
use offer::Offer;
use ports::Port;

/// A trace in memory and sockets to send it on.
pub struct Replay {
    spec: ReplaySpec,
    offer: Offer,
    ports: Vec<Port>,
    shallow_idle: Option<ShallowIdle>,
}

impl Job for Replay {
    const NAME: &'static str = "replay";
    type Spec = ReplaySpec;
    type Ready = ReplayReady;
    type Outcome = ReplayResult;

    fn prepare(spec: ReplaySpec, session: &Session) -> Result<(Self, ReplayReady), JobError> {
        Self::with(Kept::default(), spec, session)
    }

    /// The trace stays in memory if it is of the same files: a new process reads and indexes it anew, some 0.7 ms per MB. The ports
    /// stay open if only the schedule is another: the kernel takes 10 ms to close a packet socket, 50 ms with AF_XDP.
    fn again(self, spec: ReplaySpec, session: &Session) -> Result<(Self, ReplayReady), JobError> {
        let trace = of_same_files(&self.spec, &spec);
        let ports = differ_in_schedule_alone(&self.spec, &spec);
        let kept = Kept {
            ports: ports.then_some(self.ports),
            trace: trace.then_some(self.offer.trace),
        };
        Self::with(kept, spec, session)
    }

    fn run(&mut self, session: &Session) -> Result<ReplayResult, JobError> {
        let outcomes = ports::send(&mut self.ports, &self.offer, session)?;
        let is_shallow = self.shallow_idle.is_some();
        let result = result::result(&self.offer, &self.ports, is_shallow, &outcomes);
        // The host idles as it did, however long nothing else is asked for.
        self.shallow_idle = None;
        Ok(result)
    }
}

/// Of the replay before.
#[derive(Default)]
struct Kept {
    ports: Option<Vec<Port>>,
    trace: Option<Trace>,
}

/// A CPU for each sender, and one more for all else. What this process may use counts: its limit on CPU time is one for all threads.
fn may_spin(cpus: &[u32]) -> bool {
    let different: BTreeSet<&u32> = cpus.iter().collect();
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    !cpus.is_empty() && different.len() == cpus.len() && usable > cpus.len()
}

/// A flood's ports are judged by the schedule as well, and AF_XDP's memory by whether frames are rewritten.
fn differ_in_schedule_alone(before: &ReplaySpec, now: &ReplaySpec) -> bool {
    let is_flood = matches!(now.backend, SendBackend::Flood | SendBackend::FloodIn);
    let is_rewritten = |spec: &ReplaySpec| {
        let copies = request(spec).and_then(|r| r.copies().map_err(|e| unscheduled(&e)));
        spec.flows == Flows::Distinct && (spec.first_copy > 0 || copies.is_ok_and(|n| n > 1))
    };
    let alike = ReplaySpec {
        multiplier: now.multiplier,
        loop_flows: now.loop_flows,
        first_copy: now.first_copy,
        flows: now.flows,
        flow_seed: now.flow_seed,
        speed: now.speed,
        pps: now.pps,
        burst: now.burst,
        bps: now.bps,
        profile: now.profile.clone(),
        ramp: now.ramp,
        loops: now.loops,
        duration_s: now.duration_s,
        pass_s: now.pass_s,
        seed: now.seed,
        ..before.clone()
    };
    alike == *now && !is_flood && is_rewritten(before) == is_rewritten(now)
}

fn of_same_files(before: &ReplaySpec, now: &ReplaySpec) -> bool {
    before.trace == now.trace
        && before.merge == now.merge
        && before.tolerate_truncated == now.tolerate_truncated
}

impl Replay {
    fn with(
        kept: Kept,
        spec: ReplaySpec,
        session: &Session,
    ) -> Result<(Self, ReplayReady), JobError> {
        if !session.is_controlled() && !spec.yes {
            for interface in &spec.interfaces {
                guard::refuse_port_in_use(interface)?;
            }
        }
        let request = request(&spec)?;
        // Before the trace is read: the cheap errors come first.
        let sockets = match &kept.ports {
            Some(_) => Vec::new(),
            None => ports::sockets(&spec)?,
        };
        let (trace, plan) = planned(kept.trace, &spec, &request)?;
        let ports = match kept.ports {
            Some(ports) => ports,
            None => ports::open(&spec, &trace, sockets)?,
        };
        let spread = match spec.spread {
            // A port is a few bytes on a command line: there are not 2^32 of them.
            SpreadOver::Flows => Spread::by_flow(&trace, u32::try_from(ports.len()).unwrap_or(1)),
            SpreadOver::Copy => Spread::copied(),
        };
        // Not locked if the limit is low: then a host that swaps shows in the schedule error.
        let _ = thread::lock_memory();
        // These two are inherited by the threads that send.
        thread::exact_timers();
        // At top speed there is nothing to be on time for, and a real-time thread would starve its CPU.
        let realtime = spec.realtime && plan.is_paced() && thread::realtime();
        // Several replicas leave about their times.
        let has_exact_times = plan.is_paced() && plan.replicas() == 1;
        let asks = spec.shallow_idle && has_exact_times;
        let spin = spec.spin && may_spin(&spec.cpus) && plan.is_paced();
        let replay = Self {
            spec,
            shallow_idle: asks.then(ShallowIdle::ask).flatten(),
            offer: Offer {
                trace,
                plan,
                spread,
                limit_ns: request.duration_ns,
                realtime,
                spin,
            },
            ports,
        };
        let ready = replay.ready();
        Ok((replay, ready))
    }

    fn ready(&self) -> ReplayReady {
        let Offer {
            trace,
            plan,
            spread,
            realtime,
            ..
        } = &self.offer;
        let shares = (0..).zip(&self.ports);
        ReplayReady {
            trace_packets: trace.packets().len() as u64,
            trace_bytes: trace.frame_bytes(),
            trace_duration_ns: trace.duration_ns(),
            intended_packets: shares
                .map(|(port, _)| spread.share(port).intended_packets(plan))
                .sum(),
            intended_duration_ns: plan.intended_duration_ns(trace),
            realtime: *realtime,
            backend: ports::backends(&self.ports),
            replica_offsets_ns: plan.replica_offsets_ns().to_vec(),
            first_copy: trace.copies().first,
            copies: trace.copies().count,
        }
    }
}

/// Whether the numbers of a spec make sense, before anything is read for them.
pub fn check(spec: &ReplaySpec) -> Result<(), JobError> {
    request(spec).map(drop)
}

/// A trace and the schedule of its replay, without the replay; `with_offsets` if replicas start apart, not in step.
pub fn scheduled(spec: &ReplaySpec, with_offsets: bool) -> Result<(Trace, Plan), JobError> {
    let mut request = request(spec)?;
    request.offsets_from = request.offsets_from.filter(|_| with_offsets);
    planned(None, spec, &request)
}

/// The same for the bytes of a spec's only file.
pub fn scheduled_of(spec: &ReplaySpec, bytes: Bytes) -> Result<(Trace, Plan), JobError> {
    let trace = Trace::of_bytes(bytes, spec.tolerate_truncated);
    let trace = trace.map_err(|error| unusable(&spec.trace, &error))?;
    planned(Some(trace), spec, &request(spec)?)
}

/// The trace of a spec, made of one that holds the same files if there is one, and the schedule of its replay.
fn planned(
    read: Option<Trace>,
    spec: &ReplaySpec,
    request: &Request,
) -> Result<(Trace, Plan), JobError> {
    let mut trace = match read {
        Some(trace) => trace,
        None => load(spec)?,
    };
    let plan = Plan::new(&trace, request).map_err(|e| unscheduled(&e))?;
    prepare_copies(&mut trace, spec, &plan)?;
    Ok((trace, plan))
}

fn unscheduled(error: &PlanError) -> JobError {
    JobError::new("spec", error.to_string()).hint("see `nodrop-node replay --help`")
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
    let distinct_loops = distinct && spec.loop_flows == Flows::Distinct;
    if distinct_loops && matches!(spec.backend, SendBackend::Flood | SendBackend::FloodIn) {
        let words = "a flood sends identical frames: loop_flows = \"distinct\" is not possible";
        return Err(JobError::new("spec", words));
    }
    let request = Request {
        distinct_loops,
        load,
        loops: spec.loops,
        replicas: replicas(spec)?,
        duration_ns: spec.duration_s.map(duration_ns).transpose()?,
        pass_ns: spec.pass_s.map(duration_ns).transpose()?,
        offsets_from: distinct.then_some(spec.seed),
    };
    request.check_numbers().map_err(|e| unscheduled(&e))?;
    Ok(request)
}

fn replicas(spec: &ReplaySpec) -> Result<Replicas, JobError> {
    Replicas::of(spec.multiplier, spec.flow_seed).map_err(|e| unscheduled(&e.into()))
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
    let text = read_text(path).map_err(|e| bad(&e))?;
    Profile::from_csv(&text, ramp).map_err(|e| bad(&e))
}

fn load(spec: &ReplaySpec) -> Result<Trace, JobError> {
    let paths: Vec<&PathBuf> = std::iter::once(&spec.trace).chain(&spec.merge).collect();
    let tolerate = spec.tolerate_truncated;
    let files = (paths.iter())
        .map(|path| contents(path, tolerate, &Progress::of_nobody()))
        .collect::<Result<_, _>>()?;
    let trace = Trace::merged(files, tolerate);
    trace.map_err(|(number, error)| unusable(paths[number], &error))
}

fn unusable(path: &Path, error: &TraceError) -> JobError {
    let said = JobError::new("trace", format!("{}: {error}", path.display()));
    match error {
        TraceError::Capture(cut) if cut.is_tolerable() => said.hint(TOLERATING),
        TraceError::Rewrite(_) => said.hint("use fewer replicas, or flows \"same\""),
        _ => said,
    }
}

/// Addresses for the copies that a plan sends, after those that the spec says were sent before.
fn prepare_copies(trace: &mut Trace, spec: &ReplaySpec, plan: &Plan) -> Result<(), JobError> {
    let wanted = match spec.flows {
        Flows::Distinct => Copies {
            first: spec.first_copy,
            count: plan.copies(),
        },
        Flows::Same => Copies { first: 0, count: 1 },
    };
    let made = trace.make_distinct(wanted, plan.replicas());
    made.map_err(|error| unusable(&spec.trace, &error))?;
    let macs = macs(&spec.dst_macs)?;
    match spec.dst_macs_by {
        LedBy::Flows => trace.share_among(macs),
        LedBy::Replicas => trace.share_replicas_among(macs),
    }
    Ok(())
}

/// Ethernet addresses of their texts.
pub fn macs(texts: &[String]) -> Result<Vec<Mac>, JobError> {
    texts.iter().map(|text| mac(text)).collect()
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
}
