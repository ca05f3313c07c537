//! Files that a user names: never waited for; read only if they are regular, as a whole or mapped.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use memmap2::{Advice, Mmap};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Opens a file for reading. A FIFO, a socket or a device is refused and never waited for.
///
/// # Errors
/// If it cannot be opened or is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        // A socket, or a device without a driver.
        Some(libc::ENXIO | libc::ENODEV) => not_regular(),
        _ => error,
    })?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !kind.is_file() {
        return Err(not_regular());
    }
    Ok(file)
}

/// Makes a file, or empties the one that is there. Refuses a socket, and a FIFO that has no reader; `/dev/stdout` may be a pipe.
///
/// # Errors
/// If it cannot be made, or would be waited for.
pub fn create(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::new(
            io::ErrorKind::InvalidInput,
            "is no regular file, and nothing reads it",
        ),
        _ => error,
    })?;
    // A slow reader of a pipe is waited for: it has begun.
    let flags = OFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(file)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "is no regular file")
}

/// Reads a regular file as a whole.
///
/// # Errors
/// As [`open_regular`], or if memory does not hold it.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes).map_err(now)?;
    Ok(bytes)
}

/// Reads a text that a person writes: a regular file of at most [`MOST_TEXT_BYTES`], or as many times that as [`bounds_times`].
///
/// # Errors
/// As [`open_regular`], or if it is larger or no UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_text_within(raised(MOST_TEXT_BYTES, bounds_times()?), path)
}

fn read_text_within(most: u64, path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = open_regular(path)?;
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(now)?;
    if bytes.len() as u64 > most {
        let words = format!(
            "is larger than {} MiB ({BOUNDS_KEY}=… in the environment allows more)",
            most >> 20
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8"))
}

/// The controller's bound for such files (`nodrop.untrusted.json_text`) is the same.
pub const MOST_TEXT_BYTES: u64 = 64 << 20;

/// In the environment: how many times every bound; the controller (`nodrop.untrusted.json_text`) has the same key.
pub const BOUNDS_KEY: &str = "NODROP_BOUNDS_TIMES";

/// What every bound is multiplied by: 1 if the environment does not say.
///
/// # Errors
/// If it says no number from 1 to 1,000,000.
pub fn bounds_times() -> io::Result<f64> {
    times(&std::env::var(BOUNDS_KEY).unwrap_or_default())
}

fn times(said: &str) -> io::Result<f64> {
    let number = match said.trim() {
        "" => Some(1.0),
        text => text.parse().ok(),
    };
    number
        .filter(|number| (1.0..=1e6).contains(number))
        .ok_or_else(|| {
            let words = format!("{BOUNDS_KEY}={said:?}: must be a number from 1 to 1,000,000");
            io::Error::new(io::ErrorKind::InvalidInput, words)
        })
}

/// A bound so many times.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bound, not negative; what is too large saturates"
)]
pub fn raised(bound: u64, times: f64) -> u64 {
    (bound as f64 * times) as u64
}

/// `/proc/kmsg` is a regular file, and nothing is waited for.
fn now(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::Error::new(error.kind(), "has nothing to read now");
    }
    error
}

/// The bytes of a file; none if it is empty.
#[derive(Debug)]
pub struct MappedFile(Option<Mmap>);

impl MappedFile {
    /// Maps a file for reading from front to back.
    ///
    /// # Errors
    /// If it cannot be opened or is no regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: private and read-only. If the file changes meanwhile we read other bytes, which readers of captures bear; if it
        // shrinks, SIGBUS ends this process, and nothing of ours outlives the process.
        let map = unsafe { Mmap::map(&file) }?;
        // Read ahead. Only advice: a kernel that refuses it serves as well.
        let _ = map.advise(Advice::Sequential);
        Ok(Self(Some(map)))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_its_bytes_even_if_it_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        for content in [&b""[..], b"frames"] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(&*MappedFile::open(&path).unwrap(), content);
        }
        assert!(MappedFile::open(folder.path()).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [
            socket.as_path(),
            Path::new("/dev/zero"),
            Path::new("/dev/null"),
        ] {
            for said in [
                MappedFile::open(path).unwrap_err(),
                read_regular(path).unwrap_err(),
                read_text(path).unwrap_err(),
            ] {
                assert_eq!(said.to_string(), "is no regular file", "{}", path.display());
            }
        }
        let said = read_regular(folder.path()).unwrap_err().to_string();
        assert!(said.starts_with("Is a directory"), "{said}");
    }

    #[test]
    fn what_is_written_is_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let fifo = path("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(&fifo, path("link")).unwrap();
        let _listens = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for name in ["fifo", "link", "socket"] {
            let said = create(&path(name)).unwrap_err().to_string();
            assert_eq!(said, "is no regular file, and nothing reads it", "{name}");
        }
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&fifo)
            .unwrap();
        let written = create(&fifo).unwrap();
        let flags = OFlag::from_bits_truncate(fcntl(&written, FcntlArg::F_GETFL).unwrap());
        assert!(
            !flags.contains(OFlag::O_NONBLOCK),
            "a slow reader is no error"
        );
        drop(reader);
        std::fs::write(path("old"), b"longer").unwrap();
        for name in ["old", "new"] {
            create(&path(name)).unwrap();
            assert_eq!(std::fs::read(path(name)).unwrap(), b"");
        }
    }

    #[test]
    fn bounds_are_raised_by_a_number_and_nothing_else() {
        for (said, number) in [("", 1.0), (" 8 ", 8.0), ("1.5", 1.5), ("1e6", 1e6)] {
            assert_eq!(times(said).ok(), Some(number), "{said}");
        }
        for said in ["0", "-3", "0.9", "1e7", "inf", "NaN", "x", "8x"] {
            let words = times(said).unwrap_err().to_string();
            assert!(words.contains("must be a number from 1"), "{words}");
        }
        assert_eq!(raised(64, 1.5), 96);
        assert_eq!(raised(u64::MAX, 1e6), u64::MAX);
    }

    #[test]
    fn a_text_has_a_bound_and_a_trace_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for (bytes, fits) in [
            (0, true),
            (7, true),
            (MOST_TEXT_BYTES + 1, false),
            (1 << 40, false),
        ] {
            File::create(&path).unwrap().set_len(bytes).unwrap();
            assert_eq!(read_text(&path).is_ok(), fits, "{bytes} bytes");
        }
        let said = read_text(&path).unwrap_err().to_string();
        assert!(said.starts_with("is larger than 64 MiB (NODROP_BOUNDS_TIMES="));
        for (times, fits) in [(1.0, false), (2.0, true), (8.5, true)] {
            let longer = raised(MOST_TEXT_BYTES, times);
            File::create(&path)
                .unwrap()
                .set_len(MOST_TEXT_BYTES + 9)
                .unwrap();
            assert_eq!(read_text_within(longer, &path).is_ok(), fits, "{times}");
        }
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(read_text(&path).unwrap_err().to_string(), "is not UTF-8");
        assert_eq!(read_regular(&path).unwrap(), b"\xff\xfe");
    }
}
