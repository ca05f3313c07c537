//! The only writer of stdout: whole JSON lines, one result or error for each spec, nothing after the last of them.

use std::io::{ErrorKind, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nodrop_proto::{JobError, Tagged};
use serde::Serialize;

/// How it shows that the reader is gone, of a pipe and of a socket.
const LEFT: [ErrorKind; 3] = [
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionReset,
    ErrorKind::NotConnected,
];
/// The exit code of what this host refuses.
const REFUSED: i32 = 3;

/// Where events go. Shared by the job and the thread that answers clock questions.
pub struct Emitter {
    out: Mutex<Out>,
}

struct Out {
    phase: Phase,
    /// Stdout is a table, into which the last event does not belong.
    is_table: bool,
    /// The line being written; its memory is kept.
    line: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// On the way to a result.
    Working,
    /// The result is said, and another spec may come.
    Resting,
    /// Nothing more is said.
    Ended,
}

impl Emitter {
    /// Writes to this process's stdout.
    pub const fn new() -> Self {
        Self {
            out: Mutex::new(Out {
                phase: Phase::Working,
                is_table: false,
                line: Vec::new(),
            }),
        }
    }

    /// One event that ends nothing: `hello`, `ready`, `clock`, `sample`. False if the reader is gone.
    pub fn event<T: Serialize>(&self, kind: &'static str, body: &T) -> bool {
        let mut out = self.lock();
        if out.phase == Phase::Ended {
            return true;
        }
        out.compose(kind, body);
        out.write(&mut std::io::stdout().lock())
    }

    /// One line of a table for people; the result then goes to stderr. False if the reader is gone.
    pub fn text(&self, line: &[u8]) -> bool {
        let mut out = self.lock();
        if out.phase == Phase::Ended {
            return true;
        }
        out.is_table = true;
        out.line.clear();
        out.line.extend_from_slice(line);
        out.write(&mut std::io::stdout().lock())
    }

    /// `result`; the last word, unless another spec may follow. False if the session had ended before.
    pub fn result<T: Serialize>(&self, body: &T, another: bool) -> bool {
        let then = if another {
            Phase::Resting
        } else {
            Phase::Ended
        };
        self.conclude("result", body, then)
    }

    /// `error`. False if the session had ended before.
    pub fn error(&self, error: &JobError) -> bool {
        self.conclude("error", error, Phase::Ended)
    }

    /// Another spec has come. False if it may not.
    pub fn resume(&self) -> bool {
        let mut out = self.lock();
        let may = out.phase == Phase::Resting;
        if may {
            out.phase = Phase::Working;
        }
        may
    }

    /// From here on nothing is written. Whether this cuts something short.
    pub fn close(&self) -> bool {
        std::mem::replace(&mut self.lock().phase, Phase::Ended) == Phase::Working
    }

    fn conclude<T: Serialize>(&self, kind: &'static str, body: &T, then: Phase) -> bool {
        let mut out = self.lock();
        if std::mem::replace(&mut out.phase, then) == Phase::Ended {
            out.phase = Phase::Ended;
            return false;
        }
        out.compose(kind, body);
        // A controller that is gone ends us by its end of stdin, not by this.
        let _read = if out.is_table {
            out.write(&mut std::io::stderr().lock())
        } else {
            out.write(&mut std::io::stdout().lock())
        };
        true
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    fn compose<T: Serialize>(&mut self, kind: &'static str, body: &T) {
        self.line.clear();
        if let Err(e) = serde_json::to_writer(&mut self.line, &Tagged { r#type: kind, body }) {
            // Only a body with non-string map keys fails to serialise; the reader must not wait for it forever.
            let bug =
                format!("{{\"type\":\"error\",\"kind\":\"bug\",\"message\":\"{kind}: {e}\"}}");
            self.line = bug.into();
        }
    }

    /// False if the reader is gone. A file that takes nothing more ends the process: what it was begun for is lost.
    fn write(&mut self, to: &mut impl Write) -> bool {
        self.line.push(b'\n');
        match to.write_all(&self.line).and_then(|()| to.flush()) {
            Ok(()) => true,
            Err(error) if LEFT.contains(&error.kind()) => false,
            Err(error) => {
                eprintln!("nodrop-node: stdout: cannot write: {error}");
                std::process::exit(REFUSED)
            }
        }
    }
}
