//! Frames that offloads joined, as the wire carries them: TCP segments, and fragments of other datagrams.
//!
//! A capture made on a host has what TSO hands to the NIC and what GRO hands to the stack. Linux splits by the maximum segment size and
//! counts the identification up; FIN and PSH stay on the last segment, CWR on the first (net/ipv4/tcp_offload.c).

use crate::checksum::{fold, sum};
use crate::ip::{Ip, protocol};
use crate::tunnel::gre_checksum;
use crate::view;
use crate::walk::{Part, walk};

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
/// IPv6's own header.
const IPV6_BYTES: usize = 40;
const FRAGMENT_HEADER_BYTES: usize = 8;

/// The outermost TCP header of a frame, whole and no fragment.
#[derive(Debug, Clone, Copy)]
pub struct Tcp {
    ip: Ip,
    /// Where its payload begins.
    payload: usize,
}

impl Tcp {
    /// `None` if there is none, or it is cut.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let ip = view::network(frame).filter(|ip| ip.protocol == protocol::TCP)?;
        let words = frame
            .get(ip.payload + 12)
            .filter(|_| ip.fragment.is_none())?
            >> 4;
        let payload = ip.payload + usize::from(words) * 4;
        (words >= 5 && payload <= ip.end).then_some(Self { ip, payload })
    }

    /// Bytes from the IP header to the end of the datagram.
    #[must_use]
    pub fn ip_bytes(&self) -> usize {
        self.ip.end - self.ip.offset
    }

    /// Bytes of its payload in the longest datagram of so many bytes.
    #[must_use]
    pub fn room(&self, mtu: usize) -> usize {
        mtu.saturating_sub(self.payload - self.ip.offset)
    }

    /// The greatest payload that the sender of a SYN takes (RFC 9293, option 2), without options.
    #[must_use]
    pub fn maximum_segment_size(&self, frame: &[u8]) -> Option<u16> {
        const SYN: u8 = 0x02;
        if frame.get(self.ip.payload + 13)? & SYN == 0 {
            return None;
        }
        let mut options = frame.get(self.ip.payload + 20..self.payload)?;
        while let [kind, rest @ ..] = options {
            match (kind, rest) {
                (0, _) => return None,
                (1, _) => options = rest,
                (2, [4, high, low, ..]) => return Some(u16::from_be_bytes([*high, *low])),
                (_, [length, ..]) => options = options.get(usize::from(*length).max(2)..)?,
                _ => return None,
            }
        }
        None
    }

    /// IP version 4 has a length field of 16 bits that stands in the header; so has 6, unless it is a jumbogram.
    fn has_length_field(&self) -> bool {
        self.ip.source.is_ipv4() || self.ip.payload == self.ip.offset + IPV6_BYTES
    }

    /// Shows the segments of at most `room` bytes of payload each, and says how many; the frame itself is left out if it is one that cannot be
    /// split. Checksums are right ones: what joined the segments had checked or not yet written them.
    pub fn split(&self, frame: &[u8], room: usize, each: &mut dyn FnMut(&[u8])) -> usize {
        if room == 0 || !self.has_length_field() {
            return 0;
        }
        let (header, payload) = (&frame[..self.payload], &frame[self.payload..self.ip.end]);
        let pieces = payload.len().div_ceil(room).max(1);
        for (number, at) in (0..pieces).map(|number| (number, number * room)) {
            let piece = &payload[at..(at + room).min(payload.len())];
            let mut segment = [header, piece].concat();
            let tcp = &mut segment[self.ip.payload..];
            add(&mut tcp[4..8], at);
            if number + 1 < pieces {
                tcp[13] &= !FIN_PSH;
            }
            if number > 0 {
                tcp[13] &= !CWR;
            }
            write_length(&mut segment, &self.ip, number);
            write_checksum(&mut segment, &self.ip, 16);
            each(&segment);
        }
        pieces
    }
}

/// Shows the fragments of a datagram that is no TCP segment, at most `mtu` bytes each, and says how many; 0 if it cannot be taken apart:
/// it is no IP, a fragment, cut, or has IPv6 extension headers. `id` is its identification if it has none, as what was not to be fragmented.
pub fn fragments(frame: &[u8], mtu: usize, id: u32, each: &mut dyn FnMut(&[u8])) -> usize {
    let Some(ip) = view::network(frame) else {
        return 0;
    };
    let v4 = ip.source.is_ipv4();
    let plain = v4 || ip.payload == ip.offset + IPV6_BYTES;
    let is_cut = ip.end < ip.claimed_end || ip.end < ip.payload;
    if ip.fragment.is_some() || !plain || is_cut {
        return 0;
    }
    let headers = ip.payload - ip.offset + if v4 { 0 } else { FRAGMENT_HEADER_BYTES };
    let room = mtu.saturating_sub(headers) & !7;
    let mut whole = frame[..ip.end].to_vec();
    if room == 0 || whole.len() - ip.payload > usize::from(u16::MAX) {
        return 0;
    }
    // A checksum that the NIC was to write covers all fragments; a UDP checksum of zero is none.
    let checksum = ip.payload + 6;
    if ip.protocol == protocol::UDP
        && whole
            .get(checksum..checksum + 2)
            .is_some_and(|c| c != [0, 0])
    {
        write_checksum(&mut whole, &ip, 6);
    }
    let (header, payload) = whole.split_at(ip.payload);
    let pieces = payload.len().div_ceil(room).max(1);
    for at in (0..pieces).map(|number| number * room) {
        let piece = &payload[at..(at + room).min(payload.len())];
        let more = at + room < payload.len();
        let offset = u16::try_from(at).unwrap_or(u16::MAX);
        let mut fragment = header.to_vec();
        if v4 {
            let ipv4 = &mut fragment[ip.offset..];
            if ipv4[4..6] == [0, 0] {
                ipv4[4..6].copy_from_slice(&id.to_be_bytes()[2..]);
            }
            ipv4[6..8].copy_from_slice(&(offset >> 3 | u16::from(more) << 13).to_be_bytes());
        } else {
            let next = std::mem::replace(&mut fragment[ip.offset + 6], protocol::FRAGMENT);
            fragment.extend([next, 0]);
            fragment.extend((offset | u16::from(more)).to_be_bytes());
            fragment.extend(id.to_be_bytes());
        }
        fragment.extend(piece);
        write_length(&mut fragment, &ip, 0);
        each(&fragment);
    }
    pieces
}

/// Makes the checksums of a frame right whose payload is not what was captured: those of TCP, UDP, ICMP and GRE, in tunnels from the
/// innermost outwards. What an ICMP message quotes was cut before it was sent, and stays.
pub fn write_checksums(frame: &mut [u8]) {
    let mut headers: Vec<Ip> = Vec::new();
    walk(frame, &mut |part| {
        if let Part::IpEnd(ip) = part {
            if matches!(ip.protocol, protocol::ICMP | protocol::ICMPV6) {
                headers.clear();
            }
            headers.push(*ip);
        }
    });
    for ip in headers.iter().filter(|ip| ip.fragment.is_none()) {
        let at = match ip.protocol {
            protocol::TCP => 16,
            protocol::UDP => 6,
            protocol::ICMP | protocol::ICMPV6 => 2,
            protocol::GRE if gre_checksum(frame, ip.payload).is_some() => 4,
            _ => continue,
        };
        let place = ip.payload + at..ip.payload + at + 2;
        let is_none = ip.protocol == protocol::UDP && frame.get(place) == Some(&[0, 0]);
        if !is_none && ip.payload + at + 2 <= ip.end {
            write_checksum(frame, ip, at);
        }
    }
}

fn add(field: &mut [u8], more: usize) {
    if let Some(field) = field.first_chunk_mut::<4>() {
        let more = u32::try_from(more).unwrap_or(0);
        *field = u32::from_be_bytes(*field).wrapping_add(more).to_be_bytes();
    }
}

/// Length, identification and header checksum of the frame's IP header, which reaches to its end.
fn write_length(frame: &mut [u8], ip: &Ip, number: usize) {
    let bytes = frame.len() - ip.offset;
    let header = &mut frame[ip.offset..];
    if ip.source.is_ipv6() {
        let length = u16::try_from(bytes - IPV6_BYTES).unwrap_or(0);
        header[4..6].copy_from_slice(&length.to_be_bytes());
        return;
    }
    header[2..4].copy_from_slice(&u16::try_from(bytes).unwrap_or(0).to_be_bytes());
    let id = u16::from_be_bytes([header[4], header[5]]);
    let number = u16::try_from(number & 0xffff).unwrap_or(0);
    header[4..6].copy_from_slice(&id.wrapping_add(number).to_be_bytes());
    header[10..12].fill(0);
    let options = ip.payload - ip.offset;
    let checksum = !fold(sum(&header[..options]));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The checksum at `at` of the payload that reaches to the frame's end or the datagram's, whichever comes first.
fn write_checksum(frame: &mut [u8], ip: &Ip, at: usize) {
    let end = if frame.len() < ip.end {
        frame.len()
    } else {
        ip.end
    };
    let (header, mut payload) = frame[..end].split_at_mut(ip.payload);
    if let (protocol::UDP, Some([_, _, _, _, high, low])) =
        (ip.protocol, payload.first_chunk::<6>())
    {
        // The datagram may end before the packet does (RFC 768: its own length counts).
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if (8..payload.len()).contains(&length) {
            payload = &mut payload[..length];
        }
    }
    payload[at..at + 2].fill(0);
    let length = u32::try_from(payload.len()).unwrap_or(0);
    let pseudo = match (ip.protocol, ip.source.is_ipv4()) {
        (protocol::ICMP | protocol::GRE, _) => 0,
        (kind, true) => {
            u64::from(sum(&header[ip.offset + 12..ip.offset + 20]))
                + u64::from(kind)
                + u64::from(length)
        }
        (kind, false) => {
            u64::from(sum(&header[ip.offset + 8..ip.offset + 40]))
                + u64::from(kind)
                + u64::from(length)
        }
    };
    let folded = u32::try_from((pseudo & 0xffff) + (pseudo >> 16)).unwrap_or(0);
    let checksum = match !fold(folded + sum(payload)) {
        0 if ip.protocol == protocol::UDP => 0xffff,
        checksum => checksum,
    };
    payload[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
    use super::*;
    use crate::view::tests::{ethernet, ipv4};
    use proptest::prelude::*;

    fn tcp(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let words = 5 + options.len() as u8 / 4;
        let mut tcp = vec![
            4,
            0,
            0,
            80,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            9,
            words << 4,
            flags,
            1,
            0,
            7,
            7,
            0,
            0,
        ];
        tcp.extend(options);
        tcp.extend(payload);
        tcp
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend((payload.len() as u16).to_be_bytes());
        ip.extend([next, 64]);
        ip.extend([1; 16]);
        ip.extend([2; 16]);
        ip.extend(payload);
        ethernet(0x86dd, &ip)
    }

    /// Whether every checksum of the frame is the right one.
    fn is_right(frame: &[u8]) -> bool {
        let mut again = frame.to_vec();
        write_checksums(&mut again);
        let ip = view::network(frame).unwrap();
        let header = ip.source.is_ipv6() || fold(sum(&frame[ip.offset..ip.payload])) == 0xffff;
        header && again == frame
    }

    fn split(frame: &[u8], room: usize) -> Vec<Vec<u8>> {
        let mut segments = Vec::new();
        let pieces = Tcp::of_frame(frame)
            .unwrap()
            .split(frame, room, &mut |segment| segments.push(segment.to_vec()));
        assert_eq!(pieces, segments.len());
        segments
    }

    #[test]
    fn a_joined_segment_is_split_as_the_wire_carries_it() {
        let payload: Vec<u8> = (0..2_500_u32).map(|byte| byte as u8).collect();
        let inner = tcp(0x99, &[1, 1, 1, 0], &payload); // CWR, ACK, PSH, FIN
        for frame in [
            ethernet(
                0x0800,
                &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 6, 0x4000, &inner),
            ),
            ethernet(
                0x8100,
                &[
                    &[0, 7, 8, 0][..],
                    &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 6, 0, &inner),
                ]
                .concat(),
            ),
            ipv6(6, &inner),
        ] {
            let segments = split(&frame, 1_000);
            let mut sent = Vec::new();
            for (number, segment) in segments.iter().enumerate() {
                let view = Tcp::of_frame(segment).unwrap();
                let tcp = &segment[view.ip.payload..];
                assert_eq!(view.ip.claimed_end, segment.len());
                assert_eq!(
                    u32::from_be_bytes(*tcp[4..].first_chunk().unwrap()),
                    256 + 1_000 * number as u32
                );
                assert_eq!(tcp[13], [0x90, 0x10, 0x19][number]);
                assert!(is_right(segment), "{number}");
                sent.extend(&segment[view.payload..]);
            }
            assert_eq!((segments.len(), sent), (3, payload.clone()));
        }
        let frame = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 6, 0, &inner));
        let ids: Vec<_> = split(&frame, 1_000).iter().map(|s| s[19]).collect();
        assert_eq!(ids, [7, 8, 9]);
    }

    #[test]
    fn a_length_that_was_not_written_yet_is() {
        let mut frame = ethernet(
            0x0800,
            &ipv4(
                [10, 0, 0, 1],
                [10, 0, 0, 2],
                6,
                0,
                &tcp(0x10, &[], &[5; 100]),
            ),
        );
        frame[16..18].fill(0);
        let [segment] = split(&frame, 1_460).try_into().unwrap();
        assert_eq!(segment[16..18], 140_u16.to_be_bytes());
        assert!(is_right(&segment));
    }

    #[test]
    fn the_size_of_segments_is_read_from_the_handshake() {
        let of = |flags, options: &[u8]| {
            let frame = ethernet(
                0x0800,
                &ipv4(
                    [10, 0, 0, 1],
                    [10, 0, 0, 2],
                    6,
                    0,
                    &tcp(flags, options, &[]),
                ),
            );
            Tcp::of_frame(&frame).unwrap().maximum_segment_size(&frame)
        };
        assert_eq!(of(0x02, &[1, 1, 4, 2, 2, 4, 5, 0xb4]), Some(1_460));
        assert_eq!(of(0x12, &[2, 4, 0x23, 0]), Some(8_960));
        assert_eq!(of(0x10, &[2, 4, 0x23, 0]), None, "no SYN");
        assert_eq!(of(0x02, &[1, 1, 1, 0]), None);
    }

    #[test]
    fn a_long_datagram_becomes_fragments() {
        let payload: Vec<u8> = [&[0, 53, 0, 53, 0x0b, 0xb8, 1, 1][..], &[9; 2_992]].concat();
        for frame in [
            ethernet(
                0x0800,
                &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0x4000, &payload),
            ),
            ipv6(17, &payload),
        ] {
            let mut pieces = Vec::new();
            let count = fragments(&frame, 1_500, 77, &mut |piece| pieces.push(piece.to_vec()));
            assert_eq!((count, pieces.len()), (3, 3));
            let mut carried = Vec::new();
            for (number, piece) in pieces.iter().enumerate() {
                let ip = view::network(piece).unwrap();
                let fragment = ip.fragment.unwrap();
                assert!(ip.claimed_end == piece.len() && ip.end - ip.offset <= 1_500);
                assert_eq!(fragment.offset_bytes as usize, carried.len());
                assert_eq!(fragment.more, number < 2);
                carried.extend(&piece[ip.payload..]);
            }
            // The datagram with the right checksum.
            let mut whole = [&frame[..frame.len() - payload.len()], &carried].concat();
            assert!(carried[8..] == payload[8..] && carried[6..8] != payload[6..8]);
            let before = whole.clone();
            write_checksums(&mut whole);
            assert_eq!(whole, before);
        }
    }

    #[test]
    fn a_checksum_covers_what_its_datagram_says_and_no_quote() {
        let mut udp = vec![0, 53, 0, 53, 0, 12, 9, 9, 1, 2, 3, 4, 0xaa, 0xbb];
        let mut frame = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &udp));
        write_checksums(&mut frame);
        udp.truncate(12);
        let mut exact = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &udp));
        write_checksums(&mut exact);
        assert_eq!(
            frame[40..42],
            exact[40..42],
            "two bytes behind the datagram"
        );

        let quoted = ipv4([10, 0, 0, 2], [10, 0, 0, 1], 17, 0, &udp);
        let icmp = [&[3, 3, 0, 0, 0, 0, 0, 0], &quoted[..]].concat();
        let mut frame = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &icmp));
        let before = frame.clone();
        write_checksums(&mut frame);
        assert_eq!(fold(sum(&frame[34..])), 0xffff);
        assert_eq!(frame[38..], before[38..], "the quoted checksum stays");
    }

    #[test]
    fn what_cannot_be_taken_apart_is_left() {
        let fragment = ethernet(
            0x0800,
            &ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, 0x2000, &[1; 1_600]),
        );
        let cut = &ethernet(
            0x0800,
            &ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, 0, &[1; 1_600]),
        )[..1_000];
        for frame in [&fragment[..], cut, &[2; 60]] {
            assert_eq!(fragments(frame, 600, 1, &mut |_| panic!()), 0);
            assert!(Tcp::of_frame(frame).is_none());
        }
    }

    proptest! {
        #[test]
        fn any_frame_is_borne(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..2, room in 0usize..100) {
            let mut frame = ethernet([0x0800, 0x86dd][kind], &bytes);
            let mut count = 0;
            if let Some(tcp) = Tcp::of_frame(&frame) {
                let _ = tcp.maximum_segment_size(&frame);
                prop_assert_eq!(tcp.split(&frame, room, &mut |_| count += 1), count);
            }
            count = 0;
            prop_assert_eq!(fragments(&frame, room, 1, &mut |_| count += 1), count);
            write_checksums(&mut frame);
        }
    }
}
