//! How long the calling thread has waited for a CPU.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// The second number of a thread's `schedstat` (Documentation/scheduler/sched-stats.rst): time in which it could have run and
/// another thread did. What a hypervisor or an interrupt takes is not in it.
#[derive(Debug)]
pub struct RunQueueDelay {
    schedstat: File,
}

impl RunQueueDelay {
    /// Of the calling thread, whoever reads it; `None` if this kernel does not count it.
    #[must_use]
    pub fn open() -> Option<Self> {
        let schedstat = File::open("/proc/thread-self/schedstat").ok()?;
        let delay = Self { schedstat };
        // A kernel that does not count has zeroes, and this thread has run.
        delay.number(0).filter(|ran_ns| *ran_ns > 0)?;
        Some(delay)
    }

    /// Since the thread began; one read(2), some 0.5 us.
    #[must_use]
    pub fn ns(&self) -> Option<u64> {
        self.number(1)
    }

    fn number(&self, place: usize) -> Option<u64> {
        let mut text = [0; 64];
        let length = self.schedstat.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        text.split_ascii_whitespace().nth(place)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::mono_ns;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn what_another_thread_takes_is_seen() {
        let Some(delay) = RunQueueDelay::open() else {
            return; // not counted by this kernel
        };
        let begin = delay.ns();
        // More threads than there are CPUs: each waits for the others, sooner or later.
        let until = mono_ns() + 60_000_000_000;
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * 2;
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            while delay.ns() <= begin && mono_ns() < until {}
            is_done.store(true, Ordering::Relaxed);
        });
        assert!(delay.ns() > begin);
    }
}
