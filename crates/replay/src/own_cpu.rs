//! A CPU that a sender has to itself: there it waits by spinning, as an ordinary thread, until another thread wants that CPU.
//!
//! The time that a thread has waited for its CPU says so. It is read when the clock has jumped, so spinning costs a system call per
//! interruption and none per packet. Once another thread had work to do there, this one sleeps for the rest of the
//! replay: each further attempt would cost both a time slice. docs/adr/0017.

use nodrop_sys::clock::{mono_ns, sleep_until};
use nodrop_sys::run_queue::RunQueueDelay;
use nodrop_sys::thread::not_realtime;

/// A jump of the clock that is looked into: longer than an interrupt, shorter than a time slice.
const JUMP_NS: u64 = 50_000;
/// A thread that takes so much of the CPU in one go has work to do; the kernel's own take some 10 us.
const WANTED_NS: u64 = 100_000;
/// Spun before the start: two ticks of a kernel with 100 a second, so that whoever waits has got a slice.
const PROBE_NS: u64 = 20_000_000;
/// A nap lets threads run that would otherwise wait for the next tick. One in 100 ms makes one packet in 1,000 late at most.
const NAP_EVERY_NS: u64 = 100_000_000;
const NAP_NS: u64 = 20_000;
/// A nap in a gap of this length makes no packet late.
const ROOM_NS: u64 = 200_000;
/// Between two looks at whether to stop.
const LOOK_NS: u64 = 1_000_000;

/// What ended a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Spun {
    /// It is time, and this is the time.
    Due(u64),
    Stopped,
    /// Another thread wants the CPU.
    Wanted,
}

#[derive(Debug)]
pub(crate) struct OwnCpu {
    delay: RunQueueDelay,
    delayed_ns: u64,
    is_wanted: bool,
    seen_ns: u64,
    nap_ns: u64,
    began_ns: u64,
    /// What was spun, once another thread wants the CPU.
    spun_ns: u64,
}

impl OwnCpu {
    /// Makes the calling thread an ordinary one, and spins for a while to see whether another thread wants its CPU. `None` if this
    /// kernel does not say how long a thread has waited.
    pub(crate) fn probed() -> Option<Self> {
        let delay = RunQueueDelay::open()?;
        not_realtime();
        let now = mono_ns();
        let mut own = Self {
            delayed_ns: delay.ns()?,
            delay,
            is_wanted: false,
            seen_ns: now,
            nap_ns: now + NAP_EVERY_NS,
            began_ns: now,
            spun_ns: 0,
        };
        own.spin(now + PROBE_NS, || false);
        Some(own)
    }

    /// Counts what is spun from now on.
    pub(crate) fn begin(&mut self) {
        self.began_ns = mono_ns();
        self.spun_ns = 0;
    }

    /// `None` once another thread has wanted the CPU.
    pub(crate) fn spinning(&mut self) -> Option<&mut Self> {
        (!self.is_wanted).then_some(self)
    }

    /// Spins until a time.
    pub(crate) fn spin(&mut self, due_ns: u64, stopped: impl Fn() -> bool) -> Spun {
        let mut now = mono_ns();
        let mut look_ns = now + LOOK_NS;
        if now >= self.nap_ns && (now + ROOM_NS < due_ns || now >= self.nap_ns + NAP_EVERY_NS) {
            sleep_until(now + NAP_NS);
            now = mono_ns();
            self.nap_ns = now + NAP_EVERY_NS;
        }
        loop {
            if now - self.seen_ns > JUMP_NS && self.looks_wanted() {
                self.spun_ns = now - self.began_ns;
                return Spun::Wanted;
            }
            self.seen_ns = now;
            if now >= due_ns {
                return Spun::Due(now);
            }
            if now >= look_ns {
                if stopped() {
                    return Spun::Stopped;
                }
                look_ns = now + LOOK_NS;
            }
            std::hint::spin_loop();
            now = mono_ns();
        }
    }

    /// By what has waited since the last look.
    fn looks_wanted(&mut self) -> bool {
        let before = self.delayed_ns;
        // A counter that is gone proves nothing, so the CPU is left to others.
        self.delayed_ns = self.delay.ns().unwrap_or(u64::MAX);
        self.is_wanted = self.delayed_ns - before > WANTED_NS;
        self.is_wanted
    }

    /// Time since the beginning in which it spun.
    pub(crate) fn spun_ns(&self) -> u64 {
        if self.is_wanted {
            self.spun_ns
        } else {
            mono_ns() - self.began_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const MINUTE_NS: u64 = 60_000_000_000;

    #[test]
    fn it_spins_to_the_time_and_never_ends_early() {
        let Some(mut own) = OwnCpu::probed() else {
            return; // not counted by this kernel
        };
        for gap in [0, 1_000, 50_000, 500_000] {
            let due = mono_ns() + gap;
            if let Spun::Due(now) = own.spin(due, || false) {
                assert!(now >= due);
            }
        }
    }

    #[test]
    fn a_stop_ends_a_long_wait() {
        if let Some(mut own) = OwnCpu::probed() {
            assert_ne!(own.spin(u64::MAX, || true), Spun::Due(u64::MAX));
        }
    }

    /// Threads that never sleep, more than there are CPUs: one of them wants this thread's.
    #[test]
    fn it_leaves_the_cpu_to_another_thread_and_says_how_long_it_had_it() {
        let is_done = AtomicBool::new(false);
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * 2;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            if let Some(mut own) = OwnCpu::probed() {
                own.begin();
                let is_wanted = own.is_wanted;
                let until = mono_ns() + MINUTE_NS;
                if !is_wanted {
                    assert_eq!(own.spin(until, || false), Spun::Wanted);
                }
                assert!(own.spinning().is_none());
                let spun = own.spun_ns();
                assert_eq!(spun == 0, is_wanted);
                assert_eq!(own.spun_ns(), spun, "it no longer spins");
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
}
