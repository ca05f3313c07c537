//! S6a between MME and HSS (TS 29.272): the messages of an attach, and those that keep the link.

use super::Undecodable;
use super::aka::{Kasme, Vector};
use super::diameter::{Avp, Message, get, inside, word};

/// 3GPP's vendor id.
const VENDOR: u32 = 10_415;
const APPLICATION: u32 = 16_777_251;
/// DIAMETER_SUCCESS.
const SUCCESS: u32 = 2001;
/// DIAMETER_COMMAND_UNSUPPORTED, DIAMETER_MISSING_AVP.
const UNSUPPORTED: u32 = 3001;
const MISSING: u32 = 5005;
/// DIAMETER_ERROR_USER_UNKNOWN of S6a.
const USER_UNKNOWN: u32 = 5001;

const CAPABILITIES: u32 = 257;
const WATCHDOG: u32 = 280;
const DISCONNECT: u32 = 282;
const UPDATE_LOCATION: u32 = 316;
const AUTHENTICATION: u32 = 318;
const PURGE: u32 = 321;

const USER_NAME: u32 = 1;
const RESULT: u32 = 268;
const EXPERIMENTAL: u32 = 297;
const EXPERIMENTAL_CODE: u32 = 298;
const RESYNCHRONISATION: u32 = 1411;
const AUTHENTICATION_INFO: u32 = 1413;
const E_UTRAN_VECTOR: u32 = 1414;

/// What a request asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Capabilities, watchdog, end of the link: what keeps it.
    Link,
    /// Authentication Information: a vector; with RAND and AUTS of a USIM that is ahead.
    Vector {
        /// Whose.
        imsi: String,
        /// RAND and AUTS.
        ahead: Option<([u8; 16], [u8; 14])>,
    },
    /// Update Location.
    Location {
        /// Whose.
        imsi: String,
    },
    /// Purge UE.
    Purge,
    /// One that an HSS of an attach does not have.
    Other,
}

/// What an answer says.
pub enum Answer {
    /// A vector.
    Vector(Box<Vector>),
    /// Done.
    Done,
    /// Nobody has that IMSI.
    UserUnknown,
    /// Another failure.
    Failed,
}

/// Capabilities-Exchange, with which an MME begins a link.
#[must_use]
pub fn hello() -> Message {
    let mut avps = origin("mme");
    avps.push(Avp::new(257, 0, [0, 1, 127, 0, 0, 1])); // Host-IP-Address
    avps.push(Avp::number(266, 0, 0)); // Vendor-Id
    avps.push(Avp::new(269, 0, *b"nodrop")); // Product-Name
    avps.push(Avp::number(265, 0, VENDOR)); // Supported-Vendor-Id
    avps.push(application());
    Message {
        request: true,
        command: CAPABILITIES,
        application: 0,
        hop: 0,
        end: 0,
        avps,
    }
}

/// Origin-Host, Origin-Realm.
fn origin(who: &str) -> Vec<Avp> {
    let realm = "epc.mnc001.mcc001.3gppnetwork.org";
    vec![
        Avp::new(264, 0, format!("{who}.{realm}")),
        Avp::new(296, 0, realm),
    ]
}

/// Vendor-Specific-Application-Id of S6a.
fn application() -> Avp {
    let ids = [
        Avp::number(266, 0, VENDOR),
        Avp::number(258, 0, APPLICATION),
    ];
    Avp::group(260, 0, &ids)
}

impl Request {
    /// Its octets as a message with these ids; `None` of one that only the other end sends.
    #[must_use]
    pub fn message(&self, id: u32, plmn: [u8; 3]) -> Option<Message> {
        let (command, imsi) = match self {
            Self::Vector { imsi, .. } => (AUTHENTICATION, imsi),
            Self::Location { imsi } => (UPDATE_LOCATION, imsi),
            Self::Link | Self::Purge | Self::Other => return None,
        };
        let mut avps = vec![
            Avp::new(263, 0, format!("mme;1;{id}")), // Session-Id
            application(),
            Avp::number(277, 0, 1), // Auth-Session-State: none is kept
        ];
        avps.extend(origin("mme"));
        avps.push(Avp::new(283, 0, *b"epc.mnc001.mcc001.3gppnetwork.org")); // Destination-Realm
        avps.push(Avp::new(USER_NAME, 0, imsi.as_bytes()));
        match self {
            Self::Vector { ahead, .. } => {
                let mut asked = vec![Avp::number(1410, VENDOR, 1), Avp::number(1412, VENDOR, 0)];
                if let Some((rand, auts)) = ahead {
                    let both = [&rand[..], auts].concat();
                    asked.push(Avp::new(RESYNCHRONISATION, VENDOR, both));
                }
                avps.push(Avp::group(1408, VENDOR, &asked)); // Requested-EUTRAN-Authentication-Info
            }
            _ => {
                avps.push(Avp::number(1032, VENDOR, 1004)); // RAT-Type: EUTRAN
                avps.push(Avp::number(1405, VENDOR, 0x22)); // ULR-Flags
            }
        }
        avps.push(Avp::new(1407, VENDOR, plmn)); // Visited-PLMN-Id
        Some(Message {
            request: true,
            command,
            application: APPLICATION,
            hop: id,
            end: id,
            avps,
        })
    }

    /// What a request asks.
    ///
    /// # Errors
    /// `Undecodable` if a field is missing.
    pub fn of(message: &Message) -> Result<Self, Undecodable> {
        let imsi = || {
            let name = message.get(USER_NAME).ok_or(Undecodable)?;
            String::from_utf8(name.to_vec()).map_err(|_| Undecodable)
        };
        Ok(match message.command {
            CAPABILITIES | WATCHDOG | DISCONNECT => Self::Link,
            AUTHENTICATION => {
                let asked = inside(&message.avps, 1408)?;
                let ahead = get(&asked, RESYNCHRONISATION).map(|both| {
                    let (rand, auts) = both.split_first_chunk::<16>()?;
                    Some((*rand, <[u8; 14]>::try_from(auts).ok()?))
                });
                Self::Vector {
                    imsi: imsi()?,
                    ahead: ahead.map(|both| both.ok_or(Undecodable)).transpose()?,
                }
            }
            UPDATE_LOCATION => Self::Location { imsi: imsi()? },
            PURGE => Self::Purge,
            _ => Self::Other,
        })
    }
}

/// The HSS's answer to a request; `said` is what it found, `None` if a field of the request was missing.
#[must_use]
pub fn answered(request: &Message, said: Option<&Answer>) -> Message {
    let mut avps: Vec<Avp> = request
        .get(263)
        .map(|id| Avp::new(263, 0, id))
        .into_iter()
        .collect();
    let result = |code| Avp::number(RESULT, 0, code);
    avps.extend(match said {
        None => vec![result(MISSING)],
        Some(Answer::Failed) => vec![result(UNSUPPORTED)],
        Some(Answer::UserUnknown) => {
            let code = Avp::number(EXPERIMENTAL_CODE, 0, USER_UNKNOWN);
            vec![Avp::group(
                EXPERIMENTAL,
                0,
                &[Avp::number(266, 0, VENDOR), code],
            )]
        }
        Some(Answer::Done | Answer::Vector(_)) => vec![result(SUCCESS)],
    });
    avps.extend(origin("hss"));
    match (request.command, said) {
        (CAPABILITIES, _) => {
            let more = hello().avps.split_off(2);
            avps.extend(more);
        }
        (WATCHDOG | DISCONNECT, _) => {}
        _ => avps.extend([application(), Avp::number(277, 0, 1)]),
    }
    match (request.command, said) {
        (AUTHENTICATION, Some(Answer::Vector(vector))) => {
            let fields = [
                Avp::new(1447, VENDOR, vector.rand),
                Avp::new(1448, VENDOR, &vector.xres[..]),
                Avp::new(1449, VENDOR, vector.autn),
                Avp::new(1450, VENDOR, &vector.kasme.as_octets()[..]),
            ];
            let vectors = [Avp::group(E_UTRAN_VECTOR, VENDOR, &fields)];
            avps.push(Avp::group(AUTHENTICATION_INFO, VENDOR, &vectors));
        }
        (UPDATE_LOCATION, Some(Answer::Done)) => {
            avps.extend([Avp::number(1406, VENDOR, 1), subscription()]); // ULA-Flags
        }
        _ => {}
    }
    request.answer(avps)
}

/// Subscription-Data: one bearer of QCI 9 to the APN internet, IPv4.
fn subscription() -> Avp {
    let flat = |code, value| Avp::number(code, VENDOR, value);
    let rates = || {
        Avp::group(
            1435,
            VENDOR,
            &[flat(516, 50_000_000), flat(515, 100_000_000)],
        )
    };
    let priority = Avp::group(1034, VENDOR, &[flat(1046, 8), flat(1047, 1), flat(1048, 1)]);
    let apn = Avp::group(
        1430,
        VENDOR,
        &[
            flat(1423, 1),
            flat(1456, 0),
            Avp::new(493, 0, *b"internet"),
            Avp::group(1431, VENDOR, &[flat(1028, 9), priority]),
            rates(),
        ],
    );
    let profile = Avp::group(1429, VENDOR, &[flat(1423, 1), flat(1428, 0), apn]);
    let whole = [flat(1424, 0), flat(1417, 2), rates(), profile];
    Avp::group(1400, VENDOR, &whole)
}

impl Answer {
    /// What an answer says.
    ///
    /// # Errors
    /// `Undecodable` if a field is missing.
    pub fn of(message: &Message) -> Result<Self, Undecodable> {
        let avps = &message.avps;
        if get(avps, RESULT).is_none() {
            let code = word(&inside(avps, EXPERIMENTAL)?, EXPERIMENTAL_CODE)?;
            return Ok(if code == USER_UNKNOWN {
                Self::UserUnknown
            } else {
                Self::Failed
            });
        }
        if word(avps, RESULT)? != SUCCESS {
            return Ok(Self::Failed);
        }
        if message.command != AUTHENTICATION {
            return Ok(Self::Done);
        }
        let vector = inside(&inside(avps, AUTHENTICATION_INFO)?, E_UTRAN_VECTOR)?;
        let field = |code| get(&vector, code).ok_or(Undecodable);
        let kasme: [u8; 32] = field(1450)?.try_into().map_err(|_| Undecodable)?;
        let xres = field(1448)?.to_vec();
        if !(4..=16).contains(&xres.len()) {
            return Err(Undecodable);
        }
        Ok(Self::Vector(Box::new(Vector {
            rand: field(1447)?.try_into().map_err(|_| Undecodable)?,
            autn: field(1449)?.try_into().map_err(|_| Undecodable)?,
            xres,
            kasme: Kasme::new(&kasme),
        })))
    }
}
