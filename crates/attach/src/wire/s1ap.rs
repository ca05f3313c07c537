//! S1AP (TS 36.413): the messages between eNodeB and MME that an attach takes.

use oxirush_s1ap::helpers::{
    EnbKind, eutran_cgi, global_enb_id, plmn, tai, ue_security_capabilities,
};
use oxirush_s1ap::{
    BitString, Error, S1apPduKind as Kind, build_s1ap, build_s1ap_ie, extract_s1ap_ies, s1ap::*,
};

use super::Undecodable;

/// Ids of a UE at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// MME UE S1AP ID.
    pub mme: u32,
    /// eNB UE S1AP ID, 24 bits.
    pub enb: u32,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of TS 36.413.
pub enum S1 {
    SetupRequest,
    SetupResponse,
    SetupFailure {
        wait_s: Option<u32>,
    },
    InitialUe {
        enb: u32,
        nas: Vec<u8>,
    },
    DownlinkNas {
        ids: Ids,
        nas: Vec<u8>,
    },
    UplinkNas {
        ids: Ids,
        nas: Vec<u8>,
    },
    /// `nas` of its first E-RAB that has one.
    ContextSetupRequest {
        ids: Ids,
        nas: Option<Vec<u8>>,
    },
    ContextSetupResponse {
        ids: Ids,
    },
    ContextSetupFailure {
        ids: Ids,
    },
    /// `enb` is not there if the MME names the UE by its own id alone.
    ReleaseCommand {
        mme: u32,
        enb: Option<u32>,
    },
    ReleaseComplete {
        ids: Ids,
    },
    ErrorIndication {
        mme: Option<u32>,
        enb: Option<u32>,
    },
    Reset,
    ResetAcknowledge,
    /// One that no part of an attach is.
    Other,
}

/// What of the network an eNodeB says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Three digits.
    pub mcc: String,
    /// Two or three digits.
    pub mnc: String,
    /// Tracking area code.
    pub tac: u16,
    /// Macro eNodeB, 20 bits.
    pub enb_id: u32,
}

impl S1 {
    /// A word for counts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::SetupRequest => "s1_setup_request",
            Self::SetupResponse => "s1_setup_response",
            Self::SetupFailure { .. } => "s1_setup_failure",
            Self::InitialUe { .. } => "initial_ue_message",
            Self::DownlinkNas { .. } => "downlink_nas_transport",
            Self::UplinkNas { .. } => "uplink_nas_transport",
            Self::ContextSetupRequest { .. } => "initial_context_setup_request",
            Self::ContextSetupResponse { .. } => "initial_context_setup_response",
            Self::ContextSetupFailure { .. } => "initial_context_setup_failure",
            Self::ReleaseCommand { .. } => "ue_context_release_command",
            Self::ReleaseComplete { .. } => "ue_context_release_complete",
            Self::ErrorIndication { .. } => "error_indication",
            Self::Reset => "reset",
            Self::ResetAcknowledge => "reset_acknowledge",
            Self::Other => "other",
        }
    }
}

/// What a PDU says.
///
/// # Errors
/// `Undecodable` if the octets are no such message, or lack a field that it must have.
pub fn decode(octets: &[u8]) -> Result<S1, Undecodable> {
    read(octets).map_err(|_| Undecodable)
}

fn read(octets: &[u8]) -> Result<S1, Error> {
    let pdu = S1AP_PDU::decode_borrowed(octets)?;
    Ok(match pdu.kind() {
        Kind::Initiating_S1Setup => S1::SetupRequest,
        Kind::Successful_S1Setup => S1::SetupResponse,
        Kind::Unsuccessful_S1Setup => {
            extract_s1ap_ies!(pdu, S1SetupFailure, lax wait: TimeToWait = TimeToWait(wait) => wait,);
            let seconds = |wait| match wait {
                TimeToWait::v1s => 1,
                TimeToWait::v2s => 2,
                TimeToWait::v5s => 5,
                TimeToWait::v10s => 10,
                TimeToWait::v20s => 20,
                _ => 60,
            };
            S1::SetupFailure {
                wait_s: wait.map(seconds),
            }
        }
        Kind::Initiating_initialUEMessage => {
            extract_s1ap_ies!(pdu, InitialUEMessage,
                req enb: u32 = eNB_UE_S1AP_ID(id),
                req nas: Vec<u8> = NAS_PDU(nas) => nas.0.to_vec(),
            );
            S1::InitialUe { enb, nas }
        }
        Kind::Initiating_downlinkNASTransport => {
            extract_s1ap_ies!(pdu, DownlinkNASTransport,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req enb: u32 = eNB_UE_S1AP_ID(id),
                req nas: Vec<u8> = NAS_PDU(nas) => nas.0.to_vec(),
            );
            S1::DownlinkNas {
                ids: Ids { mme, enb },
                nas,
            }
        }
        Kind::Initiating_uplinkNASTransport => {
            extract_s1ap_ies!(pdu, UplinkNASTransport,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req enb: u32 = eNB_UE_S1AP_ID(id),
                req nas: Vec<u8> = NAS_PDU(nas) => nas.0.to_vec(),
            );
            S1::UplinkNas {
                ids: Ids { mme, enb },
                nas,
            }
        }
        Kind::Initiating_InitialContextSetup => {
            extract_s1ap_ies!(pdu, InitialContextSetupRequest,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req enb: u32 = eNB_UE_S1AP_ID(id),
                lax list: ERABToBeSetupListCtxtSUReq = E_RABToBeSetupListCtxtSUReq(list) => list,
            );
            let mut items = list.iter().flat_map(|list| &list.0);
            let nas = items.find_map(|entry| {
                let item: ERABToBeSetupItemCtxtSUReq = decode_open_type(&entry.value).ok()?;
                item.nas_pdu.map(|nas| nas.0.to_vec())
            });
            S1::ContextSetupRequest {
                ids: Ids { mme, enb },
                nas,
            }
        }
        Kind::Successful_InitialContextSetup => {
            extract_s1ap_ies!(pdu, InitialContextSetupResponse,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req enb: u32 = eNB_UE_S1AP_ID(id),
            );
            S1::ContextSetupResponse {
                ids: Ids { mme, enb },
            }
        }
        Kind::Unsuccessful_InitialContextSetup => {
            extract_s1ap_ies!(pdu, InitialContextSetupFailure,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req enb: u32 = eNB_UE_S1AP_ID(id),
            );
            S1::ContextSetupFailure {
                ids: Ids { mme, enb },
            }
        }
        Kind::Initiating_UEContextRelease => {
            extract_s1ap_ies!(pdu, UEContextReleaseCommand, req ids: UES1APIDs = UE_S1AP_IDs(ids) => ids,);
            match ids {
                UES1APIDs::uE_S1AP_ID_pair(pair) => S1::ReleaseCommand {
                    mme: pair.mme_ue_s1ap_id.0,
                    enb: Some(pair.enb_ue_s1ap_id.0),
                },
                UES1APIDs::mME_UE_S1AP_ID(mme) => S1::ReleaseCommand {
                    mme: mme.0,
                    enb: None,
                },
                _ => S1::Other,
            }
        }
        Kind::Successful_UEContextRelease => {
            extract_s1ap_ies!(pdu, UEContextReleaseComplete,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req enb: u32 = eNB_UE_S1AP_ID(id),
            );
            S1::ReleaseComplete {
                ids: Ids { mme, enb },
            }
        }
        Kind::Initiating_ErrorIndication => {
            extract_s1ap_ies!(pdu, ErrorIndication,
                lax mme: u32 = MME_UE_S1AP_ID(id) => id.0,
                lax enb: u32 = eNB_UE_S1AP_ID(id) => id.0,
            );
            S1::ErrorIndication { mme, enb }
        }
        Kind::Initiating_Reset => S1::Reset,
        Kind::Successful_Reset => S1::ResetAcknowledge,
        _ => S1::Other,
    })
}

/// Octets of a message from, or to, an eNodeB of this cell; `None` if a field does not fit.
#[must_use]
pub fn encode(message: &S1, cell: &Cell) -> Option<Vec<u8>> {
    built(message, cell).and_then(|pdu| pdu.encode()).ok()
}

fn built(message: &S1, cell: &Cell) -> Result<S1AP_PDU, Error> {
    let network = plmn(&cell.mcc, &cell.mnc)?;
    let area = || tai(network, cell.tac.to_be_bytes());
    let cgi = || eutran_cgi(network, EnbKind::Macro, cell.enb_id, 1);
    match message {
        S1::SetupRequest => {
            let area =
                SupportedTAsItem::new(TAC(cell.tac.to_be_bytes()), BPLMNs(vec![network]), None);
            build_s1ap!(
                InitiatingMessage,
                S1Setup,
                S1SetupRequest,
                Global_ENB_ID(global_enb_id(network, EnbKind::Macro, cell.enb_id)?),
                eNBname("nodrop"),
                SupportedTAs(SupportedTAs(vec![area])),
                DefaultPagingDRX(PagingDRX::v128),
            )
        }
        S1::SetupResponse => {
            let served = ServedGUMMEIsItem::new(
                ServedPLMNs(vec![network]),
                ServedGroupIDs(vec![MMEGroupID([0, 1])]),
                ServedMMECs(vec![MMECode([1])]),
                None,
            );
            build_s1ap!(
                SuccessfulOutcome,
                S1Setup,
                S1SetupResponse,
                MMEname("reference-mme"),
                ServedGUMMEIs(ServedGUMMEIs(vec![served])),
                RelativeMMECapacity(RelativeMMECapacity(255)),
            )
        }
        S1::SetupFailure { wait_s } => {
            let wait = match wait_s {
                Some(1) => TimeToWait::v1s,
                Some(2) => TimeToWait::v2s,
                Some(5) => TimeToWait::v5s,
                Some(10) => TimeToWait::v10s,
                Some(20) => TimeToWait::v20s,
                _ => TimeToWait::v60s,
            };
            build_s1ap!(
                UnsuccessfulOutcome,
                S1Setup,
                S1SetupFailure,
                Cause(Cause::misc(CauseMisc::control_processing_overload)),
                TimeToWait(wait),
            )
        }
        S1::InitialUe { enb, nas } => build_s1ap!(
            InitiatingMessage,
            initialUEMessage,
            InitialUEMessage,
            eNB_UE_S1AP_ID(*enb),
            NAS_PDU(nas.clone()),
            TAI(area()),
            EUTRAN_CGI(cgi()?),
            RRC_Establishment_Cause(RRCEstablishmentCause::mo_Signalling),
        ),
        S1::DownlinkNas { ids, nas } => build_s1ap!(
            InitiatingMessage,
            downlinkNASTransport,
            DownlinkNASTransport,
            MME_UE_S1AP_ID(ids.mme),
            eNB_UE_S1AP_ID(ids.enb),
            NAS_PDU(nas.clone()),
        ),
        S1::UplinkNas { ids, nas } => build_s1ap!(
            InitiatingMessage,
            uplinkNASTransport,
            UplinkNASTransport,
            MME_UE_S1AP_ID(ids.mme),
            eNB_UE_S1AP_ID(ids.enb),
            NAS_PDU(nas.clone()),
            EUTRAN_CGI(cgi()?),
            TAI(area()),
        ),
        S1::ContextSetupRequest { ids, nas, .. } => {
            let priority = AllocationAndRetentionPriority::new(
                PriorityLevel(8),
                PreEmptionCapability::shall_not_trigger_pre_emption,
                PreEmptionVulnerability::not_pre_emptable,
                None,
            );
            let bearer = ERABToBeSetupItemCtxtSUReq::new(
                ERABID(5),
                ERABLevelQoSParameters::new(QCI(9), priority, None, None),
                TransportLayerAddress(BitString::from([10, 0, 0, 1])),
                GTPTEID(ids.mme.to_be_bytes()),
                nas.clone().map(NASPDU::from),
                None,
            );
            let bearers = vec![build_s1ap_ie!(REJECT E_RABToBeSetupItemCtxtSUReq(bearer))?];
            let rates =
                UEAggregateMaximumBitrate::new(BitRate(100_000_000), BitRate(50_000_000), None);
            build_s1ap!(
                InitiatingMessage,
                InitialContextSetup,
                InitialContextSetupRequest,
                MME_UE_S1AP_ID(ids.mme),
                eNB_UE_S1AP_ID(ids.enb),
                uEaggregateMaximumBitrate(rates),
                E_RABToBeSetupListCtxtSUReq(ERABToBeSetupListCtxtSUReq(bearers)),
                UESecurityCapabilities(ue_security_capabilities(0xe0, 0xe0)),
                SecurityKey([0; 32]),
            )
        }
        S1::ContextSetupResponse { ids } => {
            let bearer = ERABSetupItemCtxtSURes::new(
                ERABID(5),
                TransportLayerAddress(BitString::from([10, 0, 0, 2])),
                GTPTEID(ids.enb.to_be_bytes()),
                None,
            );
            let bearers = vec![build_s1ap_ie!(IGNORE E_RABSetupItemCtxtSURes(bearer))?];
            build_s1ap!(
                SuccessfulOutcome,
                InitialContextSetup,
                InitialContextSetupResponse,
                MME_UE_S1AP_ID(ids.mme),
                eNB_UE_S1AP_ID(ids.enb),
                E_RABSetupListCtxtSURes(ERABSetupListCtxtSURes(bearers)),
            )
        }
        S1::ContextSetupFailure { ids } => {
            build_s1ap!(
                UnsuccessfulOutcome,
                InitialContextSetup,
                InitialContextSetupFailure,
                MME_UE_S1AP_ID(ids.mme),
                eNB_UE_S1AP_ID(ids.enb),
                Cause(Cause::radioNetwork(CauseRadioNetwork::unspecified)),
            )
        }
        S1::ReleaseCommand { mme, enb } => {
            let ids = match enb {
                Some(enb) => UES1APIDPair::new(MMEUES1APID(*mme), ENBUES1APID(*enb), None).into(),
                None => UES1APIDs::mME_UE_S1AP_ID(MMEUES1APID(*mme)),
            };
            build_s1ap!(
                InitiatingMessage,
                UEContextRelease,
                UEContextReleaseCommand,
                UE_S1AP_IDs(ids),
                Cause(Cause::nas(CauseNas::detach)),
            )
        }
        S1::ReleaseComplete { ids } => build_s1ap!(
            SuccessfulOutcome,
            UEContextRelease,
            UEContextReleaseComplete,
            MME_UE_S1AP_ID(ids.mme),
            eNB_UE_S1AP_ID(ids.enb),
        ),
        S1::ErrorIndication { .. } => build_s1ap!(
            InitiatingMessage,
            ErrorIndication,
            ErrorIndication,
            Cause(Cause::radioNetwork(
                CauseRadioNetwork::unknown_mme_ue_s1ap_id
            )),
        ),
        S1::Reset => build_s1ap!(
            InitiatingMessage,
            Reset,
            Reset,
            Cause(Cause::misc(CauseMisc::om_intervention)),
            ResetType(ResetType::s1_Interface(ResetAll::reset_all)),
        ),
        S1::ResetAcknowledge | S1::Other => {
            build_s1ap!(SuccessfulOutcome, Reset, ResetAcknowledge,)
        }
    }
}
