//! Job `profile`: which functions run, where threads wait, how many run at once.

use std::io::ErrorKind;
use std::path::Path;

use nodrop_profile::{Failed, Outcome, Profiler, reason};
use nodrop_proto::{JobError, ProfileReady, ProfileSpec};
use nodrop_sys::clock::mono_ns;

use crate::job::{Job, hold_many_files, present, unreadable};
use crate::session::Session;

/// A profiler that is yet to begin, or has begun.
pub struct Profile {
    spec: ProfileSpec,
    profiler: Option<Profiler>,
}

impl Job for Profile {
    const NAME: &'static str = "profile";
    type Spec = ProfileSpec;
    type Ready = ProfileReady;
    type Outcome = Outcome;

    fn prepare(spec: ProfileSpec, _: &Session) -> Result<(Self, ProfileReady), JobError> {
        check(&spec)?;
        hold_many_files();
        let profiler = Profiler::open(&spec.pids, spec.hertz, spec.hardware).map_err(refused)?;
        let (processes, threads) = profiler.count();
        let profile = Self {
            spec,
            profiler: Some(profiler),
        };
        Ok((profile, ProfileReady { processes, threads }))
    }

    fn run(&mut self, session: &Session) -> Result<Outcome, JobError> {
        let Some(mut profiler) = self.profiler.take() else {
            return Err(JobError::new("bug", "a profile was asked for twice"));
        };
        let began_ns = session.wait_start();
        session.sleep_until(began_ns);
        profiler.begin(began_ns).map_err(unreadable)?;
        let interval_ns = self.spec.interval_ms * 1_000_000;
        let last_ns = self.spec.duration_s.map(|s| began_ns + in_ns(s));
        let mut due_ns = began_ns;
        loop {
            due_ns += interval_ns;
            let until_ns = last_ns.map_or(due_ns, |last_ns| due_ns.min(last_ns));
            if session.sleep_until(until_ns) || Some(until_ns) == last_ns {
                break;
            }
            profiler.tick(mono_ns()).map_err(unreadable)?;
            due_ns = due_ns.max(mono_ns());
        }
        profiler.finish(mono_ns()).map_err(unreadable)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: above 0, and what is too large saturates"
)]
fn in_ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn check(spec: &ProfileSpec) -> Result<(), JobError> {
    let wrong = |words: &str| Err(JobError::new("spec", words));
    if spec.pids.is_empty() {
        return wrong("field `pids`: must name a process");
    }
    if !(1..=50_000).contains(&spec.hertz) {
        return wrong("field `hertz`: must be from 1 to 50000");
    }
    if !(1..=60_000).contains(&spec.interval_ms) {
        return wrong("field `interval_ms`: must be from 1 to 60000");
    }
    if !spec.duration_s.is_none_or(|s| s > 0.0 && s < 1e9) {
        return wrong("field `duration_s`: must be above 0");
    }
    present(&spec.pids)
}

fn refused(failed: Failed) -> JobError {
    match failed {
        Failed::Counters(error) => unreadable(error),
        Failed::Samples(error) => {
            let said = format!("perf_event_open: {}", reason(&error, Path::new("/proc")));
            if error.kind() == ErrorKind::PermissionDenied {
                return JobError::new("permission", said).hint(
                    "root, CAP_PERFMON, or kernel.perf_event_paranoid of at most 2 for processes of one's own",
                );
            }
            JobError::new("unsupported", said)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn only_what_is_forbidden_is_a_question_of_rights() {
        for (number, kind, words) in [
            (1, "permission", "perf_event_paranoid"),
            (13, "permission", "perf_event_paranoid"),
            (38, "unsupported", "the kernel has no perf events"),
            (2, "unsupported", "not on this host"),
            (24, "unsupported", "os error 24"),
        ] {
            let error = refused(Failed::Samples(Error::from_raw_os_error(number)));
            assert_eq!(error.kind, kind);
            assert!(error.message.contains(words), "{}", error.message);
            assert_eq!(error.hint.is_some(), kind == "permission");
        }
    }
}
