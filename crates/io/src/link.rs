//! A network interface made fit to receive: frames one by one as they came, nothing sent by the host itself.

use std::ffi::c_void;
use std::io::Error;
use std::net::Ipv4Addr;
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

/// Another host at the cable, whose addresses are known beforehand: the interface knows no ARP.
#[derive(Debug, Clone, Copy)]
pub struct Neighbour {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its hardware address.
    pub mac: [u8; 6],
}

/// Gives the interface an address in a network of four, and tells it of the one neighbour there.
///
/// # Errors
/// If there is no such interface, or no permission.
pub fn address(interface: &str, own: Ipv4Addr, other: Neighbour) -> Result<(), IoError> {
    let link = Link::new(interface)?;
    let mask = Ipv4Addr::new(255, 255, 255, 252);
    for (address, call, step) in [
        (own, libc::SIOCSIFADDR, "SIOCSIFADDR"),
        (mask, libc::SIOCSIFNETMASK, "SIOCSIFNETMASK"),
    ] {
        let mut request = link.request();
        request.ifr_ifru.ifru_addr = socket_address(address);
        link.call(call as libc::c_ulong, &mut request, step)?;
    }
    link.tell(other)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: a sockaddr of zeroes is valid: plain bytes.
    let mut found: libc::sockaddr = unsafe { std::mem::zeroed() };
    found.sa_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default();
    // struct sockaddr_in: the address stands behind the port.
    for (place, octet) in found.sa_data[2..].iter_mut().zip(address.octets()) {
        *place = libc::c_char::from_ne_bytes([octet]);
    }
    found
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

    fn tell(&self, other: Neighbour) -> Result<(), IoError> {
        // SAFETY: an arpreq of zeroes is valid: plain bytes.
        let mut request: libc::arpreq = unsafe { std::mem::zeroed() };
        request.arp_pa = socket_address(other.address);
        request.arp_ha.sa_family = libc::ARPHRD_ETHER;
        for (place, octet) in request.arp_ha.sa_data.iter_mut().zip(other.mac) {
            *place = libc::c_char::from_ne_bytes([octet]);
        }
        request.arp_flags = libc::ATF_PERM | libc::ATF_COM;
        let name = self.interface.bytes();
        let room = request.arp_dev.len() - 1;
        for (place, byte) in request.arp_dev.iter_mut().take(room).zip(name) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        // SAFETY: the request lives through the call, which reads no more than it.
        let done = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SIOCSARP as _,
                &raw mut request,
            )
        };
        if done == 0 {
            return Ok(());
        }
        Err(IoError::Setup {
            interface: self.interface.clone(),
            step: "SIOCSARP",
            source: Error::last_os_error(),
        })
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
