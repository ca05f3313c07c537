//! Which port sends which packet.

use nodrop_wire::flow::FlowKey;

use crate::flows::Fragmented;
use crate::schedule::{Plan, Slot};
use crate::trace::Trace;

/// How the packets of a trace and its replicas go to several ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    ports: u32,
    /// `None` if every port sends everything.
    lanes: Option<Vec<Lane>>,
}

/// A hash of the flow of a packet; the last bit says that its replicas are flows of their own, which may leave by other ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lane(u32);

impl Spread {
    /// Every port sends everything.
    #[must_use]
    pub fn copied() -> Self {
        Self {
            ports: 1,
            lanes: None,
        }
    }

    /// Each flow leaves by one port, in both directions. Hosts that exchange fragments, which have no ports to know flows by
    /// by, are one flow; what is no IP leaves by the first port.
    #[must_use]
    pub fn by_flow(trace: &Trace, ports: u32) -> Self {
        if ports < 2 {
            return Self::copied();
        }
        let mut buffer = trace.buffer();
        let fragmented = Fragmented::of(trace);
        let lanes = (0..trace.packets().len()).map(|packet| {
            let flow = FlowKey::of_frame(trace.original(packet))?;
            let moves = FlowKey::of_frame(trace.of_last_copy(packet, &mut buffer)) != Some(flow);
            // The upper half of 64 bits.
            let hash = u32::try_from(fragmented.hash(&flow, 0) >> 32).unwrap_or(0);
            Some(Lane(hash & !1 | u32::from(moves)))
        });
        Self {
            ports,
            lanes: Some(lanes.map(|lane| lane.unwrap_or(Lane(0))).collect()),
        }
    }

    /// What one of the ports sends.
    #[must_use]
    pub fn share(&self, port: u32) -> Share<'_> {
        Share { spread: self, port }
    }
}

/// What one port sends.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    spread: &'a Spread,
    port: u32,
}

impl Share<'_> {
    /// Whether this port sends it.
    #[must_use]
    pub fn has(&self, slot: &Slot) -> bool {
        let lanes = self.spread.lanes.as_ref();
        lanes.is_none_or(|lanes| self.is_on(lanes[slot.packet], slot.replica))
    }

    /// Packets of a plan that this port sends.
    #[must_use]
    pub fn intended_packets(&self, plan: &Plan) -> u64 {
        let Some(lanes) = &self.spread.lanes else {
            return plan.intended_packets();
        };
        let of_replica = |replica| {
            let is_mine = |packet: usize| u64::from(self.is_on(lanes[packet], replica));
            plan.sum_of(replica, is_mine)
        };
        (0..plan.replicas()).map(of_replica).sum()
    }

    fn is_on(&self, Lane(lane): Lane, replica: u32) -> bool {
        let turned = if lane & 1 == 1 { replica } else { 0 };
        (u64::from(lane >> 1) + u64::from(turned)) % u64::from(self.spread.ports)
            == u64::from(self.port)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::Load;
    use crate::replica_count::Replicas;
    use crate::request::Request;
    use crate::trace::tests::number_copies;
    use nodrop_wire::pcap;

    /// UDP between 10.0.0.`from` and 10.0.0.`to` with these ports; a later fragment if `fragment` is not zero.
    fn udp(from: u8, to: u8, ports: [u16; 2], fragment: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, fragment, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, from, 10, 0, 0, to]);
        ports
            .iter()
            .for_each(|port| frame.extend(port.to_be_bytes()));
        frame.extend([0, 8, 0, 0]);
        frame
    }

    fn trace(frames: &[Vec<u8>]) -> Trace {
        let mut bytes = pcap::file_header().to_vec();
        for (number, frame) in (0..).zip(frames) {
            let length = u32::try_from(frame.len()).unwrap();
            bytes.extend(pcap::record_header(number, length, length));
            bytes.extend(frame);
        }
        Trace::new(bytes, false).unwrap()
    }

    fn plan(trace: &Trace, replicas: u32, limit_ns: Option<u64>) -> Plan {
        plan_of(trace, Replicas::whole(replicas), limit_ns)
    }

    fn plan_of(trace: &Trace, replicas: Replicas, limit_ns: Option<u64>) -> Plan {
        let request = Request {
            load: Load::Rate { pps: 1e9, burst: 1 },
            loops: 3,
            replicas,
            duration_ns: limit_ns,
            pass_ns: None,
            offsets_from: None,
            distinct_loops: false,
        };
        Plan::new(trace, &request).unwrap()
    }

    /// The port of each slot of a plan: exactly one.
    fn ports_of(spread: &Spread, trace: &Trace, plan: &Plan) -> Vec<u32> {
        plan.slots(trace)
            .map(|slot| {
                let takers: Vec<u32> = (0..spread.ports)
                    .filter(|port| spread.share(*port).has(&slot))
                    .collect();
                assert_eq!(takers.len(), 1, "{slot:?}");
                takers[0]
            })
            .collect()
    }

    #[test]
    fn shares_add_up_for_any_plan() {
        let frames: Vec<Vec<u8>> = (0..40).map(|n| udp(n, 200, [1, 2], 0)).collect();
        for multiplier in [1.0, 3.0, 0.4, 2.7] {
            let mut trace = trace(&frames);
            let replicas = Replicas::of(multiplier, 1).unwrap();
            number_copies(&mut trace, replicas.count());
            let spread = Spread::by_flow(&trace, 3);
            for limit in [None, Some(1), Some(77), Some(130)] {
                let plan = plan_of(&trace, replicas, limit);
                let ports = ports_of(&spread, &trace, &plan);
                for port in 0..3 {
                    let sent = ports.iter().filter(|of| **of == port).count() as u64;
                    assert_eq!(spread.share(port).intended_packets(&plan), sent);
                    let is_even = sent > ports.len() as u64 / 5;
                    assert!(limit.is_some() || is_even || multiplier < 1.0, "{port}");
                }
            }
        }
    }

    #[test]
    fn both_directions_and_all_fragments_leave_by_one_port() {
        let mut frames = Vec::new();
        for host in 0..30 {
            frames.push(udp(host, 100, [5, 53], 0));
            frames.push(udp(100, host, [53, 5], 0));
            frames.push(udp(host, 101, [6, 54], 0x20));
            frames.push(udp(host, 101, [0, 0], 1));
        }
        let trace = trace(&frames);
        let spread = Spread::by_flow(&trace, 2);
        let ports = ports_of(&spread, &trace, &plan(&trace, 1, Some(120)));
        assert!(ports.chunks(2).all(|two| two[0] == two[1]), "{ports:?}");
        assert!(ports.contains(&0) && ports.contains(&1));
    }

    #[test]
    fn replicas_of_one_flow_go_round_the_ports_if_they_are_flows_of_their_own() {
        let mut distinct = trace(&[udp(1, 2, [3, 4], 0)]);
        let same = Spread::by_flow(&distinct, 2);
        assert_eq!(
            ports_of(&same, &distinct, &plan(&distinct, 4, Some(4))).len(),
            4
        );
        let ports = ports_of(&same, &distinct, &plan(&distinct, 4, Some(4)));
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
        number_copies(&mut distinct, 4);
        let spread = Spread::by_flow(&distinct, 2);
        let ports = ports_of(&spread, &distinct, &plan(&distinct, 4, Some(4)));
        assert_eq!(ports.iter().sum::<u32>(), 2, "{ports:?}");
    }

    #[test]
    fn a_copy_is_everything_and_what_is_no_ip_leaves_by_the_first() {
        let trace = trace(&[vec![1; 30], vec![2; 30]]);
        let plan = plan(&trace, 1, None);
        let copied = Spread::copied();
        assert!(plan.slots(&trace).all(|slot| copied.share(1).has(&slot)));
        assert_eq!(copied.share(1).intended_packets(&plan), 6);
        let spread = Spread::by_flow(&trace, 2);
        assert_eq!(ports_of(&spread, &trace, &plan), [0; 6]);
    }
}
