//! Frames that offloads joined: the pieces carry the payload, each byte once, in datagrams no longer than the MTU, with right checksums.
//!
//! The input is an MTU of two bytes and a frame.

use nodrop_wire::checksum::{fold, sum};
use nodrop_wire::segment::{Tcp, fragments, write_checksums};
use nodrop_wire::view;

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    let Some((mtu, frame)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let mtu = usize::from(u16::from_be_bytes(*mtu));
    if let Some(tcp) = Tcp::of_frame(frame) {
        let (_, before) = tcp_payload(frame);
        let mut sent = Vec::new();
        let count = tcp.split(frame, tcp.room(mtu), &mut |segment| {
            assert!(Tcp::of_frame(segment).is_some());
            let (datagram_bytes, payload) = tcp_payload(segment);
            assert!(datagram_bytes <= mtu);
            sent.extend_from_slice(payload);
            is_right(segment);
        });
        assert!(count == 0 || sent == before);
    }
    let mut carried = 0;
    let count = fragments(frame, mtu, 7, &mut |fragment| {
        let ip = view::network(fragment).expect("a fragment has its IP header");
        assert!(ip.end - ip.offset <= mtu);
        assert_eq!(ip.claimed_end, fragment.len());
        let offset = ip.fragment.map_or(0, |fragment| fragment.offset_bytes);
        assert_eq!(offset as usize, carried);
        carried += ip.end - ip.payload;
    });
    if count > 0 {
        let ip = view::network(frame).expect("it was taken apart");
        assert_eq!(carried, ip.end - ip.payload);
    }
    let mut again = frame.to_vec();
    write_checksums(&mut again);
    let once = again.clone();
    write_checksums(&mut again);
    assert_eq!(once, again);
}

/// Length of the datagram, and the payload of its TCP header.
fn tcp_payload(frame: &[u8]) -> (usize, &[u8]) {
    let ip = view::network(frame).expect("it has TCP");
    let header = usize::from(frame[ip.payload + 12] >> 4) * 4;
    (ip.end - ip.offset, &frame[ip.payload + header..ip.end])
}

fn is_right(frame: &[u8]) {
    let ip = view::network(frame).expect("it has TCP");
    if ip.source.is_ipv4() {
        let header = &frame[ip.offset..ip.payload];
        assert_eq!(fold(sum(header)), 0xffff);
    }
    let mut again = frame.to_vec();
    write_checksums(&mut again);
    assert_eq!(again, frame);
}
