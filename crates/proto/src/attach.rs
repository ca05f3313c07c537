//! Jobs `attach` and `reference-mme`: LTE UEs that attach open-loop, and an MME of known service time.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Subscribers and their network, of a load or as an MME or HSS knows them.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct HomeSpec {
    /// IMSI of the first, 15 digits; the others follow
    #[arg(long, default_value_t = first_imsi())]
    #[serde(default = "first_imsi")]
    pub first_imsi: String,
    /// K of each, 32 hexadecimal digits
    #[arg(long, default_value_t = k())]
    #[serde(default = "k")]
    pub k: String,
    /// OPc of each, 32 hexadecimal digits
    #[arg(long, default_value_t = opc())]
    #[serde(default = "opc")]
    pub opc: String,
    /// Each with keys of its own, instead of these three; UEs begin in the order of their IMSIs
    #[arg(skip)]
    #[serde(default)]
    pub usims: Vec<Usim>,
    /// Mobile country code
    #[arg(long, default_value_t = mcc())]
    #[serde(default = "mcc")]
    pub mcc: String,
    /// Mobile network code
    #[arg(long, default_value_t = mnc())]
    #[serde(default = "mnc")]
    pub mnc: String,
}

/// A subscriber with keys of its own.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Usim {
    /// 15 digits.
    pub imsi: String,
    /// 32 hexadecimal digits.
    pub k: String,
    /// 32 hexadecimal digits.
    pub opc: String,
}

/// Parameters of `attach`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct AttachSpec {
    /// Address and port of an MME, framed TCP, or by the kernel's SCTP: sctp:127.0.0.1:36412; given again, UEs go to them in turn
    #[arg(long, required = true)]
    pub mme: Vec<String>,
    /// Attaches begun per second
    #[arg(long)]
    pub rate: f64,
    /// UEs
    #[arg(long)]
    pub count: u32,
    /// Time from Attach Accept to Detach Request
    #[arg(long, default_value_t = hold_s())]
    #[serde(default = "hold_s")]
    pub hold_s: f64,
    /// UEs stay attached
    #[arg(long)]
    #[serde(default)]
    pub keep: bool,
    /// Of the UE, T3410: an attach that takes longer is timed out
    #[arg(long, default_value_t = timeout_s())]
    #[serde(default = "timeout_s")]
    pub timeout_s: f64,
    /// Longest time until an MME listens and has answered S1 Setup
    #[arg(long, default_value_t = setup_s())]
    #[serde(default = "setup_s")]
    pub setup_s: f64,
    /// Its UEs and their network
    #[command(flatten)]
    #[serde(flatten)]
    pub home: HomeSpec,
    /// Ciphering algorithms of each UE, 0 to 3 for EEA0 to EEA3
    #[arg(long, value_delimiter = ',', default_values_t = eea())]
    #[serde(default = "eea")]
    pub eea: Vec<u8>,
    /// Integrity algorithms of each UE, 1 to 3 for EIA1 to EIA3
    #[arg(long, value_delimiter = ',', default_values_t = eia())]
    #[serde(default = "eia")]
    pub eia: Vec<u8>,
    /// Tracking area code
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one16")]
    pub tac: u16,
    /// Macro eNodeB id of the first association; the others follow
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one")]
    pub enb_id: u32,
}

/// `ready` of `attach`: S1 is set up with every MME.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct AttachReady {
    /// `sctp` or `tcp-framed (not SCTP)`.
    pub transport: String,
    /// Of each MME: until it listened, after the call.
    pub listen_ns: Vec<u64>,
    /// Of each MME: until its S1 Setup Response, after the call.
    pub setup_ns: Vec<u64>,
}

/// `sample` of `attach`, every 100 ms.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct AttachSample {
    /// When it was taken.
    pub mono_ns: u64,
    /// UEs that have started.
    pub started: u64,
    /// UEs that have attached.
    pub attached: u64,
    /// UEs between start and class.
    pub in_progress: u64,
}

/// Latencies in microseconds; all zero if there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct LatencyUs {
    /// How many.
    pub count: u64,
    /// Half of them took at most this long.
    pub p50: u64,
    /// 90 % of them.
    pub p90: u64,
    /// 99 % of them.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// What the MME said that it should not have; messages, not UEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct AttachAnomalies {
    /// No S1AP message, or one that lacks a field; an association cut within a message.
    pub undecodable_pdus: u64,
    /// No NAS message.
    pub undecodable_nas: u64,
    /// Payload protocol identifier other than S1AP's.
    pub wrong_ppids: u64,
    /// No part of an attach.
    pub unexpected: u64,
    /// UE ids that are nobody's, another eNodeB's, or not those agreed.
    pub unknown_ue_ids: u64,
    /// For a UE that has ended.
    pub ended_ues: u64,
    /// Protected, before there were keys.
    pub without_context: u64,
    /// Wrong MAC, or a count that was used.
    pub mac_failures: u64,
    /// Came again in the state that it leads to.
    pub repeats: u64,
    /// AUTN with another key's MAC.
    pub wrong_autns: u64,
    /// AUTN with an old sequence number.
    pub old_sqns: u64,
    /// Security Mode Command with other capabilities, or an algorithm that the UE cannot do.
    pub refused_algorithms: u64,
    /// Security Mode Command with the HashMME of another Attach Request.
    pub wrong_hashes: u64,
    /// Initial Context Setup without NAS or without E-RAB.
    pub empty_contexts: u64,
    /// Error Indications.
    pub error_indications: u64,
    /// Resets.
    pub resets: u64,
}

/// `result` of `attach`: started = attached + rejected + timed out + aborted.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct AttachResult {
    /// `sctp` or `tcp-framed (not SCTP)`.
    pub transport: String,
    /// UEs whose scheduled start came.
    pub started: u64,
    /// Attach Accepts accepted.
    pub attached: u64,
    /// UEs turned away, by EMM cause; 0 = Authentication Reject.
    pub rejected: BTreeMap<String, u64>,
    /// T3410 ran out.
    pub timed_out: u64,
    /// Ended otherwise, by reason.
    pub aborted: BTreeMap<String, u64>,
    /// Released after their Detach Request.
    pub detached: u64,
    /// Not released in time after their Detach Request.
    pub unreleased: u64,
    /// Most attaches in progress at once.
    pub peak_in_progress: u64,
    /// Most UEs attached at once.
    pub peak_sessions: u64,
    /// First scheduled start.
    pub start_mono_ns: u64,
    /// From the first scheduled start to the last start.
    pub last_start_ns: u64,
    /// From the first scheduled start to the first Attach Accept; `None` = none came.
    pub first_accept_ns: Option<u64>,
    /// From the first scheduled start to the last Attach Accept; `None` = none came.
    pub last_accept_ns: Option<u64>,
    /// From the first scheduled start until the class of every UE was known; `None` if stopped before.
    pub resolved_ns: Option<u64>,
    /// From the scheduled start to the Attach Accept.
    pub attach_us: LatencyUs,
    /// From the scheduled start to the Authentication Response.
    pub auth_us: LatencyUs,
    /// From there to the Security Mode Complete.
    pub smc_us: LatencyUs,
    /// From there to the Attach Accept.
    pub ics_us: LatencyUs,
    /// From the Detach Request to the release.
    pub detach_us: LatencyUs,
    /// How late UEs started.
    pub lateness_us: LatencyUs,
    /// Attach Accepts in each 100 ms from the first scheduled start.
    pub accepts: Vec<u32>,
    /// S1AP messages sent.
    pub sent: BTreeMap<String, u64>,
    /// S1AP messages received.
    pub received: BTreeMap<String, u64>,
    /// What the MME did wrong.
    pub anomalies: AttachAnomalies,
    /// CPU time of the process while it offered.
    pub cpu_s: f64,
    /// Chunks that the kernel of this network namespace sent again meanwhile; `None` without SCTP.
    pub sctp_retransmits: Option<u64>,
}

/// Parameters of `reference-mme`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct ReferenceMmeSpec {
    /// Address and port to listen on, framed TCP, or by the kernel's SCTP: sctp:127.0.0.1:36412; port 0 = any
    #[arg(long, default_value_t = listen())]
    #[serde(default = "listen")]
    pub listen: String,
    /// CPU time that each Attach Request takes, beside the work itself
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub work_us: u64,
    /// Ciphering algorithm, EEA0 to EEA3; of a UE without it the best that it has
    #[arg(long, default_value_t = 2)]
    #[serde(default = "two")]
    pub eea: u8,
    /// Integrity algorithm, EIA1 to EIA3; likewise
    #[arg(long, default_value_t = 2)]
    #[serde(default = "two")]
    pub eia: u8,
    /// Subscribers that it knows, if it has no HSS
    #[command(flatten)]
    #[serde(flatten)]
    pub home: HomeSpec,
    /// Subscribers
    #[arg(long, default_value_t = 1_000_000)]
    #[serde(default = "million")]
    pub subscribers: u64,
    /// Fault: share of messages that are not sent
    #[arg(long, default_value_t = 0.0)]
    #[serde(default)]
    pub drop: f64,
    /// Fault: each message waits so long
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub delay_ms: u64,
    /// Fault: silence after so many Attach Requests
    #[arg(long)]
    pub silent_after: Option<u64>,
    /// Fault: share of messages with UE ids that are nobody's
    #[arg(long, default_value_t = 0.0)]
    #[serde(default)]
    pub wrong_id: f64,
    /// Fault: share of protected messages with a wrong MAC
    #[arg(long, default_value_t = 0.0)]
    #[serde(default)]
    pub bad_mac: f64,
    /// Fault: share of Attach Requests that are turned away
    #[arg(long, default_value_t = 0.0)]
    #[serde(default)]
    pub reject: f64,
    /// Fault: UEs at most
    #[arg(long)]
    pub limit: Option<u64>,
    /// Address and port of an HSS, Diameter over TCP; it is its own if left out
    #[arg(long, requires = "sgw")]
    pub hss: Option<String>,
    /// Address and port of an SGW, GTPv2-C over UDP
    #[arg(long, requires = "hss")]
    pub sgw: Option<String>,
    /// Where the dice of the faults begin
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub seed: u64,
}

/// `ready` of `reference-mme`: it listens.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ReferenceMmeReady {
    /// Address and port.
    pub listen: String,
}

/// `result` of `reference-mme`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ReferenceMmeResult {
    /// Attach Requests.
    pub attach_requests: u64,
    /// Attach Completes.
    pub attached: u64,
    /// Attach and Authentication Rejects.
    pub rejected: u64,
    /// Detach Requests.
    pub detached: u64,
    /// UEs given up after the last repeat.
    pub given_up: u64,
    /// NAS messages repeated because no answer came.
    pub repeats: u64,
    /// Octets that were no message.
    pub undecodable: u64,
    /// Wrong MAC, or a count that was used.
    pub mac_failures: u64,
    /// UE ids that were nobody's.
    pub unknown_ue_ids: u64,
    /// Most UEs at once.
    pub peak_ues: u64,
    /// Messages that a fault kept back.
    pub dropped: u64,
    /// S1AP messages sent.
    pub sent: BTreeMap<String, u64>,
    /// S1AP messages received.
    pub received: BTreeMap<String, u64>,
    /// Requests to the HSS, to their answer.
    pub hss_us: LatencyUs,
    /// Requests to the SGW, to their answer.
    pub sgw_us: LatencyUs,
    /// Messages of either that were none, or answered nothing.
    pub undecodable_behind: u64,
    /// CPU time of the serving thread.
    pub cpu_s: f64,
}

/// Parameters of `stub-hss`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct StubHssSpec {
    /// Address and port to listen on, Diameter over TCP; port 0 = any
    #[arg(long, default_value_t = any_port())]
    #[serde(default = "any_port")]
    pub listen: String,
    /// Subscribers that it knows
    #[command(flatten)]
    #[serde(flatten)]
    pub home: HomeSpec,
    /// Subscribers
    #[arg(long, default_value_t = 1_000_000)]
    #[serde(default = "million")]
    pub subscribers: u64,
}

/// Parameters of `stub-sgw`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct StubSgwSpec {
    /// Address and port to listen on, GTPv2-C over UDP; port 0 = any
    #[arg(long, default_value_t = any_port())]
    #[serde(default = "any_port")]
    pub listen: String,
}

/// `ready` of `stub-hss` and `stub-sgw`: it listens.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct StubReady {
    /// Address and port.
    pub listen: String,
}

/// `result` of `stub-hss` and `stub-sgw`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct StubResult {
    /// Requests, by name.
    pub requests: BTreeMap<String, u64>,
    /// Requests that were refused.
    pub refused: u64,
    /// Octets that were no message, or lacked a field.
    pub undecodable: u64,
    /// Most sessions at once; an HSS has none.
    pub peak_sessions: u64,
    /// CPU time of the serving thread.
    pub cpu_s: f64,
}

fn any_port() -> String {
    "127.0.0.1:0".into()
}

fn hold_s() -> f64 {
    1.0
}

fn timeout_s() -> f64 {
    15.0
}

fn setup_s() -> f64 {
    10.0
}

fn first_imsi() -> String {
    "001010000000001".into()
}

fn k() -> String {
    "465b5ce8b199b49faa5f0a2ee238a6bc".into()
}

fn opc() -> String {
    "cd63cb71954a9f4e48a5994e37a02baf".into()
}

fn mcc() -> String {
    "001".into()
}

fn mnc() -> String {
    "01".into()
}

fn eea() -> Vec<u8> {
    vec![0, 1, 2, 3]
}

fn eia() -> Vec<u8> {
    vec![1, 2, 3]
}

fn one16() -> u16 {
    1
}

fn one() -> u32 {
    1
}

fn two() -> u8 {
    2
}

fn million() -> u64 {
    1_000_000
}

fn listen() -> String {
    "127.0.0.1:36412".into()
}
