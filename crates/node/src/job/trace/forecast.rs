//! What a replay will send, and what the receiver's reassembly will do to it: the very slots of its schedule, in their order and
//! at their times.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use nodrop_proto::JobError;
use nodrop_replay::{Plan, Trace, planned};
use nodrop_trace::frag::{Defrag, classify};
use nodrop_trace::info::Info;
use nodrop_trace::peak::PeakDemand;
use nodrop_trace::prepare::{count_of, grouped};
use nodrop_trace::reassembly::{Counts, Limits, Reassembly};
use nodrop_trace::tap::{ETHERNET_HEADER_BYTES, TapView, tap_view};
use schemars::JsonSchema;
use serde::Serialize;

/// What the trial will send, at most if it is at top speed and ends by the clock.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TracePlanned")]
pub struct Planned {
    /// Packets of all passes and replicas.
    packets: u64,
    /// Bytes of their frames.
    frame_bytes: u64,
    /// Flows, those of replicas with addresses of their own included; later fragments, which have no ports, are left out.
    flows: u64,
    /// First to last packet; null at top speed.
    duration_ns: Option<u64>,
    /// Packets of the trace up to the last one that is sent: all, unless the trial ends before.
    window_packets: u64,
    /// Time of that one after the first, in the trace's own time.
    window_ns: u64,
    /// Frames too short to reach a tap at all.
    never_at_tap_packets: u64,
    /// Frames whose outermost VLAN tag, of 4 bytes, the kernel takes off ahead of a tap.
    tagged_packets: u64,
    /// Due within 1 ms at the trace's own timing, at most: each replica peaks once, and they need not do so at one time.
    packets_in_1_ms: u64,
    /// The same within 10 ms.
    packets_in_10_ms: u64,
}

impl Planned {
    /// Than one pass of the trace as it was captured.
    pub fn is_other_than(&self, info: &Info) -> bool {
        self.packets != info.packets || self.duration_ns != Some(info.duration_ns)
    }
}

impl Display for Planned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (packets, bytes) = (self.packets, self.frame_bytes);
        let (sent, flows) = (count_of(packets, "packet"), count_of(self.flows, "flow"));
        write!(f, "{sent}, {} bytes, {flows}", grouped(bytes))?;
        // The last packet has its time as well: packets at one a second are one a second.
        let lasting =
            |ns| ns as f64 / 1e9 * packets as f64 / packets.saturating_sub(1).max(1) as f64;
        if let Some(s) = self.duration_ns.map(lasting).filter(|s| *s > 0.0) {
            let (pps, bps) = (packets as f64 / s, bytes as f64 / s);
            let [pps, bps] = [pps, bps].map(|rate| grouped(format_args!("{rate:.0}")));
            write!(f, " in {s:.6} s: {pps} packets/s, {bps} bytes/s")?;
        }
        Ok(())
    }
}

/// What is known of a trial before it.
pub fn planned(trace: &Trace, plan: &Plan, speed: f64) -> Planned {
    let sums = planned::Planned::of(trace, plan);
    let (mut never_at_tap, mut tagged) = (0, 0);
    planned::each(plan, |packet, times| match at_tap(trace, packet) {
        None => never_at_tap += times,
        Some(view) => tagged += if view.tagged { times } else { 0 },
    });
    let peak = |replica| {
        let times = plan.packets_of(replica);
        PeakDemand::of(times.map(|packet| trace.packets()[packet].at_ns), speed)
    };
    // All but the last replica are the same.
    let others = u64::from(plan.replicas() - 1);
    let (first, last) = (peak(0), peak(plan.replicas() - 1));
    Planned {
        packets: sums.packets,
        frame_bytes: sums.frame_bytes,
        flows: sums.flows,
        duration_ns: plan.intended_duration_ns(trace),
        window_packets: sums.window_packets,
        window_ns: sums.window_ns,
        never_at_tap_packets: never_at_tap,
        tagged_packets: tagged,
        packets_in_1_ms: others * first.packets_in_1_ms + last.packets_in_1_ms,
        packets_in_10_ms: others * first.packets_in_10_ms + last.packets_in_10_ms,
    }
}

fn at_tap(trace: &Trace, packet: usize) -> Option<TapView<'_>> {
    // Replica 0 is the trace itself and needs no buffer.
    tap_view(trace.original(packet))
}

/// Frames of a trial at a tap: pairs of a length and how many are so long, the shortest first. Without the outermost VLAN tag.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TapLengths")]
pub struct TapLengths {
    /// As they arrive.
    pub arriving: Vec<[u64; 2]>,
    /// Whole datagrams in place of their fragments, if reassembly refuses nothing; null if it has nothing to do.
    pub defragmented: Option<Vec<[u64; 2]>>,
}

/// What the sockets of the trial get, by length.
pub fn tap_lengths(trace: &Trace, plan: &Plan, fate: &Fate) -> TapLengths {
    let (mut arriving, mut whole) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, u64>::new());
    let has_fragments = fate.unrefused.offered_packets > 0;
    planned::each(plan, |packet, times| {
        let frame = trace.original(packet);
        let Some(view) = tap_view(frame) else {
            return;
        };
        *arriving.entry(view.bytes() as u64).or_default() += times;
        if has_fragments && !matches!(classify(frame), Defrag::Taken(_)) {
            *whole.entry(view.bytes() as u64).or_default() += times;
        }
    });
    for (bytes, datagrams) in &fate.datagrams {
        *whole
            .entry(ETHERNET_HEADER_BYTES as u64 + u64::from(*bytes))
            .or_default() += datagrams;
    }
    TapLengths {
        arriving: pairs(arriving),
        defragmented: has_fragments.then(|| pairs(whole)),
    }
}

fn pairs(found: BTreeMap<u64, u64>) -> Vec<[u64; 2]> {
    found
        .into_iter()
        .map(|(bytes, packets)| [bytes, packets])
        .collect()
}

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
    /// Datagrams that are whole then, by their length from the IP header on.
    pub datagrams: BTreeMap<u32, u64>,
}

/// Fragments of a trial that are followed, one by one: some 3 million a second.
const MOST_FRAGMENTS: u64 = 1 << 22;

/// Follows every fragment of the trial; loops, replicas and speed considered.
pub fn fragments(trace: &Trace, plan: &Plan) -> Result<Fate, JobError> {
    let chosen = fragments_of(trace);
    let is_fragment = |packet| u64::from(chosen.binary_search(&packet).is_ok());
    let offered = planned::sum(plan, is_fragment);
    if offered > MOST_FRAGMENTS {
        let words = format!(
            "the fate of a trial's fragments is followed through at most {MOST_FRAGMENTS} of them: these are {offered}"
        );
        return Err(
            JobError::new("spec", words).hint("give fewer loops or replicas, or a duration")
        );
    }
    let mut buffer = trace.buffer();
    let mut by_default = Reassembly::new(Limits::DEFAULT);
    let mut unrefused = Reassembly::new(WITHOUT_REFUSALS);
    for slot in plan.slots_of_packets(trace, &chosen) {
        let (frame, _) = trace.frame(slot.packet, slot.copy, &mut buffer);
        if let Defrag::Taken(fragment) = classify(frame) {
            by_default.offer(slot.due_ns, &fragment);
            unrefused.offer(slot.due_ns, &fragment);
        }
    }
    Ok(Fate {
        by_default: by_default.counts(),
        unrefused: unrefused.counts(),
        datagrams: unrefused.datagrams().clone(),
    })
}

/// Their numbers, in the order of the trace.
fn fragments_of(trace: &Trace) -> Vec<usize> {
    // Replica 0 is the trace itself and needs no buffer.
    let is_fragment = |packet: &usize| {
        let frame = trace.original(*packet);
        matches!(classify(frame), Defrag::Taken(_))
    };
    (0..trace.packets().len()).filter(is_fragment).collect()
}
