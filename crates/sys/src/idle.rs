//! What CPUs do while no thread runs on them.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Asks for a wake-up latency of 0 us: every CPU of this host idles in a state that it leaves at once, for as long as this lives
/// (Documentation/power/pm_qos_interface.rst). If the guest has cpuidle-haltpoll, a virtual CPU then polls instead of being
/// woken by its hypervisor, which takes 15 to 50 us.
#[derive(Debug)]
pub struct ShallowIdle {
    _request: File,
}

impl ShallowIdle {
    /// `None` if that is not permitted or this kernel lacks it.
    #[must_use]
    pub fn ask() -> Option<Self> {
        let mut request = File::options()
            .write(true)
            .open("/dev/cpu_dma_latency")
            .ok()?;
        request.write_all(&0_i32.to_ne_bytes()).ok()?;
        Some(Self { _request: request })
    }
}

/// How often a CPU fell idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleEntries {
    cpu: usize,
    entries: u64,
}

impl IdleEntries {
    /// Whether the CPU fell idle since an earlier reading; not known of two CPUs.
    #[must_use]
    pub fn is_after(self, earlier: Self) -> bool {
        self.cpu == earlier.cpu && self.entries > earlier.entries
    }
}

/// Reads how often the CPU of the calling thread fell idle (Documentation/admin-guide/pm/cpuidle.rst, `usage`).
#[derive(Debug, Default)]
pub struct IdleCounter {
    /// The CPU at hand, and the counters of its idle states.
    held: Option<(usize, Vec<File>)>,
}

impl IdleCounter {
    /// `None` if the kernel has no cpuidle driver. Opens files when the thread has come to another CPU.
    pub fn read(&mut self) -> Option<IdleEntries> {
        // SAFETY: takes nothing and returns a number, or -1.
        let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).ok()?;
        let held = self.held.take_if(|(before, _)| *before == cpu);
        let (_, states) = self.held.insert(held.unwrap_or_else(|| (cpu, states(cpu))));
        let entries = states.iter().map(number).sum::<Option<u64>>()?;
        (!states.is_empty()).then_some(IdleEntries { cpu, entries })
    }
}

fn states(cpu: usize) -> Vec<File> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let usage = |state: u32| Path::new(&folder).join(format!("state{state}/usage"));
    (0..)
        .map_while(|state| File::open(usage(state)).ok())
        .collect()
}

fn number(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length])
        .ok()?
        .trim_end()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{mono_ns, sleep_until};

    #[test]
    fn a_sleep_on_an_idle_cpu_is_seen_and_spinning_is_not() {
        let mut counter = IdleCounter::default();
        // Other CPUs and other threads come in between; in a minute one of each is seen.
        let (mut slept, mut spun) = (false, false);
        let until = mono_ns() + 60_000_000_000;
        while !(slept && spun) && mono_ns() < until {
            let Some(before) = counter.read() else {
                return; // no cpuidle driver here
            };
            sleep_until(mono_ns() + 1_000_000);
            let between = counter.read();
            slept |= between.is_some_and(|now| now.is_after(before));
            let after = counter.read();
            spun |= between.is_some() && after == between;
        }
        assert!(slept && spun);
    }

    #[test]
    fn two_cpus_are_not_compared() {
        let at = |cpu, entries| IdleEntries { cpu, entries };
        assert!(at(1, 3).is_after(at(1, 2)));
        assert!(!at(1, 2).is_after(at(1, 2)));
        assert!(!at(0, 9).is_after(at(1, 2)));
    }
}
