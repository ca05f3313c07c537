//! The loop that sends a plan, and what it counts.

mod flood;

use std::sync::atomic::{AtomicU64, Ordering};

use nodrop_io::flood::{FloodSender, Towards};
use nodrop_io::tap::TapSender;
use nodrop_io::tx::{PacketSender, Sent};
use nodrop_io::xdp::XdpSender;
use nodrop_sys::clock::{mono_ns, thread_cpu_ns};

use crate::lateness::Lateness;
use crate::outcome::{Achieved, Outcome};
use crate::pacer::{Aim, Pacer};
use crate::schedule::{Plan, Slot};
use crate::spread::Share;
use crate::trace::Trace;

/// Frames between two looks at the clock at top speed.
const LOOK_EVERY: u64 = 64;
/// Packets of several replicas that are due within about this time leave together at its end: replicas have no common clock, and
/// one awakening for all of them is what makes a replica cheaper than a process.
const TOGETHER_NS: u64 = 200_000;
const MOST_TOGETHER: usize = 64;
/// One more than the largest errno of Linux.
const ERRNOS: usize = 134;

/// The interface is down or gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sending stopped at packet {} of {intended_packets}: {}", .sent_packets + 1, std::io::Error::from_raw_os_error(*.errno))]
pub struct SendError {
    /// What the kernel says.
    pub errno: i32,
    /// Packets sent before.
    pub sent_packets: u64,
    /// Packets of the plan.
    pub intended_packets: u64,
}

/// The way to the kernel. What becomes of a frame is told by its length, perhaps only at a later call.
pub enum Backend {
    /// One send(2) per frame.
    Packet(PacketSender),
    /// A ring shared with the kernel, emptied a batch at a time: of no use where each frame has its time.
    Xdp(Box<XdpSender>),
    /// One write(2) to a tap per frame.
    Tap(TapSender),
    /// Copies made inside the kernel, of one frame after the other.
    Flood(FloodSender),
}

impl Backend {
    /// As it stands in results.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Packet(_) => "af_packet_send",
            Self::Xdp(_) => "af_xdp_copy",
            Self::Tap(_) => "tap_write",
            Self::Flood(flood) => match flood.towards() {
                Towards::Wire => "flood_live_frames",
                Towards::Host => "flood_in_live_frames",
            },
        }
    }

    /// Offers a frame once, now.
    fn send(&mut self, frame: &[u8], told: &mut impl FnMut(usize, Sent)) {
        match self {
            Self::Packet(sender) => told(frame.len(), sender.send(frame)),
            Self::Xdp(sender) => {
                sender.push(frame, told);
                sender.flush(told);
            }
            Self::Tap(sender) => told(frame.len(), sender.send(frame)),
            Self::Flood(sender) => told(frame.len(), sender.send(frame, 1)),
        }
    }

    /// Offers a frame until it is taken, or has found no room for too long.
    fn insist(&mut self, frame: &[u8], told: &mut impl FnMut(usize, Sent)) {
        match self {
            Self::Packet(sender) => sender.push(frame, told),
            Self::Xdp(sender) => sender.push(frame, told),
            Self::Tap(_) | Self::Flood(_) => self.send(frame, told),
        }
    }

    /// Tells of all frames that were not told of.
    fn finish(&mut self, told: &mut impl FnMut(usize, Sent)) {
        match self {
            Self::Packet(sender) => sender.flush(told),
            Self::Xdp(sender) => sender.flush(told),
            Self::Tap(_) | Self::Flood(_) => {}
        }
    }
}

/// A replay with all it needs in memory.
pub struct Replay<'a> {
    trace: &'a Trace,
    plan: &'a Plan,
    share: Share<'a>,
    intended_packets: u64,
    backend: &'a mut Backend,
    pacer: Pacer,
    limit_ns: Option<u64>,
    buffer: Vec<u8>,
    books: Books<'a>,
}

impl<'a> Replay<'a> {
    /// Of a plan, the share of one port. Allocates all that sending needs, and times the sleeps of the calling thread, which is
    /// the one that sends; `realtime` where it runs under SCHED_FIFO. `limit_ns` ends a replay at top speed.
    #[must_use]
    pub fn new(
        trace: &'a Trace,
        plan: &'a Plan,
        share: Share<'a>,
        backend: &'a mut Backend,
        realtime: bool,
        limit_ns: Option<u64>,
    ) -> Self {
        // Several replicas leave together anyway.
        let (aim, together_ns) = if plan.replicas() > 1 {
            (Aim::Thrifty, TOGETHER_NS)
        } else {
            (Aim::Exact, 0)
        };
        let lateness = Lateness::new(plan.is_own_timing(), together_ns);
        let (buffer, books) = (trace.buffer(), Books::new(lateness));
        Self {
            trace,
            plan,
            share,
            intended_packets: share.intended_packets(plan),
            backend,
            pacer: Pacer::new(realtime, aim),
            limit_ns,
            buffer,
            books,
        }
    }

    /// Lets another thread see what was sent so far: one store at the end of each interval, none per packet.
    #[must_use]
    pub fn telling(mut self, sent_packets: &'a AtomicU64) -> Self {
        self.books.told = Some(sent_packets);
        self
    }

    /// Sends the plan, beginning at `start_mono_ns`; ends early where `stopped` says so.
    ///
    /// # Errors
    /// Where the interface goes down or away.
    pub fn run(
        mut self,
        start_mono_ns: u64,
        stopped: impl Fn() -> bool,
    ) -> Result<Outcome, SendError> {
        let cpu = thread_cpu_ns();
        self.pacer.begin();
        self.books.interval_end = start_mono_ns + Achieved::INTERVAL_NS;
        self.books.paced = self.plan.is_paced();
        let intended = if self.books.paced {
            self.paced(start_mono_ns, &stopped)
        } else if matches!(self.backend, Backend::Flood(_)) {
            self.flood(start_mono_ns, &stopped)
        } else {
            self.top_speed(start_mono_ns, &stopped)
        };
        let cpu_ns = thread_cpu_ns() - cpu;
        match self.books.gone {
            None => Ok(self.books.closed(intended, cpu_ns)),
            Some(errno) => Err(SendError {
                errno,
                sent_packets: self.books.sent_packets,
                intended_packets: self.intended_packets,
            }),
        }
    }

    /// Sends each packet at its time; a refused one is not offered again, so that the load stays what it is.
    fn paced(&mut self, start: u64, stopped: &impl Fn() -> bool) -> u64 {
        let is_alone = self.plan.replicas() == 1;
        let share = self.share;
        let mine = |slot: &Slot| share.has(slot);
        let mut slots = self.plan.slots(self.trace).filter(mine).peekable();
        while let Some(first) = slots.next() {
            // The pacer looks only in gaps that are long enough to sleep in.
            if stopped() || self.books.gone.is_some() {
                break;
            }
            let due = start + first.due_ns;
            let now = if is_alone {
                self.pacer.wait(due, stopped)
            } else {
                self.pacer.wait_about(due + TOGETHER_NS, due, stopped)
            };
            let Some(now) = now else { break };
            self.offer(first, start);
            let leaves_too = |next: &Slot| start + next.due_ns <= now;
            for _ in 1..MOST_TOGETHER {
                let Some(next) = slots.next_if(leaves_too) else {
                    break;
                };
                self.offer(next, start);
            }
        }
        self.intended_packets
    }

    /// Offers a packet that is due, once.
    fn offer(&mut self, slot: Slot, start: u64) {
        let (frame, as_is) = self
            .trace
            .frame(slot.packet, slot.replica, &mut self.buffer);
        let now = mono_ns();
        self.books.offers(as_is);
        self.books.leaves(start + slot.due_ns, now);
        self.backend
            .send(frame, &mut |bytes, sent| self.books.book(bytes, sent, now));
    }

    /// Sends as fast as the kernel takes frames; one that finds no room is offered again for a while.
    fn top_speed(&mut self, start: u64, stopped: &impl Fn() -> bool) -> u64 {
        let mut intended = self.intended_packets;
        let share = self.share;
        let Some(mut now) = self.pacer.wait(start, stopped) else {
            return intended;
        };
        let slots = self.plan.slots(self.trace);
        for (slot, reached) in slots.filter(|slot| share.has(slot)).zip(0..) {
            if reached % LOOK_EVERY == 0 {
                now = mono_ns();
                if stopped() || self.books.gone.is_some() {
                    break;
                }
                if self.limit_ns.is_some_and(|limit| now >= start + limit) {
                    intended = reached;
                    break;
                }
            }
            let (frame, as_is) = self
                .trace
                .frame(slot.packet, slot.replica, &mut self.buffer);
            self.books.offers(as_is);
            self.backend
                .insist(frame, &mut |bytes, sent| self.books.book(bytes, sent, now));
        }
        self.backend
            .finish(&mut |bytes, sent| self.books.book(bytes, sent, now));
        self.books.ends_at(mono_ns());
        intended
    }
}

/// The counters of the loop; nothing in here allocates once it is made.
struct Books<'a> {
    sent_packets: u64,
    sent_bytes: u64,
    not_rewritten_packets: u64,
    refused: [u64; ERRNOS],
    first_sent: Option<u64>,
    last_sent: u64,
    lateness: Lateness,
    /// Whether packets have times to be late for.
    paced: bool,
    achieved: Achieved,
    /// End of the interval at hand, what was sent before it, and the largest error within.
    interval_end: u64,
    before_interval: (u64, u64),
    interval_error: u64,
    /// Where others may read `sent_packets`.
    told: Option<&'a AtomicU64>,
    /// Why nothing can be sent any more.
    gone: Option<i32>,
}

impl Books<'_> {
    fn new(lateness: Lateness) -> Self {
        Self {
            sent_packets: 0,
            sent_bytes: 0,
            not_rewritten_packets: 0,
            refused: [0; ERRNOS],
            first_sent: None,
            last_sent: 0,
            lateness,
            paced: true,
            achieved: Achieved {
                packets: Vec::with_capacity(Achieved::MOST),
                bytes: Vec::with_capacity(Achieved::MOST),
                largest_error_ns: Vec::with_capacity(Achieved::MOST),
            },
            interval_end: u64::MAX,
            before_interval: (0, 0),
            interval_error: 0,
            told: None,
            gone: None,
        }
    }

    /// Ends the intervals that are over.
    fn tick(&mut self, now: u64) {
        while now >= self.interval_end {
            self.interval_end += Achieved::INTERVAL_NS;
            self.end_interval();
        }
    }

    fn end_interval(&mut self) {
        if let Some(told) = self.told {
            told.store(self.sent_packets, Ordering::Relaxed);
        }
        // The room was taken before: past it, nothing is kept.
        if self.achieved.packets.len() == Achieved::MOST {
            return;
        }
        let (packets, bytes) = self.before_interval;
        self.achieved.packets.push(self.sent_packets - packets);
        self.achieved.bytes.push(self.sent_bytes - bytes);
        if self.paced {
            self.achieved.largest_error_ns.push(self.interval_error);
        }
        self.interval_error = 0;
        self.before_interval = (self.sent_packets, self.sent_bytes);
    }

    /// A packet is about to be offered at `now`.
    fn leaves(&mut self, due: u64, now: u64) {
        self.tick(now);
        let late = self.lateness.leaves(due, now);
        self.interval_error = self.interval_error.max(late);
    }

    fn offers(&mut self, as_is: bool) {
        self.not_rewritten_packets += u64::from(as_is);
    }

    fn book(&mut self, bytes: usize, sent: Sent, now: u64) {
        self.book_many(1, bytes, sent, now);
    }

    /// Books packets of one length and fate.
    fn book_many(&mut self, packets: u64, bytes: usize, sent: Sent, now: u64) {
        self.tick(now);
        match sent {
            Sent::Taken if packets == 0 => {}
            Sent::Taken => {
                self.sent_packets += packets;
                self.sent_bytes += packets * bytes as u64;
                self.first_sent.get_or_insert(now);
                self.last_sent = now;
            }
            Sent::Full(errno) | Sent::Unfit(errno) => {
                let slot = usize::try_from(errno).unwrap_or(0).min(ERRNOS - 1);
                self.refused[slot] += packets;
            }
            Sent::Gone(errno) => self.gone = Some(errno),
        }
    }

    /// At top speed the clock is read once in a while; the end is read in any case.
    fn ends_at(&mut self, now: u64) {
        if self.sent_packets > 0 {
            self.last_sent = now;
        }
    }

    fn closed(mut self, intended_packets: u64, cpu_ns: u64) -> Outcome {
        self.end_interval();
        self.lateness.end();
        let refused = (0..).zip(self.refused).filter(|(_, packets)| *packets > 0);
        Outcome {
            intended_packets,
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            refused_packets: refused.collect(),
            not_rewritten_packets: self.not_rewritten_packets,
            first_sent_mono_ns: self.first_sent,
            last_sent_mono_ns: self.first_sent.map(|_| self.last_sent),
            schedule_errors: self.lateness.errors,
            asked_errors: self.lateness.asked_errors,
            late_bursts: self.lateness.bursts,
            shaping: self.lateness.shaping,
            cpu_ns,
            achieved: self.achieved,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lateness::{LateBursts, Shaping};
    use crate::outcome::ScheduleErrors;

    #[test]
    fn every_outcome_of_a_send_is_booked_once() {
        let mut books = Books::new(Lateness::new(false, 0));
        books.interval_end = 1_515;
        let told = AtomicU64::new(0);
        books.told = Some(&told);
        books.leaves(10, 1_510);
        books.offers(true);
        books.book(60, Sent::Taken, 1_510);
        books.offers(false);
        books.book(60, Sent::Full(105), 1_520);
        books.book(9000, Sent::Unfit(90), 1_530);
        books.book(9000, Sent::Unfit(90), 1_540);
        let later = 1_515 + Achieved::INTERVAL_NS;
        books.book(100, Sent::Taken, later);
        assert_eq!(books.gone, None);
        books.book(60, Sent::Gone(100), later);
        assert_eq!(books.gone, Some(100));
        let mut schedule_errors = ScheduleErrors::default();
        schedule_errors.record(1_500);
        assert_eq!(
            books.closed(6, 77),
            Outcome {
                intended_packets: 6,
                sent_packets: 2,
                sent_bytes: 160,
                refused_packets: BTreeMap::from([(90, 2), (105, 1)]),
                not_rewritten_packets: 1,
                first_sent_mono_ns: Some(1_510),
                last_sent_mono_ns: Some(later),
                asked_errors: schedule_errors.clone(),
                schedule_errors,
                late_bursts: LateBursts::default(),
                shaping: Shaping::default(),
                cpu_ns: 77,
                achieved: Achieved {
                    packets: vec![1, 0, 1],
                    bytes: vec![60, 0, 100],
                    largest_error_ns: vec![1_500, 0, 0],
                },
            }
        );
    }

    #[test]
    fn nothing_sent_has_no_times() {
        let outcome = Books::new(Lateness::new(false, 0)).closed(3, 0);
        assert_eq!(
            (outcome.first_sent_mono_ns, outcome.last_sent_mono_ns),
            (None, None)
        );
        assert_eq!(outcome.schedule_errors.summary(), None);
    }
}
