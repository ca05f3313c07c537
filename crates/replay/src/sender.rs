//! The loop that sends a plan.

use std::sync::atomic::AtomicU64;

use nodrop_sys::clock::{mono_ns, thread_cpu_ns};

use crate::backend::Backend;
use crate::books::Books;
use crate::flood;
use crate::lateness::Lateness;
use crate::outcome::{Outcome, Spent};
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
    /// the one that sends; `realtime` if it runs under SCHED_FIFO, `own_cpu` if its CPU is meant for it alone. `limit_ns` ends a
    /// replay at top speed.
    #[must_use]
    pub fn new(
        trace: &'a Trace,
        plan: &'a Plan,
        share: Share<'a>,
        backend: &'a mut Backend,
        realtime: bool,
        own_cpu: bool,
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
            pacer: Pacer::new(realtime, own_cpu && plan.is_paced(), aim),
            limit_ns,
            buffer,
            books,
        }
    }

    /// Lets another thread see what was sent so far: one store at the end of each interval, none per packet.
    #[must_use]
    pub fn reporting_to(mut self, sent_packets: &'a AtomicU64) -> Self {
        self.books.seen_by = Some(sent_packets);
        self
    }

    /// Sends the plan, beginning at `start_mono_ns`; ends early if `stopped` says so.
    ///
    /// # Errors
    /// If the interface goes down or away.
    pub fn run(
        mut self,
        start_mono_ns: u64,
        stopped: impl Fn() -> bool,
    ) -> Result<Outcome, SendError> {
        let (cpu, began) = (thread_cpu_ns(), mono_ns());
        self.pacer.begin();
        self.books.begins_at(start_mono_ns);
        self.books.paced = self.plan.is_paced();
        let intended = if self.books.paced {
            self.paced(start_mono_ns, &stopped)
        } else if matches!(self.backend, Backend::Flood(_)) {
            self.copies(start_mono_ns, &stopped)
        } else {
            self.top_speed(start_mono_ns, &stopped)
        };
        let spent = Spent {
            cpu_ns: thread_cpu_ns() - cpu,
            spun_ns: self.pacer.spun_ns(),
            ns: mono_ns() - began,
        };
        match self.books.gone {
            None => Ok(self.books.closed(intended, spent)),
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
        let (frame, as_is) = self.trace.frame(slot.packet, slot.copy, &mut self.buffer);
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
            let (frame, as_is) = self.trace.frame(slot.packet, slot.copy, &mut self.buffer);
            self.books.offers(as_is);
            self.backend
                .insist(frame, &mut |bytes, sent| self.books.book(bytes, sent, now));
        }
        self.backend
            .finish(&mut |bytes, sent| self.books.book(bytes, sent, now));
        self.books.ends_at(mono_ns());
        intended
    }

    /// Sends by flood: each packet so many times in a row, without times.
    fn copies(&mut self, start: u64, stopped: &impl Fn() -> bool) -> u64 {
        let Backend::Flood(sender) = &*self.backend else {
            return self.intended_packets;
        };
        if self.pacer.wait(start, stopped).is_none() {
            return self.intended_packets;
        }
        let begin = mono_ns();
        let deadline = self.limit_ns.map(|limit| start + limit);
        let packets = self.trace.packets().len();
        let copies = self.plan.slots_of(0) / packets as u64;
        let mut reached = 0;
        for packet in 0..packets {
            let slot = Slot {
                due_ns: 0,
                packet,
                replica: 0,
                copy: 0,
            };
            if !self.share.has(&slot) {
                continue;
            }
            let frame = self.trace.frame(packet, 0, &mut self.buffer).0;
            reached += flood::send(sender, frame, copies, &mut self.books, || {
                stopped() || deadline.is_some_and(|deadline| mono_ns() >= deadline)
            });
        }
        self.books.ends_at(mono_ns());
        // Booked only once the first call has ended.
        self.books.first_sent = self.books.first_sent.map(|_| begin);
        if self.limit_ns.is_some() {
            reached
        } else {
            self.intended_packets
        }
    }
}
