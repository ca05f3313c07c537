#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
use super::*;
use crate::checksum::{fold, sum};
use crate::flow::FlowKey;
use crate::view::tests::{ethernet, ipv4};
use crate::view::{self, Ip, ethertype};
use proptest::prelude::*;

/// The frames of replica `replica` out of `replicas`, and how many were left as they are.
fn replicate(frames: &[Vec<u8>], replicas: usize, replica: usize) -> (Vec<Vec<u8>>, usize) {
    let mut survey = Survey::default();
    frames.iter().for_each(|frame| survey.add(frame));
    let mut rewriter = survey.rewriter();
    rewriter.give(0..replicas).unwrap();
    let works: Vec<_> = frames.iter().map(|frame| rewriter.work(frame)).collect();
    rewriter.seal();
    let mut copies = frames.to_vec();
    for (copy, work) in copies.iter_mut().zip(&works) {
        rewriter.apply(*work, replica, copy);
    }
    (
        copies,
        works.iter().filter(|work| **work == Work::NONE).count(),
    )
}

fn one(frame: &[u8]) -> Vec<u8> {
    replicate(&[frame.to_vec()], 2, 1).0.remove(0)
}

/// What the transport checksum of an IP header in `frame` is off by, 0 when right.
fn transport_error(frame: &[u8], ip: &Ip) -> u16 {
    let mut pseudo = Vec::new();
    for address in [ip.source, ip.destination] {
        match address {
            IpAddr::V4(address) => pseudo.extend(address.octets()),
            IpAddr::V6(address) => pseudo.extend(address.octets()),
        }
    }
    pseudo.extend([0, ip.protocol]);
    pseudo.extend((ip.payload(frame).len() as u16).to_be_bytes());
    fold(sum(&pseudo) + sum(ip.payload(frame))) % 0xffff
}

fn header_error(frame: &[u8], ip: &Ip) -> u16 {
    fold(sum(&frame[ip.offset..ip.offset + 20])) % 0xffff
}

fn udp(source: u16, destination: u16, checksum: u16, payload: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    for field in [source, destination, 8 + payload.len() as u16, checksum] {
        udp.extend(field.to_be_bytes());
    }
    udp.extend(payload);
    udp
}

/// A UDP datagram in IPv4 whose checksum is right.
fn right_udp(
    source: [u8; 4],
    destination: [u8; 4],
    destination_port: u16,
    payload: &[u8],
) -> Vec<u8> {
    let build = |checksum| {
        ethernet(
            0x0800,
            &ipv4(
                source,
                destination,
                17,
                0,
                &udp(53, destination_port, checksum, payload),
            ),
        )
    };
    let bare = build(0);
    let wrong = transport_error(&bare, &view::network(&bare).unwrap());
    build(!wrong)
}

#[test]
fn a_datagram_gets_other_addresses_and_right_checksums() {
    let frame = right_udp([10, 0, 0, 1], [8, 8, 8, 8], 53, b"query");
    let copy = one(&frame);
    let (before, after) = (
        view::network(&frame).unwrap(),
        view::network(&copy).unwrap(),
    );
    assert_ne!(before.source, after.source);
    assert_ne!(before.destination, after.destination);
    assert_eq!(
        (header_error(&copy, &after), transport_error(&copy, &after)),
        (0, 0)
    );
    assert_eq!(
        frame[..24],
        copy[..24],
        "all before the header checksum stays"
    );
    assert_eq!(frame[34..40], copy[34..40], "ports and length stay");
    assert_eq!(frame[42..], copy[42..], "the payload stays");
}

#[test]
fn a_wrong_checksum_stays_wrong_by_as_much() {
    let mut frame = right_udp([10, 0, 0, 1], [8, 8, 8, 8], 53, b"query");
    frame[40] ^= 0x12;
    frame[24] ^= 0x34;
    let copy = one(&frame);
    let (before, after) = (
        view::network(&frame).unwrap(),
        view::network(&copy).unwrap(),
    );
    assert_ne!(transport_error(&frame, &before), 0);
    assert_eq!(
        transport_error(&frame, &before),
        transport_error(&copy, &after)
    );
    assert_eq!(header_error(&frame, &before), header_error(&copy, &after));
}

#[test]
fn a_udp_checksum_of_zero_stays_zero() {
    let frame = ethernet(
        0x0800,
        &ipv4([10, 0, 0, 1], [8, 8, 8, 8], 17, 0, &udp(53, 53, 0, b"xy")),
    );
    assert_eq!(one(&frame)[40..42], [0, 0]);
}

#[test]
fn a_later_fragment_gets_addresses_only() {
    let frame = ethernet(
        0x0800,
        &ipv4([10, 0, 0, 1], [8, 8, 8, 8], 17, 1, &[0xaa; 24]),
    );
    let copy = one(&frame);
    assert_eq!(copy[34..], [0xaa; 24]);
    assert_eq!(copy[18..20], frame[18..20], "the identification stays");
    assert_eq!(header_error(&copy, &view::network(&copy).unwrap()), 0);
}

#[test]
fn the_datagram_in_an_icmp_error_is_of_the_same_flow() {
    let (a, b) = ([10, 0, 0, 1], [8, 8, 8, 8]);
    let datagram = right_udp(a, b, 53, b"query");
    let mut icmp = vec![3, 3, 0, 0, 0, 0, 0, 0];
    icmp.extend(&datagram[14..]);
    let checksum = !fold(sum(&icmp));
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    let error = ethernet(0x0800, &ipv4(b, a, 1, 0, &icmp));

    let copies = replicate(&[datagram, error], 3, 2).0;
    let (copy, outer) = (&copies[1], view::network(&copies[1]).unwrap());
    let quoted = view::ip_at(copy, view::quoted_datagram(copy, &outer).unwrap()).unwrap();
    assert_eq!(
        FlowKey::of_ip(copy, &quoted),
        FlowKey::of_frame(&copies[0]).unwrap()
    );
    assert_eq!(
        fold(sum(outer.payload(copy))),
        0xffff,
        "the ICMP checksum is right"
    );
    assert_eq!(
        (header_error(copy, &quoted), transport_error(copy, &quoted)),
        (0, 0)
    );
}

#[test]
fn tunnels_are_mapped_inside_and_outside() {
    let inner = right_udp([192, 168, 0, 1], [192, 168, 0, 2], 99, b"inside");
    let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &inner].concat();
    let frame = right_udp([10, 0, 0, 1], [10, 0, 0, 2], 4789, &vxlan);
    let copy = one(&frame);
    let outer = view::network(&copy).unwrap();
    let inside = view::ipv4_at(&copy, outer.payload + 16 + 14).unwrap();
    assert_eq!(
        transport_error(&copy, &outer),
        0,
        "the outer checksum covers what changed inside"
    );
    assert_eq!(
        (
            header_error(&copy, &inside),
            transport_error(&copy, &inside)
        ),
        (0, 0)
    );
    assert_ne!(
        inside.source,
        view::ipv4_at(&frame, 14 + 20 + 8 + 8 + 14).unwrap().source
    );

    let mut gre = vec![0x80, 0, 0x08, 0x00, 0, 0, 0, 0];
    gre.extend(&inner[14..]);
    let checksum = !fold(sum(&gre));
    gre[4..6].copy_from_slice(&checksum.to_be_bytes());
    let copy = one(&ethernet(
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 47, 0, &gre),
    ));
    let outer = view::network(&copy).unwrap();
    assert_eq!(fold(sum(outer.payload(&copy))), 0xffff);
    let inside = view::ipv4_at(&copy, outer.payload + 8).unwrap();
    assert_eq!(
        (
            header_error(&copy, &inside),
            transport_error(&copy, &inside)
        ),
        (0, 0)
    );
}

#[test]
fn neighbour_discovery_and_arp_follow_the_headers() {
    let host = |last: u8| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let mut ip = vec![0x60, 0, 0, 0, 0, 24, 58, 255];
    ip.extend(host(1));
    ip.extend(host(2));
    ip.extend([136, 0, 0, 0, 0x60, 0, 0, 0]);
    ip.extend(host(1));
    let mut frame = ethernet(ethertype::IPV6, &ip);
    let wrong = transport_error(&frame, &view::network(&frame).unwrap());
    frame[56..58].copy_from_slice(&(!wrong).to_be_bytes());
    let copy = one(&frame);
    let after = view::network(&copy).unwrap();
    assert_eq!(transport_error(&copy, &after), 0);
    assert_ne!(copy[22..38], frame[22..38]);
    assert_eq!(
        copy[62..78],
        copy[22..38],
        "the target is the sender, before and after"
    );

    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
    arp.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let frame = ethernet(ethertype::ARP, &arp);
    let copy = one(&frame);
    assert_ne!(copy[28..32], frame[28..32]);
    assert_eq!(copy[38..42], [0; 4], "an unspecified address stays");
}

#[test]
fn what_has_no_unicast_address_is_left_and_counted() {
    let frames = [
        ethernet(0x88cc, &[0; 30]),
        ethernet(
            0x0800,
            &ipv4([0; 4], [255; 4], 17, 0, &udp(68, 67, 0, b"dhcp")),
        ),
        ethernet(
            0x0800,
            &ipv4([10, 0, 0, 1], [224, 0, 0, 251], 17, 0, &udp(1, 1, 0, b"")),
        ),
        vec![0; 5],
    ];
    let (copies, left) = replicate(&frames, 2, 1);
    assert_eq!(left, 3);
    assert_eq!(
        (&copies[0], &copies[1], &copies[3]),
        (&frames[0], &frames[1], &frames[3])
    );
    assert_eq!(copies[2][30..34], [224, 0, 0, 251]);
}

#[test]
fn equal_work_is_kept_once() {
    let mut survey = Survey::default();
    let frame = right_udp([10, 0, 0, 1], [8, 8, 8, 8], 53, b"query");
    let longer = right_udp([10, 0, 0, 1], [8, 8, 8, 8], 54, b"another");
    survey.add(&frame);
    survey.add(&longer);
    let mut rewriter = survey.rewriter();
    rewriter.give(0..64).unwrap();
    assert_eq!(rewriter.work(&frame), rewriter.work(&longer));
    assert_eq!(rewriter.begins.len(), 3);
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let address = (0usize..3, any::<u8>()).prop_map(|(net, last)| match net {
        0 => [10, 0, 0, last],
        1 => [192, 168, 1, last],
        _ => [8, 8, last, 8],
    });
    let frame = (address.clone(), address, 0u16..4, any::<bool>()).prop_map(
        |(source, destination, port, fragment)| {
            let flags = if fragment { 0x2000 } else { 0 };
            let payload = udp(port, 5, 0x1234, b"payload");
            ethernet(0x0800, &ipv4(source, destination, 17, flags, &payload))
        },
    );
    proptest::collection::vec(frame, 1..40)
}

proptest! {
    /// Flows are neither joined nor split, and none is of two replicas.
    #[test]
    fn flows_of_replicas_are_distinct(frames in frames(), replicas in 2usize..6) {
        let keys = |frames: &[Vec<u8>]| -> std::collections::BTreeSet<FlowKey> {
            frames.iter().filter_map(|frame| FlowKey::of_frame(frame)).collect()
        };
        let mut all = keys(&frames);
        let flows = all.len();
        for replica in 1..replicas {
            let (copies, left) = replicate(&frames, replicas, replica);
            prop_assert_eq!(left, 0);
            prop_assert_eq!(keys(&copies).len(), flows);
            all.extend(keys(&copies));
            for (frame, copy) in frames.iter().zip(&copies) {
                let (before, after) = (view::network(frame).unwrap(), view::network(copy).unwrap());
                prop_assert_eq!(header_error(frame, &before), header_error(copy, &after));
                prop_assert_eq!(transport_error(frame, &before), transport_error(copy, &after));
            }
        }
        prop_assert_eq!(all.len(), replicas * flows);
    }

    /// Any bytes are borne, keep their length, and replica 0 is the trace itself.
    #[test]
    fn any_frame_is_borne(bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0usize..5, first: u8) {
        let types = [0x0800, 0x86dd, 0x0806, 0x8100, 0x8847];
        let mut frame = ethernet(types[kind], &bytes);
        if let Some(byte) = frame.get_mut(14) {
            *byte = [0x45, 0x60, 0x46, first][usize::from(first & 3)];
        }
        for cut in 0..frame.len() {
            let frames = [frame[..cut].to_vec()];
            prop_assert_eq!(&replicate(&frames, 3, 0).0, &frames);
            prop_assert_eq!(replicate(&frames, 3, 2).0[0].len(), cut);
        }
    }
}

/// Seen in a real trace: EtherType 0x0800 before a header of version 6. No stack takes it, so it is sent as it is.
#[test]
fn a_header_of_another_version_than_announced_is_left_alone() {
    let mut frame = ethernet(
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &[0xaa; 40]),
    );
    frame[14] = 0x65;
    assert_eq!(replicate(&[frame.clone()], 2, 1), (vec![frame], 1));
}
