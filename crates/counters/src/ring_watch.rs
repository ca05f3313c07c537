//! Levels of the capture rings of some processes, look by look: what waits in each ring, what came to it and what it dropped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::btf::Btf;
use crate::packet_counts::{PacketCounts, PacketCountsReader, RingShape};
use crate::packet_diag::packet_diag;
use crate::ring_level::{RingFill, ring_addresses, ring_fill, ring_fill_without_head};
use crate::{CounterError, Result};

/// A receive ring that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct WatchedRing {
    /// As in `/proc/PID/fd`: `socket:[inode]`.
    pub inode: u64,
    /// The process that maps it.
    pub pid: u32,
    /// Its number there: programs that open one socket per thread do so in order.
    pub fd: u32,
    /// TPACKET_V1, 2 or 3.
    pub version: u32,
    /// Packets that it holds; `None` for version 3, whose packets share blocks.
    pub slots: Option<u64>,
    /// Blocks of the ring.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// One ring at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLook {
    /// Place in `RingWatch::rings`.
    pub ring: usize,
    /// Packets that wait for the reader, those in the block that is being filled included.
    pub packets: u64,
    /// Frames or, of version 3, blocks that are the reader's.
    pub full: u64,
    /// Packets that came to the socket since the first look, dropped ones included. Its owner's own reading of them sets the
    /// kernel's counter to zero; what came between the last look and that reading is missing. `None` where the kernel lets
    /// no program count beside the owner.
    pub arrived: Option<u64>,
    /// Packets that found the ring full since the first look, with the same gap.
    pub dropped: Option<u64>,
}

/// The rings of some processes, and what was counted at the last look.
#[derive(Debug)]
pub struct RingWatch {
    readers: Vec<PacketCountsReader>,
    rings: Vec<WatchedRing>,
    watched: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    address: u64,
    /// Of a ring without a reader of counts: as the socket was set up, without a head.
    shape: Option<RingShape>,
    /// Frames or blocks that were the reader's at the last look.
    full: u64,
    counted: Rise,
    dropped: Rise,
}

/// Sum of a counter that its owner may set to zero.
#[derive(Debug, Default)]
struct Rise {
    last: u64,
    sum: u64,
}

impl Rise {
    fn to(&mut self, now: u64) -> u64 {
        self.sum += now.checked_sub(self.last).unwrap_or(now);
        self.last = now;
        self.sum
    }
}

impl RingWatch {
    /// Watches the rings that these processes have now. `root` is `/` in production.
    ///
    /// # Errors
    /// Without CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE (root of the host), and on a kernel without BTF.
    pub fn new(root: &Path, pids: &[u32]) -> Result<Self> {
        Self::of(root, pids, false)
    }

    /// As `new`; where no counts are readable (a normal user), a look has the level alone, of sockets in this thread's network
    /// namespace.
    ///
    /// # Errors
    /// Without CAP_SYS_PTRACE over a process, and on a kernel that shows no packet sockets.
    pub fn or_levels(root: &Path, pids: &[u32]) -> Result<Self> {
        Self::of(root, pids, true)
    }

    fn of(root: &Path, pids: &[u32], levels_do: bool) -> Result<Self> {
        let mut found = Self {
            readers: Vec::new(),
            rings: Vec::new(),
            watched: Vec::new(),
        };
        let mut types = None;
        for pid in pids {
            let addresses = match ring_addresses(root, *pid) {
                Err(error) if error.is_gone() => continue,
                addresses => addresses?,
            };
            if addresses.is_empty() {
                continue;
            }
            let reader = match &types {
                Some(types) => PacketCountsReader::of_process(types, *pid),
                None => Btf::of_kernel(root)
                    .and_then(|known| PacketCountsReader::of_process(types.insert(known), *pid)),
            };
            let mut reader = match reader {
                Err(_) if levels_do => {
                    found.watch_levels(root, *pid, &addresses)?;
                    continue;
                }
                reader => reader?,
            };
            let own = |counts: &PacketCounts| counts.pid == *pid && counts.protocol != 0;
            let mut known = 0;
            for counts in reader.read()?.into_iter().filter(own) {
                let (Some(shape), Some(address)) = (counts.ring, addresses.get(&counts.inode))
                else {
                    continue;
                };
                if found.rings.iter().any(|ring| ring.inode == counts.inode) {
                    continue; // a ring that a parent and its child share
                }
                known += 1;
                found.rings.push(WatchedRing {
                    inode: counts.inode,
                    pid: *pid,
                    fd: counts.fd,
                    version: shape.version,
                    slots: (shape.version < 3).then_some(shape.frames),
                    blocks: shape.blocks,
                    block_bytes: shape.block_bytes,
                });
                found.watched.push(Watched {
                    address: *address,
                    shape: None,
                    full: 0,
                    counted: Rise {
                        last: counts.tp_packets,
                        sum: 0,
                    },
                    dropped: Rise {
                        last: counts.tp_drops,
                        sum: 0,
                    },
                });
            }
            if known > 0 {
                found.readers.push(reader);
            }
        }
        Ok(found)
    }

    /// Rings of a process of which no counts can be read.
    fn watch_levels(
        &mut self,
        root: &Path,
        pid: u32,
        addresses: &BTreeMap<u64, u64>,
    ) -> Result<()> {
        let descriptors = descriptors(root, pid);
        for socket in packet_diag()? {
            let (Some(ring), Some(address)) = (socket.ring, addresses.get(&socket.inode)) else {
                continue;
            };
            if self.rings.iter().any(|known| known.inode == socket.inode) {
                continue;
            }
            let [block_bytes, blocks, frame_bytes, frames, retire_ms] = ring.map(u64::from);
            self.rings.push(WatchedRing {
                inode: socket.inode,
                pid,
                fd: descriptors.get(&socket.inode).copied().unwrap_or(0),
                version: socket.version,
                slots: (socket.version < 3).then_some(frames),
                blocks,
                block_bytes,
            });
            self.watched.push(Watched {
                address: *address,
                shape: Some(RingShape {
                    version: socket.version,
                    block_bytes,
                    blocks,
                    frame_bytes,
                    frames,
                    head: 0,
                    retire_ms: (socket.version == 3).then_some(retire_ms),
                }),
                full: 0,
                counted: Rise::default(),
                dropped: Rise::default(),
            });
        }
        Ok(())
    }

    /// The rings, in the order of processes and descriptors.
    #[must_use]
    pub fn rings(&self) -> &[WatchedRing] {
        &self.rings
    }

    /// Looks at each ring that is still there.
    pub fn look(&mut self, into: &mut Vec<RingLook>) -> Result<()> {
        into.clear();
        for reader in &mut self.readers {
            for counts in reader.read()? {
                let place = self.rings.iter().position(|ring| {
                    (ring.inode, ring.pid) == (counts.inode, counts.pid) && ring.fd == counts.fd
                });
                let (Some(ring), Some(shape)) = (place, counts.ring) else {
                    continue;
                };
                let watched = &mut self.watched[ring];
                let fill = ring_fill(counts.pid, watched.address, &shape, Some(watched.full));
                let Some(fill) = unless_gone(fill)? else {
                    continue;
                };
                watched.full = fill.full;
                let dropped = watched.dropped.to(counts.tp_drops);
                into.push(RingLook {
                    ring,
                    packets: fill.packets,
                    full: fill.full,
                    arrived: Some(watched.counted.to(counts.tp_packets) + dropped),
                    dropped: Some(dropped),
                });
            }
        }
        for (ring, watched) in self.watched.iter().enumerate() {
            let Some(shape) = &watched.shape else {
                continue;
            };
            let fill = ring_fill_without_head(self.rings[ring].pid, watched.address, shape);
            if let Some(fill) = unless_gone(fill)? {
                into.push(RingLook {
                    ring,
                    packets: fill.packets,
                    full: fill.full,
                    arrived: None,
                    dropped: None,
                });
            }
        }
        Ok(())
    }
}

/// Numbers of a process's open sockets, by inode.
fn descriptors(root: &Path, pid: u32) -> BTreeMap<u64, u32> {
    let open = fs::read_dir(root.join(format!("proc/{pid}/fd")));
    let number = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?;
        Some((
            inode.parse().ok()?,
            entry.file_name().to_str()?.parse().ok()?,
        ))
    };
    open.into_iter()
        .flatten()
        .filter_map(|entry| number(entry.ok()?))
        .collect()
}

/// `None` once the process or its ring is gone.
fn unless_gone(fill: Result<Option<RingFill>>) -> Result<Option<RingFill>> {
    match fill {
        Err(CounterError::Kernel { source, .. })
            if matches!(
                source.raw_os_error(),
                Some(libc::ESRCH | libc::EFAULT | libc::EPERM)
            ) =>
        {
            Ok(None)
        }
        fill => fill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_its_owner_sets_to_zero_goes_on() {
        let mut rise = Rise { last: 40, sum: 0 };
        let sums = [40, 55, 3, 3, 9].map(|now| rise.to(now));
        assert_eq!(sums, [0, 15, 18, 18, 24]);
    }
}
