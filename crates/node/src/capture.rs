//! Captures of this host as bytes in memory, unpacked if they are packed.

use std::path::Path;

use nodrop_counters::MemoryReader;
use nodrop_proto::JobError;
use nodrop_sys::file::{bounds_times, raised, read_regular};
use nodrop_wire::packed::{Most, PackedError, Unpacked, bound, unpacked};

use crate::progress::Progress;

/// What makes an error about the end of a file none.
pub const TOLERATING: &str = "--tolerate-truncated uses the packets before that place";

/// A capture file in memory: read, not mapped, so that a change of the file does not change what is sent.
pub fn contents(
    path: &Path,
    tolerate_truncated: bool,
    progress: &Progress,
) -> Result<Vec<u8>, JobError> {
    let bytes = read_regular(path).map_err(|error| unreadable(path, &error))?;
    let unpacked = unpack(path, &bytes, tolerate_truncated, progress)?;
    Ok(unpacked.map_or(bytes, |unpacked| unpacked.bytes))
}

/// What a packed capture holds; `None` if it is not packed.
pub fn unpack(
    path: &Path,
    file: &[u8],
    tolerate_truncated: bool,
    progress: &Progress,
) -> Result<Option<Unpacked>, JobError> {
    let times = bounds_times().map_err(|error| unreadable(path, &error))?;
    let allowed = raised(bound(file.len()) as u64, times);
    progress.expect(file.len(), 1);
    let found = unpacked(
        file,
        most(allowed, available_bytes()),
        tolerate_truncated,
        &mut |at| progress.at(at),
    );
    found.map_err(|error| {
        let refused = JobError::new("trace", format!("{}: {error}", path.display()));
        match error {
            PackedError::Cut { unpacked_bytes, .. } if unpacked_bytes > 0 => {
                refused.hint(TOLERATING)
            }
            _ => refused,
        }
    })
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> JobError {
    JobError::new("trace", format!("{}: cannot read: {error}", path.display()))
}
/// Nobody is served by a host without memory.
fn most(allowed: u64, available: Option<u64>) -> Most {
    let (bytes, why) = match available {
        Some(available) if available < allowed => (
            available,
            "which is all the memory that this host has available",
        ),
        _ => (
            allowed,
            "and NODROP_BOUNDS_TIMES=2 in the environment allows twice as many",
        ),
    };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX - 1);
    Most {
        bytes: bytes.min(usize::MAX - 1),
        why,
    }
}

/// `None` if the kernel does not say.
pub fn available_bytes() -> Option<u64> {
    let memory = MemoryReader::new(Path::new("/")).and_then(|mut reader| reader.read());
    memory.ok()?.available_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_unpacked_than_is_allowed_and_there_is() {
        for (allowed, available, bytes, word) in [
            (1 << 30, Some(5 << 30), 1 << 30, "NODROP_BOUNDS_TIMES"),
            (1 << 30, Some(1 << 29), 1 << 29, "memory"),
            (9 << 40, Some(7 << 30), 7 << 30, "memory"),
            (5 << 30, None, 5 << 30, "NODROP_BOUNDS_TIMES"),
        ] {
            let found = most(allowed, available);
            assert_eq!(found.bytes, bytes);
            assert!(found.why.contains(word), "{}", found.why);
        }
    }
}
