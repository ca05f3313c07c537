//! Timers, pinning, priority and memory of the calling thread.

use std::io::Error;

/// Wakes the calling thread when it asked, not up to 50 us later.
pub fn exact_timers() {
    // SAFETY: this prctl(2) takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize) };
}

/// Gives the calling thread SCHED_FIFO at the lowest priority; false if that is not permitted.
#[must_use]
pub fn realtime() -> bool {
    schedule(libc::SCHED_FIFO, 1)
}

/// Gives the calling thread SCHED_OTHER again.
pub fn not_realtime() {
    schedule(libc::SCHED_OTHER, 0);
}

/// By the system call: musl's sched_setscheduler(3) always fails, because POSIX means the process and Linux the thread.
fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel's sched_param is this one int, which lives through the call; thread 0 is the caller.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// If there is no such CPU or it is not allowed.
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

/// Keeps what is mapped now in memory; false if the limit on locked memory forbids it.
#[must_use]
pub fn lock_memory() -> bool {
    // SAFETY: takes no pointers, changes no contents.
    unsafe { libc::mlockall(libc::MCL_CURRENT) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(pin(100_000).is_err());
        assert!(pin(1_023).is_err());
    }
}
