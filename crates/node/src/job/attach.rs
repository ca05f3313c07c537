//! Job `attach`: LTE UEs attach to one or more MMEs by the clock, whatever these do.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use nodrop_attach::address::Address;
use nodrop_attach::association::Association;
use nodrop_attach::enb::{Enbs, MOST_UES, Plan};
use nodrop_attach::ledger::Ledger;
use nodrop_attach::offer::{NoAssociation, associate, offer};
use nodrop_attach::sctp::retransmitted;
use nodrop_attach::subscribers::Subscribers;
use nodrop_attach::wire::aka::{Network, Subscriber};
use nodrop_attach::wire::nas::Capability;
use nodrop_attach::wire::s1ap::Cell;
use nodrop_proto::{
    AttachAnomalies, AttachReady, AttachResult, AttachSample, AttachSpec, HomeSpec, JobError,
    LatencyUs, Usim,
};
use nodrop_sys::clock::process_cpu_ns;
use nodrop_sys::thread::exact_timers;

use crate::job::Job;
use crate::session::Session;

/// Attaches begun per second at most: one each microsecond.
const MOST_PER_S: f64 = 1e6;
/// Macro eNodeBs.
const ENB_IDS: u32 = 1 << 20;
/// Longest time that any flag may ask for.
const MOST_S: f64 = 86_400.0;
/// Longest wait for a release after a Detach Request.
const RELEASE_NS: u64 = 5_000_000_000;
/// Room between a start that is now and the first UE.
const HEAD_START_NS: u64 = 1_000_000;

/// Associations that are set up.
pub struct Attach {
    plan: Option<Plan>,
    links: Vec<Box<dyn Association>>,
    transport: &'static str,
}

impl Job for Attach {
    const NAME: &'static str = "attach";
    type Spec = AttachSpec;
    type Ready = AttachReady;
    type Outcome = AttachResult;

    fn prepare(spec: AttachSpec, session: &Session) -> Result<(Self, AttachReady), JobError> {
        let (mmes, transport) = addresses(&spec.mme)?;
        let plan = planned(&spec)?;
        let within = Duration::from_nanos(seconds("setup_s", spec.setup_s)?);
        let (mut links, mut listen_ns, mut setup_ns) = (Vec::new(), Vec::new(), Vec::new());
        for (mme, cell) in mmes.into_iter().zip(&plan.cells) {
            let made = associate(mme, cell, within, &|| session.stopped()).map_err(|error| {
                let kind = match error {
                    NoAssociation::NoSctp(_) => "no_sctp",
                    _ => "no_association",
                };
                JobError::new(kind, error.to_string())
            })?;
            links.push(made.link);
            listen_ns.push(made.listen_ns);
            setup_ns.push(made.setup_ns);
        }
        let ready = AttachReady {
            transport: transport.into(),
            listen_ns,
            setup_ns,
        };
        let ours = Self {
            plan: Some(plan),
            links,
            transport,
        };
        Ok((ours, ready))
    }

    fn run(&mut self, session: &Session) -> Result<AttachResult, JobError> {
        let Some(plan) = self.plan.take() else {
            return Err(JobError::new("internal", "a load is offered once"));
        };
        exact_timers();
        let start_ns = session.wait_start_in(HEAD_START_NS);
        let (cpu_before, again_before) = (process_cpu_ns(), retransmitted());
        let mut enbs = Enbs::new(plan, start_ns);
        let links = std::mem::take(&mut self.links);
        offer(
            &mut enbs,
            links,
            &|| session.stopped(),
            &mut |mono_ns, ledger| {
                session.sample(&AttachSample {
                    mono_ns,
                    started: ledger.started,
                    attached: ledger.attached,
                    in_progress: ledger.in_progress(),
                });
            },
        );
        let cpu_s = (process_cpu_ns() - cpu_before) as f64 / 1e9;
        let again = (self.transport == "sctp")
            .then(|| retransmitted()?.checked_sub(again_before?))
            .flatten();
        let mut said = result(enbs.ledger, start_ns, cpu_s);
        (said.transport, said.sctp_retransmits) = (self.transport.into(), again);
        Ok(said)
    }
}

fn bad(words: String) -> JobError {
    JobError::new("spec", words)
}

/// MMEs, and what carries all of their associations.
fn addresses(texts: &[String]) -> Result<(Vec<Address>, &'static str), JobError> {
    let found: Vec<Address> =
        (texts.iter().map(|text| address("mme", text))).collect::<Result<_, _>>()?;
    let Some(transport) = found.first().map(Address::transport) else {
        return Err(bad("mme: at least one is needed".into()));
    };
    if found.iter().any(|one| one.transport() != transport) {
        return Err(bad("mme: all by SCTP, or all by framed TCP".into()));
    }
    Ok((found, transport))
}

/// An address in a field.
pub fn address(name: &str, text: &str) -> Result<Address, JobError> {
    text.parse().map_err(|e| {
        bad(format!(
            "{name} = {text}: {e}; 127.0.0.1:36412 (framed TCP) or sctp:127.0.0.1:36412 is one"
        ))
    })
}

fn planned(spec: &AttachSpec) -> Result<Plan, JobError> {
    let (rate, count) = (spec.rate, spec.count);
    if !(rate > 0.0 && rate <= MOST_PER_S) {
        return Err(bad(format!(
            "rate = {rate}: must be above 0 and at most {MOST_PER_S}"
        )));
    }
    if count == 0 || count > MOST_UES {
        return Err(bad(format!(
            "count = {count}: must be 1 to {MOST_UES}, for UE ids have 24 bits"
        )));
    }
    if f64::from(count) / rate > MOST_S {
        return Err(bad(format!(
            "count / rate: more than a day ({count} at {rate} per second)"
        )));
    }
    let (subscribers, network) = home(&spec.home, u64::from(count))?;
    if subscribers.count() < u64::from(count) {
        let usims = subscribers.count();
        return Err(bad(format!("count = {count}: there are {usims} usims")));
    }
    if spec.eea.iter().any(|eea| *eea > 3) || spec.eia.iter().any(|eia| !(1..=3).contains(eia)) {
        let (eea, eia) = (&spec.eea, &spec.eia);
        return Err(bad(format!(
            "eea = {eea:?}, eia = {eia:?}: must be 0 to 3 and 1 to 3"
        )));
    }
    if spec.eea.is_empty() || spec.eia.is_empty() {
        return Err(bad("eea, eia: at least one of each is needed".into()));
    }
    let cells: Vec<Cell> = (spec.mme.iter().zip(spec.enb_id..))
        .map(|(_, enb_id)| Cell {
            mcc: spec.home.mcc.clone(),
            mnc: spec.home.mnc.clone(),
            tac: spec.tac,
            enb_id,
        })
        .collect();
    if cells.len() < spec.mme.len() || cells.iter().any(|cell| cell.enb_id >= ENB_IDS) {
        return Err(bad(format!(
            "enb_id = {}: a macro eNodeB's has 20 bits",
            spec.enb_id
        )));
    }
    let hold_ns = seconds("hold_s", spec.hold_s)?;
    Ok(Plan {
        count,
        rate,
        subscribers,
        network,
        capability: Capability::new(&spec.eea, &spec.eia),
        hold_ns: (!spec.keep).then_some(hold_ns),
        timeout_ns: seconds("timeout_s", spec.timeout_s)?,
        release_ns: RELEASE_NS,
        cells,
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn seconds(name: &str, value: f64) -> Result<u64, JobError> {
    if (0.0..=MOST_S).contains(&value) {
        Ok((value * 1e9) as u64)
    } else {
        Err(bad(format!("{name} = {value}: must be 0 to {MOST_S}")))
    }
}

/// Subscribers and serving network. Of a range there are so many; those with keys of their own are all there.
pub fn home(spec: &HomeSpec, count: u64) -> Result<(Subscribers, Network), JobError> {
    const IMSIS: u64 = 1_000_000_000_000_000;
    let network = Network::new(&spec.mcc, &spec.mnc).ok_or_else(|| {
        let (mcc, mnc) = (&spec.mcc, &spec.mnc);
        bad(format!(
            "mcc = {mcc}, mnc = {mnc}: must be 3, and 2 or 3 digits"
        ))
    })?;
    if !spec.usims.is_empty() {
        return Ok((listed(&spec.usims)?, network));
    }
    let first = imsi(&spec.first_imsi)
        .filter(|first| IMSIS.checked_sub(count).is_some_and(|last| *first <= last));
    let first = first.ok_or_else(|| {
        let first = &spec.first_imsi;
        bad(format!(
            "first_imsi = {first}: must be 15 digits, with room for {count}"
        ))
    })?;
    let keys = keys(&spec.k, &spec.opc).map_err(bad)?;
    Ok((Subscribers::Range { first, count, keys }, network))
}

fn listed(usims: &[Usim]) -> Result<Subscribers, JobError> {
    let mut each = Vec::with_capacity(usims.len());
    for (at, usim) in usims.iter().enumerate() {
        let imsi = imsi(&usim.imsi).ok_or_else(|| {
            let imsi = &usim.imsi;
            bad(format!("usims[{at}].imsi = {imsi}: must be 15 digits"))
        })?;
        let keys = keys(&usim.k, &usim.opc).map_err(|why| bad(format!("usims[{at}].{why}")))?;
        each.push((imsi, keys));
    }
    Subscribers::listed(each)
        .map_err(|twice| bad(format!("usims: imsi = {twice:015} is there twice")))
}

fn imsi(digits: &str) -> Option<u64> {
    let whole = digits.len() == 15 && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| whole)
}

fn keys(k: &str, opc: &str) -> Result<Subscriber, String> {
    let key = |name: &str, text: &str| {
        let digits = text.len() == 32 && text.bytes().all(|c| c.is_ascii_hexdigit());
        let value = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        let octets = value.map(u128::to_be_bytes);
        octets.ok_or_else(|| format!("{name}: must be 32 hexadecimal digits"))
    };
    Ok(Subscriber::new(&key("k", k)?, &key("opc", opc)?))
}

/// Names as they go into a result.
pub fn named<K: ToString>(counts: BTreeMap<K, u64>) -> BTreeMap<String, u64> {
    let named = counts
        .into_iter()
        .map(|(name, count)| (name.to_string(), count));
    named.collect()
}

/// Percentiles of a histogram.
pub fn latency(of: &Histogram<u64>) -> LatencyUs {
    LatencyUs {
        count: of.len(),
        p50: of.value_at_quantile(0.5),
        p90: of.value_at_quantile(0.9),
        p99: of.value_at_quantile(0.99),
        max: of.max(),
    }
}

fn result(ledger: Ledger, start_mono_ns: u64, cpu_s: f64) -> AttachResult {
    let odd = ledger.anomalies;
    AttachResult {
        transport: String::new(),
        sctp_retransmits: None,
        started: ledger.started,
        attached: ledger.attached,
        rejected: named(ledger.rejected),
        timed_out: ledger.timed_out,
        aborted: named(ledger.aborted),
        detached: ledger.detached,
        unreleased: ledger.unreleased,
        peak_in_progress: ledger.peak_in_progress,
        peak_sessions: ledger.peak_sessions,
        start_mono_ns,
        last_start_ns: ledger.last_start_ns,
        first_accept_ns: ledger.first_accept_ns,
        last_accept_ns: ledger.last_accept_ns,
        resolved_ns: ledger.resolved_ns,
        attach_us: latency(&ledger.attach_us),
        auth_us: latency(&ledger.auth_us),
        smc_us: latency(&ledger.smc_us),
        ics_us: latency(&ledger.ics_us),
        detach_us: latency(&ledger.detach_us),
        lateness_us: latency(&ledger.lateness_us),
        accepts: ledger.accepts,
        sent: named(ledger.sent),
        received: named(ledger.received),
        anomalies: AttachAnomalies {
            undecodable_pdus: odd.undecodable_pdus,
            undecodable_nas: odd.undecodable_nas,
            wrong_ppids: odd.wrong_ppids,
            unexpected: odd.unexpected,
            unknown_ue_ids: odd.unknown_ue_ids,
            ended_ues: odd.ended_ues,
            without_context: odd.without_context,
            mac_failures: odd.mac_failures,
            repeats: odd.repeats,
            wrong_autns: odd.wrong_autns,
            old_sqns: odd.old_sqns,
            refused_algorithms: odd.refused_algorithms,
            wrong_hashes: odd.wrong_hashes,
            empty_contexts: odd.empty_contexts,
            error_indications: odd.error_indications,
            resets: odd.resets,
        },
        cpu_s,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(fields: &str) -> String {
        let keys = "465b5ce8b199b49faa5f0a2ee238a6bc";
        let usim = format!(r#"{{"imsi":"001010000000007","k":"{keys}","opc":"{keys}"}}"#);
        let fields = fields.replace("USIM", &usim);
        let spec = format!(r#"{{"mme":["127.0.0.1:1"],"rate":1.0,"count":1{fields}}}"#);
        let spec: serde_json::Map<_, _> = serde_json::from_str(&spec).unwrap();
        planned(&serde_json::from_value(spec.into()).unwrap())
            .err()
            .map_or(String::new(), |e| e.message)
    }

    #[test]
    fn a_load_that_makes_no_sense_is_refused_by_name() {
        assert_eq!(refused(""), "");
        assert_eq!(refused(r#","usims":[USIM]"#), "");
        for (fields, name) in [
            (r#","rate":0.0"#, "rate = 0"),
            (r#","rate":-400.0"#, "rate = -400"),
            (r#","rate":1e300"#, "rate = 1"),
            (r#","count":0"#, "count = 0"),
            (r#","count":16777217,"rate":1e6"#, "count = 16777217"),
            (r#","k":"465b5ce8b199b49faa5f0a2ee238a6""#, "k: must be 32"),
            (
                r#","opc":"+d63cb71954a9f4e48a5994e37a02baf""#,
                "opc: must be 32",
            ),
            (r#","first_imsi":"00101000000001""#, "first_imsi = 001"),
            (
                r#","first_imsi":"999999999999999","count":2"#,
                "first_imsi = 999",
            ),
            (r#","mnc":"1""#, "mcc = 001, mnc = 1"),
            (r#","enb_id":1048576"#, "enb_id = 1048576"),
            (r#","eea":[4]"#, "eea = [4]"),
            (r#","eia":[0]"#, "eea = [0, 1, 2, 3], eia = [0]"),
            (r#","eea":[]"#, "eea, eia: at least one"),
            (
                r#","usims":[USIM],"count":2"#,
                "count = 2: there are 1 usims",
            ),
            (
                r#","usims":[USIM,USIM]"#,
                "usims: imsi = 001010000000007 is",
            ),
            (
                r#","usims":[{"imsi":"7","k":"","opc":""}]"#,
                "usims[0].imsi = 7",
            ),
            (
                r#","usims":[USIM,{"imsi":"001010000000008","k":"46","opc":""}]"#,
                "usims[1].k: must be 32",
            ),
            (r#","hold_s":-1.0"#, "hold_s = -1"),
        ] {
            assert!(
                refused(fields).starts_with(name),
                "{fields}: {}",
                refused(fields)
            );
        }
        assert!(
            addresses(&["localhost".into()])
                .unwrap_err()
                .message
                .contains("mme = localhost")
        );
        let mixed = ["127.0.0.1:1".into(), "sctp:127.0.0.1:2".into()];
        assert!(addresses(&mixed).unwrap_err().message.contains("all by"));
        let carried = ["sctp:127.0.0.1:1".into(), "sctp:127.0.0.1:2".into()];
        assert_eq!(addresses(&carried).unwrap().1, "sctp");
    }
}
