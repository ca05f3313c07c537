//! Sending frames through an AF_PACKET socket, one send(2) each.
//!
//! The socket has protocol 0: one that listens to ETH_P_ALL gets a clone of every packet sent, its own included. One send(2) per frame is as fast as sendmmsg(2)
//! and faster than TX_RING over veth, and says for each frame whether the kernel took it.

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::socket::{IoError, PacketSocket};

/// Longest wait for room in the socket's send buffer before the frame counts as refused.
const SEND_TIMEOUT_US: i64 = 100_000;
/// Room for frames on their way, in bytes; the kernel doubles it. On a veth a frame is charged to the sender until the receiver
/// has freed it, and the queue of a macvtap holds frames until a virtual machine fetches them: with the usual 208 KiB the
/// sender waited for the machine (1.9 s late) and nothing was ever lost in its queue.
const SEND_BUFFER_BYTES: i32 = 512 << 20;

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

/// A socket that sends on one interface and receives nothing.
pub struct PacketSender {
    fd: OwnedFd,
}

impl PacketSender {
    /// Opens the socket; frames pass by the queueing discipline where the kernel allows that.
    ///
    /// # Errors
    /// Where there is no such interface or no permission (CAP_NET_RAW).
    pub fn open(interface: &str) -> Result<Self, IoError> {
        let socket = PacketSocket::new(interface)?;
        let one: i32 = 1;
        // Before Linux 3.14 there was none: the discipline is then passed through.
        let _ = socket.set(
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            &one,
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
        Ok(Self { fd: socket.fd })
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

fn classified(errno: i32) -> Sent {
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
        let error = PacketSender::open("nd-nowhere").err().unwrap();
        assert_eq!(
            error.to_string(),
            "no interface `nd-nowhere` in this network namespace"
        );
    }
}
