//! IP headers, by offset: IPv4 with its options, IPv6 with its extension headers, and the datagrams that ICMP errors quote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{array_at, u8_at, u16_at, u32_at};

/// IP protocol numbers that matter here.
pub mod protocol {
    #![expect(missing_docs, reason = "the names are IANA's")]
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION_OPTIONS: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const UDP_LITE: u8 = 136;
}

/// Extension headers walked before a datagram counts as nonsense.
const MAX_STACKED: usize = 8;

/// The place of a fragment in its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Identification, 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Where its payload stands in the datagram's.
    pub offset_bytes: u32,
    /// False on the last fragment.
    pub more: bool,
}

/// An IPv4 header, or an IPv6 header with its extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip {
    /// Where the header begins.
    pub offset: usize,
    /// Where the transport header, or a fragment's payload, begins; within the captured bytes.
    pub payload: usize,
    /// Where the datagram ends: by its length field, within the captured bytes.
    pub end: usize,
    /// Where it would end by its length field alone.
    pub claimed_end: usize,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Set on fragments only; an IPv6 "atomic" fragment (RFC 6946) is none.
    pub fragment: Option<Fragment>,
    /// A source route that is not used up: the final destination is elsewhere than in the header.
    pub source_routed: bool,
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
}

impl Ip {
    /// The bytes of the transport header and what it carries.
    #[must_use]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.payload..self.end).unwrap_or_default()
    }

    /// True if the payload begins with a transport header.
    #[must_use]
    pub fn has_transport_header(&self) -> bool {
        self.fragment
            .is_none_or(|fragment| fragment.offset_bytes == 0)
    }
}

/// The IP header at `offset`, of the version it says.
#[must_use]
pub fn ip_at(frame: &[u8], offset: usize) -> Option<Ip> {
    match u8_at(frame, offset)? >> 4 {
        4 => ipv4_at(frame, offset),
        6 => ipv6_at(frame, offset),
        _ => None,
    }
}

/// The IPv4 header at `offset`; its fixed part must be there, options may be cut.
#[must_use]
pub fn ipv4_at(frame: &[u8], offset: usize) -> Option<Ip> {
    let first = u8_at(frame, offset)?;
    let header_bytes = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header_bytes < 20 {
        return None;
    }
    let destination = Ipv4Addr::from(array_at::<4>(frame, offset + 16)?);
    let total = usize::from(u16_at(frame, offset + 2)?);
    // Zero: the capture was taken before segmentation offload wrote the length.
    let claimed_end = if total == 0 {
        frame.len()
    } else {
        offset + total
    };
    let flags = u16_at(frame, offset + 6)?;
    let fragment = Fragment {
        id: u32::from(u16_at(frame, offset + 4)?),
        offset_bytes: u32::from(flags & 0x1fff) * 8,
        more: flags & 0x2000 != 0,
    };
    let end = claimed_end.min(frame.len());
    Some(Ip {
        offset,
        payload: (offset + header_bytes).min(end.max(offset + 20)),
        end,
        claimed_end,
        protocol: u8_at(frame, offset + 9)?,
        fragment: (fragment.more || fragment.offset_bytes > 0).then_some(fragment),
        source_routed: has_open_source_route(
            frame
                .get(offset + 20..(offset + header_bytes).min(frame.len()))
                .unwrap_or_default(),
        ),
        source: IpAddr::V4(Ipv4Addr::from(array_at::<4>(frame, offset + 12)?)),
        destination: IpAddr::V4(destination),
    })
}

/// Loose (131) or strict (137) source route whose pointer is not yet past its end (RFC 791).
fn has_open_source_route(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match (kind, rest) {
            (0, _) => return false,
            (1, _) => options = rest,
            (131 | 137, [length, pointer, ..]) if pointer <= length => return true,
            (_, [length, ..]) if *length >= 2 => {
                options = options.get(usize::from(*length)..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    false
}

/// The IPv6 header at `offset` and its extension headers, up to the first that is not captured.
#[must_use]
pub fn ipv6_at(frame: &[u8], offset: usize) -> Option<Ip> {
    if u8_at(frame, offset)? >> 4 != 6 {
        return None;
    }
    let destination = Ipv6Addr::from(array_at::<16>(frame, offset + 24)?);
    let length = usize::from(u16_at(frame, offset + 4)?);
    // Zero is a jumbogram, or a length that offload has not written.
    let claimed_end = if length == 0 {
        frame.len()
    } else {
        offset + 40 + length
    };
    let mut ip = Ip {
        offset,
        payload: offset + 40,
        end: claimed_end.min(frame.len()),
        claimed_end,
        protocol: u8_at(frame, offset + 6)?,
        fragment: None,
        source_routed: false,
        source: IpAddr::V6(Ipv6Addr::from(array_at::<16>(frame, offset + 8)?)),
        destination: IpAddr::V6(destination),
    };
    for _ in 0..MAX_STACKED {
        if !ip.has_transport_header() || step_over_extension(frame, &mut ip).is_none() {
            break;
        }
    }
    Some(ip)
}

/// `None` if the next header is no extension header, or not captured.
fn step_over_extension(frame: &[u8], ip: &mut Ip) -> Option<()> {
    let at = ip.payload;
    let next = u8_at(frame, at);
    let length = u8_at(frame, at + 1).map(usize::from);
    let bytes = match ip.protocol {
        protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => (length? + 1) * 8,
        protocol::ROUTING => {
            ip.source_routed |= u8_at(frame, at + 3)? > 0;
            (length? + 1) * 8
        }
        protocol::AH => (length? + 2) * 4,
        protocol::FRAGMENT => {
            let field = u16_at(frame, at + 2)?;
            let fragment = Fragment {
                id: u32_at(frame, at + 4)?,
                offset_bytes: u32::from(field & 0xfff8),
                more: field & 1 != 0,
            };
            ip.fragment = (fragment.more || fragment.offset_bytes > 0).then_some(fragment);
            8
        }
        _ => return None,
    };
    if at + bytes > ip.end {
        return None;
    }
    ip.protocol = next?;
    ip.payload = at + bytes;
    Some(())
}

/// The datagram an ICMP or ICMPv6 error quotes, by the offset of its IP header.
#[must_use]
pub fn quoted_datagram(frame: &[u8], ip: &Ip) -> Option<usize> {
    if !ip.has_transport_header() {
        return None;
    }
    let kind = u8_at(frame, ip.payload)?;
    let quotes = match ip.protocol {
        // Unreachable, source quench, redirect, time exceeded, parameter problem.
        protocol::ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        protocol::ICMPV6 => (1..=4).contains(&kind),
        _ => false,
    };
    (quotes && ip.payload + 8 < ip.end).then_some(ip.payload + 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_route_in_use_is_seen() {
        assert!(has_open_source_route(&[1, 131, 7, 4, 9, 9, 9, 9]));
        assert!(
            !has_open_source_route(&[131, 7, 8, 9, 9, 9, 9, 0]),
            "used up"
        );
        assert!(
            !has_open_source_route(&[7, 0, 0, 0]),
            "a length of zero ends the walk"
        );
    }
}
