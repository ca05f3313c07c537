//! Job `replay`: send a trace.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// What N replicas of a trace have in common.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Flows {
    /// Every replica's 5-tuples are its own.
    #[default]
    Distinct,
    /// Identical copies, as N parallel tcpreplay processes send them.
    Same,
}

/// What several ports send.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum SpreadOver {
    /// Each flow leaves by one of them, both directions and all fragments; what is no IP leaves by the first.
    #[default]
    Flows,
    /// Each sends everything.
    Copy,
}

/// What has a destination address of its own.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum LedBy {
    /// Each flow, both directions and all fragments.
    #[default]
    Flows,
    /// Each replica, whole: one after the other in turn.
    Replicas,
}

/// How frames are given to the kernel.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum SendBackend {
    /// AF_XDP at top speed if the kernel has it, else send(2).
    #[default]
    Auto,
    /// One send(2) on an AF_PACKET socket per frame.
    AfPacket,
    /// The same by the port's queueing discipline: the kernel chooses a transmit queue by the frame's flow; past it, by the sender's CPU.
    AfPacketQdisc,
    /// AF_XDP in copy mode, only at top speed; frames of at most 4096 bytes.
    AfXdp,
    /// One write(2) per frame to a tap that is there: it enters this host as if received on the tap.
    Tap,
    /// Only at top speed, one replica: each packet of the trace `loops` times in a row, made inside the kernel (live frames). No pacing, no schedule, identical frames; counted by the port.
    Flood,
    /// As flood, but into this host, as if received on the port; nothing on the way counts them.
    FloodIn,
}

/// Parameters of `replay`; exactly one of `speed`, `pps`, `bps`, `profile`, `top_speed`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct ReplaySpec {
    /// Capture file to send: pcap or pcapng, also packed with gzip, zstd or xz
    #[arg(long)]
    pub trace: PathBuf,
    /// Further capture files, merged with the first by time
    #[arg(long)]
    #[serde(default)]
    pub merge: Vec<PathBuf>,
    /// Network interfaces to send on, with a thread and a socket each; one named twice gets two (with AF_XDP, two queues)
    #[arg(
        long = "interface",
        visible_alias = "port",
        value_name = "NAME[,NAME]...",
        value_delimiter = ',',
        required = true
    )]
    #[serde(rename = "interface", deserialize_with = "one_or_several")]
    #[schemars(with = "OneOrSeveral<String>")]
    pub interfaces: Vec<String>,
    /// What several ports send; rates are those of all ports together, but of each one if it sends everything
    #[arg(long, value_enum, default_value_t)]
    #[serde(default)]
    pub spread: SpreadOver,
    /// Factor on the trace's own timing (2 = twice as fast)
    #[arg(long)]
    pub speed: Option<f64>,
    /// Constant rate in packets per second, of all replicas together
    #[arg(long)]
    pub pps: Option<f64>,
    /// Packets that leave back to back at a constant rate; the rate stays the same
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one")]
    pub burst: u32,
    /// Constant rate in bits of frames per second, of all replicas together
    #[arg(long)]
    pub bps: Option<f64>,
    /// Rate over time: a file of lines `time_s,pps`, the last of which ends it
    #[arg(long)]
    pub profile: Option<PathBuf>,
    /// Change the rate evenly between the points of the profile, not in steps
    #[arg(long, requires = "profile")]
    #[serde(default)]
    pub ramp: bool,
    /// As fast as the kernel takes them
    #[arg(long)]
    #[serde(default)]
    pub top_speed: bool,
    /// Times the trace is sent, one after the other; 0 = as many as duration_s or the profile holds
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one")]
    pub loops: u32,
    /// Replicas sent at once (NX); with 3.4 three whole ones, and one that carries 40 % of the trace's flows
    #[arg(long, default_value_t = 1.0)]
    #[serde(default = "once")]
    pub multiplier: f64,
    /// Chooses the flows of a replica that is not whole
    #[arg(long, default_value_t = 1)]
    #[serde(default = "seed_of_flows")]
    pub flow_seed: u64,
    /// Whether replicas are flows of their own
    #[arg(long, value_enum, default_value_t)]
    #[serde(default)]
    pub flows: Flows,
    /// Whether each pass of a replica has flows of its own, if replicas have
    #[arg(long, value_enum, default_value = "same")]
    #[serde(default = "same_flows")]
    pub loop_flows: Flows,
    /// Copies of the trace (replicas, and passes with flows of their own) whose flows were sent before: this replay's have other
    /// addresses, as long as there are any
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub first_copy: u32,
    /// Time of one pass at the trace's own speed: silence after the last packet, if its packets take less
    #[arg(long)]
    #[serde(default)]
    pub pass_s: Option<f64>,
    /// End after this time; the whole trace if absent
    #[arg(long)]
    pub duration_s: Option<f64>,
    /// Seed of whatever is random
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub seed: u64,
    /// How frames are given to the kernel
    #[arg(long, value_enum, default_value_t)]
    #[serde(default)]
    pub backend: SendBackend,
    /// CPUs to pin the senders to, one for each port in their order
    #[arg(
        long,
        visible_alias = "cpu",
        value_name = "CPU[,CPU]...",
        value_delimiter = ','
    )]
    #[serde(default, deserialize_with = "one_or_several")]
    #[schemars(with = "OneOrSeveral<u32>")]
    pub cpus: Vec<u32>,
    /// SCHED_FIFO if allowed
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    #[serde(default = "yes")]
    pub realtime: bool,
    /// Paced, and pinned: wait by spinning as an ordinary thread, until another thread wants the CPU
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    #[serde(default = "yes")]
    pub spin: bool,
    /// Paced, with one replica: keep all CPUs of this host from deep idle states while it runs, if allowed (/dev/cpu_dma_latency)
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    #[serde(default = "yes")]
    pub shallow_idle: bool,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    #[serde(default)]
    pub tolerate_truncated: bool,
    /// Destination MAC addresses to share the flows or the replicas among, both directions of a flow to the same; written over each frame's own
    #[arg(long, value_delimiter = ',')]
    #[serde(default)]
    pub dst_macs: Vec<String>,
    /// What is shared among them
    #[arg(long, value_enum, default_value_t)]
    #[serde(default)]
    pub dst_macs_by: LedBy,
    /// By hand: send even on a port that has an IP address or the default route
    #[arg(long)]
    #[serde(skip)]
    pub yes: bool,
}

/// `ready` of `replay`: the trace is in memory, the socket is open.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ReplayReady {
    /// Packets of one pass of the trace.
    pub trace_packets: u64,
    /// Bytes of one pass of the trace, as captured.
    pub trace_bytes: u64,
    /// First to last timestamp of the trace.
    pub trace_duration_ns: u64,
    /// Packets the schedule holds: passes, replicas and `duration_s` considered.
    pub intended_packets: u64,
    /// First to last packet of the schedule; `None` at top speed.
    pub intended_duration_ns: Option<u64>,
    /// Whether SCHED_FIFO was granted.
    pub realtime: bool,
    /// How frames are given to the kernel; several words if the ports differ.
    pub backend: String,
    /// Start of each replica after that of the trace itself, from the seed.
    pub replica_offsets_ns: Vec<u64>,
    /// The copy of the trace whose addresses come first: `first_copy` of the spec, or 0 (the trace itself) if there are too few addresses
    /// from there on.
    pub first_copy: u32,
    /// Copies with flows of their own; passes beyond them repeat the flows of earlier ones.
    pub copies: u32,
}

/// |sent − due| in microseconds over all packets offered to the kernel; due by the schedule that the field names.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ScheduleError {
    /// Half of the packets were at most this late.
    pub p50: f64,
    /// 99 % of the packets were at most this late.
    pub p99: f64,
    /// 99.9 % of the packets were at most this late.
    pub p999: f64,
    /// The latest packet.
    pub max: f64,
}

/// Late packets that left in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LateBurst {
    /// When the first of them left.
    pub begin_mono_ns: u64,
    /// When the last of them left.
    pub end_mono_ns: u64,
    /// The largest schedule error among them.
    pub late_ns: u64,
    /// Packets that should have left before it began, less the most of them that were asked for back to back anyway.
    pub packets: u64,
}

/// What the sender let leave at once that was asked for apart.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LateBursts {
    /// A packet with a larger schedule error is late.
    pub late_ns: u64,
    /// How many there were.
    pub bursts: u64,
    /// Packets of all of them.
    pub packets: u64,
    /// The largest, at most 64, in the order of time.
    pub largest: Vec<LateBurst>,
}

/// What was really sent per interval from the start, for one hour at most.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Achieved {
    /// Length of an interval.
    pub interval_ns: u64,
    /// Packets the kernel took.
    pub packets: Vec<u64>,
    /// Their bytes.
    pub bytes: Vec<u64>,
    /// The largest schedule error of an interval; empty at top speed.
    pub largest_error_ns: Vec<u64>,
}

/// When packets really left; empty if none did.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SentProfile {
    /// Begin of the first bin: the start of the replay.
    pub first_mono_ns: u64,
    /// Length of a bin: 1 ms, doubled until at most 8,192 bins hold all packets.
    pub bin_ns: u64,
    /// Packets the kernel took in each bin, up to the last one with packets.
    pub packets: Vec<u64>,
}

/// `sample` of `replay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ReplaySample {
    /// When it was taken.
    pub mono_ns: u64,
    /// Packets the kernel took until the last whole interval of `achieved`.
    pub sent_packets: u64,
}

/// `result` of `replay`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ReplayResult {
    /// Packets the schedule held.
    pub intended_packets: u64,
    /// Packets the kernel took.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// errno name in lower case → packets the kernel refused.
    pub refused_packets: BTreeMap<String, u64>,
    /// Intended − sent: refused and never attempted.
    pub unsent_packets: u64,
    /// `None` if nothing was sent.
    pub first_sent_mono_ns: Option<u64>,
    /// `None` if nothing was sent.
    pub last_sent_mono_ns: Option<u64>,
    /// First to last packet of the schedule; `None` at top speed.
    pub intended_duration_ns: Option<u64>,
    /// Behind the feasible schedule: the trace's own with each packet at least as long after the one before as a send takes. At a rate, behind
    /// that rate. `None` at top speed.
    pub schedule_error_us: Option<ScheduleError>,
    /// Behind the schedule as it was asked for; `None` at top speed.
    pub asked_schedule_error_us: Option<ScheduleError>,
    /// Packets that the trace asks for closer to the one before than the sender sends.
    pub shaped_packets: u64,
    /// The rate at which those were let leave: the sender's measured top speed; `None` if there are none.
    pub shaped_pps: Option<f64>,
    /// Behind the feasible schedule; `None` at top speed.
    pub late_bursts: Option<LateBursts>,
    /// CPU time of the sending threads; on plain veth it holds the receive path too.
    pub cpu_s: f64,
    /// How frames were given to the kernel; several words if the ports differ.
    pub backend: String,
    /// Whether SCHED_FIFO was granted.
    pub realtime: bool,
    /// The part of the time in which the senders waited for due times by spinning; the rest they slept. `None` at top speed.
    pub spun_share: Option<f64>,
    /// Whether the CPUs of this host were kept from deep idle states.
    pub shallow_idle: bool,
    /// Packets of replicas sent as they stand in the trace, having no address that could be rewritten.
    pub not_rewritten_packets: u64,
    /// Flows of the trace that are the same in every replica, having no address that could be rewritten; 0 if all shall be the same.
    pub same_flows: u64,
    /// Start of each replica after that of the trace itself, from the seed.
    pub replica_offsets_ns: Vec<u64>,
    /// Rate over time, of all ports together.
    pub achieved: Achieved,
    /// When packets left, of all ports together.
    pub sent_profile: SentProfile,
    /// What each port has of this, in the order of the spec.
    pub ports: Vec<ReplayPort>,
}

/// What one thread sent on its port.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ReplayPort {
    /// Its name.
    pub interface: String,
    /// The CPU its thread was pinned to; `None` if it was not.
    pub cpu: Option<u32>,
    /// How frames were given to the kernel.
    pub backend: String,
    /// Packets of its share of the schedule.
    pub intended_packets: u64,
    /// Packets the kernel took.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// errno name in lower case → packets the kernel refused.
    pub refused_packets: BTreeMap<String, u64>,
    /// Intended − sent: refused and never attempted.
    pub unsent_packets: u64,
    /// `None` if nothing was sent.
    pub first_sent_mono_ns: Option<u64>,
    /// `None` if nothing was sent.
    pub last_sent_mono_ns: Option<u64>,
    /// Behind the feasible schedule; `None` at top speed.
    pub schedule_error_us: Option<ScheduleError>,
    /// CPU time of its thread.
    pub cpu_s: f64,
}

/// A list, or the one thing that would stand in it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected one or a list of them")]
#[schemars(inline)]
enum OneOrSeveral<T> {
    One(T),
    Several(Vec<T>),
}

/// Nothing is no list.
fn one_or_several<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(match Option::<OneOrSeveral<T>>::deserialize(from)? {
        None => Vec::new(),
        Some(OneOrSeveral::One(one)) => vec![one],
        Some(OneOrSeveral::Several(several)) => several,
    })
}

fn one() -> u32 {
    1
}

pub(crate) fn once() -> f64 {
    1.0
}

pub(crate) fn seed_of_flows() -> u64 {
    1
}

pub(crate) fn same_flows() -> Flows {
    Flows::Same
}

fn yes() -> bool {
    true
}
