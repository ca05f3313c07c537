//! Sending frames by write(2) to a tap: they enter this host as if received on the tap, and through a bridge the machines behind it.
//!
//! No packet socket and no peer lie between: over twice as fast as tcpreplay over a veth (docs/adr/0008).

use std::fs::{File, OpenOptions};
use std::io::{Error, Write};
use std::os::fd::AsRawFd;

use crate::fit::Fit;
use crate::socket::{IoError, request_for};
use crate::tx::{Sent, classified};

const DEVICE: &str = "/dev/net/tun";
/// What write(2) says once the tap was deleted.
const TAP_GONE: i32 = libc::EBADFD;

/// A tap that is written to and never read.
pub struct TapSender {
    tap: File,
    fit: Fit,
}

impl TapSender {
    /// Attaches to a tap that is there.
    ///
    /// # Errors
    /// If there is no such interface, it is no tap, another program holds it, or that is not permitted (CAP_NET_ADMIN).
    pub fn open(interface: &str) -> Result<Self, IoError> {
        let failed = |step: &'static str, source: Error| IoError::Setup {
            interface: interface.to_owned(),
            step,
            source,
        };
        // Asked first: TUNSETIFF would make what is not there.
        let fit = Fit::of(interface)?;
        let tap = OpenOptions::new().read(true).write(true).open(DEVICE);
        let tap = tap.map_err(|source| failed("open(/dev/net/tun)", source))?;
        // A tap of several queues is attached to as such, any other as any other.
        let step = "TUNSETIFF (the tap must not be held by another program)";
        attach(&tap, interface, 0)
            .or_else(|_| attach(&tap, interface, libc::IFF_MULTI_QUEUE))
            .map_err(|source| failed(step, source))?;
        Ok(Self { tap, fit })
    }

    /// Gives one frame to the kernel.
    pub fn send(&mut self, frame: &[u8]) -> Sent {
        if let Some(refused) = self.fit.refusal(frame) {
            return refused;
        }
        loop {
            let Err(error) = self.tap.write(frame) else {
                return Sent::Taken;
            };
            match error.raw_os_error().unwrap_or(0) {
                libc::EINTR => {}
                // What write(2) says of a tap that is down.
                libc::EIO => return Sent::Gone(libc::ENETDOWN),
                TAP_GONE => return Sent::Gone(libc::ENODEV),
                errno => return classified(errno),
            }
        }
    }
}

fn attach(tap: &File, interface: &str, more_flags: i32) -> Result<(), Error> {
    let mut request = request_for(interface);
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | more_flags;
    // All of them fit into 16 bits.
    request.ifr_ifru.ifru_flags = i16::try_from(flags).unwrap_or(i16::MAX);
    // SAFETY: TUNSETIFF reads the name and flags of the request and writes its name; it lives through the call.
    let done = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if done == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_not_there_is_not_made() {
        let error = TapSender::open("nd-nowhere").err().unwrap();
        assert_eq!(
            error.to_string(),
            "no interface `nd-nowhere` in this network namespace"
        );
    }
}
