//! Job `sink`: receive and count; with a service rate, a SUT of known capacity that drops as an IDS does, by a full ring.

use std::collections::HashSet;
use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nodrop_io::IoError;
use nodrop_io::rx::{RingOptions, RxRing};
use nodrop_io::slots::{SLOT_BYTES, SlotRing};
use nodrop_proto::{JobError, SinkCounts, SinkReady, SinkResult, SinkSample, SinkSpec, SinkThread};
use nodrop_sys::clock::mono_ns;
use nodrop_sys::thread::exact_timers;
use nodrop_wire::flow::FlowKey;

use crate::job::{Job, interface_error};
use crate::session::Session;

mod end;
mod reader;
mod service;
mod workers;

use end::End;
use reader::{Costly, Counters, Found, Queue, Tally};
use service::Service;
use workers::{Cost, Done, HandsOn};

const SAMPLE_NS: u64 = 100_000_000;
const PAGE_BYTES: u64 = 4096;
/// A ring has at least so many blocks, of at least a page each.
const LEAST_BLOCKS: u64 = 8;
/// Beyond it a ring of slots is a gigabyte.
const MOST_SLOTS: u64 = 1 << 18;

/// Rings that are bound, one per thread.
enum Rings {
    /// As fast as it can.
    Blocks(Vec<RxRing>),
    /// A queue of exactly so many packets.
    Slots(Vec<SlotRing>, u32),
}

/// Ready to receive.
pub struct Sink {
    rings: Rings,
    /// Of each thread.
    service_rate_pps: Option<f64>,
    receive_ns: u64,
    costly: Option<Costly>,
    workers: usize,
    cost: Cost,
    count_flows: bool,
    drain: Duration,
}

impl Job for Sink {
    const NAME: &'static str = "sink";
    type Spec = SinkSpec;
    type Ready = SinkReady;
    type Outcome = SinkResult;

    fn prepare(spec: SinkSpec, _session: &Session) -> Result<(Self, SinkReady), JobError> {
        let bad = |words: String| JobError::new("spec", words);
        let options = ring_options(&spec).map_err(bad)?;
        let slots = slots(&spec).map_err(bad)?;
        if let Some(rate) = spec
            .service_rate_pps
            .filter(|rate| !rate.is_normal() || *rate < 0.0)
        {
            return Err(bad(format!(
                "service_rate_pps = {rate}: must be a positive number"
            )));
        }
        let costly = spec.costly_port.zip(spec.costly_times);
        let costly = costly.map(|(port, times)| Costly { port, times });
        if costly.is_some_and(|costly| !costly.times.is_finite() || costly.times < 0.0) {
            return Err(bad("costly_times: must be a number of at least 0".into()));
        }
        if costly.is_some() && spec.service_rate_pps.is_none() && spec.receive_ns == 0 {
            return Err(bad(
                "costly_port needs service_rate_pps or receive_ns".into()
            ));
        }
        if spec.workers == 0 && (spec.worker_ns > 0 || spec.lock_ns > 0) {
            return Err(bad("worker_ns and lock_ns need workers".into()));
        }
        let drain = Duration::try_from_secs_f64(spec.drain_s)
            .map_err(|e| bad(format!("drain_s = {}: {e}", spec.drain_s)))?;
        let (interface, threads, defrag) = (&spec.interface, spec.threads, spec.defrag);
        let opened = match slots {
            Some(slots) => SlotRing::open_group(interface, slots, threads, defrag)
                .map(|rings| Rings::Slots(rings, slots)),
            None => RxRing::open_group(interface, options, threads, defrag).map(Rings::Blocks),
        };
        let ready = SinkReady {
            ring_bytes: match slots {
                Some(slots) => u64::from(SLOT_BYTES) * u64::from(slots),
                None => u64::from(options.block_bytes) * u64::from(options.blocks),
            },
            ring_frames: slots,
            threads,
            defrag,
        };
        let cost = Cost {
            alone_ns: spec.worker_ns,
            locked_ns: spec.lock_ns,
        };
        let sink = Self {
            receive_ns: spec.receive_ns,
            costly,
            workers: spec.workers as usize,
            cost,
            rings: opened.map_err(|e| interface_error(&e))?,
            service_rate_pps: spec.service_rate_pps.map(|pps| pps / f64::from(threads)),
            count_flows: spec.count_flows,
            drain,
        };
        Ok((sink, ready))
    }

    fn run(&mut self, session: &Session) -> Result<SinkResult, JobError> {
        let rings = std::mem::replace(&mut self.rings, Rings::Blocks(Vec::new()));
        let (count, blocks) = match &rings {
            Rings::Blocks(rings) => (rings.len(), true),
            Rings::Slots(rings, _) => (rings.len(), false),
        };
        let counters: Vec<_> = (0..count).map(|_| Counters::new(blocks)).collect();
        let done: Vec<_> = (0..self.workers).map(|_| Done::default()).collect();
        let (stop, lock) = (AtomicBool::new(false), Mutex::new(()));
        let drain_ns = u64::try_from(self.drain.as_nanos()).unwrap_or(u64::MAX);
        let (hands_on, queues) = HandsOn::to(self.workers);
        let read: Vec<_> = std::thread::scope(|scope| {
            for (index, (queue, done)) in queues.into_iter().zip(&done).enumerate() {
                let (cost, lock, end) = (self.cost, &lock, End::new(&stop, drain_ns));
                scope.spawn(move || {
                    name_this_thread(&format!("sink-w{index}"));
                    workers::work(&queue, cost, lock, done, end);
                });
            }
            let each = counters
                .iter()
                .map(|counters| Tally::new(counters, End::new(&stop, drain_ns), self.count_flows));
            let readers: Vec<_> = match rings {
                Rings::Blocks(rings) => (rings.into_iter().zip(each).enumerate())
                    .map(|(index, (ring, tally))| {
                        scope.spawn(move || {
                            name_this_thread(&format!("sink-{index}"));
                            reader::run(ring, tally)
                        })
                    })
                    .collect(),
                Rings::Slots(rings, slots) => (rings.into_iter().zip(each).enumerate())
                    .map(|(index, (ring, tally))| {
                        let (rate, busy_ns) = (self.service_rate_pps, self.receive_ns);
                        let costly = self.costly;
                        let hands_on = hands_on.clone();
                        scope.spawn(move || {
                            name_this_thread(&format!("sink-{index}"));
                            exact_timers();
                            let service = rate.map(|pps| Service::new(pps, mono_ns()));
                            let queue = Queue::new(ring, slots, service, busy_ns, costly, hands_on);
                            reader::run(queue, tally)
                        })
                    })
                    .collect(),
            };
            // Workers end when no thread can hand packets on.
            drop(hands_on);
            let mut next = session.wait_start() + SAMPLE_NS;
            while !session.sleep_until(next) {
                session.sample(&sample(&counters, &done));
                next += SAMPLE_NS;
            }
            stop.store(true, Ordering::Relaxed);
            readers
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect()
        });
        let mut found = Vec::new();
        for reader in read {
            let reader = reader.map_err(|_| JobError::new("internal", "a reader panicked"))?;
            found.push(reader.map_err(|e: IoError| interface_error(&e))?);
        }
        Ok(result(&counters, &done, &found))
    }
}

/// By this name its counters are found beside its CPU time. Refused only by sandboxes.
fn name_this_thread(name: &str) {
    if let Ok(name) = CString::new(name) {
        let _refused = nix::sys::prctl::set_name(&name);
    }
}

fn ring_options(spec: &SinkSpec) -> Result<RingOptions, String> {
    let SinkSpec {
        ring_bytes,
        block_bytes,
        threads,
        ..
    } = spec;
    if *threads == 0 {
        return Err("threads = 0: must be at least 1".into());
    }
    if *block_bytes == 0 || block_bytes % PAGE_BYTES != 0 {
        return Err(format!(
            "block_bytes = {block_bytes}: must be a multiple of {PAGE_BYTES}"
        ));
    }
    // A ring of one block loses every packet that comes while that block is read.
    let pages = (ring_bytes / PAGE_BYTES / LEAST_BLOCKS).max(1);
    let block_bytes = (*block_bytes).min(pages * PAGE_BYTES);
    let too_large =
        |_| format!("ring_bytes = {ring_bytes}, block_bytes = {block_bytes}: too large");
    Ok(RingOptions {
        blocks: u32::try_from(ring_bytes / block_bytes)
            .map_err(too_large)?
            .max(1),
        block_bytes: u32::try_from(block_bytes).map_err(too_large)?,
    })
}

/// A queue is asked for by its slots, by a service rate, or by work on packets; then its ring is as many slots as fit.
fn slots(spec: &SinkSpec) -> Result<Option<u32>, String> {
    let by_bytes = || (spec.ring_bytes / u64::from(SLOT_BYTES)).clamp(1, MOST_SLOTS);
    let asked = spec
        .ring_frames
        .or(spec.service_rate_pps.map(|_| by_bytes()))
        .or_else(|| (spec.receive_ns > 0 || spec.workers > 0).then(by_bytes));
    match asked {
        Some(0) => Err("ring_frames = 0: must be at least 1".into()),
        Some(slots) if slots > MOST_SLOTS => Err(format!(
            "ring_frames = {slots}: must be at most {MOST_SLOTS}, a gigabyte"
        )),
        slots => Ok(slots.and_then(|slots| u32::try_from(slots).ok())),
    }
}

fn total(counters: &[Counters], done: &[Done]) -> (SinkCounts, Vec<SinkThread>) {
    let mut each: Vec<_> = counters.iter().map(Counters::read).collect();
    let done: Vec<_> = done.iter().map(Done::read).collect();
    let last = done.iter().map(|(_, at)| *at).max().filter(|at| *at > 0);
    for thread in &mut each {
        thread.served_mono_ns = thread.served_mono_ns.max(last);
    }
    let freezes = |thread: &SinkThread| thread.counts.tp_freeze_q_count;
    let mut total = SinkCounts {
        tp_freeze_q_count: each.iter().map(freezes).sum(),
        ..SinkCounts::default()
    };
    for SinkThread { counts, .. } in &each {
        total.packets += counts.packets;
        total.bytes += counts.bytes;
        total.tp_packets += counts.tp_packets;
        total.tp_drops += counts.tp_drops;
    }
    if !done.is_empty() {
        total.packets = done.iter().map(|(packets, _)| packets).sum();
    }
    (total, each)
}

fn sample(counters: &[Counters], done: &[Done]) -> SinkSample {
    let (total, per_thread) = total(counters, done);
    SinkSample {
        mono_ns: mono_ns(),
        packets: total.packets,
        tp_packets: total.tp_packets,
        tp_drops: total.tp_drops,
        per_thread,
    }
}

fn result(counters: &[Counters], done: &[Done], read: &[Found]) -> SinkResult {
    let (total, per_thread) = total(counters, done);
    let times = || read.iter().filter_map(|read| read.times);
    let flows: Option<HashSet<&FlowKey>> = read
        .iter()
        .map(|read| read.flows.as_ref())
        .collect::<Option<Vec<_>>>()
        .map(|each| each.into_iter().flatten().collect());
    SinkResult {
        total,
        first_packet_real_ns: times().map(|(first, _)| first).min(),
        last_packet_real_ns: times().map(|(_, last)| last).max(),
        flows: flows.map(|flows| flows.len() as u64),
        cpu_s: cpu_s(),
        per_thread,
    }
}

/// CPU time of this process.
fn cpu_s() -> f64 {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    // Fails only for a word it does not know.
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn options(fields: &str) -> Result<RingOptions, String> {
        ring_options(&serde_json::from_str(&format!(r#"{{"interface":"i"{fields}}}"#)).unwrap())
    }

    #[test]
    fn a_ring_is_whole_blocks() {
        assert_eq!(
            options(""),
            Ok(RingOptions {
                block_bytes: 1 << 20,
                blocks: 64
            })
        );
        assert_eq!(
            options(r#","ring_bytes":10000"#),
            Ok(RingOptions {
                block_bytes: 4096,
                blocks: 2
            }),
            "blocks are whole pages"
        );
        assert_eq!(
            options(r#","ring_bytes":1048576"#),
            Ok(RingOptions {
                block_bytes: 131_072,
                blocks: 8
            }),
            "a small ring is several small blocks"
        );
        assert!(
            options(r#","block_bytes":1000"#)
                .unwrap_err()
                .contains("multiple of 4096")
        );
        assert!(options(r#","threads":0"#).is_err());
    }

    #[test]
    fn a_queue_has_the_slots_that_are_asked_for() {
        let slots = |fields: &str| {
            slots(&serde_json::from_str(&format!(r#"{{"interface":"i"{fields}}}"#)).unwrap())
        };
        assert_eq!(slots(""), Ok(None));
        assert_eq!(slots(r#","ring_frames":1"#), Ok(Some(1)));
        assert_eq!(
            slots(r#","ring_frames":17,"service_rate_pps":5"#),
            Ok(Some(17))
        );
        assert_eq!(
            slots(r#","service_rate_pps":5"#),
            Ok(Some(16_384)),
            "64 MiB"
        );
        assert_eq!(
            slots(r#","service_rate_pps":5,"ring_bytes":100"#),
            Ok(Some(1))
        );
        assert!(slots(r#","ring_frames":0"#).is_err());
        assert!(
            slots(r#","ring_frames":262145"#)
                .unwrap_err()
                .contains("gigabyte")
        );
    }
}
