//! Job `trace`: what a trace holds and what the kernel will do to it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::replay::{once, same_flows, seed_of_flows};
use crate::{Flows, LedBy, ReplaySpec, SendBackend, SpreadOver};

/// Parameters of `trace`; the same words as a replay's, because the forecast is for that replay.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct TraceSpec {
    /// Capture file to read
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
    /// Times it will be sent
    #[arg(long, default_value_t = 1)]
    #[serde(default = "one")]
    pub loops: u32,
    /// Replicas sent at once; the last one carries a part of the flows if this is no whole number
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
    /// Time of one pass at the trace's own speed: silence after the last packet, if its packets take less
    #[arg(long)]
    #[serde(default)]
    pub pass_s: Option<f64>,
    /// Factor on the trace's own timing; 1 if no rate is given
    #[arg(long)]
    pub speed: Option<f64>,
    /// Constant rate in packets per second
    #[arg(long)]
    pub pps: Option<f64>,
    /// Rate over time: a file of lines `time_s,pps`, the last of which ends it
    #[arg(long)]
    pub profile: Option<PathBuf>,
    /// Change the rate evenly between the points of the profile, not in steps
    #[arg(long, requires = "profile")]
    #[serde(default)]
    pub ramp: bool,
    /// As fast as the kernel takes them: no reassembly timer ends
    #[arg(long)]
    #[serde(default)]
    pub top_speed: bool,
    /// The replay ends after this time
    #[arg(long)]
    pub duration_s: Option<f64>,
    /// Seed of the replay
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub seed: u64,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    #[serde(default)]
    pub tolerate_truncated: bool,
}

impl TraceSpec {
    /// The replay that is forecast.
    #[must_use]
    pub fn as_replay(&self) -> ReplaySpec {
        let has_rate =
            self.speed.is_some() || self.pps.is_some() || self.profile.is_some() || self.top_speed;
        ReplaySpec {
            trace: self.trace.clone(),
            merge: Vec::new(),
            interfaces: Vec::new(),
            spread: SpreadOver::default(),
            speed: if has_rate { self.speed } else { Some(1.0) },
            pps: self.pps,
            burst: 1,
            bps: None,
            profile: self.profile.clone(),
            ramp: self.ramp,
            top_speed: self.top_speed,
            loops: self.loops,
            multiplier: self.multiplier,
            flow_seed: self.flow_seed,
            flows: self.flows,
            loop_flows: self.loop_flows,
            first_copy: 0,
            pass_s: self.pass_s,
            duration_s: self.duration_s,
            seed: self.seed,
            backend: SendBackend::Auto,
            cpus: Vec::new(),
            realtime: false,
            spin: false,
            shallow_idle: false,
            dst_macs: Vec::new(),
            dst_macs_by: LedBy::default(),
            yes: false,
            tolerate_truncated: self.tolerate_truncated,
        }
    }
}

fn one() -> u32 {
    1
}
