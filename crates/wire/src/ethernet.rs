//! Ethernet headers for frames that were captured on other links (tcpdump.org/linktypes.html).

use crate::bytes::{array_at, u8_at, u16_at, u32_at};
use crate::link::{ETHERNET_BYTES, ethertype};
use crate::record::LINKTYPE_ETHERNET;

/// Addresses of frames whose link had none that Ethernet could carry: locally administered, "nodr" in ASCII.
const OUR_SOURCE: Mac = [0x02, b'n', b'o', b'd', b'r', 1];
const OUR_DESTINATION: Mac = [0x02, b'n', b'o', b'd', b'r', 2];
const BROADCAST: Mac = [0xff; 6];
/// Greatest value of the type field that is a length (IEEE 802.3).
const LONGEST_802_3: usize = 1_500;

type Mac = [u8; 6];

/// A frame as Ethernet carries it: `header`, then the captured bytes without those in front and behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifted {
    /// Destination, source and type.
    pub header: [u8; ETHERNET_BYTES],
    /// Bytes in front of the network header that stay behind.
    pub skipped: usize,
    /// Bytes at the end that stay behind: a check sequence of the other link.
    pub trailing: usize,
    /// Whether the captured frame had a source address that Ethernet can carry.
    pub has_source: bool,
}

/// Why a frame cannot be put on an Ethernet port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoEthernet {
    /// Nothing is known of the link type, or it carries no network packets: USB, Bluetooth, CAN.
    Link,
    /// The link carries network packets, and this frame has none: PPP negotiation, 802.11 beacons.
    Control,
    /// 802.11 data that is encrypted.
    Encrypted,
    /// The frame is cut before its network header.
    Cut,
}

/// The Ethernet header of a frame; `None` if it has one.
///
/// # Errors
/// If it cannot have one.
pub fn lifted(linktype: u32, frame: &[u8]) -> Result<Option<Lifted>, NoEthernet> {
    let lifted = match linktype {
        LINKTYPE_ETHERNET => return Ok(None),
        // Families of the capturing system, in its byte order; OpenBSD's in the network's.
        0 | 108 => of_family(u32_at(frame, 0).ok_or(NoEthernet::Cut)?, frame, 4),
        8 => of_version(frame, 16),
        9 | 50 => of_ppp(frame, 0),
        166 => of_ppp(frame, 2),
        204 => of_ppp(frame, 1),
        // RFC 2516, from the PPPoE header on; 7 and 9 are session and discovery by their code.
        51 => {
            let session = u8_at(frame, 1).ok_or(NoEthernet::Cut)? == 0;
            of_type(
                if session {
                    ethertype::PPPOE_SESSION
                } else {
                    0x8863
                },
                frame,
                0,
            )
        }
        6 => of_token_ring(frame),
        10 => of_fddi(frame),
        11 => of_llc(frame, 0, None),
        12 | 14 | 101 | 228 | 229 => of_version(frame, 0),
        // Classical IP over ATM: with LLC or without.
        19 if frame.starts_with(&[0xaa, 0xaa, 0x03]) => of_llc(frame, 0, None),
        19 => of_version(frame, 0),
        104 => of_hdlc(frame, 2),
        105 => of_radio(frame, 0, 0),
        107 => of_frame_relay(frame),
        109 => of_family(u32_at(frame, 0).ok_or(NoEthernet::Cut)?, frame, 12),
        113 => of_cooked(frame),
        117 => of_version(
            frame,
            usize::from(u8_at(frame, 0).ok_or(NoEthernet::Cut)?).next_multiple_of(4),
        ),
        119 => of_radio(frame, 144, 0),
        123 => of_llc(frame, 4, None),
        127 => of_radiotap(frame),
        138 => of_type(u16_at(frame, 16).ok_or(NoEthernet::Cut)?, frame, 18),
        163 => of_radio(frame, u32_at(frame, 4).ok_or(NoEthernet::Cut)? as usize, 0),
        192 => of_ppi(frame),
        226 => of_version(frame, 24),
        239 => of_netfilter_log(frame),
        // netANALYZER: 4 bytes of its own, then Ethernet with its check sequence, with or without a preamble.
        240 => of_ethernet(frame, 4, 4),
        241 => of_ethernet(frame, 12, 4),
        242 => of_type(u16_at(frame, 40).ok_or(NoEthernet::Cut)?, frame, 44),
        258 => of_pktap(frame),
        276 => of_cooked_2(frame),
        // Tags of switch chips: behind the addresses, or in front of them.
        281 | 284 => of_switch_tag(frame, 4),
        282 => of_ethernet(frame, 4, 0),
        285 => of_switch_tag(frame, 8),
        _ => Err(NoEthernet::Link),
    }?;
    if lifted.skipped + lifted.trailing > frame.len() {
        return Err(NoEthernet::Cut);
    }
    Ok(Some(lifted))
}

/// A network packet at `skipped`, with addresses of ours.
fn of_type(kind: u16, frame: &[u8], skipped: usize) -> Result<Lifted, NoEthernet> {
    Ok(built(
        OUR_DESTINATION,
        OUR_SOURCE,
        kind,
        frame,
        skipped,
        false,
    ))
}

fn built(
    destination: Mac,
    source: Mac,
    kind: u16,
    frame: &[u8],
    skipped: usize,
    has_source: bool,
) -> Lifted {
    let destination = if destination == OUR_DESTINATION {
        group_of(kind, frame, skipped).unwrap_or(destination)
    } else {
        destination
    };
    let mut header = [0; ETHERNET_BYTES];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source);
    header[12..].copy_from_slice(&kind.to_be_bytes());
    Lifted {
        header,
        skipped,
        trailing: 0,
        has_source,
    }
}

/// The group address that a multicast or broadcast IP packet has on Ethernet (RFC 1112, RFC 2464).
fn group_of(kind: u16, frame: &[u8], at: usize) -> Option<Mac> {
    match kind {
        ethertype::IPV4 => match array_at::<4>(frame, at + 16)? {
            [255, 255, 255, 255] => Some(BROADCAST),
            [224..=239, b, c, d] => Some([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
            _ => None,
        },
        ethertype::IPV6 => {
            let address = array_at::<16>(frame, at + 24)?;
            let [.., c, d, e, f] = address;
            (address[0] == 0xff).then_some([0x33, 0x33, c, d, e, f])
        }
        _ => None,
    }
}

/// IP of the version that its first bits say.
fn of_version(frame: &[u8], at: usize) -> Result<Lifted, NoEthernet> {
    match u8_at(frame, at).ok_or(NoEthernet::Cut)? >> 4 {
        4 => of_type(ethertype::IPV4, frame, at),
        6 => of_type(ethertype::IPV6, frame, at),
        _ => Err(NoEthernet::Control),
    }
}

/// An address family, whichever byte order and system it is of: AF_INET is 2 everywhere, AF_INET6 10, 24, 28 or 30.
fn of_family(family: u32, frame: &[u8], at: usize) -> Result<Lifted, NoEthernet> {
    match if family > 0xffff {
        family.swap_bytes()
    } else {
        family
    } {
        2 | 10 | 24 | 28 | 30 => of_version(frame, at),
        _ => Err(NoEthernet::Control),
    }
}

/// PPP (RFC 1661), with or without address and control, or with Cisco's HDLC in their place.
fn of_ppp(frame: &[u8], begin: usize) -> Result<Lifted, NoEthernet> {
    let at = match array_at::<2>(frame, begin).ok_or(NoEthernet::Cut)? {
        [0xff, 0x03] => begin + 2,
        [0x0f | 0x8f, 0x00] => return of_hdlc(frame, begin + 2),
        _ => begin,
    };
    // A protocol below 256 may be one byte (RFC 1661, 6.5): then the byte is odd.
    let (protocol, at) = match u8_at(frame, at).ok_or(NoEthernet::Cut)? {
        short if short & 1 == 1 => (u16::from(short), at + 1),
        _ => (u16_at(frame, at).ok_or(NoEthernet::Cut)?, at + 2),
    };
    match protocol {
        0x0021 => of_type(ethertype::IPV4, frame, at),
        0x0057 => of_type(ethertype::IPV6, frame, at),
        0x0281 => of_type(ethertype::MPLS, frame, at),
        _ => Err(NoEthernet::Control),
    }
}

/// Cisco's HDLC: the type of Ethernet stands at `at`; keepalives and the discovery protocol have none there.
fn of_hdlc(frame: &[u8], at: usize) -> Result<Lifted, NoEthernet> {
    match u16_at(frame, at).ok_or(NoEthernet::Cut)? {
        0x8035 | 0..=0x05ff | 0x2000 => Err(NoEthernet::Control),
        kind => of_type(kind, frame, at + 2),
    }
}

/// A whole Ethernet frame behind `at` other bytes.
fn of_ethernet(frame: &[u8], at: usize, trailing: usize) -> Result<Lifted, NoEthernet> {
    Ok(Lifted {
        header: array_at(frame, at).ok_or(NoEthernet::Cut)?,
        skipped: at + ETHERNET_BYTES,
        trailing,
        has_source: true,
    })
}

/// An Ethernet frame with a tag of its switch before the type.
fn of_switch_tag(frame: &[u8], tag: usize) -> Result<Lifted, NoEthernet> {
    let mut header: [u8; ETHERNET_BYTES] = array_at(frame, 0).ok_or(NoEthernet::Cut)?;
    let kind: [u8; 2] = array_at(frame, 12 + tag).ok_or(NoEthernet::Cut)?;
    header[12..].copy_from_slice(&kind);
    Ok(Lifted {
        header,
        skipped: ETHERNET_BYTES + tag,
        trailing: 0,
        has_source: true,
    })
}

/// Frame relay (RFC 2427): an address whose last byte is odd, then a network layer identifier; Cisco's has the type of Ethernet in its place.
fn of_frame_relay(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let last = frame.iter().take(4).position(|byte| byte & 1 == 1);
    let mut at = last.ok_or(NoEthernet::Control)? + 1;
    if u8_at(frame, at).ok_or(NoEthernet::Cut)? != 0x03 {
        let kind = u16_at(frame, at).ok_or(NoEthernet::Cut)?;
        return match kind {
            0..=0x05ff | 0x2000 => Err(NoEthernet::Control),
            kind => of_type(kind, frame, at + 2),
        };
    }
    at += 1;
    if u8_at(frame, at) == Some(0) {
        at += 1;
    }
    match (
        u8_at(frame, at).ok_or(NoEthernet::Cut)?,
        array_at(frame, at + 1),
    ) {
        (0xcc, _) => of_type(ethertype::IPV4, frame, at + 1),
        (0x8e, _) => of_type(ethertype::IPV6, frame, at + 1),
        (0x80, Some([0, 0, 0])) => {
            of_type(u16_at(frame, at + 4).ok_or(NoEthernet::Cut)?, frame, at + 6)
        }
        _ => Err(NoEthernet::Control),
    }
}

/// Apple's `tcpdump -i pktap`: its own length, and the link type of what follows, in little-endian.
fn of_pktap(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let little = |at: usize| array_at::<4>(frame, at).map(u32::from_le_bytes);
    let at = little(0).ok_or(NoEthernet::Cut)? as usize;
    of_any(little(8).ok_or(NoEthernet::Cut)?, frame, at)
}

/// A frame of the link that the header in front of it names.
fn of_any(linktype: u32, frame: &[u8], at: usize) -> Result<Lifted, NoEthernet> {
    // No program puts such a header into another.
    if matches!(linktype, 192 | 258) {
        return Err(NoEthernet::Control);
    }
    match lifted(linktype, frame.get(at..).ok_or(NoEthernet::Cut)?)? {
        None => of_ethernet(frame, at, 0),
        Some(lifted) => Ok(Lifted {
            skipped: lifted.skipped + at,
            ..lifted
        }),
    }
}

/// Token Ring (IEEE 802.5): access and frame control, both addresses, and a route if the source says so.
fn of_token_ring(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    if u8_at(frame, 1).ok_or(NoEthernet::Cut)? >> 6 != 1 {
        return Err(NoEthernet::Control);
    }
    let addresses = array_at::<6>(frame, 2).zip(array_at::<6>(frame, 8));
    let (destination, mut source) = addresses.ok_or(NoEthernet::Cut)?;
    let route = match source[0] & 0x80 {
        0 => 0,
        _ => usize::from(u8_at(frame, 14).ok_or(NoEthernet::Cut)? & 0x1f),
    };
    source[0] &= 0x7f;
    of_llc(frame, 14 + route, Some((destination, source)))
}

/// FDDI: frame control, both addresses with their bits reversed in some captures, LLC.
fn of_fddi(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let addresses = array_at::<6>(frame, 1).zip(array_at::<6>(frame, 7));
    of_llc(frame, 13, Some(addresses.ok_or(NoEthernet::Cut)?))
}

/// A packet behind logical link control (IEEE 802.2): its type by SNAP, else LLC as 802.3 carries it.
fn of_llc(frame: &[u8], at: usize, addresses: Option<(Mac, Mac)>) -> Result<Lifted, NoEthernet> {
    let (destination, source) = addresses.unwrap_or((OUR_DESTINATION, OUR_SOURCE));
    let (kind, skipped) = match array_at::<6>(frame, at).ok_or(NoEthernet::Cut)? {
        [0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8] => {
            (u16_at(frame, at + 6).ok_or(NoEthernet::Cut)?, at + 8)
        }
        _ => (length_of(frame, at)?, at),
    };
    let has_source = addresses.is_some();
    Ok(built(destination, source, kind, frame, skipped, has_source))
}

/// What follows as the length field of 802.3.
fn length_of(frame: &[u8], at: usize) -> Result<u16, NoEthernet> {
    let length = frame.len() - at.min(frame.len());
    match u16::try_from(length) {
        Ok(kind) if length <= LONGEST_802_3 => Ok(kind),
        _ => Err(NoEthernet::Control),
    }
}

/// `tcpdump -i any`: packet type, ARPHRD_ type, source address, protocol.
fn of_cooked(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let direction = u16_at(frame, 0).ok_or(NoEthernet::Cut)?;
    let (hardware, length) = (u16_at(frame, 2), u16_at(frame, 4));
    let kind = u16_at(frame, 14).ok_or(NoEthernet::Cut)?;
    cooked(frame, direction, (hardware, length), 6, kind, 16)
}

/// The same, version 2: protocol first, and the number of the interface.
fn of_cooked_2(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let kind = u16_at(frame, 0).ok_or(NoEthernet::Cut)?;
    let direction = u16::from(u8_at(frame, 10).ok_or(NoEthernet::Cut)?);
    let length = u8_at(frame, 11).map(u16::from);
    cooked(frame, direction, (u16_at(frame, 8), length), 12, kind, 20)
}

fn cooked(
    frame: &[u8],
    direction: u16,
    (hardware, length): (Option<u16>, Option<u16>),
    address_at: usize,
    kind: u16,
    skipped: usize,
) -> Result<Lifted, NoEthernet> {
    // ARPHRD_NETLINK, CAN and the raw 802.11 kinds have other things in the protocol field.
    if matches!(hardware, Some(824 | 280 | 801..=803)) {
        return Err(NoEthernet::Control);
    }
    let own = array_at::<6>(frame, address_at)
        .filter(|address| length == Some(6) && *address != [0; 6] && address[0] & 1 == 0);
    let destination = match direction {
        1 => BROADCAST, // PACKET_BROADCAST
        _ => OUR_DESTINATION,
    };
    let kind = match kind {
        // LINUX_SLL_P_802_2: LLC follows; 802_3 is Novell's, without LLC.
        0x0001 | 0x0004 => length_of(frame, skipped)?,
        0x0002..=0x05ff => return Err(NoEthernet::Control),
        kind => kind,
    };
    let source = own.unwrap_or(OUR_SOURCE);
    Ok(built(
        destination,
        source,
        kind,
        frame,
        skipped,
        own.is_some(),
    ))
}

/// Per-packet information: its own length, and the link type of what follows, in little-endian.
fn of_ppi(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let [_, _, low, high, inner @ ..] = array_at::<8>(frame, 0).ok_or(NoEthernet::Cut)?;
    let at = usize::from(u16::from_le_bytes([low, high]));
    of_any(u32::from_le_bytes(inner), frame, at)
}

/// Radiotap (radiotap.org): the flags say whether a check sequence ends the frame and whether the header is padded.
fn of_radiotap(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let [_, _, low, high] = array_at::<4>(frame, 0).ok_or(NoEthernet::Cut)?;
    let little = |at: usize| array_at::<4>(frame, at).map(u32::from_le_bytes);
    let present = little(4).ok_or(NoEthernet::Cut)?;
    let mut at = 8;
    while little(at - 4).ok_or(NoEthernet::Cut)? & 0x8000_0000 != 0 {
        at += 4;
    }
    if present & 1 != 0 {
        at = at.next_multiple_of(8) + 8; // TSFT
    }
    let flags = match present & 2 {
        0 => 0,
        _ => u8_at(frame, at).ok_or(NoEthernet::Cut)?,
    };
    of_radio(frame, usize::from(u16::from_le_bytes([low, high])), flags)
}

/// Data frames of IEEE 802.11; `flags` are radiotap's.
fn of_radio(frame: &[u8], at: usize, flags: u8) -> Result<Lifted, NoEthernet> {
    const CHECKED: u8 = 0x10;
    const PADDED: u8 = 0x20;
    let control = u16::from_le_bytes(array_at::<2>(frame, at).ok_or(NoEthernet::Cut)?);
    let (kind, subtype) = (control >> 2 & 3, control >> 4 & 0xf);
    // Data that is no "null" frame, which only says that its sender sleeps.
    if kind != 2 || subtype & 4 != 0 {
        return Err(NoEthernet::Control);
    }
    if control & 0x4000 != 0 {
        return Err(NoEthernet::Encrypted);
    }
    let (to_ds, from_ds) = (control & 0x100 != 0, control & 0x200 != 0);
    let address =
        |number: usize| array_at::<6>(frame, at + [4, 10, 16, 24][number]).ok_or(NoEthernet::Cut);
    let (destination, source) = match (to_ds, from_ds) {
        (false, false) => (address(0)?, address(1)?),
        (false, true) => (address(0)?, address(2)?),
        (true, false) => (address(2)?, address(1)?),
        (true, true) => (address(2)?, address(3)?),
    };
    let mut body = at + 24 + if to_ds && from_ds { 6 } else { 0 };
    if subtype & 8 != 0 {
        // Several packets in one frame are not taken apart.
        if u8_at(frame, body).ok_or(NoEthernet::Cut)? & 0x80 != 0 {
            return Err(NoEthernet::Control);
        }
        body += if control & 0x8000 != 0 { 6 } else { 2 };
    }
    if flags & PADDED != 0 {
        body = at + (body - at).next_multiple_of(4);
    }
    let lifted = of_llc(frame, body, Some((destination, source)))?;
    Ok(Lifted {
        trailing: if flags & CHECKED != 0 { 4 } else { 0 },
        ..lifted
    })
}

/// Netfilter's log: attributes in the byte order of the capturing system, of which number 9 is the packet.
fn of_netfilter_log(frame: &[u8]) -> Result<Lifted, NoEthernet> {
    let family = u8_at(frame, 0).ok_or(NoEthernet::Cut)?;
    let mut at = 4;
    while let Some([a, b, c, d]) = array_at::<4>(frame, at) {
        let (mut length, mut kind) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        if kind & 0xff == 0 && kind != 0 {
            (length, kind) = (length.swap_bytes(), kind.swap_bytes());
        }
        if kind == 9 {
            return of_family(family.into(), frame, at + 4);
        }
        if length < 4 {
            break;
        }
        at += usize::from(length).next_multiple_of(4);
    }
    Err(NoEthernet::Control)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::view::tests::ipv4;
    use proptest::prelude::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];

    fn packet() -> Vec<u8> {
        ipv4(
            [10, 0, 0, 1],
            [10, 0, 0, 2],
            17,
            0,
            &[0, 53, 0, 53, 0, 8, 0, 0],
        )
    }

    /// The Ethernet frame that a captured one becomes, and whether its source address is its own.
    fn ethernet(linktype: u32, before: &[u8], after: &[u8]) -> Result<(Vec<u8>, bool), NoEthernet> {
        let frame = [before, &packet(), after].concat();
        lifted(linktype, &frame).map(|lifted| {
            let lifted = lifted.unwrap();
            let payload = &frame[lifted.skipped..frame.len() - lifted.trailing];
            ([&lifted.header[..], payload].concat(), lifted.has_source)
        })
    }

    #[test]
    fn packets_of_every_link_get_a_header() {
        let ours = [&OUR_DESTINATION[..], &OUR_SOURCE, &[8, 0], &packet()].concat();
        let none: &[u8] = &[];
        let zeros = [0_u8; 44];
        let ieee1394 = [&zeros[..16], &[8, 0]].concat();
        let infiniband = [&zeros[..40], &[8, 0, 0, 0]].concat();
        let cooked_without = [0, 0, 3, 4, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        let log = [&[2, 0, 0, 0][..], &[8, 0, 1, 0, 0, 8, 1, 0], &[32, 0, 9, 0]].concat();
        for (linktype, before) in [
            (0, &[2, 0, 0, 0][..]),
            (0, &[0, 0, 0, 2]),
            (108, &[0, 0, 0, 2]),
            (8, &zeros[..16]),
            (9, &[0xff, 3, 0, 0x21]),
            (9, &[0, 0x21]),
            (9, &[0x21]),
            (50, &[0x0f, 0, 8, 0]),
            (166, &[0, 0, 0xff, 3, 0, 0x21]),
            (204, &[1, 0xff, 3, 0, 0x21]),
            (11, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
            (123, &[0, 0, 0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
            (12, none),
            (101, none),
            (228, none),
            (104, &[0x0f, 0, 8, 0]),
            (109, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (113, &cooked_without),
            (117, &[5, 2, 0, 0, 0, 0, 0, 0]),
            (138, &ieee1394),
            (239, &log),
            (242, &infiniband),
            (107, &[0x18, 0x41, 3, 0xcc]),
            (107, &[0x18, 0x40, 0x01, 3, 0, 0x80, 0, 0, 0, 8, 0]),
            (107, &[0x18, 0x41, 8, 0]),
            (19, none),
            (19, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
            (226, &zeros[..24]),
            (192, &[0, 0, 8, 0, 101, 0, 0, 0]),
        ] {
            let made = ethernet(linktype, before, none);
            assert_eq!(made, Ok((ours.clone(), false)), "{linktype} {before:02x?}");
        }
    }

    #[test]
    fn addresses_of_the_captured_frame_are_kept() {
        let cooked = [&[0, 0, 0, 1, 0, 6][..], &OWN, &[0, 0, 8, 0]].concat();
        let cooked_2 = [&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6][..], &OWN, &[0, 0]].concat();
        let expected = [&OUR_DESTINATION[..], &OWN, &[8, 0], &packet()].concat();
        for (linktype, before) in [(113, cooked), (276, cooked_2)] {
            let made = ethernet(linktype, &before, &[]);
            assert_eq!(made, Ok((expected.clone(), true)), "{linktype}");
        }
    }

    #[test]
    fn frames_behind_or_around_other_headers_are_taken_out() {
        let frame = [&[2, 0, 0, 0, 0, 9][..], &OWN, &[8, 0]].concat();
        let expected = [&frame[..], &packet()].concat();
        let tag = |bytes: &[u8]| [&frame[..12], bytes, &[8, 0]].concat();
        let behind = |bytes: &[u8]| [bytes, &frame].concat();
        let mut pktap = vec![0; 20];
        (pktap[0], pktap[8]) = (20, 1);
        let llc = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        let ring = [&[0x10, 0x40][..], &frame[..12], &llc].concat();
        let mut routed = [&[0x10, 0x40][..], &frame[..12], &[6, 0, 1, 2, 3, 4], &llc].concat();
        routed[8] |= 0x80;
        for (linktype, before, after) in [
            (6, ring, &[][..]),
            (6, routed, &[]),
            (240, behind(&[7; 4]), &[9; 4]),
            (241, behind(&[0x55; 12]), &[9; 4]),
            (258, behind(&pktap), &[]),
            (192, behind(&[0, 0, 8, 0, 1, 0, 0, 0]), &[]),
            (192, behind(&[0, 0, 12, 0, 1, 0, 0, 0, 3, 0, 0, 0]), &[]),
            (281, tag(&[1, 2, 3, 4]), &[]),
            (282, behind(&[1, 2, 3, 4]), &[]),
            (284, tag(&[1, 2, 3, 4]), &[]),
            (285, tag(&[0xda, 0xda, 0, 0, 1, 2, 3, 4]), &[]),
        ] {
            let made = ethernet(linktype, &before, after);
            assert_eq!(made, Ok((expected.clone(), true)), "{linktype}");
        }
        for (linktype, bytes) in [
            (107, &[0x18, 0x41, 3, 8, 0][..]),
            (107, &[0, 1, 3, 8, 0, 0x75]),
            (6, &[0x10, 0, 2, 2, 2, 2]),
        ] {
            let made = lifted(linktype, bytes);
            assert_eq!(made, Err(NoEthernet::Control), "{linktype}");
        }
    }

    #[test]
    fn radio_frames_have_their_addresses_by_direction() {
        let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        let addresses = [[2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 9]].concat();
        let frame = |control: [u8; 2], more: &[u8]| {
            [&control[..], &[0, 0], &addresses, &[0, 0], more, &snap].concat()
        };
        let of = |destination: u8, source: u8| {
            let header = [2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0];
            Ok(([&header[..], &packet()].concat(), true))
        };
        for (control, more, destination, source) in [
            ([0x08, 0x00], &[][..], 7, 8),
            ([0x08, 0x02], &[], 7, 9),
            ([0x08, 0x01], &[], 9, 8),
            ([0x08, 0x03], &[2, 0, 0, 0, 0, 6], 9, 6),
            ([0x88, 0x01], &[0, 0], 9, 8),
            ([0x88, 0x81], &[0, 0, 1, 1, 1, 1], 9, 8),
        ] {
            let made = ethernet(105, &frame(control, more), &[]);
            assert_eq!(made, of(destination, source), "{control:02x?}");
        }
        let plain = frame([0x08, 0x00], &[]);
        let tap = |present: u8, fields: &[u8]| {
            let length = u8::try_from(8 + fields.len()).unwrap();
            [&[0, 0, length, 0, present, 0, 0, 0][..], fields, &plain].concat()
        };
        assert_eq!(ethernet(127, &tap(0, &[]), &[]), of(7, 8));
        assert_eq!(
            ethernet(127, &tap(2, &[0x10]), &[9; 4]),
            of(7, 8),
            "check sequence"
        );
        let stamped = [&[1; 8][..], &[0x10]].concat();
        assert_eq!(ethernet(127, &tap(3, &stamped), &[9; 4]), of(7, 8));
        let ppi = [&[0, 0, 8, 0, 105, 0, 0, 0][..], &plain].concat();
        assert_eq!(ethernet(192, &ppi, &[]), of(7, 8));
        assert_eq!(
            ethernet(119, &[&[0; 144][..], &plain].concat(), &[]),
            of(7, 8)
        );

        for (control, why) in [
            ([0x80, 0x00], NoEthernet::Control), // beacon
            ([0x48, 0x00], NoEthernet::Control), // null
            ([0x08, 0x40], NoEthernet::Encrypted),
        ] {
            assert_eq!(ethernet(105, &frame(control, &[]), &[]), Err(why));
        }
    }

    #[test]
    fn groups_have_the_address_of_their_group() {
        for (destination, mac) in [
            ([224, 129, 0, 251], [0x01, 0x00, 0x5e, 1, 0, 251]),
            ([255; 4], [0xff; 6]),
        ] {
            let packet = ipv4([10, 0, 0, 1], destination, 17, 0, &[0; 8]);
            assert_eq!(lifted(101, &packet).unwrap().unwrap().header[..6], mac);
        }
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 59, 1];
        packet.extend([1; 16]);
        packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        let header = lifted(101, &packet).unwrap().unwrap().header;
        assert_eq!(header[..6], [0x33, 0x33, 1, 2, 3, 4]);
    }

    #[test]
    fn what_carries_no_packets_is_refused() {
        let packet = packet();
        for linktype in [187, 195, 220, 227, 253, 147, 9_999] {
            assert_eq!(lifted(linktype, &packet), Err(NoEthernet::Link));
        }
        assert_eq!(
            lifted(9, &[0xff, 3, 0xc0, 0x21, 1]),
            Err(NoEthernet::Control)
        );
        assert_eq!(
            lifted(104, &[0x8f, 0, 0x80, 0x35, 0]),
            Err(NoEthernet::Control)
        );
        assert_eq!(lifted(113, &[0; 15]), Err(NoEthernet::Cut));
        assert_eq!(lifted(LINKTYPE_ETHERNET, &packet), Ok(None));
    }

    proptest! {
        #[test]
        fn any_frame_is_borne(bytes in proptest::collection::vec(any::<u8>(), 0..80), linktype in 0u32..300) {
            if let Ok(Some(lifted)) = lifted(linktype, &bytes) {
                prop_assert!(lifted.skipped + lifted.trailing <= bytes.len());
            }
        }
    }
}
