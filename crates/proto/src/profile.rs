//! Job `profile`: where the time of a program goes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `profile`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct ProfileSpec {
    /// Root of a process tree, may be repeated; children are found
    #[arg(long = "pid", short, value_name = "PID", required = true)]
    pub pids: Vec<u32>,
    /// Samples of each thread in a second of its CPU time
    #[arg(long, default_value_t = hertz())]
    #[serde(default = "hertz")]
    pub hertz: u64,
    /// Milliseconds between readings of what was sampled and of the scheduler's counters
    #[arg(long, default_value_t = interval_ms(), value_name = "MS")]
    #[serde(default = "interval_ms")]
    pub interval_ms: u64,
    /// Also count cycles, instructions and cache misses; on a virtual CPU each switch of a thread then costs some 30 us
    #[arg(long)]
    #[serde(default)]
    pub hardware: bool,
    /// End after this time; at stop (Ctrl-C) if absent
    #[arg(long, value_name = "SECONDS")]
    pub duration_s: Option<f64>,
}

/// A prime-like number, so that samples do not keep step with what a program does 100 times a second.
fn hertz() -> u64 {
    99
}

fn interval_ms() -> u64 {
    100
}

/// The processes and threads at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ProfileReady {
    /// Processes below the roots.
    pub processes: u64,
    /// Their threads.
    pub threads: u64,
}
