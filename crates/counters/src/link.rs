//! Counters and state of one network interface, from rtnetlink: `rtnl_link_stats64`, `IFLA_XDP` and what shapes them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::netlink::{Attributes, LinkHead, RouteSocket, malformed, u32_at, u64_at};

const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_XDP: u16 = 43;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;

macro_rules! link_stats {
    ($($(#[$doc:meta])* $name:ident,)* ; $($(#[$later_doc:meta])* $later:ident,)*) => {
        /// `struct rtnl_link_stats64`, every name the kernel's. What a counter means is its driver's decision.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
        pub struct LinkStats {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$later_doc])* pub $later: Option<u64>,)*
        }

        impl LinkStats {
            /// Fields come in the order of the kernel's struct; newer kernels only add at the end.
            fn parse(bytes: &[u8]) -> Option<Self> {
                let mut words = bytes.chunks_exact(8).map(|word| u64_at(word, 0));
                Some(Self {
                    $($name: words.next()??,)*
                    $($later: words.next().flatten(),)*
                })
            }
        }
    };
}

link_stats! {
    /// Frames received.
    rx_packets,
    /// Frames transmitted.
    tx_packets,
    /// Bytes received.
    rx_bytes,
    /// Bytes transmitted.
    tx_bytes,
    /// Bad frames received.
    rx_errors,
    /// Transmissions that failed.
    tx_errors,
    /// Received and then dropped by the host: on an idle receiver mostly unhandled protocols, after the tap has seen them.
    rx_dropped,
    /// Not transmitted for want of room.
    tx_dropped,
    /// Multicast frames received.
    multicast,
    /// Collisions.
    collisions,
    /// Wrong length.
    rx_length_errors,
    /// Receiver overrun.
    rx_over_errors,
    /// Wrong checksum of the frame.
    rx_crc_errors,
    /// Misaligned.
    rx_frame_errors,
    /// FIFO overrun.
    rx_fifo_errors,
    /// Missed by the NIC for want of host buffers.
    rx_missed_errors,
    /// Aborted.
    tx_aborted_errors,
    /// No carrier.
    tx_carrier_errors,
    /// FIFO underrun.
    tx_fifo_errors,
    /// No heartbeat.
    tx_heartbeat_errors,
    /// Late collision.
    tx_window_errors,
    /// Compressed frames received.
    rx_compressed,
    /// Compressed frames transmitted.
    tx_compressed,
    ;
    /// Arrived on an inactive slave of a bond or team (since 4.6).
    rx_nohandler,
    /// For another host's MAC address and dropped by the IP stack (since 5.19).
    rx_otherhost_dropped,
}

/// An attached XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Xdp {
    /// How it is attached.
    pub mode: &'static str,
    /// `None` if several programs are attached.
    pub program_id: Option<u32>,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct Link {
    /// In its network namespace.
    pub index: u32,
    /// `veth`, `macvtap` …; `None` for a physical NIC.
    pub kind: Option<String>,
    /// Administratively up.
    pub up: bool,
    /// The cable is in, the peer is up.
    pub carrier: bool,
    /// How often that changed since the port was made.
    pub carrier_changes: u32,
    /// RFC 2863: what the kernel makes of both.
    pub operstate: &'static str,
    /// How many asked for promiscuous mode.
    pub promiscuity: u32,
    /// Largest payload of a frame.
    pub mtu: u32,
    /// Length of the transmit queue; of a macvtap, of the queue to its reader.
    pub tx_queue_length: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// `None` if no program is attached.
    pub xdp: Option<Xdp>,
    /// The counters.
    pub stats: LinkStats,
}

/// Asks the kernel about interfaces of the network namespace in which it was made.
#[derive(Debug)]
pub struct LinkReader {
    socket: RouteSocket,
    /// By name, of those whose counters were asked for.
    indexes: BTreeMap<String, u32>,
}

impl LinkReader {
    /// Opens the socket.
    pub fn new() -> Result<Self> {
        Ok(Self {
            socket: RouteSocket::open()?,
            indexes: BTreeMap::new(),
        })
    }

    /// State and counters.
    pub fn read(&mut self, name: &str) -> Result<Link> {
        let (head, attributes) = self.socket.link(name)?;
        let up = head.flags & IFF_UP != 0;
        let carrier = head.flags & IFF_LOWER_UP != 0;
        let mut link = Link {
            index: head.index,
            up,
            carrier,
            ..Link::default()
        };
        for (kind, value) in attributes {
            let number = || u32_at(value, 0).unwrap_or_default();
            match kind {
                IFLA_MTU => link.mtu = number(),
                IFLA_OPERSTATE => link.operstate = operstate(value),
                IFLA_CARRIER_CHANGES => link.carrier_changes = number(),
                IFLA_TXQLEN => link.tx_queue_length = number(),
                IFLA_PROMISCUITY => link.promiscuity = number(),
                IFLA_NUM_RX_QUEUES => link.rx_queues = number(),
                IFLA_NUM_TX_QUEUES => link.tx_queues = number(),
                IFLA_LINKINFO => link.kind = info_kind(value),
                IFLA_XDP => link.xdp = attached_xdp(value),
                IFLA_STATS64 => link.stats = parsed(value)?,
                _ => {}
            }
        }
        Ok(link)
    }

    /// Only the counters: no allocation but for a name that was not asked for before.
    pub fn stats(&mut self, name: &str) -> Result<LinkStats> {
        if let Some(index) = self.indexes.get(name).copied() {
            match self.socket.stats(index, name).and_then(parsed) {
                // Gone, or made anew under the same name: then it has another index.
                Err(e) if e.is_gone() => self.indexes.remove(name),
                stats => return stats,
            };
        }
        let (LinkHead { index, .. }, _) = self.socket.link(name)?;
        self.indexes.insert(name.to_owned(), index);
        self.socket.stats(index, name).and_then(parsed)
    }
}

fn parsed(bytes: &[u8]) -> Result<LinkStats> {
    LinkStats::parse(bytes).ok_or_else(malformed)
}

/// `linux/if.h`, IF_OPER_*.
fn operstate(value: &[u8]) -> &'static str {
    match value.first() {
        Some(1) => "notpresent",
        Some(2) => "down",
        Some(3) => "lowerlayerdown",
        Some(4) => "testing",
        Some(5) => "dormant",
        Some(6) => "up",
        _ => "unknown",
    }
}

fn info_kind(value: &[u8]) -> Option<String> {
    let (_, kind) = Attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND)?;
    let text = kind.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn attached_xdp(value: &[u8]) -> Option<Xdp> {
    let find = |wanted| {
        Attributes(value)
            .find(|(kind, _)| *kind == wanted)
            .map(|(_, value)| value)
    };
    let mode = match find(IFLA_XDP_ATTACHED)?.first()? {
        0 => return None,
        1 => "native",
        2 => "generic",
        3 => "offloaded",
        _ => "several",
    };
    Some(Xdp {
        mode,
        program_id: find(IFLA_XDP_PROG_ID).and_then(|id| u32_at(id, 0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel sent for an attached program: nested attributes, captured with strace.
    #[test]
    fn an_attached_program_is_seen_with_its_mode() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = Vec::new();
            bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let none = attribute(IFLA_XDP_ATTACHED, &[0]);
        assert_eq!(attached_xdp(&none), None);
        let native = [
            attribute(IFLA_XDP_ATTACHED, &[1]),
            attribute(IFLA_XDP_PROG_ID, &[7, 0, 0, 0]),
        ]
        .concat();
        assert_eq!(
            attached_xdp(&native),
            Some(Xdp {
                mode: "native",
                program_id: Some(7)
            })
        );
    }

    #[test]
    fn an_older_kernel_has_fewer_counters() {
        let bytes: Vec<u8> = (1..=23u64).flat_map(u64::to_ne_bytes).collect();
        let stats = LinkStats::parse(&bytes).unwrap();
        assert_eq!(
            (stats.rx_packets, stats.rx_dropped, stats.tx_compressed),
            (1, 7, 23)
        );
        assert_eq!(
            (stats.rx_nohandler, stats.rx_otherhost_dropped),
            (None, None)
        );
        let bytes: Vec<u8> = (1..=25u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(
            LinkStats::parse(&bytes).unwrap().rx_otherhost_dropped,
            Some(25)
        );
        assert_eq!(LinkStats::parse(&bytes[..80]), None);
    }

    #[test]
    fn the_loopback_of_this_machine() {
        let mut reader = LinkReader::new().unwrap();
        let link = reader.read("lo").unwrap();
        assert_eq!((link.index, link.kind, link.xdp), (1, None, None));
        assert!(["unknown", "down", "up"].contains(&link.operstate));
        assert_eq!(
            reader.read("nonesuch").unwrap_err().to_string(),
            "no network interface `nonesuch` in this network namespace"
        );
        for length in [40, 1 << 17] {
            assert!(reader.stats(&"a".repeat(length)).is_err());
        }
        // The socket still works after refusals.
        let whole = reader.read("lo").unwrap().stats;
        let alone = reader.stats("lo").unwrap();
        assert!(alone.rx_packets >= whole.rx_packets && alone.rx_bytes >= whole.rx_bytes);
        assert_eq!(
            alone.rx_otherhost_dropped.is_some(),
            whole.rx_otherhost_dropped.is_some()
        );
    }
}
