//! The flow a frame belongs to, the same for both directions.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::bytes::u16_at;
use crate::tunnel::innermost;
use crate::view::{self, Ip, protocol};

/// Addresses, ports and protocol of a conversation, the lower end first.
///
/// Ports are zero if the protocol has none or the packet is a later fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// IP protocol number.
    pub protocol: u8,
    /// The lower of both ends.
    pub low: (IpAddr, u16),
    /// The higher of both ends.
    pub high: (IpAddr, u16),
}

impl FlowKey {
    /// The innermost flow of a frame, as an IDS sees it; `None` if it is no IP.
    #[must_use]
    pub fn innermost(frame: &[u8]) -> Option<Self> {
        innermost(frame).map(|ip| Self::of_ip(frame, &ip))
    }

    /// The outermost flow of a frame, as the kernel spreads it; `None` if it is no IP.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        view::network(frame).map(|ip| Self::of_ip(frame, &ip))
    }

    /// The flow of an IP header found before.
    #[must_use]
    pub fn of_ip(frame: &[u8], ip: &Ip) -> Self {
        let (source_port, destination_port) = ports(frame, ip).unwrap_or((0, 0));
        let source = (ip.source, source_port);
        let destination = (ip.destination, destination_port);
        Self {
            protocol: ip.protocol,
            low: source.min(destination),
            high: source.max(destination),
        }
    }
}

const NAMES: [(u8, &str); 5] = [
    (protocol::TCP, "tcp"),
    (protocol::UDP, "udp"),
    (protocol::SCTP, "sctp"),
    (protocol::ICMP, "icmp"),
    (protocol::ICMPV6, "icmpv6"),
];

/// `tcp 10.0.0.1:80 10.0.0.2:51312`; a protocol without a name by its number.
impl Display for FlowKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.protocol) {
            Some((_, name)) => write!(f, "{name}")?,
            None => write!(f, "{}", self.protocol)?,
        }
        let [low, high] = [self.low, self.high].map(SocketAddr::from);
        write!(f, " {low} {high}")
    }
}

/// A text that names no flow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no flow: give protocol and both ends, such as `tcp 10.0.0.1:80 10.0.0.2:51312`")]
pub struct NotAFlow(String);

impl FromStr for FlowKey {
    type Err = NotAFlow;

    fn from_str(text: &str) -> Result<Self, NotAFlow> {
        let named = |name: &str| match NAMES.iter().find(|(_, known)| *known == name) {
            Some((number, _)) => Some(*number),
            None => name.parse().ok(),
        };
        let end = |text: &str| {
            text.parse::<SocketAddr>()
                .ok()
                .map(|at| (at.ip(), at.port()))
        };
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let parsed = match words[..] {
            [name, one, other] => named(name).zip(end(one)).zip(end(other)),
            _ => None,
        };
        let ((protocol, one), other) = parsed.ok_or_else(|| NotAFlow(text.into()))?;
        Ok(Self {
            protocol,
            low: one.min(other),
            high: one.max(other),
        })
    }
}

/// Source and destination port, if the packet has them.
#[must_use]
pub fn ports(frame: &[u8], ip: &Ip) -> Option<(u16, u16)> {
    let has_ports = matches!(
        ip.protocol,
        protocol::TCP | protocol::UDP | protocol::SCTP | protocol::UDP_LITE
    );
    if !has_ports || !ip.has_transport_header() || ip.payload + 4 > ip.end {
        return None;
    }
    Some((u16_at(frame, ip.payload)?, u16_at(frame, ip.payload + 2)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::view::tests::{ethernet, ipv4};

    fn key(source: [u8; 4], destination: [u8; 4], flags: u16, ports: [u8; 4]) -> FlowKey {
        let payload = [&ports[..], &[0, 8, 0, 0]].concat();
        FlowKey::of_frame(&ethernet(
            0x0800,
            &ipv4(source, destination, 17, flags, &payload),
        ))
        .unwrap()
    }

    #[test]
    fn both_directions_are_one_flow() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(key(a, b, 0, [0, 53, 8, 0]), key(b, a, 0, [8, 0, 0, 53]));
        assert_ne!(key(a, b, 0, [0, 53, 8, 0]), key(a, b, 0, [8, 0, 0, 53]));
    }

    #[test]
    fn its_name_is_read_back() {
        for name in [
            "tcp 10.0.0.1:80 10.0.0.2:51312",
            "udp [2001:db8::1]:53 [2001:db8::2]:4242",
            "47 10.0.0.1:0 10.0.0.2:0",
        ] {
            let flow: FlowKey = name.parse().unwrap();
            assert_eq!(flow.to_string(), name);
        }
        let (one, other) = ("udp 10.0.0.2:53 10.0.0.1:9", "udp 10.0.0.1:9 10.0.0.2:53");
        assert_eq!(one.parse::<FlowKey>(), other.parse());
        assert_eq!(
            other.parse(),
            Ok(key([10, 0, 0, 1], [10, 0, 0, 2], 0, [0, 9, 0, 53]))
        );
        for bad in [
            "",
            "tcp",
            "tcp 10.0.0.1 10.0.0.2",
            "999 10.0.0.1:1 10.0.0.2:2",
            "tcp a:1 b:2",
        ] {
            assert_eq!(bad.parse::<FlowKey>(), Err(NotAFlow(bad.into())));
        }
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(key(a, b, 1, [0, 53, 8, 0]).low.1, 0);
        assert_eq!(key(a, b, 0x2000, [0, 53, 8, 0]).low.1, 53);
    }
}
