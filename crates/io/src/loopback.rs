//! The loopback of a network namespace of one's own, which is down when the namespace is new.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::socket::IoError;

/// Its name in every network namespace.
pub const NAME: &str = "lo";

/// Switches `lo` on.
///
/// # Errors
/// If it is down and that may not be changed (CAP_NET_ADMIN).
pub fn raise() -> Result<(), IoError> {
    // SAFETY: socket(2) takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(fd, "socket(AF_INET)")?;
    // SAFETY: the kernel has just given us this descriptor, and it is ours alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an ifreq of zeroes is valid: plain bytes and a null pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(NAME.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    // SAFETY: the request lives through the call, which reads its name and writes its flags.
    let done = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFFLAGS as _,
            &raw mut request,
        )
    };
    check(done, "SIOCGIFFLAGS")?;
    // SAFETY: the call above has written the flags.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    if flags & libc::IFF_UP != 0 {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = i16::try_from(flags | libc::IFF_UP).unwrap_or(i16::MAX);
    // SAFETY: the request lives through the call, which reads its name and flags.
    let done = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw mut request,
        )
    };
    check(done, "SIOCSIFFLAGS")
}

fn check(returned: i32, step: &'static str) -> Result<(), IoError> {
    if returned >= 0 {
        return Ok(());
    }
    Err(IoError::Setup {
        interface: NAME.to_owned(),
        step,
        source: Error::last_os_error(),
    })
}
