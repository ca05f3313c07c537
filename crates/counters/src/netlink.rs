//! Just enough rtnetlink: one request about one interface, one answer, its attributes. All about it by name, or its counters
//! alone by index: they are asked for at every sample, and the whole answer costs the kernel four times as much.
//!
//! Through a socket and not through `/sys/class/net`: a socket belongs to the network namespace of the thread that opens it,
//! a sysfs to the one it was mounted in, which is rarely the same.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{CounterError, Result};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWSTATS: u16 = 92;
/// Since 4.7.
const RTM_GETSTATS: u16 = 94;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS_LINK_64: u16 = 1;
const HEADER: usize = 16;
const IFINFOMSG: usize = 16;
const IF_STATS_MSG: usize = 12;

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
        Self::of_family(libc::NETLINK_ROUTE)
    }

    /// Another family than routes: NETLINK_SOCK_DIAG.
    pub fn of_family(family: i32) -> Result<Self> {
        // SAFETY: no pointers; a negative result is checked before the descriptor is owned.
        let fd = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                family,
            )
        };
        if fd < 0 {
            return Err(CounterError::last_os("socket(AF_NETLINK)"));
        }
        // SAFETY: `fd` is open and ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // A link with many virtual functions is the largest; the kernel cuts what does not fit and says so.
        Ok(Self {
            socket,
            answer: vec![0; 64 << 10],
        })
    }

    /// Asks for the interface `name`; attributes are (type, value) in the kernel's order.
    pub fn link(&mut self, name: &str) -> Result<(LinkHead, Attributes<'_>)> {
        let no_interface = || CounterError::NoInterface(name.into());
        // The answer takes the request's place.
        let length = write_link_request(&mut self.answer, name).ok_or_else(no_interface)?;
        let message = self.exchange(length, RTM_NEWLINK, no_interface)?;
        let number = |at| u32_at(message, at).ok_or_else(malformed);
        let head = LinkHead {
            index: number(4)?,
            flags: number(8)?,
        };
        Ok((
            head,
            Attributes(message.get(IFINFOMSG..).ok_or_else(malformed)?),
        ))
    }

    /// Asks for `struct rtnl_link_stats64` of the interface with this index; `name` is for the error.
    pub fn stats(&mut self, index: u32, name: &str) -> Result<&[u8]> {
        let length = write_stats_request(&mut self.answer, index);
        let no_interface = || CounterError::NoInterface(name.into());
        let message = self.exchange(length, RTM_NEWSTATS, no_interface)?;
        let mut attributes = Attributes(message.get(IF_STATS_MSG..).ok_or_else(malformed)?);
        let stats = attributes.find(|(kind, _)| *kind == IFLA_STATS_LINK_64);
        stats.map(|(_, value)| value).ok_or_else(malformed)
    }

    /// Asks with a body of the caller's; returns the body of the one answer.
    pub fn ask(&mut self, kind: u16, body: &[u8], expected: u16) -> Result<&[u8]> {
        let length = self.write(kind, NLM_F_REQUEST, body);
        let gone = || CounterError::NoInterface("asked for by number".into());
        self.exchange(length, expected, gone)
    }

    /// Asks for all there are; `each` is given the body of every message of the kind `expected`.
    pub fn dump(
        &mut self,
        kind: u16,
        body: &[u8],
        expected: u16,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        let length = self.write(kind, NLM_F_REQUEST | NLM_F_DUMP, body);
        self.send(&self.answer[..length])?;
        loop {
            let got = self.receive()?;
            let mut rest = &self.answer[..got];
            while let Some(length) = u32_at(rest, 0).map(|length| length as usize) {
                let message = rest.get(HEADER..length).ok_or_else(malformed)?;
                match u16_at(rest, 4) {
                    Some(NLMSG_DONE) => return Ok(()),
                    Some(NLMSG_ERROR) => {
                        let errno = -i32_at(message, 0).ok_or_else(malformed)?;
                        return Err(CounterError::Kernel {
                            call: "a dump of netlink",
                            source: io::Error::from_raw_os_error(errno),
                        });
                    }
                    Some(kind) if kind == expected => each(message),
                    _ => {}
                }
                rest = rest.get(aligned(length)..).unwrap_or_default();
            }
        }
    }

    fn write(&mut self, kind: u16, flags: u16, body: &[u8]) -> usize {
        write_header(&mut self.answer, kind, body.len()).copy_from_slice(body);
        self.answer[6..8].copy_from_slice(&flags.to_ne_bytes());
        HEADER + body.len()
    }

    /// Sends what stands in the buffer; returns the answer behind its header.
    fn exchange(
        &mut self,
        request_length: usize,
        expected: u16,
        no_interface: impl FnOnce() -> CounterError,
    ) -> Result<&[u8]> {
        self.send(&self.answer[..request_length])?;
        let length = self.receive()?;
        let message = &self.answer[..length];
        match u16_at(message, 4) {
            Some(NLMSG_ERROR) => {
                let errno = -i32_at(message, HEADER).ok_or_else(malformed)?;
                Err(match errno {
                    libc::ENODEV => no_interface(),
                    errno => CounterError::Kernel {
                        call: ASKING,
                        source: io::Error::from_raw_os_error(errno),
                    },
                })
            }
            Some(kind) if kind == expected => message.get(HEADER..).ok_or_else(malformed),
            _ => Err(malformed()),
        }
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
            Err(CounterError::last_os("send(AF_NETLINK)"))
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
                call: "recv(AF_NETLINK)",
                source: io::ErrorKind::OutOfMemory.into(),
            }),
            Err(_) => Err(CounterError::last_os("recv(AF_NETLINK)")),
        }
    }
}

const ASKING: &str = "RTM_GETLINK or RTM_GETSTATS";

pub(crate) fn malformed() -> CounterError {
    CounterError::Kernel {
        call: ASKING,
        source: io::ErrorKind::InvalidData.into(),
    }
}

/// ifinfomsg of zeros and the name; returns the length. A name that no interface can have is refused here.
fn write_link_request(into: &mut [u8], name: &str) -> Option<usize> {
    if name.len() >= libc::IFNAMSIZ {
        return None;
    }
    let attribute = u16::try_from(4 + name.len() + 1).ok()?;
    let body = write_header(into, RTM_GETLINK, IFINFOMSG + aligned(attribute.into()));
    let attributes = &mut body[IFINFOMSG..];
    attributes[..2].copy_from_slice(&attribute.to_ne_bytes());
    attributes[2..4].copy_from_slice(&IFLA_IFNAME.to_ne_bytes());
    attributes[4..4 + name.len()].copy_from_slice(name.as_bytes());
    Some(HEADER + body.len())
}

/// `if_stats_msg`: the index, and which of several kinds of counters.
fn write_stats_request(into: &mut [u8], index: u32) -> usize {
    const ONLY_LINK_64: u32 = 1 << (IFLA_STATS_LINK_64 - 1);
    let body = write_header(into, RTM_GETSTATS, IF_STATS_MSG);
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..].copy_from_slice(&ONLY_LINK_64.to_ne_bytes());
    HEADER + body.len()
}

/// nlmsghdr; returns the zeroed room for what comes behind it, which is far less than `into` has.
fn write_header(into: &mut [u8], kind: u16, body_length: usize) -> &mut [u8] {
    let (header, body) = into[..HEADER + body_length].split_at_mut(HEADER);
    header.fill(0);
    body.fill(0);
    #[expect(clippy::cast_possible_truncation, reason = "a few dozen bytes")]
    let length = (HEADER + body_length) as u32;
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..6].copy_from_slice(&kind.to_ne_bytes());
    header[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    body
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

pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
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
