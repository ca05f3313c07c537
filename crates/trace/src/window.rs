//! A stretch of a trace, found while the trace is read, and how much of its traffic began within it.

use std::collections::{HashSet, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use foldhash::fast::FixedState;
use nodrop_wire::flow::FlowKey;
use nodrop_wire::view::{self, protocol};

use crate::info::Share;

const SECOND_NS: u64 = 1_000_000_000;
/// Of a TCP header.
const FLAGS_OFFSET: usize = 13;
const SYN: u8 = 2;

/// Which stretch is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// All of it.
    Whole,
    /// So long from the first packet on.
    First(u64),
    /// The stretch of this length that holds most packets; of two the earlier one.
    Busiest(u64),
    /// From this time after the first packet to that one.
    Between(u64, u64),
}

/// A text that names no stretch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no window: give whole, first:SECONDS, busiest:SECONDS or FROM..TO in seconds")]
pub struct NotAWindow(String);

impl FromStr for Wanted {
    type Err = NotAWindow;

    fn from_str(text: &str) -> Result<Self, NotAWindow> {
        let bad = || NotAWindow(text.into());
        if text == "whole" {
            return Ok(Self::Whole);
        }
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (nanoseconds(from), nanoseconds(to));
            let ends = from.zip(to).filter(|(from, to)| from < to);
            return ends
                .map(|(from, to)| Self::Between(from, to))
                .ok_or_else(bad);
        }
        let (kind, length) = text.split_once(':').ok_or_else(bad)?;
        let length = nanoseconds(length).filter(|length| *length > 0);
        let length = length.ok_or_else(bad)?;
        match kind {
            "first" => Ok(Self::First(length)),
            "busiest" => Ok(Self::Busiest(length)),
            _ => Err(bad()),
        }
    }
}

/// Of a decimal number of seconds, exactly: digits, and at most nine of them after a point.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(rest) || rest.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let rest: u64 = format!("{rest:0<9}").parse().ok()?;
    whole.checked_mul(SECOND_NS)?.checked_add(rest)
}

/// A stretch of time after the first packet: from the first moment on, up to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its packets are due at this time or later.
    pub from_ns: u64,
    /// They are due before this time.
    pub to_ns: u64,
}

impl Span {
    /// Whether a packet of this time belongs to it.
    #[must_use]
    pub fn holds(self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }
}

/// `12..17.000000001`: exact, so that the same packets are found again by it.
impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = |ns: u64| {
            let text = format!("{}.{:09}", ns / SECOND_NS, ns % SECOND_NS);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        write!(f, "{}..{}", text(self.from_ns), text(self.to_ns))
    }
}

/// Is shown the times and lengths of all packets, and says which stretch it is.
#[derive(Debug)]
pub struct Finder {
    wanted: Wanted,
    /// The whole trace.
    pub total: Share,
    last_ns: u64,
    recent: VecDeque<u64>,
    busiest: Option<(usize, u64)>,
    second: BusiestSecond,
}

/// The most packets, and the most bytes, within any second, wherever it begins.
#[derive(Debug, Default)]
pub struct BusiestSecond {
    recent: VecDeque<(u64, u64)>,
    recent_bytes: u64,
    /// Packets of one second, bytes of the same or of another.
    pub peak: Share,
}

impl BusiestSecond {
    /// Looks at the next packet. Times never fall.
    pub fn add(&mut self, at_ns: u64, bytes: u64) {
        self.recent.push_back((at_ns, bytes));
        self.recent_bytes += bytes;
        while let Some((first_ns, bytes)) = self.recent.front().copied()
            && at_ns - first_ns >= SECOND_NS
        {
            self.recent.pop_front();
            self.recent_bytes -= bytes;
        }
        self.peak.packets = self.peak.packets.max(self.recent.len() as u64);
        self.peak.frame_bytes = self.peak.frame_bytes.max(self.recent_bytes);
    }
}

impl Finder {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            total: Share::default(),
            last_ns: 0,
            recent: VecDeque::new(),
            busiest: None,
            second: BusiestSecond::default(),
        }
    }

    /// Looks at the next packet. Times never fall: one with an earlier time is due with its forerunner.
    pub fn add(&mut self, at_ns: u64, frame: &[u8]) {
        self.total.add(frame);
        self.last_ns = at_ns;
        self.second.add(at_ns, frame.len() as u64);
        let Wanted::Busiest(length_ns) = self.wanted else {
            return;
        };
        self.recent.push_back(at_ns);
        while at_ns - self.recent[0] >= length_ns {
            self.recent.pop_front();
        }
        let packets = self.recent.len();
        if self.busiest.is_none_or(|(most, _)| packets > most) {
            self.busiest = Some((packets, self.recent[0]));
        }
    }

    /// The most packets, and the most bytes, within any second.
    #[must_use]
    pub fn peak(&self) -> Share {
        self.second.peak
    }

    /// Time of the last packet after the first.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.last_ns
    }

    /// The stretch; no longer than the trace, and no shorter than was asked for if the trace is longer.
    #[must_use]
    pub fn span(&self) -> Span {
        let end_ns = self.last_ns.saturating_add(1);
        let beginning = |from_ns: u64, length_ns: u64| {
            let to_ns = from_ns.saturating_add(length_ns).min(end_ns);
            Span {
                from_ns: to_ns.saturating_sub(length_ns).min(from_ns),
                to_ns,
            }
        };
        match self.wanted {
            Wanted::Whole => beginning(0, end_ns),
            Wanted::First(length_ns) => beginning(0, length_ns),
            Wanted::Busiest(length_ns) => {
                beginning(self.busiest.map_or(0, |(_, from_ns)| from_ns), length_ns)
            }
            Wanted::Between(from_ns, to_ns) => Span {
                from_ns,
                to_ns: to_ns.min(end_ns),
            },
        }
    }
}

/// Counts the packets of flows whose beginning lies in a window.
///
/// A TCP flow begins with a packet that has the SYN flag, any other flow with its first packet in the trace. Packets count from
/// their flow's beginning on. Later fragments have no ports, so they and what is no IP belong to no flow.
#[derive(Debug, Default)]
pub struct Beginnings {
    before: HashSet<FlowKey, FixedState>,
    begun: HashSet<FlowKey, FixedState>,
    /// Packets of flows in the window.
    pub of_flows: Share,
    /// Of those, packets of flows that begin in the window.
    pub of_begun: Share,
}

impl Beginnings {
    /// Looks at a packet ahead of the window.
    pub fn add_before(&mut self, frame: &[u8]) {
        if let Some((flow, starts)) = flow(frame)
            && starts.is_none()
        {
            self.before.insert(flow);
        }
    }

    /// Looks at a packet of the window.
    pub fn add(&mut self, frame: &[u8]) {
        let Some((flow, starts)) = flow(frame) else {
            return;
        };
        self.of_flows.add(frame);
        let begins = starts.unwrap_or_else(|| !self.before.contains(&flow));
        if begins {
            self.begun.insert(flow);
        }
        if begins || self.begun.contains(&flow) {
            self.of_begun.add(frame);
        }
    }
}

/// The flow of a packet; of TCP, also whether this packet can be its first.
fn flow(frame: &[u8]) -> Option<(FlowKey, Option<bool>)> {
    let ip = view::network(frame).filter(view::Ip::has_transport_header)?;
    let starts = (ip.protocol == protocol::TCP).then(|| {
        let flags = ip.payload(frame).get(FLAGS_OFFSET);
        flags.is_some_and(|flags| flags & SYN != 0)
    });
    Some((FlowKey::of_ip(frame, &ip), starts))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn span(wanted: &str, times_ms: &[u64]) -> (u64, u64) {
        let mut finder = Finder::new(wanted.parse().unwrap());
        for at in times_ms {
            finder.add(at * 1_000_000, &[0; 60]);
        }
        let found = finder.span();
        (found.from_ns / 1_000_000, found.to_ns / 1_000_000)
    }

    #[test]
    fn the_busiest_stretch_holds_most_packets() {
        // 10 packets/s for 10 s, then 100/s for 10 s.
        let slow = (0..100).map(|n| n * 100);
        let two: Vec<u64> = slow.chain((0..1000).map(|n| 10_000 + n * 10)).collect();
        assert_eq!(span("busiest:5", &two), (10_000, 15_000));
        assert_eq!(span("first:5", &two), (0, 5_000));
        assert_eq!(span("busiest:0.5", &two), (10_000, 10_500));
        // As long as was asked for, though the most packets lie at the end.
        assert_eq!(span("busiest:15", &two), (4_990, 19_990));
        assert_eq!(span("busiest:60", &two), (0, 19_990));
        assert_eq!(span("whole", &two), (0, 19_990));
        assert_eq!(span("12.5..13", &two), (12_500, 13_000));
        assert_eq!(span("12.5..99", &two), (12_500, 19_990));
        // Elsewhere, shorter, and of two the first.
        let middle = [
            0, 1000, 2000, 2010, 2020, 3000, 4000, 5000, 5010, 5020, 6000,
        ];
        assert_eq!(span("busiest:0.1", &middle), (2000, 2100));
        assert_eq!(span("busiest:1", &[7; 5]), (0, 7));
    }

    #[test]
    fn its_name_finds_the_same_packets_again() {
        for (from_ns, to_ns, text) in [
            (0, 1, "0..0.000000001"),
            (12_000_000_000, 17_000_000_001, "12..17.000000001"),
            (1_234_567_891, 100_000_000_000, "1.234567891..100"),
        ] {
            assert_eq!(Span { from_ns, to_ns }.to_string(), text);
            assert_eq!(text.parse(), Ok(Wanted::Between(from_ns, to_ns)));
        }
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for bad in [
            "",
            "busy",
            "busiest",
            "busiest:",
            "busiest:0",
            "busiest:-1",
            "first:x",
            "5",
            "5..",
            "..5",
            "5..5",
            "6..5",
            "-1..5",
            "1e3..2e3",
            "1..inf",
            "nan..5",
            "1...5",
            "1..2..3",
            "1.0000000001..2",
            "99999999999999999999..2",
            " 1..2",
            "whole:5",
            "١..٢",
        ] {
            assert_eq!(bad.parse::<Wanted>(), Err(NotAWindow(bad.into())), "{bad}");
        }
    }

    #[test]
    fn the_peak_is_that_of_any_second() {
        let mut finder = Finder::new(Wanted::Whole);
        // 3 packets about the border of a whole second, and a long one on its own.
        for (at_ms, bytes) in [(0, 60), (900, 60), (1_000, 60), (1_850, 60), (5_000, 1_500)] {
            finder.add(at_ms * 1_000_000, &vec![0; bytes]);
        }
        assert_eq!(
            (finder.peak().packets, finder.peak().frame_bytes),
            (3, 1_500)
        );
        assert_eq!((finder.total.packets, finder.total.frame_bytes), (5, 1_740));
    }

    fn packet(protocol: u8, port: u8, flags: u8) -> Vec<u8> {
        let ethernet = [&[2; 12][..], &[8, 0]].concat();
        let ip = [0x45, 0, 0, 40, 0, 1, 0, 0, 64, protocol, 0, 0];
        let tcp = [
            4, port, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0,
        ];
        [&ethernet[..], &ip, &[10, 0, 0, 1, 10, 0, 0, 2], &tcp].concat()
    }

    #[test]
    fn flows_begin_with_a_syn_or_their_first_packet() {
        let (tcp, udp_number, ack_flag) = (6, 17, 0x10);
        let shares = |before: &[Vec<u8>], within: &[Vec<u8>]| {
            let mut beginnings = Beginnings::default();
            before.iter().for_each(|frame| beginnings.add_before(frame));
            within.iter().for_each(|frame| beginnings.add(frame));
            (beginnings.of_begun.packets, beginnings.of_flows.packets)
        };
        let (syn, both, ack) = (
            packet(tcp, 1, SYN),
            packet(tcp, 1, SYN | ack_flag),
            packet(tcp, 1, ack_flag),
        );
        assert_eq!(
            shares(&[], &[syn.clone(), both.clone(), ack.clone()]),
            (3, 3)
        );
        assert_eq!(
            shares(&[syn.clone(), both.clone()], &[ack.clone(), ack.clone()]),
            (0, 2)
        );
        // Of which the capture has no beginning; one that begins again; one of which only one direction was captured.
        assert_eq!(shares(&[], &[ack.clone(), ack.clone()]), (0, 2));
        assert_eq!(
            shares(
                std::slice::from_ref(&syn),
                &[ack.clone(), syn.clone(), ack.clone()]
            ),
            (2, 3)
        );
        assert_eq!(shares(&[], &[both, ack]), (2, 2));
        let udp = |port| packet(udp_number, port, 0);
        assert_eq!(shares(&[udp(1)], &[udp(1), udp(2), udp(2), udp(1)]), (2, 4));
        // What has no flow.
        assert_eq!(shares(&[vec![0; 60]], &[vec![0; 60], vec![]]), (0, 0));
    }
}
