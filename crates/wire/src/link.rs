//! The link layer of a frame, by offset: Ethernet, VLAN tags and VN-Tags, MPLS labels, PPPoE.

use crate::bytes::{u8_at, u16_at, u32_at};

/// EtherTypes that matter here.
pub mod ethertype {
    #![expect(missing_docs, reason = "the names are the IEEE's")]
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const BRIDGED: u16 = 0x6558;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MULTICAST: u16 = 0x8848;
    pub const PPPOE_SESSION: u16 = 0x8864;
    pub const BACKBONE: u16 = 0x88e7;
    pub const FABRIC_PATH: u16 = 0x8903;
    pub const VN_TAG: u16 = 0x8926;
    pub const NSH: u16 = 0x894f;
    pub const QINQ: u16 = 0x88a8;
    pub const QINQ_OLD: u16 = 0x9100;
}

/// Shortest Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
/// Tags or labels walked before a frame counts as nonsense.
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

/// The link layer of an Ethernet frame; VLAN tags, a VN-Tag, MPLS labels and a PPPoE session header are stepped over.
#[must_use]
pub fn link(frame: &[u8]) -> Option<Link> {
    link_at(frame, 0)
}

/// The same for an Ethernet header inside a tunnel.
#[must_use]
pub fn link_at(frame: &[u8], begin: usize) -> Option<Link> {
    let ethertype = u16_at(frame, begin + 12)?;
    Some(link_of(frame, ethertype, begin + ETHERNET_BYTES))
}

/// The same for what a tunnel carries without addresses: `ethertype` announces what stands at `offset`.
pub(crate) fn link_of(frame: &[u8], ethertype: u16, offset: usize) -> Link {
    let mut link = Link {
        ethertype,
        offset,
        vlans: [None; 2],
        tags: 0,
    };
    for _ in 0..MAX_STACKED {
        // A VN-Tag stands in front of the VLAN tags (Cisco), or behind them.
        let is_vlan = match link.ethertype {
            ethertype::VLAN | ethertype::QINQ | ethertype::QINQ_OLD => true,
            ethertype::VN_TAG => false,
            _ => break,
        };
        let bytes = if is_vlan { 4 } else { 6 };
        let (Some(tag), Some(inner)) = (
            u16_at(frame, link.offset),
            u16_at(frame, link.offset + bytes - 2),
        ) else {
            break;
        };
        if is_vlan {
            if let Some(slot) = link.vlans.get_mut(link.tags) {
                *slot = Some(tag & 0x0fff);
            }
            link.tags += 1;
        }
        link.ethertype = inner;
        link.offset += bytes;
    }
    match link.ethertype {
        ethertype::PPPOE_SESSION => step_over_pppoe(frame, link).unwrap_or(link),
        ethertype::MPLS | ethertype::MPLS_MULTICAST => step_over_mpls(frame, link).unwrap_or(link),
        _ => link,
    }
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
