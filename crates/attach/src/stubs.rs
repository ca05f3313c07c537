//! Stub HSS and stub SGW: what an MME needs of both for an attach, and no more. They keep no subscriber's state but a sequence number.

use std::collections::{BTreeMap, HashMap};

use crate::mme::Home;
use crate::wire::Undecodable;
use crate::wire::diameter::Message;
use crate::wire::gtp::{self, Ie, cause, ie, kind};
use crate::wire::s6a::{self, Answer, Request};

/// What a stub counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests, by name.
    pub requests: BTreeMap<&'static str, u64>,
    /// Requests that were refused.
    pub refused: u64,
    /// Octets that are no message, or lack a field.
    pub undecodable: u64,
    /// Sessions at most at once; an HSS has none.
    pub peak_sessions: u64,
}

/// Home network behind Diameter.
pub struct Hss {
    home: Home,
    sqn: u64,
    dice: u64,
    /// The books.
    pub counts: Counts,
}

impl Hss {
    /// The subscribers of this home network.
    #[must_use]
    pub fn new(home: Home) -> Self {
        Self {
            home,
            sqn: 32,
            dice: 0,
            counts: Counts::default(),
        }
    }

    /// Answers one message; `None` to an answer, or to what is no message.
    pub fn answer(&mut self, octets: &[u8]) -> Option<Vec<u8>> {
        let message = Message::decode(octets);
        let Ok(request) = message else {
            self.counts.undecodable += 1;
            return None;
        };
        if !request.request {
            return None;
        }
        let said = Request::of(&request).map(|asked| self.found(asked));
        self.counts.undecodable += u64::from(said.is_err());
        let refused = matches!(said, Ok(Answer::Failed | Answer::UserUnknown));
        self.counts.refused += u64::from(refused);
        Some(s6a::answered(&request, said.ok().as_ref()).encode())
    }

    fn found(&mut self, asked: Request) -> Answer {
        let name = match &asked {
            Request::Link => "link",
            Request::Vector { .. } => "authentication_information",
            Request::Location { .. } => "update_location",
            Request::Purge => "purge_ue",
            Request::Other => "other",
        };
        *self.counts.requests.entry(name).or_default() += 1;
        match asked {
            Request::Link | Request::Purge => Answer::Done,
            Request::Other => Answer::Failed,
            Request::Location { imsi } => match self.home.subscribers.of(&imsi) {
                Some(_) => Answer::Done,
                None => Answer::UserUnknown,
            },
            Request::Vector { imsi, ahead } => {
                let Some(subscriber) = self.home.subscribers.of(&imsi) else {
                    return Answer::UserUnknown;
                };
                let highest =
                    ahead.and_then(|(rand, auts)| subscriber.resynchronised(&rand, &auts));
                // A number of 48 bits: one of a USIM at its end begins anew.
                self.sqn = self.sqn.max(highest.unwrap_or(0)).wrapping_add(32);
                let rand = crate::mme::challenge(&mut self.dice);
                Answer::Vector(Box::new(subscriber.vector(
                    rand,
                    self.sqn,
                    self.home.network,
                )))
            }
        }
    }
}

/// Where its tunnels are said to end: no user plane is there.
const ADDRESS: [u8; 4] = [127, 0, 0, 1];
/// Interface types (TS 29.274, 8.22).
const S1_U_SGW: u8 = 1;
const S5_U_PGW: u8 = 5;
const S5_C_PGW: u8 = 7;
const S11_SGW: u8 = 11;

/// Sessions behind GTPv2-C.
#[derive(Default)]
pub struct Sgw {
    /// Their tunnel ends, here and at the MME.
    sessions: HashMap<u32, u32>,
    last: u32,
    /// The books.
    pub counts: Counts,
}

impl Sgw {
    /// Answers one message; `None` to what is no request.
    pub fn answer(&mut self, octets: &[u8]) -> Option<Vec<u8>> {
        let Ok(request) = gtp::Message::decode(octets) else {
            self.counts.undecodable += 1;
            return None;
        };
        let name = match request.kind {
            kind::ECHO_REQUEST => "echo",
            kind::CREATE_SESSION_REQUEST => "create_session",
            kind::MODIFY_BEARER_REQUEST => "modify_bearer",
            kind::DELETE_SESSION_REQUEST => "delete_session",
            kind::RELEASE_ACCESS_BEARERS_REQUEST => "release_access_bearers",
            _ => {
                self.counts.undecodable += 1;
                return None;
            }
        };
        *self.counts.requests.entry(name).or_default() += 1;
        let (teid, ies) = match request.kind {
            kind::ECHO_REQUEST => (None, vec![Ie::new(ie::RECOVERY, 0, [0])]),
            kind::CREATE_SESSION_REQUEST => match self.create(&request.ies) {
                Ok((far, ies)) => (Some(far), ies),
                Err(Undecodable) => (Some(0), self.refuse(cause::MANDATORY_IE_MISSING)),
            },
            _ => match request
                .teid
                .and_then(|near| self.sessions.get(&near).copied())
            {
                Some(far) => (Some(far), self.of_session(&request)),
                None => (Some(0), self.refuse(cause::CONTEXT_NOT_FOUND)),
            },
        };
        let response = gtp::Message {
            kind: request.kind + 1,
            teid,
            sequence: request.sequence,
            ies,
        };
        response.encode()
    }

    fn refuse(&mut self, cause: u8) -> Vec<Ie> {
        self.counts.refused += 1;
        vec![Ie::new(ie::CAUSE, 0, [cause, 0])]
    }

    fn create(&mut self, asked: &[Ie]) -> Result<(u32, Vec<Ie>), Undecodable> {
        let far = gtp::teid(asked, 0)?;
        let bearer = gtp::ies(gtp::get(asked, ie::BEARER_CONTEXT, 0).ok_or(Undecodable)?)?;
        let ebi = gtp::get(&bearer, ie::EBI, 0).ok_or(Undecodable)?.to_vec();
        self.last = self.last.wrapping_add(1).max(1);
        let near = self.last;
        self.sessions.insert(near, far);
        let now = self.sessions.len() as u64;
        self.counts.peak_sessions = self.counts.peak_sessions.max(now);
        let [_, high, mid, low] = near.to_be_bytes();
        let accepted = || Ie::new(ie::CAUSE, 0, [cause::ACCEPTED, 0]);
        let bearer = [
            Ie::new(ie::EBI, 0, ebi),
            accepted(),
            Ie::f_teid(0, S1_U_SGW, near, ADDRESS),
            Ie::f_teid(2, S5_U_PGW, near, ADDRESS),
        ];
        let ies = vec![
            accepted(),
            Ie::f_teid(0, S11_SGW, near, ADDRESS),
            Ie::f_teid(1, S5_C_PGW, near, ADDRESS),
            Ie::new(ie::PAA, 0, [1, 10, high, mid, low]),
            Ie::new(ie::APN_RESTRICTION, 0, [0]),
            Ie::group(ie::BEARER_CONTEXT, &bearer),
        ];
        Ok((far, ies))
    }

    fn of_session(&mut self, request: &gtp::Message) -> Vec<Ie> {
        let teid = request.teid.unwrap_or(0);
        let mut ies = vec![Ie::new(ie::CAUSE, 0, [cause::ACCEPTED, 0])];
        match request.kind {
            kind::DELETE_SESSION_REQUEST => {
                self.sessions.remove(&teid);
            }
            kind::MODIFY_BEARER_REQUEST => {
                let bearer = [
                    Ie::new(ie::EBI, 0, [5]),
                    Ie::new(ie::CAUSE, 0, [cause::ACCEPTED, 0]),
                    Ie::f_teid(0, S1_U_SGW, teid, ADDRESS),
                ];
                ies.push(Ie::group(ie::BEARER_CONTEXT, &bearer));
            }
            _ => {}
        }
        ies
    }
}
