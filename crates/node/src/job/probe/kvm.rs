//! Whether hardware virtualization is there, and as fast as the CPU.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

const ITERATIONS: u32 = 100_000;
const TRIES: u32 = 3;
/// Emulation takes 0.1 s each; what takes longer is not worth waiting for.
const DEADLINE: Duration = Duration::from_secs(3);
/// A CPU needs about 1 ns for decrement and jump; emulation of supervisor code was seen to take 1200.
const SLOWEST_NS: f64 = 50.0;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
pub struct Kvm {
    usable: bool,
    /// Why not; null if usable.
    reason: Option<String>,
    /// Of decrement and jump in ring 0 of a guest; null if none ran.
    ns_per_iteration: Option<f64>,
    /// The kernel's KVM is PVM, which emulates a guest's supervisor code.
    pvm: bool,
}

/// Other threads easily disturb a run of a tenth of a millisecond: the best of a few is the CPU's own.
fn best_of_tries() -> std::io::Result<Duration> {
    let mut best = nodrop_sys::kvm::count_down(ITERATIONS)?;
    for _ in 1..TRIES {
        best = best.min(nodrop_sys::kvm::count_down(ITERATIONS)?);
    }
    Ok(best)
}

/// Never blocks for long: the thread that waits for a guest ends with this process.
pub fn measure() -> Kvm {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(best_of_tries()));
    let judged = match receiver.recv_timeout(DEADLINE) {
        Ok(Ok(took)) => {
            let each = took.as_secs_f64() * 1e9 / f64::from(ITERATIONS);
            let slow = format!(
                "/dev/kvm emulates: {each:.0} ns for an instruction pair in ring 0 that takes a CPU 1 ns"
            );
            (Some(each), (each > SLOWEST_NS).then_some(slow))
        }
        Ok(Err(error)) => (None, Some(format!("/dev/kvm: {error}"))),
        Err(RecvTimeoutError::Timeout) => {
            let words = format!(
                "/dev/kvm: a guest of four instructions did not end within {} s",
                DEADLINE.as_secs()
            );
            (None, Some(words))
        }
        Err(RecvTimeoutError::Disconnected) => (None, Some("/dev/kvm: the probe broke".into())),
    };
    let (ns_per_iteration, reason) = judged;
    Kvm {
        usable: reason.is_none(),
        reason,
        ns_per_iteration,
        pvm: Path::new("/sys/module/kvm_pvm").exists(),
    }
}
