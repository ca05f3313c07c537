//! What can go wrong when a counter is read.

use std::io;
use std::path::PathBuf;

/// Each variant says where, down to the line of the file.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// A kernel file is absent, forbidden or gone.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A kernel file does not look as this reader knows it.
    #[error("{}:{line}: `{item}` is not {expected}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// What stands there.
        item: String,
        /// What should.
        expected: &'static str,
    },
    /// No such port in the network namespace of the calling thread.
    #[error("no network interface `{0}` in this network namespace")]
    NoInterface(String),
    /// A system call failed.
    #[error("{call}: {source}")]
    Kernel {
        /// The call, as in its manual page.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl CounterError {
    pub(crate) fn last_os(call: &'static str) -> Self {
        Self::Kernel {
            call,
            source: io::Error::last_os_error(),
        }
    }

    /// Whether the thing that was read is gone: a process that ended, a file that was removed.
    pub fn is_gone(&self) -> bool {
        match self {
            // A held file: ESRCH after its process has ended, ENODEV after its control group was removed.
            Self::Read { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || matches!(source.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
            }
            Self::NoInterface(_) => true,
            Self::Parse { .. } | Self::Kernel { .. } => false,
        }
    }
}
