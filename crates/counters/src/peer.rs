//! Where the other end of a veth is: the kernel names its namespace by a number of its own.

use crate::Result;
use crate::netlink::{Attributes, RouteSocket, i32_at};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
const IFLA_LINK_NETNSID: u16 = 37;
const NETNSA_NSID: u16 = 1;
const NETNSA_PID: u16 = 2;
/// `struct ifinfomsg`; `struct rtgenmsg`, padded.
const LINK_HEAD: usize = 16;
const NSID_HEAD: usize = 4;

/// Number of the namespace in which the other end of an interface is, as this thread's counts them; `None`: in this one.
pub fn peer_namespace(index: i32) -> Result<Option<i32>> {
    let mut request = [0; LINK_HEAD];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut socket = RouteSocket::open()?;
    let answer = socket.ask(RTM_GETLINK, &request, RTM_NEWLINK)?;
    Ok(number(answer, LINK_HEAD, IFLA_LINK_NETNSID))
}

/// Number of a process's namespace, as this thread's counts them; `None`: it knows it by none.
pub fn namespace_number(pid: u32) -> Option<i32> {
    let mut request = [0; NSID_HEAD + 8];
    request[4..6].copy_from_slice(&8u16.to_ne_bytes());
    request[6..8].copy_from_slice(&NETNSA_PID.to_ne_bytes());
    request[8..12].copy_from_slice(&pid.to_ne_bytes());
    let mut socket = RouteSocket::open().ok()?;
    let answer = socket.ask(RTM_GETNSID, &request, RTM_NEWNSID).ok()?;
    number(answer, NSID_HEAD, NETNSA_NSID).filter(|number| *number >= 0)
}

fn number(answer: &[u8], head: usize, wanted: u16) -> Option<i32> {
    let mut attributes = Attributes(answer.get(head..)?);
    attributes.find_map(|(kind, value)| (kind == wanted).then(|| i32_at(value, 0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_no_other_end() {
        assert_eq!(peer_namespace(1).unwrap(), None);
        assert!(peer_namespace(i32::MAX).is_err());
    }
}
