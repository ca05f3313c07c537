#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss
)]
use super::*;
use crate::replica_count::Replicas;
use crate::trace::tests::trace_of;
use proptest::prelude::*;

fn ipv4(
    protocol: u8,
    source: [u8; 4],
    destination: [u8; 4],
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [[2; 12].as_slice(), &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend([source, destination].concat());
    frame.extend(payload);
    frame
}

fn udp(from: u8, to: u8, ports: [u16; 2], fragment: u16) -> Vec<u8> {
    let ports = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
    let payload = [&ports[..], &[0, 8, 0, 0]].concat();
    ipv4(17, [10, 0, 0, from], [10, 0, 0, to], fragment, &payload)
}

/// A fragment of IPv6 between hosts that end so; the first of its datagram if `offset` is 0.
fn ipv6_fragment(from: u8, to: u8, ports: [u16; 2], offset: u16) -> Vec<u8> {
    let mut frame = [
        [2; 12].as_slice(),
        &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 44, 64],
    ]
    .concat();
    for host in [from, to] {
        frame.extend([0xfd; 15]);
        frame.push(host);
    }
    frame.extend([17, 0]);
    frame.extend((offset << 3 | u16::from(offset == 0)).to_be_bytes());
    frame.extend([0, 0, 0, 9]);
    frame.extend([ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat());
    frame.extend([0, 8, 0, 0]);
    frame
}

/// From a router that is on no other way: the datagram in `frame` has met an error of this kind.
fn icmp_error(kind: u8, frame: &[u8]) -> Vec<u8> {
    let payload = [&[kind, 0, 0, 0, 0, 0, 0, 0], &frame[14..]].concat();
    ipv4(1, [192, 0, 2, 1], [10, 0, 0, 99], 0, &payload)
}

fn chosen(frames: &[Vec<u8>], multiplier: f64, seed: u64) -> Vec<usize> {
    let replicas = Replicas::of(multiplier, seed).unwrap();
    let fraction = replicas.fraction.unwrap();
    packets_of(fraction, &trace_of(frames), replicas.whole == 0)
}

/// Each group is all in or all out.
fn stay_together(frames: &[Vec<u8>], group: usize) {
    for (multiplier, seed) in [(0.2, 1), (0.5, 1), (3.4, 1), (7.61, 9), (0.9, 123)] {
        let part = chosen(frames, multiplier, seed);
        for first in (0..frames.len()).step_by(group) {
            let within = part.iter().filter(|n| (first..first + group).contains(n));
            let count = within.count();
            assert!(
                count == 0 || count == group,
                "{multiplier} {first}: {count}"
            );
        }
        assert!(
            !part.is_empty() && part.len() < frames.len(),
            "{multiplier}"
        );
    }
}

#[test]
fn both_directions_stay_together() {
    let both = |host| [udp(host, 200, [7, 53], 0), udp(200, host, [53, 7], 0)];
    stay_together(&(0..60).flat_map(both).collect::<Vec<_>>(), 2);
}

#[test]
fn a_datagram_stays_together_however_its_fragments_come() {
    let late_first = |host| {
        [
            udp(host, 200, [0, 0], 5),
            udp(host, 200, [7, 53], 0x2000),
            udp(host, 200, [7, 53], 0),
            ipv4(
                17,
                [10, 0, 0, 200],
                [10, 0, 0, host],
                0,
                &[0, 53, 0, 7, 0, 8, 0, 0],
            ),
        ]
    };
    stay_together(&(0..60).flat_map(late_first).collect::<Vec<_>>(), 4);
    let of_ipv6 = |host| {
        [
            ipv6_fragment(host, 200, [7, 53], 0),
            ipv6_fragment(host, 200, [0, 0], 1),
            ipv6_fragment(200, host, [0, 0], 3),
        ]
    };
    stay_together(&(0..60).flat_map(of_ipv6).collect::<Vec<_>>(), 3);
}

#[test]
fn an_icmp_error_stays_with_what_it_quotes() {
    for kind in [3, 4, 5, 11, 12] {
        let with_error = |host| {
            let sent = udp(host, 200, [7, 53], 0);
            let error = icmp_error(kind, &sent);
            [sent, error]
        };
        stay_together(&(0..60).flat_map(with_error).collect::<Vec<_>>(), 2);
    }
    // About a fragment, and so cut that no port is quoted.
    let about_fragment = |host| {
        let first = udp(host, 200, [7, 53], 0x2000);
        let error = icmp_error(11, &first[..34]);
        [first, error]
    };
    stay_together(&(0..60).flat_map(about_fragment).collect::<Vec<_>>(), 2);
}

#[test]
fn what_has_no_flow_stays_with_the_first_replica() {
    let arp = [[2; 12].as_slice(), &[0x08, 0x06, 0, 1]].concat();
    let frames: Vec<Vec<u8>> = (0..40)
        .flat_map(|host| [arp.clone(), udp(host, 200, [1, 2], 0)])
        .collect();
    let flowless = |part: &[usize]| part.iter().filter(|n| *n % 2 == 0).count();
    for (multiplier, seed) in [(1.4, 1), (3.4, 1), (900.99, 5)] {
        assert_eq!(flowless(&chosen(&frames, multiplier, seed)), 0);
    }
    // Then the first replica is this one.
    for (multiplier, seed) in [(0.4, 1), (0.05, 2), (0.000_000_001, 3)] {
        assert_eq!(flowless(&chosen(&frames, multiplier, seed)), 40);
    }
}

#[test]
fn so_many_flows_are_chosen_as_are_asked_for() {
    for (flows, multiplier, expected) in [
        (10, 0.4, 4),
        (10, 3.4, 4),
        (200, 1.005, 1),
        (200, 0.995, 199),
        (7, 2.5, 4),
    ] {
        let frames: Vec<Vec<u8>> = (0..flows).map(|host| udp(host, 250, [1, 2], 0)).collect();
        for seed in 0..20 {
            assert_eq!(
                chosen(&frames, multiplier, seed).len(),
                expected,
                "{multiplier}"
            );
        }
    }
}

#[test]
fn a_part_of_the_flows_has_about_that_part_of_the_packets() {
    // Sizes as of real traffic: few flows have most of the packets.
    let sizes: Vec<usize> = (1..200).map(|rank| 600 / rank).collect();
    let frames: Vec<Vec<u8>> = (0_u8..)
        .zip(&sizes)
        .flat_map(|(host, size)| vec![udp(host, 250, [1, 2], 0); *size])
        .collect();
    let whole = frames.len() as f64;
    let largest = sizes[0] as f64 / whole;
    for seed in 0..20 {
        for fraction in [0.1, 0.25, 0.4, 0.5, 0.63, 0.75, 0.9] {
            let part = chosen(&frames, fraction, seed).len() as f64 / whole;
            let error = (part - fraction).abs();
            assert!(error < 1.2 * largest, "seed {seed}: {fraction} has {part}");
        }
    }
}

#[test]
fn another_seed_chooses_others() {
    let frames: Vec<Vec<u8>> = (0..100).map(|host| udp(host, 250, [1, 2], 0)).collect();
    let parts: Vec<Vec<usize>> = (0..5).map(|seed| chosen(&frames, 0.5, seed)).collect();
    for (number, part) in parts.iter().enumerate() {
        assert!(parts[..number].iter().all(|other| other != part));
    }
    assert_eq!(chosen(&frames, 3.5, 1), chosen(&frames, 7.5, 1));
}

proptest! {
    /// The scale never falls: what a fraction carries, each larger one carries.
    #[test]
    fn a_larger_fraction_has_all_of_a_smaller_one(
        hosts in proptest::collection::vec((0u8..20, 0u8..20, prop_oneof![Just(0u16), Just(0x2000), Just(3)]), 1..80),
        fractions in proptest::collection::vec(0.01f64..0.99, 2), seed: u64,
    ) {
        let frames: Vec<Vec<u8>> = hosts.iter().map(|(from, to, fragment)| udp(*from, *to, [1, 2], *fragment)).collect();
        let [a, b] = [fractions[0], fractions[1]].map(|f| chosen(&frames, f, seed));
        let (small, large) = if fractions[0] < fractions[1] { (a, b) } else { (b, a) };
        prop_assert!(small.iter().all(|packet| large.contains(packet)));
    }
}
