//! The kernel's IPv4 reassembly queues, fragment by fragment: what comes out of them, and what never does.
//!
//! Follows net/ipv4/ip_fragment.c and inet_fragment.c of Linux 6.x; the only witness the kernel itself keeps of a fragment that
//! goes nowhere are the Ip Reasm counters, so the packet ledger has to know the rules.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::RandomState;

use schemars::JsonSchema;
use serde::Serialize;

use crate::frag::{Fragment, Key};

/// The sysctls net.ipv4.ipfrag_* that decide.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// ipfrag_time: a queue that is not complete by then is thrown away.
    pub timeout_ns: u64,
    /// ipfrag_max_dist: other fragments of the source that may pass between two of a queue.
    pub max_distance: u32,
    /// ipfrag_high_thresh: above this much memory every fragment is refused.
    pub high_threshold_bytes: u64,
}

impl Limits {
    /// The kernel's.
    pub const DEFAULT: Self = Self {
        timeout_ns: 30_000_000_000,
        max_distance: 64,
        high_threshold_bytes: 4 << 20,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Where the fragments went: `offered` = `absorbed` + `held`, and `held` is the sum of the classes that stand indented below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "ReassemblyForecast")]
pub struct Counts {
    /// Fragments offered to reassembly (ReasmReqds).
    pub offered_packets: u64,
    /// Fragments that became part of a complete datagram.
    pub absorbed_packets: u64,
    /// Bytes of their frames at the tap.
    pub absorbed_bytes: u64,
    /// Fragments that come out no more, held back or thrown away; no drop counter shows them.
    pub held_packets: u64,
    /// Bytes of their frames at the tap.
    pub held_bytes: u64,
    ///   Those in datagrams that are not complete; the kernel throws them away when their 30 s are over.
    pub incomplete_packets: u64,
    ///   Those of datagrams whose time was over before the last packet was sent.
    pub timed_out_packets: u64,
    ///   Those dropped alone because the datagram had those bytes already.
    pub duplicate_packets: u64,
    ///   Those of datagrams discarded because two overlapped (RFC 5722).
    pub overlapping_packets: u64,
    ///   Those of datagrams discarded because a length contradicted another, or a fragment was empty.
    pub contradicting_packets: u64,
    ///   Those of datagrams that were complete but longer than 65,535 bytes.
    pub oversize_packets: u64,
    ///   Those of datagrams that were complete but mixed ECN marks that RFC 3168 5.3 forbids to mix.
    pub ecn_mixed_packets: u64,
    ///   Those flushed because more than `ipfrag_max_dist` others of their source had passed since.
    pub too_far_packets: u64,
    ///   Those refused because the queues held `ipfrag_high_thresh` of memory.
    pub refused_packets: u64,
    /// Complete datagrams, each delivered as one packet (ReasmOKs).
    pub datagrams: u64,
    /// Bytes of these datagrams, from the IP header on.
    pub datagram_bytes: u64,
    /// Datagrams that are not complete.
    pub incomplete_datagrams: u64,
    /// What ReasmFails of /proc/net/snmp counts.
    pub reasm_fails: u64,
    /// What ReasmTimeout of /proc/net/snmp counts.
    pub reasm_timeouts: u64,
    /// What ReasmOverlaps of /proc/net/netstat counts.
    pub reasm_overlaps: u64,
    /// Most kernel memory held at once, estimated.
    pub memory_peak_bytes: u64,
}

/// Bytes of a datagram that are there without a hole, in the order of the kernel's list.
#[derive(Debug, Clone, Copy)]
struct Run {
    begin: u32,
    end: u32,
}

#[derive(Debug, Default)]
struct Queue {
    /// Sorted by offset and disjoint. Runs that touch are not joined, and a fragment that spans two of them is an overlap, not a duplicate.
    runs: Vec<Run>,
    /// The last fragment at the end of the kernel's list.
    tail: Option<Run>,
    packets: u64,
    tap_bytes: u64,
    memory_bytes: u64,
    first_in: bool,
    last_in: bool,
    length: u32,
    payload: u32,
    header_bytes: u32,
    ecn_bits: u8,
    deadline_ns: u64,
    /// Where the source's count of fragments stood.
    source_count: u32,
}

enum Insert {
    Done,
    Duplicate,
    Overlap,
}

/// All queues of one network namespace.
#[derive(Debug, Default)]
pub struct Reassembly {
    limits: Limits,
    queues: HashMap<Key, Queue, RandomState>,
    /// Fragments seen per source (`inet_peer.rid`).
    sources: HashMap<u32, u32, RandomState>,
    /// Deadlines in the order in which they were set.
    deadlines: VecDeque<(u64, Key)>,
    memory_bytes: u64,
    offered_bytes: u64,
    /// Complete datagrams by their length, from the IP header on.
    datagrams: BTreeMap<u32, u64>,
    counts: Counts,
}

impl Reassembly {
    /// Empty queues.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// One fragment arrives; times never go back.
    pub fn offer(&mut self, now_ns: u64, fragment: &Fragment) {
        self.expire(now_ns);
        self.counts.offered_packets += 1;
        self.offered_bytes += u64::from(fragment.tap_bytes);
        if self.memory_bytes > self.limits.high_threshold_bytes {
            self.counts.refused_packets += 1;
            self.counts.reasm_fails += 1;
            return;
        }
        let key = fragment.key;
        // A capture file may hold any time.
        let deadline_ns = now_ns.saturating_add(self.limits.timeout_ns);
        let mut queue = self.queues.remove(&key).unwrap_or_else(|| {
            self.deadlines.push_back((deadline_ns, key));
            self.memory_bytes += QUEUE_MEMORY_BYTES;
            Queue {
                deadline_ns,
                memory_bytes: QUEUE_MEMORY_BYTES,
                ..Queue::default()
            }
        });
        if self.is_too_far(fragment, &mut queue) {
            self.restart(key, &mut queue, deadline_ns);
        }
        if let Some(queue) = self.enter(queue, fragment) {
            self.queues.insert(key, queue);
        }
    }

    /// Complete datagrams so far by their length, from the IP header on.
    #[must_use]
    pub fn datagrams(&self) -> &BTreeMap<u32, u64> {
        &self.datagrams
    }

    /// What stands now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            held_packets: self.counts.offered_packets - self.counts.absorbed_packets,
            held_bytes: self.offered_bytes - self.counts.absorbed_bytes,
            incomplete_packets: self.queues.values().map(|queue| queue.packets).sum(),
            incomplete_datagrams: self.queues.len() as u64,
            ..self.counts
        }
    }

    /// `ip_expire` of every queue whose time is over. A queue that was restarted has a later deadline of its own in the list.
    fn expire(&mut self, now_ns: u64) {
        while let Some(&(deadline_ns, key)) = self.deadlines.front() {
            if deadline_ns > now_ns {
                break;
            }
            self.deadlines.pop_front();
            let is_over = self
                .queues
                .get(&key)
                .is_some_and(|queue| queue.deadline_ns == deadline_ns);
            if let Some(queue) = is_over.then(|| self.queues.remove(&key)).flatten() {
                self.counts.timed_out_packets += queue.packets;
                self.counts.reasm_fails += 1;
                self.counts.reasm_timeouts += 1;
                self.memory_bytes -= queue.memory_bytes;
            }
        }
    }

    /// `ip_frag_too_far`: more than `max_distance` fragments of this source since the last one of this queue.
    fn is_too_far(&mut self, fragment: &Fragment, queue: &mut Queue) -> bool {
        if self.limits.max_distance == 0 {
            return false;
        }
        let count = self.sources.entry(fragment.key.source).or_default();
        *count = count.wrapping_add(1);
        let distance = count.wrapping_sub(queue.source_count);
        queue.source_count = *count;
        queue.tail.is_some() && distance > self.limits.max_distance
    }

    /// `ip_frag_reinit`: the queue begins anew with a new timer.
    fn restart(&mut self, key: Key, queue: &mut Queue, deadline_ns: u64) {
        self.counts.too_far_packets += queue.packets;
        self.counts.reasm_fails += 1;
        self.memory_bytes -= queue.memory_bytes - QUEUE_MEMORY_BYTES;
        self.deadlines.push_back((deadline_ns, key));
        *queue = Queue {
            deadline_ns,
            source_count: queue.source_count,
            memory_bytes: QUEUE_MEMORY_BYTES,
            ..Queue::default()
        };
    }

    /// `ip_frag_queue`: gives the queue back while its datagram is not complete.
    fn enter(&mut self, mut queue: Queue, fragment: &Fragment) -> Option<Queue> {
        let Some(end) = queue.place(fragment) else {
            self.counts.contradicting_packets += queue.packets + 1;
            self.counts.reasm_fails += 1;
            self.memory_bytes -= queue.memory_bytes;
            return None;
        };
        match queue.insert(fragment.offset, end) {
            Insert::Done => {}
            Insert::Duplicate => {
                self.counts.duplicate_packets += 1;
                return Some(queue);
            }
            Insert::Overlap => {
                self.counts.overlapping_packets += queue.packets + 1;
                self.counts.reasm_fails += 1;
                self.counts.reasm_overlaps += 1;
                self.memory_bytes -= queue.memory_bytes;
                return None;
            }
        }
        let memory_bytes = memory_bytes(fragment.frame_bytes);
        queue.account(fragment, end, memory_bytes);
        self.memory_bytes += memory_bytes;
        self.counts.memory_peak_bytes = self.counts.memory_peak_bytes.max(self.memory_bytes);
        if queue.is_complete() {
            self.complete(&queue);
            return None;
        }
        Some(queue)
    }

    /// `ip_frag_reasm`: the queue is gone, whether a datagram comes of it or not.
    fn complete(&mut self, queue: &Queue) {
        self.memory_bytes -= queue.memory_bytes;
        let total_bytes = queue.header_bytes + queue.length;
        if is_forbidden_mix(queue.ecn_bits) {
            self.counts.ecn_mixed_packets += queue.packets;
            self.counts.reasm_fails += 1;
        } else if total_bytes > 65_535 {
            self.counts.oversize_packets += queue.packets;
            self.counts.reasm_fails += 1;
        } else {
            self.counts.absorbed_packets += queue.packets;
            self.counts.absorbed_bytes += queue.tap_bytes;
            *self.datagrams.entry(total_bytes).or_default() += 1;
            self.counts.datagrams += 1;
            self.counts.datagram_bytes += u64::from(total_bytes);
        }
    }
}

impl Queue {
    /// Where the fragment ends, or `None` if its length contradicts what is known and the queue has to go.
    fn place(&mut self, fragment: &Fragment) -> Option<u32> {
        let mut end = fragment.end;
        if fragment.more {
            end &= !7;
            if end > self.length {
                if self.last_in {
                    return None;
                }
                self.length = end;
            }
        } else {
            if end < self.length || (self.last_in && end != self.length) {
                return None;
            }
            self.last_in = true;
            self.length = end;
        }
        (end != fragment.offset).then_some(end)
    }

    /// `inet_frag_queue_insert`.
    fn insert(&mut self, begin: u32, end: u32) -> Insert {
        let run = Run { begin, end };
        let Some(tail) = self.tail else {
            self.runs.push(run);
            self.tail = Some(run);
            return Insert::Done;
        };
        if tail.end < end {
            if begin < tail.end {
                return Insert::Overlap;
            }
            match self.runs.last_mut() {
                Some(last) if begin == tail.end => last.end = end,
                _ => self.runs.push(run),
            }
            self.tail = Some(run);
            return Insert::Done;
        }
        let at = self.runs.partition_point(|run| run.end <= begin);
        match self.runs.get(at) {
            Some(next) if next.begin < end => {
                if begin >= next.begin && end <= next.end {
                    Insert::Duplicate
                } else {
                    Insert::Overlap
                }
            }
            _ => {
                self.runs.insert(at, run);
                Insert::Done
            }
        }
    }

    fn account(&mut self, fragment: &Fragment, end: u32, memory_bytes: u64) {
        self.packets += 1;
        self.tap_bytes += u64::from(fragment.tap_bytes);
        self.memory_bytes += memory_bytes;
        self.payload += end - fragment.offset;
        self.ecn_bits |= fragment.ecn_bit;
        if fragment.offset == 0 {
            self.first_in = true;
            self.header_bytes = fragment.header_bytes;
        }
    }

    fn is_complete(&self) -> bool {
        self.first_in && self.last_in && self.payload == self.length
    }
}

/// "Not ECN-capable" together with any ECN codepoint (`ip_frag_ecn_table`).
fn is_forbidden_mix(ecn_bits: u8) -> bool {
    ecn_bits & 1 != 0 && ecn_bits != 1
}

/// `sizeof(struct ipq)`, from /proc/net/sockstat of a 64-bit kernel 6.18, as the sizes below.
const QUEUE_MEMORY_BYTES: u64 = 200;

/// `skb->truesize` of a frame that came over a veth from an AF_PACKET socket: `struct sk_buff`, and a head of the next slab size.
fn memory_bytes(frame_bytes: u32) -> u64 {
    const SK_BUFF_BYTES: u64 = 256;
    const SMALL_HEAD_BYTES: u64 = 576;
    const HEADROOM_AND_SHARED_INFO_BYTES: u64 = 336;
    const LONGEST_LINEAR_BYTES: u64 = 4_096;
    let frame = u64::from(frame_bytes);
    let head = if frame > LONGEST_LINEAR_BYTES {
        SMALL_HEAD_BYTES + frame.next_power_of_two()
    } else if frame + HEADROOM_AND_SHARED_INFO_BYTES <= SMALL_HEAD_BYTES {
        SMALL_HEAD_BYTES
    } else {
        (frame + HEADROOM_AND_SHARED_INFO_BYTES).next_power_of_two()
    };
    SK_BUFF_BYTES + head
}

#[cfg(test)]
mod tests;
