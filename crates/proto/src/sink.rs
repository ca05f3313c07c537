//! Job `sink`: receive and count; a SUT whose truth is known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `sink`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct SinkSpec {
    /// Network interface to listen on
    #[arg(long)]
    pub interface: String,
    /// Size of each thread's ring, if ring_frames does not say
    #[arg(long, default_value_t = ring_bytes())]
    #[serde(default = "ring_bytes")]
    pub ring_bytes: u64,
    /// Size of a block of the ring; at most an eighth of the ring, but at least a page
    #[arg(long, default_value_t = block_bytes())]
    #[serde(default = "block_bytes")]
    pub block_bytes: u64,
    /// A queue of exactly so many packets for each thread, the one in service included
    #[arg(long)]
    pub ring_frames: Option<u64>,
    /// Serve no more than this many packets per second; as fast as it can if absent
    #[arg(long)]
    pub service_rate_pps: Option<f64>,
    /// A receiving thread is busy for so long with each packet
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub receive_ns: u64,
    /// Packets from or to this TCP or UDP port take costly_times as long in a receiving thread
    #[arg(long, requires = "costly_times")]
    pub costly_port: Option<u16>,
    /// Factor on the service time, or on receive_ns, of packets of costly_port
    #[arg(long, requires = "costly_port")]
    pub costly_times: Option<f64>,
    /// Threads that receiving ones hand packets on to, by flow; 0 = none
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub workers: u32,
    /// Each of those is busy for so long with each packet
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub worker_ns: u64,
    /// The same behind a lock that they share
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub lock_ns: u64,
    /// Join the fanout group with PACKET_FANOUT_FLAG_DEFRAG
    #[arg(long)]
    #[serde(default)]
    pub defrag: bool,
    /// Receiving threads, one fanout group
    #[arg(long, default_value_t = 1)]
    #[serde(default = "threads")]
    pub threads: u32,
    /// Count distinct flows (5-tuples, both directions as one)
    #[arg(long)]
    #[serde(default)]
    pub count_flows: bool,
    /// Longest time to empty the rings after stop
    #[arg(long, default_value_t = drain_s())]
    #[serde(default = "drain_s")]
    pub drain_s: f64,
}

/// `ready` of `sink`: every socket is open and bound.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SinkReady {
    /// Of each thread, as granted.
    pub ring_bytes: u64,
    /// Packets that each thread's ring holds, the one in service included; `None` for a ring of blocks, which has no slots.
    pub ring_frames: Option<u32>,
    /// Receiving threads.
    pub threads: u32,
    /// Whether the kernel puts IPv4 fragments together first; it does so for a single thread, too.
    pub defrag: bool,
}

/// `sample` of `sink`, every 100 ms; all since the start.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SinkSample {
    /// When it was taken.
    pub mono_ns: u64,
    /// Delivered to the reader, or done by the workers behind it.
    pub packets: u64,
    /// What the kernel had for the sockets, drops included.
    pub tp_packets: u64,
    /// Of those, no room in the ring.
    pub tp_drops: u64,
    /// The same for each thread, by its number.
    pub per_thread: Vec<SinkThread>,
}

/// Counters of one thread and its socket, or of all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct SinkCounts {
    /// Delivered to the reader.
    pub packets: u64,
    /// Their bytes as they were on the wire, VLAN tags included.
    pub bytes: u64,
    /// What the kernel had for the socket, drops included.
    pub tp_packets: u64,
    /// Of those, no room in the ring.
    pub tp_drops: u64,
    /// Times the ring went full: episodes, not packets. `None` for a ring of slots, whose kernel does not count them.
    pub tp_freeze_q_count: Option<u64>,
}

/// One thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SinkThread {
    /// Its counters.
    #[serde(flatten)]
    pub counts: SinkCounts,
    /// When the kernel's were read; `packets` and `bytes` are of now.
    pub mono_ns: u64,
    /// When it, or a worker behind it, was done with its last packet; `None` before the first.
    pub served_mono_ns: Option<u64>,
}

/// `result` of `sink`: the sums, and the parts.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SinkResult {
    /// Sums over the threads.
    #[serde(flatten)]
    pub total: SinkCounts,
    /// Kernel timestamp; `None` if nothing came.
    pub first_packet_real_ns: Option<u64>,
    /// Kernel timestamp; `None` if nothing came.
    pub last_packet_real_ns: Option<u64>,
    /// Distinct flows; `None` if they were not counted.
    pub flows: Option<u64>,
    /// CPU time of the process.
    pub cpu_s: f64,
    /// The same counters for each thread.
    pub per_thread: Vec<SinkThread>,
}

fn ring_bytes() -> u64 {
    64 << 20
}

fn block_bytes() -> u64 {
    1 << 20
}

fn threads() -> u32 {
    1
}

fn drain_s() -> f64 {
    30.0
}
