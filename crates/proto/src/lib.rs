//! The words that controller and node speak: job specs and events, as JSON lines (docs/node-protocol.md).
//!
//! A spec is one struct for both ways in: serde reads it from the `spec` line (unknown fields are ignored, so that a newer
//! controller can talk to an older node), clap reads it from flags when a person runs the job by hand.

mod attach;
mod message;
mod overhear;
mod probe;
mod profile;
mod replay;
mod sample;
mod sink;
mod trace;

pub use attach::{
    AttachAnomalies, AttachReady, AttachResult, AttachSample, AttachSpec, HomeSpec, LatencyUs,
    ReferenceMmeReady, ReferenceMmeResult, ReferenceMmeSpec, StubHssSpec, StubReady, StubResult,
    StubSgwSpec, Usim,
};
pub use message::{
    ClockAnswer, Hello, JobError, Message, MessageError, PROTOCOL, Tagged, TaiAnswer,
};
pub use overhear::{OverhearReady, OverhearResult, OverhearSpec, Overheard};
pub use probe::{FlowGroup, ProbeSpec, ProbeWhat};
pub use profile::{ProfileReady, ProfileSpec};
pub use replay::{
    Achieved, Flows, LateBurst, LateBursts, LedBy, ReplayPort, ReplayReady, ReplayResult,
    ReplaySample, ReplaySpec, ScheduleError, SendBackend, SentProfile, SpreadOver,
};
pub use sample::{Every, SampleFormat, SampleReady, SampleSource, SampleSpec};
pub use sink::{SinkCounts, SinkReady, SinkResult, SinkSample, SinkSpec, SinkThread};
pub use trace::TraceSpec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Percentiles of a distance from a schedule, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half of the events were at most this late.
    pub p50: f64,
    /// 99 % of the events were at most this late.
    pub p99: f64,
    /// The latest event.
    pub max: f64,
}
