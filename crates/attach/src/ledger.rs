//! The books of an offered load: each UE that started is in one class at the end, and everything odd the MME said is counted.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

/// Width of a bin of [`Ledger::accepts`].
pub const BIN_NS: u64 = 100_000_000;
/// Two hours at most: no load is that long.
const MOST_BINS: u64 = 72_000;

/// What the other end said that it should not have; no UE is in here, these are messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies {
    /// Octets that are no S1AP message, or lack a field.
    pub undecodable_pdus: u64,
    /// Octets that are no NAS message.
    pub undecodable_nas: u64,
    /// Payload protocol identifier that is not S1AP's.
    pub wrong_ppids: u64,
    /// S1AP or NAS messages that no part of an attach is.
    pub unexpected: u64,
    /// UE ids that belong to no UE, to another eNodeB's, or differ from those agreed.
    pub unknown_ue_ids: u64,
    /// For a UE that has ended.
    pub ended_ues: u64,
    /// Protected, but there are no keys yet.
    pub without_context: u64,
    /// Wrong MAC, or a count that was used.
    pub mac_failures: u64,
    /// Came again in the state that it leads to.
    pub repeats: u64,
    /// AUTN with another key's MAC.
    pub wrong_autns: u64,
    /// AUTN with an old sequence number.
    pub old_sqns: u64,
    /// Security Mode Command with other capabilities than the UE's, or an algorithm it cannot do.
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

/// Everything that is counted and timed.
pub struct Ledger {
    /// UEs whose scheduled start has come.
    pub started: u64,
    /// Their Attach Accept was accepted.
    pub attached: u64,
    /// Turned away, by EMM cause; 0 for an Authentication Reject.
    pub rejected: BTreeMap<u8, u64>,
    /// T3410 ran out.
    pub timed_out: u64,
    /// Ended otherwise, by reason.
    pub aborted: BTreeMap<&'static str, u64>,
    /// Released after their Detach Request.
    pub detached: u64,
    /// Their Detach Request was not followed by a release in time.
    pub unreleased: u64,
    /// Most attaches that were in progress at once.
    pub peak_in_progress: u64,
    /// Most UEs that were attached at once.
    pub peak_sessions: u64,
    /// UEs that are attached now.
    pub sessions: u64,
    /// S1AP messages sent, by name.
    pub sent: BTreeMap<&'static str, u64>,
    /// S1AP messages received, by name.
    pub received: BTreeMap<&'static str, u64>,
    /// What the other end did wrong.
    pub anomalies: Anomalies,
    /// From the scheduled start to the Attach Accept, in µs.
    pub attach_us: Histogram<u64>,
    /// From the scheduled start to the Authentication Response.
    pub auth_us: Histogram<u64>,
    /// From there to the Security Mode Complete.
    pub smc_us: Histogram<u64>,
    /// From there to the Attach Accept.
    pub ics_us: Histogram<u64>,
    /// From the Detach Request to the release.
    pub detach_us: Histogram<u64>,
    /// How late the starts were.
    pub lateness_us: Histogram<u64>,
    /// Accepts in each 100 ms after the first scheduled start.
    pub accepts: Vec<u32>,
    /// Last start, after the first scheduled one.
    pub last_start_ns: u64,
    /// First accept, after the first scheduled start.
    pub first_accept_ns: Option<u64>,
    /// Last accept, after the first scheduled start.
    pub last_accept_ns: Option<u64>,
    /// The last UE's class was known, after the first scheduled start.
    pub resolved_ns: Option<u64>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            started: 0,
            attached: 0,
            rejected: BTreeMap::new(),
            timed_out: 0,
            aborted: BTreeMap::new(),
            detached: 0,
            unreleased: 0,
            peak_in_progress: 0,
            peak_sessions: 0,
            sessions: 0,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            anomalies: Anomalies::default(),
            attach_us: histogram(),
            auth_us: histogram(),
            smc_us: histogram(),
            ics_us: histogram(),
            detach_us: histogram(),
            lateness_us: histogram(),
            accepts: Vec::new(),
            last_start_ns: 0,
            first_accept_ns: None,
            last_accept_ns: None,
            resolved_ns: None,
        }
    }
}

/// A day: no load is longer. Beyond the highest value it would record that value.
const MOST_US: u64 = 86_400_000_000;

#[allow(clippy::unwrap_used)] // 3 digits are allowed.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(MOST_US, 3).unwrap()
}

impl Ledger {
    /// UEs whose class is known.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let rejected: u64 = self.rejected.values().sum();
        let aborted: u64 = self.aborted.values().sum();
        self.attached + rejected + self.timed_out + aborted
    }

    /// Attaches between start and class.
    #[must_use]
    pub fn in_progress(&self) -> u64 {
        self.started.saturating_sub(self.ended())
    }

    /// A UE starts, so long after the first scheduled start, and so late.
    pub fn start(&mut self, after_ns: u64, late_ns: u64) {
        self.started += 1;
        self.last_start_ns = after_ns;
        self.lateness_us.saturating_record(late_ns / 1000);
        self.peak_in_progress = self.peak_in_progress.max(self.in_progress());
    }

    /// An Attach Accept, so long after the first scheduled start.
    pub fn accept(&mut self, after_ns: u64, latency_ns: u64) {
        self.attached += 1;
        self.sessions += 1;
        self.peak_sessions = self.peak_sessions.max(self.sessions);
        self.attach_us.saturating_record(latency_ns / 1000);
        self.first_accept_ns.get_or_insert(after_ns);
        self.last_accept_ns = Some(after_ns);
        let bin = usize::try_from((after_ns / BIN_NS).min(MOST_BINS)).unwrap_or(0);
        if self.accepts.len() <= bin {
            self.accepts.resize(bin + 1, 0);
        }
        self.accepts[bin] += 1;
    }
}
