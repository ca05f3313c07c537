//! One reader per kernel interface that counts something; each takes a root path, so that tests can bring their own `/proc`.
//!
//! Readers know nothing of each other or of the ledger: they name what the kernel names (`tp_drops`, `time_squeeze`), hold
//! their files open and read them again with pread(2). `None` is what this kernel does not count; zero is zero. What every
//! counter means for the packet books stands in docs/reference/counters.md.

mod btf;
mod cgroup;
mod clock;
mod conntrack;
mod cpuinfo;
mod disks;
mod error;
mod ethtool;
mod held;
mod interrupts;
mod link;
mod load;
mod memory;
mod named;
mod netlink;
mod packet;
mod packet_counts;
mod packet_diag;
mod peer;
mod process;
mod reassembly;
mod ring_level;
mod ring_watch;
mod snmp;
mod softnet;
mod stat;
mod swap;
#[cfg(target_arch = "x86_64")]
pub mod tsc;
mod usage;
pub mod vmx;

pub use cgroup::{
    Cgroup, CgroupReader, MemoryHits, Quota, memory_hits, quotas, sees_groups,
    versions as cgroup_versions,
};
pub use clock::tick_ns;
pub use conntrack::{Conntrack, ConntrackReader};
pub use cpuinfo::{CpuInfo, read_cpu_info};
pub use disks::{Disk, DiskReader, Disks};
pub use error::CounterError;
pub use ethtool::{EthtoolReader, Feature, PortSettings, Spread, read_port_settings};
pub use interrupts::{Interrupt, InterruptReader};
pub use link::{Link, LinkReader, LinkStats, Xdp};
pub use load::{Load, LoadReader, Pressure};
pub use memory::{Memory, MemoryReader};
pub use named::{Named, Renewal};
pub use packet::{PacketSocket, PacketSocketReader};
pub use packet_counts::{Fanout, PacketCounts, PacketCountsReader, RingShape};
pub use packet_diag::{DiagSocket, packet_diag, packet_diag_is_there};
pub use peer::{namespace_number, peer_namespace};
pub use process::{ProcessIo, ProcessReading, ProcessTree, ThreadReading, TreeTotals};
pub use reassembly::{Reassembly, ReassemblyReader};
pub use ring_level::{RingFill, RingLevel, ring_addresses, ring_fill, ring_level};
pub use ring_watch::{RingLook, RingWatch, WatchedRing};
pub use snmp::{Snmp, SnmpReader};
pub use softnet::{SoftnetReader, SoftnetRow};
pub use stat::{CpuTimes, StatReader};
pub use swap::{Swap, SwapReader};
pub use usage::{Usage, read as read_usage};

/// What every reader returns.
pub type Result<T> = std::result::Result<T, CounterError>;

#[cfg(test)]
mod testing;
