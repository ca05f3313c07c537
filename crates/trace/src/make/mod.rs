//! Synthetic traces: complete conversations in a set mix, the same bytes for the same profile and seed.

mod bulk;
mod conversation;
mod datagrams;
mod frame;
mod hosts;
mod names;
mod packets;
mod profile;
mod rng;
pub mod rules;
mod tcp;
mod tempo;
mod text_protocols;
mod time;
mod web;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use serde::Serialize;

use bulk::Budget;
use hosts::{CLIENTS, GATEWAY, SWITCH};
pub use packets::{MEMORY_BYTES, Packets};
pub use profile::{Kind, PACKETS, Profile};
pub use rng::Rng;
use rules::{Begins, Rule, Skipped};
use tcp::Path;
use tempo::Tempo;
use time::SECOND_NS;

/// Flows planted for each rule.
const FLOWS_PER_RULE: u64 = 3;
/// Server port of planted flows if the rule names none.
const ANY_PORT: u16 = 4_444;

/// What was put into a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Profile.
    pub profile: String,
    /// Seed.
    pub seed: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes of all frames.
    pub frame_bytes: u64,
    /// From the first packet to the last.
    pub duration_ns: u64,
    /// Conversations of each kind.
    pub conversations: BTreeMap<&'static str, u64>,
    /// TCP segments sent a second time.
    pub retransmitted_segments: u64,
    /// TCP segments that changed places with the next.
    pub reordered_segments: u64,
    /// Alerts that planted flows fire, by signature number.
    pub alerts: BTreeMap<u64, u64>,
    /// Flows that were planted, three for each rule.
    pub planted: Vec<Planted>,
    /// Rules whose contents also occur in other traffic: they may fire more often.
    pub alerts_uncertain: Vec<u64>,
    /// Rules for which nothing was planted.
    pub rules_skipped: Vec<Skipped>,
}

/// A flow that fires a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Planted {
    /// Signature number.
    pub sid: u64,
    /// tcp or udp.
    pub proto: &'static str,
    /// Who opened it.
    pub client: SocketAddr,
    /// The other.
    pub server: SocketAddr,
    /// Its packets in the trace, from 1.
    pub packets: Vec<u64>,
    /// Those without any one of which there is no alert.
    pub decides: Vec<u64>,
    /// Other rules that can be planted and fire on this flow too.
    pub also: Vec<u64>,
}

/// Makes the trace of a profile, with flows that fire the rules; its frames lie in `spool`, an empty file, until they are written.
///
/// # Errors
/// Those of that file.
pub fn make(
    profile: &Profile,
    seed: u64,
    rules: &[Rule],
    spool: File,
) -> io::Result<(Packets, Made)> {
    let mut maker = Maker::new(profile, seed, Packets::new(spool));
    maker.neighbours();
    let bulk_flows = (profile.flows * profile.bulk_pct / 100).max(1);
    for flow in 0..profile.flows - bulk_flows {
        maker.conversation(flow);
    }
    let begin = maker.out.len();
    let mut sown = maker.plant(rules);
    let planted = begin..maker.out.len();
    maker.fill(bulk_flows);
    if !rules.is_empty() {
        maker.expect_alerts(rules, &mut sown, &planted)?;
    }
    Ok(maker.finish(rules, sown))
}

/// A flow that was planted, before the trace is in order.
struct Sown {
    /// Index of its rule.
    which: usize,
    /// Client and server.
    ends: [SocketAddr; 2],
    /// By the order of their making.
    packets: Range<usize>,
    /// Which of its packets the rule cannot do without, from 0.
    decide: Vec<usize>,
    /// Other rules that it fires.
    also: Vec<u64>,
}

fn ends(path: &Path) -> [SocketAddr; 2] {
    let way = &path.ways[0];
    [
        (way.source, path.ports[0]),
        (way.destination, path.ports[1]),
    ]
    .map(SocketAddr::from)
}

struct Maker<'a> {
    profile: &'a Profile,
    seed: u64,
    rng: Rng,
    out: Packets,
    tempo: Tempo,
    made: Made,
}

impl<'a> Maker<'a> {
    fn new(profile: &'a Profile, seed: u64, out: Packets) -> Self {
        let mut rng = Rng::new(seed, 0);
        let total_bytes = profile.packets * profile.mean_frame_bytes;
        let tempo = Tempo::new(
            &mut rng,
            profile.duration_ns,
            total_bytes,
            profile.peak_to_mean,
        );
        let made = Made {
            profile: profile.name.into(),
            seed,
            ..Made::default()
        };
        Self {
            profile,
            seed,
            rng,
            out,
            tempo,
            made,
        }
    }

    /// ARP, LLDP and spanning tree, from the first moment to the last.
    fn neighbours(&mut self) {
        let count = (self.profile.neighbours_per_s * self.profile.duration_ns / SECOND_NS).max(4);
        let tags: &[_] = if self.profile.tagged_ratio[0] > 0.0 {
            &[(0x8100, 100)]
        } else {
            &[]
        };
        for number in 0..count {
            let from = self.out.len();
            match number % 4 {
                0 => datagrams::spanning_tree(&mut self.out, SWITCH),
                1 => datagrams::lldp(&mut self.out, SWITCH, &[]),
                2 => datagrams::lldp(&mut self.out, SWITCH, tags),
                _ => {
                    let client = self.rng.between(0, CLIENTS - 1);
                    let asker = (hosts::client_mac(client), hosts::client_v4(client));
                    datagrams::arp(
                        &mut self.out,
                        asker,
                        (GATEWAY, Ipv4Addr::new(10, 20, 255, 254)),
                    );
                }
            }
            let at = self.profile.duration_ns / count * number;
            self.out.retime(from, |time_ns| at + time_ns);
            self.count_bytes(from);
        }
    }

    fn conversation(&mut self, flow: u64) {
        let mut rng = Rng::new(self.seed, flow + 1);
        let mut kind = self.pick(&mut rng);
        // The rest of the packets belongs to the bulk transfers, which make the sums right.
        let left = self.profile.packets.saturating_sub(self.out.len() as u64);
        if left < self.profile.packets / 8 {
            kind = Kind::Dns;
        }
        let path = hosts::path(self.profile, &mut rng, flow, kind);
        let from = self.out.len();
        let (retransmitted, reordered) =
            conversation::speak(&mut self.out, &mut rng, kind, path, self.profile);
        self.made.retransmitted_segments += retransmitted;
        self.made.reordered_segments += reordered;
        *self.made.conversations.entry(kind.name()).or_default() += 1;
        self.place(from, &mut rng);
    }

    fn pick(&self, rng: &mut Rng) -> Kind {
        let total: f64 = self.profile.mix.iter().map(|(_, share)| share).sum();
        let mut left = rng.unit() * total;
        for (kind, share) in &self.profile.mix {
            left -= share;
            if left < 0.0 {
                return *kind;
            }
        }
        Kind::Dns
    }

    /// Puts a conversation somewhere into the trace, whole: one that lasts too long speaks faster.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )] // nanoseconds of a trace
    fn place(&mut self, from: usize, rng: &mut Rng) {
        let end_ns = self.profile.duration_ns;
        let lasts_ns = self.out.duration_ns(from);
        let speed = (end_ns as f64 * 0.95 / lasts_ns as f64).min(1.0);
        let room_ns = end_ns - (lasts_ns as f64 * speed) as u64;
        let start_ns = rng.between(0, room_ns);
        self.out
            .retime(from, |time_ns| start_ns + (time_ns as f64 * speed) as u64);
        self.count_bytes(from);
    }

    fn count_bytes(&mut self, from: usize) {
        for (time_ns, bytes) in self.out.lengths(from) {
            self.tempo.subtract(time_ns, bytes.into());
        }
    }

    /// Bulk transfers along tracks beside each other: together they are what the others leave of the curve.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    fn fill(&mut self, flows: u64) {
        const FLOWS_PER_TRACK: usize = 6;
        let course = self.tempo.course();
        let weights: Vec<f64> = (0..flows)
            .map(|_| self.rng.pareto(100, 20_000, 1.0) as f64)
            .collect();
        let mut weight_left: f64 = weights.iter().sum();
        for (track, weights) in weights.chunks(FLOWS_PER_TRACK).enumerate() {
            let weight_of_track: f64 = weights.iter().sum();
            let mut begun = 0.0;
            for (index, weight) in weights.iter().enumerate() {
                let flow = self.profile.flows - flows + (track * FLOWS_PER_TRACK + index) as u64;
                let budget = self.left().share(weight / weight_left);
                weight_left -= weight;
                let from = self.out.len();
                self.transfer(flow, budget);
                let phase = self.rng.unit();
                let (begin, span) = (begun / weight_of_track, weight / weight_of_track);
                self.out
                    .retime_bursts(from, phase, |share| course.time_ns(begin + span * share));
                let end_ns = self.profile.duration_ns;
                self.out.retime(from, |time_ns| time_ns.min(end_ns));
                begun += weight;
            }
        }
    }

    fn left(&self) -> Budget {
        let bytes = self.profile.packets * self.profile.mean_frame_bytes;
        Budget {
            packets: self.profile.packets.saturating_sub(self.out.len() as u64),
            bytes: bytes.saturating_sub(self.out.frame_bytes()),
        }
    }

    fn transfer(&mut self, flow: u64, budget: Budget) {
        let mut rng = Rng::new(self.seed, flow + 1);
        let mut path = hosts::path(self.profile, &mut rng, flow, Kind::Idle);
        path.ports[1] = *rng.pick(&[5_001, 5_201]);
        path.segments_per_ack = self.profile.segments_per_ack;
        let (retransmitted, reordered) = bulk::transfer(&mut self.out, rng, path, budget);
        self.made.retransmitted_segments += retransmitted;
        self.made.reordered_segments += reordered;
        *self.made.conversations.entry("bulk").or_default() += 1;
    }

    /// Flows that fire each rule.
    fn plant(&mut self, rules: &[Rule]) -> Vec<Sown> {
        let (mut sown, mut taken) = (Vec::new(), HashSet::new());
        for (which, rule) in rules.iter().enumerate() {
            for copy in 0..FLOWS_PER_RULE {
                let flow = self.profile.flows + which as u64 * FLOWS_PER_RULE + copy;
                let mut paths = (flow..).map(|flow| self.planted_path(rule, flow));
                // Only flows whose client has a port of its rule's can meet.
                let Some((path, mut rng)) = paths.find(|(path, _)| taken.insert(ends(path))) else {
                    continue;
                };
                drop(paths);
                let from = self.out.len();
                let decide = conversation::attack(&mut self.out, rng.clone(), &path, rule);
                let ends = ends(&path);
                self.place(from, &mut rng);
                sown.push(Sown {
                    which,
                    ends,
                    packets: from..self.out.len(),
                    decide,
                    also: Vec::new(),
                });
            }
        }
        sown
    }

    fn planted_path(&self, rule: &Rule, flow: u64) -> (Path, Rng) {
        let mut rng = Rng::new(self.seed, flow + 1);
        let mut path = hosts::path(self.profile, &mut rng, flow, Kind::Ping);
        path.ports[0] = rule.client_port().unwrap_or(path.ports[0]);
        path.ports[1] = rule.server_port().unwrap_or(ANY_PORT);
        (path.loss_ratio, path.reorder_ratio) = (0.0, 0.0);
        if rule.is_client_outside() {
            for way in &mut path.ways {
                std::mem::swap(&mut way.source, &mut way.destination);
            }
        }
        (path, rng)
    }

    fn expect_alerts(
        &mut self,
        rules: &[Rule],
        sown: &mut [Sown],
        planted: &Range<usize>,
    ) -> io::Result<()> {
        let begins = Begins::of(rules);
        let mut fired = vec![0; rules.len()];
        for flow in sown {
            let other = &rules[flow.which];
            let ports = flow.ends.map(|end| end.port());
            for which in begins.found_in(&other.payload()) {
                if rules[which].fires_on(other, ports) {
                    fired[which] += 1;
                    if which != flow.which {
                        flow.also.push(rules[which].sid);
                    }
                }
            }
            flow.also.sort_unstable();
        }
        let mut uncertain = vec![false; rules.len()];
        self.out.frames_outside(planted, |frame| {
            for which in begins.found_in(frame) {
                uncertain[which] = uncertain[which] || rules[which].occurs_in(frame);
            }
        })?;
        for (which, rule) in rules.iter().enumerate() {
            self.made.alerts.insert(rule.sid, fired[which]);
            if uncertain[which] {
                self.made.alerts_uncertain.push(rule.sid);
            }
        }
        Ok(())
    }

    fn finish(mut self, rules: &[Rule], sown: Vec<Sown>) -> (Packets, Made) {
        let made: Vec<usize> = sown.iter().flat_map(|flow| flow.packets.clone()).collect();
        let mut numbers = self.out.sort(&made).into_iter();
        for flow in sown {
            let packets: Vec<u64> = numbers.by_ref().take(flow.packets.len()).collect();
            let rule = &rules[flow.which];
            self.made.planted.push(Planted {
                sid: rule.sid,
                proto: if rule.is_udp { "udp" } else { "tcp" },
                client: flow.ends[0],
                server: flow.ends[1],
                decides: flow.decide.iter().map(|at| packets[*at]).collect(),
                packets,
                also: flow.also,
            });
        }
        self.made.packets = self.out.len() as u64;
        self.made.frame_bytes = self.out.frame_bytes();
        self.made.duration_ns = self.out.duration_ns(0);
        (self.out, self.made)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use nodrop_wire::capture::Reader;
    use nodrop_wire::flow::FlowKey;
    use nodrop_wire::view;

    use super::*;

    fn written(name: &str, packets: u64, seed: u64) -> Vec<u8> {
        let profile = Profile::named(name).unwrap().scaled(packets);
        let (packets, _) = make(&profile, seed, &[], tempfile::tempfile().unwrap()).unwrap();
        let mut file = Vec::new();
        packets.write(&mut file).unwrap();
        file
    }

    #[test]
    fn one_seed_is_one_trace() {
        let demo = written("demo", 3_000, 7);
        assert_eq!(demo, written("demo", 3_000, 7));
        assert_ne!(demo, written("demo", 3_000, 8));
    }

    #[test]
    fn sums_are_those_of_the_profile() {
        for name in Profile::NAMES {
            let profile = Profile::named(name).unwrap().scaled(15_000);
            let file = written(name, 15_000, 1);
            let (mut flows, mut packets, mut bytes, mut times) = (HashSet::new(), 0, 0, Vec::new());
            for record in Reader::new(&file, false).unwrap() {
                let record = record.unwrap();
                packets += 1;
                assert!(record.frame.len() <= 1_514, "{name}: packet {packets}");
                bytes += record.frame.len() as u64;
                times.push(record.timestamp_ns);
                let first = view::network(record.frame).filter(view::Ip::has_transport_header);
                flows.extend(first.map(|ip| FlowKey::of_ip(record.frame, &ip)));
            }
            let within = |what: &str, is: u64, expected: u64| {
                assert!(
                    is.abs_diff(expected) * 100 <= expected,
                    "{name}: {is} {what}, not {expected}"
                );
            };
            within("packets", packets, profile.packets);
            within("bytes", bytes, profile.packets * profile.mean_frame_bytes);
            within("flows", flows.len() as u64, profile.flows);
            within("ns", times[times.len() - 1] - times[0], profile.duration_ns);
            assert!(times.is_sorted(), "{name}");
        }
    }
}
