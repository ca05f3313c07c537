//! Associations of the kernel's SCTP (RFC 6458): one-to-one sockets, each message with its stream and payload protocol identifier.

use std::ffi::c_int;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockProtocol, SockType, SockaddrIn, accept4, bind,
    connect, getsockname, getsockopt, listen, shutdown, socket, sockopt,
};

/// Streams that are asked for, each way.
const STREAMS: u16 = 16;
/// Where struct sctp_status (linux/sctp.h) has the streams that the other end takes.
const OUT_STREAMS_AT: usize = 18;
/// Room for struct sctp_status of any kernel.
const STATUS_OCTETS: usize = 512;
/// linux/sctp.h: notification that the state of an association changed, and the state of a restart.
const ASSOC_CHANGE: u16 = 0x8001;
const RESTARTED: u16 = 2;

/// One association, or a listening end. It never blocks.
#[derive(Debug)]
pub struct Sctp(OwnedFd);

/// What a look into the socket found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing now.
    Nothing,
    /// Octets of a message.
    Octets {
        /// How many were written.
        count: usize,
        /// Payload protocol identifier.
        ppid: u32,
        /// Stream.
        stream: u16,
        /// The message has no more.
        whole: bool,
    },
    /// The other end began the association anew: what it knew is gone.
    Restarted,
    /// The other end has nothing more to say.
    Closed,
}

/// Whether the kernel said that it has no SCTP.
#[must_use]
pub fn lacks(error: &Error) -> bool {
    let codes = [
        libc::EPROTONOSUPPORT,
        libc::ESOCKTNOSUPPORT,
        libc::EAFNOSUPPORT,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

impl Sctp {
    fn new() -> Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let made = socket(
            AddressFamily::Inet,
            SockType::Stream,
            flags,
            SockProtocol::Sctp,
        )?;
        let ours = Self(made);
        let streams = libc::sctp_initmsg {
            sinit_num_ostreams: STREAMS,
            sinit_max_instreams: STREAMS,
            sinit_max_attempts: 0,
            sinit_max_init_timeo: 0,
        };
        ours.set(libc::SCTP_INITMSG, &streams)?;
        ours.describe()?;
        Ok(ours)
    }

    /// No delay, and each message with its stream, identifier and the association's restarts.
    fn describe(&self) -> Result<()> {
        self.set(libc::SCTP_NODELAY, &1_i32)?;
        self.set(libc::SCTP_RECVRCVINFO, &1_i32)?;
        // struct sctp_event_subscribe as far as `association`.
        self.set(libc::SCTP_EVENTS, &[0_u8, 1])
    }

    fn set<T: Copy>(&self, option: c_int, value: &T) -> Result<()> {
        let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
        // SAFETY: the value lives through the call and its length is its own; the kernel only reads it.
        let done = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_SCTP,
                option,
                (&raw const *value).cast(),
                length,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    }

    /// Sets an association up.
    ///
    /// # Errors
    /// Nobody listens, nobody answers `within`, or the kernel has no SCTP.
    pub fn connect(to: SocketAddr, within: Duration) -> Result<Self> {
        let ours = Self::new()?;
        match connect(ours.0.as_raw_fd(), &ipv4(to)?) {
            Ok(()) => return Ok(ours),
            Err(Errno::EINPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        let mut files = [PollFd::new(ours.0.as_fd(), PollFlags::POLLOUT)];
        if poll(&mut files, timeout)? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        match getsockopt(&ours.0, sockopt::SocketError)? {
            0 => Ok(ours),
            code => Err(Error::from_raw_os_error(code)),
        }
    }

    /// Listens.
    ///
    /// # Errors
    /// If the address is taken, or the kernel has no SCTP.
    pub fn listen(at: SocketAddr) -> Result<Self> {
        let ours = Self::new()?;
        bind(ours.0.as_raw_fd(), &ipv4(at)?)?;
        listen(&ours.0, Backlog::MAXCONN)?;
        Ok(ours)
    }

    /// The next association, or an error of kind `WouldBlock`.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn accept(&self) -> Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let number = accept4(self.0.as_raw_fd(), flags)?;
        // SAFETY: accept4(2) has just made this descriptor, and nothing else has it.
        let ours = Self(unsafe { OwnedFd::from_raw_fd(number) });
        ours.describe()?;
        Ok(ours)
    }

    /// Own address.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn address(&self) -> Result<SocketAddr> {
        let found: SockaddrIn = getsockname(self.0.as_raw_fd())?;
        Ok(SocketAddrV4::from(found).into())
    }

    /// Streams that the other end takes: 0 and up.
    ///
    /// # Errors
    /// If there is no association.
    pub fn out_streams(&self) -> Result<u16> {
        let mut status = [0_u8; STATUS_OCTETS];
        let mut length = libc::socklen_t::try_from(status.len()).unwrap_or(0);
        // SAFETY: both live through the call; the kernel writes at most `length` octets into the first.
        let done = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_SCTP,
                libc::SCTP_STATUS,
                status.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return Err(Error::last_os_error());
        }
        Ok(u16::from_ne_bytes([
            status[OUT_STREAMS_AT],
            status[OUT_STREAMS_AT + 1],
        ]))
    }

    /// Sends one message; an error of kind `WouldBlock` if there is no room for it now.
    ///
    /// # Errors
    /// If the association is over, or has no such stream.
    pub fn send(&self, ppid: u32, stream: u16, octets: &[u8]) -> Result<()> {
        const ROOM: usize = space(size_of::<libc::sctp_sndinfo>());
        let about = libc::sctp_sndinfo {
            snd_sid: stream,
            snd_flags: 0,
            snd_ppid: ppid.to_be(),
            snd_context: 0,
            snd_assoc_id: 0,
        };
        let mut control = Control([0; CONTROL_OCTETS]);
        let mut part = libc::iovec {
            iov_base: octets.as_ptr().cast_mut().cast(),
            iov_len: octets.len(),
        };
        let message = header(&mut part, &mut control, ROOM);
        // SAFETY: the control buffer is aligned for a header and has room for it and for `about`, so the first header and the
        // octets behind it lie within.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const message);
            (*first).cmsg_level = libc::IPPROTO_SCTP;
            (*first).cmsg_type = libc::SCTP_SNDINFO as c_int;
            (*first).cmsg_len = cmsg_len(size_of::<libc::sctp_sndinfo>()) as _;
            std::ptr::write_unaligned(libc::CMSG_DATA(first).cast(), about);
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: all that the header names lives through the call; the kernel only reads it.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, flags) };
        match usize::try_from(sent) {
            Err(_) => Err(Error::last_os_error()),
            Ok(count) if count == octets.len() => Ok(()),
            Ok(_) => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Reads once.
    ///
    /// # Errors
    /// If the association is over.
    pub fn receive(&self, into: &mut [u8]) -> Result<Received> {
        let mut control = Control([0; CONTROL_OCTETS]);
        let mut part = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let mut message = header(&mut part, &mut control, CONTROL_OCTETS);
        // SAFETY: all that the header names lives through the call, and the kernel writes at most the lengths given.
        let got =
            unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(count) = usize::try_from(got) else {
            let error = Error::last_os_error();
            return match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Received::Nothing),
                _ => Err(error),
            };
        };
        if message.msg_flags & libc::MSG_NOTIFICATION != 0 {
            return Ok(notified(into.get(..count).unwrap_or_default()));
        }
        if count == 0 {
            return Ok(Received::Closed);
        }
        let about = described(&message);
        Ok(Received::Octets {
            count,
            ppid: about.map_or(0, |(ppid, _)| ppid),
            stream: about.map_or(0, |(_, stream)| stream),
            whole: message.msg_flags & libc::MSG_EOR != 0,
        })
    }

    /// Sends what waits, then says that there is no more (SHUTDOWN).
    ///
    /// # Errors
    /// If the association is over.
    pub fn finish(&self) -> Result<()> {
        Ok(shutdown(self.0.as_raw_fd(), Shutdown::Write)?)
    }
}

impl AsFd for Sctp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn ipv4(address: SocketAddr) -> Result<SockaddrIn> {
    match address {
        SocketAddr::V4(address) => Ok(address.into()),
        SocketAddr::V6(_) => Err(Error::new(
            ErrorKind::Unsupported,
            "SCTP: an IPv4 address is needed",
        )),
    }
}

const CONTROL_OCTETS: usize = 256;

/// Aligned as its headers are.
#[repr(C, align(8))]
struct Control([u8; CONTROL_OCTETS]);

const fn align(octets: usize) -> usize {
    octets.next_multiple_of(size_of::<usize>())
}

const fn cmsg_len(octets: usize) -> usize {
    align(size_of::<libc::cmsghdr>()) + octets
}

const fn space(octets: usize) -> usize {
    align(size_of::<libc::cmsghdr>()) + align(octets)
}

fn header(part: &mut libc::iovec, control: &mut Control, room: usize) -> libc::msghdr {
    // SAFETY: a msghdr of zeroes is an empty one; musl's has padding that cannot be named.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = room as _;
    message
}

/// Payload protocol identifier and stream, if the kernel says them.
fn described(message: &libc::msghdr) -> Option<(u32, u16)> {
    // SAFETY: the kernel wrote this header's control messages, and the macros stay within its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: it is not null, so it is a header that lies within.
        let one = unsafe { &*next };
        let is_ours =
            one.cmsg_level == libc::IPPROTO_SCTP && one.cmsg_type == libc::SCTP_RCVINFO as c_int;
        if is_ours && one.cmsg_len as usize >= cmsg_len(size_of::<libc::sctp_rcvinfo>()) {
            // SAFETY: its length says that a whole sctp_rcvinfo, which is plain numbers, is behind it.
            let about: libc::sctp_rcvinfo =
                unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(next).cast()) };
            return Some((u32::from_be(about.rcv_ppid), about.rcv_sid));
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

/// struct sctp_assoc_change: type, flags (16 bits each), length (32), state (16).
fn notified(octets: &[u8]) -> Received {
    let word = |at: usize| {
        octets
            .get(at..at + 2)
            .map(|two| u16::from_ne_bytes([two[0], two[1]]))
    };
    if (word(0), word(8)) == (Some(ASSOC_CHANGE), Some(RESTARTED)) {
        Received::Restarted
    } else {
        Received::Nothing
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn listening() -> Option<Sctp> {
        match Sctp::listen("127.0.0.1:0".parse().unwrap()) {
            Ok(listener) => Some(listener),
            Err(error) => {
                assert!(lacks(&error), "{error}");
                None // seen in the guest (tests/vm)
            }
        }
    }

    fn waited<T>(mut look: impl FnMut() -> Option<T>) -> T {
        for _ in 0..10_000 {
            if let Some(found) = look() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("nothing came");
    }

    #[test]
    fn a_message_keeps_its_stream_and_identifier_where_the_kernel_has_sctp() {
        let Some(listener) = listening() else {
            return;
        };
        let within = Duration::from_secs(10);
        let near = Sctp::connect(listener.address().unwrap(), within).unwrap();
        let far = waited(|| listener.accept().ok());
        assert_eq!(near.out_streams().unwrap(), STREAMS);
        near.send(18, 7, b"attach").unwrap();
        let mut octets = [0; 100];
        let received = waited(|| match far.receive(&mut octets).unwrap() {
            Received::Nothing => None,
            other => Some(other),
        });
        let expected = Received::Octets {
            count: 6,
            ppid: 18,
            stream: 7,
            whole: true,
        };
        assert_eq!((received, &octets[..6]), (expected, &b"attach"[..]));
        near.finish().unwrap();
        let end = waited(|| match far.receive(&mut octets).unwrap() {
            Received::Nothing => None,
            other => Some(other),
        });
        assert_eq!(end, Received::Closed);
    }

    #[test]
    fn a_restart_is_read_from_its_notification() {
        let mut change = [0_u8; 20];
        change[..2].copy_from_slice(&ASSOC_CHANGE.to_ne_bytes());
        assert_eq!(notified(&change), Received::Nothing, "it came up");
        change[8..10].copy_from_slice(&RESTARTED.to_ne_bytes());
        assert_eq!(notified(&change), Received::Restarted);
        assert_eq!(notified(&change[..9]), Received::Nothing);
    }
}
