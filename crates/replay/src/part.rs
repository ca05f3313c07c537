//! The packets of a replica that carries some of the flows: whole flows, the same ones in every run, each larger fraction
//! has those of the smaller ones, and each fraction has flows of all sizes.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::flows::hashes;
use crate::offsets::mixed;
use crate::replica_count::Fraction;
use crate::trace::Trace;

/// Numbers of the packets, in the order of the trace.
pub(crate) fn packets_of(fraction: Fraction, trace: &Trace, without_flow_too: bool) -> Vec<usize> {
    let of_packets = hashes(trace, fraction.seed);
    let mut flows = evenly(&of_packets, fraction.seed);
    flows.truncate(fraction.of_flows(flows.len()));
    let taken: HashSet<u64> = flows.into_iter().collect();
    let is_taken = |flow: Option<u64>| flow.map_or(without_flow_too, |flow| taken.contains(&flow));
    let numbered = (0..).zip(of_packets);
    numbered
        .filter_map(|(packet, flow)| is_taken(flow).then_some(packet))
        .collect()
}

/// All flows, so ordered that the first ones of any number have about as large a part of the packets as of the flows: a van der
/// Corput sequence over the flows by size, begun where the seed says. Flows of one size lie in the order of their hashes.
fn evenly(of_packets: &[Option<u64>], seed: u64) -> Vec<u64> {
    let mut sizes = HashMap::<u64, usize>::new();
    for flow in of_packets.iter().flatten() {
        *sizes.entry(*flow).or_default() += 1;
    }
    let mut by_size: Vec<(Reverse<usize>, u64)> = sizes
        .into_iter()
        .map(|(flow, packets)| (Reverse(packets), flow))
        .collect();
    by_size.sort_unstable();
    let begin = mixed(seed);
    let mut ordered: Vec<(u64, u64)> = (0_u64..)
        .zip(by_size)
        .map(|(rank, (_, flow))| (rank.reverse_bits().wrapping_add(begin), flow))
        .collect();
    ordered.sort_unstable();
    ordered.into_iter().map(|(_, flow)| flow).collect()
}

#[cfg(test)]
mod tests;
