//! Job `probe`: look once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a probe can look at.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum ProbeWhat {
    /// Kernel, CPU, memory, cgroup version per controller
    Host,
    /// One reading of every counter the ledger uses, of this network namespace
    Counters,
    /// Proves what tp_packets means on this kernel
    AfPacket,
    /// State, threads and packet sockets of `pids`
    Process,
    /// Which program `pids` run and with what rights; the hashes of that program and of `files`
    Proof,
    /// Every process: its parent, name and arguments
    Processes,
    /// CPU time of `pids` and of the children that they waited for, in ns; also of a zombie
    Account,
    /// CPU time, throttled time and allowed CPUs of `pids`
    Usage,
    /// What a look at the clock costs: rdtsc, cpuid and others, ns each
    Tsc,
    /// What this CPU's VMX may make a guest exit for
    Vmx,
    /// Whether /dev/kvm runs guests at the speed of the CPU
    Kvm,
    /// Every packet socket that receives, of all programs and network namespaces: ports, rings, threads
    Captures,
    /// How full the rings are that the last `captures` of this job saw; cheap, to be asked often
    Rings,
    /// Spells of 250 looks a second at those rings that ended since this was asked for last; they begin with the first question
    Spells,
    /// Settings of a host that captures: ports, packet sockets, programs, CPUs; nothing is judged
    Sensor,
    /// Flows whose directions come to one member of each of `groups`, which listen for `listen_ms`
    Flows,
}

/// A fanout group that deals the packets of a port as a program's group does.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct FlowGroup {
    /// The port's name.
    pub port: String,
    /// A process in its network namespace; `None`: ours.
    #[serde(default)]
    pub pid: Option<u32>,
    /// PACKET_FANOUT_*: 2 by CPU, 5 by queue.
    pub kind: u32,
    /// How many share the packets.
    pub members: u32,
}

/// Parameters of `probe`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct ProbeSpec {
    /// What to look at
    #[arg(long, required = true, value_delimiter = ',')]
    pub what: Vec<ProbeWhat>,
    /// Network interfaces for `counters`; for `sensor`, the only ones that are looked at
    #[arg(long = "port", value_name = "NAME")]
    #[serde(default)]
    pub ports: Vec<String>,
    /// Processes for `process`, `proof`, `account` and `usage`; for `captures`, the first look's: only these and their children
    #[arg(long = "pid", value_name = "PID")]
    #[serde(default)]
    pub pids: Vec<u32>,
    /// Paths for `proof`, as each of `pids` sees them; for `sensor`, a suricata.yaml to be read with what it includes
    #[arg(long = "file", value_name = "PATH")]
    #[serde(default)]
    pub files: Vec<String>,
    /// For `flows`.
    #[arg(skip)]
    #[serde(default)]
    pub groups: Vec<FlowGroup>,
    /// Time for which they listen.
    #[arg(skip)]
    #[serde(default)]
    pub listen_ms: u32,
}
