//! What the receiver's reassembly will do to a replay: the very slots of its schedule, in their order and at their times.

use nodrop_proto::{JobError, TraceSpec};
use nodrop_replay::Trace;
use nodrop_trace::frag::{Defrag, classify};
use nodrop_trace::reassembly::{Counts, Limits, Reassembly};

use crate::job::replay;

/// Follows every fragment of the trial; loops, replicas and speed considered.
pub fn fragments(spec: &TraceSpec) -> Result<Counts, JobError> {
    let (trace, plan) = replay::scheduled(&spec.as_replay(), true)?;
    let mut buffer = trace.buffer();
    let is_fragment = fragments_of(&trace);
    let mut queues = Reassembly::new(Limits::default());
    for slot in plan.slots(&trace) {
        if !is_fragment[slot.packet] {
            continue;
        }
        let (frame, _) = trace.frame(slot.packet, slot.replica, &mut buffer);
        if let Defrag::Taken(fragment) = classify(frame) {
            queues.offer(slot.due_ns, &fragment);
        }
    }
    Ok(queues.counts())
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
