//! Disks from `/proc/diskstats`: whole ones, as their partitions' work is in them as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::{HeldFile, Line};
use crate::named::Named;

/// The unit of the sector columns, whatever the device's own sectors are.
const SECTOR_BYTES: u64 = 512;
const MS: u64 = 1_000_000;

/// One disk since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
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

/// Reads `/proc/diskstats` now and then and, in between, `/sys/block/NAME/stat` of what did anything: of an idle partition or
/// loop device the kernel would say as much each time.
#[derive(Debug)]
pub struct DiskReader {
    all: HeldFile,
    /// Partitions are below their disk there.
    whole: PathBuf,
    /// What did anything, by name; `None` = a partition.
    active: BTreeMap<String, Option<HeldFile>>,
    looked: Option<Instant>,
    buffer: Vec<u8>,
}

/// A disk that is used for the first time has a row this much later; a little below the second at which disks are read by default.
const LOOK_EVERY: Duration = Duration::from_millis(900);

impl DiskReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        Ok(Self {
            all: HeldFile::open(root.join("proc/diskstats"))?.of_short_records(),
            whole: root.join("sys/block"),
            active: BTreeMap::new(),
            looked: None,
            buffer: Vec::new(),
        })
    }

    /// Replaces `disks` by the present ones; those that never did anything are left out.
    pub fn read(&mut self, disks: &mut Disks) -> Result<()> {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            return self.look(disks);
        }
        match self.read_active(disks) {
            // Another may have its name by now.
            Err(e) if e.is_gone() => {
                self.active.clear();
                self.look(disks)
            }
            read => read,
        }
    }

    fn read_active(&mut self, disks: &mut Disks) -> Result<()> {
        let mut renewal = disks.renew();
        for (name, file) in &self.active {
            if let Some(file) = file {
                let text = file.read(&mut self.buffer)?;
                renewal.put(&[name], parsed(&mut text.line()?)?);
            }
        }
        Ok(())
    }

    fn look(&mut self, disks: &mut Disks) -> Result<()> {
        self.looked = Some(Instant::now());
        let mut renewal = disks.renew();
        for mut line in self.all.read(&mut self.buffer)?.lines() {
            let name = line.skip(2).word("a name")?;
            let disk = parsed(&mut line)?;
            if disk == Disk::default() {
                continue;
            }
            if !self.active.contains_key(name) {
                // The kernel writes the slash of `cciss/c0d0` as an exclamation mark there.
                let file = self.whole.join(name.replace('/', "!")).join("stat");
                let held = HeldFile::open_if_present(file)?.map(HeldFile::in_one_piece);
                self.active.insert(name.to_owned(), held);
            }
            if self.active[name].is_some() {
                renewal.put(&[name], disk);
            }
        }
        Ok(())
    }
}

/// What both files say of a disk, from its count of reads on.
fn parsed(line: &mut Line<'_, '_>) -> Result<Disk> {
    let reads = line.number()?;
    let read_bytes = times(line.skip(1).number()?, SECTOR_BYTES);
    let read_ns = times(line.number()?, MS);
    let writes = line.number()?;
    let write_bytes = times(line.skip(1).number()?, SECTOR_BYTES);
    Ok(Disk {
        reads,
        read_bytes,
        read_ns,
        writes,
        write_bytes,
        write_ns: times(line.number()?, MS),
        in_flight: line.number()?,
        busy_ns: times(line.number()?, MS),
    })
}

fn times(number: u64, unit: u64) -> u64 {
    number.saturating_mul(unit)
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
        let stat = |name: &str| root.path().join("sys/block").join(name).join("stat");
        for name in ["loop0", "vda", "cciss!c0d0"] {
            std::fs::create_dir_all(stat(name).parent().unwrap()).unwrap();
            std::fs::write(stat(name), "  3 9 8 4 5 9 6 7 1 10 11\n").unwrap();
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
        // In between their own files are read.
        reader.read(&mut disks).unwrap();
        let reads = disks.iter().map(|(name, disk)| (name, disk.reads));
        assert_eq!(reads.collect::<Vec<_>>(), [("cciss/c0d0", 3), ("vda", 3)]);
        reader.looked = Instant::now().checked_sub(LOOK_EVERY);
        reader.read(&mut disks).unwrap();
        assert_eq!(disks.get("vda"), Some(&vda));
    }
}
