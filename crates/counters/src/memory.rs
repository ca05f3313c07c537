//! Memory of the host from `/proc/meminfo`, in bytes.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::HeldFile;

/// What of `/proc/meminfo` a measurement needs; `None` = this kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct Memory {
    /// Usable RAM.
    pub total_bytes: Option<u64>,
    /// Used for nothing at all.
    pub free_bytes: Option<u64>,
    /// What could be had without swapping, by the kernel's estimate.
    pub available_bytes: Option<u64>,
    /// Block device cache.
    pub buffers_bytes: Option<u64>,
    /// Page cache, tmpfs and shared memory included.
    pub cached_bytes: Option<u64>,
    /// Anonymous memory of processes.
    pub anon_bytes: Option<u64>,
    /// tmpfs and shared memory; AF_PACKET rings are in none of these rows.
    pub shmem_bytes: Option<u64>,
    /// The kernel's own objects.
    pub slab_bytes: Option<u64>,
    /// Size of swap.
    pub swap_total_bytes: Option<u64>,
    /// Unused swap.
    pub swap_free_bytes: Option<u64>,
}

/// Reads `/proc/meminfo`.
#[derive(Debug)]
pub struct MemoryReader {
    file: HeldFile,
    buffer: Vec<u8>,
}

impl MemoryReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        let file = HeldFile::open(root.join("proc/meminfo"))?.in_one_piece();
        Ok(Self {
            file,
            buffer: Vec::new(),
        })
    }

    /// Memory now.
    pub fn read(&mut self) -> Result<Memory> {
        let mut memory = Memory::default();
        let mut missing = 10;
        for mut line in self.file.read(&mut self.buffer)?.lines() {
            let place = match line.word("a name")? {
                "MemTotal:" => &mut memory.total_bytes,
                "MemFree:" => &mut memory.free_bytes,
                "MemAvailable:" => &mut memory.available_bytes,
                "Buffers:" => &mut memory.buffers_bytes,
                "Cached:" => &mut memory.cached_bytes,
                "AnonPages:" => &mut memory.anon_bytes,
                "Shmem:" => &mut memory.shmem_bytes,
                "Slab:" => &mut memory.slab_bytes,
                "SwapTotal:" => &mut memory.swap_total_bytes,
                "SwapFree:" => &mut memory.swap_free_bytes,
                _ => continue,
            };
            // Printed as kB, meant as KiB.
            *place = Some(line.number::<u64>()?.saturating_mul(1024));
            // All there: half of the file is left.
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
        Ok(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fixture, fixture_with};

    #[test]
    fn kib_become_bytes_and_absent_is_not_zero() {
        let root = fixture_with(
            "proc/meminfo",
            "MemTotal:  10 kB\nSwapFree:   0 kB\nOther: 1\n",
        );
        let memory = MemoryReader::new(root.path()).unwrap().read().unwrap();
        let expected = Memory {
            total_bytes: Some(10240),
            swap_free_bytes: Some(0),
            ..Memory::default()
        };
        assert_eq!(memory, expected);
    }

    #[test]
    fn a_6_18_kernel_says_everything() {
        let memory = MemoryReader::new(&fixture()).unwrap().read().unwrap();
        assert!(memory.available_bytes < memory.total_bytes && memory.free_bytes > Some(0));
        assert!(memory.anon_bytes.is_some() && memory.slab_bytes.is_some());
    }
}
