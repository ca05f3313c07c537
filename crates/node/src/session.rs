//! What a job sees of the world that drives it: start, stop, and where its events go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nodrop_sys::clock::mono_ns;
use serde::Serialize;

use crate::emit::Emitter;

/// How long a job may take to undo what it did once its controller is gone.
const ABORT_GRACE: Duration = Duration::from_secs(1);

/// Cheap to clone into a job's own threads.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    controlled: bool,
}

struct Shared {
    emit: Emitter,
    /// Beside `signals`, so that hot loops can look without a lock.
    stop: AtomicBool,
    signals: Mutex<Signals>,
    changed: Condvar,
}

#[derive(Default)]
struct Signals {
    /// `Some(None)` = start now.
    start: Option<Option<u64>>,
    stop: bool,
    finished: bool,
}

impl Session {
    pub fn new(controlled: bool) -> Self {
        let shared = Shared {
            emit: Emitter::new(),
            stop: AtomicBool::new(false),
            signals: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            controlled,
        }
    }

    /// Waits for `start` and returns the CLOCK_MONOTONIC time at which to begin, which may lie ahead: sleeping up to it is the
    /// job's matter. Now, if the start says null, if a person runs the job, or if `stop` came first.
    pub fn wait_start(&self) -> u64 {
        self.wait_start_in(0)
    }

    /// The same for a job that needs so long to get going: a start without a time of its own is that much later than now.
    pub fn wait_start_in(&self, head_start_ns: u64) -> u64 {
        let mut signals = self.lock();
        while signals.start.is_none() && !signals.stop && self.controlled {
            signals = self
                .shared
                .changed
                .wait(signals)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let at = signals.start.flatten();
        drop(signals);
        at.unwrap_or_else(|| mono_ns() + head_start_ns)
    }

    /// Whether the job shall come to its end: `stop`, Ctrl-C, or a controller that is gone. One relaxed load.
    pub fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Sleeps until a CLOCK_MONOTONIC time or until stopped; true if stopped.
    pub fn sleep_until(&self, mono_deadline_ns: u64) -> bool {
        let mut signals = self.lock();
        loop {
            let left = mono_deadline_ns.saturating_sub(mono_ns());
            if signals.stop || left == 0 {
                return signals.stop;
            }
            (signals, _) = self
                .shared
                .changed
                .wait_timeout(signals, Duration::from_nanos(left))
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends a `sample` event. By hand only a result is printed, so then it goes nowhere.
    pub fn sample<T: Serialize>(&self, body: &T) {
        if self.controlled {
            self.shared.emit.event("sample", body);
        }
    }

    /// Sends a `sample` event in which the job's output consists, so that it is printed by hand as well.
    pub fn stream<T: Serialize>(&self, body: &T) {
        let is_read = self.shared.emit.event("sample", body);
        self.stop_unless(is_read);
    }

    /// Prints a line that is no event, for people.
    pub fn print(&self, line: &[u8]) {
        let is_read = self.shared.emit.text(line);
        self.stop_unless(is_read);
    }

    /// By hand, `| head` ends the job. A controller that is gone closes our stdin as well, and that is what ends us.
    fn stop_unless(&self, is_read: bool) {
        if !is_read && !self.controlled {
            self.stop();
        }
    }

    /// Whether a controller drives this job and expects nothing but events.
    pub fn is_controlled(&self) -> bool {
        self.controlled
    }

    fn lock(&self) -> MutexGuard<'_, Signals> {
        self.shared
            .signals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Signals)) {
        let mut signals = self.lock();
        change(&mut signals);
        self.shared.stop.store(signals.stop, Ordering::Relaxed);
        drop(signals);
        self.shared.changed.notify_all();
    }

    /// Where events go.
    pub fn emit(&self) -> &Emitter {
        &self.shared.emit
    }

    /// The job may begin: `None` = now.
    pub fn start(&self, at_mono_ns: Option<u64>) {
        self.change(|signals| signals.start = Some(at_mono_ns));
    }

    /// The job shall come to its end.
    pub fn stop(&self) {
        self.change(|signals| signals.stop = true);
    }

    /// The job has ended.
    pub fn finish(&self) {
        self.change(|signals| signals.finished = true);
    }

    /// Another job begins: what was said for the one before is over.
    pub fn begin_anew(&self) {
        self.change(|signals| *signals = Signals::default());
    }

    /// Ends the process with code 1, after the job had its chance to undo.
    pub fn abort(&self) -> ! {
        self.stop();
        let signals = self.lock();
        let _undone = self
            .shared
            .changed
            .wait_timeout_while(signals, ABORT_GRACE, |signals| !signals.finished);
        std::process::exit(1);
    }
}
