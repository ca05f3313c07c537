//! Diameter (RFC 6733): a message as its header and AVPs. What S6a says in it is in [`super::s6a`].

use super::Undecodable;

const VERSION: u8 = 1;
const HEADER: usize = 20;
/// No message between MME and HSS is near it.
const MOST_OCTETS: usize = 65_536;
const REQUEST: u8 = 0x80;
const PROXIABLE: u8 = 0x40;
const VENDOR: u8 = 0x80;
const MANDATORY: u8 = 0x40;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// A request; else an answer.
    pub request: bool,
    /// Command code.
    pub command: u32,
    /// Application.
    pub application: u32,
    /// Hop-by-hop id: an answer has that of its request.
    pub hop: u32,
    /// End-to-end id: likewise.
    pub end: u32,
    /// In their order.
    pub avps: Vec<Avp>,
}

/// One attribute and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Avp {
    /// Code.
    pub code: u32,
    /// Whose code it is; 0 for the IETF's.
    pub vendor: u32,
    /// Value without padding.
    pub data: Vec<u8>,
}

impl Avp {
    /// One of that vendor.
    #[must_use]
    pub fn new(code: u32, vendor: u32, data: impl Into<Vec<u8>>) -> Self {
        Self {
            code,
            vendor,
            data: data.into(),
        }
    }

    /// A number of 32 bits.
    #[must_use]
    pub fn number(code: u32, vendor: u32, value: u32) -> Self {
        Self::new(code, vendor, value.to_be_bytes())
    }

    /// AVPs in one.
    #[must_use]
    pub fn group(code: u32, vendor: u32, avps: &[Self]) -> Self {
        let mut data = Vec::new();
        avps.iter().for_each(|avp| avp.write(&mut data));
        Self::new(code, vendor, data)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let header = if self.vendor == 0 { 8 } else { 12 };
        let vendor = if self.vendor == 0 { 0 } else { VENDOR };
        out.extend(self.code.to_be_bytes());
        out.push(vendor | MANDATORY);
        out.extend(length(header + self.data.len()));
        if self.vendor != 0 {
            out.extend(self.vendor.to_be_bytes());
        }
        out.extend(&self.data);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// 24 bits.
fn length(octets: usize) -> [u8; 3] {
    let octets = u32::try_from(octets).unwrap_or(u32::MAX).to_be_bytes();
    [octets[1], octets[2], octets[3]]
}

fn number(octets: &[u8]) -> u32 {
    octets
        .iter()
        .fold(0, |sum, &octet| sum << 8 | u32::from(octet))
}

/// AVPs of a message, or of a group.
///
/// # Errors
/// `Undecodable` if one does not lie in these octets.
pub fn avps(octets: &[u8]) -> Result<Vec<Avp>, Undecodable> {
    let (mut found, mut rest) = (Vec::new(), octets);
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let length = number(&head[5..8]) as usize;
        let whole = rest.get(..length).ok_or(Undecodable)?;
        let (vendor, at) = if head[4] & VENDOR == 0 {
            (0, 8)
        } else {
            (number(whole.get(8..12).ok_or(Undecodable)?), 12)
        };
        let data = whole.get(at..).ok_or(Undecodable)?;
        found.push(Avp::new(number(&head[..4]), vendor, data));
        // The last one's padding may be left out.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    if rest.is_empty() {
        Ok(found)
    } else {
        Err(Undecodable)
    }
}

/// Length of the message that begins with these octets; `None` while too few of them are there.
///
/// # Errors
/// `Undecodable` if no message begins so.
pub fn framed(octets: &[u8]) -> Result<Option<usize>, Undecodable> {
    let Some(head) = octets.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = number(&head[1..]) as usize;
    if head[0] != VERSION || !(HEADER..=MOST_OCTETS).contains(&length) || !length.is_multiple_of(4)
    {
        return Err(Undecodable);
    }
    Ok(Some(length))
}

impl Message {
    /// What these octets say.
    ///
    /// # Errors
    /// `Undecodable` if they are no whole message.
    pub fn decode(octets: &[u8]) -> Result<Self, Undecodable> {
        if framed(octets)? != Some(octets.len()) {
            return Err(Undecodable);
        }
        Ok(Self {
            request: octets[4] & REQUEST != 0,
            command: number(&octets[5..8]),
            application: number(&octets[8..12]),
            hop: number(&octets[12..16]),
            end: number(&octets[16..20]),
            avps: avps(&octets[HEADER..])?,
        })
    }

    /// Its octets.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, 0, 0, 0];
        // Requests of the base protocol stay on the link.
        let proxiable = if self.application == 0 { 0 } else { PROXIABLE };
        out.push(proxiable | if self.request { REQUEST } else { 0 });
        out.extend(&self.command.to_be_bytes()[1..]);
        for word in [self.application, self.hop, self.end] {
            out.extend(word.to_be_bytes());
        }
        self.avps.iter().for_each(|avp| avp.write(&mut out));
        let whole = length(out.len());
        out[1..4].copy_from_slice(&whole);
        out
    }

    /// An answer to this request.
    #[must_use]
    pub fn answer(&self, avps: Vec<Avp>) -> Self {
        Self {
            request: false,
            avps,
            ..*self
        }
    }

    /// Value of the first AVP of that code.
    #[must_use]
    pub fn get(&self, code: u32) -> Option<&[u8]> {
        get(&self.avps, code)
    }
}

/// Value of the first AVP of that code.
#[must_use]
pub fn get(avps: &[Avp], code: u32) -> Option<&[u8]> {
    let found = avps.iter().find(|avp| avp.code == code);
    found.map(|avp| &avp.data[..])
}

/// AVPs in the group of that code.
///
/// # Errors
/// `Undecodable` without that group, or if it is cut.
pub fn inside(avps: &[Avp], code: u32) -> Result<Vec<Avp>, Undecodable> {
    self::avps(get(avps, code).ok_or(Undecodable)?)
}

/// A number of 32 bits.
///
/// # Errors
/// `Undecodable` without an AVP of that code and 4 octets.
pub fn word(avps: &[Avp], code: u32) -> Result<u32, Undecodable> {
    let octets = get(avps, code).and_then(|data| <[u8; 4]>::try_from(data).ok());
    octets.map(u32::from_be_bytes).ok_or(Undecodable)
}
