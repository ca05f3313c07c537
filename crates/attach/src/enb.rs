//! eNodeBs with their UEs: an open-loop schedule of attaches, one association to each MME, UEs in turn.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Outgoing;
use crate::ledger::Ledger;
use crate::subscribers::Subscribers;
use crate::ue::{Sim, Step, Turn, Ue};
use crate::wire::aka::Network;
use crate::wire::nas::Capability;
use crate::wire::s1ap::{self, Cell, Ids, S1};

/// Of S1AP, as payload protocol identifier.
pub const PPID: u32 = 18;
/// eNB UE S1AP IDs have 24 bits.
pub const MOST_UES: u32 = 1 << 24;
/// Streams that UEs are spread over, beside stream 0.
const STREAMS: u32 = 8;
/// What one call of [`Enbs::advance`] starts at most, so that answers are read in between.
const AT_ONCE: u32 = 64;

/// What is offered.
pub struct Plan {
    /// UEs.
    pub count: u32,
    /// Attaches begun per second.
    pub rate: f64,
    /// UE i is the subscriber i.
    pub subscribers: Subscribers,
    /// Serving network.
    pub network: Network,
    /// Algorithms of each UE.
    pub capability: Capability,
    /// Time from Attach Accept to Detach Request; `None` = they stay attached.
    pub hold_ns: Option<u64>,
    /// T3410: an attach that has not ended by then is timed out.
    pub timeout_ns: u64,
    /// Longest wait for a release after a Detach Request.
    pub release_ns: u64,
    /// What the eNodeB of each association says of itself.
    pub cells: Vec<Cell>,
}

enum Phase {
    Attaching,
    Attached,
    Detaching(u64),
}

struct Active {
    ue: Ue,
    phase: Phase,
    mme: Option<u32>,
    due_ns: u64,
    step_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Attach,
    Hold,
    Release,
}

enum Slot {
    Waiting,
    Active(Box<Active>),
    Ended,
}

/// All of them.
pub struct Enbs {
    plan: Plan,
    start_ns: u64,
    next: u32,
    slots: Vec<Slot>,
    active: u64,
    timers: BinaryHeap<Reverse<(u64, u32, Timer)>>,
    up: Vec<bool>,
    /// The books.
    pub ledger: Ledger,
}

impl Enbs {
    /// The first UE starts at `start_ns`; its associations are set up. There are no more UEs than subscribers.
    #[must_use]
    pub fn new(mut plan: Plan, start_ns: u64) -> Self {
        let subscribers = u32::try_from(plan.subscribers.count()).unwrap_or(u32::MAX);
        plan.count = plan.count.min(subscribers);
        let slots = (0..plan.count).map(|_| Slot::Waiting).collect();
        Self {
            up: vec![true; plan.cells.len()],
            plan,
            start_ns,
            next: 0,
            slots,
            active: 0,
            timers: BinaryHeap::new(),
            ledger: Ledger::default(),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn due_ns(&self, index: u32) -> u64 {
        self.start_ns + (f64::from(index) * 1e9 / self.plan.rate) as u64
    }

    fn link_of(&self, index: u32) -> usize {
        index as usize % self.plan.cells.len()
    }

    /// When [`Self::advance`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let start = (self.next < self.plan.count).then(|| self.due_ns(self.next));
        let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
        start.into_iter().chain(timer).min()
    }

    /// Whether every UE has started and none is active, but those that stay attached.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let kept = if self.plan.hold_ns.is_none() {
            self.ledger.sessions
        } else {
            0
        };
        self.next == self.plan.count && self.active == kept
    }

    /// Starts what is due and ends what is too late.
    pub fn advance(&mut self, now: u64, out: &mut Vec<Outgoing>) {
        for _ in 0..AT_ONCE {
            if self.next == self.plan.count || self.due_ns(self.next) > now {
                break;
            }
            self.switch_on(self.next, now, out);
            self.next += 1;
        }
        while let Some(&Reverse((at, index, timer))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            self.expire(index, timer, now, out);
        }
    }

    fn switch_on(&mut self, index: u32, now: u64, out: &mut Vec<Outgoing>) {
        let due_ns = self.due_ns(index);
        self.ledger
            .start(now.saturating_sub(self.start_ns), now - due_ns);
        if !self.up[self.link_of(index)] {
            self.slots[index as usize] = Slot::Ended;
            self.abort("no_association", now);
            return;
        }
        let Some((imsi, _)) = self.plan.subscribers.nth(index) else {
            return;
        };
        let ue = Ue::switched_on(format!("{imsi:015}"));
        let request = ue.attach_request(self.plan.capability);
        let active = Active {
            ue,
            phase: Phase::Attaching,
            mme: None,
            due_ns,
            step_ns: due_ns,
        };
        self.slots[index as usize] = Slot::Active(Box::new(active));
        self.active += 1;
        self.timers.push(Reverse((
            due_ns + self.plan.timeout_ns,
            index,
            Timer::Attach,
        )));
        if let Some(nas) = request {
            self.send(index, &S1::InitialUe { enb: index, nas }, out);
        }
    }

    fn send(&mut self, index: u32, message: &S1, out: &mut Vec<Outgoing>) {
        let link = self.link_of(index);
        let stream = u16::try_from(1 + index % STREAMS).unwrap_or(1);
        self.say(link, stream, message, out);
    }

    fn say(&mut self, link: usize, stream: u16, message: &S1, out: &mut Vec<Outgoing>) {
        if let Some(pdu) = s1ap::encode(message, &self.plan.cells[link]) {
            *self.ledger.sent.entry(message.name()).or_default() += 1;
            out.push(Outgoing { link, stream, pdu });
        }
    }

    fn expire(&mut self, index: u32, timer: Timer, now: u64, out: &mut Vec<Outgoing>) {
        let Slot::Active(active) = &mut self.slots[index as usize] else {
            return;
        };
        match (timer, &active.phase) {
            (Timer::Attach, Phase::Attaching) => {
                self.ledger.timed_out += 1;
                self.end(index, now);
            }
            (Timer::Release, Phase::Detaching(_)) => {
                self.ledger.unreleased += 1;
                self.end(index, now);
            }
            (Timer::Hold, Phase::Attached) => {
                active.phase = Phase::Detaching(now);
                self.ledger.sessions -= 1;
                let request = active.ue.detach().zip(active.mme);
                self.timers
                    .push(Reverse((now + self.plan.release_ns, index, Timer::Release)));
                if let Some((nas, mme)) = request {
                    self.send(
                        index,
                        &S1::UplinkNas {
                            ids: Ids { mme, enb: index },
                            nas,
                        },
                        out,
                    );
                }
            }
            _ => {}
        }
    }

    /// Its class must have been counted.
    fn end(&mut self, index: u32, now: u64) {
        if let Slot::Active(active) =
            std::mem::replace(&mut self.slots[index as usize], Slot::Ended)
        {
            self.active -= 1;
            if matches!(active.phase, Phase::Attached) {
                self.ledger.sessions -= 1;
            }
            self.resolve(now);
        }
    }

    fn resolve(&mut self, now: u64) {
        if self.ledger.started == u64::from(self.plan.count) && self.ledger.in_progress() == 0 {
            let after = now.saturating_sub(self.start_ns);
            self.ledger.resolved_ns.get_or_insert(after);
        }
    }

    fn abort(&mut self, reason: &'static str, now: u64) {
        *self.ledger.aborted.entry(reason).or_default() += 1;
        self.resolve(now);
    }

    /// Ends whatever is still in progress, because the load was stopped.
    pub fn stop(&mut self, now: u64) {
        self.drop_ues(now, "stopped", |_| true);
        self.next = self.plan.count;
    }

    /// An association is gone, and its UEs with it.
    pub fn lose(&mut self, link: usize, now: u64) {
        if std::mem::replace(&mut self.up[link], false) {
            self.drop_ues(now, "association_lost", |of| of == link);
        }
    }

    fn drop_ues(&mut self, now: u64, reason: &'static str, of: impl Fn(usize) -> bool) {
        for index in 0..self.next {
            let Slot::Active(active) = &self.slots[index as usize] else {
                continue;
            };
            if of(self.link_of(index)) {
                if matches!(active.phase, Phase::Attaching) {
                    *self.ledger.aborted.entry(reason).or_default() += 1;
                }
                self.end(index, now);
            }
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
        if ppid != PPID {
            self.ledger.anomalies.wrong_ppids += 1;
            return;
        }
        let Ok(message) = s1ap::decode(pdu) else {
            self.ledger.anomalies.undecodable_pdus += 1;
            return;
        };
        *self.ledger.received.entry(message.name()).or_default() += 1;
        let odd = &mut self.ledger.anomalies;
        match message {
            S1::DownlinkNas { ids, nas } => {
                if self.is_active(link, ids.enb, Some(ids.mme)) {
                    self.deliver(ids, &nas, now, None, out);
                }
            }
            S1::ContextSetupRequest { ids, nas } => {
                if self.is_active(link, ids.enb, Some(ids.mme)) {
                    match nas {
                        Some(nas) => self.deliver(
                            ids,
                            &nas,
                            now,
                            Some(S1::ContextSetupResponse { ids }),
                            out,
                        ),
                        None => {
                            self.ledger.anomalies.empty_contexts += 1;
                            self.send(ids.enb, &S1::ContextSetupFailure { ids }, out);
                        }
                    }
                }
            }
            S1::ReleaseCommand { mme, enb } => self.release(link, mme, enb, now, out),
            S1::ErrorIndication { .. } => odd.error_indications += 1,
            S1::Reset => {
                odd.resets += 1;
                self.drop_ues(now, "reset", |of| of == link);
                self.say(link, 0, &S1::ResetAcknowledge, out);
            }
            _ => odd.unexpected += 1,
        }
    }

    /// Whether these ids are of a UE of this association that has not ended; else it is counted.
    fn is_active(&mut self, link: usize, enb: u32, mme: Option<u32>) -> bool {
        let odd = &mut self.ledger.anomalies;
        if enb as usize % self.plan.cells.len() != link {
            odd.unknown_ue_ids += 1;
            return false;
        }
        match self.slots.get_mut(enb as usize) {
            Some(Slot::Active(active)) => {
                let agreed = match (active.mme, mme) {
                    (Some(known), Some(said)) => known == said,
                    _ => true,
                };
                if !agreed {
                    odd.unknown_ue_ids += 1;
                }
                agreed
            }
            Some(Slot::Ended) => {
                odd.ended_ues += 1;
                false
            }
            Some(Slot::Waiting) | None => {
                odd.unknown_ue_ids += 1;
                false
            }
        }
    }

    /// NAS for a UE; `response` goes first if the UE accepts.
    fn deliver(
        &mut self,
        ids: Ids,
        nas: &[u8],
        now: u64,
        response: Option<S1>,
        out: &mut Vec<Outgoing>,
    ) {
        let index = ids.enb;
        let Slot::Active(active) = &mut self.slots[index as usize] else {
            return;
        };
        let Some((_, subscriber)) = self.plan.subscribers.nth(index) else {
            return;
        };
        let sim = Sim {
            subscriber,
            network: self.plan.network,
            capability: self.plan.capability,
        };
        active.mme.get_or_insert(ids.mme);
        let mut answers = Vec::new();
        let turn = active
            .ue
            .receive(nas, &sim, &mut self.ledger.anomalies, &mut answers);
        if let Some(response) = response.filter(|_| !answers.is_empty()) {
            self.send(index, &response, out);
        }
        for nas in answers {
            self.send(index, &S1::UplinkNas { ids, nas }, out);
        }
        self.turn(index, turn, now);
    }

    fn turn(&mut self, index: u32, turn: Turn, now: u64) {
        let Slot::Active(active) = &mut self.slots[index as usize] else {
            return;
        };
        if !matches!(active.phase, Phase::Attaching) {
            return;
        }
        let step_us = now.saturating_sub(active.step_ns) / 1000;
        match turn {
            Turn::None => {}
            Turn::Step(step) => {
                active.step_ns = now;
                match step {
                    Step::Requested => {}
                    Step::Authenticated => self.ledger.auth_us.saturating_record(step_us),
                    Step::Secured => self.ledger.smc_us.saturating_record(step_us),
                    Step::Attached => {
                        active.phase = Phase::Attached;
                        let latency = now.saturating_sub(active.due_ns);
                        if let Some(hold) = self.plan.hold_ns {
                            self.timers.push(Reverse((now + hold, index, Timer::Hold)));
                        }
                        self.ledger.ics_us.saturating_record(step_us);
                        self.ledger
                            .accept(now.saturating_sub(self.start_ns), latency);
                        self.resolve(now);
                    }
                }
            }
            Turn::Rejected(cause) => {
                *self.ledger.rejected.entry(cause).or_default() += 1;
                self.end(index, now);
            }
            Turn::Aborted(reason) => {
                *self.ledger.aborted.entry(reason).or_default() += 1;
                self.end(index, now);
            }
        }
    }

    fn release(
        &mut self,
        link: usize,
        mme: u32,
        enb: Option<u32>,
        now: u64,
        out: &mut Vec<Outgoing>,
    ) {
        let by_mme = || {
            self.slots
                .iter()
                .position(|slot| matches!(slot, Slot::Active(active) if active.mme == Some(mme)))
        };
        let Some(index) = enb.or_else(|| by_mme().and_then(|at| u32::try_from(at).ok())) else {
            self.ledger.anomalies.unknown_ue_ids += 1;
            return;
        };
        // A UE that was turned away has ended here before the MME releases it.
        let ended = matches!(self.slots.get(index as usize), Some(Slot::Ended));
        if ended && self.link_of(index) == link {
            self.send(
                index,
                &S1::ReleaseComplete {
                    ids: Ids { mme, enb: index },
                },
                out,
            );
            return;
        }
        if !self.is_active(link, index, Some(mme)) {
            return;
        }
        let Slot::Active(active) = &self.slots[index as usize] else {
            return;
        };
        match active.phase {
            Phase::Attaching => *self.ledger.aborted.entry("released").or_default() += 1,
            Phase::Attached => {}
            Phase::Detaching(since) => {
                self.ledger.detached += 1;
                self.ledger
                    .detach_us
                    .saturating_record(now.saturating_sub(since) / 1000);
            }
        }
        self.send(
            index,
            &S1::ReleaseComplete {
                ids: Ids { mme, enb: index },
            },
            out,
        );
        self.end(index, now);
    }
}
