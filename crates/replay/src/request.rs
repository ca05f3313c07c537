//! What is asked of a replay, and what of it cannot be scheduled.

use crate::load::{Load, LoadError};
use crate::replica_count::{Replicas, ReplicasError};
use crate::trace::Trace;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// How fast.
    pub load: Load,
    /// Passes of the trace; 0 = as many as fit the duration.
    pub loops: u32,
    /// Replicas at once, the trace itself included.
    pub replicas: Replicas,
    /// Packets due at this time or later are not sent.
    pub duration_ns: Option<u64>,
    /// Time of one pass at the trace's own timing and speed 1: silence follows its last packet if its packets take less.
    pub pass_ns: Option<u64>,
    /// Spread the starts of replicas by small offsets from this seed; `None` if they shall be in step.
    pub offsets_from: Option<u64>,
    /// Each pass of a replica has flows of its own, as another replica would.
    pub distinct_loops: bool,
}

/// What cannot be scheduled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A number or a profile is wrong.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No replica, or more than memory is taken for.
    #[error(transparent)]
    Replicas(#[from] ReplicasError),
    /// A part of a trace in which nothing is.
    #[error(
        "multiplier: so small a part of the trace has none of its flows: nothing would be sent"
    )]
    NothingCarried,
    /// An endless replay.
    #[error("loops = 0 means as many passes as duration_s holds: duration_s is missing")]
    Endless,
    /// The count of packets would depend on how fast they leave.
    #[error("loops = 0 is not possible at top speed: give the passes that at most shall be sent")]
    EndlessTopSpeed,
    /// Flows of their own for more passes than there are.
    #[error("loop_flows = \"distinct\" wants to know the passes: give loops")]
    EndlessCopies,
    /// More copies than can be numbered.
    #[error(
        "{loops} passes of {replicas} replicas are more copies with flows of their own than there can be"
    )]
    TooManyCopies {
        /// Passes.
        loops: u32,
        /// At once.
        replicas: u32,
    },
    /// All packets of the trace have one time.
    #[error(
        "all packets of the trace have the same time, so its own timing fills no duration: use pps"
    )]
    NoDuration,
}

impl Request {
    /// Whether its numbers make sense, whatever the trace.
    ///
    /// # Errors
    /// If one is not positive.
    pub fn check_numbers(&self) -> Result<(), PlanError> {
        self.load.check()?;
        self.copies().map(drop)
    }

    /// Copies of the trace that differ in their addresses, if replicas are distinct.
    ///
    /// # Errors
    /// If each pass is to have its own, and their number is not known or too large.
    pub fn copies(&self) -> Result<u32, PlanError> {
        let replicas = self.replicas.count();
        if !self.distinct_loops {
            return Ok(replicas);
        }
        if self.loops == 0 {
            return Err(PlanError::EndlessCopies);
        }
        let loops = self.loops;
        (replicas.checked_mul(loops)).ok_or(PlanError::TooManyCopies { loops, replicas })
    }

    /// Whether it has an end, and its numbers make sense.
    pub(crate) fn check(&self, trace: &Trace) -> Result<(), PlanError> {
        self.check_numbers()?;
        if self.loops > 0 {
            return Ok(());
        }
        match self.load {
            Load::TopSpeed => Err(PlanError::EndlessTopSpeed),
            Load::Profile(_) => Ok(()),
            _ if self.duration_ns.is_none() => Err(PlanError::Endless),
            Load::Timing { .. } if trace.duration_ns() == 0 => Err(PlanError::NoDuration),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::trace::tests::trace;

    #[test]
    fn what_has_no_end_or_no_rate_is_refused() {
        let (one, two) = (trace(&[0]), trace(&[0, 5]));
        let bad = |trace: &Trace, request: Request| request.check(trace).unwrap_err();
        let request = |load| Request {
            load,
            loops: 1,
            replicas: Replicas::whole(1),
            duration_ns: None,
            pass_ns: None,
            offsets_from: None,
            distinct_loops: false,
        };
        let endless = |load, duration_ns| Request {
            loops: 0,
            duration_ns,
            ..request(load)
        };
        let timing = Load::Timing { speed: 1.0 };
        assert_eq!(bad(&two, endless(timing.clone(), None)), PlanError::Endless);
        assert_eq!(bad(&one, endless(timing, Some(9))), PlanError::NoDuration);
        assert_eq!(
            bad(&two, endless(Load::TopSpeed, Some(9))),
            PlanError::EndlessTopSpeed
        );
        assert_eq!(
            bad(&two, request(Load::Rate { pps: 0.0, burst: 1 })),
            PlanError::Load(LoadError::NotPositive {
                field: "pps",
                value: 0.0
            })
        );
        assert!(matches!(
            bad(&two, request(Load::Timing { speed: f64::NAN })),
            PlanError::Load(LoadError::NotPositive { field: "speed", .. })
        ));
    }
}
