//! The MME's end of S6a and S11: what it asks of HSS and SGW, and for which UE an answer is. No I/O; octets go in and out.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use crate::ledger::histogram;
use crate::wire::diameter::Message;
use crate::wire::gtp::{self, Ie, cause, ie, kind};
use crate::wire::s6a::{self, Answer, Request};

/// S11 of an MME (TS 29.274, 8.22), and S1-U of an eNodeB.
const S11_MME: u8 = 10;
const S1_U_ENODEB: u8 = 0;
const ADDRESS: [u8; 4] = [127, 0, 0, 1];
const SEQUENCES: u32 = 1 << 24;

/// What an answer means for a UE.
pub enum Told {
    /// The HSS's.
    Home(Answer),
    /// A session, by its tunnel end at the SGW; `None`: refused.
    Session(Option<u32>),
    /// It is gone.
    Deleted,
    /// The SGW has answered, with or without the eNodeB's end of the tunnel.
    Modified,
}

/// What it asked, and not yet heard.
struct Asked<K> {
    ue: u32,
    kind: K,
    at_ns: u64,
}

/// Both links.
pub struct Core {
    plmn: [u8; 3],
    last: u32,
    of_hss: HashMap<u32, Asked<()>>,
    of_sgw: HashMap<u32, Asked<u8>>,
    /// To the HSS, in their order.
    pub to_hss: Vec<Vec<u8>>,
    /// To the SGW.
    pub to_sgw: Vec<Vec<u8>>,
    /// From a request to its answer, in µs.
    pub hss_us: Histogram<u64>,
    /// Likewise.
    pub sgw_us: Histogram<u64>,
    /// Octets of either that are no message, or answer nothing.
    pub undecodable: u64,
}

impl Core {
    /// With the request that begins the link to the HSS.
    #[must_use]
    pub fn new(mcc: &str, mnc: &str) -> Self {
        Self {
            plmn: gtp::plmn(mcc, mnc),
            last: 0,
            of_hss: HashMap::new(),
            of_sgw: HashMap::new(),
            to_hss: vec![s6a::hello().encode()],
            to_sgw: Vec::new(),
            hss_us: histogram(),
            sgw_us: histogram(),
            undecodable: 0,
        }
    }

    fn next(&mut self) -> u32 {
        self.last = (self.last + 1) % SEQUENCES;
        self.last
    }

    /// Asks the HSS.
    pub fn ask(&mut self, ue: u32, request: &Request, now: u64) {
        let id = self.next();
        if let Some(message) = request.message(id, self.plmn) {
            self.to_hss.push(message.encode());
            self.of_hss.insert(
                id,
                Asked {
                    ue,
                    kind: (),
                    at_ns: now,
                },
            );
        }
    }

    /// Asks the SGW for a session.
    pub fn create(&mut self, ue: u32, imsi: &str, now: u64) {
        let quality = [&[0x20, 9][..], &[0; 20]].concat(); // priority 8, QCI 9, no guaranteed rate
        let bearer = [
            Ie::new(ie::EBI, 0, [5]),
            Ie::new(ie::BEARER_QOS, 0, quality),
        ];
        let rates = [50_000_u32.to_be_bytes(), 100_000_u32.to_be_bytes()].concat();
        let ies = vec![
            Ie::new(ie::IMSI, 0, gtp::digits(imsi)),
            Ie::new(ie::SERVING_NETWORK, 0, self.plmn),
            Ie::new(ie::RAT_TYPE, 0, [6]),
            Ie::f_teid(0, S11_MME, ue, ADDRESS),
            Ie::new(ie::APN, 0, *b"\x08internet"),
            Ie::new(ie::SELECTION_MODE, 0, [0]),
            Ie::new(ie::PDN_TYPE, 0, [1]),
            Ie::new(ie::PAA, 0, [1, 0, 0, 0, 0]),
            Ie::new(ie::APN_RESTRICTION, 0, [0]),
            Ie::new(ie::AMBR, 0, rates),
            Ie::group(ie::BEARER_CONTEXT, &bearer),
        ];
        self.say(ue, kind::CREATE_SESSION_REQUEST, 0, ies, now);
    }

    /// Says where the eNodeB's tunnel ends.
    pub fn modify(&mut self, ue: u32, session: u32, enb: u32, now: u64) {
        let tunnel = Ie::f_teid(0, S1_U_ENODEB, enb, ADDRESS);
        let bearer = [Ie::new(ie::EBI, 0, [5]), tunnel];
        let ies = vec![Ie::group(ie::BEARER_CONTEXT, &bearer)];
        self.say(ue, kind::MODIFY_BEARER_REQUEST, session, ies, now);
    }

    /// Ends a session.
    pub fn delete(&mut self, ue: u32, session: u32, now: u64) {
        let ies = vec![Ie::new(ie::EBI, 0, [5])];
        self.say(ue, kind::DELETE_SESSION_REQUEST, session, ies, now);
    }

    fn say(&mut self, ue: u32, kind: u8, session: u32, ies: Vec<Ie>, now: u64) {
        let sequence = self.next();
        let message = gtp::Message {
            kind,
            teid: Some(session),
            sequence,
            ies,
        };
        if let Some(octets) = message.encode() {
            self.to_sgw.push(octets);
            self.of_sgw.insert(
                sequence,
                Asked {
                    ue,
                    kind,
                    at_ns: now,
                },
            );
        }
    }

    /// Takes a message of the HSS: the UE it is about, and what it says.
    pub fn from_hss(&mut self, octets: &[u8], now: u64) -> Option<(u32, Told)> {
        let Ok(message) = Message::decode(octets) else {
            self.undecodable += 1;
            return None;
        };
        if message.request {
            // Its watchdog is answered; any other request of its is refused as unsupported.
            let said = match Request::of(&message) {
                Ok(Request::Link) => Answer::Done,
                _ => Answer::Failed,
            };
            self.to_hss
                .push(s6a::answered(&message, Some(&said)).encode());
            return None;
        }
        if message.application == 0 {
            return None; // It has taken up the link.
        }
        let Some(asked) = self.of_hss.remove(&message.hop) else {
            self.undecodable += 1;
            return None;
        };
        self.hss_us
            .saturating_record(now.saturating_sub(asked.at_ns) / 1000);
        let said = Answer::of(&message).unwrap_or_else(|_| {
            self.undecodable += 1;
            Answer::Failed
        });
        Some((asked.ue, Told::Home(said)))
    }

    /// Takes a message of the SGW.
    pub fn from_sgw(&mut self, octets: &[u8], now: u64) -> Option<(u32, Told)> {
        let message = gtp::Message::decode(octets).ok();
        let asked = message
            .as_ref()
            .and_then(|message| self.of_sgw.remove(&message.sequence));
        let Some((message, asked)) = message.zip(asked) else {
            self.undecodable += 1;
            return None;
        };
        self.sgw_us
            .saturating_record(now.saturating_sub(asked.at_ns) / 1000);
        let said = gtp::get(&message.ies, ie::CAUSE, 0).and_then(|cause| cause.first().copied());
        let told = match asked.kind {
            kind::CREATE_SESSION_REQUEST => {
                let session = gtp::teid(&message.ies, 0).ok();
                Told::Session(session.filter(|_| said == Some(cause::ACCEPTED)))
            }
            kind::DELETE_SESSION_REQUEST => Told::Deleted,
            _ => Told::Modified,
        };
        Some((asked.ue, told))
    }
}
