//! Frames of one EtherType that arrive at interfaces which should have none: from whom, and nothing of their content.

use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;

use crate::socket::{IoError, PacketSocket, socket_length};

/// A MAC address.
pub type Mac = [u8; 6];

/// One interface that is listened at, in promiscuous mode as long as this lives.
pub struct Overhearing(PacketSocket);

impl Overhearing {
    /// Listens from now on; frames that leave by the interface are not seen. The kernel picks them by their EtherType.
    ///
    /// # Errors
    /// If there is no such interface, or no permission (CAP_NET_RAW).
    pub fn open(interface: &str, ethertype: u16) -> Result<Self, IoError> {
        let socket = PacketSocket::new(interface)?;
        socket.promiscuous()?;
        socket.bind(ethertype)?;
        Ok(Self(socket))
    }

    /// Its name.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.0.interface
    }

    /// Whose the next frame is; `None` if none waits.
    ///
    /// # Errors
    /// If the kernel refuses. An interface that goes down or away is no error: it hears nothing more.
    pub fn next(&self) -> Result<Option<Mac>, IoError> {
        // SAFETY: all zeroes is a sockaddr_ll.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut length = socket_length::<libc::sockaddr_ll>();
        // SAFETY: no byte of content is asked for; the kernel writes at most `length` bytes of address.
        let got = unsafe {
            libc::recvfrom(
                self.0.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                (&raw mut from).cast(),
                &raw mut length,
            )
        };
        if got >= 0 {
            let [a, b, c, d, e, f, ..] = from.sll_addr;
            return Ok(Some([a, b, c, d, e, f]));
        }
        let error = Error::last_os_error();
        let gone = [libc::ENETDOWN, libc::ENODEV, libc::ENXIO].map(Some);
        let none = [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind());
        if none || gone.contains(&error.raw_os_error()) {
            return Ok(None);
        }
        Err(self.0.failed("recvfrom", error))
    }

    /// Frames for which it had no room.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn lost(&self) -> Result<u64, IoError> {
        let [_, drops]: [u32; 2] = self.0.get(
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            "PACKET_STATISTICS",
        )?;
        Ok(u64::from(drops))
    }
}
