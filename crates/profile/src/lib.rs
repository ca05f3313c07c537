//! Where the time of a program goes, thread by thread: which functions run, where threads wait, how many run at once.
//!
//! Samples come from the kernel's own timer of CPU time (perf_event_open(2)), callers from a copy of the stack, names from the ELF
//! files that the program itself has mapped, in its own root filesystem.

mod addresses;
mod call_sites;
mod concurrency;
mod functions;
mod kernel;
mod lacks;
mod outcome;
mod profiler;
mod rings;
mod stacks;
mod thread;
mod unwinding;

pub use lacks::reason;
pub use outcome::{
    Concurrency, Function, Missing, Outcome, Running, ThreadProfile, WaitedIn, Waiting,
};
pub use profiler::{Failed, Profiler};
