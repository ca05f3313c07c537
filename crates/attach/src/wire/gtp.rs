//! GTPv2-C (TS 29.274) on S11 between MME and SGW: the sessions of an attach.

use super::Undecodable;

const VERSION: u8 = 2 << 5;
const HAS_TEID: u8 = 1 << 3;
/// Longest of a datagram.
const MOST_OCTETS: usize = 65_535;

/// Message types.
pub mod kind {
    #![allow(missing_docs)]
    pub const ECHO_REQUEST: u8 = 1;
    pub const ECHO_RESPONSE: u8 = 2;
    pub const CREATE_SESSION_REQUEST: u8 = 32;
    pub const MODIFY_BEARER_REQUEST: u8 = 34;
    pub const DELETE_SESSION_REQUEST: u8 = 36;
    pub const RELEASE_ACCESS_BEARERS_REQUEST: u8 = 170;
}

/// Types of information elements.
pub mod ie {
    #![allow(missing_docs)]
    pub const IMSI: u8 = 1;
    pub const CAUSE: u8 = 2;
    pub const RECOVERY: u8 = 3;
    pub const APN: u8 = 71;
    pub const AMBR: u8 = 72;
    pub const EBI: u8 = 73;
    pub const PAA: u8 = 79;
    pub const BEARER_QOS: u8 = 80;
    pub const RAT_TYPE: u8 = 82;
    pub const SERVING_NETWORK: u8 = 83;
    pub const F_TEID: u8 = 87;
    pub const BEARER_CONTEXT: u8 = 93;
    pub const PDN_TYPE: u8 = 99;
    pub const APN_RESTRICTION: u8 = 127;
    pub const SELECTION_MODE: u8 = 128;
}

/// Causes (8.4).
pub mod cause {
    #![allow(missing_docs)]
    pub const ACCEPTED: u8 = 16;
    pub const CONTEXT_NOT_FOUND: u8 = 64;
    pub const MANDATORY_IE_MISSING: u8 = 70;
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Type.
    pub kind: u8,
    /// Tunnel endpoint of the receiver; 0 before it has named one; an Echo has no such field.
    pub teid: Option<u32>,
    /// 24 bits: a response has that of its request.
    pub sequence: u32,
    /// In their order.
    pub ies: Vec<Ie>,
}

/// One information element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ie {
    /// Type.
    pub kind: u8,
    /// Which of that type, 4 bits.
    pub instance: u8,
    /// Value.
    pub data: Vec<u8>,
}

impl Ie {
    /// One.
    #[must_use]
    pub fn new(kind: u8, instance: u8, data: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            instance,
            data: data.into(),
        }
    }

    /// Elements in one.
    #[must_use]
    pub fn group(kind: u8, ies: &[Self]) -> Self {
        let mut data = Vec::new();
        ies.iter().for_each(|ie| ie.write(&mut data));
        Self::new(kind, 0, data)
    }

    /// Tunnel endpoint of an interface type (8.22), with an IPv4 address.
    #[must_use]
    pub fn f_teid(instance: u8, interface: u8, teid: u32, address: [u8; 4]) -> Self {
        let data = [&[0x80 | interface][..], &teid.to_be_bytes(), &address].concat();
        Self::new(ie::F_TEID, instance, data)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let length = u16::try_from(self.data.len()).unwrap_or(u16::MAX);
        out.push(self.kind);
        out.extend(length.to_be_bytes());
        out.push(self.instance & 0x0f);
        out.extend(&self.data);
    }
}

/// Elements of a message, or of a group.
///
/// # Errors
/// `Undecodable` if one does not lie in these octets.
pub fn ies(octets: &[u8]) -> Result<Vec<Ie>, Undecodable> {
    let (mut found, mut rest) = (Vec::new(), octets);
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let (data, behind) = after.split_at_checked(length).ok_or(Undecodable)?;
        found.push(Ie::new(head[0], head[3] & 0x0f, data));
        rest = behind;
    }
    if rest.is_empty() {
        Ok(found)
    } else {
        Err(Undecodable)
    }
}

/// The first of that type and instance.
#[must_use]
pub fn get(ies: &[Ie], kind: u8, instance: u8) -> Option<&[u8]> {
    let found = ies
        .iter()
        .find(|ie| (ie.kind, ie.instance) == (kind, instance));
    found.map(|ie| &ie.data[..])
}

/// TEID of the first tunnel endpoint of that instance.
///
/// # Errors
/// `Undecodable` without such an endpoint.
pub fn teid(ies: &[Ie], instance: u8) -> Result<u32, Undecodable> {
    let data = get(ies, ie::F_TEID, instance).and_then(|data| data.get(1..5));
    let octets = data.and_then(|data| <[u8; 4]>::try_from(data).ok());
    octets.map(u32::from_be_bytes).ok_or(Undecodable)
}

/// Digits of an IMSI, two to an octet.
#[must_use]
pub fn digits(text: &str) -> Vec<u8> {
    let each: Vec<u8> = text
        .bytes()
        .map(|digit| digit.wrapping_sub(b'0') & 0x0f)
        .collect();
    let pairs = each.chunks(2);
    pairs
        .map(|two| two.get(1).copied().unwrap_or(0x0f) << 4 | two[0])
        .collect()
}

/// MCC and MNC in three octets (TS 24.008, 10.5.1.13).
#[must_use]
pub fn plmn(mcc: &str, mnc: &str) -> [u8; 3] {
    let digit = |text: &str, at: usize| {
        text.as_bytes()
            .get(at)
            .map_or(0x0f, |c| c.wrapping_sub(b'0') & 0x0f)
    };
    let third = digit(mnc, 2);
    [
        digit(mcc, 1) << 4 | digit(mcc, 0),
        third << 4 | digit(mcc, 2),
        digit(mnc, 1) << 4 | digit(mnc, 0),
    ]
}

impl Message {
    /// What these octets say.
    ///
    /// # Errors
    /// `Undecodable` if they are no whole message of version 2.
    pub fn decode(octets: &[u8]) -> Result<Self, Undecodable> {
        let (head, rest) = octets.split_first_chunk::<4>().ok_or(Undecodable)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        // A message may carry another behind it; an attach has none.
        if head[0] >> 5 != 2 || rest.len() != length {
            return Err(Undecodable);
        }
        let (teid, rest) = if head[0] & HAS_TEID == 0 {
            (None, rest)
        } else {
            let (teid, rest) = rest.split_first_chunk::<4>().ok_or(Undecodable)?;
            (Some(u32::from_be_bytes(*teid)), rest)
        };
        let (sequence, rest) = rest.split_first_chunk::<4>().ok_or(Undecodable)?;
        Ok(Self {
            kind: head[1],
            teid,
            sequence: u32::from_be_bytes(*sequence) >> 8,
            ies: ies(rest)?,
        })
    }

    /// Its octets; `None` if they do not fit a datagram.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let flags = VERSION | if self.teid.is_some() { HAS_TEID } else { 0 };
        let mut out = vec![flags, self.kind, 0, 0];
        out.extend(self.teid.into_iter().flat_map(u32::to_be_bytes));
        out.extend((self.sequence << 8).to_be_bytes());
        self.ies.iter().for_each(|ie| ie.write(&mut out));
        let length = u16::try_from(out.len() - 4)
            .ok()
            .filter(|_| out.len() <= MOST_OCTETS)?;
        out[2..4].copy_from_slice(&length.to_be_bytes());
        Some(out)
    }
}
