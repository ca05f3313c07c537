//! A walk over the headers of a frame, tunnels and quoted datagrams included: where addresses stand, and checksums over them.

use std::net::IpAddr;

use crate::bytes::{array_at, u8_at};
use crate::tunnel::{MAX_DEPTH, gre_checksum, inside, inside_link};
use crate::view::{self, Ip, Link, ethertype, protocol};

/// What a walk over a frame meets, from the innermost header outwards.
pub(crate) enum Part<'a> {
    /// A header, once everything inside it was met.
    Ip(&'a Ip),
    /// An address that no pseudo header covers: ARP, neighbour discovery.
    Carried { address: IpAddr, offset: usize },
    /// Checksum over payload and pseudo header.
    Transport { offset: usize, udp: bool },
    /// Checksum over the payload alone: ICMP, GRE.
    Payload { offset: usize },
    /// What was met so far stands at an odd place of what is around it, whose checksums have its bytes the other way round.
    Odd,
    /// The header and its checksums are over.
    IpEnd(&'a Ip),
}

type Visitor<'a> = dyn FnMut(Part) + 'a;

/// Shows every part that holds an address or a checksum over one.
pub(crate) fn walk(frame: &[u8], visit: &mut Visitor) {
    if let Some(link) = view::link(frame) {
        walk_link(frame, &link, 0, visit);
    }
}

fn walk_link(frame: &[u8], link: &Link, depth: usize, visit: &mut Visitor) {
    match link.ethertype {
        ethertype::IPV4 => walk_ip(frame, link.offset, 4, depth, visit),
        ethertype::IPV6 => walk_ip(frame, link.offset, 6, depth, visit),
        ethertype::ARP => walk_arp(frame, link.offset, visit),
        _ if depth < MAX_DEPTH => {
            if let Some(inner) = inside_link(frame, link) {
                walk_link(frame, &inner, depth + 1, visit);
            }
        }
        _ => (),
    }
}

fn walk_arp(frame: &[u8], offset: usize, visit: &mut Visitor) {
    // Ethernet and IPv4, and nothing else (RFC 826).
    if array_at(frame, offset) != Some([0, 1, 8, 0, 6, 4]) {
        return;
    }
    for offset in [offset + 14, offset + 24] {
        if let Some(address) = array_at::<4>(frame, offset) {
            visit(Part::Carried {
                address: address.into(),
                offset,
            });
        }
    }
}

/// A datagram of the version that the header around it announces: one of another version is no IP to any stack.
fn walk_ip(frame: &[u8], offset: usize, version: u8, depth: usize, visit: &mut Visitor) {
    let ip = match version {
        4 => view::ipv4_at(frame, offset),
        _ => view::ipv6_at(frame, offset),
    };
    let Some(ip) = ip else {
        return;
    };
    // The pseudo header of a source-routed packet holds an address from the route: left as it is.
    if ip.source_routed || depth == MAX_DEPTH {
        return;
    }
    if ip.has_transport_header() {
        // Padding after the datagram is no part of it, nor of what it carries.
        walk_payload(&frame[..ip.end], &ip, depth, visit);
    }
    visit(Part::Ip(&ip));
    let checksum = if ip.has_transport_header() {
        pseudo_checksum(&ip)
    } else {
        None
    };
    if let Some((offset, udp)) = checksum.filter(|(offset, _)| offset + 2 <= ip.end) {
        visit(Part::Transport { offset, udp });
    }
    visit(Part::IpEnd(&ip));
}

/// Where the checksum over payload and pseudo header stands, and whether it may be left out.
fn pseudo_checksum(ip: &Ip) -> Option<(usize, bool)> {
    match ip.protocol {
        protocol::TCP => Some((ip.payload + 16, false)),
        protocol::UDP => Some((ip.payload + 6, true)),
        protocol::UDP_LITE => Some((ip.payload + 6, false)),
        protocol::ICMPV6 if ip.source.is_ipv6() => Some((ip.payload + 2, false)),
        _ => None,
    }
}

/// Everything inside the transport header, then the checksum that covers only the payload.
fn walk_payload(frame: &[u8], ip: &Ip, depth: usize, visit: &mut Visitor) {
    let at = ip.payload;
    if let Some(link) = inside(frame, ip) {
        walk_link(frame, &link, depth + 1, visit);
        if (link.offset - ip.offset) % 2 == 1 {
            visit(Part::Odd);
        }
    }
    match ip.protocol {
        protocol::GRE => {
            if let Some(offset) = gre_checksum(frame, at) {
                visit(Part::Payload { offset });
            }
        }
        protocol::ICMP | protocol::ICMPV6 => {
            if let Some(quoted) = view::quoted_datagram(frame, ip) {
                let version = if ip.source.is_ipv4() { 4 } else { 6 };
                walk_ip(frame, quoted, version, depth + 1, visit);
            }
            if ip.protocol == protocol::ICMPV6 {
                walk_neighbour_discovery(frame, at, visit);
            } else if at + 4 <= ip.end {
                visit(Part::Payload { offset: at + 2 });
            }
        }
        _ => (),
    }
}

/// Targets of neighbour solicitation, advertisement and redirect (RFC 4861).
fn walk_neighbour_discovery(frame: &[u8], at: usize, visit: &mut Visitor) {
    let offsets: &[usize] = match u8_at(frame, at) {
        Some(135 | 136) => &[8],
        Some(137) => &[8, 24],
        _ => &[],
    };
    for offset in offsets.iter().map(|offset| at + offset) {
        if let Some(address) = array_at::<16>(frame, offset) {
            visit(Part::Carried {
                address: address.into(),
                offset,
            });
        }
    }
}
