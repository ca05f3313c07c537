//! Clock, sleep, pinning and priority of the calling thread.

use std::io::Error;

/// CLOCK_MONOTONIC.
#[must_use]
pub fn mono_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel (or the vDSO) writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Both clocks begin at zero and only grow.
    let [seconds, ns] = [time.tv_sec, time.tv_nsec].map(|field| u64::try_from(field).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

/// Sleeps to a time of CLOCK_MONOTONIC; a signal may end it early.
pub fn sleep_until(mono_ns: u64) {
    let [tv_sec, tv_nsec] = [mono_ns / 1_000_000_000, mono_ns % 1_000_000_000]
        .map(|field| i64::try_from(field).unwrap_or(i64::MAX));
    let time = libc::timespec { tv_sec, tv_nsec };
    // SAFETY: the time lives through the call; no remainder is asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
}

/// Wakes the calling thread when it asked, not up to 50 us later.
pub fn exact_timers() {
    // SAFETY: this prctl(2) takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize) };
}

/// Gives the calling thread SCHED_FIFO at the lowest priority; false where that is not permitted.
#[must_use]
pub fn realtime() -> bool {
    schedule(libc::SCHED_FIFO, 1)
}

/// Gives the calling thread SCHED_OTHER again.
pub fn not_realtime() {
    schedule(libc::SCHED_OTHER, 0);
}

/// By the system call: musl's sched_setscheduler(3) always fails, for POSIX means the process and Linux the thread.
fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel's sched_param is this one int, which lives through the call; thread 0 is the caller.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// Where there is no such CPU or it is not allowed.
pub fn pin(cpu: u32) -> Result<(), Error> {
    let cpu = cpu as usize;
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a cpu_set_t is a plain bit field, all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the bit lies in the set, it was compared with its size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set lives through the call and its length is its own; thread 0 is the caller.
    let done = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if done == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// Keeps what is mapped now in memory, where the limit on locked memory allows it; false where not.
#[must_use]
pub fn lock_memory() -> bool {
    // SAFETY: takes no pointers, changes no contents.
    unsafe { libc::mlockall(libc::MCL_CURRENT) == 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sleep_ends_after_its_time() {
        let due = mono_ns() + 2_000_000;
        sleep_until(due);
        assert!(mono_ns() >= due);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(pin(100_000).is_err());
        assert!(pin(1_023).is_err());
    }
}
