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

/// One message that a rule is about, and an answer.
pub fn attack(out: &mut Packets, mut rng: Rng, path: &Path, rule: &Rule) {
    let side = if rule.is_from_server() {
        Side::Server
    } else {
        Side::Client
    };
    if rule.is_udp {
        return datagrams::message(out, &mut rng, path, side, &rule.payload());
    }
    let mut tcp = Tcp::open(out, rng, path.clone());
    tcp.send(Side::Client, b"hello\n");
    tcp.send(Side::Server, b"ready\n");
    tcp.send(side, &rule.payload());
    tcp.close(Side::Client);
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
