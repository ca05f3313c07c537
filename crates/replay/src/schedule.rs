//! When each packet of each replica is due, counted from the start; absolute, so that a late packet delays no other.
//!
//! - At the trace's own timing, replica r sends packet i of pass p at `offset[r] + (p * (duration + gap) + at[i]) / speed`, where `gap` is the mean gap of the trace:
//!   the next pass begins one mean gap after the last packet, or later if a pass is asked to last longer. Replicas are merged by due time.
//! - At a rate (constant, of bits, or a profile) slot j has a time of its own; the slots go round the replicas, so the
//!   rate is that of all replicas together. A packet that the last replica does not carry has one slot less.
//! - At top speed the slots go round, too, and have no time.

mod chosen;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::load::{InTurn, Load, rounded};
use crate::offsets::offsets;
use crate::part;
use crate::replica_count::Replicas;
use crate::request::{PlanError, Request};
use crate::round::{Round, Turn, count_below, index};
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
    /// Whose addresses its frame has: the replica, unless each pass has addresses of its own.
    pub copy: u32,
}

/// The schedule of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// `None` at the trace's own timing.
    in_turn: Option<InTurn>,
    speed: f64,
    round: Round,
    offsets_ns: Vec<u64>,
    /// Slots of each replica at the trace's own timing, of all together otherwise.
    counts: Vec<u64>,
    pass_ns: f64,
    /// From a replica's addresses in one pass to those in the next; 0 if they stay.
    copies_of_pass: u32,
}

impl Plan {
    /// Schedules a request for a trace.
    ///
    /// # Errors
    /// If a number is not positive, the replay would have no end, or nothing would be sent.
    pub fn new(trace: &Trace, request: &Request) -> Result<Self, PlanError> {
        request.check(trace)?;
        let packets = trace.packets().len();
        let duration = trace.duration_ns() as f64;
        let of_packets = duration + duration / (packets.max(2) - 1) as f64;
        let round = round(trace, request)?;
        let mut plan = Self {
            in_turn: InTurn::new(&request.load, trace, &round),
            speed: 1.0,
            offsets_ns: vec![0; round.replicas() as usize],
            round,
            counts: Vec::new(),
            pass_ns: of_packets.max(request.pass_ns.unwrap_or(0) as f64),
            copies_of_pass: 0,
        };
        if request.distinct_loops {
            plan.copies_of_pass = plan.replicas();
        }
        if let Load::Timing { speed } = request.load {
            plan.speed = speed;
            if let Some(seed) = request.offsets_from {
                plan.offsets_ns = offsets(seed, plan.replicas(), plan.pass_ns / speed);
            }
        }
        plan.counts = plan.counts(trace, request);
        Ok(plan)
    }

    fn counts(&self, trace: &Trace, request: &Request) -> Vec<u64> {
        let all = |of_pass: u64| match request.loops {
            0 if of_pass > 0 => u64::MAX / 4,
            loops => of_pass.saturating_mul(u64::from(loops)),
        };
        let limit = request.duration_ns.unwrap_or(u64::MAX);
        match &self.in_turn {
            None => (0..)
                .zip(&self.offsets_ns)
                .map(|(replica, offset)| {
                    let of_one = all(self.round.carried(replica) as u64);
                    count_below(of_one, limit, |slot| {
                        offset.saturating_add(self.timing_ns(trace, replica, slot))
                    })
                })
                .collect(),
            // Nothing is due by a clock: the sender looks at the limit.
            Some(InTurn::AtOnce) => vec![all(self.round.slots())],
            Some(in_turn) => {
                let limit = limit.min(in_turn.end_ns().unwrap_or(limit));
                let due_ns = |slot| in_turn.due_ns(slot, &self.round);
                vec![count_below(all(self.round.slots()), limit, due_ns)]
            }
        }
    }

    /// Packets it holds.
    #[must_use]
    pub fn intended_packets(&self) -> u64 {
        (self.counts.iter()).fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// First to last packet; `None` at top speed.
    #[must_use]
    pub fn intended_duration_ns(&self, trace: &Trace) -> Option<u64> {
        match &self.in_turn {
            None => {
                let due = |last: bool| {
                    let ends = (0..).zip(self.counts.iter().zip(&self.offsets_ns));
                    ends.filter(|(_, (count, _))| **count > 0).map(
                        move |(replica, (count, offset))| {
                            let slot = if last { count - 1 } else { 0 };
                            offset.saturating_add(self.timing_ns(trace, replica, slot))
                        },
                    )
                };
                let (first, last) = (due(false).min(), due(true).max());
                Some(last.zip(first).map_or(0, |(last, first)| last - first))
            }
            Some(InTurn::AtOnce) => None,
            Some(in_turn) => {
                let due_ns = |slot| in_turn.due_ns(slot, &self.round);
                let last = self.counts[0].checked_sub(1);
                Some(last.map_or(0, |last| due_ns(last) - due_ns(0)))
            }
        }
    }

    /// Slots of one replica.
    pub(crate) fn slots_of(&self, replica: u32) -> u64 {
        match &self.in_turn {
            None => self.counts[replica as usize],
            Some(_) => self.round.slots_of(replica, self.counts[0]),
        }
    }

    /// The sum of a weight over all packets that a replica sends.
    pub(crate) fn sum_of(&self, replica: u32, weight: impl Fn(usize) -> u64) -> u64 {
        let carried = self.round.carried(replica);
        if carried == 0 {
            return 0;
        }
        let (slots, of_pass) = (self.slots_of(replica), carried as u64);
        let rest = index(slots % of_pass);
        let sum = |numbers: std::ops::Range<usize>| -> u64 {
            numbers.map(|n| weight(self.round.packet(replica, n))).sum()
        };
        let in_rest = sum(0..rest);
        let in_pass = in_rest + sum(rest..carried);
        in_pass.saturating_mul(slots / of_pass) + in_rest
    }

    /// The packets of the trace that a replica carries, in their order.
    pub fn packets_of(&self, replica: u32) -> impl Iterator<Item = usize> {
        (0..self.round.carried(replica)).map(move |number| self.round.packet(replica, number))
    }

    pub(crate) fn round(&self) -> &Round {
        &self.round
    }

    /// Replicas at once, the trace itself and one that is not whole included.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.round.replicas()
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
        let mut queue = BinaryHeap::with_capacity(self.replicas() as usize);
        if self.in_turn.is_none() {
            for (replica, offset) in (0..self.replicas()).zip(&self.offsets_ns) {
                if self.counts[replica as usize] > 0 {
                    queue.push(Reverse((
                        offset.saturating_add(self.timing_ns(trace, replica, 0)),
                        replica,
                    )));
                }
            }
        }
        Slots {
            plan: self,
            trace,
            next: 0,
            turn: self.round.first(),
            queue,
            sent: vec![0; self.replicas() as usize],
        }
    }

    /// When slot number `slot` of a replica is due after that replica's start.
    fn timing_ns(&self, trace: &Trace, replica: u32, slot: u64) -> u64 {
        let (pass, packet) = self.pass_and_packet(replica, slot);
        let at = trace.packets()[packet].at_ns;
        rounded((pass as f64 * self.pass_ns + at as f64) / self.speed)
    }

    /// Slot number `slot` of a replica at the trace's own timing.
    fn slot(&self, due_ns: u64, replica: u32, slot: u64) -> Slot {
        let (pass, packet) = self.pass_and_packet(replica, slot);
        Slot {
            due_ns,
            packet,
            replica,
            copy: self.copy(replica, pass),
        }
    }

    /// There are addresses for as many copies as the passes need (`Request::copies`).
    fn copy(&self, replica: u32, pass: u64) -> u32 {
        let passes = u32::try_from(pass).unwrap_or(u32::MAX);
        replica.saturating_add(passes.saturating_mul(self.copies_of_pass))
    }

    /// Copies of the trace with addresses of their own that it sends, if replicas are distinct.
    #[must_use]
    pub fn copies(&self) -> u32 {
        let passes_of = |replica| {
            let carried = self.round.carried(replica) as u64;
            self.slots_of(replica).div_ceil(carried.max(1))
        };
        let passes = (0..self.replicas()).map(passes_of).max().unwrap_or(0);
        let copies = passes.saturating_mul(u64::from(self.copies_of_pass));
        u32::try_from(copies)
            .unwrap_or(u32::MAX)
            .max(self.replicas())
    }

    /// Whether each pass has addresses of its own.
    pub(crate) fn has_distinct_loops(&self) -> bool {
        self.copies_of_pass > 0
    }

    fn pass_and_packet(&self, replica: u32, slot: u64) -> (u64, usize) {
        let carried = self.round.carried(replica) as u64;
        let packet = self.round.packet(replica, index(slot % carried));
        (slot / carried, packet)
    }
}

/// The packets of a pass, and which replicas carry them.
fn round(trace: &Trace, request: &Request) -> Result<Round, PlanError> {
    let Replicas { whole, fraction } = request.replicas;
    // What has no flow stays with the first replica.
    let part = fraction.map(|fraction| part::packets_of(fraction, trace, whole == 0));
    if whole == 0 && part.as_ref().is_none_or(Vec::is_empty) {
        return Err(PlanError::NothingCarried);
    }
    Ok(Round::new(trace.packets().len(), whole, part))
}

/// The slots of a plan in order of due time.
#[derive(Debug)]
pub struct Slots<'a> {
    plan: &'a Plan,
    trace: &'a Trace,
    /// Next slot of all replicas together, if they go in turn, and whose turn it is.
    next: u64,
    turn: Turn,
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
        let pass = slot / self.plan.round.slots();
        let turn = self.turn;
        self.turn = self.plan.round.after(turn);
        Some(Slot {
            due_ns: in_turn.due_ns(slot, &self.plan.round),
            packet: turn.packet,
            replica: turn.replica,
            copy: self.plan.copy(turn.replica, pass),
        })
    }

    fn next_by_time(&mut self) -> Option<Slot> {
        let mut first = self.queue.peek_mut()?;
        let Reverse((due_ns, replica)) = *first;
        let which = replica as usize;
        let slot = self.sent[which];
        self.sent[which] += 1;
        if self.sent[which] < self.plan.counts[which] {
            let after = self.plan.timing_ns(self.trace, replica, slot + 1);
            let due = self.plan.offsets_ns[which].saturating_add(after);
            *first = Reverse((due, replica));
        } else {
            std::collections::binary_heap::PeekMut::pop(first);
        }
        Some(self.plan.slot(due_ns, replica, slot))
    }
}

#[cfg(test)]
mod tests;
