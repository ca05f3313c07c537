//! What a look at the clock costs on this CPU, in this place.

use std::collections::BTreeMap;

use nodrop_proto::JobError;
use schemars::JsonSchema;
use serde::Serialize;

const BATCHES: usize = 15;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClockCosts")]
pub struct Costs {
    batches: usize,
    /// Sequence → ns each.
    ns: BTreeMap<&'static str, Cost>,
}

/// Of the batches; `best` is the cost itself, the distance to the others is disturbance.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClockCost")]
struct Cost {
    best: f64,
    median: f64,
    worst: f64,
}

#[cfg(target_arch = "x86_64")]
pub fn measure() -> Result<Costs, JobError> {
    let cost = |found: Vec<f64>| Cost {
        best: found[0],
        median: found[BATCHES / 2],
        worst: found[BATCHES - 1],
    };
    Ok(Costs {
        batches: BATCHES,
        ns: nodrop_counters::tsc::measure(BATCHES)
            .into_iter()
            .map(|(name, found)| (name, cost(found)))
            .collect(),
    })
}

#[cfg(not(target_arch = "x86_64"))]
pub fn measure() -> Result<Costs, JobError> {
    Err(JobError::new(
        "unsupported",
        "probe tsc: only x86-64 has a TSC",
    ))
}
