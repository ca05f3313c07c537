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
use nodrop_attach::ue::Sim;
use nodrop_attach::wire::aka::{Network, Subscriber};
use nodrop_attach::wire::nas::ALL;
use nodrop_attach::wire::s1ap::Cell;
use nodrop_proto::{
    AttachAnomalies, AttachReady, AttachResult, AttachSample, AttachSpec, JobError, LatencyUs,
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
    load: Option<(Plan, Sim)>,
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
        let (plan, sim) = planned(&spec)?;
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
        let load = Some((plan, sim));
        let ours = Self {
            load,
            links,
            transport,
        };
        Ok((ours, ready))
    }

    fn run(&mut self, session: &Session) -> Result<AttachResult, JobError> {
        let Some((plan, sim)) = self.load.take() else {
            return Err(JobError::new("internal", "a load is offered once"));
        };
        exact_timers();
        let start_ns = session.wait_start_in(HEAD_START_NS);
        let (cpu_before, again_before) = (process_cpu_ns(), retransmitted());
        let mut enbs = Enbs::new(plan, sim, start_ns);
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

fn planned(spec: &AttachSpec) -> Result<(Plan, Sim), JobError> {
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
    let first_imsi = imsi(&spec.first_imsi, u64::from(count))?;
    let (subscriber, network) = home(&spec.k, &spec.opc, &spec.mcc, &spec.mnc)?;
    let cells: Vec<Cell> = (spec.mme.iter().zip(spec.enb_id..))
        .map(|(_, enb_id)| Cell {
            mcc: spec.mcc.clone(),
            mnc: spec.mnc.clone(),
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
    let plan = Plan {
        count,
        rate,
        first_imsi,
        hold_ns: (!spec.keep).then_some(hold_ns),
        timeout_ns: seconds("timeout_s", spec.timeout_s)?,
        release_ns: RELEASE_NS,
        cells,
    };
    let sim = Sim {
        subscriber,
        network,
        capability: ALL,
    };
    Ok((plan, sim))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn seconds(name: &str, value: f64) -> Result<u64, JobError> {
    if (0.0..=MOST_S).contains(&value) {
        Ok((value * 1e9) as u64)
    } else {
        Err(bad(format!("{name} = {value}: must be 0 to {MOST_S}")))
    }
}

/// A range of IMSIs by its first.
pub fn imsi(first: &str, count: u64) -> Result<u64, JobError> {
    const END: u64 = 1_000_000_000_000_000;
    let digits = first.len() == 15 && first.bytes().all(|digit| digit.is_ascii_digit());
    let number = first.parse().ok().filter(|_| digits);
    number
        .filter(|number| END.checked_sub(count).is_some_and(|last| *number <= last))
        .ok_or_else(|| {
            bad(format!(
                "first_imsi = {first}: must be 15 digits, with room for {count}"
            ))
        })
}

/// Key of the subscribers and serving network.
pub fn home(k: &str, opc: &str, mcc: &str, mnc: &str) -> Result<(Subscriber, Network), JobError> {
    let key = |name: &str, text: &str| {
        let octets = (0..16).map(|at| {
            let pair = text.get(2 * at..2 * at + 2);
            pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
        });
        let octets: Option<Vec<u8>> = octets.collect();
        let whole =
            octets.filter(|_| text.len() == 32 && text.bytes().all(|c| c.is_ascii_hexdigit()));
        whole
            .and_then(|octets| <[u8; 16]>::try_from(octets).ok())
            .ok_or_else(|| bad(format!("{name}: must be 32 hexadecimal digits")))
    };
    let network = Network::new(mcc, mnc).ok_or_else(|| {
        bad(format!(
            "mcc = {mcc}, mnc = {mnc}: must be 3, and 2 or 3 digits"
        ))
    })?;
    Ok((Subscriber::new(&key("k", k)?, &key("opc", opc)?), network))
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
        let spec = format!(r#"{{"mme":["127.0.0.1:1"],"rate":1.0,"count":1{fields}}}"#);
        let spec: serde_json::Map<_, _> = serde_json::from_str(&spec).unwrap();
        planned(&serde_json::from_value(spec.into()).unwrap())
            .err()
            .map_or(String::new(), |e| e.message)
    }

    #[test]
    fn a_load_that_makes_no_sense_is_refused_by_name() {
        assert_eq!(refused(""), "");
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
