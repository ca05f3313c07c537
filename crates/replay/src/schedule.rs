//! When each packet of each replica is due, counted from the start; absolute, so that a late packet delays no other.
//!
//! - At the trace's own timing, replica r sends packet i of pass p at `offset[r] + (p * (duration + gap) + at[i]) / speed`, where `gap` is the mean gap of the trace:
//!   the next pass begins one mean gap after the last packet. Replicas are merged by due time.
//! - At a rate (constant, of bits, or a profile) slot j has a time of its own; the slots go round the replicas, so the
//!   rate is that of all replicas together.
//! - At top speed the slots go round, too, and have no time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::load::{InTurn, Load, index, rounded};
use crate::offsets::offsets;
use crate::request::{PlanError, Request};
use crate::trace::Trace;

/// A packet to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Time after the start.
    pub due_ns: u64,
    /// Index into the trace.
    pub packet: usize,
    /// 0 is the trace itself.
    pub replica: u32,
}

/// The schedule of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// `None` at the trace's own timing.
    in_turn: Option<InTurn>,
    speed: f64,
    replicas: u32,
    offsets_ns: Vec<u64>,
    /// Slots of each replica at the trace's own timing, of all together otherwise.
    counts: Vec<u64>,
    packets: u64,
    pass_ns: f64,
}

impl Plan {
    /// Schedules a request for a trace.
    ///
    /// # Errors
    /// If a number is not positive or the replay would have no end.
    pub fn new(trace: &Trace, request: &Request) -> Result<Self, PlanError> {
        request.check(trace)?;
        let packets = trace.packets().len() as u64;
        let duration = trace.duration_ns() as f64;
        let mut plan = Self {
            in_turn: InTurn::new(&request.load, trace, request.replicas),
            speed: 1.0,
            replicas: request.replicas,
            offsets_ns: vec![0; request.replicas as usize],
            counts: Vec::new(),
            packets,
            pass_ns: duration + duration / (packets.max(2) - 1) as f64,
        };
        if let Load::Timing { speed } = request.load {
            plan.speed = speed;
            if let Some(seed) = request.offsets_from {
                plan.offsets_ns = offsets(seed, request.replicas, plan.pass_ns / speed);
            }
        }
        plan.counts = plan.counts(trace, request);
        Ok(plan)
    }

    fn counts(&self, trace: &Trace, request: &Request) -> Vec<u64> {
        let of_one = match request.loops {
            0 => u64::MAX / 4,
            loops => self.packets * u64::from(loops),
        };
        let limit = request.duration_ns.unwrap_or(u64::MAX);
        match &self.in_turn {
            None => (self.offsets_ns.iter())
                .map(|offset| {
                    count_below(of_one, limit, |slot| {
                        offset.saturating_add(self.timing_ns(trace, slot))
                    })
                })
                .collect(),
            // Nothing is due by a clock: the sender looks at the limit.
            Some(InTurn::AtOnce) => vec![of_one.saturating_mul(u64::from(self.replicas))],
            Some(in_turn) => {
                let all = of_one.saturating_mul(u64::from(self.replicas));
                let limit = limit.min(in_turn.end_ns().unwrap_or(limit));
                vec![count_below(all, limit, |slot| in_turn.due_ns(slot))]
            }
        }
    }

    /// Packets it holds.
    #[must_use]
    pub fn intended_packets(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// First to last packet; `None` at top speed.
    #[must_use]
    pub fn intended_duration_ns(&self, trace: &Trace) -> Option<u64> {
        match &self.in_turn {
            // Replica 0 begins at 0.
            None => (self.counts.iter().zip(&self.offsets_ns))
                .filter(|(count, _)| **count > 0)
                .map(|(count, offset)| offset.saturating_add(self.timing_ns(trace, count - 1)))
                .max()
                .or(Some(0)),
            Some(InTurn::AtOnce) => None,
            Some(in_turn) => {
                let last = self.counts[0].checked_sub(1);
                Some(last.map_or(0, |last| in_turn.due_ns(last) - in_turn.due_ns(0)))
            }
        }
    }

    /// Slots of one replica.
    pub(crate) fn slots_of(&self, replica: u32) -> u64 {
        match &self.in_turn {
            None => self.counts[replica as usize],
            // Slot j is that of replica j modulo the replicas.
            Some(_) => {
                let before_last = u64::from(self.replicas - 1 - replica);
                self.counts[0].saturating_add(before_last) / u64::from(self.replicas)
            }
        }
    }

    /// Replicas at once, the trace itself included.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Start of each replica after that of the trace itself.
    #[must_use]
    pub fn replica_offsets_ns(&self) -> &[u64] {
        &self.offsets_ns
    }

    /// Whether slots have a time.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.in_turn != Some(InTurn::AtOnce)
    }

    /// Whether the trace alone says when its packets are due.
    #[must_use]
    pub fn is_own_timing(&self) -> bool {
        self.in_turn.is_none()
    }

    /// The slots, in order of due time. Allocates here and no more.
    #[must_use]
    pub fn slots<'a>(&'a self, trace: &'a Trace) -> Slots<'a> {
        let mut queue = BinaryHeap::with_capacity(self.replicas as usize);
        if self.in_turn.is_none() {
            for (replica, offset) in (0..self.replicas).zip(&self.offsets_ns) {
                if self.counts[replica as usize] > 0 {
                    queue.push(Reverse((
                        offset.saturating_add(self.timing_ns(trace, 0)),
                        replica,
                    )));
                }
            }
        }
        Slots {
            plan: self,
            trace,
            next: 0,
            queue,
            sent: vec![0; self.replicas as usize],
        }
    }

    /// When slot number `slot` of a replica is due after that replica's start.
    fn timing_ns(&self, trace: &Trace, slot: u64) -> u64 {
        let (pass, packet) = (slot / self.packets, slot % self.packets);
        let at = trace.packets()[index(packet)].at_ns;
        rounded((pass as f64 * self.pass_ns + at as f64) / self.speed)
    }
}

/// The slots of a plan in order of due time.
#[derive(Debug)]
pub struct Slots<'a> {
    plan: &'a Plan,
    trace: &'a Trace,
    /// Next slot of all replicas together, if they go in turn.
    next: u64,
    /// Next due time of each replica, if they have times of their own.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    sent: Vec<u64>,
}

impl Iterator for Slots<'_> {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        match &self.plan.in_turn {
            None => self.next_by_time(),
            Some(in_turn) => self.next_in_turn(in_turn),
        }
    }
}

impl Slots<'_> {
    fn next_in_turn(&mut self, in_turn: &InTurn) -> Option<Slot> {
        let slot = self.next;
        if slot >= self.plan.counts[0] {
            return None;
        }
        self.next += 1;
        let replicas = u64::from(self.plan.replicas);
        Some(Slot {
            due_ns: in_turn.due_ns(slot),
            packet: index(slot / replicas % self.plan.packets),
            replica: u32::try_from(slot % replicas).unwrap_or(0),
        })
    }

    fn next_by_time(&mut self) -> Option<Slot> {
        let mut first = self.queue.peek_mut()?;
        let Reverse((due_ns, replica)) = *first;
        let which = replica as usize;
        let slot = self.sent[which];
        self.sent[which] += 1;
        if self.sent[which] < self.plan.counts[which] {
            let after = self.plan.timing_ns(self.trace, slot + 1);
            let due = self.plan.offsets_ns[which].saturating_add(after);
            *first = Reverse((due, replica));
        } else {
            std::collections::binary_heap::PeekMut::pop(first);
        }
        Some(Slot {
            due_ns,
            packet: index(slot % self.plan.packets),
            replica,
        })
    }
}

/// How many of the slots 0..all are due before `limit`; due times never fall.
fn count_below(all: u64, limit: u64, due: impl Fn(u64) -> u64) -> u64 {
    let (mut low, mut high) = (0, all);
    while low < high {
        let middle = low + (high - low) / 2;
        if due(middle) < limit {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests;
