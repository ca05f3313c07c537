//! Rings, fanout groups and filters of a namespace's packet sockets, from packet_diag: what any user may ask.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::netlink::{Attributes, RouteSocket, u16_at, u32_at};
use crate::packet_counts::takes_all;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// INFO, RING_CFG, FANOUT and FILTER of `struct packet_diag_req`.
const SHOW: u32 = 1 | 4 | 8 | 32;
/// `struct packet_diag_msg`.
const MESSAGE: usize = 16;
const PACKET_DIAG_INFO: u16 = 0;
const PACKET_DIAG_RX_RING: u16 = 2;
const PACKET_DIAG_FANOUT: u16 = 4;
const PACKET_DIAG_FILTER: u16 = 7;

/// One socket; `None`: it has no such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagSocket {
    /// As in `/proc/PID/fd`.
    pub inode: u64,
    /// TPACKET_V1 is 1.
    pub version: u32,
    /// Bytes of a block, blocks, bytes of a frame, frames, ms after which a block is retired.
    pub ring: Option<[u32; 5]>,
    /// Number and kind of the group.
    pub fanout: Option<[u32; 2]>,
    /// Whether a filter leaves packets out. The kernel shows it to CAP_NET_ADMIN alone: to others every socket has none.
    pub filtered: bool,
}

/// Whether the kernel answers without loading a module for it.
pub fn packet_diag_is_there(root: &Path) -> bool {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let Some(modules) = text("proc/modules") else {
        return true; // a kernel without modules has it, or says no
    };
    let loaded = |line: &str| line.split(' ').next() == Some("af_packet_diag");
    let release = text("proc/sys/kernel/osrelease").unwrap_or_default();
    let builtin = format!("lib/modules/{}/modules.builtin", release.trim());
    modules.lines().any(loaded)
        || text(&builtin).is_some_and(|names| names.contains("/af_packet_diag.ko"))
}

/// The sockets of this thread's network namespace.
pub fn packet_diag() -> Result<Vec<DiagSocket>> {
    let mut request = [0; 20];
    request[0] = 17; // AF_PACKET
    request[8..12].copy_from_slice(&SHOW.to_ne_bytes());
    let mut found = Vec::new();
    let mut socket = RouteSocket::of_family(libc::NETLINK_SOCK_DIAG)?;
    socket.dump(SOCK_DIAG_BY_FAMILY, &request, SOCK_DIAG_BY_FAMILY, |body| {
        found.extend(one(body));
    })?;
    Ok(found)
}

fn one(body: &[u8]) -> Option<DiagSocket> {
    let mut socket = DiagSocket {
        inode: u32_at(body, 4)?.into(),
        version: 1,
        ring: None,
        fanout: None,
        filtered: false,
    };
    for (kind, value) in Attributes(body.get(MESSAGE..)?) {
        match kind {
            // The kernel's enum counts TPACKET_V1 as 0.
            PACKET_DIAG_INFO => socket.version = u32_at(value, 4)? + 1,
            PACKET_DIAG_RX_RING => {
                let mut ring = [0; 5];
                for (number, size) in ring.iter_mut().enumerate() {
                    *size = u32_at(value, 4 * number)?;
                }
                socket.ring = Some(ring);
            }
            PACKET_DIAG_FANOUT => {
                let group = u32_at(value, 0)?;
                socket.fanout = Some([group & 0xffff, group >> 16 & 0xff]);
            }
            // struct sock_filter: code, two jumps, k.
            PACKET_DIAG_FILTER => {
                socket.filtered = match (u16_at(value, 0), u32_at(value, 4)) {
                    (Some(code), Some(taken)) => {
                        !takes_all(u64::from(code) | u64::from(taken) << 32)
                    }
                    _ => false,
                }
            }
            _ => {}
        }
    }
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_ring_its_group_and_a_filter() {
        let mut body = words(&[0x0003_0311, 41, 0, 0]);
        body.extend(attribute(PACKET_DIAG_INFO, &words(&[2, 2, 0, 0, 0, 0])));
        body.extend(attribute(
            PACKET_DIAG_RX_RING,
            &words(&[4096, 13, 1616, 26, 10, 0, 0]),
        ));
        body.extend(attribute(PACKET_DIAG_FANOUT, &words(&[7 | 5 << 16])));
        let plain = one(&body).unwrap();
        let expected = DiagSocket {
            inode: 41,
            version: 3,
            ring: Some([4096, 13, 1616, 26, 10]),
            fanout: Some([7, 5]),
            filtered: false,
        };
        assert_eq!(plain, expected);
        for (step, filtered) in [
            ([0x28, 12], true),
            ([0x06, 0], true),
            ([0x06, 0x40000], false),
        ] {
            let mut with = body.clone();
            with.extend(attribute(PACKET_DIAG_FILTER, &words(&step)));
            assert_eq!(one(&with).unwrap().filtered, filtered, "{step:?}");
        }
        let mut empty = body.clone();
        empty.extend(attribute(PACKET_DIAG_FILTER, &[]));
        assert!(!one(&empty).unwrap().filtered);
        assert_eq!(one(&body[..6]), None);
    }

    #[test]
    fn no_module_is_loaded() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert!(packet_diag_is_there(root.path()));
        write("proc/modules", "igb 1 0 - Live 0x0\n");
        assert!(!packet_diag_is_there(root.path()));
        write("proc/modules", "af_packet_diag 1 0 - Live 0x0\n");
        assert!(packet_diag_is_there(root.path()));
        write("proc/modules", "igb 1 0 - Live 0x0\n");
        write("proc/sys/kernel/osrelease", "6.12.0\n");
        write(
            "lib/modules/6.12.0/modules.builtin",
            "kernel/net/packet/af_packet_diag.ko\n",
        );
        assert!(packet_diag_is_there(root.path()));
    }
}
