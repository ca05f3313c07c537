//! A network interface made fit to receive: frames one by one as they came, nothing sent by the host itself.

use std::ffi::c_void;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::IoError;

/// ETHTOOL_S* commands that switch off what hands up several frames as one, or a checksum that was not looked at.
const OFF: [(&str, u32); 4] = [
    ("generic receive offload", 0x2c),
    ("segmentation offload", 0x1f),
    ("TCP segmentation offload", 0x1e),
    ("generic segmentation offload", 0x24),
];
const SIOCETHTOOL: libc::c_ulong = 0x8946;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Sets the MTU, takes offloads and ARP off, then brings the interface up in promiscuous mode. An offload the driver does not
/// have is off already.
///
/// # Errors
/// If there is no such interface, or no permission.
pub fn receive_only(interface: &str, mtu: i32) -> Result<(), IoError> {
    let link = Link::new(interface)?;
    let mut request = link.request();
    request.ifr_ifru.ifru_mtu = mtu;
    link.call(libc::SIOCSIFMTU, &mut request, "SIOCSIFMTU")?;
    for (name, command) in OFF {
        let mut value = EthtoolValue { command, data: 0 };
        let mut request = link.request();
        request.ifr_ifru.ifru_data = (&raw mut value).cast::<c_void>().cast();
        match link.call(SIOCETHTOOL, &mut request, name) {
            Err(IoError::Setup { source, .. })
                if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            other => other?,
        }
    }
    let flags = libc::IFF_UP | libc::IFF_PROMISC | libc::IFF_NOARP;
    let mut request = link.request();
    request.ifr_ifru.ifru_flags = i16::try_from(flags).unwrap_or(i16::MAX);
    link.call(libc::SIOCSIFFLAGS, &mut request, "SIOCSIFFLAGS")
}

struct Link {
    interface: String,
    socket: OwnedFd,
}

impl Link {
    fn new(interface: &str) -> Result<Self, IoError> {
        let setup = |source| IoError::Setup {
            interface: interface.to_owned(),
            step: "socket(AF_INET)",
            source,
        };
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(setup(Error::last_os_error()));
        }
        Ok(Self {
            interface: interface.to_owned(),
            // SAFETY: the kernel has just given us this descriptor, and it is ours alone.
            socket: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: an ifreq of zeroes is valid: plain bytes and a null pointer.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let room = request.ifr_name.len() - 1; // a longer name is one the kernel does not know
        for (place, byte) in request
            .ifr_name
            .iter_mut()
            .take(room)
            .zip(self.interface.bytes())
        {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        request
    }

    fn call(
        &self,
        request: libc::c_ulong,
        argument: &mut libc::ifreq,
        step: &'static str,
    ) -> Result<(), IoError> {
        // SAFETY: the argument and what its ifru_data points at live through the call; each of the requests used here reads
        // or writes no more than an ifreq and, for SIOCETHTOOL, an ethtool_value.
        let done = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                request as _,
                std::ptr::from_mut(argument),
            )
        };
        if done == 0 {
            return Ok(());
        }
        let source = Error::last_os_error();
        if source.raw_os_error() == Some(libc::ENODEV) {
            return Err(IoError::NoSuchInterface(self.interface.clone()));
        }
        Err(IoError::Setup {
            interface: self.interface.clone(),
            step,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_missing_interface_is_named() {
        let words = receive_only("nonesuch", 1500).unwrap_err().to_string();
        // SAFETY: takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        // A normal user is refused before the kernel looks for it.
        let refused = "nonesuch: SIOCSIFMTU: Operation not permitted (os error 1)";
        assert!(
            words == "no interface `nonesuch` in this network namespace"
                || !is_root && words == refused,
            "{words}"
        );
    }
}
