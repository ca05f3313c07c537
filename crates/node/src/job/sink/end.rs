//! When the threads of a sink end: a set time after the stop, if they are not done before.

use std::sync::atomic::{AtomicBool, Ordering};

/// When a thread comes to its end.
pub struct End<'a> {
    stop: &'a AtomicBool,
    drain_ns: u64,
    /// Set once stopped.
    deadline_ns: Option<u64>,
}

impl<'a> End<'a> {
    pub fn new(stop: &'a AtomicBool, drain_ns: u64) -> Self {
        Self {
            stop,
            drain_ns,
            deadline_ns: None,
        }
    }

    pub fn is_near(&mut self, now: u64) -> bool {
        if self.deadline_ns.is_none() && self.stop.load(Ordering::Relaxed) {
            self.deadline_ns = Some(now.saturating_add(self.drain_ns));
        }
        self.deadline_ns.is_some()
    }

    pub fn is_passed(&mut self, now: u64) -> bool {
        self.is_near(now) && self.deadline_ns.is_some_and(|deadline| now >= deadline)
    }
}
