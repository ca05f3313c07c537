//! Job `reference-mme`: an MME of known service time, with faults on order; a yardstick, not a product.

use std::io::ErrorKind;

use nodrop_attach::address::Listener;
use nodrop_attach::behind::Behind;
use nodrop_attach::mme::{Faults, Home, Mme};
use nodrop_attach::serve::serve;
use nodrop_proto::{JobError, LatencyUs, ReferenceMmeReady, ReferenceMmeResult, ReferenceMmeSpec};
use nodrop_sys::clock::thread_cpu_ns;
use nodrop_sys::sctp;
use nodrop_sys::thread::exact_timers;

use crate::job::Job;
use crate::job::attach::{address, home, latency, named};
use crate::job::stubs::socket_address;
use crate::session::Session;

/// It listens.
pub struct ReferenceMme {
    mme: Mme,
    listener: Listener,
    behind: Option<Behind>,
    work_ns: u64,
}

impl Job for ReferenceMme {
    const NAME: &'static str = "reference-mme";
    type Spec = ReferenceMmeSpec;
    type Ready = ReferenceMmeReady;
    type Outcome = ReferenceMmeResult;

    fn prepare(spec: ReferenceMmeSpec, _: &Session) -> Result<(Self, ReferenceMmeReady), JobError> {
        let bad = |words: String| JobError::new("spec", words);
        for (name, ratio) in [
            ("drop", spec.drop),
            ("wrong_id", spec.wrong_id),
            ("bad_mac", spec.bad_mac),
            ("reject", spec.reject),
        ] {
            if !(0.0..=1.0).contains(&ratio) {
                return Err(bad(format!("{name} = {ratio}: must be 0 to 1")));
            }
        }
        if spec.eea > 3 || !(1..=3).contains(&spec.eia) {
            let (eea, eia) = (spec.eea, spec.eia);
            return Err(bad(format!(
                "eea = {eea}, eia = {eia}: must be 0 to 3 and 1 to 3"
            )));
        }
        let (subscribers, network) = home(&spec.home, spec.subscribers)?;
        let home = Home {
            subscribers,
            network,
        };
        let faults = Faults {
            drop: spec.drop,
            delay_ns: spec.delay_ms.saturating_mul(1_000_000),
            silent_after: spec.silent_after,
            wrong_id: spec.wrong_id,
            bad_mac: spec.bad_mac,
            reject: spec.reject,
            limit: spec.limit,
            seed: spec.seed,
        };
        let at = address("listen", &spec.listen)?;
        let listener = at.listen().map_err(|e| {
            let kind = match e.kind() {
                _ if sctp::lacks(&e) => "no_sctp",
                ErrorKind::AddrInUse => "port_in_use",
                _ => "socket",
            };
            JobError::new(kind, format!("listen = {at}: {e}"))
        })?;
        let at = listener.address().unwrap_or(at);
        let mut mme =
            Mme::new(home, faults, spec.eea, spec.eia).with_network(&spec.home.mcc, &spec.home.mnc);
        let behind = match (&spec.hss, &spec.sgw) {
            (None, None) => None,
            (Some(hss), Some(sgw)) => {
                let (hss, sgw) = (socket_address("hss", hss)?, socket_address("sgw", sgw)?);
                mme = mme.with_core();
                Some(Behind::connect(hss, sgw).map_err(|e| {
                    JobError::new("no_hss", format!("no connection to the HSS at {hss}: {e}"))
                })?)
            }
            _ => return Err(bad("hss, sgw: both, or neither".into())),
        };
        let ready = ReferenceMmeReady {
            listen: at.to_string(),
        };
        let work_ns = spec.work_us.saturating_mul(1000);
        Ok((
            Self {
                mme,
                listener,
                behind,
                work_ns,
            },
            ready,
        ))
    }

    fn run(&mut self, session: &Session) -> Result<ReferenceMmeResult, JobError> {
        exact_timers();
        let before = thread_cpu_ns();
        let behind = self.behind.take();
        serve(&mut self.mme, &self.listener, behind, self.work_ns, &|| {
            session.stopped()
        })
        .map_err(|e| JobError::new("socket", e.to_string()))?;
        let counts = std::mem::take(&mut self.mme.counts);
        let (mut hss_us, mut sgw_us) = (LatencyUs::default(), LatencyUs::default());
        let mut undecodable_behind = 0;
        if let Some(core) = self.mme.core() {
            (hss_us, sgw_us) = (latency(&core.hss_us), latency(&core.sgw_us));
            undecodable_behind = core.undecodable;
        }
        Ok(ReferenceMmeResult {
            attach_requests: counts.attach_requests,
            attached: counts.attached,
            rejected: counts.rejected,
            detached: counts.detached,
            given_up: counts.given_up,
            repeats: counts.repeats,
            undecodable: counts.undecodable,
            mac_failures: counts.mac_failures,
            unknown_ue_ids: counts.unknown_ue_ids,
            peak_ues: counts.peak_ues,
            dropped: counts.dropped,
            sent: named(counts.sent),
            received: named(counts.received),
            hss_us,
            sgw_us,
            undecodable_behind,
            cpu_s: (thread_cpu_ns() - before) as f64 / 1e9,
        })
    }
}
