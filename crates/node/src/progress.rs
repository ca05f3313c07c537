//! How far a capture has been read, for whoever waits for it.

use std::cell::RefCell;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::session::Session;

/// From one look at the clock to the next.
const STEP_BYTES: u64 = 4 << 20;
/// Reading that takes less shows nothing.
const QUIET: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(500);

/// Share of the reading that is done.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TraceSample")]
pub struct Read {
    /// From 0 to 1.
    read_ratio: f64,
}

/// Counts bytes that were read, through all passes over a file.
pub struct Progress {
    to: To,
    state: RefCell<State>,
}

/// Who waits.
enum To {
    /// A person at a terminal, for the file of this name.
    Terminal(String),
    /// A program that reads lines of stderr.
    Lines,
    /// A controller.
    Events(Session),
    Nobody,
}

struct State {
    began: Instant,
    said: Instant,
    is_shown: bool,
    bytes: u64,
    passes: u64,
    passed: u64,
    last: u64,
    next: u64,
}

impl Progress {
    /// Events for a controller.
    pub fn of_job(session: &Session) -> Self {
        Self::to(To::Events(session.clone()))
    }

    /// A line on a terminal, or with `lines` a line on stderr each time.
    pub fn by_hand(path: &Path, lines: bool) -> Self {
        Self::to(if lines {
            To::Lines
        } else if std::io::stderr().is_terminal() {
            To::Terminal(path.display().to_string())
        } else {
            To::Nobody
        })
    }

    /// Without a word.
    pub fn of_nobody() -> Self {
        Self::to(To::Nobody)
    }

    fn to(to: To) -> Self {
        let now = Instant::now();
        let state = State {
            began: now,
            said: now,
            is_shown: false,
            bytes: 1,
            passes: 1,
            passed: 0,
            last: 0,
            next: 0,
        };
        let state = RefCell::new(state);
        Self { to, state }
    }

    /// So many bytes will be read, so many times.
    pub fn expect(&self, bytes: usize, passes: u64) {
        let mut state = self.state.borrow_mut();
        state.bytes = bytes.max(1) as u64;
        (state.passes, state.passed) = (passes, 0);
        (state.last, state.next) = (0, 0);
    }

    /// So much of this pass is done; less than before is the next one.
    pub fn at(&self, bytes: usize) {
        let mut state = self.state.borrow_mut();
        let bytes = bytes as u64;
        if bytes < state.last {
            state.passed += 1;
            state.next = 0;
        }
        state.last = bytes;
        if bytes < state.next {
            return;
        }
        state.next = bytes + STEP_BYTES;
        let now = Instant::now();
        let took = now - state.began;
        if took < QUIET || now - state.said < EVERY {
            return;
        }
        state.said = now;
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = |part: u64, of: u64| part as f64 / of as f64;
        let ratio = share(
            state.passed * state.bytes + bytes,
            state.passes * state.bytes,
        )
        .clamp(0.0, 1.0);
        match &self.to {
            To::Nobody => {}
            To::Events(session) => session.sample(&Read { read_ratio: ratio }),
            To::Lines => eprintln!("progress {ratio:.4}"),
            To::Terminal(name) => {
                state.is_shown = true;
                let left_s = took.as_secs_f64() * (1.0 - ratio) / ratio.max(0.001);
                let percent = 100.0 * ratio;
                eprint!("\r\x1b[K{name}: {percent:.0} % read, about {left_s:.0} s left");
                let _ = std::io::stderr().flush();
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.state.borrow().is_shown {
            eprint!("\r\x1b[K");
        }
    }
}
