#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
use super::*;
use crate::checksum::{fold, sum};
use crate::flow::FlowKey;
use crate::replica_addresses::{Survey, Work};
use crate::segment::write_checksums;
use crate::view;
use crate::view::tests::{ethernet, ipv4};
use proptest::prelude::*;

const CARRIER: [[u8; 4]; 2] = [[10, 9, 0, 1], [10, 9, 0, 2]];

/// An Ethernet frame of the inner flow with right checksums.
fn inner(port: u8) -> Vec<u8> {
    let tcp = [
        4, port, 0, 80, 0, 0, 1, 0, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0, 7,
    ];
    let mut frame = ethernet(0x0800, &ipv4([192, 168, 0, 1], [172, 16, 0, 1], 6, 0, &tcp));
    write_checksums(&mut frame);
    frame
}

fn inner_v6(port: u8) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, 10, 17, 64];
    ip.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    ip.extend([4, port, 0, 53, 0, 10, 1, 1, 5, 6]);
    ip
}

fn outer(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(0x0800, &ipv4(CARRIER[0], CARRIER[1], protocol, 0, payload));
    write_checksums(&mut frame);
    frame
}

fn outer_udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    for field in [ports[0], ports[1], 8 + payload.len() as u16, 1] {
        udp.extend(field.to_be_bytes());
    }
    udp.extend(payload);
    outer(17, &udp)
}

fn gre(flags: u16, kind: u16, more: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut gre = [&flags.to_be_bytes()[..], &kind.to_be_bytes(), more, payload].concat();
    if flags & 0x8000 != 0 {
        let checksum = !fold(sum(&gre));
        gre[4..6].copy_from_slice(&checksum.to_be_bytes());
    }
    outer(47, &gre)
}

/// One frame of each tunnel, with the inner flow of this port.
fn tunnelled(port: u8) -> Vec<(&'static str, Vec<u8>)> {
    let (frame, v6) = (inner(port), inner_v6(port));
    let ip = &frame[14..];
    let tagged = [&frame[..12], &[0x89, 0x26, 0, 0, 0, 5], &frame[12..]].concat();
    let length = (ip.len() as u16).to_be_bytes();
    let gtp = [&[0x30, 0xff][..], &length, &[0, 0, 0, 7], ip].concat();
    let longer = (ip.len() as u16 + 8).to_be_bytes();
    let extended = [
        &[0x34, 0xff][..],
        &longer,
        &[0, 0, 0, 7, 0, 0, 0, 0x85, 1, 9, 9, 0],
        ip,
    ]
    .concat();
    let bridged = |header: &[u8]| [header, &frame].concat();
    let vxlan = outer_udp([50_000, 4_789], &bridged(&[8, 0, 0, 0, 0, 0, 5, 0]));
    vec![
        ("ip in ip", outer(4, ip)),
        ("6in4", outer(41, &v6)),
        ("gre", gre(0, 0x0800, &[], ip)),
        ("gre with all fields", gre(0xb000, 0x0800, &[0; 12], ip)),
        ("gre bridged", gre(0, 0x6558, &[], &frame)),
        (
            "gre ppp",
            gre(
                0x3001,
                0x880b,
                &[0, 9, 0, 1, 0, 0, 0, 1],
                &[&[0xff, 3, 0, 0x21], ip].concat(),
            ),
        ),
        ("erspan 1", gre(0, 0x88be, &[], &frame)),
        (
            "erspan 2",
            gre(
                0x1000,
                0x88be,
                &[0, 0, 0, 1],
                &bridged(&[0x10, 1, 0, 5, 0, 0, 0, 0]),
            ),
        ),
        (
            "erspan 3",
            gre(
                0x1000,
                0x22eb,
                &[0, 0, 0, 1],
                &bridged(&[0x20, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]),
            ),
        ),
        (
            "erspan 3 with a subheader",
            gre(
                0x1000,
                0x22eb,
                &[0, 0, 0, 1],
                &bridged(&[
                    0x20, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9,
                ]),
            ),
        ),
        ("vxlan", vxlan.clone()),
        (
            "geneve",
            outer_udp([50_000, 6_081], &bridged(&[0, 0, 0x65, 0x58, 0, 0, 5, 0])),
        ),
        (
            "geneve with options",
            outer_udp(
                [6_081, 50_000],
                &[&[1, 0, 8, 0, 0, 0, 5, 0, 1, 1, 1, 1], ip].concat(),
            ),
        ),
        ("gtp-u", outer_udp([2_152, 2_152], &gtp)),
        (
            "gtp-u with extensions",
            outer_udp([2_152, 2_152], &extended),
        ),
        ("teredo", outer_udp([50_000, 3_544], &v6)),
        (
            "teredo with an origin",
            outer_udp(
                [3_544, 50_000],
                &[&[0, 0, 1, 2, 3, 4, 5, 6], &v6[..]].concat(),
            ),
        ),
        (
            "teredo with an authentication, at an odd place",
            outer_udp(
                [50_000, 3_544],
                &[&[0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0], &v6[..]].concat(),
            ),
        ),
        (
            "teredo with a longer authentication",
            outer_udp(
                [50_000, 3_544],
                &[
                    &[0, 1, 2, 4, 9, 9, 8, 8, 8, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0][..],
                    &[0, 0, 1, 2, 3, 4, 5, 6],
                    &v6[..],
                ]
                .concat(),
            ),
        ),
        (
            "gre with a checksum, ppp of one byte at an odd place",
            gre(0x8000, 0x880b, &[0; 4], &[&[0x21], ip].concat()),
        ),
        (
            "gre with a tag",
            gre(0, 0x8100, &[], &[&[0, 5, 8, 0], ip].concat()),
        ),
        (
            "gre with labels",
            gre(0, 0x8847, &[], &[&[0, 6, 0x41, 64], ip].concat()),
        ),
        ("vn-tag", tagged),
        (
            "vn-tag and vlan",
            [
                &frame[..12],
                &[0x89, 0x26, 0, 0, 0, 5, 0x81, 0, 0, 7],
                &frame[12..],
            ]
            .concat(),
        ),
        (
            "vlan and vn-tag",
            [
                &frame[..12],
                &[0x81, 0, 0, 7, 0x89, 0x26, 0, 0, 0, 5],
                &frame[12..],
            ]
            .concat(),
        ),
        (
            "802.1ah",
            ethernet(0x88a8, &bridged(&[0, 9, 0x88, 0xe7, 0, 0, 0, 5])),
        ),
        ("fabric path", ethernet(0x8903, &bridged(&[0x12, 0x34]))),
        (
            "service chain of ip",
            ethernet(
                0x894f,
                &[&[0x0f, 0xc3, 1, 1, 0, 0, 1, 255, 9, 9, 9, 9], ip].concat(),
            ),
        ),
        (
            "service chain of ethernet",
            ethernet(0x894f, &bridged(&[0x0f, 0xc2, 2, 3, 0, 0, 1, 255])),
        ),
        (
            "mpls multicast",
            ethernet(0x8848, &[&[0, 6, 0x41, 64], ip].concat()),
        ),
        (
            "mpls",
            ethernet(0x8847, &[&[0, 1, 0, 64, 0, 6, 0x41, 64], ip].concat()),
        ),
        (
            "mpls pseudowire",
            ethernet(
                0x8847,
                &[&[0, 6, 0x41, 64, 0, 0, 0, 0], &frame[..]].concat(),
            ),
        ),
        (
            "pppoe",
            ethernet(0x8864, &[&[0x11, 0, 0, 1, 0, 30, 0, 0x21], ip].concat()),
        ),
        ("vxlan in gre", gre(0, 0x6558, &[], &vxlan)),
    ]
}

#[test]
fn the_innermost_flow_is_found_in_each_tunnel() {
    let expected = FlowKey::of_frame(&inner(1)).unwrap();
    for (name, frame) in tunnelled(1) {
        let found = FlowKey::innermost(&frame).unwrap();
        if expected.protocol == found.protocol {
            assert_eq!(found, expected, "{name}");
        } else {
            assert_eq!(
                (found.protocol, found.low.1.min(found.high.1)),
                (17, 53),
                "{name}"
            );
        }
        assert_ne!(
            FlowKey::innermost(&tunnelled(2).iter().find(|t| t.0 == name).unwrap().1),
            Some(found),
            "{name}"
        );
    }
}

/// What a frame's checksums are off by, from its outermost header on: they are right if writing them anew changes nothing.
fn wrong_checksums(frame: &[u8]) -> bool {
    let mut again = frame.to_vec();
    write_checksums(&mut again);
    again != frame
}

#[test]
fn replicas_have_their_own_flows_in_each_tunnel_and_right_checksums() {
    for (name, frame) in tunnelled(1) {
        let mut survey = Survey::default();
        survey.add(&frame);
        let mut rewriter = survey.rewriter();
        rewriter.give(0..3).unwrap();
        let work = rewriter.work(&frame);
        assert_ne!(work, Work::NONE, "{name}");
        let mut flows = vec![FlowKey::innermost(&frame).unwrap()];
        for replica in [1, 2] {
            let mut copy = frame.clone();
            rewriter.apply(work, replica, &mut copy);
            flows.push(FlowKey::innermost(&copy).unwrap());
            assert!(
                !wrong_checksums(&copy) || wrong_checksums(&frame),
                "{name}: outside"
            );
            let ip = innermost(&copy).unwrap();
            let header = &copy[ip.offset..ip.payload];
            assert!(
                ip.source.is_ipv6() || fold(sum(header)) == 0xffff,
                "{name}: inside"
            );
            if let (47, Some(at)) = (copy[23], gre_checksum(&copy, 34)) {
                assert_eq!(fold(sum(&copy[34..])), 0xffff, "{name} at {at}");
            }
        }
        flows.sort();
        flows.dedup();
        assert_eq!(flows.len(), 3, "{name}");
    }
}

#[test]
fn what_only_has_the_port_of_a_tunnel_is_none() {
    let dns = [
        1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, b'f', b'o', b'o', 0, 0, 1, 0, 1,
    ];
    for port in [4_789, 6_081, 2_152, 3_544] {
        let frame = outer_udp([50_000, port], &dns);
        let outer = view::network(&frame).unwrap();
        assert_eq!(innermost(&frame), Some(outer), "{port}");
    }
}

#[test]
fn checksums_are_written_from_the_innermost_outwards() {
    for (name, mut frame) in tunnelled(1) {
        let ip = innermost(&frame).unwrap();
        let last = ip.end - 1;
        frame[last] ^= 0xff;
        write_checksums(&mut frame);
        assert_eq!(error_of(&frame, &ip), 0, "{name}");
        if frame.get(12..14) == Some(&[8, 0]) {
            let outer = view::network(&frame).unwrap();
            let has_checksum = outer.protocol == 17 || gre_checksum(&frame, 34).is_some();
            assert!(!has_checksum || error_of(&frame, &outer) == 0, "{name}");
        }
    }
}

/// What the transport checksum is off by, as its receiver computes it.
fn error_of(frame: &[u8], ip: &Ip) -> u16 {
    let segment = ip.payload(frame);
    let addresses = match ip.source.is_ipv4() {
        _ if ip.protocol == protocol::GRE => &[][..],
        true => &frame[ip.offset + 12..ip.offset + 20],
        false => &frame[ip.offset + 8..ip.offset + 40],
    };
    let pseudo = match addresses {
        [] => 0,
        _ => u32::from(ip.protocol) + segment.len() as u32,
    };
    fold(sum(addresses) + pseudo + sum(segment)) % 0xffff
}

#[test]
fn replicas_have_right_checksums_at_odd_places_too() {
    for (name, frame) in tunnelled(1).iter().filter(|t| t.0.contains("odd")) {
        let mut survey = Survey::default();
        survey.add(frame);
        let mut rewriter = survey.rewriter();
        rewriter.give(0..4).unwrap();
        let work = rewriter.work(frame);
        for replica in 1..4 {
            let mut copy = frame.clone();
            rewriter.apply(work, replica, &mut copy);
            assert_eq!(error_of(&copy, &view::network(&copy).unwrap()), 0, "{name}");
        }
    }
}

proptest! {
    #[test]
    fn any_frame_is_borne(bytes in proptest::collection::vec(any::<u8>(), 0..120), which in 0usize..34, at in 0usize..80) {
        let (_, mut frame) = tunnelled(1).swap_remove(which);
        let at = at.min(frame.len());
        frame.truncate(at);
        frame.extend(bytes);
        let _ = innermost(&frame);
        let mut survey = Survey::default();
        survey.add(&frame);
        let mut rewriter = survey.rewriter();
    rewriter.give(0..2).unwrap();
        let work = rewriter.work(&frame);
        rewriter.apply(work, 1, &mut frame);
    }
}
