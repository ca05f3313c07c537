//! Which checksums of a trace are right: a capture taken before offload wrote them holds wrong ones, and an IDS may then look away.

use nodrop_wire::checksum::{fold, sum};
use nodrop_wire::view::{Ip, protocol};
use schemars::JsonSchema;
use serde::Serialize;

/// Frames by the state of one checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Verified {
    /// It fits.
    pub right: u64,
    /// It does not.
    pub wrong: u64,
    /// The sender left it out (UDP over IPv4, RFC 768).
    pub absent: u64,
    /// Fragments and cut captures: what it covers is not there.
    pub unverifiable: u64,
}

/// All checksums of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Checksums {
    /// Headers of IPv4.
    pub ipv4_header: Verified,
    /// TCP over both.
    pub tcp: Verified,
    /// UDP over both.
    pub udp: Verified,
    /// ICMP.
    pub icmp: Verified,
    /// ICMPv6.
    pub icmpv6: Verified,
}

enum State {
    Right,
    Wrong,
    Absent,
    Unverifiable,
}

impl Verified {
    fn count(&mut self, state: &State) {
        *match state {
            State::Right => &mut self.right,
            State::Wrong => &mut self.wrong,
            State::Absent => &mut self.absent,
            State::Unverifiable => &mut self.unverifiable,
        } += 1;
    }

    /// Frames that have such a checksum at all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.right + self.wrong + self.absent + self.unverifiable
    }
}

impl Checksums {
    /// Looks at the outermost IP header of a frame and at what it carries.
    pub fn add(&mut self, frame: &[u8], ip: &Ip) {
        if ip.source.is_ipv4() {
            self.ipv4_header.count(&header(frame, ip));
        }
        let (verified, at) = match ip.protocol {
            protocol::TCP => (&mut self.tcp, 16),
            protocol::UDP => (&mut self.udp, 6),
            protocol::ICMP => (&mut self.icmp, 2),
            protocol::ICMPV6 => (&mut self.icmpv6, 2),
            _ => return,
        };
        verified.count(&transport(frame, ip, at));
    }
}

fn header(frame: &[u8], ip: &Ip) -> State {
    let bytes = usize::from(frame[ip.offset] & 0xf) * 4;
    match frame.get(ip.offset..ip.offset + bytes) {
        None => State::Unverifiable,
        Some(header) if fold(sum(header)) == 0xffff => State::Right,
        Some(_) => State::Wrong,
    }
}

fn transport(frame: &[u8], ip: &Ip, at: usize) -> State {
    let mut segment = ip.payload(frame);
    if ip.fragment.is_some() || ip.source_routed || ip.claimed_end > frame.len() {
        return State::Unverifiable;
    }
    if ip.protocol == protocol::UDP {
        // The datagram may end before the packet does (RFC 768: its own length counts).
        let length = segment.get(4..6).map_or(0, |field| {
            usize::from(u16::from_be_bytes([field[0], field[1]]))
        });
        if length >= 8 {
            segment = segment.get(..length).unwrap_or(segment);
        }
    }
    let Some(field) = segment.get(at..at + 2) else {
        return State::Unverifiable;
    };
    if ip.protocol == protocol::UDP && field == [0, 0] && ip.source.is_ipv4() {
        return State::Absent;
    }
    let pseudo = if ip.protocol == protocol::ICMP {
        0
    } else {
        pseudo_header(frame, ip, segment.len())
    };
    if fold(pseudo + sum(segment)) == 0xffff {
        State::Right
    } else {
        State::Wrong
    }
}

fn pseudo_header(frame: &[u8], ip: &Ip, length: usize) -> u32 {
    let addresses = if ip.source.is_ipv4() { 12..20 } else { 8..40 };
    let addresses = &frame[ip.offset + addresses.start..ip.offset + addresses.end];
    sum(addresses) + u32::from(ip.protocol) + u32::try_from(length).unwrap_or(0)
}
