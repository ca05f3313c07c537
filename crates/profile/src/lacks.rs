//! What cannot be had here, and why, in words.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use nodrop_sys::perf::Refusal;

use crate::outcome::{Missing, ThreadProfile};

/// The three counters of the CPU by the names of their fields, in their order.
pub const HARDWARE: [&str; 3] = ["cycles", "instructions", "cache_misses"];

/// The first reason of each part.
#[derive(Debug, Default)]
pub struct Lacks {
    /// What runs inside the kernel.
    pub kernel: Option<String>,
    /// When threads leave and take a CPU.
    pub waits: Option<String>,
    /// As [`HARDWARE`].
    pub hardware: [Option<String>; 3],
    /// Threads that could not be looked at, and why the first could not.
    pub threads: Option<(HashSet<u32>, String)>,
}

impl Lacks {
    /// Of a thread that was opened.
    pub fn join(&mut self, waits: Option<String>, hardware: [Option<String>; 3]) {
        keep(&mut self.waits, waits);
        for (kept, why) in self.hardware.iter_mut().zip(hardware) {
            keep(kept, why);
        }
    }

    /// Of a thread that was not.
    pub fn unseen(&mut self, tid: u32, why: String) {
        let (tids, _) = self.threads.get_or_insert_with(|| (HashSet::new(), why));
        tids.insert(tid);
    }

    /// A counter that was opened, but never had its turn on the CPU.
    pub fn look_at(&mut self, threads: &[ThreadProfile]) {
        for (index, kept) in self.hardware.iter_mut().enumerate() {
            let starved = |thread: &ThreadProfile| thread.hardware()[index].is_none();
            if threads.iter().any(starved) {
                let why = "not counted in a thread that ran: no counter of the CPU was free";
                keep(kept, Some(why.into()));
            }
        }
    }

    /// For the outcome.
    pub fn missing(self, hardware_asked: bool, kernel_named: bool) -> Vec<Missing> {
        let mut found = Vec::new();
        let mut say = |what: &str, why: String| {
            found.push(Missing {
                what: what.into(),
                why,
            });
        };
        let has_kernel = self.kernel.is_none();
        if let Some(why) = self.kernel {
            say("kernel", format!("what runs inside the kernel: {why}"));
        } else if !kernel_named {
            say("kernel_names", "/proc/kallsyms shows no addresses".into());
        }
        if let Some(why) = self.waits {
            say("waits", format!("when threads leave their CPU: {why}"));
        } else if !has_kernel {
            let why = "where threads wait is an event inside the kernel";
            say("waits", why.into());
        }
        if !hardware_asked {
            say("hardware", "counters of the CPU were not asked for".into());
        } else if let Some(why) = in_words(&self.hardware) {
            say("hardware", why);
        }
        if let Some((tids, why)) = self.threads {
            say(
                "threads",
                format!("{} threads could not be looked at: {why}", tids.len()),
            );
        }
        found
    }
}

fn keep(kept: &mut Option<String>, why: Option<String>) {
    if kept.is_none() {
        *kept = why;
    }
}

/// Counters with the same reason stand together.
fn in_words(hardware: &[Option<String>; 3]) -> Option<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in HARDWARE.iter().zip(hardware) {
        let Some(why) = why else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let said = reasons.iter();
    let said: Vec<_> = said
        .map(|(why, names)| format!("{}: {why}", names.join(", ")))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Why the kernel opens no event.
pub fn reason(error: &io::Error, proc: &Path) -> String {
    match Refusal::of(error) {
        Refusal::NotPermitted => {
            let path = proc.join("sys/kernel/perf_event_paranoid");
            let level = std::fs::read_to_string(path).unwrap_or_default();
            format!("{error}; kernel.perf_event_paranoid is {}", level.trim())
        }
        Refusal::NoPerfEvents => {
            format!("the kernel has no perf events, or a filter hides them: {error}")
        }
        Refusal::NoSuchEvent => format!("not on this host: {error}"),
        Refusal::Other => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn said(lacks: Lacks, hardware_asked: bool) -> Vec<(String, String)> {
        let missing = lacks.missing(hardware_asked, true).into_iter();
        missing.map(|one| (one.what, one.why)).collect()
    }

    #[test]
    fn each_part_that_is_missing_is_named_with_its_first_reason() {
        assert_eq!(said(Lacks::default(), true), []);
        let mut lacks = Lacks::default();
        lacks.join(Some("too many open files".into()), [const { None }; 3]);
        lacks.join(Some("another".into()), [const { None }; 3]);
        let why = "when threads leave their CPU: too many open files";
        assert_eq!(said(lacks, true), [("waits".into(), why.into())]);
        let mut lacks = Lacks::default();
        // Each is tried again and again.
        for (tid, why) in [(7, "first"), (8, "second"), (7, "third")] {
            lacks.unseen(tid, why.into());
        }
        let why = "2 threads could not be looked at: first";
        assert_eq!(said(lacks, true), [("threads".into(), why.into())]);
    }

    #[test]
    fn without_the_kernel_the_places_of_waits_are_missing_or_more() {
        let what = |waits: Option<&str>| {
            let lacks = Lacks {
                kernel: Some("no".into()),
                waits: waits.map(Into::into),
                ..Lacks::default()
            };
            said(lacks, true).into_iter().nth(1).unwrap()
        };
        let place = "where threads wait is an event inside the kernel";
        assert_eq!(what(None), ("waits".into(), place.into()));
        let time = "when threads leave their CPU: no memory";
        assert_eq!(what(Some("no memory")), ("waits".into(), time.into()));
    }

    #[test]
    fn counters_with_one_reason_stand_together() {
        let lacks = |hardware: [Option<&str>; 3]| Lacks {
            hardware: hardware.map(|why| why.map(Into::into)),
            ..Lacks::default()
        };
        let only = |hardware, asked| said(lacks(hardware), asked).pop().unwrap().1;
        let (a, b) = (Some("a"), Some("b"));
        assert_eq!(only([a; 3], true), "cycles, instructions, cache_misses: a");
        assert_eq!(
            only([a, b, a], true),
            "cycles, cache_misses: a; instructions: b"
        );
        assert_eq!(only([None, None, b], true), "cache_misses: b");
        let unasked = "counters of the CPU were not asked for";
        assert_eq!(only([None; 3], false), unasked);
    }

    #[test]
    fn the_kernels_reason_is_kept() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(proc.path().join("sys/kernel")).unwrap();
        let level = proc.path().join("sys/kernel/perf_event_paranoid");
        std::fs::write(level, "3\n").unwrap();
        let why = |number| reason(&io::Error::from_raw_os_error(number), proc.path());
        for refused in [1, 13] {
            assert!(why(refused).ends_with("; kernel.perf_event_paranoid is 3"));
        }
        assert!(why(38).starts_with("the kernel has no perf events"));
        for absent in [2, 19, 95] {
            assert!(why(absent).starts_with("not on this host: "));
        }
        assert_eq!(why(24), io::Error::from_raw_os_error(24).to_string());
    }
}
