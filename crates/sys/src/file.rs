//! Capture files mapped into memory: read as they are needed, never copied.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::{Advice, Mmap};

/// The bytes of a file; none if it is empty.
#[derive(Debug)]
pub struct MappedFile(Option<Mmap>);

impl MappedFile {
    /// Maps a file for reading from front to back.
    ///
    /// # Errors
    /// If it cannot be opened or is no regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        if facts.len() == 0 {
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
}
