//! The flows of a trace, as far as they must stay together: both directions, the fragments of a datagram, and the ICMP errors
//! about it.

use std::collections::HashSet;
use std::net::IpAddr;

use nodrop_wire::flow::FlowKey;
use nodrop_wire::tunnel::innermost;
use nodrop_wire::view::{self, Ip};

use crate::offsets::mixed;
use crate::trace::Trace;

type Pair = (IpAddr, IpAddr);

fn pair(flow: &FlowKey) -> Pair {
    (flow.low.0, flow.high.0)
}

/// The pairs of hosts in a trace that exchange fragments.
///
/// A later fragment has no ports, so it says no more than its pair; an identification may be used again, and a first fragment
/// may be missing or late. So all that such a pair exchanges counts as one flow.
#[derive(Debug)]
pub(crate) struct Fragmented(HashSet<Pair>);

impl Fragmented {
    pub fn of(trace: &Trace) -> Self {
        let of_packet = |packet| {
            let frame = trace.original(packet);
            let ip = view::network(frame)?;
            ip.fragment?;
            Some(pair(&FlowKey::of_ip(frame, &ip)))
        };
        Self((0..trace.packets().len()).filter_map(of_packet).collect())
    }

    /// A hash of a flow, the same for all that must stay together.
    pub fn hash(&self, flow: &FlowKey, seed: u64) -> u64 {
        hash(flow, self.0.contains(&pair(flow)), seed)
    }
}

/// Of each packet a hash of its innermost flow; `None` if it is no IP.
pub(crate) fn hashes(trace: &Trace, seed: u64) -> Vec<Option<u64>> {
    let fragmented = Fragmented::of(trace);
    let of_packet = |packet| {
        let frame = trace.original(packet);
        let outer = concerned(frame, &view::network(frame)?);
        // Fragments of a tunnel do not say which inner flow they carry.
        let whole = !fragmented.0.contains(&pair(&outer));
        let inner = whole.then(|| innermost(frame)).flatten();
        let flow = inner.map_or(outer, |ip| concerned(frame, &ip));
        Some(fragmented.hash(&flow, seed))
    };
    (0..trace.packets().len()).map(of_packet).collect()
}

/// The flow that a packet is about: of an ICMP error the one that it quotes, as far as it can be read.
fn concerned(frame: &[u8], ip: &Ip) -> FlowKey {
    let own = FlowKey::of_ip(frame, ip);
    if ip.fragment.is_some() {
        return own;
    }
    let quoted = view::quoted_datagram(frame, ip).and_then(|at| view::ip_at(frame, at));
    quoted.map_or(own, |quoted| FlowKey::of_ip(frame, &quoted))
}

fn hash(flow: &FlowKey, addresses_only: bool, seed: u64) -> u64 {
    let halves = |address: IpAddr| match address {
        IpAddr::V4(v4) => [u64::from(v4.to_bits()), 4],
        IpAddr::V6(v6) => {
            let [high, low] = [v6.to_bits() >> 64, v6.to_bits() & u128::from(u64::MAX)];
            // Both fit by construction.
            [high, low].map(|half| u64::try_from(half).unwrap_or(0))
        }
    };
    let ports = u64::from(flow.low.1) << 32 | u64::from(flow.high.1) << 8;
    let flow_words = if addresses_only {
        0
    } else {
        ports | u64::from(flow.protocol)
    };
    let [a, b] = halves(flow.low.0);
    let [c, d] = halves(flow.high.0);
    let words = [a, b, c, d, flow_words];
    words
        .into_iter()
        .fold(seed, |hash, word| mixed(hash ^ word))
}
