//! Where the headers of a frame stand: link, network and transport, by offset.
//!
//! Everything here bears any bytes: what is not there is `None`, lengths are bounded by what was captured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{array_at, u8_at, u16_at, u32_at};

/// EtherTypes that matter here.
pub mod ethertype {
    #![expect(missing_docs, reason = "the names are the IEEE's")]
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    pub const PPPOE_SESSION: u16 = 0x8864;
    pub const QINQ: u16 = 0x88a8;
    pub const QINQ_OLD: u16 = 0x9100;
}

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

/// Shortest Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
/// Tags, labels and extension headers walked before a frame counts as nonsense.
const MAX_STACKED: usize = 8;

/// The link layer of a frame: everything before the network header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// What the innermost header announces; below 1536 it is an 802.3 length.
    pub ethertype: u16,
    /// Where the network header begins.
    pub offset: usize,
    /// VLAN identifiers, outermost first, of the first two tags.
    pub vlans: [Option<u16>; 2],
    /// How many VLAN tags there are.
    pub tags: usize,
}

/// The link layer of an Ethernet frame; VLAN tags, MPLS labels and a PPPoE session header are stepped over.
#[must_use]
pub fn link(frame: &[u8]) -> Option<Link> {
    link_at(frame, 0)
}

/// The same for an Ethernet header inside a tunnel.
#[must_use]
pub fn link_at(frame: &[u8], begin: usize) -> Option<Link> {
    let mut link = Link {
        ethertype: u16_at(frame, begin + 12)?,
        offset: begin + ETHERNET_BYTES,
        vlans: [None; 2],
        tags: 0,
    };
    while matches!(
        link.ethertype,
        ethertype::VLAN | ethertype::QINQ | ethertype::QINQ_OLD
    ) && link.tags < MAX_STACKED
    {
        let (Some(tag), Some(inner)) = (u16_at(frame, link.offset), u16_at(frame, link.offset + 2))
        else {
            break;
        };
        if let Some(slot) = link.vlans.get_mut(link.tags) {
            *slot = Some(tag & 0x0fff);
        }
        link.tags += 1;
        link.ethertype = inner;
        link.offset += 4;
    }
    Some(match link.ethertype {
        ethertype::PPPOE_SESSION => step_over_pppoe(frame, link).unwrap_or(link),
        ethertype::MPLS => step_over_mpls(frame, link).unwrap_or(link),
        _ => link,
    })
}

fn step_over_pppoe(frame: &[u8], link: Link) -> Option<Link> {
    let ethertype = match u16_at(frame, link.offset + 6)? {
        0x0021 => ethertype::IPV4,
        0x0057 => ethertype::IPV6,
        _ => return None,
    };
    Some(Link {
        ethertype,
        offset: link.offset + 8,
        ..link
    })
}

fn step_over_mpls(frame: &[u8], link: Link) -> Option<Link> {
    let label = |offset: &usize| u32_at(frame, *offset);
    let bottom = (0..MAX_STACKED)
        .map(|depth| link.offset + 4 * depth)
        .find(|offset| label(offset).is_none_or(|label| label & 0x100 != 0))?;
    // Labels do not say what they carry: the version nibble is what routers go by (RFC 4928).
    let ethertype = match u8_at(frame, bottom + 4)? >> 4 {
        4 => ethertype::IPV4,
        6 => ethertype::IPV6,
        _ => return None,
    };
    Some(Link {
        ethertype,
        offset: bottom + 4,
        ..link
    })
}

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

    /// True where the payload begins with a transport header.
    #[must_use]
    pub fn has_transport_header(&self) -> bool {
        self.fragment
            .is_none_or(|fragment| fragment.offset_bytes == 0)
    }
}

/// The IP header of a frame, if it carries one right above its link layer.
#[must_use]
pub fn network(frame: &[u8]) -> Option<Ip> {
    let link = link(frame)?;
    match link.ethertype {
        ethertype::IPV4 => ipv4_at(frame, link.offset),
        ethertype::IPV6 => ipv6_at(frame, link.offset),
        _ => None,
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

/// `None` where the next header is no extension header, or not captured.
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
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
    use super::*;
    use proptest::prelude::*;

    /// An Ethernet header before `payload`.
    pub(crate) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// An IPv4 datagram with a right header checksum.
    pub(crate) fn ipv4(
        source: [u8; 4],
        destination: [u8; 4],
        protocol: u8,
        flags: u16,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut ip = vec![0x45, 0];
        ip.extend((20 + payload.len() as u16).to_be_bytes());
        ip.extend([0, 7]);
        ip.extend(flags.to_be_bytes());
        ip.extend([64, protocol, 0, 0]);
        ip.extend(source);
        ip.extend(destination);
        let checksum = !crate::checksum::fold(crate::checksum::sum(&ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        ip.extend(payload);
        ip
    }

    #[test]
    fn tags_are_stepped_over() {
        let inner = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &[0; 8]);
        let mut tagged = vec![0x00, 0x05, 0x81, 0x00, 0x20, 0x06, 0x08, 0x00];
        tagged.extend(&inner);
        let frame = ethernet(ethertype::QINQ, &tagged);
        assert_eq!(
            link(&frame),
            Some(Link {
                ethertype: 0x0800,
                offset: 22,
                vlans: [Some(5), Some(6)],
                tags: 2
            })
        );
        assert_eq!(network(&frame).unwrap().payload, 42);
        // A tag that is cut leaves the tag's own EtherType.
        assert_eq!(link(&frame[..15]).unwrap().ethertype, ethertype::QINQ);
    }

    #[test]
    fn mpls_and_pppoe_are_stepped_over() {
        let inner = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &[0; 8]);
        let mpls = [&[0, 1, 0, 64, 0, 1, 1, 64][..], &inner].concat();
        assert_eq!(
            network(&ethernet(ethertype::MPLS, &mpls)).unwrap().offset,
            22
        );
        let pppoe = [&[0x11, 0, 0, 1, 0, 30, 0, 0x21][..], &inner].concat();
        assert_eq!(
            network(&ethernet(ethertype::PPPOE_SESSION, &pppoe))
                .unwrap()
                .offset,
            22
        );
    }

    #[test]
    fn fragments_and_lengths_are_read() {
        let mut frame = ethernet(
            0x0800,
            &ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, 0x2001, &[1; 16]),
        );
        frame.extend([0; 10]);
        let ip = network(&frame).unwrap();
        assert_eq!(
            ip.fragment,
            Some(Fragment {
                id: 7,
                offset_bytes: 8,
                more: true
            })
        );
        assert_eq!(
            (ip.payload, ip.end, ip.claimed_end),
            (34, 50, 50),
            "padding is left out"
        );
        assert!(!ip.has_transport_header());
        let cut = network(&frame[..40]).unwrap();
        assert_eq!((cut.payload, cut.end, cut.claimed_end), (34, 40, 50));
    }

    #[test]
    fn ipv6_extension_headers_are_walked() {
        let mut ip = vec![0x60, 0, 0, 0, 0, 24, 0, 64];
        ip.extend([1; 16]);
        ip.extend([2; 16]);
        ip.extend([44, 0, 0, 0, 0, 0, 0, 0]); // hop by hop
        ip.extend([17, 0, 0, 1, 0, 0, 0, 9]); // fragment 9, first
        ip.extend([0, 53, 0, 53, 0, 8, 0, 0]);
        let view = network(&ethernet(ethertype::IPV6, &ip)).unwrap();
        assert_eq!(view.protocol, protocol::UDP);
        assert_eq!(view.payload, 14 + 56);
        assert_eq!(
            view.fragment,
            Some(Fragment {
                id: 9,
                offset_bytes: 0,
                more: true
            })
        );
    }

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

    proptest! {
        #[test]
        fn any_frame_is_borne(bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0usize..6) {
            let types = [0x0800, 0x86dd, 0x8100, 0x8847, 0x8864, 0x88a8];
            let frame = ethernet(types[kind], &bytes);
            for cut in 0..frame.len() {
                if let Some(ip) = network(&frame[..cut]) {
                    prop_assert!(ip.end <= cut && ip.payload <= cut.max(ip.offset + 20));
                    let _ = quoted_datagram(&frame[..cut], &ip);
                    let _ = ip.payload(&frame[..cut]);
                }
            }
        }
    }
}
