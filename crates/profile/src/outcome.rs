//! What a profile says, as it goes over the wire.

use schemars::JsonSchema;
use serde::Serialize;

/// A function, or what stands for one that has no name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, JsonSchema, Serialize)]
#[schemars(rename = "ProfiledFunction")]
pub struct Function {
    /// The file it is in, without folders; `[kernel]`, `[vdso]`, `[made while running]`, `[unknown]`.
    pub module: String,
    /// Its symbol. `None` if the file has none for it.
    pub name: Option<String>,
    /// Of a function without a name: the address in its file at which it begins, from the table for unwinding.
    pub begins: Option<u64>,
}

impl Function {
    pub(crate) fn unknown(module: &str) -> Self {
        Self {
            module: module.into(),
            name: None,
            begins: None,
        }
    }
}

/// Something that could not be had here, and why.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "ProfileMissing")]
pub struct Missing {
    /// `kernel`, `kernel_names`, `waits`, `hardware`, `threads`.
    pub what: String,
    /// For people.
    pub why: String,
}

/// Samples with one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "ProfiledRunning")]
pub struct Running {
    /// Index in `stacks`.
    pub stack: u32,
    /// How often it was met.
    pub samples: u64,
}

/// Time off the CPU from one stack on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "ProfiledWaiting")]
pub struct Waiting {
    /// Index in `stacks`.
    pub stack: u32,
    /// From leaving the CPU to getting one again: also what it then had to wait for a CPU.
    pub ns: u64,
    /// How often.
    pub times: u64,
}

/// The kernel's function in which a thread that slept was seen.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "ProfiledWaitChannel")]
pub struct WaitedIn {
    /// As in `/proc/PID/wchan`.
    pub function: String,
    /// At so many readings.
    pub readings: u64,
}

/// One thread, while it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "ProfiledThread")]
pub struct ThreadProfile {
    /// Its process.
    pub pid: u32,
    /// As its node sees it.
    pub tid: u32,
    /// Its last name.
    pub name: String,
    /// How long it was looked at.
    pub seen_ns: u64,
    /// Samples taken while it ran.
    pub samples: u64,
    /// Records that did not fit into their ring.
    pub lost: u64,
    /// Times the kernel took no samples because they came too fast.
    pub throttled: u64,
    /// What ran.
    pub running: Vec<Running>,
    /// What it waited for, of its own will; by the stack with which it left the CPU. Empty if `missing` has `waits`.
    pub waiting: Vec<Waiting>,
    /// Off the CPU of its own will.
    pub waiting_ns: Option<u64>,
    /// Off the CPU because another had it.
    pub preempted_ns: Option<u64>,
    /// On a CPU, as the scheduler counts it.
    pub cpu_ns: u64,
    /// It wanted a CPU and had none, as the scheduler counts it: preempted, or woken and not yet on a CPU.
    pub queued_ns: u64,
    /// Neither: it slept. The rest of `seen_ns`.
    pub blocked_ns: u64,
    /// Times it gave the CPU away.
    pub voluntary_switches: Option<u64>,
    /// Times the CPU was taken from it.
    pub involuntary_switches: Option<u64>,
    /// Times it went on on another CPU.
    pub migrations: Option<u64>,
    /// CPU cycles. `None` of these three: `missing` has `hardware`.
    pub cycles: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// Misses of the last cache.
    pub cache_misses: Option<u64>,
    /// Time on a CPU in which one of the three did not count, because counters took turns. Above 0 they are reckoned for the whole time.
    pub uncounted_ns: u64,
    /// Where it slept when it was looked at; empty if not permitted.
    pub waited_in: Vec<WaitedIn>,
}

impl ThreadProfile {
    /// Cycles, instructions, cache misses; 0 of a thread that did not run.
    pub(crate) fn hardware(&self) -> [Option<u64>; 3] {
        [self.cycles, self.instructions, self.cache_misses]
    }
}

/// For how long how many threads were on a CPU at once, from the scheduler's own records.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize)]
#[schemars(rename = "ProfiledConcurrency")]
pub struct Concurrency {
    /// By the number of threads, from none on.
    pub ns: Vec<u64>,
    /// Part of that time in which records were lost, or a thread had not yet shown whether it ran: the error.
    pub unsure_ns: u64,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "ProfileOutcome")]
pub struct Outcome {
    /// CLOCK_MONOTONIC of the node.
    pub began_mono_ns: u64,
    /// CLOCK_MONOTONIC of the node.
    pub ended_mono_ns: u64,
    /// CPU time of the profiler itself between the two. What its samples take of the threads is not in it.
    pub own_cpu_ns: u64,
    /// What could not be had.
    pub missing: Vec<Missing>,
    /// Every function that was met.
    pub functions: Vec<Function>,
    /// Each stack as indexes in `functions`, the outermost caller first.
    pub stacks: Vec<Vec<u32>>,
    /// Every thread that was met.
    pub threads: Vec<ThreadProfile>,
    /// `None` if it was not seen when threads leave their CPU: `missing` has `waits`.
    pub concurrency: Option<Concurrency>,
}
