//! Synthetic traces: complete conversations in a set mix, the same bytes for the same profile and seed.

mod bulk;
mod datagrams;
mod frame;
mod names;
mod packets;
mod profile;
mod rng;
pub mod rules;
mod tcp;
mod tempo;
mod text_protocols;
mod web;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use serde::Serialize;

use bulk::Budget;
use frame::{Mac, Way};
pub use packets::Packets;
pub use profile::{Kind, Profile};
use rng::Rng;
use rules::{Rule, Skipped};
use tcp::{Path, Side, Tcp};
use tempo::Tempo;

const GATEWAY: Mac = [0x02, 0, 0x5e, 0, 0, 1];
const SWITCH: Mac = [0x02, 0, 0x5e, 0, 0, 2];
const CLIENTS: u64 = 400;
const SERVERS: u64 = 3_000;
const MICROSECOND_NS: u64 = 1_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// Flows planted for each rule.
const FLOWS_PER_RULE: u64 = 3;
/// Server port of planted flows where the rule names none.
const ANY_PORT: u16 = 4_444;
const SECOND_NS: u64 = 1_000_000_000;

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
    /// Rules whose contents also occur in other traffic: they may fire more often.
    pub alerts_uncertain: Vec<u64>,
    /// Rules for which nothing was planted.
    pub rules_skipped: Vec<Skipped>,
}

/// Makes the trace of a profile, with flows that fire the rules.
#[must_use]
pub fn make(profile: &Profile, seed: u64, rules: &[Rule]) -> (Packets, Made) {
    let mut maker = Maker::new(profile, seed);
    maker.neighbours();
    let bulk_flows = (profile.flows * profile.bulk_pct / 100).max(1);
    for flow in 0..profile.flows - bulk_flows {
        maker.conversation(flow);
    }
    let planted = maker.plant(rules);
    maker.fill(bulk_flows);
    maker.expect_alerts(rules, planted);
    maker.finish()
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
    fn new(profile: &'a Profile, seed: u64) -> Self {
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
            out: Packets::default(),
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
                    let asker = (client_mac(client), client_v4(client));
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
        let path = self.path(&mut rng, flow, kind);
        let from = self.out.len();
        let (retransmitted, reordered) = speak(&mut self.out, &mut rng, kind, path, self.profile);
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

    /// Both ends of the flow; client and port together are of this flow alone.
    #[allow(clippy::cast_possible_truncation)] // below 2^16 by the remainder
    fn path(&self, rng: &mut Rng, flow: u64, kind: Kind) -> Path {
        let client = flow % CLIENTS;
        let port = 20_000 + (flow / CLIENTS % 45_000) as u16;
        let server = SERVERS - rng.pareto(1, SERVERS, 0.6);
        let is_ipv4_only = matches!(kind, Kind::Ping | Kind::Fragmented | Kind::Incomplete);
        let (near, far): (IpAddr, IpAddr) = if !is_ipv4_only && rng.chance(self.profile.ipv6_ratio)
        {
            (host_v6(0, client).into(), host_v6(1, server).into())
        } else {
            (client_v4(client).into(), server_v4(server).into())
        };
        let tags = if rng.chance(self.profile.tagged_ratio[1]) {
            vec![(0x88a8, 200), (0x8100, 30)]
        } else if rng.chance(self.profile.tagged_ratio[0]) {
            vec![(0x8100, 100)]
        } else {
            vec![]
        };
        // No frame is longer than 1514 bytes, tags included: any port takes them.
        let ip_bytes = if near.is_ipv4() { 20 } else { 40 };
        let mss = 1_500 - 20 - ip_bytes - 4 * tags.len() as u16;
        let away = Way {
            source_mac: client_mac(client),
            destination_mac: GATEWAY,
            tags: tags.clone(),
            source: near,
            destination: far,
            ttl: 64,
        };
        let back = Way {
            source_mac: GATEWAY,
            destination_mac: client_mac(client),
            tags,
            source: far,
            destination: near,
            ttl: rng.pick(&[64, 128, 255]) - rng.between(4, 18) as u8,
        };
        Path {
            ways: [away, back],
            ports: [port, kind.port()],
            rtt_ns: rng.pareto(2 * MILLISECOND_NS, 180 * MILLISECOND_NS, 1.0),
            gap_ns: rng.between(13 * MICROSECOND_NS, 130 * MICROSECOND_NS),
            mss,
            segments_per_ack: 2,
            loss_ratio: self.profile.disturbance_ratio[0],
            reorder_ratio: self.profile.disturbance_ratio[1],
        }
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
        let mut path = self.path(&mut rng, flow, Kind::Idle);
        path.ports[1] = *rng.pick(&[5_001, 5_201]);
        path.segments_per_ack = self.profile.segments_per_ack;
        let (retransmitted, reordered) = bulk::transfer(&mut self.out, rng, path, budget);
        self.made.retransmitted_segments += retransmitted;
        self.made.reordered_segments += reordered;
        *self.made.conversations.entry("bulk").or_default() += 1;
    }

    /// Flows that fire each rule; the range of their packets.
    fn plant(&mut self, rules: &[Rule]) -> Range<usize> {
        let begin = self.out.len();
        for (index, rule) in rules.iter().enumerate() {
            for copy in 0..FLOWS_PER_RULE {
                let flow = self.profile.flows + index as u64 * FLOWS_PER_RULE + copy;
                let mut rng = Rng::new(self.seed, flow + 1);
                let mut path = self.path(&mut rng, flow, Kind::Ping);
                path.ports[1] = rule.server_port.unwrap_or(ANY_PORT);
                if rule.is_client_outside() {
                    for way in &mut path.ways {
                        std::mem::swap(&mut way.source, &mut way.destination);
                    }
                }
                let from = self.out.len();
                attack(&mut self.out, rng.clone(), &path, rule);
                self.place(from, &mut rng);
            }
        }
        begin..self.out.len()
    }

    fn expect_alerts(&mut self, rules: &[Rule], planted: Range<usize>) {
        for rule in rules {
            let fired = rules.iter().filter(|other| rule.fires_on(other)).count() as u64;
            self.made.alerts.insert(rule.sid, fired * FLOWS_PER_RULE);
            let occurs = |frame: &[u8]| rule.contents.iter().all(|content| content.is_in(frame));
            if self.out.frames_outside(&planted).any(occurs) {
                self.made.alerts_uncertain.push(rule.sid);
            }
        }
    }

    fn finish(mut self) -> (Packets, Made) {
        self.made.packets = self.out.len() as u64;
        self.made.frame_bytes = self.out.frame_bytes();
        self.made.duration_ns = self.out.duration_ns(0);
        (self.out, self.made)
    }
}

/// One conversation from its own time zero; the segments sent again and reordered.
fn speak(
    out: &mut Packets,
    rng: &mut Rng,
    kind: Kind,
    path: Path,
    profile: &Profile,
) -> (u64, u64) {
    match kind {
        Kind::Dns => datagrams::dns(out, rng, &path),
        Kind::Ntp => datagrams::ntp(out, rng, &path),
        Kind::Ping => datagrams::ping(out, rng, &path),
        Kind::Fragmented => datagrams::fragmented(out, rng, &path, false),
        Kind::Incomplete => datagrams::fragmented(out, rng, &path, true),
        Kind::QuicLike => {
            let bytes = rng.pareto(
                profile.sizes.body_low,
                profile.sizes.body_high,
                profile.sizes.alpha,
            );
            datagrams::quic_like(out, rng, &path, bytes);
        }
        _ => return speak_tcp(Tcp::open(out, rng.clone(), path), kind, profile),
    }
    (0, 0)
}

fn speak_tcp(mut tcp: Tcp<'_>, kind: Kind, profile: &Profile) -> (u64, u64) {
    match kind {
        Kind::Http => web::http(&mut tcp, profile.sizes),
        Kind::Tls => web::tls(&mut tcp, profile.sizes),
        Kind::Smtp => text_protocols::smtp(&mut tcp),
        Kind::Ssh => text_protocols::ssh(&mut tcp),
        _ => idle(&mut tcp),
    }
    if kind != Kind::Smtp && tcp.rng().chance(0.08) {
        tcp.reset(Side::Client)
    } else {
        let side = *tcp.rng().pick(&[Side::Client, Side::Server]);
        tcp.close(side)
    }
}

/// One message that a rule is about, and an answer.
fn attack(out: &mut Packets, mut rng: Rng, path: &Path, rule: &Rule) {
    let side = if rule.is_from_server() {
        Side::Server
    } else {
        Side::Client
    };
    if rule.is_udp {
        return datagrams::message(out, &mut rng, path, side, &rule.payload());
    }
    let mut tcp = Tcp::open(out, rng, path.clone());
    tcp.send(Side::Client, b"hello\n");
    tcp.send(Side::Server, b"ready\n");
    tcp.send(side, &rule.payload());
    tcp.close(Side::Client);
}

/// A greeting, then a keep-alive every few seconds.
fn idle(tcp: &mut Tcp<'_>) {
    tcp.send(Side::Client, b"HELLO idle\n");
    tcp.send(Side::Server, b"READY\n");
    for _ in 0..tcp.rng().between(2, 9) {
        let quiet = tcp.rng().between(500, 15_000);
        tcp.pause(quiet * MILLISECOND_NS);
        tcp.keep_alive();
    }
}

#[allow(clippy::cast_possible_truncation)] // a byte each
fn client_mac(client: u64) -> Mac {
    [0x02, 0, 0x0a, 20, (client >> 8) as u8, client as u8]
}

#[allow(clippy::cast_possible_truncation)] // a byte each
fn client_v4(client: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 20, (client / 250) as u8, (client % 250) as u8 + 1)
}

/// From the addresses set aside for benchmarks (RFC 2544): they are nobody's.
#[allow(clippy::cast_possible_truncation)] // a byte each
fn server_v4(server: u64) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, (server / 250) as u8, (server % 250) as u8 + 1)
}

/// From the addresses set aside for documentation (RFC 3849).
#[allow(clippy::cast_possible_truncation)] // below 2^16
fn host_v6(network: u16, host: u64) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, host as u16 + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use nodrop_wire::capture::Reader;
    use nodrop_wire::flow::FlowKey;
    use nodrop_wire::view;

    use super::*;

    fn written(name: &str, packets: u64, seed: u64) -> Vec<u8> {
        let (packets, _) = make(&Profile::named(name).unwrap().scaled(packets), seed, &[]);
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
