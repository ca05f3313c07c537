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

/// A UE's USIM, and what the UE is in.
pub struct Sim<'a> {
    /// K and OPc.
    pub subscriber: &'a Subscriber,
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
    /// A UE that is switched on.
    #[must_use]
    pub fn switched_on(imsi: String) -> Self {
        Self {
            imsi,
            step: Step::Requested,
            highest_sqn: 0,
            challenge: None,
            kasme: None,
            context: None,
        }
    }

    /// Its Attach Request.
    #[must_use]
    pub fn attach_request(&self, capability: Capability) -> Option<Vec<u8>> {
        nas::encode(&Nas::AttachRequest {
            imsi: self.imsi.clone(),
            capability,
        })
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
        sim: &Sim<'_>,
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
        sim: &Sim<'_>,
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
        sim: &Sim<'_>,
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
        sim: &Sim<'_>,
        odd: &mut Anomalies,
        up: &mut Vec<Vec<u8>>,
    ) -> Turn {
        let Some(kasme) = &self.kasme else {
            odd.without_context += 1;
            return Turn::None;
        };
        let Ok(Nas::SecurityModeCommand {
            eea,
            eia,
            replayed,
            imeisv,
            hash,
        }) = nas::unverified(octets, Way::Down)
        else {
            odd.undecodable_nas += 1;
            return Turn::None;
        };
        if self.step == Step::Attached {
            odd.unexpected += 1;
            return Turn::None;
        }
        let offered = sim.capability.offers(eea, eia);
        // The context in use goes on counting; a fresh one of the same keys would use counts twice.
        let kept = self.context.take().filter(|context| context.has(eea, eia));
        let repeated = kept.is_some();
        let Some(mut context) = kept
            .or_else(|| Context::new(kasme, eea, eia))
            .filter(|_| offered)
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
        // TS 24.301, 5.4.3.3: an MME that read another request gets the one that was sent.
        let request = self.attach_request(sim.capability);
        let other = hash.is_some_and(|hash| request.as_deref().map(nas::hash) != Some(hash));
        odd.wrong_hashes += u64::from(other);
        let complete = Nas::SecurityModeComplete {
            imeisv,
            request: request.filter(|_| other),
        };
        up.extend(context.protect(&complete, Way::Up, true));
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
