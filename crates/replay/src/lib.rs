//! The schedule of a replay: when each frame of each replica is due, and how late it left.

mod backend;
mod books;
pub mod bursts;
mod flood;
mod flows;
pub mod lateness;
pub mod load;
mod offsets;
pub mod outcome;
mod own_cpu;
pub mod pacer;
mod part;
pub mod planned;
pub mod replica_count;
mod request;
mod round;
pub mod schedule;
pub mod schedule_error;
pub mod sender;
mod sent_profile;
pub mod spread;
pub mod trace;
mod ways;

pub use backend::Backend;
pub use load::{Load, LoadError, Profile};
pub use outcome::{Achieved, Outcome};
pub use replica_count::{Replicas, ReplicasError};
pub use request::{PlanError, Request};
pub use schedule::Plan;
pub use sender::{Replay, SendError};
pub use sent_profile::SentProfile;
pub use spread::Spread;
pub use trace::{Copies, Trace, TraceError};
pub use ways::Mac;
