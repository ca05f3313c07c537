//! Frames from headers and payload, with right lengths and checksums.

use std::net::IpAddr;

use nodrop_wire::checksum::{fold, sum};
use nodrop_wire::view::{ethertype, protocol};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Shortest frame on a wire, without its checksum.
pub const SHORTEST_FRAME_BYTES: usize = 60;
/// One direction between two hosts, up to and with IP.
#[derive(Debug, Clone)]
pub struct Way {
    /// Ethernet source.
    pub source_mac: Mac,
    /// Ethernet destination.
    pub destination_mac: Mac,
    /// VLAN tags from the outside in: EtherType and number.
    pub tags: Vec<(u16, u16)>,
    /// IP source.
    pub source: IpAddr,
    /// IP destination, of the same family.
    pub destination: IpAddr,
    /// Time to live as seen here.
    pub ttl: u8,
}

/// TCP flags.
pub mod flag {
    /// No more from this side.
    pub const FIN: u8 = 1;
    /// Begin.
    pub const SYN: u8 = 2;
    /// Break off.
    pub const RST: u8 = 4;
    /// Hand over at once.
    pub const PSH: u8 = 8;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 16;
}

/// A TCP header.
#[derive(Debug, Clone, Copy)]
pub struct TcpHeader<'a> {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// From [`flag`].
    pub flags: u8,
    /// Options, a multiple of four bytes.
    pub options: &'a [u8],
}

/// Ethernet header, tags and type.
pub fn ethernet(out: &mut Vec<u8>, destination: Mac, source: Mac, tags: &[(u16, u16)], kind: u16) {
    out.extend(destination);
    out.extend(source);
    for (ethertype, number) in tags {
        out.extend(ethertype.to_be_bytes());
        out.extend(number.to_be_bytes());
    }
    out.extend(kind.to_be_bytes());
}

/// Zeroes up to the shortest frame that a wire carries.
pub fn pad(out: &mut Vec<u8>, begin: usize) {
    let end = begin + SHORTEST_FRAME_BYTES;
    if out.len() < end {
        out.resize(end, 0);
    }
}

/// A whole frame with an IP packet; `transport` writes what follows the IP header.
pub fn ip(
    out: &mut Vec<u8>,
    way: &Way,
    id: u16,
    protocol: u8,
    transport: impl FnOnce(&mut Vec<u8>),
) {
    let begin = out.len();
    match (way.source, way.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ethernet(
                out,
                way.destination_mac,
                way.source_mac,
                &way.tags,
                ethertype::IPV4,
            );
            let header = out.len();
            // Do not fragment: as every TCP stack sets it. Fragments are made by `fragments`.
            out.extend([0x45, 0, 0, 0]);
            out.extend(id.to_be_bytes());
            out.extend([0x40, 0, way.ttl, protocol, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            transport(out);
            let total = length16(out.len() - header);
            out[header + 2..header + 4].copy_from_slice(&total);
            seal_ipv4(&mut out[header..header + 20]);
            seal_transport(&mut out[header..], 20, protocol);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ethernet(
                out,
                way.destination_mac,
                way.source_mac,
                &way.tags,
                ethertype::IPV6,
            );
            let header = out.len();
            out.extend([0x60, 0, 0, 0, 0, 0, protocol, way.ttl]);
            out.extend(source.octets());
            out.extend(destination.octets());
            transport(out);
            let payload = length16(out.len() - header - 40);
            out[header + 4..header + 6].copy_from_slice(&payload);
            seal_transport(&mut out[header..], 40, protocol);
        }
        _ => unreachable!("both ends of a way are of one family"),
    }
    pad(out, begin);
}

/// A UDP header and payload, to stand after an IP header.
pub fn udp(out: &mut Vec<u8>, source: u16, destination: u16, payload: &[u8]) {
    out.extend(source.to_be_bytes());
    out.extend(destination.to_be_bytes());
    out.extend(length16(8 + payload.len()));
    out.extend([0, 0]);
    out.extend(payload);
}

/// A TCP header and payload, to stand after an IP header.
pub fn tcp(out: &mut Vec<u8>, header: TcpHeader<'_>, payload: &[u8]) {
    const WINDOW: u16 = 0xfaf0;
    out.extend(header.source.to_be_bytes());
    out.extend(header.destination.to_be_bytes());
    out.extend(header.sequence.to_be_bytes());
    out.extend(header.acknowledgement.to_be_bytes());
    let words = length16(5 + header.options.len() / 4)[1];
    out.extend([words << 4, header.flags]);
    out.extend(WINDOW.to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend(header.options);
    out.extend(payload);
}

/// The frames of one UDP datagram over IPv4, cut so that each IP packet has at most `mtu` bytes.
#[must_use]
pub fn fragments(
    way: &Way,
    id: u16,
    ports: (u16, u16),
    payload: &[u8],
    mtu: usize,
) -> Vec<Vec<u8>> {
    let mut whole = Vec::new();
    ip(&mut whole, way, id, protocol::UDP, |out| {
        udp(out, ports.0, ports.1, payload)
    });
    let header = 14 + 4 * way.tags.len();
    let datagram = header + 20;
    let end = datagram + 8 + payload.len();
    let step = (mtu - 20) & !7;
    (datagram..end)
        .step_by(step)
        .map(|begin| {
            let piece = &whole[begin..end.min(begin + step)];
            let mut frame = whole[..datagram].to_vec();
            frame.extend(piece);
            let more = if begin + step < end { 0x2000 } else { 0 };
            let field = u16::from_be_bytes(length16((begin - datagram) / 8)) | more;
            frame[header + 2..header + 4].copy_from_slice(&length16(20 + piece.len()));
            frame[header + 6..header + 8].copy_from_slice(&field.to_be_bytes());
            seal_ipv4(&mut frame[header..datagram]);
            pad(&mut frame, 0);
            frame
        })
        .collect()
}

/// Sets the checksum of an IPv4 header.
fn seal_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let value = !fold(sum(header));
    header[10..12].copy_from_slice(&value.to_be_bytes());
}

/// Sets the checksum of what follows an IP header of `header_bytes`.
fn seal_transport(packet: &mut [u8], header_bytes: usize, kind: u8) {
    let addresses = if header_bytes == 20 { 12..20 } else { 8..40 };
    let (header, segment) = packet.split_at_mut(header_bytes);
    let at = match kind {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => 2,
    };
    let pseudo = if kind == protocol::ICMP {
        0
    } else {
        let length = u32::from(u16::from_be_bytes(length16(segment.len())));
        sum(&header[addresses]) + u32::from(kind) + length
    };
    segment[at..at + 2].fill(0);
    let mut value = !fold(pseudo + sum(segment));
    // RFC 768: zero means "no checksum", so a sum of zero is sent as all ones.
    if kind == protocol::UDP && value == 0 {
        value = 0xffff;
    }
    segment[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A length that fits 16 bits by construction: no packet here is longer than a datagram.
#[allow(clippy::cast_possible_truncation)]
fn length16(length: usize) -> [u8; 2] {
    debug_assert!(length <= 0xffff);
    (length as u16).to_be_bytes()
}
