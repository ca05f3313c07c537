//! The reference MME: attaches and releases UEs as TS 24.301 has it, and fails in the ways it is told to. A yardstick, not a product.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use crate::Outgoing;
use crate::core::{Core, Told};
use crate::enb::PPID;
use crate::subscribers::Subscribers;
use crate::wire::aka::{Kasme, Network, Vector};
use crate::wire::nas::{self, Capability, Context, Header, Nas, Way, cause};
use crate::wire::s1ap::{self, Cell, Ids, S1};
use crate::wire::s6a::{Answer, Request};

/// T3450, T3460 (TS 24.301, 10.2).
const RETRY_NS: u64 = 6_000_000_000;
const RETRIES: u32 = 4;

/// Faults on order. Ratios are 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Messages to the eNodeB that are not sent.
    pub drop: f64,
    /// Each message waits so long.
    pub delay_ns: u64,
    /// After so many Attach Requests it reads, and says nothing more.
    pub silent_after: Option<u64>,
    /// Messages with UE ids that belong to no UE.
    pub wrong_id: f64,
    /// Protected messages with a wrong MAC.
    pub bad_mac: f64,
    /// Attach Requests that are turned away for congestion.
    pub reject: f64,
    /// UEs that it has at most; more are turned away for congestion.
    pub limit: Option<u64>,
    /// Where its dice begin.
    pub seed: u64,
}

/// Who is in its home network.
pub struct Home {
    /// Their keys.
    pub subscribers: Subscribers,
    /// Serving network.
    pub network: Network,
}

/// What it counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attach Requests.
    pub attach_requests: u64,
    /// Attach Complete received.
    pub attached: u64,
    /// Attach Rejects and Authentication Rejects.
    pub rejected: u64,
    /// Detach Requests.
    pub detached: u64,
    /// UEs given up after the last repeat.
    pub given_up: u64,
    /// NAS messages repeated because no answer came.
    pub repeats: u64,
    /// Octets that are no message.
    pub undecodable: u64,
    /// Wrong MAC, or a count that was used.
    pub mac_failures: u64,
    /// UE ids that belong to no UE.
    pub unknown_ue_ids: u64,
    /// UEs at most at once.
    pub peak_ues: u64,
    /// Messages it did not send, on order.
    pub dropped: u64,
    /// S1AP messages sent, by name.
    pub sent: BTreeMap<&'static str, u64>,
    /// S1AP messages received, by name.
    pub received: BTreeMap<&'static str, u64>,
}

struct Pending {
    nas: Nas,
    due_ns: u64,
    tries: u32,
}

struct Session {
    link: usize,
    enb: u32,
    imsi: String,
    capability: Capability,
    /// Of its Attach Request.
    hash: [u8; 8],
    rand: [u8; 16],
    xres: Vec<u8>,
    kasme: Option<Kasme>,
    context: Option<Context>,
    pending: Option<Pending>,
    /// Its tunnel end at the SGW.
    bearer: Option<u32>,
    leaving: bool,
}

/// SplitMix64.
fn random(dice: &mut u64) -> u64 {
    *dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *dice;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// RAND of a challenge.
pub(crate) fn challenge(dice: &mut u64) -> [u8; 16] {
    let mut rand = [0; 16];
    rand[..8].copy_from_slice(&random(dice).to_be_bytes());
    rand[8..].copy_from_slice(&random(dice).to_be_bytes());
    rand
}

/// What an SGW still has of a UE that is gone.
fn end_session(core: &mut Option<Core>, id: u32, ue: &Session, now: u64) {
    if let Some((core, session)) = core.as_mut().zip(ue.bearer).filter(|_| !ue.leaving) {
        core.delete(id, session, now);
    }
}

/// All of its UEs.
pub struct Mme {
    home: Home,
    faults: Faults,
    cell: Cell,
    eea: u8,
    eia: u8,
    ues: HashMap<u32, Session>,
    by_imsi: HashMap<String, u32>,
    next_id: u32,
    sqn: u64,
    dice: u64,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    delayed: VecDeque<(u64, Outgoing)>,
    core: Option<Core>,
    /// The books.
    pub counts: Counts,
}

impl Mme {
    /// It takes the algorithms `eea` and `eia` for every UE that offers them, and for others the best that they offer.
    #[must_use]
    pub fn new(home: Home, faults: Faults, eea: u8, eia: u8) -> Self {
        let cell = Cell {
            mcc: "001".into(),
            mnc: "01".into(),
            tac: 1,
            enb_id: 1,
        };
        Self {
            home,
            cell,
            eea,
            eia,
            ues: HashMap::new(),
            by_imsi: HashMap::new(),
            next_id: 1,
            sqn: 32,
            dice: faults.seed,
            faults,
            timers: BinaryHeap::new(),
            delayed: VecDeque::new(),
            core: None,
            counts: Counts::default(),
        }
    }

    /// Of the eNodeBs it serves.
    #[must_use]
    pub fn with_network(mut self, mcc: &str, mnc: &str) -> Self {
        (self.cell.mcc, self.cell.mnc) = (mcc.into(), mnc.into());
        self
    }

    /// It asks an HSS and an SGW; else it is its own home network and has no sessions.
    #[must_use]
    pub fn with_core(mut self) -> Self {
        self.core = Some(Core::new(&self.cell.mcc, &self.cell.mnc));
        self
    }

    /// Its links to both, if it has them.
    pub fn core(&mut self) -> Option<&mut Core> {
        self.core.as_mut()
    }

    /// When [`Self::advance`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let delayed = self.delayed.front().map(|(at, _)| *at);
        timer.into_iter().chain(delayed).min()
    }

    /// UEs it has now.
    #[must_use]
    pub fn ues(&self) -> u64 {
        self.ues.len() as u64
    }

    /// An association is gone, and its UEs with it.
    pub fn lose(&mut self, link: usize, now: u64) {
        let lost = self.ues.iter().filter(|(_, ue)| ue.link == link);
        for (&id, ue) in lost {
            end_session(&mut self.core, id, ue, now);
        }
        self.ues.retain(|_, ue| ue.link != link);
        self.by_imsi.retain(|_, id| self.ues.contains_key(id));
    }

    fn chance(&mut self, ratio: f64) -> bool {
        const BITS: u32 = 53;
        ratio > 0.0
            && ((random(&mut self.dice) >> (64 - BITS)) as f64) < ratio * (1_u64 << BITS) as f64
    }

    /// Sends what is due: delayed messages, repeats.
    pub fn advance(&mut self, now: u64, out: &mut Vec<Outgoing>) {
        while self.delayed.front().is_some_and(|(at, _)| *at <= now) {
            out.extend(self.delayed.pop_front().map(|(_, message)| message));
        }
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            self.retry(id, at, now, out);
        }
    }

    fn retry(&mut self, id: u32, at: u64, now: u64, out: &mut Vec<Outgoing>) {
        let Some(pending) = self
            .ues
            .get_mut(&id)
            .and_then(|ue| ue.pending.take_if(|it| it.due_ns == at))
        else {
            return;
        };
        if pending.tries == RETRIES {
            self.counts.given_up += 1;
            self.release(id, now, out);
        } else {
            self.counts.repeats += 1;
            self.ask(id, pending.nas, pending.tries + 1, now, out);
        }
    }

    fn say(
        &mut self,
        link: usize,
        stream: u16,
        mut message: S1,
        now: u64,
        out: &mut Vec<Outgoing>,
    ) {
        const NOBODY: u32 = 0x00ff_fff0;
        if self.chance(self.faults.drop) {
            self.counts.dropped += 1;
            return;
        }
        if self.chance(self.faults.wrong_id) {
            match &mut message {
                S1::DownlinkNas { ids, .. } | S1::ContextSetupRequest { ids, .. } => {
                    ids.enb = NOBODY
                }
                S1::ReleaseCommand { enb, .. } => *enb = Some(NOBODY),
                _ => {}
            }
        }
        if let Some(pdu) = s1ap::encode(&message, &self.cell) {
            *self.counts.sent.entry(message.name()).or_default() += 1;
            let outgoing = Outgoing { link, stream, pdu };
            match self.faults.delay_ns {
                0 => out.push(outgoing),
                delay => self.delayed.push_back((now + delay, outgoing)),
            }
        }
    }

    /// Says something to a UE, protected if it has keys.
    fn tell(&mut self, id: u32, nas: &Nas, now: u64, out: &mut Vec<Outgoing>) {
        let spoiled = self.chance(self.faults.bad_mac);
        let Some(ue) = self.ues.get_mut(&id) else {
            return;
        };
        let command = matches!(nas, Nas::SecurityModeCommand { .. });
        let octets = match &mut ue.context {
            Some(context) => {
                let octets = context.protect(nas, Way::Down, command);
                octets.map(|mut octets| {
                    octets[1] ^= u8::from(spoiled);
                    octets
                })
            }
            None => nas::encode(nas),
        };
        let (link, ids) = (
            ue.link,
            Ids {
                mme: id,
                enb: ue.enb,
            },
        );
        let stream = u16::try_from(1 + ids.enb % 8).unwrap_or(1);
        let Some(octets) = octets else {
            return;
        };
        let message = match nas {
            Nas::AttachAccept { .. } => S1::ContextSetupRequest {
                ids,
                nas: Some(octets),
            },
            _ => S1::DownlinkNas { ids, nas: octets },
        };
        self.say(link, stream, message, now, out);
    }

    /// The same, again and again until an answer comes.
    fn ask(&mut self, id: u32, nas: Nas, tries: u32, now: u64, out: &mut Vec<Outgoing>) {
        self.tell(id, &nas, now, out);
        let due_ns = now + RETRY_NS;
        if let Some(ue) = self.ues.get_mut(&id) {
            ue.pending = Some(Pending { nas, due_ns, tries });
            self.timers.push(Reverse((due_ns, id)));
        }
    }

    fn forget(&mut self, id: u32) -> Option<Session> {
        let ue = self.ues.remove(&id)?;
        if self.by_imsi.get(&ue.imsi) == Some(&id) {
            self.by_imsi.remove(&ue.imsi);
        }
        Some(ue)
    }

    fn release(&mut self, id: u32, now: u64, out: &mut Vec<Outgoing>) {
        if let Some(ue) = self.forget(id) {
            end_session(&mut self.core, id, &ue, now);
            let stream = u16::try_from(1 + ue.enb % 8).unwrap_or(1);
            self.say(
                ue.link,
                stream,
                S1::ReleaseCommand {
                    mme: id,
                    enb: Some(ue.enb),
                },
                now,
                out,
            );
        }
    }

    /// Takes what came over an association.
    pub fn receive(
        &mut self,
        link: usize,
        ppid: u32,
        pdu: &[u8],
        now: u64,
        out: &mut Vec<Outgoing>,
    ) {
        let Some(message) = s1ap::decode(pdu).ok().filter(|_| ppid == PPID) else {
            self.counts.undecodable += 1;
            return;
        };
        *self.counts.received.entry(message.name()).or_default() += 1;
        let silent = self
            .faults
            .silent_after
            .is_some_and(|after| self.counts.attach_requests >= after);
        if silent && !matches!(message, S1::SetupRequest) {
            return;
        }
        match message {
            S1::SetupRequest => self.say_always(link, &S1::SetupResponse, out),
            S1::InitialUe { enb, nas } => self.initial(link, enb, &nas, now, out),
            S1::UplinkNas { ids, nas } => {
                let known = self
                    .ues
                    .get(&ids.mme)
                    .is_some_and(|ue| ue.link == link && ue.enb == ids.enb);
                if known {
                    self.uplink(ids.mme, &nas, now, out);
                } else {
                    self.counts.unknown_ue_ids += 1;
                    let error = S1::ErrorIndication {
                        mme: Some(ids.mme),
                        enb: Some(ids.enb),
                    };
                    self.say(link, 0, error, now, out);
                }
            }
            S1::ContextSetupFailure { ids } => self.release(ids.mme, now, out),
            _ => {}
        }
    }

    /// Without faults: an association is there before they begin.
    fn say_always(&mut self, link: usize, message: &S1, out: &mut Vec<Outgoing>) {
        if let Some(pdu) = s1ap::encode(message, &self.cell) {
            *self.counts.sent.entry(message.name()).or_default() += 1;
            out.push(Outgoing {
                link,
                stream: 0,
                pdu,
            });
        }
    }

    fn initial(&mut self, link: usize, enb: u32, octets: &[u8], now: u64, out: &mut Vec<Outgoing>) {
        let Ok(Nas::AttachRequest { imsi, capability }) = nas::decode(octets, Way::Up) else {
            self.counts.undecodable += 1;
            return;
        };
        self.counts.attach_requests += 1;
        if let Some(before) = self.by_imsi.get(&imsi).copied()
            && let Some(ue) = self.forget(before)
        {
            end_session(&mut self.core, before, &ue, now);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let full = self.faults.limit.is_some_and(|limit| self.ues() >= limit);
        // An HSS says that itself.
        let subscribed = self.core.is_some() || self.home.subscribers.of(&imsi).is_some();
        let session = Session {
            link,
            enb,
            imsi: imsi.clone(),
            capability,
            hash: nas::hash(octets),
            rand: [0; 16],
            xres: Vec::new(),
            kasme: None,
            context: None,
            pending: None,
            bearer: None,
            leaving: false,
        };
        self.ues.insert(id, session);
        self.by_imsi.insert(imsi, id);
        self.counts.peak_ues = self.counts.peak_ues.max(self.ues());
        if !subscribed {
            self.turn_away(
                id,
                &Nas::AttachReject {
                    cause: cause::IMSI_UNKNOWN,
                },
                now,
                out,
            );
        } else if full || self.chance(self.faults.reject) {
            self.turn_away(
                id,
                &Nas::AttachReject {
                    cause: cause::CONGESTION,
                },
                now,
                out,
            );
        } else {
            self.authenticate(id, None, now, out);
        }
    }

    fn turn_away(&mut self, id: u32, nas: &Nas, now: u64, out: &mut Vec<Outgoing>) {
        self.counts.rejected += 1;
        self.tell(id, nas, now, out);
        self.release(id, now, out);
    }

    /// `ahead`: AUTS of a USIM whose sequence number is higher.
    fn authenticate(
        &mut self,
        id: u32,
        ahead: Option<[u8; 14]>,
        now: u64,
        out: &mut Vec<Outgoing>,
    ) {
        let Some(ue) = self.ues.get_mut(&id) else {
            return;
        };
        ue.pending = None;
        if let Some(core) = &mut self.core {
            let imsi = ue.imsi.clone();
            let ahead = ahead.map(|auts| (ue.rand, auts));
            core.ask(id, &Request::Vector { imsi, ahead }, now);
            return;
        }
        let Some(subscriber) = self.home.subscribers.of(&ue.imsi) else {
            return;
        };
        match ahead.map(|auts| subscriber.resynchronised(&ue.rand, &auts)) {
            Some(None) => return self.turn_away(id, &Nas::AuthenticationReject, now, out),
            Some(Some(highest)) => self.sqn = self.sqn.max(highest),
            None => {}
        }
        self.sqn += 32;
        let rand = challenge(&mut self.dice);
        let vector = subscriber.vector(rand, self.sqn, self.home.network);
        self.challenge(id, vector, now, out);
    }

    fn challenge(&mut self, id: u32, vector: Vector, now: u64, out: &mut Vec<Outgoing>) {
        let rand = vector.rand;
        let Some(ue) = self.ues.get_mut(&id) else {
            return;
        };
        (ue.rand, ue.xres, ue.kasme) = (rand, vector.xres, Some(vector.kasme));
        self.ask(
            id,
            Nas::AuthenticationRequest {
                rand,
                autn: vector.autn,
            },
            0,
            now,
            out,
        );
    }

    fn uplink(&mut self, id: u32, octets: &[u8], now: u64, out: &mut Vec<Outgoing>) {
        let Some(ue) = self.ues.get_mut(&id) else {
            return;
        };
        let message = match (nas::header(octets), &mut ue.context) {
            (Ok(Header::Plain), _) => nas::decode(octets, Way::Up),
            (Ok(_), Some(context)) => {
                let opened = context.open(octets, Way::Up);
                self.counts.mac_failures += u64::from(opened.is_err());
                opened
            }
            _ => Err(crate::wire::Undecodable),
        };
        let Ok(message) = message else {
            self.counts.undecodable += 1;
            return;
        };
        let asked = ue.pending.as_ref().map(|pending| &pending.nas);
        match (message, asked) {
            (Nas::AuthenticationResponse { res }, Some(Nas::AuthenticationRequest { .. })) => {
                if res != ue.xres {
                    ue.pending = None;
                    return self.turn_away(id, &Nas::AuthenticationReject, now, out);
                }
                let Some(kasme) = &ue.kasme else {
                    return;
                };
                let Some((eea, eia)) = ue.capability.best(self.eea, self.eia) else {
                    ue.pending = None;
                    let cause = cause::CAPABILITIES_MISMATCH;
                    return self.turn_away(id, &Nas::AttachReject { cause }, now, out);
                };
                ue.context = Context::new(kasme, eea, eia);
                let command = Nas::SecurityModeCommand {
                    eea,
                    eia,
                    replayed: ue.capability,
                    imeisv: false,
                    hash: Some(ue.hash),
                };
                self.ask(id, command, 0, now, out);
            }
            (Nas::AuthenticationFailure { auts, .. }, Some(Nas::AuthenticationRequest { .. })) => {
                ue.pending = None;
                match auts {
                    Some(auts) => self.authenticate(id, Some(auts), now, out),
                    None => self.turn_away(id, &Nas::AuthenticationReject, now, out),
                }
            }
            (Nas::SecurityModeComplete { .. }, Some(Nas::SecurityModeCommand { .. })) => {
                ue.pending = None;
                match &mut self.core {
                    Some(core) => {
                        let imsi = ue.imsi.clone();
                        core.ask(id, &Request::Location { imsi }, now);
                    }
                    None => self.accept(id, now, out),
                }
            }
            (Nas::SecurityModeReject { .. }, Some(_)) => self.release(id, now, out),
            (Nas::AttachComplete, Some(Nas::AttachAccept { .. })) => {
                ue.pending = None;
                self.counts.attached += 1;
                if let Some((core, session)) = self.core.as_mut().zip(ue.bearer) {
                    core.modify(id, session, ue.enb, now);
                }
            }
            (Nas::DetachRequest, _) => {
                ue.pending = None;
                self.counts.detached += 1;
                match self.core.as_mut().zip(ue.bearer) {
                    // The SGW's answer releases it.
                    Some((core, session)) if !ue.leaving => {
                        ue.leaving = true;
                        core.delete(id, session, now);
                    }
                    Some(_) => {}
                    None => self.release(id, now, out),
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self, id: u32, now: u64, out: &mut Vec<Outgoing>) {
        self.ask(id, Nas::AttachAccept { bearer: 5, pti: 1 }, 0, now, out);
    }

    /// Takes a message of its HSS.
    pub fn from_hss(&mut self, octets: &[u8], now: u64, out: &mut Vec<Outgoing>) {
        let core = self.core.as_mut();
        if let Some((id, told)) = core.and_then(|core| core.from_hss(octets, now)) {
            self.told(id, told, now, out);
        }
    }

    /// Takes a message of its SGW.
    pub fn from_sgw(&mut self, octets: &[u8], now: u64, out: &mut Vec<Outgoing>) {
        let core = self.core.as_mut();
        if let Some((id, told)) = core.and_then(|core| core.from_sgw(octets, now)) {
            self.told(id, told, now, out);
        }
    }

    fn told(&mut self, id: u32, told: Told, now: u64, out: &mut Vec<Outgoing>) {
        let failed = Nas::AttachReject {
            cause: cause::NETWORK_FAILURE,
        };
        let Some(ue) = self.ues.get_mut(&id) else {
            // It is gone; a session that came too late goes with it.
            if let (Told::Session(Some(session)), Some(core)) = (told, &mut self.core) {
                core.delete(id, session, now);
            }
            return;
        };
        match told {
            Told::Home(Answer::Vector(vector)) => self.challenge(id, *vector, now, out),
            Told::Home(Answer::Done) => {
                if let Some(core) = &mut self.core {
                    core.create(id, &ue.imsi, now);
                }
            }
            Told::Home(Answer::UserUnknown) => {
                let cause = cause::IMSI_UNKNOWN;
                self.turn_away(id, &Nas::AttachReject { cause }, now, out);
            }
            Told::Session(Some(session)) => {
                ue.bearer = Some(session);
                self.accept(id, now, out);
            }
            Told::Home(Answer::Failed) | Told::Session(None) => {
                self.turn_away(id, &failed, now, out);
            }
            Told::Deleted => self.release(id, now, out),
            Told::Modified => {}
        }
    }
}
