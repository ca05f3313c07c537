//! What is offered: a trace in memory, its schedule, and how both are spread over ports.

use nodrop_replay::{Plan, Spread, Trace};

/// Everything a sender needs but a port.
pub struct Offer {
    pub trace: Trace,
    pub plan: Plan,
    pub spread: Spread,
    /// Ends it at top speed.
    pub limit_ns: Option<u64>,
    pub realtime: bool,
    /// Whether a sender may keep the CPU that it is pinned to by spinning.
    pub spin: bool,
}
