//! Receiving frames from a TPACKET_V3 ring: the kernel fills blocks of memory that we share, and wakes us per block.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::socket::{IoError, PacketSocket};

const ETH_P_ALL: u16 = 0x0003;
/// Longest time the kernel keeps a block that is not full; also how long a reader waits at most to see the last packets.
pub const BLOCK_TIMEOUT_MS: u32 = 20;
/// Only a unit of account in version 3: packets are packed one behind the other.
const FRAME_BYTES: u32 = 2048;
const STEP_RING: &str = "PACKET_RX_RING (is there memory for ring_bytes? block_bytes must be a multiple of the page size)";

/// How a ring is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingOptions {
    /// Size of a block; a multiple of the page size.
    pub block_bytes: u32,
    /// Blocks of the ring.
    pub blocks: u32,
}

/// What the kernel counts for one socket. Reading resets it, so only its one owner reads, and adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketStatistics {
    /// Packets the kernel had for the socket, those it dropped included.
    pub tp_packets: u64,
    /// Of those, packets that found no room in the ring.
    pub tp_drops: u64,
    /// Times the ring went full: episodes, not packets.
    pub tp_freeze_q_count: u64,
}

/// One packet in a block.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// CLOCK_REALTIME of the kernel when it arrived.
    pub timestamp_ns: u64,
    /// Length on the wire, with the VLAN tag that the kernel took out.
    pub wire_bytes: u32,
    /// The frame without that tag.
    pub frame: &'a [u8],
}

/// A listening socket with its ring, for one reader.
pub struct RxRing {
    socket: PacketSocket,
    memory: NonNull<u8>,
    options: RingOptions,
    /// The block that is filled next.
    current: u32,
    statistics: PacketStatistics,
}

// SAFETY: the mapping belongs to this value alone and is not bound to the thread that made it.
unsafe impl Send for RxRing {}

impl RxRing {
    /// Opens a promiscuous socket that receives everything which arrives at the interface, and nothing that leaves by it.
    ///
    /// # Errors
    /// Where there is no such interface, no permission (CAP_NET_RAW), or no memory for the ring.
    pub fn open(interface: &str, options: RingOptions) -> Result<Self, IoError> {
        let socket = PacketSocket::new(interface)?;
        let version = libc::tpacket_versions::TPACKET_V3 as u32;
        socket.set(
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &version,
            "PACKET_VERSION",
        )?;
        let one: i32 = 1;
        // Since Linux 4.20; before, packets that leave are seen, too.
        let _ = socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one, "");
        let request = libc::tpacket_req3 {
            tp_block_size: options.block_bytes,
            tp_block_nr: options.blocks,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: (options.block_bytes / FRAME_BYTES).saturating_mul(options.blocks),
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request, STEP_RING)?;
        let memory = map(&socket, ring_bytes(options))?;
        let ring = Self {
            socket,
            memory,
            options,
            current: 0,
            statistics: PacketStatistics::default(),
        };
        ring.socket.promiscuous()?;
        ring.socket.bind(ETH_P_ALL)?;
        Ok(ring)
    }

    /// Opens `count` rings that share the packets by flow hash; with `defrag` the kernel first puts IPv4 fragments together.
    ///
    /// # Errors
    /// As [`RxRing::open`].
    pub fn open_group(
        interface: &str,
        options: RingOptions,
        count: u32,
        defrag: bool,
    ) -> Result<Vec<Self>, IoError> {
        let mut rings = Vec::new();
        let mut group = None;
        for _ in 0..count.max(1) {
            let ring = Self::open(interface, options)?;
            if count > 1 || defrag {
                group = Some(ring.join(group, defrag)?);
            }
            rings.push(ring);
        }
        Ok(rings)
    }

    /// Joins a fanout group, or founds one with an identifier that the kernel chooses (4.12).
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

    /// Waits until a block is ready or the time is over; a signal ends the wait early.
    pub fn wait(&self, timeout_ms: u32) {
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

    /// The next block the kernel has given to us; it goes back when it is dropped.
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        let header = self.block(self.current).cast::<libc::tpacket_block_desc>();
        // SAFETY: every block begins with its descriptor, and `hdr.bh1` is the only variant of its union.
        let status = unsafe { &raw mut (*header.as_ptr()).hdr.bh1.block_status };
        // SAFETY: the status is an aligned u32 that lives as long as the mapping; kernel and we pass blocks by it alone.
        let status = unsafe { AtomicU32::from_ptr(status) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block is ours until the status is given back, so the kernel does not write.
        let description = unsafe { &(*header.as_ptr()).hdr.bh1 };
        self.current = (self.current + 1) % self.options.blocks;
        // SAFETY: the block is `block_bytes` long and ours, as above; the slice ends with the `Block`.
        let bytes = unsafe {
            std::slice::from_raw_parts(header.as_ptr().cast(), self.options.block_bytes as usize)
        };
        Some(Block {
            bytes,
            first: description.offset_to_first_pkt as usize,
            count: description.num_pkts,
            status,
            ring: PhantomData,
        })
    }

    /// Counters since the socket was made.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn statistics(&mut self) -> Result<PacketStatistics, IoError> {
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

    fn block(&self, number: u32) -> NonNull<u8> {
        // SAFETY: `number` is below `blocks`, so the block lies in the mapping.
        unsafe {
            self.memory
                .add(number as usize * self.options.block_bytes as usize)
        }
    }
}

impl AsFd for RxRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no `Block` can outlive the ring.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), ring_bytes(self.options)) };
    }
}

fn ring_bytes(options: RingOptions) -> usize {
    options.block_bytes as usize * options.blocks as usize
}

fn map(socket: &PacketSocket, bytes: usize) -> Result<NonNull<u8>, IoError> {
    // SAFETY: a new shared mapping at an address of the kernel's choice.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            socket.fd.as_raw_fd(),
            0,
        )
    };
    match NonNull::new(memory.cast()) {
        Some(pointer) if memory != libc::MAP_FAILED => Ok(pointer),
        _ => Err(socket.failed("mmap of the ring")),
    }
}

/// A block that is ours until it is dropped.
pub struct Block<'a> {
    bytes: &'a [u8],
    first: usize,
    count: u32,
    status: &'a AtomicU32,
    ring: PhantomData<&'a mut RxRing>,
}

impl Block<'_> {
    /// Its packets, in order of arrival.
    #[must_use]
    pub fn packets(&self) -> Packets<'_> {
        Packets {
            bytes: self.bytes,
            next: self.first,
            left: self.count,
        }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// Walks over the packets of a block.
#[derive(Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    next: usize,
    left: u32,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        self.left = self.left.checked_sub(1)?;
        let header = self
            .bytes
            .get(self.next..)?
            .get(..size_of::<libc::tpacket3_hdr>())?;
        // SAFETY: the bytes are there, are plain integers, and `read_unaligned` asks for no alignment.
        let header = unsafe {
            header
                .as_ptr()
                .cast::<libc::tpacket3_hdr>()
                .read_unaligned()
        };
        let begin = self.next + usize::from(header.tp_mac);
        let frame = self.bytes.get(begin..begin + header.tp_snaplen as usize)?;
        self.next += header.tp_next_offset as usize;
        let tag = if header.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
            0
        } else {
            4
        };
        Some(Packet {
            timestamp_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            wire_bytes: header.tp_len + tag,
            frame,
        })
    }
}
