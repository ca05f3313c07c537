//! What sending and receiving packet sockets have in common.

use std::ffi::CString;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const AF_PACKET: u16 = 17;
const MR_PROMISC: u16 = 1;
const _: () = assert!(AF_PACKET as i32 == libc::AF_PACKET);
const _: () = assert!(MR_PROMISC as i32 == libc::PACKET_MR_PROMISC);

/// A socket that could not be made, or that broke.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// No interface of that name in this network namespace.
    #[error("no interface `{0}` in this network namespace")]
    NoSuchInterface(String),
    /// A step of the set-up failed.
    #[error("{interface}: {step}: {source}")]
    Setup {
        /// The interface.
        interface: String,
        /// The system call and option.
        step: &'static str,
        /// What the kernel says.
        source: Error,
    },
}

/// A raw socket for an interface, not bound yet; protocol 0, so that nothing is delivered to it.
pub(crate) struct PacketSocket {
    pub(crate) fd: OwnedFd,
    pub(crate) interface: String,
    pub(crate) index: i32,
}

impl PacketSocket {
    pub(crate) fn new(interface: &str) -> Result<Self, IoError> {
        Self::of_family(libc::AF_PACKET, interface)
    }

    pub(crate) fn of_family(family: i32, interface: &str) -> Result<Self, IoError> {
        let index = interface_index(interface)?;
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let interface = interface.to_owned();
        if fd < 0 {
            let source = Error::last_os_error();
            return Err(IoError::Setup {
                interface,
                step: "socket",
                source,
            });
        }
        // SAFETY: the kernel has just given us this descriptor, and it is ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            interface,
            index,
        })
    }

    /// Binds to the interface; `protocol` 0 receives nothing, ETH_P_ALL everything.
    pub(crate) fn bind(&self, protocol: u16) -> Result<(), IoError> {
        let address = libc::sockaddr_ll {
            sll_family: AF_PACKET,
            sll_protocol: protocol.to_be(),
            sll_ifindex: self.index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address lives through the call and its length is its own.
        let done = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                socket_length::<libc::sockaddr_ll>(),
            )
        };
        self.check(done, "bind").map(drop)
    }

    /// Promiscuous for as long as the socket lives.
    pub(crate) fn promiscuous(&self) -> Result<(), IoError> {
        let membership = libc::packet_mreq {
            mr_ifindex: self.index,
            mr_type: MR_PROMISC,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &membership,
            "promiscuous mode",
        )
    }

    /// setsockopt(2) with a value of plain data.
    pub(crate) fn set<T: Copy>(
        &self,
        level: i32,
        option: i32,
        value: &T,
        step: &'static str,
    ) -> Result<(), IoError> {
        // SAFETY: the value lives through the call and its length is its own.
        let done = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                socket_length::<T>(),
            )
        };
        self.check(done, step).map(drop)
    }

    /// getsockopt(2) into plain data for which all zeroes is a value.
    pub(crate) fn get<T: Copy + Default>(
        &self,
        level: i32,
        option: i32,
        step: &'static str,
    ) -> Result<T, IoError> {
        let mut value = T::default();
        let mut length = socket_length::<T>();
        // SAFETY: the kernel writes at most `length` bytes into `value`, which is plain data of integers.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        self.check(done, step).map(|_| value)
    }

    pub(crate) fn check(&self, returned: i32, step: &'static str) -> Result<i32, IoError> {
        if returned >= 0 {
            return Ok(returned);
        }
        Err(self.failed(step, Error::last_os_error()))
    }

    pub(crate) fn failed(&self, step: &'static str, source: Error) -> IoError {
        IoError::Setup {
            interface: self.interface.clone(),
            step,
            source,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "option values are a few bytes"
)]
pub(crate) fn socket_length<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// The argument of an ioctl(2) about an interface.
pub(crate) fn request_for(interface: &str) -> libc::ifreq {
    // SAFETY: an ifreq is plain data, all zeroes is one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1; // a longer name is one the kernel does not know
    for (place, byte) in (request.ifr_name.iter_mut().take(room)).zip(interface.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request
}

fn interface_index(interface: &str) -> Result<i32, IoError> {
    let none = || IoError::NoSuchInterface(interface.to_owned());
    let name = CString::new(interface).map_err(|_| none())?;
    // SAFETY: the name is a C string that lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    match i32::try_from(index) {
        Ok(index) if index > 0 => Ok(index),
        _ => Err(none()),
    }
}
