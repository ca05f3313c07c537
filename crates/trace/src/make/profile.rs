//! What a synthetic trace is to look like: sums of known traces, and the mix of conversations that gives them.

use crate::make::packets::MEMORY_BYTES;
use crate::make::web::Sizes;

/// Kinds of conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// HTTP/1.1 on port 80.
    Http,
    /// TLS 1.3 on port 443.
    Tls,
    /// DNS over UDP.
    Dns,
    /// SMTP on port 25.
    Smtp,
    /// SSH on port 22.
    Ssh,
    /// NTP.
    Ntp,
    /// The middle of QUIC connections.
    QuicLike,
    /// Connections that say little for long.
    Idle,
    /// Echo requests.
    Ping,
    /// Log datagrams in complete fragments.
    Fragmented,
    /// The same with a fragment missing.
    Incomplete,
}

impl Kind {
    /// Name in the description of a trace; that of Suricata if it knows the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tls => "tls",
            Self::Dns => "dns",
            Self::Smtp => "smtp",
            Self::Ssh => "ssh",
            Self::Ntp => "ntp",
            Self::QuicLike => "quic_like",
            Self::Idle => "idle",
            Self::Ping => "ping",
            Self::Fragmented => "fragmented",
            Self::Incomplete => "fragmented_incomplete",
        }
    }

    /// Port of the server.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Tls | Self::QuicLike => 443,
            Self::Dns => 53,
            Self::Smtp => 25,
            Self::Ssh => 22,
            Self::Ntp => 123,
            Self::Idle => 5_222,
            Self::Ping => 0,
            Self::Fragmented | Self::Incomplete => 5_140,
        }
    }
}

/// Sums and mix of a trace.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name on the command line.
    pub name: &'static str,
    /// Packets.
    pub packets: u64,
    /// Flows: distinct symmetric 5-tuples.
    pub flows: u64,
    /// Mean frame.
    pub mean_frame_bytes: u64,
    /// From the first packet to the last.
    pub duration_ns: u64,
    /// Bytes of the busiest second over those of the mean second.
    pub peak_to_mean: f64,
    /// Shares of the kinds of conversations.
    pub mix: Vec<(Kind, f64)>,
    /// Bulk transfers per hundred flows.
    pub bulk_pct: u64,
    /// Bodies of web conversations.
    pub sizes: Sizes,
    /// Segments per acknowledgement of bulk transfers.
    pub segments_per_ack: usize,
    /// Share of flows with one VLAN tag, and with two.
    pub tagged_ratio: [f64; 2],
    /// Share of flows over IPv6.
    pub ipv6_ratio: f64,
    /// Segments lost behind the tap, and segments that change places.
    pub disturbance_ratio: [f64; 2],
    /// Frames of neighbours (ARP, LLDP, spanning tree) per second.
    pub neighbours_per_s: u64,
}

/// What `--packets` takes. Where each lies is in memory while the trace is made; the largest profile has 791,615.
pub const PACKETS: std::ops::RangeInclusive<u64> = 100..=5_000_000;

const SECOND_NS: u64 = 1_000_000_000;

impl Profile {
    /// Names of all profiles.
    pub const NAMES: [&'static str; 3] = ["demo", "bigflows-like", "ists-like"];

    /// A profile by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "demo" => Some(demo()),
            "bigflows-like" => Some(bigflows_like()),
            "ists-like" => Some(ists_like()),
            _ => None,
        }
    }

    /// What making it takes of memory: its frames lie in a file.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.packets * MEMORY_BYTES
    }

    /// The same traffic for a shorter or longer time: rates, mean frame and packets per flow stay.
    #[must_use]
    pub fn scaled(self, packets: u64) -> Self {
        let scale = |value: u64| {
            u64::try_from(u128::from(value) * u128::from(packets) / u128::from(self.packets))
                .unwrap_or(u64::MAX)
        };
        Self {
            flows: scale(self.flows).max(10),
            duration_ns: scale(self.duration_ns),
            packets,
            ..self
        }
    }
}

/// Ten seconds with something of everything that packet books must explain.
fn demo() -> Profile {
    Profile {
        name: "demo",
        packets: 20_000,
        flows: 900,
        mean_frame_bytes: 520,
        duration_ns: 10 * SECOND_NS,
        peak_to_mean: 1.5,
        mix: vec![
            (Kind::Http, 20.0),
            (Kind::Tls, 22.0),
            (Kind::Dns, 36.0),
            (Kind::Smtp, 2.0),
            (Kind::Ssh, 1.0),
            (Kind::Ntp, 2.0),
            (Kind::QuicLike, 5.0),
            (Kind::Idle, 2.0),
            (Kind::Ping, 2.0),
            (Kind::Fragmented, 6.0),
            (Kind::Incomplete, 2.0),
        ],
        bulk_pct: 3,
        sizes: Sizes {
            body_low: 500,
            body_high: 60_000,
            alpha: 1.3,
        },
        segments_per_ack: 2,
        tagged_ratio: [0.06, 0.01],
        ipv6_ratio: 0.08,
        disturbance_ratio: [0.001, 0.001],
        neighbours_per_s: 4,
    }
}

/// After tcpreplay's bigFlows.pcap: many small flows of an office behind a busy line.
fn bigflows_like() -> Profile {
    Profile {
        name: "bigflows-like",
        packets: 791_615,
        flows: 40_686,
        mean_frame_bytes: 449,
        duration_ns: 300 * SECOND_NS,
        // 2.1 MB/s against 791,615 x 449 B in 300 s.
        peak_to_mean: 2.1e6 * 300.0 / (791_615.0 * 449.0),
        mix: vec![
            (Kind::Http, 20.0),
            (Kind::Tls, 16.0),
            (Kind::Dns, 50.0),
            (Kind::Smtp, 1.0),
            (Kind::Ssh, 0.3),
            (Kind::Ntp, 2.0),
            (Kind::QuicLike, 4.0),
            (Kind::Idle, 4.0),
            (Kind::Ping, 1.0),
        ],
        bulk_pct: 2,
        sizes: Sizes {
            body_low: 300,
            body_high: 200_000,
            alpha: 1.3,
        },
        segments_per_ack: 2,
        tagged_ratio: [0.0, 0.0],
        ipv6_ratio: 0.0,
        disturbance_ratio: [0.001, 0.001],
        neighbours_per_s: 2,
    }
}

/// After a capture of a security competition (ISTS): few flows, large packets, a busy line.
fn ists_like() -> Profile {
    Profile {
        name: "ists-like",
        packets: 142_202,
        flows: 1_833,
        mean_frame_bytes: 1_106,
        duration_ns: 22 * SECOND_NS,
        peak_to_mean: 1.6,
        mix: vec![
            (Kind::Http, 40.0),
            (Kind::Tls, 12.0),
            (Kind::Dns, 32.0),
            (Kind::Smtp, 3.0),
            (Kind::Ssh, 4.0),
            (Kind::Idle, 3.0),
            (Kind::Ping, 6.0),
        ],
        bulk_pct: 8,
        sizes: Sizes {
            body_low: 800,
            body_high: 500_000,
            alpha: 1.2,
        },
        segments_per_ack: 12,
        tagged_ratio: [0.0, 0.0],
        ipv6_ratio: 0.0,
        disturbance_ratio: [0.001, 0.001],
        neighbours_per_s: 5,
    }
}
