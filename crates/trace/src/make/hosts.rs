//! Who talks to whom: the clients of one network, servers all over the world, the gateway between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{Mac, Way};
use super::profile::{Kind, Profile};
use super::rng::Rng;
use super::tcp::Path;
use super::time::{MICROSECOND_NS, MILLISECOND_NS};

pub const GATEWAY: Mac = [0x02, 0, 0x5e, 0, 0, 1];
pub const SWITCH: Mac = [0x02, 0, 0x5e, 0, 0, 2];
pub const CLIENTS: u64 = 400;
/// Clients of conversations have this port or a higher one.
pub const FIRST_PORT: u16 = 20_000;
const SERVERS: u64 = 3_000;

/// Both ends of the flow; client and port together are of this flow alone.
#[allow(clippy::cast_possible_truncation)] // below 2^16 by the remainder
pub fn path(profile: &Profile, rng: &mut Rng, flow: u64, kind: Kind) -> Path {
    let client = flow % CLIENTS;
    let port = FIRST_PORT + (flow / CLIENTS % 45_000) as u16;
    let server = SERVERS - rng.pareto(1, SERVERS, 0.6);
    let is_ipv4_only = matches!(kind, Kind::Ping | Kind::Fragmented | Kind::Incomplete);
    let (near, far): (IpAddr, IpAddr) = if !is_ipv4_only && rng.chance(profile.ipv6_ratio) {
        (host_v6(0, client).into(), host_v6(1, server).into())
    } else {
        (client_v4(client).into(), server_v4(server).into())
    };
    let tags = if rng.chance(profile.tagged_ratio[1]) {
        vec![(0x88a8, 200), (0x8100, 30)]
    } else if rng.chance(profile.tagged_ratio[0]) {
        vec![(0x8100, 100)]
    } else {
        vec![]
    };
    // No frame is longer than 1514 bytes, tags included: any port takes them.
    let ip_bytes = if near.is_ipv4() { 20 } else { 40 };
    let mss = 1_500 - 20 - ip_bytes - 4 * tags.len() as u16;
    let away = Way {
        source_mac: client_mac(client),
        destination_mac: GATEWAY,
        tags: tags.clone(),
        source: near,
        destination: far,
        ttl: 64,
    };
    let back = Way {
        source_mac: GATEWAY,
        destination_mac: client_mac(client),
        tags,
        source: far,
        destination: near,
        ttl: rng.pick(&[64, 128, 255]) - rng.between(4, 18) as u8,
    };
    Path {
        ways: [away, back],
        ports: [port, kind.port()],
        rtt_ns: rng.pareto(2 * MILLISECOND_NS, 180 * MILLISECOND_NS, 1.0),
        gap_ns: rng.between(13 * MICROSECOND_NS, 130 * MICROSECOND_NS),
        mss,
        segments_per_ack: 2,
        loss_ratio: profile.disturbance_ratio[0],
        reorder_ratio: profile.disturbance_ratio[1],
    }
}

#[allow(clippy::cast_possible_truncation)] // a byte each
pub fn client_mac(client: u64) -> Mac {
    [0x02, 0, 0x0a, 20, (client >> 8) as u8, client as u8]
}

#[allow(clippy::cast_possible_truncation)] // a byte each
pub fn client_v4(client: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 20, (client / 250) as u8, (client % 250) as u8 + 1)
}

/// From the addresses set aside for benchmarks (RFC 2544): no host owns one.
#[allow(clippy::cast_possible_truncation)] // a byte each
fn server_v4(server: u64) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, (server / 250) as u8, (server % 250) as u8 + 1)
}

/// From the addresses set aside for documentation (RFC 3849).
#[allow(clippy::cast_possible_truncation)] // below 2^16
fn host_v6(network: u16, host: u64) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, host as u16 + 1)
}
