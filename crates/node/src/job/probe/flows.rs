//! Do both directions of real flows come to one member of a group that deals packets as a program's group does?

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use nodrop_counters::LinkReader;
use nodrop_io::flows::{FlowListeners, KEPT_BYTES, wait};
use nodrop_proto::FlowGroup;
use nodrop_wire::flow::{FlowKey, ports};
use nodrop_wire::view::{network, protocol};
use schemars::JsonSchema;
use serde::Serialize;

use super::namespace::within;
use crate::session::Session;

/// Time over which the rate of a port is read, before a part of its flows is chosen.
const RATE_MS: u64 = 300;
/// Packets a second that are looked at, about.
const PACKETS_PER_S: u64 = 2000;
const MOST_FLOWS: usize = 50_000;
/// Time after which a stop is seen.
const STEP: Duration = Duration::from_millis(100);

/// Flows of a protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "FlowsMet")]
struct Met {
    /// Flows with packets in at least one direction.
    seen: u64,
    /// Flows with packets in both.
    flows: u64,
    /// Those all of whose packets came to one member of the group.
    together: u64,
}

/// Flows per protocol: `tcp4`, `udp6` …
type Dealt = BTreeMap<String, Met>;

/// What came to the groups that were asked for, in their order.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "FlowsSeen")]
pub struct Seen {
    /// `None`: it may not listen, or its port is gone.
    groups: Vec<Option<Dealt>>,
}

/// Listens for `time`.
pub fn listen(groups: &[FlowGroup], time: Duration, session: &Session) -> Seen {
    let before: Vec<_> = groups.iter().map(arrived).collect();
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(RATE_MS));
    let each = groups.iter().zip(before);
    let mut meetings: Vec<_> = each
        .map(|(group, before)| open(group, before?, began.elapsed()))
        .collect();
    for (listeners, flows) in meetings.iter_mut().flatten() {
        flows.take(listeners);
        *flows = Flows::default(); // what came before all of them listened
    }
    let until = Instant::now() + time;
    while meetings.iter().any(Option::is_some) && !session.stopped() {
        let Some(left) = until.checked_duration_since(Instant::now()) else {
            break;
        };
        let listening = meetings.iter().flatten().map(|(listeners, _)| listeners);
        wait(listening, left.min(STEP));
        for (listeners, flows) in meetings.iter_mut().flatten() {
            flows.take(listeners);
        }
    }
    let each = meetings.into_iter();
    let dealt = each.map(|one| one.map(|(_, flows)| flows.dealt()));
    Seen {
        groups: dealt.collect(),
    }
}

/// `passed`: since `before` packets were counted; a busy host wakes late.
fn open(group: &FlowGroup, before: u64, passed: Duration) -> Option<(FlowListeners, Flows)> {
    let came = arrived(group)?.saturating_sub(before);
    let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
    let mask = mask_for(came * 1000 / passed_ms.max(1));
    let FlowGroup {
        port,
        kind,
        members,
        ..
    } = group.clone();
    let opened = within(group.pid, move || {
        FlowListeners::open(&port, kind, members, mask)
    });
    Some((opened.ok()?.ok()?, Flows::default()))
}

/// Packets that the port has received.
fn arrived(group: &FlowGroup) -> Option<u64> {
    let port = group.port.clone();
    let stats = within(group.pid, move || LinkReader::new()?.stats(&port));
    Some(stats.ok()?.ok()?.rx_packets)
}

/// One flow in `mask + 1` is looked at.
fn mask_for(packets_per_s: u64) -> u32 {
    let mut mask = 0;
    while packets_per_s > PACKETS_PER_S * (u64::from(mask) + 1) && mask < 0xffff {
        mask = mask * 2 + 1;
    }
    mask
}

/// Flow → the members that had packets of it, in one direction and in the other.
#[derive(Default)]
struct Flows(HashMap<FlowKey, [BTreeSet<usize>; 2]>);

impl Flows {
    fn take(&mut self, listeners: &FlowListeners) {
        let mut kept = [0; KEPT_BYTES];
        for member in 0..listeners.members() {
            while let Some(frame) = listeners.next(member, &mut kept) {
                self.add(member, frame);
            }
        }
    }

    fn add(&mut self, member: usize, frame: &[u8]) {
        let Some(ip) = network(frame).filter(|ip| ip.fragment.is_none()) else {
            return;
        };
        let Some((port, _)) = ports(frame, &ip) else {
            return;
        };
        let key = FlowKey::of_ip(frame, &ip);
        if self.0.len() < MOST_FLOWS || self.0.contains_key(&key) {
            let forward = (ip.source, port) == key.low;
            let directions = self.0.entry(key).or_default();
            directions[usize::from(forward)].insert(member);
        }
    }

    fn dealt(&self) -> Dealt {
        let mut found = Dealt::new();
        for (key, [back, forth]) in &self.0 {
            let name = match key.protocol {
                protocol::TCP => "tcp",
                _ => "udp",
            };
            let version = if key.low.0.is_ipv4() { 4 } else { 6 };
            let met = found.entry(format!("{name}{version}")).or_default();
            met.seen += 1;
            if !back.is_empty() && !forth.is_empty() {
                met.flows += 1;
                met.together += u64::from(back.union(forth).count() == 1);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(addresses: [u8; 2], ports: [u8; 2], part: u8) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, part, 0, 64, 6, 0, 0]);
        for last in addresses {
            frame.extend([10, 0, 0, last]);
        }
        for last in ports {
            frame.extend([0, last]);
        }
        frame.resize(14 + 40, 0);
        frame
    }

    #[test]
    fn flows_that_meet_and_flows_that_do_not() {
        let mut flows = Flows::default();
        for (member, addresses, ports) in [
            (0, [1, 2], [5, 80]),
            (0, [2, 1], [80, 5]),
            (0, [1, 2], [6, 80]),
            (1, [2, 1], [80, 6]),
            (1, [3, 4], [6, 80]),
        ] {
            flows.add(member, &frame(addresses, ports, 0));
        }
        flows.add(0, &frame([1, 2], [7, 7], 0x20)); // a fragment
        let met = Met {
            seen: 3,
            flows: 2,
            together: 1,
        };
        assert_eq!(flows.dealt(), Dealt::from([("tcp4".to_owned(), met)]));
    }

    #[test]
    fn the_part_that_is_chosen_follows_the_rate() {
        for (rate, mask) in [
            (0, 0),
            (2000, 0),
            (2001, 1),
            (1_000_000, 511),
            (1 << 40, 65535),
        ] {
            assert_eq!(mask_for(rate), mask);
        }
    }
}
