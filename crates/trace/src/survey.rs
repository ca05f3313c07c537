//! Collects the facts of a trace in one pass over the file.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use nodrop_wire::flow::FlowKey;
use nodrop_wire::record::Record;
use nodrop_wire::tunnel::{innermost, innermost_of};
use nodrop_wire::view::{self, Ip, ethertype, protocol};

use crate::checksums::Checksums;
use crate::frag::{Defrag, Untouched, classify};
use crate::info::{
    Backwards, BadRecord, FlowSizes, Gap, Info, NoHandler, Rate, Share, UntouchedFragments,
};
use crate::peak::Peaks;
use crate::reassembly::{Limits, Reassembly};
use crate::tally::{Tally, sums};
use crate::tap::{Protocol, tap_view};
use crate::window::BusiestSecond;

/// Longest frame of an Ethernet port with an MTU of 1500.
const LONGEST_USUAL_FRAME_BYTES: usize = 1_514;
const SECOND_NS: u64 = 1_000_000_000;

/// Is shown packet after packet.
#[derive(Debug)]
pub struct Surveyor {
    total: Share,
    original_bytes: u64,
    cut_packets: u64,
    fcs_packets: u64,
    beyond_wire_packets: u64,
    odd_fraction_packets: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    peaks: Peaks,
    second: BusiestSecond,
    sizes: [u64; SIZES.len()],
    shortest: usize,
    longest: usize,
    longer_than_usual: u64,
    ip: Box<[[Share; 256]; 2]>,
    others: BTreeMap<Protocol, Share>,
    vlan_packets: [u64; 2],
    /// Packets of each outermost flow: those that are no tunnel's, and those that are.
    plain: Tally,
    tunnels: Tally,
    /// Innermost flows of the tunnels.
    tunnelled: Tally,
    /// Hashes of all frames.
    frames: Vec<u64>,
    hasher: FixedState,
    backwards: Backwards,
    longest_gap: Gap,
    checksums: Checksums,
    unhandled: BTreeMap<(bool, Protocol), u64>,
    never_at_tap: u64,
    reassembly: Reassembly,
    untouched: UntouchedFragments,
}

const SIZES: [(usize, &str); 8] = [
    (64, "0064"),
    (127, "0127"),
    (255, "0255"),
    (511, "0511"),
    (1_023, "1023"),
    (LONGEST_USUAL_FRAME_BYTES, "1514"),
    (9_014, "9014"),
    (usize::MAX, "longer"),
];

impl Default for Surveyor {
    fn default() -> Self {
        Self::new(1.0)
    }
}

impl Surveyor {
    /// Nothing seen yet; of a trace that is to be sent so many times as fast as it was captured.
    #[must_use]
    pub fn new(speed: f64) -> Self {
        Self {
            total: Share::default(),
            original_bytes: 0,
            cut_packets: 0,
            fcs_packets: 0,
            beyond_wire_packets: 0,
            odd_fraction_packets: 0,
            first_ns: None,
            last_ns: 0,
            peaks: Peaks::new(speed),
            second: BusiestSecond::default(),
            sizes: [0; SIZES.len()],
            shortest: usize::MAX,
            longest: 0,
            longer_than_usual: 0,
            ip: Box::new([[Share::default(); 256]; 2]),
            others: BTreeMap::new(),
            vlan_packets: [0; 2],
            plain: Tally::default(),
            tunnels: Tally::default(),
            tunnelled: Tally::default(),
            frames: Vec::new(),
            hasher: FixedState::default(),
            backwards: Backwards::default(),
            longest_gap: Gap::default(),
            checksums: Checksums::default(),
            unhandled: BTreeMap::new(),
            never_at_tap: 0,
            reassembly: Reassembly::new(Limits::default()),
            untouched: UntouchedFragments::default(),
        }
    }

    /// Looks at the next packet of the file.
    pub fn add(&mut self, record: &Record<'_>) {
        let frame = record.frame;
        self.total.add(frame);
        self.original_bytes += u64::from(record.original_bytes);
        let wire = record.original_bytes as usize;
        self.cut_packets += u64::from(wire > frame.len());
        self.fcs_packets += u64::from(record.has_fcs());
        self.beyond_wire_packets += u64::from(record.is_beyond_wire());
        self.odd_fraction_packets += u64::from(record.source.odd_fraction);
        self.add_time(record.timestamp_ns, frame);
        self.add_size(frame.len());
        self.frames.push(self.hasher.hash_one(frame));
        self.add_tap(frame);
        self.add_network(frame);
        self.add_fragment(record.timestamp_ns, frame);
    }

    fn add_time(&mut self, now_ns: u64, frame: &[u8]) {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        if now_ns < self.last_ns {
            self.backwards.packets += 1;
            self.backwards.max_ns = self.backwards.max_ns.max(self.last_ns - now_ns);
        }
        let latest_ns = self.last_ns.max(first_ns);
        if now_ns.saturating_sub(latest_ns) > self.longest_gap.ns {
            self.longest_gap = Gap {
                ns: now_ns - latest_ns,
                after_packet: self.total.packets - 1, // this one is counted already
            };
        }
        self.last_ns = self.last_ns.max(now_ns);
        self.peaks.add(self.last_ns);
        self.second.add(self.last_ns, frame.len() as u64);
    }

    fn add_size(&mut self, bytes: usize) {
        let class = SIZES.iter().position(|(end, _)| bytes <= *end);
        self.sizes[class.unwrap_or(SIZES.len() - 1)] += 1;
        self.shortest = self.shortest.min(bytes);
        self.longest = self.longest.max(bytes);
        self.longer_than_usual += u64::from(bytes > LONGEST_USUAL_FRAME_BYTES);
    }

    fn add_tap(&mut self, frame: &[u8]) {
        match tap_view(frame) {
            None => self.never_at_tap += 1,
            Some(view) if view.protocol.has_handler() => {}
            Some(view) => {
                *self
                    .unhandled
                    .entry((view.tagged, view.protocol))
                    .or_default() += 1;
            }
        }
    }

    fn add_network(&mut self, frame: &[u8]) {
        let Some(link) = view::link(frame) else {
            let kind = self.others.entry(Protocol::EtherType(0)).or_default();
            return kind.add(frame);
        };
        match link.tags {
            0 => {}
            1 => self.vlan_packets[0] += 1,
            _ => self.vlan_packets[1] += 1,
        }
        let ip = match link.ethertype {
            ethertype::IPV4 => view::ipv4_at(frame, link.offset),
            ethertype::IPV6 => view::ipv6_at(frame, link.offset),
            _ => None,
        };
        let Some(ip) = ip else {
            // A pseudowire, a provider's backbone: the kernel sees no flow in it, an IDS does.
            self.add_pseudowire(frame);
            let rest = frame.get(link.offset..).unwrap_or_default();
            let kind = Protocol::of_field(link.ethertype, rest);
            return self.others.entry(kind).or_default().add(frame);
        };
        self.ip[usize::from(ip.source.is_ipv6())][usize::from(ip.protocol)].add(frame);
        if ip.has_transport_header() {
            let flow = |ip| self.hasher.hash_one(FlowKey::of_ip(frame, ip));
            match innermost_of(frame, &ip) {
                None => self.plain.add(flow(&ip)),
                Some(inner) => {
                    self.tunnels.add(flow(&ip));
                    if inner.has_transport_header() {
                        self.tunnelled.add(flow(&inner));
                    }
                }
            }
        }
        self.checksums.add(frame, &ip);
    }

    fn add_pseudowire(&mut self, frame: &[u8]) {
        if let Some(inner) = innermost(frame).filter(Ip::has_transport_header) {
            let flow = FlowKey::of_ip(frame, &inner);
            self.tunnelled.add(self.hasher.hash_one(flow));
        }
    }

    fn add_fragment(&mut self, now_ns: u64, frame: &[u8]) {
        let count = match classify(frame) {
            Defrag::Whole => return,
            Defrag::Taken(fragment) => return self.reassembly.offer(now_ns, &fragment),
            Defrag::Untouched(Untouched::CaptureCut) => &mut self.untouched.capture_cut_packets,
            Defrag::Untouched(Untouched::BadHeader) => &mut self.untouched.bad_header_packets,
            Defrag::Untouched(Untouched::SecondTag) => &mut self.untouched.second_tag_packets,
            Defrag::Untouched(Untouched::Ipv6) => &mut self.untouched.ipv6_packets,
        };
        *count += 1;
    }

    /// The facts; `bad_record` says where the file ended early.
    #[must_use]
    pub fn finish(mut self, link_type: u32, bad_record: Option<BadRecord>) -> Info {
        let plain = std::mem::take(&mut self.plain).counts();
        let tunnels = std::mem::take(&mut self.tunnels).counts();
        let tunnelled = std::mem::take(&mut self.tunnelled).counts();
        let flows = sums([&plain[..], &tunnelled].concat()).len();
        let outer = sums([plain, tunnels].concat());
        let duplicate_frames = repeated(std::mem::take(&mut self.frames));
        let duration_ns = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0));
        let peak = self.second.peak;
        let rate = |total, peak| Rate {
            mean: per_second(total, self.total.packets, duration_ns),
            peak,
        };
        Info {
            link_type,
            packets: self.total.packets,
            frame_bytes: self.total.frame_bytes,
            original_bytes: self.original_bytes,
            cut_packets: self.cut_packets,
            fcs_packets: self.fcs_packets,
            beyond_wire_packets: self.beyond_wire_packets,
            odd_fraction_packets: self.odd_fraction_packets,
            given_header_packets: BTreeMap::new(),
            left_out: BTreeMap::new(),
            first_timestamp_ns: self.first_ns,
            last_timestamp_ns: self.first_ns.map(|_| self.last_ns),
            duration_ns,
            packets_per_s: rate(self.total.packets, peak.packets),
            bytes_per_s: rate(self.total.frame_bytes, peak.frame_bytes),
            peak_demand: self.peaks.demand(),
            shortest_frame_bytes: if self.total.packets == 0 {
                0
            } else {
                self.shortest as u64
            },
            longest_frame_bytes: self.longest as u64,
            longer_than_1514_packets: self.longer_than_usual,
            sizes: SIZES
                .iter()
                .zip(self.sizes)
                .map(|((_, name), count)| (*name, count))
                .collect(),
            protocols: self.protocols(),
            vlan_packets: self.vlan_packets,
            flows: flows as u64,
            outer_flows: outer.len() as u64,
            flow_sizes: FlowSizes::of(outer.iter().map(|(_, packets)| *packets)),
            duplicate_frames,
            backwards: self.backwards,
            longest_gap: self.longest_gap,
            checksums: self.checksums,
            no_handler: self.no_handler(),
            fragments_in_pass: self.reassembly.counts(),
            fragments_untouched: self.untouched,
            bad_record,
        }
    }

    fn protocols(&self) -> BTreeMap<String, Share> {
        let of_ip = self
            .ip
            .iter()
            .zip(["ipv4", "ipv6"])
            .flat_map(|(shares, version)| {
                (0..=u8::MAX).zip(shares).map(move |(number, share)| {
                    (format!("{version}/{}", protocol_name(number)), *share)
                })
            });
        let others = self
            .others
            .iter()
            .map(|(kind, share)| (kind.to_string(), *share));
        of_ip
            .chain(others)
            .filter(|(_, share)| share.packets > 0)
            .collect()
    }

    fn no_handler(&self) -> NoHandler {
        let of = |wanted: bool| -> BTreeMap<String, u64> {
            let chosen = self
                .unhandled
                .iter()
                .filter(|((tagged, _), _)| *tagged == wanted);
            chosen
                .map(|((_, kind), count)| (kind.to_string(), *count))
                .collect()
        };
        let (untagged, tagged) = (of(false), of(true));
        let tagged_packets = tagged.values().sum();
        NoHandler {
            packets: untagged.values().sum::<u64>() + tagged_packets,
            tagged_packets,
            untagged,
            tagged,
            never_at_tap_packets: self.never_at_tap,
        }
    }
}

/// How many equal an earlier one.
fn repeated(mut hashes: Vec<u64>) -> u64 {
    hashes.sort_unstable();
    let all = hashes.len();
    hashes.dedup();
    (all - hashes.len()) as u64
}

/// The last packet has its time as well: packets at one a second are one a second.
#[allow(clippy::cast_precision_loss)] // a rate for people
fn per_second(total: u64, packets: u64, duration_ns: u64) -> f64 {
    if duration_ns == 0 {
        return 0.0;
    }
    let all_but_one = (packets - 1) as f64 / packets as f64;
    total as f64 * all_but_one * SECOND_NS as f64 / duration_ns as f64
}

fn protocol_name(number: u8) -> String {
    match number {
        protocol::ICMP => "icmp".into(),
        2 => "igmp".into(),
        protocol::TCP => "tcp".into(),
        protocol::UDP => "udp".into(),
        protocol::GRE => "gre".into(),
        50 => "esp".into(),
        protocol::AH => "ah".into(),
        protocol::ICMPV6 => "icmpv6".into(),
        89 => "ospf".into(),
        protocol::SCTP => "sctp".into(),
        other => other.to_string(),
    }
}
