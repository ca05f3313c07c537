//! The packets of a replica that carries some of the flows: whole flows, the same ones in every run, and each larger fraction
//! has those of the smaller ones.

use crate::flows::hashes;
use crate::replicas::Fraction;
use crate::trace::Trace;

/// Numbers of the packets, in the order of the trace.
pub(crate) fn packets_of(fraction: Fraction, trace: &Trace, without_flow_too: bool) -> Vec<usize> {
    let of_packets = hashes(trace, fraction.seed);
    let mut flows: Vec<u64> = of_packets.iter().flatten().copied().collect();
    flows.sort_unstable();
    flows.dedup();
    // The flows with the smallest hashes: so many, whatever the hashes of this trace are.
    let taken = fraction.of_flows(flows.len());
    let last = taken.checked_sub(1).map(|last| flows[last]);
    let is_taken = |flow: Option<u64>| match flow {
        Some(flow) => last.is_some_and(|last| flow <= last),
        None => without_flow_too,
    };
    let numbered = (0..).zip(of_packets);
    numbered
        .filter_map(|(packet, flow)| is_taken(flow).then_some(packet))
        .collect()
}

#[cfg(test)]
mod tests;
