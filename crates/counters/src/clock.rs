//! Units the kernel counts in, and the clocks that are system calls instead of files.

use std::time::Duration;

use crate::{CounterError, Result};

/// Length of a USER_HZ tick, the unit of `/proc/stat` and `/proc/PID/stat`.
pub fn tick_ns() -> u64 {
    // SAFETY: no pointers.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(hz)
        .ok()
        .filter(|hz| *hz > 0)
        .map_or(10_000_000, |hz| 1_000_000_000 / hz)
}

/// Bytes of a page, the unit of memory in `/proc/PID/stat`.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// CPU time of a whole process in ns, its ended threads included: exact up to the call, whereas `/proc/PID/stat` has ticks and
/// schedstat only the main thread.
pub(crate) fn process_cpu_ns(pid: u32) -> Result<u64> {
    let mut clock = 0;
    let pid = libc::pid_t::try_from(pid).unwrap_or(libc::pid_t::MAX);
    // SAFETY: the pointer is to a live clockid_t.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => clock_ns(clock, "clock_gettime(CPU of a process)"),
        errno => Err(CounterError::Kernel {
            call: "clock_getcpuclockid",
            source: std::io::Error::from_raw_os_error(errno),
        }),
    }
}

/// CLOCK_MONOTONIC.
#[must_use]
pub(crate) fn own_mono_ns() -> u64 {
    // The clock is always there.
    clock_ns(libc::CLOCK_MONOTONIC, "clock_gettime(CLOCK_MONOTONIC)").unwrap_or_default()
}

fn clock_ns(clock: libc::clockid_t, call: &'static str) -> Result<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(CounterError::last_os(call));
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Ok(u64::try_from(Duration::new(seconds, nanos).as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_process_is_that_of_all_its_threads() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        let thread = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID, "").unwrap();
        let after = process_cpu_ns(std::process::id()).unwrap();
        assert!(after >= before.max(thread));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        const PID_MAX_LIMIT: u32 = 4 << 20;
        assert!(process_cpu_ns(PID_MAX_LIMIT + 1).is_err());
    }
}
