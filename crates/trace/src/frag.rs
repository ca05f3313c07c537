//! IPv4 fragments, as `ip_check_defrag` of an AF_PACKET fanout group with PACKET_FANOUT_FLAG_DEFRAG picks them out of a trace.

use nodrop_wire::view::ethertype;

use crate::tap::{ETHERNET_HEADER_BYTES, Protocol, innermost, tap_view};

const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;
const IPV6_HEADER_BYTES: usize = 40;

/// What names a datagram in reassembly (the kernel adds the user, AF_PACKET, and the VRF: constant here).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Identification field.
    pub id: u16,
    /// Protocol field.
    pub protocol: u8,
}

/// A fragment that the kernel takes into reassembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// The datagram it belongs to.
    pub key: Key,
    /// Where its payload begins in the datagram's.
    pub offset: u32,
    /// Where its payload ends, by the IP total length.
    pub end: u32,
    /// The "more fragments" flag.
    pub more: bool,
    /// Length of its IP header.
    pub header_bytes: u32,
    /// Bit 0..3 for the ECN codepoint (RFC 3168) it carries.
    pub ecn_bit: u8,
    /// Captured length of the frame, which decides how much kernel memory it takes.
    pub frame_bytes: u32,
    /// Length of the frame at the tap: without its outermost VLAN tag.
    pub tap_bytes: u32,
}

/// Why a frame that carries a fragment is delivered as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untouched {
    /// The capture holds less than the IP header announces.
    CaptureCut,
    /// Version, header length or total length make no sense.
    BadHeader,
    /// A second VLAN tag hides the IP header: only one is stripped before the tap.
    SecondTag,
    /// IPv6 fragments are not the business of this flag.
    Ipv6,
}

/// What fanout defragmentation makes of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defrag {
    /// Not a fragment.
    Whole,
    /// Goes into reassembly and is seen again only as part of a complete datagram.
    Taken(Fragment),
    /// A fragment that passes untouched.
    Untouched(Untouched),
}

/// Decides as `ip_check_defrag` does (net/ipv4/ip_fragment.c, 6.x).
#[must_use]
pub fn classify(frame: &[u8]) -> Defrag {
    let Some(view) = tap_view(frame) else {
        return Defrag::Whole;
    };
    match view.protocol {
        Protocol::EtherType(ethertype::IPV4) => ipv4(view.network, frame.len()),
        Protocol::EtherType(ethertype::IPV6) => ipv6(view.network),
        _ => match innermost(view) {
            (Protocol::EtherType(ethertype::IPV4), network) if is_ipv4_fragment(network) => {
                Defrag::Untouched(Untouched::SecondTag)
            }
            (Protocol::EtherType(ethertype::IPV6), network) => ipv6(network),
            _ => Defrag::Whole,
        },
    }
}

fn is_ipv4_fragment(ip: &[u8]) -> bool {
    ip.len() >= 20 && be16(ip, 6) & (MORE_FRAGMENTS | OFFSET_MASK) != 0
}

fn ipv4(ip: &[u8], frame_bytes: usize) -> Defrag {
    if !is_ipv4_fragment(ip) {
        return Defrag::Whole;
    }
    let header_bytes = u32::from(ip[0] & 0xf) * 4;
    let total_bytes = u32::from(be16(ip, 2));
    if ip[0] >> 4 != 4 || header_bytes < 20 {
        return Defrag::Untouched(Untouched::BadHeader);
    }
    if (ip.len() as u64) < u64::from(total_bytes) {
        return Defrag::Untouched(Untouched::CaptureCut);
    }
    if total_bytes < header_bytes {
        return Defrag::Untouched(Untouched::BadHeader);
    }
    let flags = be16(ip, 6);
    let offset = u32::from(flags & OFFSET_MASK) * 8;
    Defrag::Taken(Fragment {
        key: Key {
            source: be32(ip, 12),
            destination: be32(ip, 16),
            id: be16(ip, 4),
            protocol: ip[9],
        },
        offset,
        end: offset + total_bytes - header_bytes,
        more: flags & MORE_FRAGMENTS != 0,
        header_bytes,
        ecn_bit: 1 << (ip[1] & 3),
        frame_bytes: u32::try_from(frame_bytes).unwrap_or(u32::MAX),
        tap_bytes: u32::try_from(ETHERNET_HEADER_BYTES + ip.len()).unwrap_or(u32::MAX),
    })
}

/// Walks the extension headers (RFC 8200 4.1) as far as the capture goes.
fn ipv6(ip: &[u8]) -> Defrag {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    if ip.len() < IPV6_HEADER_BYTES || ip[0] >> 4 != 6 {
        return Defrag::Whole;
    }
    let (mut next, mut at) = (ip[6], IPV6_HEADER_BYTES);
    while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) && at + 1 < ip.len() {
        next = ip[at];
        at += (usize::from(ip[at + 1]) + 1) * 8;
    }
    if next == FRAGMENT {
        Defrag::Untouched(Untouched::Ipv6)
    } else {
        Defrag::Whole
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet frame with an IPv4 header of 20 bytes and `payload` bytes after it.
    fn frame(flags: u16, payload: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0x02]);
        frame.extend((20 + payload).to_be_bytes());
        frame.extend([0, 9]);
        frame.extend(flags.to_be_bytes());
        frame.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(vec![0; payload.into()]);
        frame
    }

    #[test]
    fn a_fragment_is_read() {
        let expected = Fragment {
            key: Key {
                source: 0x0a00_0001,
                destination: 0x0a00_0002,
                id: 9,
                protocol: 17,
            },
            offset: 24,
            end: 56,
            more: true,
            header_bytes: 20,
            ecn_bit: 0b100,
            frame_bytes: 66,
            tap_bytes: 66,
        };
        assert_eq!(classify(&frame(0x2003, 32)), Defrag::Taken(expected));
        let mut padded = frame(0x2003, 32);
        padded.extend([0; 4]);
        assert_eq!(
            classify(&padded),
            Defrag::Taken(Fragment {
                frame_bytes: 70,
                tap_bytes: 70,
                ..expected
            })
        );
        assert_eq!(classify(&frame(0x4000, 32)), Defrag::Whole);
        assert_eq!(classify(&frame(0x8000, 32)), Defrag::Whole);
    }

    #[test]
    fn what_the_kernel_leaves_alone_is_named() {
        let whole = frame(3, 32);
        assert_eq!(
            classify(&whole[..whole.len() - 1]),
            Defrag::Untouched(Untouched::CaptureCut)
        );
        for (at, value) in [(14, 0x44), (14, 0x65), (17, 19)] {
            let mut bad = whole.clone();
            bad[at] = value;
            assert_eq!(classify(&bad), Defrag::Untouched(Untouched::BadHeader));
        }
        let tag = |frame: &[u8]| [&frame[..12], [0x81, 0, 0, 5].as_slice(), &frame[12..]].concat();
        let once = tag(&whole);
        let Defrag::Taken(tagged) = classify(&once) else {
            panic!("not taken");
        };
        assert_eq!((tagged.frame_bytes, tagged.tap_bytes), (70, 66));
        assert_eq!(
            classify(&tag(&once)),
            Defrag::Untouched(Untouched::SecondTag)
        );
    }

    #[test]
    fn ipv6_fragments_are_found_behind_other_headers() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 0, 64]);
        frame.extend([0; 32]);
        frame.extend([44, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend([17, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(classify(&frame), Defrag::Untouched(Untouched::Ipv6));
        frame[14 + 40] = 17;
        assert_eq!(classify(&frame), Defrag::Whole);
    }
}
