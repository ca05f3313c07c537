//! One conversation of each kind, as a whole.

use super::packets::Packets;
use super::profile::{Kind, Profile};
use super::rng::Rng;
use super::rules::Rule;
use super::tcp::{Path, Side, Tcp};
use super::time::MILLISECOND_NS;
use super::{datagrams, text_protocols, web};

/// One conversation from its own time zero; the segments sent again and reordered.
pub fn speak(
    out: &mut Packets,
    rng: &mut Rng,
    kind: Kind,
    path: Path,
    profile: &Profile,
) -> (u64, u64) {
    match kind {
        Kind::Dns => datagrams::dns(out, rng, &path),
        Kind::Ntp => datagrams::ntp(out, rng, &path),
        Kind::Ping => datagrams::ping(out, rng, &path),
        Kind::Fragmented => datagrams::fragmented(out, rng, &path, false),
        Kind::Incomplete => datagrams::fragmented(out, rng, &path, true),
        Kind::QuicLike => {
            let bytes = rng.pareto(
                profile.sizes.body_low,
                profile.sizes.body_high,
                profile.sizes.alpha,
            );
            datagrams::quic_like(out, rng, &path, bytes);
        }
        _ => return speak_tcp(Tcp::open(out, rng.clone(), path), kind, profile),
    }
    (0, 0)
}

fn speak_tcp(mut tcp: Tcp<'_>, kind: Kind, profile: &Profile) -> (u64, u64) {
    match kind {
        Kind::Http => web::http(&mut tcp, profile.sizes),
        Kind::Tls => web::tls(&mut tcp, profile.sizes),
        Kind::Smtp => text_protocols::smtp(&mut tcp),
        Kind::Ssh => text_protocols::ssh(&mut tcp),
        _ => idle(&mut tcp),
    }
    if kind != Kind::Smtp && tcp.rng().chance(0.08) {
        tcp.reset(Side::Client)
    } else {
        let side = *tcp.rng().pick(&[Side::Client, Side::Server]);
        tcp.close(side)
    }
}

/// One message that a rule is about, and an answer; which of its packets the rule cannot do without, from 0.
pub fn attack(out: &mut Packets, mut rng: Rng, path: &Path, rule: &Rule) -> Vec<usize> {
    let side = if rule.is_from_server() {
        Side::Server
    } else {
        Side::Client
    };
    let payload = rule.payload();
    if rule.is_udp {
        datagrams::message(out, &mut rng, path, side, &payload);
        let asks = rule.directed || (rule.established && side == Side::Server);
        let answers = rule.established && side == Side::Client;
        let decide = [(0, asks), (1, answers), (2, true)].into_iter();
        return decide.filter_map(|(at, is)| is.then_some(at)).collect();
    }
    let from = out.len();
    let mut tcp = Tcp::open(out, rng, path.clone());
    tcp.send(Side::Client, b"hello\n");
    tcp.send(Side::Server, b"ready\n");
    let (before, _) = tcp.written();
    tcp.send(side, &payload);
    tcp.close(Side::Client);
    let begin = usize::try_from(before).unwrap_or(usize::MAX) - from;
    let segments = payload.len().div_ceil(path.mss.into());
    // Without the third packet, an ACK, those that follow stand for it.
    let handshake = match (rule.established, rule.directed) {
        (true, _) => 0..2,
        (false, true) => 0..1,
        (false, false) => 0..0,
    };
    handshake.chain(begin..begin + segments).collect()
}

/// A greeting, then a keep-alive every few seconds.
fn idle(tcp: &mut Tcp<'_>) {
    tcp.send(Side::Client, b"HELLO idle\n");
    tcp.send(Side::Server, b"READY\n");
    for _ in 0..tcp.rng().between(2, 9) {
        let quiet = tcp.rng().between(500, 15_000);
        tcp.pause(quiet * MILLISECOND_NS);
        tcp.keep_alive();
    }
}
