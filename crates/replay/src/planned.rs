//! What a plan will send, known before anything is sent.

use nodrop_wire::view::Ip;

use crate::round::index;
use crate::schedule::Plan;
use crate::trace::{FirstOfFlows, Trace};

/// Sums over all slots of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Packets; at top speed with a limit of time, at most, as is all below.
    pub packets: u64,
    /// Bytes of their frames.
    pub frame_bytes: u64,
    /// Flows: those of a replica with addresses of its own are others. Later fragments, which have no ports, are left out.
    pub flows: u64,
    /// Packets of the trace up to the last one that is sent.
    pub window_packets: u64,
    /// Time of that one after the first of the trace.
    pub window_ns: u64,
}

impl Planned {
    /// Of a plan for this trace.
    #[must_use]
    pub fn of(trace: &Trace, plan: &Plan) -> Self {
        let last = (0..plan.replicas())
            .filter_map(|replica| {
                let number = in_first_pass(plan, replica).checked_sub(1)?;
                Some(plan.round().packet(replica, number))
            })
            .max();
        Self {
            packets: plan.intended_packets(),
            frame_bytes: sum(plan, |packet| u64::from(trace.packets()[packet].length())),
            flows: flows(trace, plan),
            window_packets: last.map_or(0, |last| last as u64 + 1),
            window_ns: last.map_or(0, |last| trace.packets()[last].at_ns),
        }
    }
}

/// Shows each packet of the trace that a plan sends, and how many times it does.
pub fn each(plan: &Plan, mut see: impl FnMut(usize, u64)) {
    let round = plan.round();
    // Replicas of a kind send the packets of one list, pass after pass; the last pass may end early.
    for kind in [0..round.whole(), round.whole()..round.replicas()] {
        let of_pass = if kind.is_empty() {
            0
        } else {
            round.carried(kind.start)
        };
        if of_pass == 0 {
            continue;
        }
        let (mut passes, mut ends) = (0, vec![0; of_pass]);
        for replica in kind.clone() {
            let slots = plan.slots_of(replica);
            passes += slots / of_pass as u64;
            ends[index(slots % of_pass as u64)] += 1;
        }
        let mut go_on = u64::from(kind.end - kind.start);
        for (number, ended) in ends.into_iter().enumerate() {
            go_on -= ended;
            see(round.packet(kind.start, number), passes + go_on);
        }
    }
}

/// The sum of a weight over all packets that a plan sends.
#[must_use]
pub fn sum(plan: &Plan, weight: impl Fn(usize) -> u64) -> u64 {
    let mut sum = 0_u64;
    each(plan, |packet, times| {
        sum = sum.saturating_add(weight(packet).saturating_mul(times));
    });
    sum
}

/// Different packets of the trace that a replica sends: its first so many.
fn in_first_pass(plan: &Plan, replica: u32) -> usize {
    let carried = plan.round().carried(replica);
    index(plan.slots_of(replica).min(carried as u64))
}

fn flows(trace: &Trace, plan: &Plan) -> u64 {
    let round = plan.round();
    let (mut others, mut same) = (0, Vec::new());
    // Replicas of a kind send the first so many packets of one list.
    for kind in [0..round.whole(), round.whole()..round.replicas()] {
        let most = kind
            .clone()
            .map(|replica| in_first_pass(plan, replica))
            .max();
        let packets = (0..most.unwrap_or(0)).map(|number| round.packet(kind.start, number));
        let found = FirstOfFlows::of(trace, packets, Ip::has_transport_header);
        same.extend(found.same);
        let begun_before = |number| found.others.partition_point(|first| *first < number) as u64;
        let of_replica = |replica: u32| {
            let first = begun_before(in_first_pass(plan, replica));
            let carried = round.carried(replica) as u64;
            let slots = plan.slots_of(replica);
            if !plan.has_distinct_loops() || slots <= carried {
                return first;
            }
            first.saturating_mul(slots / carried) + begun_before(index(slots % carried))
        };
        others += kind.map(of_replica).sum::<u64>();
    }
    same.sort_unstable();
    same.dedup();
    others + same.len() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::Load;
    use crate::replica_count::Replicas;
    use crate::request::Request;
    use crate::trace::tests::{number_copies, trace_of, udp};
    use nodrop_wire::flow::FlowKey;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// What is counted slot by slot, with every frame as it is sent.
        #[test]
        fn what_is_planned_is_what_the_slots_are(
            hosts in proptest::collection::vec((1u8..9, 1u8..9), 1..30), loops in 1u32..4, multiplier in 0.2f64..4.0,
            distinct: bool, distinct_loops: bool, kind in 0usize..4, limit in proptest::option::of(1u64..60),
        ) {
            let frames: Vec<Vec<u8>> = hosts.iter().map(|(from, to)| udp(*from, *to)).collect();
            let mut trace = trace_of(&frames);
            let replicas = Replicas::of(multiplier, 3).unwrap();
            let distinct_loops = distinct && distinct_loops;
            let copies = replicas.count() * if distinct_loops { loops } else { 1 };
            number_copies(&mut trace, if distinct { copies } else { 1 });
            let load = [
                Load::Timing { speed: 1.0 }, Load::Rate { pps: 1e9, burst: 2 }, Load::Bits { bps: 3e11 }, Load::TopSpeed,
            ][kind].clone();
            let limit = limit.filter(|_| kind < 3);
            let request = Request { load, loops, replicas, duration_ns: limit, pass_ns: None, offsets_from: distinct.then_some(5), distinct_loops };
            prop_assert!(!distinct || request.copies() == Ok(copies));
            let Ok(plan) = Plan::new(&trace, &request) else {
                return Ok(()); // a part with no flow
            };
            let used = plan.slots(&trace).map(|slot| slot.copy + 1).max().unwrap_or(0);
            prop_assert!(used <= plan.copies() && plan.copies() <= copies.max(replicas.count()));
            prop_assert!(plan.slots(&trace).is_sorted_by_key(|slot| slot.due_ns));
            let mut buffer = trace.buffer();
            let (mut packets, mut bytes, mut flows, mut last) = (0, 0, HashSet::new(), None);
            for slot in plan.slots(&trace) {
                let frame = trace.frame(slot.packet, slot.copy, &mut buffer).0;
                packets += 1;
                bytes += frame.len() as u64;
                flows.extend(FlowKey::innermost(frame));
                last = last.max(Some(slot.packet));
            }
            let window = last.map_or((0, 0), |last| (last as u64 + 1, trace.packets()[last].at_ns));
            let expected = Planned {
                packets, frame_bytes: bytes, flows: flows.len() as u64, window_packets: window.0, window_ns: window.1,
            };
            prop_assert_eq!(Planned::of(&trace, &plan), expected);
        }
    }
}
