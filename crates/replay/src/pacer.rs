//! Waiting for a due time: sleep until shortly before it, then spin.
//!
//! How shortly is measured: a sleep ends 4 to 20 us after its time under SCHED_FIFO, and that is what the thread aims ahead; on another
//! host, or if others come first, it is another time, so each sleep corrects the aim. A sleep costs as much CPU as it is late, so a
//! shorter gap is spun through. Spinning alone burns a core and under SCHED_FIFO runs into the throttling of real-time
//! threads, which stops them for 50 ms of each second. At rates that leave no gap long enough to sleep in, a real-time thread
//! therefore takes naps, so that it leaves 6 % of its CPU to others by the clock of its CPU time; fewer if the CPU fell idle
//! in a nap, because then no other thread waits for it. A thread that has a CPU to itself only spins, and is no real-time thread.
//! Alternatives and numbers: docs/adr/0005 and 0007.

use nodrop_sys::clock::{mono_ns, sleep_until, thread_cpu_ns};
use nodrop_sys::idle::IdleCounter;
use nodrop_sys::thread::{not_realtime, realtime};

use crate::own_cpu::{OwnCpu, Spun};

/// Aims tried: no sleep is that exact, and past the other a host has no use for aiming.
const MARGIN_NS: std::ops::RangeInclusive<i64> = 1_000..=80_000;
/// Past this, the last few sleeps in a hundred are not worth the CPU that is spun away before each packet, which may be the
/// host's that is measured.
const MOST_EXACT_MARGIN_NS: i64 = 30_000;
/// How fast the aim follows: settles within some tens of sleeps, and one late sleep of 5 ms moves it as little as one of 20 us.
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
/// The nap of a thread that has no gap: twice what it takes to fall asleep and wake, so that others get half of it.
const NAP_NS: u64 = 20_000;
/// 6.5 % of a round of 10 ms and this.
const LENT_NS: u64 = 700_000;

/// Waits for one due time after the other.
#[derive(Debug)]
pub struct Pacer {
    realtime: bool,
    /// What it is while it sleeps.
    realtime_asleep: bool,
    own_cpu: Option<OwnCpu>,
    margin: Margin,
    idle: IdleCounter,
    /// Awake time left before a nap is due, at the last awakening, and when that was by the clock and by the CPU time.
    credit_ns: i64,
    awake_since_ns: u64,
    awake_since_cpu_ns: u64,
    /// Until when the thread is not a real-time thread, by its own choice; 0 if it is.
    lent_until_ns: u64,
}

impl Pacer {
    /// For the calling thread, whose sleeps are timed here for 2 ms or so; `realtime` if it runs under SCHED_FIFO, `own_cpu` if
    /// its CPU is meant for it alone.
    #[must_use]
    pub fn new(realtime: bool, own_cpu: bool, aim: Aim) -> Self {
        let mut pacer = Self {
            realtime,
            realtime_asleep: realtime,
            own_cpu: None,
            margin: Margin { aim, ns: 0 },
            idle: IdleCounter::default(),
            credit_ns: MOST_CREDIT_NS,
            awake_since_ns: mono_ns(),
            awake_since_cpu_ns: thread_cpu_ns(),
            lent_until_ns: 0,
        };
        for _ in 0..TRIALS {
            let now = mono_ns();
            pacer.sleep(now + TRIAL_NS);
        }
        if own_cpu {
            pacer.own_cpu = OwnCpu::probed();
            pacer.choose();
        }
        pacer
    }

    /// Forgets what was awake before.
    pub fn begin(&mut self) {
        self.own_cpu.iter_mut().for_each(OwnCpu::begin);
        self.account_anew();
    }

    /// Time since the beginning in which it spun, and did not sleep.
    #[must_use]
    pub fn spun_ns(&self) -> u64 {
        self.own_cpu.as_ref().map_or(0, OwnCpu::spun_ns)
    }

    fn account_anew(&mut self) {
        self.lent_until_ns = 0;
        self.credit_ns = MOST_CREDIT_NS;
        self.awake_since_ns = mono_ns();
        self.awake_since_cpu_ns = thread_cpu_ns();
    }

    /// Waits until `due_ns` of CLOCK_MONOTONIC and returns the time then; `None` if `stopped` says so.
    pub fn wait(&mut self, due_ns: u64, stopped: impl Fn() -> bool) -> Option<u64> {
        if let Some(own_cpu) = self.own_cpu.as_mut().and_then(OwnCpu::spinning) {
            match own_cpu.spin(due_ns, &stopped) {
                Spun::Due(now) => return Some(now),
                Spun::Stopped => return None,
                Spun::Wanted => self.choose(),
            }
        }
        let mut now = self.sleep_towards(due_ns, stopped)?;
        while now < due_ns {
            std::hint::spin_loop();
            now = mono_ns();
        }
        Some(now)
    }

    /// As `wait`, but about `about_ns`, which is later than `due_ns`: nothing is spun away for its sake.
    pub fn wait_about(
        &mut self,
        about_ns: u64,
        due_ns: u64,
        stopped: impl Fn() -> bool,
    ) -> Option<u64> {
        if self.own_cpu.as_mut().and_then(OwnCpu::spinning).is_some() {
            return self.wait(due_ns, stopped);
        }
        let now = self.sleep_towards(about_ns, &stopped)?;
        if now < due_ns {
            return self.wait(due_ns, stopped);
        }
        Some(now)
    }

    /// A thread that sleeps is a real-time thread if it may be one; one that spins never is.
    fn choose(&mut self) {
        let spins = self.own_cpu.as_mut().and_then(OwnCpu::spinning).is_some();
        self.realtime = !spins && self.realtime_asleep && realtime();
        self.account_anew();
    }

    /// Sleeps until the margin before a time, and naps if that is needed; the time then.
    fn sleep_towards(&mut self, due_ns: u64, stopped: impl Fn() -> bool) -> Option<u64> {
        let mut now = mono_ns();
        while now + self.margin.ns() + SHORTEST_SLEEP_NS < due_ns {
            if stopped() {
                return None;
            }
            let aim = due_ns - self.margin.ns();
            now = self.sleep(aim.min(now + LOOK_NS));
        }
        if self.lent_until_ns > 0 && self.lent_until_ns <= now {
            self.realtime = realtime();
            self.account_anew();
        }
        if self.realtime && self.credit_ns < duration_ns(self.awake_since_ns, now) {
            now = self.nap(now);
        }
        Some(now)
    }

    /// If the CPU fell idle, no other thread waits for it: this one spins on as an ordinary thread, which is not counted as real-time.
    fn nap(&mut self, now: u64) -> u64 {
        let before = self.idle.read();
        let woken = self.sleep(now + NAP_NS);
        let after = self.idle.read();
        if before
            .zip(after)
            .is_some_and(|(before, after)| after.is_after(before))
        {
            not_realtime();
            self.realtime = false;
            self.lent_until_ns = woken + LENT_NS;
        }
        woken
    }

    fn sleep(&mut self, until: u64) -> u64 {
        sleep_until(until);
        let woken = mono_ns();
        self.margin.saw(duration_ns(until, woken));
        if self.realtime {
            self.account(woken);
        }
        woken
    }

    /// By the CPU time: falling asleep and waking is no time that others have, and a short sleep is nothing else.
    fn account(&mut self, woken: u64) {
        let cpu = thread_cpu_ns();
        let spent = duration_ns(self.awake_since_cpu_ns, cpu);
        let left = (duration_ns(self.awake_since_ns, woken) - spent).max(0);
        self.credit_ns = (self.credit_ns - spent)
            .saturating_add(left.saturating_mul(AWAKE_PER_SLEEP))
            .min(MOST_CREDIT_NS);
        self.awake_since_ns = woken;
        self.awake_since_cpu_ns = cpu;
    }
}

/// How many of the sleeps shall end in time.
#[derive(Debug, Clone, Copy)]
pub enum Aim {
    /// 49 of 50 if that takes no more than MOST_EXACT_MARGIN_NS, else three of four: for packets that have one time.
    Exact,
    /// One of two: for packets that leave about their time.
    Thrifty,
}

/// What that share of sleeps is late at most: a little down or a lot up after each, in the ratio of the share, which needs no memory
/// of them.
#[derive(Debug, Clone, Copy)]
struct Margin {
    aim: Aim,
    ns: i64,
}

impl Margin {
    fn saw(&mut self, late_ns: i64) {
        let (up, down) = match self.aim {
            Aim::Exact if self.ns < MOST_EXACT_MARGIN_NS => {
                (MARGIN_STEP_NS * 49 / 10, MARGIN_STEP_NS / 10)
            }
            Aim::Exact => (MARGIN_STEP_NS * 3 / 4, MARGIN_STEP_NS / 4),
            Aim::Thrifty => (MARGIN_STEP_NS / 2, MARGIN_STEP_NS / 2),
        };
        let step = if late_ns > self.ns { up } else { -down };
        self.ns = (self.ns + step).clamp(*MARGIN_NS.start(), *MARGIN_NS.end());
    }

    fn ns(self) -> u64 {
        self.ns.unsigned_abs()
    }
}

fn duration_ns(since: u64, now: u64) -> i64 {
    i64::try_from(now.saturating_sub(since)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pacer(realtime: bool) -> Pacer {
        Pacer::new(realtime, false, Aim::Exact)
    }

    #[test]
    fn never_early() {
        let mut pacer = pacer(false);
        for gap in [0, 1_000, 50_000, 500_000] {
            let due = mono_ns() + gap;
            assert!(pacer.wait(due, || false).unwrap() >= due);
        }
    }

    #[test]
    fn a_stop_ends_a_long_wait() {
        assert_eq!(pacer(false).wait(u64::MAX, || true), None);
    }

    /// 4 to 11 us in turn; one sleep in a hundred takes 5 ms.
    fn margin_us(aim: Aim) -> i64 {
        let mut margin = Margin { aim, ns: 0 };
        for round in 0..8_000 {
            margin.saw(if round % 100 == 0 {
                5_000_000
            } else {
                4_000 + round * 3 % 8 * 1_000
            });
        }
        margin.ns / 1_000
    }

    #[test]
    fn the_margin_is_the_lateness_that_so_many_sleeps_keep_below() {
        assert!((7..=8).contains(&margin_us(Aim::Thrifty)));
        assert!((10..=13).contains(&margin_us(Aim::Exact)));
    }

    #[test]
    fn a_host_whose_sleeps_end_late_is_not_spun_on_for_the_last_of_them() {
        for (aim, us) in [(Aim::Thrifty, 19..=21), (Aim::Exact, 29..=33)] {
            let mut margin = Margin { aim, ns: 0 };
            // 20 us, one in ten 60.
            (0..8_000).for_each(|round| margin.saw(if round % 10 == 0 { 60_000 } else { 20_000 }));
            assert!(us.contains(&(margin.ns / 1_000)), "{margin:?}");
        }
    }

    #[test]
    fn the_margin_has_bounds() {
        let aim = Aim::Thrifty;
        let mut margin = Margin { aim, ns: 0 };
        (0..4_000).for_each(|_| margin.saw(1_000_000));
        assert_eq!(margin.ns(), 80_000);
        (0..4_000).for_each(|_| margin.saw(0));
        assert_eq!(margin.ns(), 1_000);
    }

    #[test]
    fn about_a_time_is_not_before_it_is_due() {
        let mut pacer = Pacer::new(false, false, Aim::Thrifty);
        for gap in [0, 30_000, 1_000_000] {
            let due = mono_ns() + gap;
            assert!(pacer.wait_about(due + 200_000, due, || false).unwrap() >= due);
        }
    }

    #[test]
    fn a_thread_without_gaps_is_no_real_time_thread_for_long() {
        let mut pacer = pacer(true);
        pacer.begin();
        let begin = mono_ns();
        let (mut took, mut share, mut realtime_ns) = (0, 1.0, 0);
        // 15 : 16 of what is past the 10 ms that may be saved up. The hypervisor's time looks like ours, and takes longer to pay for.
        while share > 0.95 && took < 10_000_000_000 {
            let (counts, cpu) = (pacer.realtime, thread_cpu_ns());
            pacer.wait(0, || false);
            realtime_ns += if counts { thread_cpu_ns() - cpu } else { 0 };
            took = mono_ns() - begin;
            if took > 100_000_000 {
                share = realtime_ns as f64 / took as f64;
            }
        }
        assert!(share <= 0.95, "{share}");
    }

    /// The scheduling class of the calling thread: the 41st number of its `stat`.
    fn policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name
            .split_ascii_whitespace()
            .nth(38)
            .unwrap()
            .parse()
            .unwrap()
    }

    /// More busy threads than CPUs, so one of them wants this thread's.
    #[test]
    fn a_thread_that_must_not_spin_is_in_the_class_it_had() {
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * 2;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            for aim in [Aim::Exact, Aim::Thrifty] {
                let granted = realtime();
                let before = policy();
                let mut pacer = Pacer::new(granted, true, aim);
                pacer.begin();
                while pacer.own_cpu.as_mut().and_then(OwnCpu::spinning).is_some() {
                    pacer.wait(mono_ns() + 1_000_000, || false);
                }
                assert_eq!((pacer.realtime, policy()), (granted, before));
                not_realtime();
            }
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
