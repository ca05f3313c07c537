//! Receiving frames from a TPACKET_V2 ring: one slot for each packet, which the kernel may fill again as soon as it is given
//! back. So a ring of K slots holds K packets of whatever length, the one that is being read included.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ring::{Packet, PacketStatistics, Ring, group, tag_bytes};
use crate::socket::IoError;

/// A page of its own for each slot, so that any number of them makes a ring. What of a longer frame does not fit is cut off;
/// its length is known.
pub const SLOT_BYTES: u32 = 4096;

/// A listening socket with a ring of slots, for one reader.
pub struct SlotRing {
    ring: Ring,
    slots: u32,
    /// The slot that is filled next.
    current: u32,
}

impl SlotRing {
    /// As [`crate::rx::RxRing::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(interface: &str, slots: u32) -> Result<Self, IoError> {
        let request = libc::tpacket_req {
            tp_block_size: SLOT_BYTES,
            tp_block_nr: slots,
            tp_frame_size: SLOT_BYTES,
            tp_frame_nr: slots,
        };
        let bytes = SLOT_BYTES as usize * slots as usize;
        Ok(Self {
            ring: Ring::open(
                interface,
                libc::tpacket_versions::TPACKET_V2,
                &request,
                bytes,
            )?,
            slots,
            current: 0,
        })
    }

    /// As [`crate::rx::RxRing::open_group`].
    ///
    /// # Errors
    /// As there.
    pub fn open_group(
        interface: &str,
        slots: u32,
        count: u32,
        defrag: bool,
    ) -> Result<Vec<Self>, IoError> {
        let open = || Self::open(interface, slots);
        group(count, defrag, open, |one| &one.ring)
    }

    /// Waits until a packet is there or the time is over; a signal ends the wait early.
    pub fn wait(&self, timeout_ms: u32) {
        self.ring.wait(timeout_ms);
    }

    /// Counters since the socket was made.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn statistics(&mut self) -> Result<PacketStatistics, IoError> {
        self.ring.statistics()
    }

    /// The oldest packet, if there is one; its slot goes back when it is dropped.
    pub fn next_slot(&mut self) -> Option<Slot<'_>> {
        let offset = self.current as usize * SLOT_BYTES as usize;
        let header: NonNull<libc::tpacket2_hdr> = self.ring.at(offset)?.cast();
        // SAFETY: every slot begins with its header; the status is an aligned u32 that lives as long as the mapping; kernel and
        // we pass slots by it alone.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*header.as_ptr()).tp_status) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours until the status is given back, so the kernel does not write; the copy is of plain integers.
        let header = unsafe { header.as_ptr().read() };
        let begin = usize::from(header.tp_mac);
        let length = (header.tp_snaplen as usize).min((SLOT_BYTES as usize).saturating_sub(begin));
        let first = self.ring.at(offset + begin)?;
        self.current = (self.current + 1) % self.slots;
        // SAFETY: begin and length lie within the slot, which is ours, as above; the slice ends with the `Slot`.
        let frame = unsafe { std::slice::from_raw_parts(first.as_ptr(), length) };
        Some(Slot {
            packet: Packet {
                timestamp_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
                wire_bytes: header.tp_len + tag_bytes(header.tp_status),
                frame,
            },
            status,
            ring: PhantomData,
        })
    }
}

/// A packet whose slot is ours until it is dropped.
pub struct Slot<'a> {
    /// The packet.
    pub packet: Packet<'a>,
    status: &'a AtomicU32,
    ring: PhantomData<&'a mut SlotRing>,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}
