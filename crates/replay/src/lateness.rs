//! How late each packet left: behind the times asked for, and behind the earliest at which a sender as fast as this one can have sent it.
//!
//! A trace may ask for thousands of packets at one time. No sender does that: the last of them waits for those before it, and that is
//! the trace's doing. So the schedule that is judged is the trace's own, shaped: `feasible[i] = max(due[i], feasible[i - 1] + cost)`,
//! where `cost` is the time since the packet before, if this one was due by then, and never more than a few times what a send is
//! known to take. A thread that was stopped between two sends is thus excused for microseconds. No clock is read here, and
//! nothing allocated: docs/adr/0012.

use crate::bursts::Bursts;
use crate::schedule_error::ScheduleErrors;

/// Sends in a row whose mean is what a send takes.
const ROW: u64 = 16;
/// Until that many were seen; a send through the receive path of an emulated machine takes as long.
const UNKNOWN_COST_NS: u64 = 50_000;
/// A frame of 64 KiB takes so many times as long as a short one.
const DEAREST: u64 = 8;

/// What shaping did to the schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shaping {
    /// Packets asked for closer to the one before than the sender sends.
    pub packets: u64,
    /// What they were given to leave.
    pub ns: u64,
}

impl Shaping {
    /// The rate at which the schedule was shaped; `None` if it asks for nothing faster.
    #[must_use]
    pub fn pps(&self) -> Option<f64> {
        (self.ns > 0).then(|| self.packets as f64 * 1e9 / self.ns as f64)
    }

    /// Adds that of another port.
    pub fn join(&mut self, other: &Self) {
        self.packets += other.packets;
        self.ns += other.ns;
    }
}

/// Follows the packets of one port, in their order.
#[derive(Debug)]
pub struct Lateness {
    is_shaped: bool,
    together_ns: u64,
    cost: Cost,
    /// When the packet before left, and when it could have.
    before_ns: u64,
    feasible_ns: u64,
    /// Behind the feasible schedule.
    pub errors: ScheduleErrors,
    /// Behind the schedule asked for.
    pub asked_errors: ScheduleErrors,
    /// Of the feasible schedule.
    pub bursts: Bursts,
    /// From the one to the other.
    pub shaping: Shaping,
}

impl Lateness {
    /// `is_shaped` at a trace's own timing; a rate is the user's own wish and is not forgiven. Packets that are due within
    /// `together_ns` are sent together at its end.
    #[must_use]
    pub fn new(is_shaped: bool, together_ns: u64) -> Self {
        Self {
            is_shaped,
            together_ns,
            cost: Cost::default(),
            before_ns: 0,
            feasible_ns: 0,
            errors: ScheduleErrors::default(),
            asked_errors: ScheduleErrors::default(),
            bursts: Bursts::with_room(),
            shaping: Shaping::default(),
        }
    }

    /// A packet that was due at one time and leaves at another; how late that is.
    pub fn leaves(&mut self, due_ns: u64, now_ns: u64) -> u64 {
        let waited = due_ns + self.together_ns > self.before_ns;
        let cost = self.cost.of(waited, self.before_ns, now_ns);
        let earliest = self.feasible_ns + if self.is_shaped { cost } else { 0 };
        let in_a_row = due_ns <= earliest;
        let feasible = due_ns.max(earliest).min(now_ns.max(due_ns));
        if feasible > due_ns {
            self.shaping.packets += 1;
            self.shaping.ns += cost;
        }
        let late = now_ns.saturating_sub(feasible);
        self.errors.record(late);
        self.asked_errors.record(now_ns.saturating_sub(due_ns));
        self.bursts
            .follow(late, feasible, in_a_row, self.before_ns, now_ns);
        (self.before_ns, self.feasible_ns) = (now_ns, feasible);
        late
    }
}

/// What a send takes: the least mean of a row of sends seen so far.
#[derive(Debug, Default)]
struct Cost {
    least_ns: Option<u64>,
    row: u64,
    row_began_ns: u64,
}

impl Cost {
    /// Of the send before, which is what this one had to wait for; 0 if it waited for its time.
    fn of(&mut self, waited: bool, before_ns: u64, now_ns: u64) -> u64 {
        if waited {
            self.row = 0;
            return 0;
        }
        if self.row == 0 {
            self.row_began_ns = before_ns;
        }
        self.row += 1;
        if self.row == ROW {
            let mean = (now_ns.saturating_sub(self.row_began_ns) / ROW).max(1);
            self.least_ns = Some(self.least_ns.map_or(mean, |least| least.min(mean)));
            self.row = 0;
        }
        let most = (self.least_ns).map_or(UNKNOWN_COST_NS, |least| least * DEAREST);
        now_ns.saturating_sub(before_ns).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bursts::LateBursts;

    const MS: u64 = 1_000_000;

    struct Judged {
        errors: ScheduleErrors,
        asked_errors: ScheduleErrors,
        bursts: LateBursts,
        shaping: Shaping,
    }

    /// A sender that takes `cost` for each packet, wakes 20 us late and is stopped from one time to another.
    fn sent(dues: &[u64], cost: u64, stops: &[(u64, u64)], is_shaped: bool) -> Judged {
        let mut lateness = Lateness::new(is_shaped, 0);
        let (mut free, mut stops) = (0, stops.iter().peekable());
        for due in dues {
            let mut now = if *due > free { due + 20_000 } else { free };
            while let Some((_, to)) = stops.next_if(|(from, _)| *from <= now) {
                now = now.max(*to);
            }
            lateness.leaves(*due, now);
            free = now + cost;
        }
        Judged {
            errors: lateness.errors,
            asked_errors: lateness.asked_errors,
            bursts: lateness.bursts.closed(),
            shaping: lateness.shaping,
        }
    }

    fn p99_max(errors: &ScheduleErrors) -> (u64, u64) {
        errors.summary().map_or((0, 0), |of| (of.p99, of.max))
    }

    /// So many packets at each time.
    fn bursts_of(packets: u64, every_ns: u64, times: u64) -> Vec<u64> {
        (0..packets * times)
            .map(|n| MS + n / packets * every_ns)
            .collect()
    }

    fn apart(every_ns: u64, packets: u64) -> Vec<u64> {
        (0..packets).map(|n| MS + n * every_ns).collect()
    }

    #[test]
    fn packets_asked_for_at_once_are_late_for_the_trace_and_not_for_the_sender() {
        for packets in [500, 2_000, 20_000] {
            let lateness = sent(&bursts_of(packets, 100 * MS, 9), 1_500, &[], true);
            let (asked, judged) = (
                p99_max(&lateness.asked_errors).0,
                p99_max(&lateness.errors).1,
            );
            assert!(asked > packets * 1_450, "{packets}: {asked}");
            // The wake-up, and what is not known before the first row.
            assert!(judged < 25_000, "{packets}: {judged}");
            assert_eq!(lateness.bursts, LateBursts::default());
            let pps = lateness.shaping.pps().unwrap_or(0.0);
            assert!((pps / 666_667.0 - 1.0).abs() < 0.05, "{pps}");
        }
    }

    #[test]
    fn a_stop_is_not_excused_by_a_burst_of_the_trace() {
        for (packets, stopped_ms) in [(500, 300), (2_000, 130), (20_000, 60)] {
            let dues = bursts_of(packets, 100 * MS, 9);
            // In the middle of the third burst, when the sender has a queue of its own.
            let from = 201 * MS + packets * 750;
            let lateness = sent(&dues, 1_500, &[(from, from + stopped_ms * MS)], true);
            let late = p99_max(&lateness.errors).1;
            let expected = stopped_ms * MS;
            assert!(late + 5 * MS > expected && late < expected + MS, "{late}");
        }
    }

    #[test]
    fn what_a_stop_makes_arrive_at_once_is_counted() {
        for (every_ns, stopped_ms) in [(100_000, 300), (100_000, 130), (1_000_000, 60), (5_000, 7)]
        {
            let stop = (400 * MS, (400 + stopped_ms) * MS);
            for is_shaped in [false, true] {
                let lateness = sent(
                    &apart(every_ns, 1_000_000_000 / every_ns),
                    1_200,
                    &[stop],
                    is_shaped,
                );
                let owed = stopped_ms * MS / every_ns;
                assert_eq!(lateness.bursts.bursts, 1);
                let [burst] = lateness.bursts.largest[..] else {
                    unreachable!("one burst")
                };
                assert_eq!(burst.begin_mono_ns, stop.1);
                assert!(burst.packets.abs_diff(owed) <= 2, "{burst:?} {owed}");
                assert!(
                    burst.late_ns + every_ns + 20_000 >= stopped_ms * MS,
                    "{burst:?}"
                );
                assert!(
                    burst.end_mono_ns < stop.1 + owed * 2_000 + every_ns,
                    "{burst:?}"
                );
                assert_eq!(lateness.bursts.packets, burst.packets);
            }
        }
    }

    #[test]
    fn what_was_asked_for_at_once_is_no_burst_of_the_sender() {
        // 2,000 at one time, and 10,000 packets/s beside them; stopped over both.
        let mut dues = [bursts_of(2_000, 500 * MS, 3), apart(100_000, 15_000)].concat();
        dues.sort_unstable();
        let lateness = sent(&dues, 1_200, &[(450 * MS, 650 * MS)], true);
        assert_eq!(lateness.bursts.bursts, 1);
        assert!(
            lateness.bursts.packets.abs_diff(2_000) < 60,
            "{:?}",
            lateness.bursts
        );
    }

    #[test]
    fn two_stops_with_no_time_between_them_are_two_bursts() {
        let stops = [(400 * MS, 600 * MS), (601 * MS, 700 * MS)];
        let lateness = sent(&apart(100_000, 10_000), 1_200, &stops, false);
        assert_eq!(lateness.bursts.bursts, 2);
        assert!(
            lateness.bursts.packets.abs_diff(2_990) < 30,
            "{:?}",
            lateness.bursts
        );
    }

    #[test]
    fn a_single_late_packet_is_no_burst() {
        let lateness = sent(
            &apart(500 * MS, 9),
            1_200,
            &[(1_400 * MS, 1_600 * MS)],
            false,
        );
        assert_eq!(lateness.bursts, LateBursts::default());
        assert!(p99_max(&lateness.errors).1 > 90 * MS);
    }

    #[test]
    fn a_rate_that_the_sender_cannot_hold_is_not_forgiven() {
        let lateness = sent(&apart(1_000, 100_000), 1_500, &[], false);
        assert!(p99_max(&lateness.errors).1 > 49 * MS);
        assert_eq!(lateness.shaping, Shaping::default());
    }

    #[test]
    fn a_sender_that_is_starved_in_slices_gets_no_slower_rate() {
        // Other threads have 200 us of every 300: of 20,000 packets 180 wait for them.
        let dues = bursts_of(20_000, 400 * MS, 5);
        let slices: Vec<(u64, u64)> = (0..10_000)
            .map(|n| (n * 300_000, n * 300_000 + 200_000))
            .collect();
        let lateness = sent(&dues, 1_200, &slices, true);
        assert!(p99_max(&lateness.errors).0 > 40 * MS);
    }
}
