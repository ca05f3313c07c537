//! What a job is; one file per job.

#[cfg(feature = "attach")]
pub mod attach;
pub mod overhear;
pub mod probe;
pub mod profile;
#[cfg(feature = "attach")]
pub mod reference_mme;
pub mod replay;
pub mod sample;
pub mod sink;
#[cfg(feature = "attach")]
pub mod stubs;
pub mod trace;

use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nodrop_counters::CounterError;
use nodrop_io::IoError;
use nodrop_proto::JobError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::session::Session;

/// One kind of work. The session calls `prepare`, says `ready`, calls `run`, says `result`.
///
/// A job runs on the main thread and may make threads of its own, raise its priority or pin itself: the thread that watches
/// stdin exists before and inherits none of it. Whatever a job changes outside of the process it puts back by `Drop`.
pub trait Job: Sized {
    /// As in `{"type":"spec","job":NAME}` and `nodrop-node NAME`.
    const NAME: &'static str;
    /// Parameters, from the spec line or from flags.
    type Spec: DeserializeOwned + clap::Args;
    /// Fields of the `ready` event.
    type Ready: Serialize;
    /// Fields of the `result` event.
    type Outcome: Serialize;

    /// Everything that takes time or can fail: files read, memory mapped, sockets open.
    fn prepare(spec: Self::Spec, session: &Session) -> Result<(Self, Self::Ready), JobError>;

    /// The work itself. Most jobs begin with `session.wait_start()`, end when `session.stopped()`, and then still return what
    /// they counted; a stop before the start is a run of length zero.
    fn run(&mut self, session: &Session) -> Result<Self::Outcome, JobError>;

    /// The same for a spec that came after a result. What both specs have in common may be kept; most jobs keep nothing.
    fn again(self, spec: Self::Spec, session: &Session) -> Result<(Self, Self::Ready), JobError> {
        drop(self);
        Self::prepare(spec, session)
    }
}

/// How a counter that cannot be read ends a job.
pub fn unreadable(error: CounterError) -> JobError {
    let permission =
        |source: &std::io::Error| source.kind() == std::io::ErrorKind::PermissionDenied;
    match &error {
        CounterError::NoInterface(_) => JobError::new("no_such_interface", error.to_string())
            .hint("interfaces are those of the network namespace the node runs in"),
        CounterError::Kernel { source, .. } | CounterError::Read { source, .. }
            if permission(source) =>
        {
            JobError::new("permission", error.to_string())
                .hint("run as root, or inside `unshare --user --map-root-user --net --mount`")
        }
        _ => JobError::new("counters", error.to_string()),
    }
}

/// Whether every process is there.
pub fn present(pids: &[u32]) -> Result<(), JobError> {
    let absent = |pid: &&u32| !Path::new(&format!("/proc/{pid}")).exists();
    match pids.iter().find(absent) {
        Some(pid) => {
            let error = JobError::new("no_such_process", format!("there is no process {pid}"));
            Err(error.hint("processes are those of the PID namespace the node runs in"))
        }
        None => Ok(()),
    }
}

/// A tree of hundreds of threads needs more open files than a login shell allows at first.
pub fn hold_many_files() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Refused: then the open that fails says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// A packet socket that could not be had.
pub fn interface_error(error: &IoError) -> JobError {
    let kind = match error {
        IoError::NoSuchInterface(_) => "no_such_interface",
        IoError::Setup { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            let error = JobError::new("permission", error.to_string());
            return error.hint("packet sockets need root or CAP_NET_RAW in this network namespace");
        }
        IoError::Setup { .. } => "socket",
    };
    JobError::new(kind, error.to_string())
}
