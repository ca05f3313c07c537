//! Just enough rtnetlink: one request about one interface, one answer, its attributes.
//!
//! Through a socket and not through `/sys/class/net`: a socket belongs to the network namespace of the thread that opens it,
//! a sysfs to the one it was mounted in, which is rarely the same.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{CounterError, Result};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const HEADER: usize = 16;
const IFINFOMSG: usize = 16;

/// A NETLINK_ROUTE socket of the network namespace it was opened in.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: OwnedFd,
    answer: Vec<u8>,
}

/// What stands before the attributes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkHead {
    pub index: u32,
    pub flags: u32,
}

impl RouteSocket {
    pub fn open() -> Result<Self> {
        // SAFETY: no pointers; a negative result is checked before the descriptor is owned.
        let fd = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                libc::NETLINK_ROUTE,
            )
        };
        if fd < 0 {
            return Err(CounterError::last_os("socket(AF_NETLINK)"));
        }
        // SAFETY: `fd` is open and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // A link with many virtual functions is the largest; the kernel cuts what does not fit and says so.
        Ok(Self {
            socket,
            answer: vec![0; 64 << 10],
        })
    }

    /// Asks for the interface `name`; attributes are (type, value) in the kernel's order.
    pub fn link(&mut self, name: &str) -> Result<(LinkHead, Attributes<'_>)> {
        // The answer takes the request's place.
        let length = write_request(&mut self.answer, name)
            .ok_or_else(|| CounterError::NoInterface(name.into()))?;
        self.send(&self.answer[..length])?;
        let length = self.receive()?;
        let message = &self.answer[..length];
        let malformed = || CounterError::Kernel {
            call: "RTM_GETLINK",
            source: io::ErrorKind::InvalidData.into(),
        };
        let kind = u16_at(message, 4).ok_or_else(malformed)?;
        if kind == NLMSG_ERROR {
            let errno = -i32_at(message, HEADER).ok_or_else(malformed)?;
            return Err(match errno {
                libc::ENODEV => CounterError::NoInterface(name.into()),
                errno => CounterError::Kernel {
                    call: "RTM_GETLINK",
                    source: io::Error::from_raw_os_error(errno),
                },
            });
        }
        if kind != RTM_NEWLINK || message.len() < HEADER + IFINFOMSG {
            return Err(malformed());
        }
        let index = u32_at(message, HEADER + 4).ok_or_else(malformed)?;
        let flags = u32_at(message, HEADER + 8).ok_or_else(malformed)?;
        Ok((
            LinkHead { index, flags },
            Attributes(&message[HEADER + IFINFOMSG..]),
        ))
    }

    fn send(&self, request: &[u8]) -> Result<()> {
        // SAFETY: the pointer and length are those of a live slice; an unconnected netlink socket sends to the kernel.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                request.as_ptr().cast(),
                request.len(),
                0,
            )
        };
        if sent < 0 {
            Err(CounterError::last_os("send(RTM_GETLINK)"))
        } else {
            Ok(())
        }
    }

    fn receive(&mut self) -> Result<usize> {
        let (buffer, room) = (self.answer.as_mut_ptr(), self.answer.len());
        // SAFETY: the pointer and length are those of our own live buffer.
        let got = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                buffer.cast(),
                room,
                libc::MSG_TRUNC,
            )
        };
        match usize::try_from(got) {
            Ok(length) if length <= room => Ok(length),
            Ok(_) => Err(CounterError::Kernel {
                call: "recv(RTM_GETLINK)",
                source: io::ErrorKind::OutOfMemory.into(),
            }),
            Err(_) => Err(CounterError::last_os("recv(RTM_GETLINK)")),
        }
    }
}

/// nlmsghdr, ifinfomsg of zeros, the name; returns its length. A name that no interface can have is refused here.
fn write_request(into: &mut [u8], name: &str) -> Option<usize> {
    let attribute = 4 + name.len() + 1;
    let total = HEADER + IFINFOMSG + aligned(attribute);
    let bytes = into.get_mut(..total)?;
    bytes.fill(0);
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &u32::try_from(total).ok()?.to_ne_bytes());
    put(4, &RTM_GETLINK.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    let at = HEADER + IFINFOMSG;
    put(at, &u16::try_from(attribute).ok()?.to_ne_bytes());
    put(at + 2, &IFLA_IFNAME.to_ne_bytes());
    put(at + 4, name.as_bytes());
    Some(total)
}

/// Walks over netlink attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const FLAGS: u16 = 0xc000;
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & !FLAGS;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_walked_with_their_padding() {
        let bytes = [5, 0, 1, 0, 9, 0, 0, 0, 4, 0, 2, 0x80];
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(all, [(1, &[9][..]), (2, &[][..])]);
    }

    #[test]
    fn a_cut_attribute_ends_the_walk() {
        assert_eq!(Attributes(&[9, 0, 1, 0, 9]).next(), None);
        assert_eq!(Attributes(&[2, 0, 1, 0]).next(), None);
    }
}
