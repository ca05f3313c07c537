//! Disks from `/proc/diskstats`: whole ones, as their partitions' work is in them as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Result;
use crate::held::HeldFile;
use crate::named::Named;

/// The unit of the sector columns, whatever the device's own sectors are.
const SECTOR_BYTES: u64 = 512;
const MS: u64 = 1_000_000;

/// One disk since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Disk {
    /// Reads that were done.
    pub reads: u64,
    /// Read.
    pub read_bytes: u64,
    /// Time its reads took, summed over reads that may have overlapped.
    pub read_ns: u64,
    /// Writes that were done.
    pub writes: u64,
    /// Written.
    pub write_bytes: u64,
    /// Likewise.
    pub write_ns: u64,
    /// Begun and not yet done: no total.
    pub in_flight: u64,
    /// Time in which anything was in flight.
    pub busy_ns: u64,
}

/// By name.
pub type Disks = Named<Disk>;

/// Reads `/proc/diskstats`.
#[derive(Debug)]
pub struct DiskReader {
    file: HeldFile,
    /// Partitions are below their disk there.
    whole: PathBuf,
    /// Whether a device is whole, asked once.
    known: BTreeMap<String, bool>,
    buffer: Vec<u8>,
}

impl DiskReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        Ok(Self {
            file: HeldFile::open(root.join("proc/diskstats"))?.of_short_records(),
            whole: root.join("sys/block"),
            known: BTreeMap::new(),
            buffer: Vec::new(),
        })
    }

    /// Replaces `disks` by the present ones; those that never did anything are left out.
    pub fn read(&mut self, disks: &mut Disks) -> Result<()> {
        let mut renewal = disks.renew();
        for mut line in self.file.read(&mut self.buffer)?.lines() {
            let name = line.skip(2).word("a name")?;
            if !is_whole(&mut self.known, &self.whole, name) {
                continue;
            }
            let reads = line.number()?;
            let read_bytes = times(line.skip(1).number()?, SECTOR_BYTES);
            let read_ns = times(line.number()?, MS);
            let writes = line.number()?;
            let write_bytes = times(line.skip(1).number()?, SECTOR_BYTES);
            let disk = Disk {
                reads,
                read_bytes,
                read_ns,
                writes,
                write_bytes,
                write_ns: times(line.number()?, MS),
                in_flight: line.number()?,
                busy_ns: times(line.number()?, MS),
            };
            if disk != Disk::default() {
                renewal.put(&[name], disk);
            }
        }
        Ok(())
    }
}

fn times(number: u64, unit: u64) -> u64 {
    number.saturating_mul(unit)
}

fn is_whole(known: &mut BTreeMap<String, bool>, folder: &Path, name: &str) -> bool {
    if let Some(whole) = known.get(name) {
        return *whole;
    }
    // The kernel writes the slash of `cciss/c0d0` as an exclamation mark there.
    let whole = folder.join(name.replace('/', "!")).exists();
    known.insert(name.to_owned(), whole);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture_with;

    #[test]
    fn partitions_and_idle_devices_have_no_row() {
        let root = fixture_with(
            "proc/diskstats",
            "   7  0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
              \x20254  0 vda 2 9 8 4 5 9 6 7 1 10 11 0 0 0 0 0 0\n\
              \x20254  1 vda1 2 9 8 4 5 9 6 7 1 10 11\n\
              \x20104  0 cciss/c0d0 1 0 0 0 0 0 0 0 0 0 0\n",
        );
        for name in ["loop0", "vda", "cciss!c0d0"] {
            std::fs::create_dir_all(root.path().join("sys/block").join(name)).unwrap();
        }
        let mut disks = Disks::default();
        let mut reader = DiskReader::new(root.path()).unwrap();
        reader.read(&mut disks).unwrap();
        let vda = Disk {
            reads: 2,
            read_bytes: 4096,
            read_ns: 4_000_000,
            writes: 5,
            write_bytes: 3072,
            write_ns: 7_000_000,
            in_flight: 1,
            busy_ns: 10_000_000,
        };
        let other = Disk {
            reads: 1,
            ..Disk::default()
        };
        assert_eq!(
            disks.iter().collect::<Vec<_>>(),
            [("vda", &vda), ("cciss/c0d0", &other)]
        );
    }
}
