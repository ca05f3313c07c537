//! The only writer of stdout: whole JSON lines, one terminal event, nothing after it.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nodrop_proto::{JobError, Tagged};
use serde::Serialize;

/// Where events go. Shared by the job and the thread that answers clock questions.
pub struct Emitter {
    out: Mutex<Out>,
}

struct Out {
    ended: bool,
    /// The line being written; its memory is kept.
    line: Vec<u8>,
}

impl Emitter {
    /// Writes to this process's stdout.
    pub const fn new() -> Self {
        Self {
            out: Mutex::new(Out {
                ended: false,
                line: Vec::new(),
            }),
        }
    }

    /// One event that is not the last: `hello`, `ready`, `clock`, `sample`.
    pub fn event<T: Serialize>(&self, kind: &'static str, body: &T) {
        let mut out = self.lock();
        if !out.ended {
            out.event(kind, body);
        }
    }

    /// One line of a table for people.
    pub fn text(&self, line: &[u8]) {
        let mut out = self.lock();
        if !out.ended {
            out.line.clear();
            out.line.extend_from_slice(line);
            out.write();
        }
    }

    /// `result`. False where the session had ended before.
    pub fn result<T: Serialize>(&self, body: &T) -> bool {
        self.last("result", body)
    }

    /// `error`. False where the session had ended before.
    pub fn error(&self, error: &JobError) -> bool {
        self.last("error", error)
    }

    /// From here on nothing is written. False where the session had ended before.
    pub fn close(&self) -> bool {
        !std::mem::replace(&mut self.lock().ended, true)
    }

    fn last<T: Serialize>(&self, kind: &'static str, body: &T) -> bool {
        let mut out = self.lock();
        if std::mem::replace(&mut out.ended, true) {
            return false;
        }
        out.event(kind, body);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    fn event<T: Serialize>(&mut self, kind: &'static str, body: &T) {
        self.line.clear();
        if let Err(e) = serde_json::to_writer(&mut self.line, &Tagged { r#type: kind, body }) {
            // Only a body with non-string map keys fails to serialise; the reader must not wait for it forever.
            let bug =
                format!("{{\"type\":\"error\",\"kind\":\"bug\",\"message\":\"{kind}: {e}\"}}");
            self.line = bug.into();
        }
        self.write();
    }

    fn write(&mut self) {
        self.line.push(b'\n');
        let mut out = std::io::stdout().lock();
        // A reader that is gone closes our stdin as well: the dead man's switch ends us, not EPIPE.
        let _ = out.write_all(&self.line).and_then(|()| out.flush());
    }
}
