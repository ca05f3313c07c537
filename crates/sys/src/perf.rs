//! perf_event_open(2): samples of what a thread runs, records of when it leaves and takes a CPU, and counters.
//!
//! Times are CLOCK_MONOTONIC, as everywhere in nodrop.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

mod samples;

pub use samples::{Every, IN_KERNEL, IN_PROGRAM, Program, Record, Samples};

/// What an event counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A timer of the CPU time of the thread; every kernel has it.
    CpuClock,
    /// Each time the thread leaves its CPU.
    Switches,
    /// Each time the thread goes on on another CPU.
    Migrations,
    /// CPU cycles, if the CPU and its hypervisor count them.
    Cycles,
    /// Instructions that were completed.
    Instructions,
    /// Misses of the last cache before memory, as the CPU defines them.
    CacheMisses,
}

impl Event {
    /// `type` and `config` of perf_event_attr.
    const fn numbers(self) -> (u32, u64) {
        match self {
            Self::CpuClock => (1, 0),
            Self::Switches => (1, 3),
            Self::Migrations => (1, 4),
            Self::Cycles => (0, 0),
            Self::Instructions => (0, 1),
            Self::CacheMisses => (0, 3),
        }
    }
}

/// Why an event cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// To this user, or by the level of kernel.perf_event_paranoid.
    NotPermitted,
    /// The kernel was built without, or a filter of system calls says so.
    NoPerfEvents,
    /// The CPU, or its hypervisor, has no such counter.
    NoSuchEvent,
    /// Anything else: the thread has ended, there are too many open files.
    Other,
}

impl Refusal {
    /// By the number of the error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted,
            Some(libc::ENOSYS) => Self::NoPerfEvents,
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Self::NoSuchEvent,
            _ => Self::Other,
        }
    }
}

/// perf_event_attr up to PERF_ATTR_SIZE_VER5 (Linux 4.1).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config_1: u64,
    config_2: u64,
    branches: u64,
    user_registers: u64,
    user_stack: u32,
    clock: i32,
    interrupt_registers: u64,
    auxiliary: u32,
    most_frames: u16,
    reserved: u16,
}

const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCK: u64 = 1 << 25;

const TIME_ENABLED: u64 = 1;
const TIME_RUNNING: u64 = 1 << 1;

impl Attributes {
    fn new(event: Event, with_kernel: bool) -> Self {
        let (kind, config) = event.numbers();
        let mut flags = EXCLUDE_HYPERVISOR | SAMPLE_ID_ALL | USE_CLOCK;
        if !with_kernel {
            flags |= EXCLUDE_KERNEL;
        }
        Self {
            kind,
            config,
            flags,
            size: 112,
            clock: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    fn open(&self, tid: u32) -> Result<OwnedFd> {
        const CLOSE_ON_EXEC: libc::c_ulong = 8;
        let tid = libc::pid_t::try_from(tid).map_err(|_| Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: the attributes live through the call and `size` is theirs; on any CPU (-1), in no group (-1).
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(self),
                tid,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        match i32::try_from(opened) {
            // SAFETY: a new descriptor that is ours alone.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(Error::last_os_error()),
        }
    }
}

/// A counter of one thread.
#[derive(Debug)]
pub struct Counter(OwnedFd);

impl Counter {
    /// # Errors
    /// What perf_event_open(2) says: ENOENT if there is no such counter here, EACCES if it is not permitted.
    pub fn open(event: Event, tid: u32, with_kernel: bool) -> Result<Self> {
        let attributes = Attributes::new(event, with_kernel);
        let attributes = Attributes {
            read_format: TIME_ENABLED | TIME_RUNNING,
            ..attributes
        };
        attributes.open(tid).map(Self)
    }

    /// What was counted since it was opened.
    ///
    /// # Errors
    /// What read(2) says.
    pub fn read(&self) -> Result<Counted> {
        let mut words = [0u64; 3];
        let bytes = size_of_val(&words);
        // SAFETY: the kernel writes the three words.
        let read = unsafe { libc::read(self.0.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
        if usize::try_from(read) != Ok(bytes) {
            return Err(Error::last_os_error());
        }
        let [value, enabled_ns, running_ns] = words;
        Ok(Counted {
            value,
            enabled_ns,
            running_ns,
        })
    }
}

/// What a counter shows. Counters of the CPU take turns if more are asked for than it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// What it saw in its turns.
    pub value: u64,
    /// Time of the thread on a CPU.
    pub enabled_ns: u64,
    /// The part of it in which this counter had its turn.
    pub running_ns: u64,
}

impl Counted {
    /// What came since, reckoned for the whole time if it had only part of it. `None`: it never had its turn, though the thread ran.
    #[must_use]
    pub fn since(self, before: Self) -> Option<u64> {
        let value = u128::from(self.value.saturating_sub(before.value));
        let enabled = u128::from(self.enabled_ns.saturating_sub(before.enabled_ns));
        let running = u128::from(self.running_ns.saturating_sub(before.running_ns));
        match running {
            0 if enabled > 0 => None,
            _ if running >= enabled => u64::try_from(value).ok(),
            _ => u64::try_from(value * enabled / running).ok(),
        }
    }

    /// Time of the thread on a CPU in which it did not count.
    #[must_use]
    pub fn uncounted_ns(self, before: Self) -> u64 {
        let enabled = self.enabled_ns.saturating_sub(before.enabled_ns);
        enabled.saturating_sub(self.running_ns.saturating_sub(before.running_ns))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_counter_that_took_turns_is_reckoned_for_the_whole_time() {
        let counted = |value, enabled_ns, running_ns| Counted {
            value,
            enabled_ns,
            running_ns,
        };
        let nothing = Counted::default();
        for (now, before, expected, uncounted_ns) in [
            (counted(500, 100, 100), nothing, Some(500), 0),
            (counted(500, 100, 50), nothing, Some(1000), 50),
            (counted(500, 100, 25), counted(300, 60, 15), Some(800), 30),
            // A thread that did not run, and a counter that never had its turn.
            (counted(500, 100, 50), counted(500, 100, 50), Some(0), 0),
            (counted(0, 100, 0), nothing, None, 100),
            // No overflow on the way: 2^63 in a half of 2^63 ns.
            (
                counted(1 << 62, 1 << 63, 1 << 62),
                nothing,
                Some(1 << 63),
                1 << 62,
            ),
        ] {
            assert_eq!(now.since(before), expected);
            assert_eq!(now.uncounted_ns(before), uncounted_ns);
        }
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        let opened = Counter::open(Event::CpuClock, u32::MAX, false);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
