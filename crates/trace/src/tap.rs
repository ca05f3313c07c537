//! A frame as an AF_PACKET tap on the receiving port gets it: what the kernel has already done to it by then.

use nodrop_wire::view::ethertype;

/// Below this the field after the addresses is the length of an IEEE 802.3 frame (ETH_P_802_3_MIN).
const FIRST_ETHERTYPE: u16 = 0x0600;
/// Addresses and type.
pub const ETHERNET_HEADER_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// Who the kernel looks for to take the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// An Ethernet II frame.
    EtherType(u16),
    /// IEEE 802.3 with an LLC header: spanning tree, IS-IS, NetBIOS (ETH_P_802_2).
    Llc,
    /// IEEE 802.3 without one: Novell's raw framing (ETH_P_802_3).
    Raw8023,
}

impl Protocol {
    /// From the field after the addresses, and what follows it.
    #[must_use]
    pub fn of_field(field: u16, payload: &[u8]) -> Self {
        if field >= FIRST_ETHERTYPE {
            Self::EtherType(field)
        } else if payload.starts_with(&[0xff, 0xff]) {
            Self::Raw8023
        } else {
            Self::Llc
        }
    }

    /// True for the protocols that every Linux host with IPv6 takes; the others are counted in `rx_dropped`.
    #[must_use]
    pub fn has_handler(self) -> bool {
        matches!(
            self,
            Self::EtherType(ethertype::IPV4 | ethertype::IPV6 | ethertype::ARP)
        )
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::EtherType(ethertype::ARP) => f.write_str("arp"),
            Self::EtherType(0x88cc) => f.write_str("lldp"),
            Self::EtherType(field) => write!(f, "0x{field:04x}"),
            Self::Llc => f.write_str("llc"),
            Self::Raw8023 => f.write_str("raw_802_3"),
        }
    }
}

/// What the tap gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapView<'a> {
    /// Type of the frame after the outermost VLAN tag, which the kernel moves into metadata before any tap sees the frame.
    pub protocol: Protocol,
    /// True if a tag was moved.
    pub tagged: bool,
    /// From the network header on.
    pub network: &'a [u8],
}

impl TapView<'_> {
    /// Length of the frame there.
    #[must_use]
    pub fn bytes(&self) -> usize {
        ETHERNET_HEADER_BYTES + self.network.len()
    }
}

/// The frame at the tap; `None` if it never gets there: no whole Ethernet header, or a tag with less than six bytes after the
/// addresses and type (`skb_vlan_untag` frees it).
#[must_use]
pub fn tap_view(frame: &[u8]) -> Option<TapView<'_>> {
    let network = frame.get(ETHERNET_HEADER_BYTES..)?;
    let field = u16::from_be_bytes([frame[12], frame[13]]);
    if is_tag(field) {
        let inner_field = u16::from_be_bytes([*network.get(2)?, *network.get(3)?]);
        let inner = network.get(TAG_BYTES..).filter(|rest| rest.len() >= 2)?;
        return Some(TapView {
            protocol: Protocol::of_field(inner_field, inner),
            tagged: true,
            network: inner,
        });
    }
    Some(TapView {
        protocol: Protocol::of_field(field, network),
        tagged: false,
        network,
    })
}

/// Whether the EtherType is that of a VLAN tag the kernel knows.
#[must_use]
pub fn is_tag(field: u16) -> bool {
    matches!(field, ethertype::VLAN | ethertype::QINQ)
}

/// The innermost type and network header after all VLAN tags: what the frame carries, whoever can see it.
#[must_use]
pub fn innermost(view: TapView<'_>) -> (Protocol, &[u8]) {
    let (mut inner, mut network) = (view.protocol, view.network);
    while let Protocol::EtherType(field) = inner {
        if !is_tag(field) || network.len() < TAG_BYTES {
            break;
        }
        let field = u16::from_be_bytes([network[2], network[3]]);
        network = &network[TAG_BYTES..];
        inner = Protocol::of_field(field, network);
    }
    (inner, network)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn frame(tail: &[u8]) -> Vec<u8> {
        [&[0; 12], tail].concat()
    }

    #[test]
    fn one_tag_is_stripped_and_no_more() {
        let plain = frame(&[0x08, 0x00, 0x45]);
        assert_eq!(
            tap_view(&plain).unwrap(),
            TapView {
                protocol: Protocol::EtherType(ethertype::IPV4),
                tagged: false,
                network: &[0x45]
            }
        );
        let tagged = frame(&[0x81, 0, 0, 7, 0x86, 0xdd, 0x60, 0]);
        assert_eq!(
            tap_view(&tagged).unwrap(),
            TapView {
                protocol: Protocol::EtherType(ethertype::IPV6),
                tagged: true,
                network: &[0x60, 0]
            }
        );
        let twice = frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 0x08, 0x00, 0x45]);
        let view = tap_view(&twice).unwrap();
        assert_eq!(view.protocol, Protocol::EtherType(0x8100));
        assert!(!view.protocol.has_handler());
        assert_eq!(
            innermost(view),
            (Protocol::EtherType(ethertype::IPV4), &[0x45][..])
        );
    }

    #[test]
    fn short_fields_are_lengths() {
        let llc = frame(&[0, 3, 0x42, 0x42, 3]);
        assert_eq!(tap_view(&llc).unwrap().protocol, Protocol::Llc);
        let novell = frame(&[0, 30, 0xff, 0xff, 0]);
        assert_eq!(tap_view(&novell).unwrap().protocol, Protocol::Raw8023);
    }

    #[test]
    fn what_is_too_short_never_arrives() {
        assert_eq!(tap_view(&[0; 13]), None);
        assert_eq!(tap_view(&frame(&[0x81, 0, 0, 1, 8, 0, 0x45])), None);
        assert!(tap_view(&frame(&[8, 0])).is_some());
    }
}
