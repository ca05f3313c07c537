//! Memory shared with the kernel: rings of sockets, frames to be sent, the memory of a guest.

use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

/// Memory that is readable, writable, populated, and unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to the thread that made it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Fresh zeroes of our own.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn anonymous(bytes: usize) -> Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// What a descriptor offers from `offset` on.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn shared(of: &impl AsFd, bytes: usize, offset: i64) -> Result<Self> {
        Self::map(bytes, libc::MAP_SHARED, of.as_fd().as_raw_fd(), offset)
    }

    fn map(bytes: usize, flags: i32, fd: i32, offset: i64) -> Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, fd, offset) };
        match NonNull::new(start.cast()) {
            Some(pointer) if start != libc::MAP_FAILED => Ok(Self {
                start: pointer,
                bytes,
            }),
            _ => Err(Error::last_os_error()),
        }
    }

    /// The first byte; valid for as long as this value lives.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes into the mapping.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, offset: usize, content: &[u8]) {
        let end = offset.checked_add(content.len());
        assert!(end.is_some_and(|end| end <= self.bytes));
        // SAFETY: the place lies in the mapping, and `content` cannot: this type lends no reference into it.
        unsafe {
            let to = self.start.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this length, unmapped once; borrowers of its pointers end before it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write as _;

    fn word(memory: &Mapping, offset: usize) -> u8 {
        assert!(offset < memory.bytes());
        // SAFETY: within the mapping, as just compared.
        unsafe { memory.start().add(offset).read() }
    }

    #[test]
    fn what_is_written_stands_there_and_nothing_beyond_the_end() {
        let mut memory = Mapping::anonymous(4096).unwrap();
        memory.write(4094, b"ab");
        assert_eq!((word(&memory, 0), word(&memory, 4095)), (0, b'b'));
        for (offset, content) in [(4095, &b"ab"[..]), (4096, b"a"), (usize::MAX, b"ab")] {
            let write = std::panic::AssertUnwindSafe(|| memory.write(offset, content));
            assert!(std::panic::catch_unwind(write).is_err(), "{offset}");
        }
    }

    #[test]
    fn a_file_is_shared_from_an_offset() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 4096]).unwrap();
        file.write_all(&[2; 4096]).unwrap();
        let memory = Mapping::shared(&file, 4096, 4096).unwrap();
        assert_eq!(word(&memory, 0), 2);
        assert!(Mapping::shared(&file, 4096, 1).is_err());
    }
}
