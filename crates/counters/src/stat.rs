//! CPU time of the host from `/proc/stat`, in ns since boot, nothing counted twice.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::clock::tick_ns;
use crate::held::HeldFile;

/// One CPU. Without VIRT_CPU_ACCOUNTING these are samples taken at each timer tick (4 ms at HZ=250), printed in USER_HZ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct CpuTimes {
    /// As in `/sys/devices/system/cpu/cpuN`; offline CPUs have no row.
    pub cpu: u32,
    /// Without the time of guests, which the kernel counts in here as well.
    pub user_ns: u64,
    /// Likewise.
    pub nice_ns: u64,
    /// In the kernel for a process.
    pub system_ns: u64,
    /// Nothing to do.
    pub idle_ns: u64,
    /// Nothing to do but a disk to wait for; known to be unreliable.
    pub iowait_ns: u64,
    /// Hard interrupts.
    pub irq_ns: u64,
    /// Soft interrupts: where packets are received.
    pub softirq_ns: u64,
    /// Wanted by us, given to another guest by the hypervisor.
    pub steal_ns: u64,
    /// Spent in guests of ours.
    pub guest_ns: u64,
    /// Spent in niced guests of ours.
    pub guest_nice_ns: u64,
}

impl CpuTimes {
    /// Everything but idle, iowait and steal.
    pub fn busy_ns(&self) -> u64 {
        [
            self.user_ns,
            self.nice_ns,
            self.system_ns,
            self.irq_ns,
            self.softirq_ns,
            self.guest_ns,
            self.guest_nice_ns,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// Everything.
    pub fn total_ns(&self) -> u64 {
        [self.idle_ns, self.iowait_ns, self.steal_ns]
            .into_iter()
            .fold(self.busy_ns(), u64::saturating_add)
    }
}

/// Reads `/proc/stat`.
#[derive(Debug)]
pub struct StatReader {
    file: HeldFile,
    buffer: Vec<u8>,
    tick_ns: u64,
}

impl StatReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        let file = HeldFile::open(root.join("proc/stat"))?.in_one_piece();
        Ok(Self {
            file,
            buffer: Vec::new(),
            tick_ns: tick_ns(),
        })
    }

    /// Replaces `cpus` by the present times.
    pub fn read(&mut self, cpus: &mut Vec<CpuTimes>) -> Result<()> {
        cpus.clear();
        // The first line is the sum; the CPUs follow it; then a very long line of interrupts.
        for mut line in self.file.read(&mut self.buffer)?.lines().skip(1) {
            let name = line.word("a name")?;
            let Some(number) = name.strip_prefix("cpu") else {
                break;
            };
            let cpu = number.parse().map_err(|_| line.wrong(name, "a CPU"))?;
            let mut next = || {
                let ticks = line.number_if_present::<u64>()?.unwrap_or(0);
                Ok(ticks.saturating_mul(self.tick_ns))
            };
            let mut times = CpuTimes {
                cpu,
                user_ns: next()?,
                nice_ns: next()?,
                system_ns: next()?,
                idle_ns: next()?,
                iowait_ns: next()?,
                irq_ns: next()?,
                softirq_ns: next()?,
                steal_ns: next()?,
                guest_ns: next()?,
                guest_nice_ns: next()?,
            };
            times.user_ns = times.user_ns.saturating_sub(times.guest_ns);
            times.nice_ns = times.nice_ns.saturating_sub(times.guest_nice_ns);
            cpus.push(times);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fixture, fixture_with};

    #[test]
    fn guests_are_not_counted_twice() {
        let root = fixture_with(
            "proc/stat",
            "cpu 9 9\ncpu3 100 20 3 4 5 6 7 8 60 15\nintr 1 2 3\n",
        );
        let mut cpus = Vec::new();
        StatReader::new(root.path())
            .unwrap()
            .read(&mut cpus)
            .unwrap();
        let tick = tick_ns();
        let times = CpuTimes {
            cpu: 3,
            user_ns: 40 * tick,
            nice_ns: 5 * tick,
            system_ns: 3 * tick,
            idle_ns: 4 * tick,
            iowait_ns: 5 * tick,
            irq_ns: 6 * tick,
            softirq_ns: 7 * tick,
            steal_ns: 8 * tick,
            guest_ns: 60 * tick,
            guest_nice_ns: 15 * tick,
        };
        assert_eq!(cpus, [times]);
        assert_eq!(times.total_ns(), (100 + 20 + 3 + 4 + 5 + 6 + 7 + 8) * tick);
        assert_eq!(times.busy_ns(), times.total_ns() - (4 + 5 + 8) * tick);
    }

    #[test]
    fn a_6_18_kernel_with_two_cpus() {
        let mut cpus = Vec::new();
        StatReader::new(&fixture())
            .unwrap()
            .read(&mut cpus)
            .unwrap();
        assert_eq!(
            cpus.iter().map(|times| times.cpu).collect::<Vec<_>>(),
            [0, 1]
        );
        assert!(
            cpus.iter()
                .all(|times| times.idle_ns > 0 && times.user_ns > 0)
        );
    }
}
