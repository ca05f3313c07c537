//! The protocol engine: from hello to the result of each spec, driven by a controller or by hand.
//!
//! Two threads: the main thread does the job, a second one watches stdin and never leaves SCHED_OTHER, so that the dead man's
//! switch works while the job holds a core at real-time priority.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::signal::{SigSet, Signal};
use nodrop_proto::{ClockAnswer, Hello, JobError, Message, PROTOCOL, TaiAnswer};
use nodrop_sys::clock::{mono_ns, real_ns, tai};
use serde::Serialize;
use serde_json::Value;

use crate::job::Job;
use crate::session::Session;

/// Runs a job for a controller.
pub fn controlled<J: Job>() -> ExitCode {
    // A Ctrl-C at a terminal reaches the whole process group; the controller decides what it means for us.
    blocked(&[Signal::SIGINT]);
    let session = Session::new(true);
    session.emit().event(
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
                session.finish();
                if !session.emit().result(&result, true) {
                    return ExitCode::FAILURE;
                }
            }
            Ok((_, result)) => return conclude(&session, Ok(result)),
            Err(error) => return conclude::<J::Outcome>(&session, Err(error)),
        }
    }
}

/// Runs a job with flags: begins at once, ends by itself, at Ctrl-C or SIGTERM, prints its result.
pub fn by_hand<J: Job>(spec: J::Spec) -> ExitCode {
    let session = Session::new(false);
    stop_when_asked(&session);
    match perform::<J>(None, spec, &session) {
        Ok((_, result)) => conclude(&session, Ok(result)),
        Err(error) => refused(J::NAME, &error),
    }
}

/// Says an error to a person, in one line.
pub fn refused(job: &str, error: &JobError) -> ExitCode {
    let JobError { message, hint, .. } = error;
    let hint = hint.as_ref().map(|hint| format!("; {hint}"));
    eprintln!("nodrop-node {job}: {message}{}", hint.unwrap_or_default());
    ExitCode::from(error.exit_code())
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
    if session.is_controlled() {
        session.emit().event("ready", &ready);
    }
    let outcome = job.run(session)?;
    Ok((job, outcome))
}

fn conclude<T: Serialize>(session: &Session, outcome: Result<T, JobError>) -> ExitCode {
    let (said, code) = match &outcome {
        Ok(result) => (session.emit().result(result, false), 0),
        Err(error) => (session.emit().error(error), 1),
    };
    session.finish();
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
            Err(End::Protocol(message)) => {
                session.emit().error(&JobError::new("protocol", message))
            }
            Ok(()) | Err(End::Stdin) => session.emit().close(),
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
            session.emit().event(
                "clock",
                &ClockAnswer {
                    id,
                    mono_ns,
                    real_ns,
                    tai: tai().map(|kept| TaiAnswer {
                        ahead_ns: kept.ahead_ns,
                        max_error_ns: kept.max_error_ns,
                    }),
                },
            );
        }
        Message::Start { at_mono_ns } => {
            session.start(at_mono_ns);
        }
        Message::Stop => session.stop(),
        Message::Spec(spec) => {
            let is_first = std::mem::replace(&mut specs.is_first, false);
            if !is_first && !session.emit().resume() {
                return Err(End::Protocol(
                    "a second spec: one comes after a result whose spec said `again`".into(),
                ));
            }
            session.begin_anew();
            // The main thread waits for it; it cannot be gone.
            drop(specs.to.send(spec));
        }
    }
    Ok(())
}

fn blocked(signals: &[Signal]) -> SigSet {
    let set: SigSet = signals.iter().copied().collect();
    // Fails only for an invalid set.
    let _ = set.thread_block();
    set
}

/// By Ctrl-C, or by what `kill`, `timeout` and systemd send. Blocked here and in every thread made later, so that exactly one
/// thread takes it.
fn stop_when_asked(session: &Session) {
    let asked = blocked(&[Signal::SIGINT, Signal::SIGTERM]);
    let session = session.clone();
    std::thread::spawn(move || {
        while asked.wait().is_ok() {
            session.stop();
        }
    });
}
