//! Which frames a port sends, if the kernel does not look: at most as long as the MTU allows, at least a header.

use crate::socket::{IoError, PacketSocket};
use crate::tx::Sent;
use crate::xdp::mtu;

const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;

/// The limits of one port.
pub(crate) struct Fit {
    longest: usize,
}

impl Fit {
    pub(crate) fn of(interface: &str) -> Result<Self, IoError> {
        let longest = mtu(&PacketSocket::new(interface)?)? + ETHERNET_BYTES;
        Ok(Self { longest })
    }

    /// Why a frame is not sent.
    pub(crate) fn refusal(&self, frame: &[u8]) -> Option<Sent> {
        // A VLAN tag is no part of the MTU.
        let is_tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
        let longest = self.longest + if is_tagged { VLAN_TAG_BYTES } else { 0 };
        match frame.len() {
            ..ETHERNET_BYTES => Some(Sent::Unfit(libc::EINVAL)),
            length if length > longest => Some(Sent::Unfit(libc::EMSGSIZE)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_may_be_longer_than_the_mtu() {
        let fit = Fit { longest: 1514 };
        let mut frame = vec![0; 1518];
        assert_eq!(fit.refusal(&frame), Some(Sent::Unfit(libc::EMSGSIZE)));
        frame[12] = 0x81;
        assert_eq!(fit.refusal(&frame), None);
        assert_eq!(fit.refusal(&frame[..13]), Some(Sent::Unfit(libc::EINVAL)));
    }
}
