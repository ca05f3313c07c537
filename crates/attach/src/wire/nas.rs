//! EPS NAS (TS 24.301): the messages of an attach and a detach, plain and protected.

use oxirush_nas::nas_eps::{
    AttachType, CipheringAlgorithm, Direction, IntegrityAlgorithm, KeySetIdentifier,
    NasActivateDefaultEpsBearerContextAccept, NasAttachComplete, NasAttachReject, NasAttachRequest,
    NasAuthenticationFailure, NasAuthenticationFailureParameter, NasAuthenticationParameterAutn,
    NasAuthenticationParameterRand, NasAuthenticationReject, NasAuthenticationRequest,
    NasAuthenticationResponse, NasAuthenticationResponseParameter, NasDetachRequestUeOriginating,
    NasDetachType, NasEmmCause, NasEmmMessage, NasEpsAttachType, NasEpsMessage,
    NasEpsMobileIdentity, NasEpsSecurityHeaderType, NasEsmInformationResponse, NasEsmMessage,
    NasEsmMessageContainer, NasHashMme, NasIdentityResponse, NasImeisvRequest, NasKeySetIdentifier,
    NasMobileIdentity, NasPdnConnectivityRequest, NasPdnType, NasReplayedNasMessageContainer,
    NasRequestType, NasSecurityAlgorithms, NasSecurityContext, NasSecurityModeCommand,
    NasSecurityModeComplete, NasSecurityModeReject, NasUeNetworkCapability,
    NasUeSecurityCapability, PdnType, RequestTypeValue, UeDetachKind,
};
use oxirush_security::nas_eps::compute_hash_mme;

use super::Undecodable;
use super::aka::Kasme;

/// Algorithms a UE can do, a bit each from EEA0/EIA0 = 0x80 down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Ciphering.
    pub eea: u8,
    /// Integrity.
    pub eia: u8,
}

/// EEA0 to EEA3, EIA1 to EIA3; EIA0 is for emergency calls alone.
pub const ALL: Capability = Capability {
    eea: 0xf0,
    eia: 0x70,
};

/// AES, SNOW 3G, ZUC, none.
const BEST: [u8; 4] = [2, 1, 3, 0];

impl Capability {
    /// These algorithms, by their numbers 0 to 7.
    #[must_use]
    pub fn new(eea: &[u8], eia: &[u8]) -> Self {
        let bits = |numbers: &[u8]| numbers.iter().fold(0, |bits, &number| bits | bit(number));
        Self {
            eea: bits(eea),
            eia: bits(eia),
        }
    }

    /// Whether both are there; EIA0 never counts.
    #[must_use]
    pub fn offers(self, eea: u8, eia: u8) -> bool {
        self.eea & bit(eea) != 0 && self.eia & !bit(0) & bit(eia) != 0
    }

    /// EEA and EIA for an MME that prefers these two: the best that are there. `None` if one has none.
    #[must_use]
    pub fn best(self, eea: u8, eia: u8) -> Option<(u8, u8)> {
        let ciphers = std::iter::once(eea).chain(BEST);
        let mut pairs = ciphers.flat_map(|eea| {
            let integrity = std::iter::once(eia).chain(BEST);
            integrity.map(move |eia| (eea, eia))
        });
        pairs.find(|&(eea, eia)| self.offers(eea, eia))
    }
}

fn bit(algorithm: u8) -> u8 {
    0x80_u8.checked_shr(algorithm.into()).unwrap_or(0)
}

/// A message without its protection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of TS 24.301.
pub enum Nas {
    AttachRequest {
        imsi: String,
        capability: Capability,
    },
    IdentityRequest,
    IdentityResponse {
        imsi: String,
    },
    AuthenticationRequest {
        rand: [u8; 16],
        autn: [u8; 16],
    },
    AuthenticationResponse {
        res: Vec<u8>,
    },
    AuthenticationFailure {
        cause: u8,
        auts: Option<[u8; 14]>,
    },
    AuthenticationReject,
    SecurityModeCommand {
        eea: u8,
        eia: u8,
        replayed: Capability,
        imeisv: bool,
        hash: Option<[u8; 8]>,
    },
    SecurityModeComplete {
        imeisv: bool,
        request: Option<Vec<u8>>,
    },
    SecurityModeReject {
        cause: u8,
    },
    EsmInformationRequest {
        pti: u8,
    },
    EsmInformationResponse {
        pti: u8,
    },
    AttachAccept {
        bearer: u8,
        pti: u8,
    },
    AttachReject {
        cause: u8,
    },
    AttachComplete,
    DetachRequest,
    EmmInformation,
    ServiceReject {
        cause: u8,
    },
    /// One that no part of an attach is.
    Other,
}

/// TS 24.301, 9.9.3.9.
pub mod cause {
    #![allow(missing_docs)]
    pub const IMSI_UNKNOWN: u8 = 2;
    pub const NETWORK_FAILURE: u8 = 17;
    pub const CONGESTION: u8 = 22;
    pub const MAC_FAILURE: u8 = 20;
    pub const SYNCH_FAILURE: u8 = 21;
    pub const CAPABILITIES_MISMATCH: u8 = 23;
}

/// Protection of a message, by its security header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// None.
    Plain,
    /// By the context in use.
    Protected,
    /// Integrity under a context that begins with this message (header type 3): a Security Mode Command.
    NewContext,
}

/// Header of an EMM message of these octets.
///
/// # Errors
/// None, if there is no octet.
pub fn header(octets: &[u8]) -> Result<Header, Undecodable> {
    match octets.first().ok_or(Undecodable)? >> 4 {
        0 => Ok(Header::Plain),
        3 => Ok(Header::NewContext),
        _ => Ok(Header::Protected),
    }
}

/// From the UE to the MME, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the MME.
    Up,
    /// To the UE.
    Down,
}

impl Way {
    fn direction(self) -> Direction {
        match self {
            Self::Up => Direction::Uplink,
            Self::Down => Direction::Downlink,
        }
    }
}

/// Keys and counts of one UE.
pub struct Context(NasSecurityContext);

impl Context {
    /// Counts at zero; `None` for algorithms that do not exist.
    #[must_use]
    pub fn new(kasme: &Kasme, eea: u8, eia: u8) -> Option<Self> {
        let eia = integrity(eia)?;
        let eea = ciphering(eea)?;
        NasSecurityContext::from_fresh_kasme(kasme, eia, eea)
            .ok()
            .map(Self)
    }

    /// Whether these are its algorithms.
    #[must_use]
    pub fn has(&self, eea: u8, eia: u8) -> bool {
        integrity(eia) == Some(self.0.integrity_algorithm())
            && ciphering(eea) == Some(self.0.ciphering_algorithm())
    }

    /// `begins` = the header says so: a Security Mode Command or Complete. `None` if the counts are used up.
    #[must_use]
    pub fn protect(&mut self, message: &Nas, way: Way, begins: bool) -> Option<Vec<u8>> {
        use NasEpsSecurityHeaderType as Type;
        let header = match (begins, way) {
            (false, _) => Type::IntegrityProtectedAndCiphered,
            (true, Way::Down) => Type::IntegrityProtectedWithNewEpsSecurityContext,
            (true, Way::Up) => Type::IntegrityProtectedAndCipheredWithNewEpsSecurityContext,
        };
        self.0
            .protect(&built(message)?, header, way.direction())
            .ok()
    }

    /// The message, if its MAC is right and its count was not used before.
    ///
    /// # Errors
    /// `Undecodable` for both.
    pub fn open(&mut self, octets: &[u8], way: Way) -> Result<Nas, Undecodable> {
        let opened = self
            .0
            .unprotect(octets, way.direction())
            .map_err(|_| Undecodable)?;
        Ok(read(&opened.message))
    }
}

fn integrity(eia: u8) -> Option<IntegrityAlgorithm> {
    use IntegrityAlgorithm::{EIA0, EIA1, EIA2, EIA3};
    [EIA0, EIA1, EIA2, EIA3].get(usize::from(eia)).copied()
}

fn ciphering(eea: u8) -> Option<CipheringAlgorithm> {
    use CipheringAlgorithm::{EEA0, EEA1, EEA2, EEA3};
    [EEA0, EEA1, EEA2, EEA3].get(usize::from(eea)).copied()
}

/// What a plain message says.
///
/// # Errors
/// `Undecodable` if the octets are no such message.
pub fn decode(octets: &[u8], way: Way) -> Result<Nas, Undecodable> {
    let message = NasEpsMessage::decode_with_direction(octets, way.direction());
    message
        .map(|message| read(&message))
        .map_err(|_| Undecodable)
}

/// What a message says whose MAC is not checked and that is not ciphered.
///
/// # Errors
/// `Undecodable` if the octets are no such message.
pub fn unverified(octets: &[u8], way: Way) -> Result<Nas, Undecodable> {
    const HEADER: usize = 6;
    decode(octets.get(HEADER..).ok_or(Undecodable)?, way)
}

/// Octets without protection; `None` if a field does not fit.
#[must_use]
pub fn encode(message: &Nas) -> Option<Vec<u8>> {
    built(message)?.encode().ok()
}

/// HashMME of an Attach Request without protection (TS 33.401, I.2).
#[must_use]
pub fn hash(request: &[u8]) -> [u8; 8] {
    compute_hash_mme(request)
}

fn read(message: &NasEpsMessage) -> Nas {
    let known = match message {
        NasEpsMessage::Emm(_, message) => emm(message),
        NasEpsMessage::Esm(header, NasEsmMessage::EsmInformationRequest(_)) => {
            Some(Nas::EsmInformationRequest {
                pti: header.procedure_transaction_identity,
            })
        }
        NasEpsMessage::Esm(header, NasEsmMessage::EsmInformationResponse(_)) => {
            Some(Nas::EsmInformationResponse {
                pti: header.procedure_transaction_identity,
            })
        }
        _ => None,
    };
    known.unwrap_or(Nas::Other)
}

fn emm(message: &NasEmmMessage) -> Option<Nas> {
    Some(match message {
        NasEmmMessage::AttachRequest(it) => Nas::AttachRequest {
            imsi: it
                .eps_mobile_identity
                .as_imsi()
                .map(|imsi| imsi.to_string())
                .unwrap_or_default(),
            capability: Capability {
                eea: *it.ue_network_capability.value.first()?,
                eia: *it.ue_network_capability.value.get(1)?,
            },
        },
        NasEmmMessage::IdentityRequest(_) => Nas::IdentityRequest,
        NasEmmMessage::IdentityResponse(it) => Nas::IdentityResponse {
            imsi: it.mobile_identity.as_imsi()?.to_string(),
        },
        NasEmmMessage::AuthenticationRequest(it) => Nas::AuthenticationRequest {
            rand: *it.authentication_parameter_rand.rand()?,
            autn: *it.authentication_parameter_autn.autn()?,
        },
        NasEmmMessage::AuthenticationResponse(it) => Nas::AuthenticationResponse {
            res: it.authentication_response_parameter.res().to_vec(),
        },
        NasEmmMessage::AuthenticationFailure(it) => Nas::AuthenticationFailure {
            cause: it.emm_cause.cause_raw(),
            auts: it
                .authentication_failure_parameter
                .as_ref()
                .and_then(|auts| auts.auts().copied()),
        },
        NasEmmMessage::AuthenticationReject(_) => Nas::AuthenticationReject,
        NasEmmMessage::SecurityModeCommand(it) => Nas::SecurityModeCommand {
            eea: it.selected_nas_security_algorithms.ciphering_raw(),
            eia: it.selected_nas_security_algorithms.integrity_raw(),
            replayed: Capability {
                eea: *it.replayed_ue_security_capabilities.value.first()?,
                eia: *it.replayed_ue_security_capabilities.value.get(1)?,
            },
            imeisv: it.imeisv_request.is_some(),
            hash: it.hash_mme.as_ref().and_then(|hash| hash.hash_mme()),
        },
        NasEmmMessage::SecurityModeComplete(it) => Nas::SecurityModeComplete {
            imeisv: it.imeisv.is_some(),
            request: it
                .replayed_nas_message_container
                .as_ref()
                .map(|request| request.value.to_vec()),
        },
        NasEmmMessage::SecurityModeReject(it) => Nas::SecurityModeReject {
            cause: it.emm_cause.cause_raw(),
        },
        NasEmmMessage::AttachAccept(it) => match it.esm_message_container.decode_as_esm_message() {
            Ok(NasEpsMessage::Esm(
                header,
                NasEsmMessage::ActivateDefaultEpsBearerContextRequest(_),
            )) => Nas::AttachAccept {
                bearer: header.eps_bearer_identity,
                pti: header.procedure_transaction_identity,
            },
            _ => return None,
        },
        NasEmmMessage::AttachReject(it) => Nas::AttachReject {
            cause: it.emm_cause.cause_raw(),
        },
        NasEmmMessage::AttachComplete(_) => Nas::AttachComplete,
        NasEmmMessage::DetachRequestUeOriginating(_) => Nas::DetachRequest,
        NasEmmMessage::EmmInformation(_) => Nas::EmmInformation,
        NasEmmMessage::ServiceReject(it) => Nas::ServiceReject {
            cause: it.emm_cause.cause_raw(),
        },
        _ => return None,
    })
}

fn built(message: &Nas) -> Option<NasEpsMessage> {
    let ksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(0)).ok()?;
    let emm_cause = |cause: &u8| NasEmmCause::new(*cause);
    Some(match message {
        Nas::AttachRequest { imsi, capability } => {
            let no_key =
                NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::NoKey).ok()?;
            let pdn = NasPdnConnectivityRequest::new(
                NasRequestType::from_request_type(RequestTypeValue::Initial),
                NasPdnType::from_pdn_type(PdnType::Ipv4),
            );
            NasEpsMessage::new_emm(NasAttachRequest::new(
                NasEpsAttachType::from_attach_type(AttachType::EpsAttach),
                no_key,
                NasEpsMobileIdentity::from_imsi(imsi).ok()?,
                NasUeNetworkCapability::from_eea_eia(capability.eea, capability.eia),
                esm(pdn, 0, 1)?,
            ))
        }
        Nas::IdentityRequest => NasEpsMessage::decode(&[0x07, 0x55, 0x01]).ok()?,
        Nas::IdentityResponse { imsi } => NasEpsMessage::new_emm(NasIdentityResponse::new(
            NasMobileIdentity::from_imsi(imsi).ok()?,
        )),
        Nas::AuthenticationRequest { rand, autn } => {
            NasEpsMessage::new_emm(NasAuthenticationRequest::new(
                ksi,
                NasAuthenticationParameterRand::from_rand(*rand),
                NasAuthenticationParameterAutn::from_autn(*autn),
            ))
        }
        Nas::AuthenticationResponse { res } => NasEpsMessage::new_emm(
            NasAuthenticationResponse::new(NasAuthenticationResponseParameter::from_res(res).ok()?),
        ),
        Nas::AuthenticationFailure { cause, auts } => {
            let failure = NasAuthenticationFailure::new(emm_cause(cause));
            NasEpsMessage::new_emm(match auts {
                Some(auts) => failure.with_authentication_failure_parameter(
                    NasAuthenticationFailureParameter::from_auts(*auts),
                ),
                None => failure,
            })
        }
        Nas::AuthenticationReject => NasEpsMessage::new_emm(NasAuthenticationReject::new()),
        Nas::SecurityModeCommand {
            eea,
            eia,
            replayed,
            imeisv,
            hash,
        } => {
            let algorithms =
                NasSecurityAlgorithms::from_algorithms(ciphering(*eea)?, integrity(*eia)?);
            let network = NasUeNetworkCapability::from_eea_eia(replayed.eea, replayed.eia);
            let replayed = NasUeSecurityCapability::from_ue_network_capability(&network);
            let mut command = NasSecurityModeCommand::new(algorithms, ksi, replayed);
            if *imeisv {
                command = command.with_imeisv_request(NasImeisvRequest::from_requested(true));
            }
            if let Some(hash) = hash {
                command = command.with_hash_mme(NasHashMme::from_hash_mme(*hash));
            }
            NasEpsMessage::new_emm(command)
        }
        Nas::SecurityModeComplete { imeisv, request } => {
            let mut complete = NasSecurityModeComplete::new();
            if *imeisv {
                let ours = NasMobileIdentity::from_imeisv("3534900698733190").ok()?;
                complete = complete.with_imeisv(ours);
            }
            if let Some(request) = request {
                let whole = NasReplayedNasMessageContainer::new(request.clone());
                complete = complete.with_replayed_nas_message_container(whole);
            }
            NasEpsMessage::new_emm(complete)
        }
        Nas::SecurityModeReject { cause } => {
            NasEpsMessage::new_emm(NasSecurityModeReject::new(emm_cause(cause)))
        }
        Nas::EsmInformationRequest { pti } => NasEpsMessage::decode(&[0x02, *pti, 0xd9]).ok()?,
        Nas::EsmInformationResponse { pti } => {
            NasEpsMessage::new_esm(NasEsmInformationResponse::new(), 0, *pti)
        }
        Nas::AttachAccept { bearer, pti } => accept(*bearer, *pti)?,
        Nas::AttachReject { cause } => {
            NasEpsMessage::new_emm(NasAttachReject::new(emm_cause(cause)))
        }
        Nas::AttachComplete => NasEpsMessage::new_emm(NasAttachComplete::new(esm(
            NasActivateDefaultEpsBearerContextAccept::new(),
            5,
            0,
        )?)),
        Nas::DetachRequest => NasEpsMessage::new_emm(NasDetachRequestUeOriginating::new(
            NasDetachType::from_ue_detach_kind(UeDetachKind::EpsDetach, true),
            ksi,
            NasEpsMobileIdentity::from_imsi("001010000000000").ok()?,
        )),
        Nas::EmmInformation => NasEpsMessage::decode(&[0x07, 0x61]).ok()?,
        Nas::ServiceReject { .. } | Nas::Other => return None,
    })
}

fn esm(message: impl Into<NasEsmMessage>, bearer: u8, pti: u8) -> Option<NasEsmMessageContainer> {
    NasEsmMessageContainer::from_esm_message(&NasEpsMessage::new_esm(message, bearer, pti)).ok()
}

/// T3412 1 minute, TAC 1 of 001-01, QCI 9, APN internet, 10.0.0.1: the figures of no user matter to an attach.
fn accept(bearer: u8, pti: u8) -> Option<NasEpsMessage> {
    const ACCEPT: [u8; 34] = [
        0x07, 0x42, 0x01, 0x21, 0x06, 0x00, 0x00, 0xf1, 0x10, 0x00, 0x01, 0x00, 0x15, 0x52, 0x01,
        0xc1, 0x01, 0x09, 0x09, 0x08, b'i', b'n', b't', b'e', b'r', b'n', b'e', b't', 0x05, 0x01,
        0x0a, 0x00, 0x00, 0x01,
    ];
    let mut octets = ACCEPT;
    octets[13] = bearer << 4 | 0x02;
    octets[14] = pti;
    NasEpsMessage::decode(&octets).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::wire::aka::{Network, Subscriber};

    #[test]
    fn each_message_reads_back_as_it_was_said() {
        let imsi = || "001010000000007".to_owned();
        let up = [
            Nas::AttachRequest {
                imsi: imsi(),
                capability: ALL,
            },
            Nas::IdentityResponse { imsi: imsi() },
            Nas::AuthenticationResponse { res: vec![1; 8] },
            Nas::AuthenticationFailure {
                cause: cause::SYNCH_FAILURE,
                auts: Some([3; 14]),
            },
            Nas::SecurityModeComplete {
                imeisv: true,
                request: Some(vec![7, 0x41]),
            },
            Nas::SecurityModeComplete {
                imeisv: false,
                request: None,
            },
            Nas::SecurityModeReject {
                cause: cause::CAPABILITIES_MISMATCH,
            },
            Nas::EsmInformationResponse { pti: 1 },
            Nas::AttachComplete,
            Nas::DetachRequest,
        ];
        let down = [
            Nas::IdentityRequest,
            Nas::AuthenticationRequest {
                rand: [1; 16],
                autn: [2; 16],
            },
            Nas::AuthenticationReject,
            Nas::SecurityModeCommand {
                eea: 2,
                eia: 2,
                replayed: ALL,
                imeisv: true,
                hash: Some([9; 8]),
            },
            Nas::EsmInformationRequest { pti: 1 },
            Nas::AttachAccept { bearer: 5, pti: 1 },
            Nas::AttachReject {
                cause: cause::CONGESTION,
            },
            Nas::EmmInformation,
        ];
        for (way, messages) in [(Way::Up, &up[..]), (Way::Down, &down[..])] {
            for message in messages {
                let octets = encode(message).unwrap_or_else(|| panic!("{message:?} has no octets"));
                assert_eq!(&decode(&octets, way).unwrap(), message);
            }
        }
    }

    /// As TS 24.301 has it, octet by octet.
    #[test]
    fn an_attach_request_has_the_octets_of_the_standard() {
        let octets = encode(&Nas::AttachRequest {
            imsi: "001010000000007".into(),
            capability: ALL,
        })
        .unwrap();
        let words: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(
            words,
            "0741710809101000000000700 2f070000402 01d011".replace(' ', "")
        );
    }

    #[test]
    fn a_changed_or_repeated_message_is_not_opened() {
        let vector = Subscriber::new(&[1; 16], &[2; 16]).vector(
            [7; 16],
            40,
            Network::new("001", "01").unwrap(),
        );
        for (eea, eia) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            let context = || Context::new(&vector.kasme, eea, eia).unwrap();
            let (mut ue, mut mme) = (context(), context());
            let octets = ue.protect(&Nas::AttachComplete, Way::Up, false).unwrap();
            let mut changed = octets.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert_eq!(mme.open(&changed, Way::Up), Err(Undecodable));
            assert_eq!(
                mme.open(&octets, Way::Up),
                Ok(Nas::AttachComplete),
                "EEA{eea}, EIA{eia}"
            );
            assert_eq!(
                mme.open(&octets, Way::Up),
                Err(Undecodable),
                "its count was used"
            );
        }
        assert!(
            Context::new(&vector.kasme, 7, 2).is_none(),
            "no such algorithm"
        );
    }
}
