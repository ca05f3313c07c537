//! What a look at the clock costs here: one instruction sequence at a time, so that a cost is blamed on the instruction that has it.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __rdtscp, _mm_lfence, _rdtsc};
use std::hint::black_box;

use crate::clock::own_mono_ns;

/// A batch lasts this long, so that the clock around it costs next to nothing.
const BATCH_NS: u64 = 200_000;

/// ns per operation in each of several batches, ascending.
pub type Batches = Vec<f64>;

/// Every sequence that is timed, by name.
#[must_use]
pub fn measure(batches: usize) -> Vec<(&'static str, Batches)> {
    let sequences: [(&'static str, fn()); 8] = [
        ("rdtsc", rdtsc),
        ("lfence_rdtsc", lfence_rdtsc),
        ("rdtscp", rdtscp),
        ("cpuid", cpuid),
        ("cpuid_rdtsc_cpuid", cpuid_rdtsc_cpuid),
        ("clock_gettime", clock_gettime),
        ("syscall_getppid", getppid),
        ("loop_100", loop_100),
    ];
    sequences
        .into_iter()
        .map(|(name, sequence)| (name, time(sequence, batches)))
        .collect()
}

fn time(sequence: fn(), batches: usize) -> Batches {
    let mut count = 4;
    while batch_ns(sequence, count) < BATCH_NS {
        count *= 2;
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let mut found: Batches = (0..batches)
        .map(|_| batch_ns(sequence, count) as f64 / count as f64)
        .collect();
    found.sort_by(f64::total_cmp);
    found
}

fn batch_ns(sequence: fn(), count: u64) -> u64 {
    let began = own_mono_ns();
    for _ in 0..count {
        sequence();
    }
    own_mono_ns() - began
}

fn rdtsc() {
    // SAFETY: reads a counter; a kernel that forbids it (PR_SET_TSC) would end us, as it would any program that times itself.
    black_box(unsafe { _rdtsc() });
}

fn lfence_rdtsc() {
    // SAFETY: a fence; SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    rdtsc();
}

fn rdtscp() {
    let mut cpu = 0;
    // SAFETY: writes the one word given; every x86-64 CPU since 2008 has it.
    black_box(unsafe { __rdtscp(&raw mut cpu) });
}

fn cpuid() {
    // SAFETY: leaf 0 is defined on every x86-64 CPU. (Newer compilers call this intrinsic safe.)
    #[allow(unused_unsafe)]
    black_box(unsafe { __cpuid(0) });
}

/// How Suricata 3 timed a packet in its profiling builds.
fn cpuid_rdtsc_cpuid() {
    cpuid();
    rdtsc();
    cpuid();
}

fn clock_gettime() {
    black_box(own_mono_ns());
}

fn getppid() {
    // SAFETY: takes nothing, cannot fail.
    black_box(unsafe { libc::syscall(libc::SYS_getppid) });
}

fn loop_100() {
    // SAFETY: counts a register of its own down to zero.
    unsafe {
        asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) 100u64 => _, options(nomem, nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_has_batches_in_ascending_order() {
        let found: std::collections::BTreeMap<_, _> = measure(3).into_iter().collect();
        assert_eq!(found.len(), 8);
        for batches in found.values() {
            assert!(batches.len() == 3 && batches[0] > 0.0 && batches.is_sorted());
        }
    }
}
