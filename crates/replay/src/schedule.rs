//! When each packet of each replica is due, counted from the start; absolute, so that a late packet delays no other.
//!
//! - At the trace's own timing, replica r sends packet i of pass p at `offset[r] + (p * (duration + gap) + at[i]) / speed`, where `gap` is the mean gap of the trace:
//!   the next pass begins one mean gap after the last packet. Replicas are merged by due time.
//! - At a rate (constant, of bits, or a profile) slot j has a time of its own; the slots go round the replicas, so the
//!   rate is that of all replicas together.
//! - At top speed the slots go round, too, and have no time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::load::{InTurn, Load, LoadError, index, positive, rounded};
use crate::trace::Trace;

/// Largest start offset of a replica; a hundredth of a pass where that is shorter.
const LARGEST_OFFSET_NS: f64 = 100e6;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// How fast.
    pub load: Load,
    /// Passes of the trace; 0 = as many as fit the duration.
    pub loops: u32,
    /// Replicas at once, the trace itself included.
    pub replicas: u32,
    /// Packets due at this time or later are not sent.
    pub duration_ns: Option<u64>,
    /// Spread the starts of replicas by small offsets from this seed; `None` where they shall be in step.
    pub offsets_from: Option<u64>,
}

/// What cannot be scheduled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A number or a profile is wrong.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An endless replay.
    #[error("loops = 0 means as many passes as duration_s holds: duration_s is missing")]
    Endless,
    /// The count of packets would depend on how fast they leave.
    #[error("loops = 0 is not possible at top speed: give the passes that at most shall be sent")]
    EndlessTopSpeed,
    /// All packets of the trace have one time.
    #[error(
        "all packets of the trace have the same time, so its own timing fills no duration: use pps"
    )]
    NoDuration,
}

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
    /// Where a number is not positive or the replay would have no end.
    pub fn new(trace: &Trace, request: &Request) -> Result<Self, PlanError> {
        check(trace, request)?;
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
                let window = LARGEST_OFFSET_NS.min(plan.pass_ns / speed / 100.0);
                plan.offsets_ns = offsets(seed, request.replicas, window);
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
                    count_below(of_one, limit, |slot| offset + self.timing_ns(trace, slot))
                })
                .collect(),
            // Nothing is due by a clock: whoever sends looks at the limit.
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
                .map(|(count, offset)| offset + self.timing_ns(trace, count - 1))
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

    /// Whether the trace says when its packets are due, and nobody else.
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
                    queue.push(Reverse((offset + self.timing_ns(trace, 0), replica)));
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
    /// Next slot of all replicas together, where they go in turn.
    next: u64,
    /// Next due time of each replica, where they have times of their own.
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
            let due = self.plan.offsets_ns[which] + self.plan.timing_ns(self.trace, slot + 1);
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

fn check(trace: &Trace, request: &Request) -> Result<(), PlanError> {
    positive("multiplier", f64::from(request.replicas))?;
    request.load.check()?;
    if request.loops > 0 {
        return Ok(());
    }
    match request.load {
        Load::TopSpeed => Err(PlanError::EndlessTopSpeed),
        Load::Profile(_) => Ok(()),
        _ if request.duration_ns.is_none() => Err(PlanError::Endless),
        Load::Timing { .. } if trace.duration_ns() == 0 => Err(PlanError::NoDuration),
        _ => Ok(()),
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

/// Replica 0 begins at 0, the others at a time that the seed gives.
fn offsets(seed: u64, replicas: u32, window_ns: f64) -> Vec<u64> {
    (0..u64::from(replicas))
        .map(|replica| match replica {
            0 => 0,
            _ => {
                let share = mixed(seed ^ mixed(replica)) as f64 / u64::MAX as f64;
                rounded(share * window_ns)
            }
        })
        .collect()
}

/// One step of SplitMix64 (Steele et al. 2014).
pub(crate) fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::Profile;
    use crate::trace::tests::trace;
    use proptest::prelude::*;

    fn request(load: Load) -> Request {
        Request {
            load,
            loops: 1,
            replicas: 1,
            duration_ns: None,
            offsets_from: None,
        }
    }

    fn slots(trace: &Trace, request: &Request) -> Vec<(u64, usize, u32)> {
        let plan = Plan::new(trace, request).unwrap();
        plan.slots(trace)
            .map(|slot| (slot.due_ns, slot.packet, slot.replica))
            .collect()
    }

    #[test]
    fn passes_follow_one_mean_gap_apart() {
        let trace = trace(&[1000, 1010, 1040]);
        let request = Request {
            loops: 2,
            ..request(Load::Timing { speed: 2.0 })
        };
        assert_eq!(
            slots(&trace, &request),
            [
                (0, 0, 0),
                (5, 1, 0),
                (20, 2, 0),
                (30, 0, 0),
                (35, 1, 0),
                (50, 2, 0)
            ]
        );
        assert_eq!(
            Plan::new(&trace, &request)
                .unwrap()
                .intended_duration_ns(&trace),
            Some(50)
        );
    }

    #[test]
    fn a_constant_rate_goes_round_the_replicas() {
        let request = Request {
            replicas: 2,
            ..request(Load::Rate { pps: 1e6, burst: 1 })
        };
        assert_eq!(
            slots(&trace(&[0, 7]), &request),
            [(0, 0, 0), (1000, 0, 1), (2000, 1, 0), (3000, 1, 1)]
        );
    }

    #[test]
    fn replicas_in_step_send_each_packet_one_after_the_other() {
        let request = Request {
            replicas: 2,
            ..request(Load::Timing { speed: 1.0 })
        };
        assert_eq!(
            slots(&trace(&[0, 7]), &request),
            [(0, 0, 0), (0, 0, 1), (7, 1, 0), (7, 1, 1)]
        );
    }

    #[test]
    fn a_duration_ends_passes_and_replicas() {
        let trace = trace(&[0, 10, 20]);
        let timing = Request {
            loops: 0,
            replicas: 2,
            duration_ns: Some(31),
            ..request(Load::Timing { speed: 1.0 })
        };
        assert_eq!(slots(&trace, &timing).len(), 8, "0, 10, 20, 30 of both");
        let rate = Request {
            load: Load::Rate { pps: 1e8, burst: 1 },
            ..timing
        };
        assert_eq!(slots(&trace, &rate).len(), 4);
    }

    #[test]
    fn offsets_are_small_and_from_the_seed() {
        let trace = trace(&[0, 10_000_000_000]);
        let plan = |seed| {
            let timing = request(Load::Timing { speed: 2.0 });
            Plan::new(
                &trace,
                &Request {
                    replicas: 8,
                    offsets_from: Some(seed),
                    ..timing
                },
            )
            .unwrap()
        };
        let offsets = plan(1).replica_offsets_ns().to_vec();
        assert_eq!(offsets[0], 0);
        assert!(
            offsets.iter().all(|offset| *offset <= 100_000_000),
            "{offsets:?}"
        );
        assert!(
            offsets.iter().any(|offset| *offset > 10_000_000),
            "{offsets:?}"
        );
        assert_eq!(plan(1).replica_offsets_ns(), offsets);
        assert_ne!(plan(2).replica_offsets_ns(), offsets);
    }

    #[test]
    fn what_has_no_end_or_no_rate_is_refused() {
        let (one, two) = (trace(&[0]), trace(&[0, 5]));
        let bad = |trace: &Trace, request: Request| Plan::new(trace, &request).unwrap_err();
        let endless = |load, duration_ns| Request {
            loops: 0,
            duration_ns,
            ..request(load)
        };
        let timing = Load::Timing { speed: 1.0 };
        assert_eq!(bad(&two, endless(timing.clone(), None)), PlanError::Endless);
        assert_eq!(bad(&one, endless(timing, Some(9))), PlanError::NoDuration);
        assert_eq!(
            bad(&two, endless(Load::TopSpeed, Some(9))),
            PlanError::EndlessTopSpeed
        );
        assert_eq!(
            bad(&two, request(Load::Rate { pps: 0.0, burst: 1 })),
            PlanError::Load(LoadError::NotPositive {
                field: "pps",
                value: 0.0
            })
        );
        assert!(matches!(
            bad(&two, request(Load::Timing { speed: f64::NAN })),
            PlanError::Load(LoadError::NotPositive { field: "speed", .. })
        ));
    }

    proptest! {
        /// As many slots as intended, in order of time, the last at the intended duration.
        #[test]
        fn a_plan_is_what_it_says(
            mut times in proptest::collection::vec(0u64..1_000_000, 1..30),
            loops in 1u32..4, replicas in 1u32..5, kind in 0usize..5, limit in proptest::option::of(1u64..2_000_000),
        ) {
            times.sort_unstable();
            let trace = trace(&times);
            let profile = Profile::from_csv("0,10\n1,900\n1.5,30\n2.5,1", true).unwrap();
            let load = [
                Load::TopSpeed,
                Load::Timing { speed: 1.7 },
                Load::Rate { pps: 12_345.6, burst: 3 },
                Load::Bits { bps: 1e6 },
                Load::Profile(profile),
            ][kind].clone();
            let limit = limit.filter(|_| kind > 0);
            let request = Request { load, loops, replicas, duration_ns: limit, offsets_from: Some(7) };
            let plan = Plan::new(&trace, &request).unwrap();
            let slots: Vec<Slot> = plan.slots(&trace).collect();
            prop_assert_eq!(slots.len() as u64, plan.intended_packets());
            prop_assert!(slots.is_sorted_by_key(|slot| slot.due_ns));
            prop_assert!(slots.iter().all(|slot| limit.is_none_or(|limit| slot.due_ns < limit)));
            if limit.is_none() && kind < 4 {
                let all = times.len() as u64 * u64::from(loops) * u64::from(replicas);
                prop_assert_eq!(slots.len() as u64, all);
            }
            if let (Some(duration), Some(last)) = (plan.intended_duration_ns(&trace), slots.last()) {
                prop_assert_eq!(last.due_ns, duration);
            }
        }
    }
}
