//! The protocol engine: from hello to the result of each spec, driven by a controller or by hand.
//!
//! Two threads: the main thread does the job, a second one watches stdin and never leaves SCHED_OTHER, so that the dead man's
//! switch works while the job holds a core at real-time priority.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nodrop_proto::{ClockAnswer, Hello, JobError, Message, PROTOCOL};
use nodrop_sys::clock::{mono_ns, real_ns};
use serde::Serialize;
use serde_json::Value;

use crate::emit::Emitter;
use crate::job::Job;

/// How long a job may take to undo what it did once its controller is gone.
const ABORT_GRACE: Duration = Duration::from_secs(1);

/// What a job sees of the world that drives it. Cheap to clone into a job's own threads.
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
    fn new(controlled: bool) -> Self {
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
    /// job's matter. Now, where the start says null, where a person runs the job, or where `stop` came first.
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

    /// Sleeps until a CLOCK_MONOTONIC time or until stopped; true where stopped.
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

    fn stop(&self) {
        self.change(|signals| signals.stop = true);
    }

    /// Ends the process with code 1, after the job had its chance to undo.
    fn abort(&self) {
        self.stop();
        let signals = self.lock();
        let _undone = self
            .shared
            .changed
            .wait_timeout_while(signals, ABORT_GRACE, |signals| !signals.finished);
        std::process::exit(1);
    }
}

/// Runs a job for a controller.
pub fn controlled<J: Job>() -> ExitCode {
    // A Ctrl-C at a terminal reaches the whole process group; what it means for us is the controller's decision.
    block_interrupt();
    let session = Session::new(true);
    session.shared.emit.event(
        "hello",
        &Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            job: J::NAME.into(),
            pid: std::process::id(),
        },
    );
    let specs = watch_stdin(&session);
    let mut before: Option<J> = None;
    loop {
        let Ok(spec) = specs.recv() else {
            // Stdin has ended, and the watcher has closed the session.
            return ExitCode::from(u8::from(before.is_none()));
        };
        let another = Message::may_follow(&spec);
        let outcome = Message::spec(&spec, J::NAME)
            .and_then(|spec| perform::<J>(before.take(), spec, &session));
        match outcome {
            Ok((job, result)) if another => {
                before = Some(job);
                // First, for another spec may come at once and begin anew.
                session.change(|signals| signals.finished = true);
                if !session.shared.emit.result(&result, true) {
                    return ExitCode::FAILURE;
                }
            }
            Ok((_, result)) => return conclude(&session, Ok(result)),
            Err(error) => return conclude::<J::Outcome>(&session, Err(error)),
        }
    }
}

/// Runs a job with flags: begins at once, ends by itself or at Ctrl-C, prints its result.
pub fn by_hand<J: Job>(spec: J::Spec) -> ExitCode {
    let session = Session::new(false);
    stop_at_interrupt(&session);
    match perform::<J>(None, spec, &session) {
        Ok((_, result)) => conclude(&session, Ok(result)),
        Err(JobError {
            kind,
            message,
            hint,
        }) => {
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            eprintln!("nodrop-node {}: {message}{hint}", J::NAME);
            // Bad input is 2, as clap has it for flags.
            ExitCode::from(if kind == "spec" { 2 } else { 1 })
        }
    }
}

fn perform<J: Job>(
    before: Option<J>,
    spec: J::Spec,
    session: &Session,
) -> Result<(J, J::Outcome), JobError> {
    let (mut job, ready) = match before {
        Some(job) => job.again(spec, session)?,
        None => J::prepare(spec, session)?,
    };
    if session.controlled {
        session.shared.emit.event("ready", &ready);
    }
    let outcome = job.run(session)?;
    Ok((job, outcome))
}

fn conclude<T: Serialize>(session: &Session, outcome: Result<T, JobError>) -> ExitCode {
    let (said, code) = match &outcome {
        Ok(result) => (session.shared.emit.result(result, false), 0),
        Err(error) => (session.shared.emit.error(error), 1),
    };
    session.change(|signals| signals.finished = true);
    // Not said: the session was ended by the watcher, whose exit code is 1.
    ExitCode::from(if said { code } else { 1 })
}

fn watch_stdin(session: &Session) -> Receiver<Value> {
    let (sender, receiver) = channel();
    let mut specs = Specs {
        to: sender,
        is_first: true,
    };
    let session = session.clone();
    std::thread::spawn(move || {
        let heard = std::io::stdin()
            .lock()
            .lines()
            .try_for_each(|line| match line {
                Ok(line) if line.trim().is_empty() => Ok(()),
                Ok(line) => obey(&line, &session, &mut specs),
                Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                    Err(End::Protocol("a line is not UTF-8".into()))
                }
                Err(_) => Err(End::Stdin),
            });
        // EOF is the dead man's switch; after a result it is only a controller that tidies up.
        let cut_short = match heard {
            Err(End::Protocol(message)) => session
                .shared
                .emit
                .error(&JobError::new("protocol", message)),
            Ok(()) | Err(End::Stdin) => session.shared.emit.close(),
        };
        if cut_short {
            drop(specs);
            session.abort();
        }
    });
    receiver
}

/// Why nothing more is heard of the controller.
enum End {
    Protocol(String),
    Stdin,
}

/// Where specs go.
struct Specs {
    to: Sender<Value>,
    is_first: bool,
}

fn obey(line: &str, session: &Session, specs: &mut Specs) -> Result<(), End> {
    match Message::parse(line).map_err(|e| End::Protocol(e.0))? {
        Message::Clock { id } => {
            let (mono_ns, real_ns) = (mono_ns(), real_ns());
            session.shared.emit.event(
                "clock",
                &ClockAnswer {
                    id,
                    mono_ns,
                    real_ns,
                },
            );
        }
        Message::Start { at_mono_ns } => {
            session.change(|signals| signals.start = Some(at_mono_ns));
        }
        Message::Stop => session.stop(),
        Message::Spec(spec) => {
            let is_first = std::mem::replace(&mut specs.is_first, false);
            if !is_first && !session.shared.emit.resume() {
                return Err(End::Protocol(
                    "a second spec: one comes after a result whose spec said `again`".into(),
                ));
            }
            // What was said for the one before is over.
            session.change(|signals| *signals = Signals::default());
            // The main thread waits for it; it cannot be gone.
            drop(specs.to.send(spec));
        }
    }
    Ok(())
}

fn block_interrupt() -> SigSet {
    let interrupt = SigSet::from(Signal::SIGINT);
    // Fails only for an invalid set.
    let _ = interrupt.thread_block();
    interrupt
}

/// Blocked here and in every thread made later, so that exactly one thread takes it.
fn stop_at_interrupt(session: &Session) {
    let interrupt = block_interrupt();
    let session = session.clone();
    std::thread::spawn(move || {
        while interrupt.wait().is_ok() {
            session.stop();
        }
    });
}
