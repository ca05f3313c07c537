//! Sending frames through an AF_XDP socket in copy mode: no driver support, no XDP program, one system call per batch.
//!
//! Over veth it takes 0.4 of the CPU time of send(2) per frame. The memory shared with the kernel is that of the trace itself
//! if frames are sent as they lie there; one that is rewritten must not change while the kernel holds it, so such are written
//! into slots, few enough to stay in the cache. The kernel checks neither the MTU nor that a frame holds a header here, so we do.
//! Numbers: docs/adr/0006.

use std::io::Error;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nodrop_sys::memory::Mapping;

use crate::socket::{IoError, PacketSocket, request_for};
use crate::tx::Sent;

/// A queue stays taken for about a second after its last socket was closed.
const BUSY: Duration = Duration::from_secs(2);
/// How long frames may find no way out before they count as refused.
const STUCK: Duration = Duration::from_millis(100);
const RING: u32 = 512;
const SLOTS: u32 = 512;
/// Frames per system call; the kernel's default is 32.
const BATCH: u32 = 256;
/// A chunk of the shared memory is at most a page, and a frame at most a chunk.
pub const LONGEST_FRAME: usize = 4096;
const CHUNK_BYTES: u32 = 4096;
const _: () = assert!(CHUNK_BYTES as usize == LONGEST_FRAME);
/// Memory is shared by whole pages.
const PAGE_BYTES: usize = 4096;
const XDP_UMEM_UNALIGNED_CHUNK_FLAG: u32 = 1;
const PAGE_OFFSET_TX: u64 = 0x8000_0000;
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const AF_XDP: u16 = 44;
const ETHERNET_BYTES: usize = 14;
const SOCKADDR_BYTES: libc::socklen_t = 16;
const _: () = assert!(SOCKADDR_BYTES as usize == size_of::<libc::sockaddr_xdp>());

/// An AF_XDP socket that only sends.
pub struct XdpSender {
    socket: PacketSocket,
    memory: Shared,
    tx: Ring<libc::xdp_desc>,
    completion: Ring<u64>,
    /// Slots that the kernel does not hold; without slots, just as many as frames may be on their way.
    free: Vec<u32>,
    /// Frames in the ring that the kernel has not taken.
    pending: u32,
    longest: usize,
}

impl XdpSender {
    /// Opens a socket on a queue; waits up to 2 s for the one before it to be gone. With `in_place`, frames that lie there are sent
    /// from there and no others can be sent, unless the kernel (since Linux 5.4) or the limit on locked memory forbid it.
    ///
    /// # Errors
    /// If there is no such interface, no permission, or the kernel has no AF_XDP.
    pub fn open(
        interface: &str,
        queue: u32,
        in_place: Option<Arc<Vec<u8>>>,
    ) -> Result<Self, IoError> {
        let socket = PacketSocket::of_family(libc::AF_XDP, interface)?;
        // An AF_XDP socket has no ioctl(2) of its own.
        let longest = mtu(&PacketSocket::new(interface)?)? + ETHERNET_BYTES;
        let in_place = in_place.map(Shared::InPlace);
        let memory = match in_place.filter(|memory| memory.register(&socket).is_ok()) {
            Some(memory) => memory,
            None => {
                let slots = Mapping::anonymous(SLOTS as usize * LONGEST_FRAME)
                    .map_err(|source| socket.failed("mmap", source))?;
                let memory = Shared::Slots(slots);
                memory.register(&socket)?;
                memory
            }
        };
        for (option, step) in [
            (libc::XDP_UMEM_FILL_RING, "XDP_UMEM_FILL_RING"),
            (libc::XDP_UMEM_COMPLETION_RING, "XDP_UMEM_COMPLETION_RING"),
            (libc::XDP_TX_RING, "XDP_TX_RING"),
        ] {
            socket.set(libc::SOL_XDP, option, &RING, step)?;
        }
        // Since Linux 6.18; else a call sends 32.
        let _ = socket.set(libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &BATCH, "");
        // Producer, consumer, entries and flags of the rings rx, tx, fill and completion.
        let offsets: [u64; 16] =
            socket.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, "XDP_MMAP_OFFSETS")?;
        let tx = Ring::map(&socket, PAGE_OFFSET_TX, &offsets[4..])?;
        let completion = Ring::map(
            &socket,
            libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            &offsets[12..],
        )?;
        bind(&socket, queue)?;
        let free = (0..SLOTS).collect();
        Ok(Self {
            socket,
            memory,
            tx,
            completion,
            free,
            pending: 0,
            longest,
        })
    }

    /// Puts a frame into the ring; [`XdpSender::flush`] reports what became of it, unless it is refused at once.
    pub fn push(&mut self, frame: &[u8], report: &mut impl FnMut(usize, Sent)) {
        if frame.len() < ETHERNET_BYTES {
            return report(frame.len(), Sent::Unfit(libc::EINVAL));
        }
        // A VLAN tag is no part of the MTU.
        let is_tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
        if frame.len() > LONGEST_FRAME.min(self.longest + if is_tagged { 4 } else { 0 }) {
            return report(frame.len(), Sent::Unfit(libc::EMSGSIZE));
        }
        if self.pending == BATCH || self.free.is_empty() {
            self.flush(report);
        }
        let Some(slot) = self.free.pop() else {
            return report(frame.len(), Sent::Full(libc::EAGAIN));
        };
        let Some(offset) = self.memory.place(slot, frame) else {
            self.free.push(slot);
            return report(frame.len(), Sent::Unfit(libc::EFAULT));
        };
        // At most LONGEST_FRAME, as compared above.
        let len = u32::try_from(frame.len()).unwrap_or(0);
        self.tx.put(libc::xdp_desc {
            addr: offset as u64,
            len,
            options: 0,
        });
        self.pending += 1;
    }

    /// Has the kernel send all that was pushed, and reports the length and fate of each frame.
    pub fn flush(&mut self, report: &mut impl FnMut(usize, Sent)) {
        let mut moved = Instant::now();
        while self.pending > 0 {
            let before = self.tx.consumed();
            let errno = self.kick();
            let went = self.tx.consumed().wrapping_sub(before);
            for number in 0..went {
                let length = self.tx.entry(before.wrapping_add(number)).len as usize;
                // EBUSY: the device dropped the last frame that the kernel took from the ring.
                let is_dropped = errno == libc::EBUSY && number + 1 == went;
                report(
                    length,
                    if is_dropped {
                        Sent::Full(errno)
                    } else {
                        Sent::Taken
                    },
                );
            }
            self.pending -= went;
            self.reap();
            if matches!(errno, libc::ENETDOWN | libc::ENXIO | libc::ENODEV) {
                self.pending = 0;
                return report(0, Sent::Gone(errno));
            }
            if went > 0 {
                moved = Instant::now();
            } else if moved.elapsed() > STUCK {
                // They stay in the ring, and are never sent: the socket is not kicked for them again unless more follow.
                self.pending = 0;
                return report(0, Sent::Gone(libc::ETIMEDOUT));
            }
        }
        let wait = Instant::now();
        while self.free.is_empty() && wait.elapsed() < STUCK {
            self.reap();
        }
    }

    /// Takes back the slots of frames that have left.
    fn reap(&mut self) {
        while let Some(address) = self.completion.take() {
            self.free.push(self.memory.slot(address));
        }
    }

    fn kick(&self) -> i32 {
        // SAFETY: no data and no address are passed.
        let done = unsafe {
            libc::sendto(
                self.socket.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if done >= 0 {
            0
        } else {
            Error::last_os_error().raw_os_error().unwrap_or(0)
        }
    }
}

/// The MTU, by ioctl(2).
pub(crate) fn mtu(socket: &PacketSocket) -> Result<usize, IoError> {
    let mut request = request_for(&socket.interface);
    // SAFETY: SIOCGIFMTU reads the name and writes `ifru_mtu` of the request, which lives through the call.
    let done = unsafe {
        libc::ioctl(
            socket.fd.as_raw_fd(),
            libc::SIOCGIFMTU as _,
            &raw mut request,
        )
    };
    socket.check(done, "SIOCGIFMTU")?;
    // SAFETY: the call has written this variant.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

fn bind(socket: &PacketSocket, queue: u32) -> Result<(), IoError> {
    let address = libc::sockaddr_xdp {
        sxdp_family: AF_XDP,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: socket.index.unsigned_abs(),
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let begin = Instant::now();
    loop {
        // SAFETY: the address lives through the call and its length is its own.
        let done = unsafe {
            libc::bind(
                socket.fd.as_raw_fd(),
                (&raw const address).cast(),
                SOCKADDR_BYTES,
            )
        };
        let is_busy = Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
        if done == 0 || !is_busy || begin.elapsed() > BUSY {
            return socket.check(done, "bind(AF_XDP)").map(drop);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where frames lie that the kernel sends.
enum Shared {
    /// Memory that holds the frames anyway; it is never written to, and the kernel only reads.
    InPlace(Arc<Vec<u8>>),
    /// Room for SLOTS frames that are written before they are sent.
    Slots(Mapping),
}

impl Shared {
    /// Offers the pages to the kernel, which keeps them until the socket is gone.
    fn register(&self, socket: &PacketSocket) -> Result<(), IoError> {
        let (begin, bytes, flags) = match self {
            Self::InPlace(frames) => {
                let begin = frames.as_ptr().addr();
                let end = (begin + frames.len()).next_multiple_of(PAGE_BYTES);
                let page = begin - begin % PAGE_BYTES;
                (page, end - page, XDP_UMEM_UNALIGNED_CHUNK_FLAG)
            }
            Self::Slots(memory) => (memory.start().addr().get(), memory.bytes(), 0),
        };
        let region = libc::xdp_umem_reg {
            addr: begin as u64,
            len: bytes as u64,
            chunk_size: CHUNK_BYTES,
            headroom: 0,
            flags,
            tx_metadata_len: 0,
        };
        socket.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &region, "XDP_UMEM_REG")
    }

    /// Where a frame lies in the memory, perhaps after it was written to a slot.
    fn place(&mut self, slot: u32, frame: &[u8]) -> Option<usize> {
        match self {
            Self::InPlace(frames) => {
                let begin = frames.as_ptr().addr();
                let offset = frame.as_ptr().addr().checked_sub(begin)?;
                (offset + frame.len() <= frames.len()).then_some(begin % PAGE_BYTES + offset)
            }
            Self::Slots(memory) => {
                let offset = slot as usize * LONGEST_FRAME;
                memory.write(offset, frame);
                Some(offset)
            }
        }
    }

    /// The slot of a frame that has left.
    fn slot(&self, address: u64) -> u32 {
        match self {
            Self::InPlace(_) => 0,
            // The kernel gives back what it was given, and that was below SLOTS.
            Self::Slots(_) => u32::try_from(address / u64::from(CHUNK_BYTES)).unwrap_or(0),
        }
    }
}

/// A ring of entries of one kind, with one side the kernel's.
struct Ring<T> {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    entries: usize,
    kind: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(socket: &PacketSocket, page: u64, offsets: &[u64]) -> Result<Self, IoError> {
        let offset = |number: usize| usize::try_from(offsets[number]).unwrap_or(usize::MAX);
        let bytes = offset(2).saturating_add(RING as usize * size_of::<T>());
        let page = i64::try_from(page).unwrap_or(i64::MAX);
        let memory = Mapping::shared(&socket.fd, bytes, page)
            .map_err(|source| socket.failed("mmap", source))?;
        Ok(Self {
            memory,
            producer: offset(0),
            consumer: offset(1),
            entries: offset(2),
            kind: PhantomData,
        })
    }

    fn index(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel says that an aligned u32 stands there, in the mapping, and both sides use it as an atomic.
        unsafe { AtomicU32::from_ptr(self.memory.start().as_ptr().add(offset).cast()) }
    }

    fn consumed(&self) -> u32 {
        self.index(self.consumer).load(Ordering::Acquire)
    }

    fn place(&self, number: u32) -> *mut T {
        let offset = self.entries + (number % RING) as usize * size_of::<T>();
        // SAFETY: `number % RING` entries lie before, and RING of them in the mapping.
        unsafe { self.memory.start().as_ptr().add(offset).cast() }
    }

    fn entry(&self, number: u32) -> T {
        // SAFETY: the place lies in the mapping, is aligned for its kind, and any bits are a value of plain integers.
        unsafe { self.place(number).read() }
    }

    /// For the side that is ours to fill; the caller knows that there is room.
    fn put(&mut self, value: T) {
        let number = self.index(self.producer).load(Ordering::Relaxed);
        // SAFETY: as for `entry`; the kernel reads it only after the producer index has moved past it.
        unsafe { self.place(number).write(value) };
        self.index(self.producer)
            .store(number.wrapping_add(1), Ordering::Release);
    }

    /// For the side that the kernel fills.
    fn take(&mut self) -> Option<T> {
        let number = self.index(self.consumer).load(Ordering::Relaxed);
        if number == self.index(self.producer).load(Ordering::Acquire) {
            return None;
        }
        let value = self.entry(number);
        self.index(self.consumer)
            .store(number.wrapping_add(1), Ordering::Release);
        Some(value)
    }
}
