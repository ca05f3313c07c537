//! One UE: what it answers to the NAS messages of an MME that may say anything.

use crate::ledger::Anomalies;
use crate::wire::aka::{Answer, Kasme, Network, Subscriber};
use crate::wire::nas::{self, Capability, Context, Header, Nas, Way, cause};

/// How far an attach is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Attach Request sent.
    Requested,
    /// Authentication Response sent.
    Authenticated,
    /// Security Mode Complete sent.
    Secured,
    /// Attach Accept accepted.
    Attached,
}

/// What all UEs of a load share.
pub struct Sim {
    /// K and OPc.
    pub subscriber: Subscriber,
    /// Serving network.
    pub network: Network,
    /// Algorithms.
    pub capability: Capability,
}

/// How a NAS message changed a UE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Not at all.
    None,
    /// It is at this step now.
    Step(Step),
    /// It is turned away, with this cause.
    Rejected(u8),
    /// It cannot go on, for this reason.
    Aborted(&'static str),
}

/// State of one UE.
pub struct Ue {
    imsi: String,
    /// How far it is.
    pub step: Step,
    highest_sqn: u64,
    /// The last challenge and the answer to it.
    challenge: Option<([u8; 16], Vec<u8>)>,
    kasme: Option<Kasme>,
    context: Option<Context>,
}

impl Ue {
    /// A UE that is switched on, and its Attach Request.
    #[must_use]
    pub fn switched_on(imsi: String, sim: &Sim) -> (Self, Option<Vec<u8>>) {
        let request = nas::encode(&Nas::AttachRequest {
            imsi: imsi.clone(),
            capability: sim.capability,
        });
        let ue = Self {
            imsi,
            step: Step::Requested,
            highest_sqn: 0,
            challenge: None,
            kasme: None,
            context: None,
        };
        (ue, request)
    }

    /// Its Detach Request (switch off); `None` if it has no keys.
    pub fn detach(&mut self) -> Option<Vec<u8>> {
        self.context
            .as_mut()?
            .protect(&Nas::DetachRequest, Way::Up, false)
    }

    /// What it makes of octets from the MME; answers go to `up`.
    pub fn receive(
        &mut self,
        octets: &[u8],
        sim: &Sim,
        odd: &mut Anomalies,
        up: &mut Vec<Vec<u8>>,
    ) -> Turn {
        let message = match nas::header(octets) {
            Err(_) => {
                odd.undecodable_nas += 1;
                return Turn::None;
            }
            Ok(Header::Plain) => match nas::decode(octets, Way::Down) {
                Ok(message) => message,
                Err(_) => {
                    odd.undecodable_nas += 1;
                    return Turn::None;
                }
            },
            Ok(Header::NewContext) => return self.secure(octets, sim, odd, up),
            Ok(Header::Protected) => {
                let Some(context) = &mut self.context else {
                    odd.without_context += 1;
                    return Turn::None;
                };
                match context.open(octets, Way::Down) {
                    Ok(message) => return self.obey_protected(&message, odd, up),
                    Err(_) => {
                        odd.mac_failures += 1;
                        return Turn::None;
                    }
                }
            }
        };
        self.obey_plain(&message, sim, odd, up)
    }

    /// The messages that TS 24.301, 4.4.4.2 lets a UE take without protection.
    fn obey_plain(
        &mut self,
        message: &Nas,
        sim: &Sim,
        odd: &mut Anomalies,
        up: &mut Vec<Vec<u8>>,
    ) -> Turn {
        if self.step == Step::Attached {
            odd.unexpected += 1;
            return Turn::None;
        }
        match message {
            Nas::IdentityRequest => {
                up.extend(nas::encode(&Nas::IdentityResponse {
                    imsi: self.imsi.clone(),
                }));
                Turn::None
            }
            Nas::AuthenticationRequest { rand, autn } => {
                self.authenticate(rand, autn, sim, odd, up)
            }
            Nas::AuthenticationReject => Turn::Rejected(0),
            Nas::AttachReject { cause } | Nas::ServiceReject { cause } => Turn::Rejected(*cause),
            _ => {
                odd.unexpected += 1;
                Turn::None
            }
        }
    }

    fn authenticate(
        &mut self,
        rand: &[u8; 16],
        autn: &[u8; 16],
        sim: &Sim,
        odd: &mut Anomalies,
        up: &mut Vec<Vec<u8>>,
    ) -> Turn {
        if let Some((_, res)) = self.challenge.as_ref().filter(|(known, _)| known == rand) {
            odd.repeats += 1;
            up.extend(nas::encode(&Nas::AuthenticationResponse {
                res: res.clone(),
            }));
            return Turn::None;
        }
        match sim
            .subscriber
            .answer(rand, autn, self.highest_sqn, sim.network)
        {
            Answer::Accepted { res, kasme, sqn } => {
                self.highest_sqn = sqn;
                self.kasme = Some(kasme);
                self.context = None;
                up.extend(nas::encode(&Nas::AuthenticationResponse {
                    res: res.clone(),
                }));
                self.challenge = Some((*rand, res));
                let first = self.step == Step::Requested;
                self.step = Step::Authenticated;
                if first {
                    Turn::Step(self.step)
                } else {
                    Turn::None
                }
            }
            Answer::WrongMac => {
                odd.wrong_autns += 1;
                up.extend(nas::encode(&Nas::AuthenticationFailure {
                    cause: cause::MAC_FAILURE,
                    auts: None,
                }));
                Turn::None
            }
            Answer::OldSqn(auts) => {
                odd.old_sqns += 1;
                let cause = cause::SYNCH_FAILURE;
                up.extend(nas::encode(&Nas::AuthenticationFailure {
                    cause,
                    auts: Some(auts),
                }));
                Turn::None
            }
        }
    }

    /// A Security Mode Command: its algorithms are read first, then its MAC is checked with their keys.
    fn secure(
        &mut self,
        octets: &[u8],
        sim: &Sim,
        odd: &mut Anomalies,
        up: &mut Vec<Vec<u8>>,
    ) -> Turn {
        let Some(kasme) = &self.kasme else {
            odd.without_context += 1;
            return Turn::None;
        };
        let Ok(Nas::SecurityModeCommand {
            eea, eia, replayed, ..
        }) = nas::unverified(octets, Way::Down)
        else {
            odd.undecodable_nas += 1;
            return Turn::None;
        };
        if self.step == Step::Attached {
            odd.unexpected += 1;
            return Turn::None;
        }
        let offered = |mask: u8, algorithm: u8| algorithm < 8 && mask & 0x80 >> algorithm != 0;
        let known =
            offered(sim.capability.eea, eea) && offered(sim.capability.eia, eia) && eia != 0;
        // The context in use goes on counting; a fresh one of the same keys would use counts twice.
        let kept = self.context.take().filter(|context| context.has(eea, eia));
        let repeated = kept.is_some();
        let Some(mut context) = kept
            .or_else(|| Context::new(kasme, eea, eia))
            .filter(|_| known)
        else {
            return Self::refuse(odd, up);
        };
        let verified = context.open(octets, Way::Down);
        if verified.is_err() {
            odd.mac_failures += 1;
            self.context = repeated.then_some(context);
            return Turn::None;
        }
        if replayed != sim.capability {
            return Self::refuse(odd, up);
        }
        up.extend(context.protect(&Nas::SecurityModeComplete, Way::Up, true));
        self.context = Some(context);
        if self.step >= Step::Secured {
            odd.repeats += 1;
            return Turn::None;
        }
        self.step = Step::Secured;
        Turn::Step(self.step)
    }

    fn refuse(odd: &mut Anomalies, up: &mut Vec<Vec<u8>>) -> Turn {
        odd.refused_algorithms += 1;
        up.extend(nas::encode(&Nas::SecurityModeReject {
            cause: cause::CAPABILITIES_MISMATCH,
        }));
        Turn::Aborted("security_mode_refused")
    }

    fn obey_protected(
        &mut self,
        message: &Nas,
        odd: &mut Anomalies,
        up: &mut Vec<Vec<u8>>,
    ) -> Turn {
        let Some(context) = &mut self.context else {
            return Turn::None;
        };
        match message {
            Nas::AttachAccept { .. } => {
                up.extend(context.protect(&Nas::AttachComplete, Way::Up, false));
                if self.step == Step::Attached {
                    odd.repeats += 1;
                    return Turn::None;
                }
                self.step = Step::Attached;
                Turn::Step(self.step)
            }
            Nas::EsmInformationRequest { pti } => {
                up.extend(context.protect(
                    &Nas::EsmInformationResponse { pti: *pti },
                    Way::Up,
                    false,
                ));
                Turn::None
            }
            Nas::IdentityRequest => {
                let imsi = self.imsi.clone();
                up.extend(context.protect(&Nas::IdentityResponse { imsi }, Way::Up, false));
                Turn::None
            }
            Nas::AttachReject { cause } | Nas::ServiceReject { cause }
                if self.step < Step::Attached =>
            {
                Turn::Rejected(*cause)
            }
            Nas::EmmInformation => Turn::None,
            _ => {
                odd.unexpected += 1;
                Turn::None
            }
        }
    }
}
