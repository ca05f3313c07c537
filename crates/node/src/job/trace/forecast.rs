//! What the receiver's reassembly will do to a replay: the very slots of its schedule, in their order and at their times.

use nodrop_proto::{JobError, TraceSpec};
use nodrop_replay::Trace;
use nodrop_trace::frag::{Defrag, classify};
use nodrop_trace::reassembly::{Counts, Limits, Reassembly};

use crate::job::replay;

/// Of a kernel that refuses no fragment: what it puts together then is the traffic's own affair, at any load.
const WITHOUT_REFUSALS: Limits = Limits {
    timeout_ns: Limits::DEFAULT.timeout_ns,
    max_distance: 0,
    high_threshold_bytes: u64::MAX,
};

/// What becomes of the fragments of a trial.
#[derive(Default)]
pub struct Fate {
    /// Under the kernel's default limits.
    pub by_default: Counts,
    /// If nothing is refused for want of memory, or flushed because others of its source came between.
    pub unrefused: Counts,
}

/// Follows every fragment of the trial; loops, replicas and speed considered.
pub fn fragments(spec: &TraceSpec) -> Result<Fate, JobError> {
    let (trace, plan) = replay::scheduled(&spec.as_replay(), true)?;
    let mut buffer = trace.buffer();
    let is_fragment = fragments_of(&trace);
    let mut by_default = Reassembly::new(Limits::DEFAULT);
    let mut unrefused = Reassembly::new(WITHOUT_REFUSALS);
    for slot in plan.slots(&trace) {
        if !is_fragment[slot.packet] {
            continue;
        }
        let (frame, _) = trace.frame(slot.packet, slot.replica, &mut buffer);
        if let Defrag::Taken(fragment) = classify(frame) {
            by_default.offer(slot.due_ns, &fragment);
            unrefused.offer(slot.due_ns, &fragment);
        }
    }
    Ok(Fate {
        by_default: by_default.counts(),
        unrefused: unrefused.counts(),
    })
}

fn fragments_of(trace: &Trace) -> Vec<bool> {
    // Replica 0 is the trace itself and needs no buffer.
    (0..trace.packets().len())
        .map(|packet| {
            matches!(
                classify(trace.frame(packet, 0, &mut []).0),
                Defrag::Taken(_)
            )
        })
        .collect()
}
