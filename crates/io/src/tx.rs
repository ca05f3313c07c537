//! Sending frames through an AF_PACKET socket: one send(2) each if each has its time, else sendmmsg(2) for a batch.
//!
//! The socket has protocol 0: one that listens to ETH_P_ALL gets a clone of every packet sent, its own included. Both calls say for
//! each frame whether the kernel took it; a TX_RING is slower over veth. Alternatives and numbers: docs/adr/0006.

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::socket::{IoError, PacketSocket};

/// Longest wait for room in the socket's send buffer before the frame counts as refused.
const SEND_TIMEOUT_US: i64 = 100_000;
/// Room for frames on their way, in bytes; the kernel doubles it. On a veth a frame is charged to the sender until the receiver
/// has freed it, and the queue of a macvtap holds frames until a virtual machine fetches them: with the usual 208 KiB the
/// sender waited for the machine (1.9 s late) and nothing was ever lost in its queue.
const SEND_BUFFER_BYTES: i32 = 512 << 20;
/// Frames per sendmmsg(2): shares the system call, and is small enough for the frames to stay in the cache until it.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 256 << 10;
/// How long a refused frame of a batch is offered again.
const RETRY: Duration = Duration::from_millis(1);

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The kernel took it.
    Taken,
    /// The kernel refused it for now: queue or buffer full.
    Full(i32),
    /// The kernel will never take it: longer than the MTU, shorter than a header.
    Unfit(i32),
    /// Nothing can be sent any more: the interface is down or gone.
    Gone(i32),
}

/// How frames get to the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Past its queueing discipline, if the kernel allows that: the cheaper way. The sender's CPU is what chooses a transmit
    /// queue (`packet_pick_tx_queue`, net/packet/af_packet.c).
    PastDiscipline,
    /// By its queueing discipline: a hash of the frame's flow chooses (`skb_tx_hash`, net/core/dev.c).
    ByDiscipline,
}

/// A socket that sends on one interface and receives nothing.
pub struct PacketSender {
    fd: OwnedFd,
    /// The frames of a batch, end to end. Copied here, what comes late from memory is waited for together, not frame by frame
    /// in the kernel.
    staged: Vec<u8>,
    lengths: Vec<usize>,
}

impl PacketSender {
    /// Opens the socket.
    ///
    /// # Errors
    /// If there is no such interface or no permission (CAP_NET_RAW).
    pub fn open(interface: &str, way: Way) -> Result<Self, IoError> {
        let socket = PacketSocket::new(interface)?;
        let bypass = i32::from(way == Way::PastDiscipline);
        // Before Linux 3.14 there was none.
        let _ = socket.set(
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            &bypass,
            "PACKET_QDISC_BYPASS",
        );
        // Needs CAP_NET_ADMIN; without it the sender may wait, and its schedule error says so.
        let _ = socket.set(
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            &SEND_BUFFER_BYTES,
            "SO_SNDBUFFORCE",
        );
        let timeout = libc::timeval {
            tv_sec: 0,
            tv_usec: SEND_TIMEOUT_US,
        };
        socket.set(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &timeout, "SO_SNDTIMEO")?;
        socket.bind(0)?;
        Ok(Self {
            fd: socket.fd,
            staged: Vec::with_capacity(BATCH_BYTES),
            lengths: Vec::with_capacity(BATCH),
        })
    }

    /// Adds a frame to the batch; a later call reports what became of it, [`PacketSender::flush`] at the latest.
    pub fn push(&mut self, frame: &[u8], report: &mut impl FnMut(usize, Sent)) {
        let is_full = self.lengths.len() == BATCH;
        if is_full || self.staged.len() + frame.len() > self.staged.capacity() {
            self.flush(report);
        }
        self.staged.extend_from_slice(frame);
        self.lengths.push(frame.len());
    }

    /// Gives the batch to the kernel, each frame until it is taken or has found no room for too long, and reports each.
    pub fn flush(&mut self, report: &mut impl FnMut(usize, Sent)) {
        let (mut first, mut begin, mut refused_since) = (0, 0, None);
        while first < self.lengths.len() {
            let (went, sent) = match self.send_batch(first, begin) {
                Ok(went) => (went, Sent::Taken),
                Err(Sent::Full(errno)) => {
                    let since: &mut Instant = refused_since.get_or_insert_with(Instant::now);
                    if errno == libc::EINTR || since.elapsed() < RETRY {
                        continue;
                    }
                    (1, Sent::Full(errno))
                }
                Err(sent) => (1, sent),
            };
            refused_since = None;
            for length in &self.lengths[first..first + went] {
                report(*length, sent);
                begin += length;
            }
            first += went;
            if matches!(sent, Sent::Gone(_)) {
                break;
            }
        }
        self.staged.clear();
        self.lengths.clear();
    }

    /// How many frames of the batch were taken, at least one, beginning with frame `first` at byte `begin`; else why that one was not.
    fn send_batch(&self, first: usize, begin: usize) -> Result<usize, Sent> {
        // SAFETY: both are plain data, all zeroes is one of them.
        let (mut parts, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { std::mem::zeroed() };
        let mut frames = &self.staged[begin..];
        let mut count = 0;
        for ((part, message), length) in (parts.iter_mut())
            .zip(&mut messages)
            .zip(&self.lengths[first..])
        {
            let (frame, rest) = frames.split_at(*length);
            part.iov_base = frame.as_ptr().cast_mut().cast();
            part.iov_len = frame.len();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            frames = rest;
            count += 1;
        }
        // SAFETY: the first `count` messages point at parts, those at frames, and all live through the call, which only reads the frames.
        let done = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        usize::try_from(done)
            .map_err(|_| classified(Error::last_os_error().raw_os_error().unwrap_or(0)))
    }

    /// Gives one frame to the kernel.
    pub fn send(&self, frame: &[u8]) -> Sent {
        loop {
            // SAFETY: the frame lives through the call and its length is its own.
            let sent =
                unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent >= 0 {
                return Sent::Taken;
            }
            match classified(Error::last_os_error().raw_os_error().unwrap_or(0)) {
                Sent::Full(libc::EINTR) => {}
                outcome => return outcome,
            }
        }
    }
}

pub(crate) fn classified(errno: i32) -> Sent {
    match errno {
        libc::ENETDOWN | libc::ENXIO | libc::ENODEV => Sent::Gone(errno),
        libc::ENOBUFS | libc::EAGAIN | libc::ENOMEM | libc::EINTR => Sent::Full(errno),
        _ => Sent::Unfit(errno),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_can_be_done() {
        assert_eq!(classified(libc::ENETDOWN), Sent::Gone(libc::ENETDOWN));
        assert_eq!(classified(libc::ENOBUFS), Sent::Full(libc::ENOBUFS));
        assert_eq!(classified(libc::EMSGSIZE), Sent::Unfit(libc::EMSGSIZE));
    }

    #[test]
    fn a_missing_interface_is_named() {
        let error = PacketSender::open("nd-nowhere", Way::PastDiscipline)
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            "no interface `nd-nowhere` in this network namespace"
        );
    }
}
