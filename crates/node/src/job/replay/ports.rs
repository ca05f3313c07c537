//! The ports of a replay: a thread, a socket and perhaps a CPU for each, one start for all.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nodrop_io::flood::{self, FloodSender, Towards};
use nodrop_io::tap::TapSender;
use nodrop_io::tx::{PacketSender, Way};
use nodrop_io::xdp::{self, XdpSender};
use nodrop_proto::{JobError, ReplaySample, ReplaySpec, SendBackend};
use nodrop_replay::{Backend, Outcome, SendError, Trace};
use nodrop_sys::clock::mono_ns;
use nodrop_sys::thread;

use super::offer::Offer;
use crate::job::interface_error;
use crate::session::Session;

/// The first packet would else be late by the time it takes to start.
const HEAD_START_NS: u64 = 1_000_000;
/// A call of fewer copies waits longer than send(2) takes for them.
const FEWEST_COPIES: u32 = 20_000;
const SAMPLE: Duration = Duration::from_millis(500);

/// One way out.
pub struct Port {
    pub interface: String,
    /// Where its thread is pinned to.
    pub cpu: Option<u32>,
    pub backend: Backend,
}

/// A socket per port, once it is clear that there is a CPU for each.
pub fn sockets(spec: &ReplaySpec) -> Result<Vec<PacketSender>, JobError> {
    if spec.interfaces.is_empty() {
        return Err(JobError::new("spec", "interface: none is named"));
    }
    if !spec.cpus.is_empty() && spec.cpus.len() != spec.interfaces.len() {
        let (cpus, ports) = (spec.cpus.len(), spec.interfaces.len());
        return Err(JobError::new(
            "spec",
            format!("cpus: {cpus}, ports: {ports}; name a CPU for each port, or none"),
        ));
    }
    spec.cpus.iter().try_for_each(|cpu| may_pin(*cpu))?;
    let way = match spec.backend {
        SendBackend::AfPacketQdisc => Way::ByDiscipline,
        _ => Way::PastDiscipline,
    };
    let open = |interface: &String| PacketSender::open(interface, way);
    let sockets = spec.interfaces.iter().map(open).collect::<Result<_, _>>();
    sockets.map_err(|e| interface_error(&e))
}

/// Tried in a thread of its own, which is gone afterwards.
fn may_pin(cpu: u32) -> Result<(), JobError> {
    let failed = |e: &dyn std::fmt::Display| {
        JobError::new("spec", format!("cpu {cpu}: cannot pin to it: {e}"))
    };
    match std::thread::spawn(move || thread::pin(cpu)).join() {
        Ok(pinned) => pinned.map_err(|e| failed(&e)),
        Err(_) => Err(failed(&"the thread panicked")),
    }
}

pub fn open(
    spec: &ReplaySpec,
    trace: &Trace,
    sockets: Vec<PacketSender>,
) -> Result<Vec<Port>, JobError> {
    let port = |(number, socket): (usize, PacketSender)| {
        let interface = &spec.interfaces[number];
        // A port that was named before has that many queues taken.
        let before = spec.interfaces[..number].iter();
        let queue = before.filter(|name| *name == interface).count();
        Ok(Port {
            interface: interface.clone(),
            cpu: spec.cpus.get(number).copied(),
            backend: backend(spec, trace, interface, queue, socket)?,
        })
    };
    sockets.into_iter().enumerate().map(port).collect()
}

/// AF_XDP at top speed if the kernel has it and it takes every frame, else send(2).
fn backend(
    spec: &ReplaySpec,
    trace: &Trace,
    interface: &str,
    queue: usize,
    socket: PacketSender,
) -> Result<Backend, JobError> {
    let fits = trace.longest_frame() <= xdp::LONGEST_FRAME;
    match spec.backend {
        SendBackend::Auto if !spec.top_speed || !fits => Ok(Backend::Packet(socket)),
        SendBackend::AfPacket | SendBackend::AfPacketQdisc => Ok(Backend::Packet(socket)),
        SendBackend::AfXdp if !spec.top_speed => Err(JobError::new(
            "spec",
            "backend af_xdp sends in batches: it needs top_speed",
        )),
        SendBackend::Tap => {
            let tap = TapSender::open(interface).map_err(|e| interface_error(&e))?;
            Ok(Backend::Tap(tap))
        }
        SendBackend::Flood => flood(spec, interface, Towards::Wire),
        SendBackend::FloodIn => flood(spec, interface, Towards::Host),
        SendBackend::AfXdp | SendBackend::Auto => {
            // Queues are counted by names on a command line.
            let queue = u32::try_from(queue).unwrap_or(u32::MAX);
            match XdpSender::open(interface, queue, trace.in_place()) {
                Ok(sender) => Ok(Backend::Xdp(Box::new(sender))),
                Err(_) if spec.backend == SendBackend::Auto => Ok(Backend::Packet(socket)),
                Err(e) => Err(interface_error(&e)),
            }
        }
    }
}

/// What a flood cannot promise is refused, not left out.
fn flood(spec: &ReplaySpec, interface: &str, towards: Towards) -> Result<Backend, JobError> {
    let cannot = |words: String| {
        let error = JobError::new("spec", format!("a flood {words}"));
        error.hint("the backends af_packet and af_xdp send every frame of the trace by itself")
    };
    if !spec.top_speed {
        return Err(cannot("has no pacing: it needs top_speed".into()));
    }
    if spec.multiplier.to_bits() != 1.0_f64.to_bits() {
        return Err(cannot(
            "is of identical frames: it has no replicas, multiplier must be 1".into(),
        ));
    }
    if spec.loops < FEWEST_COPIES {
        return Err(cannot(format!(
            "sends each packet `loops` times in a row: loops must be at least {FEWEST_COPIES}"
        )));
    }
    let sender = FloodSender::open(interface, towards).map_err(|e| {
        let error = interface_error(&e);
        if error.kind == "permission" {
            error.hint("a flood needs root outside of any user namespace")
        } else {
            error
        }
    })?;
    Ok(Backend::Flood(sender))
}

/// The backends of all ports, each once.
pub fn backends(ports: &[Port]) -> String {
    let mut names: Vec<&str> = ports.iter().map(|port| port.backend.name()).collect();
    names.dedup();
    names.join(" ")
}

/// Sends on every port at once, and returns what was done on each. A port that fails stops the others.
pub fn send(
    ports: &mut [Port],
    offer: &Offer,
    session: &Session,
) -> Result<Vec<Outcome>, JobError> {
    let Offer {
        trace,
        plan,
        spread,
        limit_ns,
        realtime,
        spin,
    } = offer;
    let gate = Barrier::new(ports.len() + 1);
    let (begin_ns, down) = (AtomicU64::new(0), AtomicBool::new(false));
    let sent: Vec<AtomicU64> = ports.iter().map(|_| AtomicU64::new(0)).collect();
    let (gate, begin_ns, down) = (&gate, &begin_ns, &down);
    std::thread::scope(|scope| {
        let (sending, ended) = channel::<()>();
        let senders = (0..).zip(ports.iter_mut().zip(&sent));
        let threads: Vec<_> = senders
            .map(|(number, (port, sent))| {
                let sending = sending.clone();
                scope.spawn(move || {
                    let _sending = sending;
                    // It was possible a moment ago; the result says if it no longer is.
                    port.cpu = port.cpu.filter(|cpu| thread::pin(*cpu).is_ok());
                    let own_cpu = *spin && port.cpu.is_some();
                    let share = spread.share(number);
                    let backend = &mut port.backend;
                    let replay = nodrop_replay::Replay::new(
                        trace, plan, share, backend, *realtime, own_cpu, *limit_ns,
                    );
                    gate.wait(); // all are ready
                    gate.wait(); // the start is known
                    let is_stopped = || session.stopped() || down.load(Ordering::Relaxed);
                    let outcome = replay
                        .reporting_to(sent)
                        .run(begin_ns.load(Ordering::Relaxed), is_stopped);
                    down.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    outcome.map_err(|e| is_down(&port.interface, &e))
                })
            })
            .collect();
        drop(sending);
        gate.wait();
        begin_ns.store(session.wait_start_in(HEAD_START_NS), Ordering::Relaxed);
        gate.wait();
        // This thread only talks from now on: a controller that does not read blocks no sender.
        thread::not_realtime();
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SAMPLE) {
            session.sample(&ReplaySample {
                mono_ns: mono_ns(),
                sent_packets: sent.iter().map(|of| of.load(Ordering::Relaxed)).sum(),
            });
        }
        let outcomes = threads.into_iter().map(|thread| {
            let outcome = thread.join();
            outcome.map_err(|_| JobError::new("internal", "a sender panicked"))?
        });
        outcomes.collect()
    })
}

fn is_down(interface: &str, error: &SendError) -> JobError {
    if error.errno == flood::TAKES_NONE {
        return JobError::new("flood", "the port has counted none of the frames as sent")
            .hint("a veth takes them if its other end does NAPI (`ethtool -K PEER gro on`, or an XDP program); another port needs a driver with XDP transmit");
    }
    JobError::new("interface_down", format!("{interface}: {error}"))
        .hint("the interface went down or away while packets were sent")
}
