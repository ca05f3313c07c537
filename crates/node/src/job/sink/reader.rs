//! One thread and its ring: reads and counts until it is stopped and the ring is empty.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use nodrop_io::IoError;
use nodrop_io::rx::{BLOCK_TIMEOUT_MS, Packet, PacketStatistics, RxRing};
use nodrop_io::slots::SlotRing;
use nodrop_proto::{SinkCounts, SinkThread};
use nodrop_sys::clock::{mono_ns, real_ns, sleep_until};
use nodrop_wire::flow::FlowKey;

use super::end::End;
use super::service::Service;
use super::workers::{HandsOn, be_busy};

/// Longest wait for packets before a look at whether to stop.
const LOOK_MS: u32 = 50;
const LOOK_NS: u64 = LOOK_MS as u64 * 1_000_000;
/// How often a thread that is busy reads its socket's counters.
const STATISTICS_NS: u64 = 50_000_000;
/// A sleep wakes some 50 us late, on a busy machine more.
const SPIN_NS: u64 = 100_000;
/// Slots that last longer than this make up for late wake-ups.
const FEW_SLOTS_NS: f64 = 2e6;

/// What one reader has counted so far, for the samples; written by that reader alone.
#[derive(Default)]
pub struct Counters {
    counts_freezes: bool,
    packets: AtomicU64,
    bytes: AtomicU64,
    served_mono_ns: AtomicU64,
    tp_packets: AtomicU64,
    tp_drops: AtomicU64,
    tp_freeze_q_count: AtomicU64,
    tp_mono_ns: AtomicU64,
}

impl Counters {
    pub fn new(counts_freezes: bool) -> Self {
        Self {
            counts_freezes,
            ..Self::default()
        }
    }

    fn publish(&self, packets: u64, bytes: u64, now: u64) {
        self.packets.store(packets, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.served_mono_ns.store(now, Ordering::Relaxed);
    }

    fn publish_statistics(&self, statistics: PacketStatistics, now: u64) {
        self.tp_packets
            .store(statistics.tp_packets, Ordering::Relaxed);
        self.tp_drops.store(statistics.tp_drops, Ordering::Relaxed);
        self.tp_freeze_q_count
            .store(statistics.tp_freeze_q_count, Ordering::Relaxed);
        self.tp_mono_ns.store(now, Ordering::Relaxed);
    }

    pub fn read(&self) -> SinkThread {
        let served = self.served_mono_ns.load(Ordering::Relaxed);
        SinkThread {
            // Before what was delivered, so that never more was delivered than the kernel had.
            mono_ns: self.tp_mono_ns.load(Ordering::Relaxed),
            counts: SinkCounts {
                packets: self.packets.load(Ordering::Relaxed),
                bytes: self.bytes.load(Ordering::Relaxed),
                tp_packets: self.tp_packets.load(Ordering::Relaxed),
                tp_drops: self.tp_drops.load(Ordering::Relaxed),
                tp_freeze_q_count: self
                    .counts_freezes
                    .then(|| self.tp_freeze_q_count.load(Ordering::Relaxed)),
            },
            served_mono_ns: (served > 0).then_some(served),
        }
    }
}

/// What a reader hands back.
#[derive(Default)]
pub struct Found {
    pub flows: Option<HashSet<FlowKey>>,
    /// Kernel time of the earliest and the latest packet.
    pub times: Option<(u64, u64)>,
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

/// A ring that gives its reader what is ready.
pub trait Source {
    /// What the reader hands on and counts; false if nothing is ready.
    fn read(&mut self, to: &mut Tally<'_>) -> bool;
    fn wait(&self, timeout_ms: u32);
    fn statistics(&mut self) -> Result<PacketStatistics, IoError>;
}

/// What was read, and until when.
pub struct Tally<'a> {
    counters: &'a Counters,
    end: End<'a>,
    packets: u64,
    bytes: u64,
    found: Found,
}

impl<'a> Tally<'a> {
    pub fn new(counters: &'a Counters, end: End<'a>, count_flows: bool) -> Self {
        let flows = count_flows.then(HashSet::new);
        Self {
            counters,
            end,
            packets: 0,
            bytes: 0,
            found: Found { flows, times: None },
        }
    }

    fn count(&mut self, packet: &Packet) {
        self.packets += 1;
        self.bytes += u64::from(packet.wire_bytes);
        self.found.note(packet);
    }

    fn publish(&self, now: u64) {
        self.counters.publish(self.packets, self.bytes, now);
    }
}

/// Reads until stopped, then until the ring is empty: all that the kernel had is delivered or dropped.
pub fn run(mut source: impl Source, mut tally: Tally<'_>) -> Result<Found, IoError> {
    let mut statistics_at = 0;
    loop {
        let now = mono_ns();
        let near = tally.end.is_near(now);
        let late = tally.end.is_passed(now);
        let delivered = !late && source.read(&mut tally);
        // A reading sets the kernel's counters back, which others look at as well.
        if now >= statistics_at || late || (near && !delivered) {
            let statistics = source.statistics()?;
            let now = mono_ns();
            tally.counters.publish_statistics(statistics, now);
            statistics_at = now + STATISTICS_NS;
            let empty = tally.packets == statistics.tp_packets - statistics.tp_drops;
            if late || (near && !delivered && empty) {
                return Ok(tally.found);
            }
        }
        if !delivered {
            source.wait(if near { BLOCK_TIMEOUT_MS } else { LOOK_MS });
        }
    }
}

impl Source for RxRing {
    fn read(&mut self, to: &mut Tally<'_>) -> bool {
        let Some(block) = self.next_block() else {
            return false;
        };
        for packet in block.packets() {
            to.count(&packet);
        }
        to.publish(mono_ns());
        true
    }

    fn wait(&self, timeout_ms: u32) {
        RxRing::wait(self, timeout_ms);
    }

    fn statistics(&mut self) -> Result<PacketStatistics, IoError> {
        RxRing::statistics(self)
    }
}

/// A queue: a packet keeps its slot until its service has ended.
pub struct Queue {
    ring: SlotRing,
    service: Option<Service>,
    spin_ns: u64,
    busy_ns: u64,
    costly: Option<Costly>,
    workers: Option<HandsOn>,
}

/// Packets from or to a port, which take longer.
#[derive(Debug, Clone, Copy)]
pub struct Costly {
    pub port: u16,
    pub times: f64,
}

impl Costly {
    /// Factor on the time of this packet.
    fn times(&self, frame: &[u8]) -> f64 {
        FlowKey::of_frame(frame)
            .filter(|flow| flow.low.1 == self.port || flow.high.1 == self.port)
            .map_or(1.0, |_| self.times)
    }
}

impl Queue {
    pub fn new(
        ring: SlotRing,
        slots: u32,
        service: Option<Service>,
        busy_ns: u64,
        costly: Option<Costly>,
        workers: Option<HandsOn>,
    ) -> Self {
        let lasts_ns = service.as_ref().map(|s| s.cost_ns() * f64::from(slots));
        let few = lasts_ns.is_some_and(|lasts| lasts < FEW_SLOTS_NS);
        Self {
            ring,
            service,
            spin_ns: if few { SPIN_NS } else { 0 },
            busy_ns,
            costly,
            workers,
        }
    }
}

impl Source for Queue {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of at least 0"
    )]
    fn read(&mut self, to: &mut Tally<'_>) -> bool {
        let Some(slot) = self.ring.next_slot() else {
            return false;
        };
        let times = (self.costly.as_ref()).map_or(1.0, |costly| costly.times(slot.packet.frame));
        let mut now = mono_ns();
        if let Some(service) = &mut self.service {
            // The kernel's time first: whatever comes between the two makes the arrival later, never earlier than it was.
            let age = real_ns().saturating_sub(slot.packet.timestamp_ns);
            now = mono_ns();
            let done = service.begin(now.saturating_sub(age), now, times);
            while now < done {
                // A slow SUT may need longer for its ring than it is given to empty it.
                if to.end.is_passed(now) {
                    return true;
                }
                if done - now > self.spin_ns {
                    sleep_until((done - self.spin_ns).min(now + LOOK_NS));
                } else {
                    std::hint::spin_loop();
                }
                now = mono_ns();
            }
        }
        now = be_busy(now, (self.busy_ns as f64 * times) as u64);
        if let Some(workers) = &self.workers {
            if !workers.take(slot.packet.frame) {
                return true;
            }
            now = mono_ns();
        }
        to.count(&slot.packet);
        drop(slot);
        to.publish(now);
        true
    }

    fn wait(&self, timeout_ms: u32) {
        self.ring.wait(timeout_ms);
    }

    fn statistics(&mut self) -> Result<PacketStatistics, IoError> {
        self.ring.statistics()
    }
}
