//! Job `sink`: receive and count; with a service rate, a SUT of known capacity that drops as an IDS does, by a full ring.

use std::collections::HashSet;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nodrop_io::IoError;
use nodrop_io::rx::{BLOCK_TIMEOUT_MS, Packet, PacketStatistics, RingOptions, RxRing};
use nodrop_io::thread::{mono_ns, sleep_until};
use nodrop_proto::{JobError, SinkReady, SinkResult, SinkSample, SinkSpec, SinkThread};
use nodrop_wire::flow::FlowKey;

use crate::job::{Job, interface_error};
use crate::session::Session;

const SAMPLE_NS: u64 = 500_000_000;
/// Longest wait for a block before a look at whether to stop.
const LOOK_MS: u32 = 50;
/// How often a thread that is busy reads its socket's counters.
const STATISTICS_NS: u64 = 100_000_000;
const PAGE_BYTES: u64 = 4096;

/// Rings that are bound, one per thread.
pub struct Sink {
    rings: Vec<RxRing>,
    service_rate_pps: Option<f64>,
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
        if let Some(rate) = spec
            .service_rate_pps
            .filter(|rate| !rate.is_normal() || *rate < 0.0)
        {
            return Err(bad(format!(
                "service_rate_pps = {rate}: must be a positive number"
            )));
        }
        let drain = Duration::try_from_secs_f64(spec.drain_s)
            .map_err(|e| bad(format!("drain_s = {}: {e}", spec.drain_s)))?;
        let rings = RxRing::open_group(&spec.interface, options, spec.threads, spec.defrag)
            .map_err(|e| interface_error(&e))?;
        let ready = SinkReady {
            ring_bytes: u64::from(options.block_bytes) * u64::from(options.blocks),
            threads: spec.threads,
            defrag: spec.defrag,
        };
        let service_rate_pps = spec
            .service_rate_pps
            .map(|pps| pps / f64::from(spec.threads));
        Ok((
            Self {
                rings,
                service_rate_pps,
                count_flows: spec.count_flows,
                drain,
            },
            ready,
        ))
    }

    fn run(self, session: &Session) -> Result<SinkResult, JobError> {
        let counters: Vec<_> = self.rings.iter().map(|_| Counters::default()).collect();
        let stop = AtomicBool::new(false);
        let drain_ns = u64::try_from(self.drain.as_nanos()).unwrap_or(u64::MAX);
        let read: Vec<_> = std::thread::scope(|scope| {
            let (stop, counters) = (&stop, &counters);
            let readers: Vec<_> = (self.rings.into_iter().zip(counters).enumerate())
                .map(|(index, (ring, counters))| {
                    let flows = self.count_flows.then(HashSet::new);
                    let reader = Reader {
                        ring,
                        counters,
                        service: self.service_rate_pps.map(Service::new),
                        end: End {
                            stop,
                            drain_ns,
                            deadline_ns: None,
                        },
                        packets: 0,
                        bytes: 0,
                        found: Found { flows, times: None },
                    };
                    scope.spawn(move || {
                        name_this_thread(index);
                        reader.run()
                    })
                })
                .collect();
            let mut next = session.wait_start() + SAMPLE_NS;
            while !session.sleep_until(next) {
                session.sample(&sample(counters));
                next += SAMPLE_NS;
            }
            stop.store(true, Ordering::Relaxed);
            readers
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect()
        });
        let mut done = Vec::new();
        for reader in read {
            let reader = reader.map_err(|_| JobError::new("internal", "a reader panicked"))?;
            done.push(reader.map_err(|e| interface_error(&e))?);
        }
        Ok(result(&counters, &done))
    }
}

/// By this name its counters are found beside its CPU time. Refused only by sandboxes.
fn name_this_thread(index: usize) {
    if let Ok(name) = CString::new(format!("sink-{index}")) {
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
    // A ring smaller than a block is a ring of one small block.
    let block_bytes = (*block_bytes).min((ring_bytes / PAGE_BYTES).max(1) * PAGE_BYTES);
    let too_large =
        |_| format!("ring_bytes = {ring_bytes}, block_bytes = {block_bytes}: too large");
    Ok(RingOptions {
        blocks: u32::try_from(ring_bytes / block_bytes)
            .map_err(too_large)?
            .max(1),
        block_bytes: u32::try_from(block_bytes).map_err(too_large)?,
    })
}

/// What one reader has counted so far, for the samples; written by that reader alone.
#[derive(Default)]
struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    tp_packets: AtomicU64,
    tp_drops: AtomicU64,
    tp_freeze_q_count: AtomicU64,
}

impl Counters {
    fn publish(&self, packets: u64, bytes: u64) {
        self.packets.store(packets, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn publish_statistics(&self, statistics: PacketStatistics) {
        self.tp_packets
            .store(statistics.tp_packets, Ordering::Relaxed);
        self.tp_drops.store(statistics.tp_drops, Ordering::Relaxed);
        self.tp_freeze_q_count
            .store(statistics.tp_freeze_q_count, Ordering::Relaxed);
    }

    fn read(&self) -> SinkThread {
        SinkThread {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            tp_packets: self.tp_packets.load(Ordering::Relaxed),
            tp_drops: self.tp_drops.load(Ordering::Relaxed),
            tp_freeze_q_count: self.tp_freeze_q_count.load(Ordering::Relaxed),
        }
    }
}

/// One thread and its ring.
struct Reader<'a> {
    ring: RxRing,
    counters: &'a Counters,
    service: Option<Service>,
    end: End<'a>,
    packets: u64,
    bytes: u64,
    found: Found,
}

/// When a reader comes to its end.
struct End<'a> {
    stop: &'a AtomicBool,
    drain_ns: u64,
    /// Set once stopped.
    deadline_ns: Option<u64>,
}

impl End<'_> {
    fn is_near(&mut self, now: u64) -> bool {
        if self.deadline_ns.is_none() && self.stop.load(Ordering::Relaxed) {
            self.deadline_ns = Some(now.saturating_add(self.drain_ns));
        }
        self.deadline_ns.is_some()
    }

    fn is_passed(&mut self, now: u64) -> bool {
        self.is_near(now) && self.deadline_ns.is_some_and(|deadline| now >= deadline)
    }
}

/// What a reader hands back.
#[derive(Default)]
struct Found {
    flows: Option<HashSet<FlowKey>>,
    /// Kernel time of the earliest and the latest packet.
    times: Option<(u64, u64)>,
}

impl Found {
    fn note(&mut self, packet: &Packet) {
        let at = packet.timestamp_ns;
        let (first, last) = self.times.get_or_insert((at, at));
        *first = at.min(*first);
        *last = at.max(*last);
        if let Some(flows) = &mut self.flows {
            flows.extend(FlowKey::of_frame(packet.frame));
        }
    }
}

impl Reader<'_> {
    /// Reads until stopped, then until the ring is empty: all that the kernel had is delivered or dropped.
    fn run(mut self) -> Result<Found, IoError> {
        let mut statistics_at = 0;
        loop {
            let now = mono_ns();
            let near = self.end.is_near(now);
            let late = self.end.is_passed(now);
            let delivered = !late && self.read_block();
            if !delivered || now >= statistics_at {
                let statistics = self.ring.statistics()?;
                self.counters.publish_statistics(statistics);
                statistics_at = now + STATISTICS_NS;
                let empty = self.packets == statistics.tp_packets - statistics.tp_drops;
                if late || (near && !delivered && empty) {
                    return Ok(self.found);
                }
            }
            if !delivered {
                self.ring
                    .wait(if near { BLOCK_TIMEOUT_MS } else { LOOK_MS });
            }
        }
    }

    /// False where no block is ready.
    fn read_block(&mut self) -> bool {
        let Some(block) = self.ring.next_block() else {
            return false;
        };
        for packet in block.packets() {
            if self.service.as_mut().is_some_and(Service::serve) {
                self.counters.publish(self.packets, self.bytes);
                // A slow SUT may need longer for one block than it is given to empty its ring.
                if self.end.is_passed(mono_ns()) {
                    return true;
                }
            }
            self.packets += 1;
            self.bytes += u64::from(packet.wire_bytes);
            self.found.note(&packet);
        }
        self.counters.publish(self.packets, self.bytes);
        true
    }
}

/// A server that needs a set time per packet. Time lost by waking late is made up for, time without packets is not.
struct Service {
    cost_ns: f64,
    free_at_ns: f64,
}

impl Service {
    /// Most time that is made up for.
    const CREDIT_NS: f64 = 5e6;
    /// Served ahead of time before a sleep, which wakes some 50 us late.
    const AHEAD_NS: f64 = 200e3;

    fn new(rate_pps: f64) -> Self {
        Self {
            cost_ns: 1e9 / rate_pps,
            free_at_ns: mono_ns() as f64,
        }
    }

    /// Takes the time of one packet; true where that was slept.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive"
    )]
    fn serve(&mut self) -> bool {
        let now = mono_ns() as f64;
        self.free_at_ns = self.free_at_ns.max(now - Self::CREDIT_NS) + self.cost_ns;
        let wait = self.free_at_ns > now + Self::AHEAD_NS;
        if wait {
            sleep_until(self.free_at_ns as u64);
        }
        wait
    }
}

fn total(counters: &[Counters]) -> (SinkThread, Vec<SinkThread>) {
    let each: Vec<_> = counters.iter().map(Counters::read).collect();
    let mut total = SinkThread::default();
    for thread in &each {
        total.packets += thread.packets;
        total.bytes += thread.bytes;
        total.tp_packets += thread.tp_packets;
        total.tp_drops += thread.tp_drops;
        total.tp_freeze_q_count += thread.tp_freeze_q_count;
    }
    (total, each)
}

fn sample(counters: &[Counters]) -> SinkSample {
    let (total, _) = total(counters);
    SinkSample {
        mono_ns: mono_ns(),
        packets: total.packets,
        tp_packets: total.tp_packets,
        tp_drops: total.tp_drops,
    }
}

fn result(counters: &[Counters], read: &[Found]) -> SinkResult {
    let (total, per_thread) = total(counters);
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
                block_bytes: 8192,
                blocks: 1
            }),
            "a small ring is one block of whole pages"
        );
        assert!(
            options(r#","block_bytes":1000"#)
                .unwrap_err()
                .contains("multiple of 4096")
        );
        assert!(options(r#","threads":0"#).is_err());
    }

    #[test]
    fn a_service_is_as_fast_as_it_is_set() {
        let begin = mono_ns();
        let mut service = Service::new(100_000.0);
        for _ in 0..2_000 {
            service.serve();
        }
        // 20 ms of work, of which the credit may take 5 ms and the last sleep 0.2 ms.
        assert!(mono_ns() - begin >= 14_800_000);
    }
}
