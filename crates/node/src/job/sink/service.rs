//! The clock of a server that needs a set time for each packet: pure, so that it can be tested by a clock that is played.

/// A wake-up that is later than this is a stall of the SUT (stopped, starved), and its time is lost as any SUT's is.
const MADE_UP_NS: u64 = 100_000_000;

/// One packet at a time, each for the same time, none before it has arrived.
///
/// A packet is done so long after its arrival, or after the one before it was done, whichever is later. A wake-up that comes late
/// changes nothing of that; idle time gives no credit.
#[derive(Debug, Clone)]
pub struct Service {
    cost_ns: f64,
    origin_ns: u64,
    /// After the origin: small enough for a float to keep fractions of a nanosecond.
    done_ns: f64,
}

impl Service {
    pub fn new(rate_pps: f64, now_ns: u64) -> Self {
        Self {
            cost_ns: 1e9 / rate_pps,
            origin_ns: now_ns,
            done_ns: 0.0,
        }
    }

    /// Takes on the packet that `arrived_ns` came and takes `times` the time of one; when it is done.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times after the origin"
    )]
    pub fn begin(&mut self, arrived_ns: u64, now_ns: u64, times: f64) -> u64 {
        let earliest = arrived_ns.max(now_ns.saturating_sub(MADE_UP_NS));
        let earliest = earliest.saturating_sub(self.origin_ns) as f64;
        self.done_ns = self.done_ns.max(earliest) + self.cost_ns * times;
        self.origin_ns + self.done_ns as u64
    }

    /// Time of one packet.
    pub fn cost_ns(&self) -> f64 {
        self.cost_ns
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times and counts that are positive and small"
    )]
    use std::collections::VecDeque;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What becomes of arrivals (ns, ascending) at a ring of `slots`, read by a thread whose k-th wake-up is `late(k)` ns too
    /// late: served, lost, and when the last was done by the clock.
    fn played(
        arrivals: &[u64],
        slots: usize,
        rate_pps: f64,
        late: impl Fn(u64) -> u64,
    ) -> (u64, u64, u64) {
        let mut service = Service::new(rate_pps, 0);
        let (mut ring, mut served, mut lost, mut last) = (VecDeque::new(), 0, 0, 0);
        // The thread holds the packet in service until `free_at`, when it really runs again.
        let mut free_at = None;
        let mut wakes = 0;
        for &now in arrivals.iter().chain([&u64::MAX]) {
            loop {
                if let Some(free) = free_at {
                    if free > now {
                        break;
                    }
                    ring.pop_front();
                    served += 1;
                    free_at = None;
                    let Some(&next) = ring.front() else { continue };
                    last = service.begin(next, free, 1.0);
                    wakes += u64::from(last > free);
                    free_at = Some(if last > free {
                        last + late(wakes)
                    } else {
                        free
                    });
                    continue;
                }
                let Some(&next) = ring.front() else { break };
                // Idle: the arrival wakes it, late as well.
                wakes += 1;
                let awake = next + late(wakes);
                last = service.begin(next, awake, 1.0);
                free_at = Some(if last > awake {
                    last + late(wakes)
                } else {
                    awake
                });
            }
            if now == u64::MAX {
                break;
            }
            if ring.len() < slots {
                ring.push_back(now);
            } else {
                lost += 1;
            }
        }
        (served, lost, last)
    }

    fn paced(pps: f64, seconds: f64) -> Vec<u64> {
        let every = 1e9 / pps;
        (0..(pps * seconds) as u64)
            .map(|n| SECOND + (n as f64 * every) as u64)
            .collect()
    }

    #[test]
    fn below_its_rate_nothing_is_lost() {
        for (offered, rate) in [
            (500.0, 501.0),
            (4_000.0, 5_000.0),
            (8_000.0, 9_000.0),
            (49_000.0, 50_000.0),
        ] {
            for slots in [1, 16, 256] {
                let arrivals = paced(offered, 2.0);
                let (served, lost, _) = played(&arrivals, slots, rate, |_| 0);
                assert_eq!(
                    (served, lost),
                    (arrivals.len() as u64, 0),
                    "{offered} {rate} {slots}"
                );
            }
        }
    }

    #[test]
    fn beyond_its_rate_it_serves_its_rate_and_keeps_what_the_ring_holds() {
        for (offered, rate) in [
            (10_000.0, 5_000.0),
            (20_000.0, 9_000.0),
            (60_000.0, 50_000.0),
            (1_000.0, 700.0),
        ] {
            for slots in [2, 16, 256] {
                let arrivals = paced(offered, 4.0);
                let (served, lost, _) = played(&arrivals, slots, rate, |_| 0);
                let expected = (4.0 * rate) as u64 + slots as u64;
                assert!(
                    served.abs_diff(expected) <= 2,
                    "{served} {expected}: {offered} {rate} {slots}"
                );
                assert_eq!(served + lost, arrivals.len() as u64);
            }
        }
    }

    #[test]
    fn a_burst_into_an_idle_queue_keeps_its_slots() {
        for (burst, slots) in [(100, 16), (1_000, 256), (5_000, 4_096), (10, 16), (2, 1)] {
            // 10 us apart and a rate of 1,000: what is served meanwhile is one in a hundred.
            let arrivals: Vec<u64> = (0..burst).map(|n| 5 * SECOND + n * 10_000).collect();
            let (served, lost, _) = played(&arrivals, slots, 1_000.0, |_| 0);
            let meanwhile = burst / 100;
            assert_eq!(served + lost, burst);
            assert!(served >= burst.min(slots as u64));
            assert!(
                served <= burst.min(slots as u64 + meanwhile),
                "{served} of {burst}"
            );
        }
    }

    #[test]
    fn idle_time_gives_no_credit() {
        let mut service = Service::new(1_000.0, 0);
        for pause in [SECOND, 10 * SECOND, 3_600 * SECOND] {
            assert_eq!(service.begin(pause, pause, 1.0), pause + 1_000_000);
            assert_eq!(
                service.begin(pause, pause + 1_000_000, 1.0),
                pause + 2_000_000
            );
        }
    }

    #[test]
    fn a_costly_packet_keeps_those_behind_it_waiting() {
        let mut service = Service::new(1_000.0, 0);
        for (times, done) in [(1.0, 1_000_000), (25.0, 26_000_000), (0.5, 26_500_000)] {
            assert_eq!(service.begin(SECOND, SECOND, times), SECOND + done);
        }
    }

    #[test]
    fn late_wake_ups_are_made_up_for() {
        // Up to 3 ms late at every wake-up; 256 slots of a rate of 9,000 last for 28 ms.
        let late = |k: u64| k * 7_919 % 3_000_000;
        let arrivals = paced(20_000.0, 5.0);
        let (served, _, _) = played(&arrivals, 256, 9_000.0, late);
        assert!(
            served.abs_diff(5 * 9_000 + 256) <= 45,
            "{served}: a thousandth"
        );
        let arrivals = paced(8_000.0, 5.0);
        let (served, lost, last) = played(&arrivals, 256, 9_000.0, late);
        assert_eq!((served, lost), (40_000, 0));
        assert!(
            last <= 6 * SECOND + 200_000,
            "nothing is behind in the end: {last}"
        );
    }

    #[test]
    fn a_stall_is_lost_time() {
        let mut service = Service::new(1_000.0, 0);
        let first = service.begin(SECOND, SECOND, 1.0);
        // Stopped for 2 s: the next is as late as if it had begun 100 ms ago, and no earlier.
        let now = first + 2 * SECOND;
        assert_eq!(
            service.begin(SECOND, now, 1.0),
            now - MADE_UP_NS + 1_000_000
        );
    }

    #[test]
    fn the_rate_holds_for_days() {
        // At an uptime of three years, when a nanosecond since boot no longer fits into a float.
        let boot = 100_000_000 * SECOND;
        for rate in [3.0, 7_777.7, 50_000.0, 999_999.9] {
            let mut service = Service::new(rate, boot);
            let mut done = boot;
            for _ in 0..1_000_000 {
                done = service.begin(boot, done, 1.0);
            }
            let took = (done - boot) as f64 / 1e9;
            assert!((took * rate / 1e6 - 1.0).abs() < 1e-6, "{rate}: {took}");
        }
    }

    /// Exponential gaps from a fixed seed.
    fn poisson(pps: f64, packets: usize) -> Vec<u64> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut at = 1e9;
        (0..packets)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let uniform = ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
                at -= uniform.ln() * 1e9 / pps;
                at as u64
            })
            .collect()
    }

    /// Share of arrivals lost by M/D/1/K, K with the packet in service: from the chain at departures.
    fn m_d_1_k(load: f64, slots: usize) -> f64 {
        let mut arrivals = vec![(-load).exp()];
        for k in 1..=slots {
            arrivals.push(arrivals[k - 1] * load / k as f64);
        }
        // Left behind by a departure: 0 .. K-1; up to a factor, from the balance of each state.
        let mut left = vec![1.0];
        for n in 0..slots - 1 {
            let before: f64 = (1..=n).map(|i| left[i] * arrivals[n + 1 - i]).sum();
            left.push((left[n] - left[0] * arrivals[n] - before) / arrivals[0]);
        }
        let empty = left[0] / left.iter().sum::<f64>();
        1.0 - 1.0 / (empty + load)
    }

    #[test]
    fn random_arrivals_lose_what_m_d_1_k_says() {
        assert!(
            (m_d_1_k(0.8, 1) - 0.8 / 1.8).abs() < 1e-12,
            "one slot: the formula of Erlang"
        );
        for (load, slots) in [(0.5, 2), (0.8, 4), (0.9, 8), (1.0, 16), (1.2, 8), (2.0, 16)] {
            let arrivals = poisson(load * 10_000.0, 400_000);
            let (_, lost, _) = played(&arrivals, slots, 10_000.0, |_| 0);
            let (found, formula) = (lost as f64 / 400_000.0, m_d_1_k(load, slots));
            assert!(
                (found - formula).abs() < 0.02 * formula + 3e-4,
                "{load} {slots}: {found} {formula}"
            );
        }
    }
}
