//! Waiting for a due time: sleep until shortly before it, then spin.
//!
//! How shortly is measured: a sleep ends 4 to 6 us after its time under SCHED_FIFO, and that is what the thread aims ahead; on another
//! host, or where others come first, it is another time, so each sleep corrects the aim. A sleep costs some 5 us of CPU, so a
//! shorter gap is spun through. Spinning alone burns a core and under SCHED_FIFO runs into the throttling of real-time
//! threads, which stops them for 50 ms of each second. At rates where no gap is long enough to sleep in, a real-time thread
//! therefore takes short naps that end at a due time, so that it leaves at least 6 % of its CPU to others.
//! Alternatives and numbers: docs/adr/0005.

use nodrop_io::thread::{mono_ns, sleep_until};

/// Aims tried: no sleep is that exact, and past the other a host has no use for aiming.
const MARGIN_NS: std::ops::RangeInclusive<i64> = 1_000..=80_000;
/// How fast the aim follows: settles within some tens of sleeps, and one late sleep of 5 ms moves it as little as one of 5 us.
const MARGIN_STEP_NS: i64 = 400;
/// Sleeps before the start that find the first aim.
const TRIALS: u32 = 48;
const TRIAL_NS: u64 = 20_000;
/// A gap shorter than this is spun through: a sleep would take as much CPU.
const SHORTEST_SLEEP_NS: u64 = 5_000;
/// Longest sleep without a look at whether to stop.
const LOOK_NS: u64 = 50_000_000;
/// Awake time that one unit of sleep pays for: 15 : 1 leaves 6.25 %.
const AWAKE_PER_SLEEP: i64 = 15;
/// Most awake time that can be saved up: 10 ms beside the 15 : 1 stays below the 950 ms of each second that the kernel grants.
const MOST_CREDIT_NS: i64 = 10_000_000;
/// A debt for which a thread that has no gap at all is made to sleep.
const MOST_DEBT_NS: i64 = -1_000_000;
/// A nap shorter than this is all overhead.
const SHORTEST_NAP_NS: u64 = 3_000;
/// The nap of a thread that has no gap: pays for 1 ms.
const FORCED_NAP_NS: u64 = 70_000;

/// Waits for one due time after the other.
#[derive(Debug)]
pub struct Pacer {
    realtime: bool,
    margin: Margin,
    /// Awake time left before a nap is due.
    credit_ns: i64,
    awake_since_ns: u64,
}

impl Pacer {
    /// For the calling thread, whose sleeps are timed here for 2 ms or so; `realtime` where it runs under SCHED_FIFO.
    #[must_use]
    pub fn new(realtime: bool) -> Self {
        let mut pacer = Self {
            realtime,
            margin: Margin::default(),
            credit_ns: MOST_CREDIT_NS,
            awake_since_ns: mono_ns(),
        };
        for _ in 0..TRIALS {
            let now = mono_ns();
            pacer.sleep(now, now + TRIAL_NS);
        }
        pacer
    }

    /// Forgets what was awake before.
    pub fn begin(&mut self) {
        self.credit_ns = MOST_CREDIT_NS;
        self.awake_since_ns = mono_ns();
    }

    /// Waits until `due_ns` of CLOCK_MONOTONIC and returns the time then; `None` where `stopped` says so.
    pub fn wait(&mut self, due_ns: u64, stopped: impl Fn() -> bool) -> Option<u64> {
        let mut now = mono_ns();
        while now + self.margin.ns() + SHORTEST_SLEEP_NS < due_ns {
            if stopped() {
                return None;
            }
            let aim = due_ns - self.margin.ns();
            now = self.sleep(now, aim.min(now + LOOK_NS));
        }
        if self.realtime && self.credit_ns < awake_ns(self.awake_since_ns, now) {
            if now + SHORTEST_NAP_NS < due_ns {
                now = self.sleep(now, due_ns);
            } else if self.credit_ns - awake_ns(self.awake_since_ns, now) < MOST_DEBT_NS {
                now = self.sleep(now, now + FORCED_NAP_NS);
            }
        }
        while now < due_ns {
            std::hint::spin_loop();
            now = mono_ns();
        }
        Some(now)
    }

    fn sleep(&mut self, now: u64, until: u64) -> u64 {
        sleep_until(until);
        let woken = mono_ns();
        self.margin.saw(awake_ns(until, woken));
        let earned = awake_ns(now, woken).saturating_mul(AWAKE_PER_SLEEP);
        let spent = awake_ns(self.awake_since_ns, now);
        self.credit_ns = (self.credit_ns - spent)
            .saturating_add(earned)
            .min(MOST_CREDIT_NS);
        self.awake_since_ns = woken;
        woken
    }
}

/// What three of four sleeps are late at most: a quarter step down or three quarters up after each, which needs no memory of them.
#[derive(Debug, Clone, Copy, Default)]
struct Margin(i64);

impl Margin {
    fn saw(&mut self, late_ns: i64) {
        let step = if late_ns > self.0 {
            MARGIN_STEP_NS * 3 / 4
        } else {
            -MARGIN_STEP_NS / 4
        };
        self.0 = (self.0 + step).clamp(*MARGIN_NS.start(), *MARGIN_NS.end());
    }

    fn ns(self) -> u64 {
        self.0.unsigned_abs()
    }
}

fn awake_ns(since: u64, now: u64) -> i64 {
    i64::try_from(now.saturating_sub(since)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn never_early() {
        let mut pacer = Pacer::new(false);
        for gap in [0, 1_000, 50_000, 500_000] {
            let due = mono_ns() + gap;
            assert!(pacer.wait(due, || false).unwrap() >= due);
        }
    }

    #[test]
    fn a_stop_ends_a_long_wait() {
        assert_eq!(Pacer::new(false).wait(u64::MAX, || true), None);
    }

    #[test]
    fn the_margin_is_the_third_quartile_of_the_lateness() {
        let mut margin = Margin::default();
        for round in 0..4_000 {
            // 4 to 11 us in turn; one sleep in fifty takes 5 ms.
            margin.saw(if round % 50 == 0 {
                5_000_000
            } else {
                4_000 + round * 3 % 8 * 1_000
            });
        }
        assert!((9_000..=11_000).contains(&margin.ns()), "{margin:?}");
        (0..4_000).for_each(|_| margin.saw(1_000_000));
        assert_eq!(margin.ns(), 80_000);
        (0..4_000).for_each(|_| margin.saw(0));
        assert_eq!(margin.ns(), 1_000);
    }

    #[test]
    fn a_thread_without_gaps_sleeps_all_the_same() {
        let mut pacer = Pacer::new(true);
        let begin = mono_ns();
        let credit = pacer.credit_ns;
        // 10 ms of credit and 1 ms of debt go before the first nap; a host that stops this thread may take longer.
        while pacer.credit_ns == credit && mono_ns() < begin + 5_000_000_000 {
            pacer.wait(0, || false);
        }
        assert_ne!(pacer.credit_ns, credit);
    }
}
