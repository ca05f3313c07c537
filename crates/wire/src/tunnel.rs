//! Packets inside packets: where the inner header of a tunnel begins.
//!
//! Followed are the tunnels that Suricata and Snort decode: IP in IP, 6in4, GRE (with IP, Ethernet, tags, labels, PPP and ERSPAN I to III),
//! VXLAN, GENEVE, GTP-U and Teredo, and below IP pseudowires, 802.1ah, FabricPath and service chains. What only looks like one, by a port,
//! must have the fields of its header too.

use crate::bytes::{u8_at, u16_at};
use crate::ip::{Ip, ip_at, ipv4_at, ipv6_at, protocol};
use crate::link::{Link, ethertype, link_at, link_of};

const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;
const TEREDO: u16 = 3544;
const PPP: u16 = 0x880b;
const ERSPAN: u16 = 0x88be;
const ERSPAN_3: u16 = 0x22eb;
/// Tunnels inside tunnels followed before the inner ones are left as they are.
pub(crate) const MAX_DEPTH: usize = 4;

/// What stands at `at`, by its type: an Ethernet frame, or what such a frame carries.
fn typed(frame: &[u8], kind: u16, at: usize) -> Option<Link> {
    match kind {
        ethertype::BRIDGED => link_at(frame, at),
        _ => Some(link_of(frame, kind, at)),
    }
}

/// What a datagram with a transport header carries; `frame` ends with the datagram.
pub(crate) fn inside(frame: &[u8], ip: &Ip) -> Option<Link> {
    let at = ip.payload;
    match ip.protocol {
        protocol::IPV4 => typed(frame, ethertype::IPV4, at),
        protocol::IPV6 => typed(frame, ethertype::IPV6, at),
        protocol::GRE => gre(frame, at),
        protocol::UDP => udp(frame, at),
        _ => None,
    }
}

/// What a link carries that is no network header: the Ethernet frame of a provider's backbone, the packet of a service chain.
pub(crate) fn inside_link(frame: &[u8], link: &Link) -> Option<Link> {
    let at = link.offset;
    match link.ethertype {
        ethertype::MPLS | ethertype::MPLS_MULTICAST => link_at(frame, pseudowire(frame, at)?),
        // Flags and service identifier (IEEE 802.1ah); the forwarding tag of Cisco's FabricPath.
        ethertype::BACKBONE => link_at(frame, at + 4),
        ethertype::FABRIC_PATH => link_at(frame, at + 2),
        // RFC 8300: the length in units of 4 bytes.
        ethertype::NSH => {
            let kind = match u8_at(frame, at + 3)? {
                1 => ethertype::IPV4,
                2 => ethertype::IPV6,
                3 => ethertype::BRIDGED,
                5 => ethertype::MPLS,
                _ => return None,
            };
            typed(
                frame,
                kind,
                at + usize::from(u8_at(frame, at + 1)? & 0x3f) * 4,
            )
        }
        _ => None,
    }
}

/// The innermost IP header of a frame, as an IDS sees its flow; that of the frame itself if it is no tunnel's.
#[must_use]
pub fn innermost(frame: &[u8]) -> Option<Ip> {
    innermost_behind(frame, link_at(frame, 0), MAX_DEPTH + 1)
}

/// The innermost IP header inside of this one; `None` if it is no tunnel's.
#[must_use]
pub fn innermost_of(frame: &[u8], outermost: &Ip) -> Option<Ip> {
    innermost_behind(frame, carried(frame, outermost), MAX_DEPTH)
}

fn innermost_behind(frame: &[u8], mut link: Option<Link>, levels: usize) -> Option<Ip> {
    let mut found = None;
    for _ in 0..levels {
        let Some(around) = link else {
            break;
        };
        let ip = match around.ethertype {
            ethertype::IPV4 => ipv4_at(frame, around.offset),
            ethertype::IPV6 => ipv6_at(frame, around.offset),
            _ => None,
        };
        link = match &ip {
            Some(ip) => carried(frame, ip),
            None => inside_link(frame, &around),
        };
        found = ip.or(found);
    }
    found
}

fn carried(frame: &[u8], ip: &Ip) -> Option<Link> {
    if !ip.has_transport_header() || ip.source_routed {
        return None;
    }
    inside(&frame[..ip.end], ip)
}

/// The Ethernet header behind the labels and the control word of a pseudowire (RFC 4448), which begins with zero where IP has its version.
fn pseudowire(frame: &[u8], labels: usize) -> Option<usize> {
    const MOST_LABELS: usize = 8;
    let bottom = (0..MOST_LABELS)
        .map(|depth| labels + 4 * depth)
        .find(|at| u8_at(frame, at + 2).is_none_or(|byte| byte & 1 == 1))?;
    (u8_at(frame, bottom + 4)? >> 4 == 0).then_some(bottom + 8)
}

/// Where the checksum of a GRE header stands, if it has one.
pub(crate) fn gre_checksum(frame: &[u8], at: usize) -> Option<usize> {
    (u16_at(frame, at)? & 0x8000 != 0).then_some(at + 4)
}

/// RFC 2784 and 2890 (version 0), RFC 2637 (version 1: PPTP). Source routing (RFC 1701) is not followed.
fn gre(frame: &[u8], at: usize) -> Option<Link> {
    const SEQUENCE: u16 = 0x1000;
    let (flags, kind) = (u16_at(frame, at)?, u16_at(frame, at + 2)?);
    if flags & 0x4000 != 0 || flags & 7 > 1 {
        return None;
    }
    // Checksum, key, sequence and acknowledgement are 4 bytes each.
    let optional = [0x8000, 0x2000, SEQUENCE, 0x0080];
    let begin = at + 4 + 4 * optional.iter().filter(|bit| flags & **bit != 0).count();
    match kind {
        // Type I has no header and no sequence number; II has 8 bytes, III 12 and maybe 8 of the platform's.
        ERSPAN if flags & SEQUENCE == 0 => link_at(frame, begin),
        ERSPAN => link_at(frame, begin + 8),
        ERSPAN_3 => {
            let more = u8_at(frame, begin + 11)? & 1;
            link_at(frame, begin + 12 + usize::from(more) * 8)
        }
        PPP => ppp(frame, begin),
        _ => typed(frame, kind, begin),
    }
}

fn ppp(frame: &[u8], at: usize) -> Option<Link> {
    let at = if u16_at(frame, at)? == 0xff03 {
        at + 2
    } else {
        at
    };
    let (kind, at) = match u8_at(frame, at)? {
        short if short & 1 == 1 => (u16::from(short), at + 1),
        _ => (u16_at(frame, at)?, at + 2),
    };
    match kind {
        0x0021 => typed(frame, ethertype::IPV4, at),
        0x0057 => typed(frame, ethertype::IPV6, at),
        _ => None,
    }
}

fn udp(frame: &[u8], at: usize) -> Option<Link> {
    let (source, destination) = (u16_at(frame, at)?, u16_at(frame, at + 2)?);
    let (begin, either) = (at + 8, |port| source == port || destination == port);
    if destination == VXLAN {
        return vxlan(frame, begin);
    }
    if either(GENEVE) {
        return geneve(frame, begin);
    }
    if either(GTP_U) {
        return gtp_u(frame, begin);
    }
    if either(TEREDO) {
        return teredo(frame, begin);
    }
    None
}

/// RFC 7348: the flag of a valid network identifier, and a last byte of zero.
fn vxlan(frame: &[u8], at: usize) -> Option<Link> {
    let is_valid = u8_at(frame, at)? & 8 != 0 && u8_at(frame, at + 7)? == 0;
    is_valid.then(|| link_at(frame, at + 8))?
}

/// RFC 8926: version 0, options in units of 4 bytes.
fn geneve(frame: &[u8], at: usize) -> Option<Link> {
    let first = u8_at(frame, at)?;
    let begin = at + 8 + usize::from(first & 0x3f) * 4;
    (first >> 6 == 0).then(|| typed(frame, u16_at(frame, at + 2)?, begin))?
}

/// A G-PDU of version 1 (3GPP TS 29.281) with its extension headers, whose length is that of the datagram.
fn gtp_u(frame: &[u8], at: usize) -> Option<Link> {
    const MOST_EXTENSIONS: usize = 8;
    let flags = u8_at(frame, at)?;
    let length = usize::from(u16_at(frame, at + 2)?);
    if flags & 0xf0 != 0x30 || u8_at(frame, at + 1)? != 0xff || at + 8 + length > frame.len() {
        return None;
    }
    let mut begin = at + 8;
    if flags & 7 != 0 {
        begin += 4;
        let mut next = u8_at(frame, begin - 1)?;
        for _ in 0..MOST_EXTENSIONS {
            if flags & 4 == 0 || next == 0 {
                break;
            }
            let bytes = usize::from(u8_at(frame, begin)?) * 4;
            begin += bytes.max(4);
            next = u8_at(frame, begin - 1)?;
        }
    }
    of_version(frame, begin)
}

/// RFC 4380: an authentication and an origin indication may stand before the IPv6 header, whose length is that of the datagram.
fn teredo(frame: &[u8], at: usize) -> Option<Link> {
    let mut begin = at;
    if u16_at(frame, begin)? == 1 {
        let sizes = usize::from(u8_at(frame, begin + 2)?) + usize::from(u8_at(frame, begin + 3)?);
        begin += 13 + sizes;
    }
    if u16_at(frame, begin)? == 0 {
        begin += 8;
    }
    let ip = ip_at(frame, begin).filter(|ip| ip.source.is_ipv6())?;
    (ip.claimed_end == frame.len()).then(|| link_of(frame, ethertype::IPV6, begin))
}

fn of_version(frame: &[u8], at: usize) -> Option<Link> {
    match u8_at(frame, at)? >> 4 {
        4 => typed(frame, ethertype::IPV4, at),
        6 => typed(frame, ethertype::IPV6, at),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
