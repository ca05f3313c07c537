//! A listening socket and the memory that the kernel fills and we read: what rings of blocks and rings of slots have in common.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use nodrop_sys::memory::Mapping;

use crate::socket::{IoError, PacketSocket};

const ETH_P_ALL: u16 = 0x0003;
const STEP_RING: &str = "PACKET_RX_RING (is there memory for the ring? block_bytes must be a multiple of the page size)";

/// What the kernel counts for one socket. Reading resets it, so only its one owner reads, and adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketStatistics {
    /// Packets the kernel had for the socket, those it dropped included.
    pub tp_packets: u64,
    /// Of those, packets that found no room in the ring.
    pub tp_drops: u64,
    /// Times the ring went full: episodes, not packets. A ring of slots does not count them.
    pub tp_freeze_q_count: u64,
}

/// One packet in a ring.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// CLOCK_REALTIME of the kernel when it arrived.
    pub timestamp_ns: u64,
    /// Length on the wire, with the VLAN tag that the kernel took out.
    pub wire_bytes: u32,
    /// The frame without that tag.
    pub frame: &'a [u8],
}

/// A socket with its ring, for one reader.
pub(crate) struct Ring {
    socket: PacketSocket,
    memory: Mapping,
    statistics: PacketStatistics,
}

impl Ring {
    /// Opens a promiscuous socket that receives everything which arrives at the interface, and nothing that leaves by it.
    /// `request` is the version's own, for a ring of `bytes`.
    pub(crate) fn open<R: Copy>(
        interface: &str,
        version: libc::tpacket_versions,
        request: &R,
        bytes: usize,
    ) -> Result<Self, IoError> {
        let socket = PacketSocket::new(interface)?;
        let version = version as u32;
        socket.set(
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &version,
            "PACKET_VERSION",
        )?;
        let one: i32 = 1;
        // Since Linux 4.20; before, packets that leave are seen, too.
        let _ = socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one, "");
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, request, STEP_RING)?;
        let memory = Mapping::shared(&socket.fd, bytes, 0)
            .map_err(|source| socket.failed("mmap of the ring", source))?;
        let ring = Self {
            socket,
            memory,
            statistics: PacketStatistics::default(),
        };
        ring.socket.promiscuous()?;
        ring.socket.bind(ETH_P_ALL)?;
        Ok(ring)
    }

    /// Joins a fanout group by flow hash, or founds one with an identifier that the kernel chooses (4.12).
    fn join(&self, group: Option<u32>, defrag: bool) -> Result<u32, IoError> {
        let mut flags = libc::PACKET_FANOUT_HASH;
        if defrag {
            flags |= libc::PACKET_FANOUT_FLAG_DEFRAG;
        }
        if group.is_none() {
            flags |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
        }
        let argument = (flags << 16) | group.unwrap_or(0);
        self.socket.set(
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            &argument,
            "PACKET_FANOUT",
        )?;
        let joined: u32 =
            self.socket
                .get(libc::SOL_PACKET, libc::PACKET_FANOUT, "PACKET_FANOUT")?;
        Ok(joined & 0xffff)
    }

    /// Waits until something is ready or the time is over; a signal ends the wait early.
    pub(crate) fn wait(&self, timeout_ms: u32) {
        let mut poll = libc::pollfd {
            fd: self.socket.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, timeout) };
        if poll.revents & libc::POLLERR != 0 {
            // The interface went down: reading the error clears it, and the next wait is one again.
            let _ = self
                .socket
                .get::<i32>(libc::SOL_SOCKET, libc::SO_ERROR, "SO_ERROR");
        }
    }

    /// Counters since the socket was made.
    pub(crate) fn statistics(&mut self) -> Result<PacketStatistics, IoError> {
        // The third is of version 3 alone; the others' kernel leaves it at zero.
        let read: [u32; 3] = self.socket.get(
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            "PACKET_STATISTICS",
        )?;
        let [packets, drops, freezes] = read.map(u64::from);
        self.statistics.tp_packets += packets;
        self.statistics.tp_drops += drops;
        self.statistics.tp_freeze_q_count += freezes;
        Ok(self.statistics)
    }

    /// The ring from `offset` on; `None` beyond its end.
    pub(crate) fn at(&self, offset: usize) -> Option<NonNull<u8>> {
        // SAFETY: the offset lies in the mapping, it was compared with its length.
        (offset < self.memory.bytes()).then(|| unsafe { self.memory.start().add(offset) })
    }
}

/// Opens `count` rings that share the packets by flow hash; with `defrag` the kernel first puts IPv4 fragments together.
pub(crate) fn group<T>(
    count: u32,
    defrag: bool,
    open: impl Fn() -> Result<T, IoError>,
    ring: impl Fn(&T) -> &Ring,
) -> Result<Vec<T>, IoError> {
    let mut opened = Vec::new();
    let mut group = None;
    for _ in 0..count.max(1) {
        let one = open()?;
        if count > 1 || defrag {
            group = Some(ring(&one).join(group, defrag)?);
        }
        opened.push(one);
    }
    Ok(opened)
}

/// 4 if the kernel took a VLAN tag out of the frame.
pub(crate) fn tag_bytes(status: u32) -> u32 {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        0
    } else {
        4
    }
}
