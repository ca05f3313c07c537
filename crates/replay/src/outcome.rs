//! What a replay did, on one port or on several.

use std::collections::BTreeMap;

use crate::bursts::LateBursts;
use crate::lateness::Shaping;
use crate::schedule_error::ScheduleErrors;
use crate::sent_profile::SentProfile;

/// What was sent in each interval from the start; trailing intervals are not kept beyond [`Achieved::MOST`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Achieved {
    /// Packets the kernel took.
    pub packets: Vec<u64>,
    /// Their bytes.
    pub bytes: Vec<u64>,
    /// The largest error behind the feasible schedule among them, in ns; empty at top speed.
    pub largest_error_ns: Vec<u64>,
}

impl Achieved {
    /// Length of an interval.
    pub const INTERVAL_NS: u64 = 100_000_000;
    /// One hour.
    pub const MOST: usize = 36_000;

    fn join(&mut self, other: &Self) {
        fn joined(to: &mut Vec<u64>, from: &[u64], both: impl Fn(u64, u64) -> u64) {
            to.resize(to.len().max(from.len()), 0);
            for (to, from) in to.iter_mut().zip(from) {
                *to = both(*to, *from);
            }
        }
        joined(&mut self.packets, &other.packets, |a, b| a + b);
        joined(&mut self.bytes, &other.bytes, |a, b| a + b);
        joined(
            &mut self.largest_error_ns,
            &other.largest_error_ns,
            u64::max,
        );
    }
}

/// The time of the thread from start to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// CPU time.
    pub cpu_ns: u64,
    /// By the clock.
    pub ns: u64,
    /// Of that, while it waited for due times by spinning.
    pub spun_ns: u64,
}

impl Spent {
    /// The part of the time in which it spun; `None` if there was no time.
    #[must_use]
    pub fn spun_share(&self) -> Option<f64> {
        (self.ns > 0).then(|| (self.spun_ns as f64 / self.ns as f64).min(1.0))
    }

    /// Adds that of another port.
    fn join(&mut self, other: &Self) {
        self.cpu_ns += other.cpu_ns;
        self.ns += other.ns;
        self.spun_ns += other.spun_ns;
    }
}

/// What a replay did.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Packets of the plan; at top speed with a duration, those that were reached within it.
    pub intended_packets: u64,
    /// Packets the kernel took.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// errno → packets the kernel would not take.
    pub refused_packets: BTreeMap<i32, u64>,
    /// Packets of replicas that were offered as they stand in the trace, for want of an address to rewrite.
    pub not_rewritten_packets: u64,
    /// When the first packet that the kernel took was given to it.
    pub first_sent_mono_ns: Option<u64>,
    /// The same for the last.
    pub last_sent_mono_ns: Option<u64>,
    /// Behind the feasible schedule: what the sender is judged by. Empty at top speed.
    pub schedule_errors: ScheduleErrors,
    /// Behind the schedule that was asked for.
    pub asked_errors: ScheduleErrors,
    /// What the sender let leave at once that was asked for apart.
    pub late_bursts: LateBursts,
    /// How far apart what was asked for at once was let leave.
    pub shaping: Shaping,
    /// Of the thread.
    pub spent: Spent,
    /// Per 100 ms.
    pub achieved: Achieved,
    /// Finer, for as long as it lasts.
    pub sent_profile: SentProfile,
}

impl Outcome {
    /// Adds what another port did in the same replay.
    pub fn join(&mut self, other: &Self) {
        self.intended_packets += other.intended_packets;
        self.sent_packets += other.sent_packets;
        self.sent_bytes += other.sent_bytes;
        for (errno, packets) in &other.refused_packets {
            *self.refused_packets.entry(*errno).or_default() += packets;
        }
        self.not_rewritten_packets += other.not_rewritten_packets;
        let firsts = [self.first_sent_mono_ns, other.first_sent_mono_ns];
        self.first_sent_mono_ns = firsts.into_iter().flatten().min();
        self.last_sent_mono_ns = self.last_sent_mono_ns.max(other.last_sent_mono_ns);
        self.schedule_errors.join(&other.schedule_errors);
        self.asked_errors.join(&other.asked_errors);
        self.late_bursts.join(&other.late_bursts);
        self.shaping.join(&other.shaping);
        self.spent.join(&other.spent);
        self.achieved.join(&other.achieved);
        self.sent_profile.join(&other.sent_profile);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(sent: u64, first: Option<u64>, errors: &[u64], achieved: Vec<u64>) -> Outcome {
        let mut schedule_errors = ScheduleErrors::default();
        errors
            .iter()
            .for_each(|error| schedule_errors.record(*error));
        let mut sent_profile = SentProfile::default();
        sent_profile.begins_at(10);
        if let Some(first) = first {
            sent_profile.add(sent, first);
        }
        Outcome {
            intended_packets: sent + 1,
            sent_packets: sent,
            sent_bytes: sent * 60,
            refused_packets: BTreeMap::from([(90, 1)]),
            not_rewritten_packets: sent,
            first_sent_mono_ns: first,
            last_sent_mono_ns: first.map(|first| first + sent),
            asked_errors: schedule_errors.clone(),
            schedule_errors,
            late_bursts: LateBursts {
                bursts: 1,
                packets: sent,
                largest: vec![],
            },
            shaping: Shaping {
                packets: sent,
                ns: 2 * sent,
            },
            spent: Spent {
                cpu_ns: sent,
                ns: 2 * sent,
                spun_ns: sent,
            },
            achieved: Achieved {
                bytes: achieved.iter().map(|packets| packets * 60).collect(),
                largest_error_ns: achieved.clone(),
                packets: achieved,
            },
            sent_profile,
        }
    }

    #[test]
    fn ports_are_joined_in_every_figure() {
        let mut all = outcome(4, Some(20), &[2_000; 4], vec![4]);
        all.join(&outcome(6, Some(15), &[1_000; 6], vec![3, 3]));
        all.join(&outcome(0, None, &[], vec![]));
        let mut expected = outcome(10, Some(15), &[], vec![7, 3]);
        expected.intended_packets = 13;
        expected.refused_packets = BTreeMap::from([(90, 3)]);
        expected.last_sent_mono_ns = Some(24);
        expected.achieved.largest_error_ns = vec![4, 3];
        [[1_000; 6].as_slice(), &[2_000; 4]]
            .concat()
            .iter()
            .for_each(|error| expected.schedule_errors.record(*error));
        expected.asked_errors = expected.schedule_errors.clone();
        expected.late_bursts.bursts = 3;
        expected.spent = Spent {
            cpu_ns: 10,
            ns: 20,
            spun_ns: 10,
        };
        assert_eq!(all, expected);
        assert_eq!(all.spent.spun_share(), Some(0.5));
        assert_eq!(Spent::default().spun_share(), None);
        let summary = all.schedule_errors.summary();
        assert_eq!(summary.map(|errors| errors.max), Some(2_000));
        assert_eq!(summary.map(|errors| errors.p50), Some(1_000));
    }
}
