//! The clocks of this host and of this process, and sleep on them.

/// CLOCK_MONOTONIC.
#[must_use]
pub fn mono_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME; zero before 1970.
#[must_use]
pub fn real_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process, its ended threads included.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// How far CLOCK_TAI is ahead of CLOCK_MONOTONIC, if the kernel says that its time is kept by another clock (NTP, PTP by phc2sys)
/// and knows the leap seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tai {
    /// Add to CLOCK_MONOTONIC.
    pub ahead_ns: u64,
    /// The most that it may be off, in the kernel's own words (`maxerror` of adjtimex(2)) and by the reading of two clocks.
    pub max_error_ns: u64,
}

/// None if the clock runs free.
#[must_use]
pub fn tai() -> Option<Tai> {
    // SAFETY: all of it are numbers; without modes the call only reads.
    let mut kept: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one timex. Not by libc, whose own call is one that jobs may not make.
    let state = unsafe { libc::syscall(libc::SYS_adjtimex, &raw mut kept) };
    if state < 0 || kept.status & libc::STA_UNSYNC != 0 || kept.tai == 0 {
        return None;
    }
    let (before, tai, after) = (mono_ns(), clock_ns(libc::CLOCK_TAI), mono_ns());
    let (gap, kept_to) = (after - before, u64::try_from(kept.maxerror).ok()?);
    Some(Tai {
        ahead_ns: tai.checked_sub(before + gap / 2)?,
        max_error_ns: kept_to.saturating_mul(1000) + gap,
    })
}

/// Linux has each of these clocks, so the call cannot fail.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel (or the vDSO) writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let [seconds, ns] = [time.tv_sec, time.tv_nsec].map(|field| u64::try_from(field).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_kept_by_another_says_how_well() {
        let Some(kept) = tai() else { return };
        let now = mono_ns() + kept.ahead_ns;
        assert!(now.abs_diff(clock_ns(libc::CLOCK_TAI)) < 1_000_000_000);
        assert!(
            kept.max_error_ns < 20_000_000_000,
            "beyond 16 s it is not kept"
        );
    }

    #[test]
    fn a_sleep_ends_after_its_time() {
        let due = mono_ns() + 2_000_000;
        sleep_until(due);
        assert!(mono_ns() >= due);
    }

    #[test]
    fn a_thread_takes_no_more_than_its_process() {
        let before = process_cpu_ns();
        let thread = thread_cpu_ns();
        assert!(thread > 0 && process_cpu_ns() >= before.max(thread));
    }
}
