//! Where a frame is to go when the stream is split: a destination address by its flow, or by its replica.

use std::hash::{Hash, Hasher};

use nodrop_wire::flow::FlowKey;
use nodrop_wire::view;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// 2^64 divided by the golden ratio: spreads what differs in low bits over the high ones.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Addresses to share a trace's flows or its replicas among.
#[derive(Debug)]
pub(crate) struct Ways {
    macs: Vec<Mac>,
    /// Each packet's; None if replicas are shared, whole.
    flows: Option<Vec<u64>>,
}

impl Ways {
    /// For flows. None if there is nothing to choose from.
    pub(crate) fn of_flows<'a>(
        macs: Vec<Mac>,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        (!macs.is_empty()).then(|| Self {
            flows: Some(frames.map(flow_hash).collect()),
            macs,
        })
    }

    /// For replicas. None if there is nothing to choose from.
    pub(crate) fn of_replicas(macs: Vec<Mac>) -> Option<Self> {
        (!macs.is_empty()).then_some(Self { macs, flows: None })
    }

    /// Writes the way of a packet over its destination address. `rewritten`: its replica has flows of its own.
    pub(crate) fn lead(&self, packet: usize, replica: u32, rewritten: bool, frame: &mut [u8]) {
        let way = match &self.flows {
            None => replica as usize % self.macs.len(),
            Some(flows) => {
                let own = if rewritten { replica } else { 0 };
                let flow = (flows[packet] ^ u64::from(own)).wrapping_mul(SPREAD);
                // The high half times their number, shifted back: an even share without a division.
                (((flow >> 32) * self.macs.len() as u64) >> 32) as usize
            }
        };
        if let Some(destination) = frame.first_chunk_mut::<6>() {
            destination.copy_from_slice(&self.macs[way]);
        }
    }
}

/// The same for both directions and, as fragments go by their addresses alone, for all fragments of a datagram: what nft's
/// symhash does too. What is no IP goes by its pair of Ethernet addresses.
fn flow_hash(frame: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    if let Some(ip) = view::network(frame) {
        let mut flow = FlowKey::of_ip(frame, &ip);
        if ip.fragment.is_some() {
            (flow.low.1, flow.high.1) = (0, 0);
        }
        flow.hash(&mut hash);
    } else if let Some((to, from)) = frame.first_chunk::<12>().map(|both| both.split_at(6)) {
        (to.min(from), to.max(from)).hash(&mut hash);
    }
    hash.finish()
}

/// FNV-1a: the standard library's hash may differ between releases, and the same flow shall go the same way in every build.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn udp(source: u8, destination: u8, ports: [u8; 4], flags: u16) -> Vec<u8> {
        let mut frame = [[2; 12].as_slice(), &[0x08, 0x00, 0x45, 0, 0, 28, 0, 1]].concat();
        frame.extend(flags.to_be_bytes());
        frame.extend([64, 17, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
        frame.extend([ports.as_slice(), &[0, 8, 0, 0]].concat());
        frame
    }

    fn way(frame: &[u8], replica: u32, ways: u8) -> u8 {
        let macs = (0..ways).map(|way| [way; 6]).collect();
        let mut sent = frame.to_vec();
        let ways = Ways::of_flows(macs, std::iter::once(frame));
        ways.into_iter()
            .for_each(|ways| ways.lead(0, replica, true, &mut sent));
        assert_eq!(sent.get(6..), frame.get(6..), "nothing else is touched");
        sent.first().copied().unwrap_or(u8::MAX)
    }

    #[test]
    fn both_directions_go_one_way() {
        for host in 0..=255 {
            let (there, back) = (
                udp(host, 77, [1, 2, 3, 4], 0),
                udp(77, host, [3, 4, 1, 2], 0),
            );
            assert_eq!(way(&there, 0, 5), way(&back, 0, 5));
        }
    }

    #[test]
    fn all_fragments_go_one_way() {
        let more = 0x2000;
        for port in 0..=255 {
            let (first, later) = (udp(1, 2, [port; 4], more), udp(1, 2, [9; 4], 1));
            assert_eq!(way(&first, 0, 7), way(&later, 0, 7));
        }
    }

    #[test]
    fn flows_and_their_replicas_are_spread() {
        let shares = |way_of: &dyn Fn(u8) -> u8| {
            let mut shares = [0; 4];
            (0..=255).for_each(|n| shares[usize::from(way_of(n))] += 1);
            shares
        };
        let by_host = shares(&|host| way(&udp(host, 77, [1, 2, 3, 4], 0), 0, 4));
        let by_replica = shares(&|n| way(&udp(1, 2, [1, 2, 3, 4], 0), u32::from(n), 4));
        // 64 each on average; a hash that spread badly would be far outside.
        for shares in [by_host, by_replica] {
            assert!(shares.iter().all(|n| (32..=96).contains(n)), "{shares:?}");
        }
    }

    #[test]
    fn replicas_go_whole_and_in_turn() {
        let macs = (0..3).map(|way| [way; 6]).collect();
        let ways = Ways::of_replicas(macs).unwrap();
        for (replica, rewritten) in (0..9).flat_map(|n| [(n, false), (n, true)]) {
            for packet in 0..4 {
                let mut sent = udp(1, 2, [packet; 4], 0);
                ways.lead(usize::from(packet), replica, rewritten, &mut sent);
                assert_eq!(u32::from(sent[0]), replica % 3, "replica {replica}");
            }
        }
        assert!(Ways::of_replicas(Vec::new()).is_none());
    }

    #[test]
    fn what_is_no_ip_goes_by_its_addresses() {
        let arp = |to: u8, from: u8| [[to; 6].as_slice(), &[from; 6], &[8, 6, 0, 1]].concat();
        assert_eq!(way(&arp(1, 3), 0, 9), way(&arp(3, 1), 0, 9));
        assert_eq!(way(&[7; 5], 0, 9), 7, "too short to have an address");
    }
}
