//! Speed of single CPUs while they are used. A hyper-thread whose core another guest or program uses as well runs at about half
//! of its speed: the kernel counts that as time of the thread that ran, neither as steal nor as waiting.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nodrop_proto::JobError;
use nodrop_sys::clock::{mono_ns, thread_cpu_ns};
use nodrop_sys::thread::pin;
use schemars::JsonSchema;
use serde::Serialize;

use crate::session::Session;

const EVERY_NS: u64 = 10_000_000;
/// A few microseconds: 0.2 % of a CPU with two loops at each look.
const ROUNDS: u32 = 1_000;
/// Chains of which none waits for another: they use a core as fully as a search for patterns does.
const CHAINS: usize = 8;
/// A look that took so many times as long as a fast one found the CPU slow.
const SLOW: f64 = 1.25;
/// One look in so many is faster than the one that stands for the full speed: single ones are too fast by the clock's error.
const FASTER: usize = 20;
const LEAST_LOOKS: usize = 50;
const MOST_LOOKS: usize = 1 << 20;

/// Changes of one CPU's speed.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "SampledSpeed")]
pub struct SpeedResult {
    cpu: u32,
    looks: usize,
    /// Part of the looks that found the CPU at less than four fifths of its speed.
    slow_ratio: f64,
    /// Its speed at such a look as a part of its speed at a fast one, the median.
    slow_speed_ratio: Option<f64>,
    cpu_s: f64,
}

/// Looks under way, in a thread on each CPU.
pub struct Speeds {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<SpeedResult>>>,
}

impl Speeds {
    pub fn begin(cpus: &[u32], session: &Session) -> Result<Self, JobError> {
        let done = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for &cpu in cpus {
            let (session, ended) = (session.clone(), Arc::clone(&done));
            let thread = std::thread::Builder::new()
                .name("speed".into())
                .spawn(move || run(cpu, &session, &ended))
                .map_err(|error| JobError::new("thread", error.to_string()))?;
            threads.push(thread);
        }
        Ok(Self { done, threads })
    }

    /// Of each CPU that could be used, and was looked at often enough.
    pub fn end(self) -> Vec<SpeedResult> {
        self.done.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .filter_map(|thread| thread.join().ok().flatten())
            .collect()
    }
}

fn run(cpu: u32, session: &Session, ended: &AtomicBool) -> Option<SpeedResult> {
    pin(cpu).ok()?;
    let begun_ns = thread_cpu_ns();
    let mut took_ns = Vec::new();
    while !ended.load(Ordering::Relaxed) && took_ns.len() < MOST_LOOKS {
        // An interrupt falls into one of two.
        took_ns.push(loop_ns().min(loop_ns()));
        if session.sleep_until(mono_ns() + EVERY_NS) {
            break;
        }
    }
    let cpu_s = thread_cpu_ns().saturating_sub(begun_ns) as f64 / 1e9;
    found(cpu, took_ns, cpu_s)
}

fn loop_ns() -> u64 {
    let begun_ns = thread_cpu_ns();
    let mut chains: [u64; CHAINS] = black_box([1, 2, 3, 4, 5, 6, 7, 8]);
    for _ in 0..ROUNDS {
        for chain in &mut chains {
            *chain ^= *chain << 13;
            *chain ^= *chain >> 7;
            *chain ^= *chain << 17;
        }
    }
    black_box(chains);
    thread_cpu_ns().saturating_sub(begun_ns)
}

fn found(cpu: u32, mut took_ns: Vec<u64>, cpu_s: f64) -> Option<SpeedResult> {
    if took_ns.len() < LEAST_LOOKS {
        return None;
    }
    took_ns.sort_unstable();
    let looks = took_ns.len();
    let fast_ns = took_ns[looks / FASTER].max(1) as f64;
    let slow = &took_ns[took_ns.partition_point(|&ns| (ns as f64) < SLOW * fast_ns)..];
    Some(SpeedResult {
        cpu,
        looks,
        slow_ratio: slow.len() as f64 / looks as f64,
        slow_speed_ratio: slow.get(slow.len() / 2).map(|&ns| fast_ns / ns as f64),
        cpu_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_of_one_speed_is_never_slow() {
        let found = found(3, (0..200).map(|n| 5_000 + n % 40).collect(), 0.1).unwrap();
        assert_eq!((found.cpu, found.looks), (3, 200));
        assert!(found.slow_ratio.abs() < 1e-9 && found.slow_speed_ratio.is_none());
    }

    #[test]
    fn time_at_half_of_the_speed_is_told_from_single_interrupts() {
        let at = |n: u64| if n % 3 == 0 { 9_600 } else { 4_800 };
        let shared = found(0, (0..300).map(at).collect(), 0.1).unwrap();
        assert!((shared.slow_ratio - 1.0 / 3.0).abs() < 1e-9);
        assert!((shared.slow_speed_ratio.unwrap() - 0.5).abs() < 1e-9);
        let interrupted = |n: u64| if n == 7 { 60_000 } else { 4_800 };
        let alone = found(0, (0..300).map(interrupted).collect(), 0.1).unwrap();
        assert!(alone.slow_ratio < 0.01);
    }

    #[test]
    fn a_few_looks_say_nothing() {
        assert!(found(0, vec![5_000; 49], 0.1).is_none());
    }
}
