//! Where the headers of a frame stand: link, network and transport, by offset.
//!
//! Everything here bears any bytes: what is not there is `None`, lengths are bounded by what was captured.

pub use crate::ip::{Fragment, Ip, ip_at, ipv4_at, ipv6_at, protocol, quoted_datagram};
pub use crate::link::{ETHERNET_BYTES, Link, ethertype, link, link_at};

/// The IP header of a frame, if it carries one right above its link layer.
#[must_use]
pub fn network(frame: &[u8]) -> Option<Ip> {
    let link = link(frame)?;
    match link.ethertype {
        ethertype::IPV4 => ipv4_at(frame, link.offset),
        ethertype::IPV6 => ipv6_at(frame, link.offset),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
    use super::*;
    use proptest::prelude::*;

    /// An Ethernet header before `payload`.
    pub(crate) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// An IPv4 datagram with a right header checksum.
    pub(crate) fn ipv4(
        source: [u8; 4],
        destination: [u8; 4],
        protocol: u8,
        flags: u16,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut ip = vec![0x45, 0];
        ip.extend((20 + payload.len() as u16).to_be_bytes());
        ip.extend([0, 7]);
        ip.extend(flags.to_be_bytes());
        ip.extend([64, protocol, 0, 0]);
        ip.extend(source);
        ip.extend(destination);
        let checksum = !crate::checksum::fold(crate::checksum::sum(&ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        ip.extend(payload);
        ip
    }

    #[test]
    fn tags_are_stepped_over() {
        let inner = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &[0; 8]);
        let mut tagged = vec![0x00, 0x05, 0x81, 0x00, 0x20, 0x06, 0x08, 0x00];
        tagged.extend(&inner);
        let frame = ethernet(ethertype::QINQ, &tagged);
        assert_eq!(
            link(&frame),
            Some(Link {
                ethertype: 0x0800,
                offset: 22,
                vlans: [Some(5), Some(6)],
                tags: 2
            })
        );
        assert_eq!(network(&frame).unwrap().payload, 42);
        // A tag that is cut leaves the tag's own EtherType.
        assert_eq!(link(&frame[..15]).unwrap().ethertype, ethertype::QINQ);
    }

    #[test]
    fn mpls_and_pppoe_are_stepped_over() {
        let inner = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &[0; 8]);
        let mpls = [&[0, 1, 0, 64, 0, 1, 1, 64][..], &inner].concat();
        assert_eq!(
            network(&ethernet(ethertype::MPLS, &mpls)).unwrap().offset,
            22
        );
        let pppoe = [&[0x11, 0, 0, 1, 0, 30, 0, 0x21][..], &inner].concat();
        assert_eq!(
            network(&ethernet(ethertype::PPPOE_SESSION, &pppoe))
                .unwrap()
                .offset,
            22
        );
    }

    #[test]
    fn fragments_and_lengths_are_read() {
        let mut frame = ethernet(
            0x0800,
            &ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, 0x2001, &[1; 16]),
        );
        frame.extend([0; 10]);
        let ip = network(&frame).unwrap();
        assert_eq!(
            ip.fragment,
            Some(Fragment {
                id: 7,
                offset_bytes: 8,
                more: true
            })
        );
        assert_eq!(
            (ip.payload, ip.end, ip.claimed_end),
            (34, 50, 50),
            "padding is left out"
        );
        assert!(!ip.has_transport_header());
        let cut = network(&frame[..40]).unwrap();
        assert_eq!((cut.payload, cut.end, cut.claimed_end), (34, 40, 50));
    }

    #[test]
    fn ipv6_extension_headers_are_walked() {
        let mut ip = vec![0x60, 0, 0, 0, 0, 24, 0, 64];
        ip.extend([1; 16]);
        ip.extend([2; 16]);
        ip.extend([44, 0, 0, 0, 0, 0, 0, 0]); // hop by hop
        ip.extend([17, 0, 0, 1, 0, 0, 0, 9]); // fragment 9, first
        ip.extend([0, 53, 0, 53, 0, 8, 0, 0]);
        let view = network(&ethernet(ethertype::IPV6, &ip)).unwrap();
        assert_eq!(view.protocol, protocol::UDP);
        assert_eq!(view.payload, 14 + 56);
        assert_eq!(
            view.fragment,
            Some(Fragment {
                id: 9,
                offset_bytes: 0,
                more: true
            })
        );
    }

    proptest! {
        #[test]
        fn any_frame_is_borne(bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0usize..6) {
            let types = [0x0800, 0x86dd, 0x8100, 0x8847, 0x8864, 0x88a8];
            let frame = ethernet(types[kind], &bytes);
            for cut in 0..frame.len() {
                if let Some(ip) = network(&frame[..cut]) {
                    prop_assert!(ip.end <= cut && ip.payload <= cut.max(ip.offset + 20));
                    let _ = quoted_datagram(&frame[..cut], &ip);
                    let _ = ip.payload(&frame[..cut]);
                }
            }
        }
    }
}
