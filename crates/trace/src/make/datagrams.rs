//! Conversations over UDP and ICMP, and frames that are no IP at all.

use std::net::Ipv4Addr;

use nodrop_wire::view::protocol;

use crate::make::frame::{self, Mac};
use crate::make::names;
use crate::make::packets::Packets;
use crate::make::rng::Rng;
use crate::make::tcp::{Path, Side};
use crate::make::time::MILLISECOND_NS;

/// Datagrams between two ports.
struct Udp<'a> {
    out: &'a mut Packets,
    path: &'a Path,
    ip_id: [u16; 2],
}

impl<'a> Udp<'a> {
    #[allow(clippy::cast_possible_truncation)] // random bits
    fn new(out: &'a mut Packets, rng: &mut Rng, path: &'a Path) -> Self {
        let ip_id = [rng.next_u64() as u16, rng.next_u64() as u16];
        Self { out, path, ip_id }
    }

    fn send(&mut self, time_ns: u64, side: Side, payload: &[u8]) {
        let from = side as usize;
        self.ip_id[from] = self.ip_id[from].wrapping_add(1);
        let (id, ports, path) = (self.ip_id[from], self.path.ports, self.path);
        self.out.push(time_ns, |out| {
            frame::ip(out, &path.ways[from], id, protocol::UDP, |out| {
                frame::udp(out, ports[from], ports[1 - from], payload);
            });
        });
    }
}

/// One question and its answer (RFC 1035); some names do not exist.
pub fn dns(out: &mut Packets, rng: &mut Rng, path: &Path) {
    const TYPE_A: u16 = 1;
    const TYPE_AAAA: u16 = 28;
    let host = names::host(rng);
    let kind = if rng.chance(0.3) { TYPE_AAAA } else { TYPE_A };
    let is_known = !rng.chance(0.06);
    let id = rng.next_u64().to_be_bytes();
    let mut question = Vec::new();
    for label in host.split('.') {
        question.push(u8::try_from(label.len()).unwrap_or(0));
        question.extend(label.as_bytes());
    }
    question.push(0);
    question.extend(kind.to_be_bytes());
    question.extend([0, 1]);
    let query = [&id[..2], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &question].concat();
    let answers = if is_known {
        u8::try_from(rng.between(1, 4)).unwrap_or(1)
    } else {
        0
    };
    let code = if is_known { 0x80 } else { 0x83 };
    let mut response = [
        &id[..2],
        &[0x81, code, 0, 1, 0, answers, 0, 0, 0, 0],
        &question,
    ]
    .concat();
    for _ in 0..answers {
        response.extend([0xc0, 12]);
        response.extend(kind.to_be_bytes());
        response.extend([0, 1, 0, 0, 1, 44]);
        let bytes = if kind == TYPE_A { 4 } else { 16 };
        response.extend([0, bytes]);
        rng.fill(&mut response, bytes.into());
    }
    let mut udp = Udp::new(out, rng, path);
    udp.send(0, Side::Client, &query);
    udp.send(path.rtt_ns, Side::Server, &response);
}

/// One message, with a greeting of the client before it.
pub fn message(out: &mut Packets, rng: &mut Rng, path: &Path, side: Side, payload: &[u8]) {
    let mut udp = Udp::new(out, rng, path);
    udp.send(0, Side::Client, b"hello\n");
    udp.send(path.rtt_ns, Side::Server, b"ready\n");
    udp.send(2 * path.rtt_ns, side, payload);
}

/// One exchange of clocks (RFC 5905).
pub fn ntp(out: &mut Packets, rng: &mut Rng, path: &Path) {
    let message = |mode: u8, rng: &mut Rng| {
        let mut body = vec![0x20 | mode, 2, 6, 0xec];
        body.extend([0; 12]);
        rng.fill(&mut body, 32);
        body
    };
    let (ask, answer) = (message(3, rng), message(4, rng));
    let mut udp = Udp::new(out, rng, path);
    udp.send(0, Side::Client, &ask);
    udp.send(path.rtt_ns, Side::Server, &answer);
}

/// What the middle of a QUIC connection looks like: short headers and ciphertext (RFC 9000 17.3), one acknowledgement for a few.
pub fn quic_like(out: &mut Packets, rng: &mut Rng, path: &Path, server_bytes: u64) {
    let packet = |rng: &mut Rng, length| {
        let mut body = vec![0x40 | u8::try_from(rng.between(0, 31)).unwrap_or(0)];
        rng.fill(&mut body, length);
        body
    };
    let mut udp = Udp::new(out, rng, path);
    let (mut now, mut left, mut unacknowledged) = (path.rtt_ns, server_bytes, 0);
    let asked = 60 + rng.index(400);
    udp.send(0, Side::Client, &packet(rng, asked));
    while left > 0 {
        let length = left.min(1_250);
        udp.send(
            now,
            Side::Server,
            &packet(rng, usize::try_from(length.max(24)).unwrap_or(24)),
        );
        left -= length;
        unacknowledged += 1;
        if unacknowledged == 4 || left == 0 {
            unacknowledged = 0;
            udp.send(now + path.gap_ns / 2, Side::Client, &packet(rng, 32));
        }
        now += path.gap_ns;
    }
}

/// Echo requests and replies (RFC 792).
pub fn ping(out: &mut Packets, rng: &mut Rng, path: &Path) {
    let identifier = rng.next_u64().to_be_bytes();
    for number in 0..rng.between(1, 4) {
        for (from, kind) in [(0, 8), (1, 0)] {
            let time_ns = number * 1_000 * MILLISECOND_NS + from as u64 * path.rtt_ns;
            out.push(time_ns, |out| {
                frame::ip(
                    out,
                    &path.ways[from],
                    u16::from(identifier[3]),
                    protocol::ICMP,
                    |out| {
                        out.extend([kind, 0, 0, 0, identifier[0], identifier[1], 0]);
                        out.push(u8::try_from(number).unwrap_or(0));
                        out.extend(0x10..0x40);
                    },
                );
            });
        }
    }
}

/// Log datagrams longer than a packet may be: fragments, of which `incomplete` datagrams lack one.
pub fn fragmented(out: &mut Packets, rng: &mut Rng, path: &Path, incomplete: bool) {
    let mut payload = Vec::new();
    let length = 2_000 + rng.index(3_500);
    rng.fill(&mut payload, length);
    let id = rng.next_u64().to_be_bytes();
    let ports = (path.ports[0], path.ports[1]);
    let mtu = 1_500 - 4 * path.ways[0].tags.len();
    let mut frames = frame::fragments(
        &path.ways[0],
        u16::from_be_bytes([id[0], id[1]]),
        ports,
        &payload,
        mtu,
    );
    if incomplete {
        let missing = rng.index(frames.len());
        frames.remove(missing);
    } else if rng.chance(0.2) {
        frames.swap(0, 1);
    }
    for (index, frame) in frames.iter().enumerate() {
        out.push(index as u64 * path.gap_ns, |out| out.extend(frame));
    }
}

/// A question for an address and its answer (RFC 826).
pub fn arp(out: &mut Packets, asker: (Mac, Ipv4Addr), asked: (Mac, Ipv4Addr)) {
    let mut put =
        |time_ns, destination: Mac, from: (Mac, Ipv4Addr), to: (Mac, Ipv4Addr), operation| {
            out.push(time_ns, |out| {
                let begin = out.len();
                frame::ethernet(out, destination, from.0, &[], 0x0806);
                out.extend([0, 1, 8, 0, 6, 4, 0, operation]);
                out.extend(from.0);
                out.extend(from.1.octets());
                out.extend(to.0);
                out.extend(to.1.octets());
                frame::pad(out, begin);
            });
        };
    put(0, [0xff; 6], asker, ([0; 6], asked.1), 1);
    put(200_000, asker.0, asked, asker, 2);
}

/// A switch that names itself to its neighbours (IEEE 802.1AB); `tags` as a badly set port would add them.
pub fn lldp(out: &mut Packets, switch: Mac, tags: &[(u16, u16)]) {
    const NEAREST_BRIDGE: Mac = [0x01, 0x80, 0xc2, 0, 0, 0x0e];
    out.push(0, |out| {
        let begin = out.len();
        frame::ethernet(out, NEAREST_BRIDGE, switch, tags, 0x88cc);
        out.extend([0x02, 7, 4]);
        out.extend(switch);
        out.extend([0x04, 3, 5, b'1', b'7', 0x06, 2, 0, 120]);
        out.extend([0x0a, 8]);
        out.extend(b"switch-1");
        out.extend([0, 0]);
        frame::pad(out, begin);
    });
}

/// A spanning tree hello: IEEE 802.3 with an LLC header, no EtherType.
pub fn spanning_tree(out: &mut Packets, switch: Mac) {
    const ALL_BRIDGES: Mac = [0x01, 0x80, 0xc2, 0, 0, 0];
    out.push(0, |out| {
        let begin = out.len();
        frame::ethernet(out, ALL_BRIDGES, switch, &[], 38);
        out.extend([0x42, 0x42, 3, 0, 0, 0, 0, 0, 0x80, 0]);
        out.extend(switch);
        out.extend([0, 0, 0, 0, 0x80, 0]);
        out.extend(switch);
        out.extend([0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0]);
        frame::pad(out, begin);
    });
}
