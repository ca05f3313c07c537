//! How many threads are on a CPU at once, from the times at which each takes and leaves one.

use crate::outcome::Concurrency;

/// Takes the records of all threads, which come ring by ring and not in the order of time.
#[derive(Debug, Default)]
pub struct Together {
    /// Time and thread; true = took a CPU.
    pending: Vec<(u64, usize, bool)>,
    on: Vec<State>,
    at_ns: u64,
    found: Concurrency,
}

#[derive(Debug, Clone, Copy)]
struct State {
    on: bool,
    /// No record has shown it yet: the scheduler said that it was ready to run, which is not yet running.
    guessed: bool,
}

impl Together {
    /// From this time on: records before it show only which threads are on a CPU.
    pub fn begin(&mut self, began_ns: u64) {
        (self.at_ns, self.found) = (began_ns, Concurrency::default());
    }

    /// Another thread; `ready` as its state says.
    pub fn join(&mut self, ready: bool) {
        self.on.push(State {
            on: ready,
            guessed: ready,
        });
    }

    /// A record of a thread, by the order in which they joined.
    pub fn note(&mut self, mono_ns: u64, thread: usize, took: bool) {
        self.pending.push((mono_ns, thread, took));
    }

    /// Every record up to this time has been noted; `lost`: but for some that were lost.
    pub fn advance(&mut self, until_ns: u64, lost: bool) {
        self.pending.sort_unstable();
        let unsure_before_ns = self.found.unsure_ns;
        let from_ns = self.at_ns;
        let due = self.pending.partition_point(|(at, ..)| *at <= until_ns);
        for (at_ns, thread, took) in self.pending.drain(..due).collect::<Vec<_>>() {
            self.pass(at_ns);
            self.on[thread] = State {
                on: took,
                guessed: false,
            };
        }
        self.pass(until_ns);
        if lost {
            self.found.unsure_ns = unsure_before_ns + until_ns.saturating_sub(from_ns);
        }
    }

    pub fn into_found(self) -> Concurrency {
        self.found
    }

    fn pass(&mut self, until_ns: u64) {
        let ns = until_ns.saturating_sub(self.at_ns);
        let running = self.on.iter().filter(|state| state.on).count();
        if self.found.ns.len() <= running {
            self.found.ns.resize(running + 1, 0);
        }
        self.found.ns[running] += ns;
        if self.on.iter().any(|state| state.guessed) {
            self.found.unsure_ns += ns;
        }
        self.at_ns = self.at_ns.max(until_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_how_many_run() {
        let mut together = Together::default();
        together.begin(100);
        for ready in [false, true, false] {
            together.join(ready);
        }
        // Ring by ring: each in order, together not.
        for (at, thread, took) in [
            (110, 0, true),
            (150, 0, false),
            (120, 1, false),
            (130, 2, true),
        ] {
            together.note(at, thread, took);
        }
        together.advance(140, false);
        together.advance(200, false);
        let found = together.into_found();
        // 1 | 0 and 1 | 0 | 0 and 2 | 2
        assert_eq!(found.ns, [0, 10 + 10 + 50, 10 + 20]);
        assert_eq!(
            found.unsure_ns, 20,
            "until the second thread's first record"
        );
    }

    #[test]
    fn lost_records_make_their_time_unsure() {
        let mut together = Together::default();
        together.begin(0);
        together.join(false);
        together.advance(50, false);
        together.note(60, 0, true);
        together.advance(100, true);
        let found = together.into_found();
        assert_eq!((found.ns, found.unsure_ns), (vec![60, 40], 50));
    }
}
