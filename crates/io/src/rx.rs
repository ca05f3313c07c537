//! Receiving frames from a TPACKET_V3 ring: the kernel fills blocks of memory that we share, and wakes us per block.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

pub use crate::ring::{Packet, PacketStatistics};
use crate::ring::{Ring, group, tag_bytes};
use crate::socket::IoError;

/// Longest time the kernel keeps a block that is not full; also how long a reader waits at most to see the last packets.
pub const BLOCK_TIMEOUT_MS: u32 = 20;
/// Only a unit of account in version 3: packets are packed one behind the other.
const FRAME_BYTES: u32 = 2048;

/// How a ring is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingOptions {
    /// Size of a block; a multiple of the page size.
    pub block_bytes: u32,
    /// Blocks of the ring.
    pub blocks: u32,
}

/// A listening socket with a ring of blocks, for one reader.
pub struct RxRing {
    ring: Ring,
    options: RingOptions,
    /// The block that is filled next.
    current: u32,
}

impl RxRing {
    /// Opens a promiscuous socket that receives everything which arrives at the interface, and nothing that leaves by it.
    ///
    /// # Errors
    /// If there is no such interface, no permission (CAP_NET_RAW), or no memory for the ring.
    pub fn open(interface: &str, options: RingOptions) -> Result<Self, IoError> {
        let request = libc::tpacket_req3 {
            tp_block_size: options.block_bytes,
            tp_block_nr: options.blocks,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: (options.block_bytes / FRAME_BYTES).saturating_mul(options.blocks),
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let bytes = options.block_bytes as usize * options.blocks as usize;
        Ok(Self {
            ring: Ring::open(
                interface,
                libc::tpacket_versions::TPACKET_V3,
                &request,
                bytes,
            )?,
            options,
            current: 0,
        })
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
        let open = || Self::open(interface, options);
        group(count, defrag, open, |one| &one.ring)
    }

    /// Waits until a block is ready or the time is over; a signal ends the wait early.
    pub fn wait(&self, timeout_ms: u32) {
        self.ring.wait(timeout_ms);
    }

    /// The next block the kernel has given to us; it goes back when it is dropped.
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        let offset = self.current as usize * self.options.block_bytes as usize;
        let header: NonNull<libc::tpacket_block_desc> = self.ring.at(offset)?.cast();
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
    /// If the kernel does not say.
    pub fn statistics(&mut self) -> Result<PacketStatistics, IoError> {
        self.ring.statistics()
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
        Some(Packet {
            timestamp_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            wire_bytes: header.tp_len + tag_bytes(header.tp_status),
            frame,
        })
    }
}
