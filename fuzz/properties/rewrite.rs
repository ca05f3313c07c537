//! Rewriting: of any frames, replicas differ in addresses and checksums alone, and checksums are as right or wrong as before.
//!
//! The input is frames with a length of two bytes before each.

use nodrop_wire::checksum::{fold, sum};
use nodrop_wire::replica_addresses::{Survey, Work};
use nodrop_wire::view::{self, Ip};

const REPLICAS: usize = 3;

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    let frames = frames(bytes);
    let mut survey = Survey::default();
    frames.iter().for_each(|frame| survey.add(frame));
    let mut rewriter = survey.rewriter();
    if rewriter.give(0..REPLICAS).is_err() {
        return;
    };
    let works: Vec<Work> = frames.iter().map(|frame| rewriter.work(frame)).collect();
    rewriter.seal();
    for (frame, work) in frames.iter().zip(works) {
        for replica in 0..REPLICAS {
            let mut copy = frame.to_vec();
            rewriter.apply(work, replica, &mut copy);
            if replica == 0 || work == Work::NONE {
                assert_eq!(&copy, frame);
            } else {
                same_but_for_addresses(frame, &copy);
            }
        }
    }
}

fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length) & 0x3fff).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        frames.push(frame);
        bytes = rest;
    }
    frames
}

fn same_but_for_addresses(before: &[u8], after: &[u8]) {
    assert_eq!(view::link(before), view::link(after));
    let (Some(old), Some(new)) = (view::network(before), view::network(after)) else {
        assert!(view::network(before).is_none() && view::network(after).is_none());
        return;
    };
    let addressless = Ip {
        source: old.source,
        destination: old.destination,
        ..new
    };
    assert_eq!(addressless, old);
    assert_eq!(old.source == old.destination, new.source == new.destination);
    if old.source.is_ipv4() {
        let error = |frame: &[u8]| fold(sum(&frame[old.offset..old.offset + 20])) % 0xffff;
        assert_eq!(error(before), error(after), "IPv4 header");
    }
    if has_checksum(before, &old) {
        assert_eq!(
            transport_sum(before, &old),
            transport_sum(after, &new),
            "transport"
        );
    }
}

/// Protocol with a checksum over addresses and payload, which is there.
fn has_checksum(frame: &[u8], ip: &Ip) -> bool {
    let at = match ip.protocol {
        view::protocol::TCP => 16,
        view::protocol::UDP | view::protocol::UDP_LITE => 6,
        view::protocol::ICMPV6 if ip.source.is_ipv6() => 2,
        _ => return false,
    };
    let field = ip.payload(frame).get(at..at + 2);
    let left_out = ip.protocol == view::protocol::UDP && field == Some(&[0, 0]);
    field.is_some() && !left_out && !ip.source_routed && ip.has_transport_header()
}

fn transport_sum(frame: &[u8], ip: &Ip) -> u16 {
    let mut addresses = Vec::new();
    for address in [ip.source, ip.destination] {
        match address {
            std::net::IpAddr::V4(address) => addresses.extend(address.octets()),
            std::net::IpAddr::V6(address) => addresses.extend(address.octets()),
        }
    }
    fold(sum(&addresses) + sum(ip.payload(frame))) % 0xffff
}
