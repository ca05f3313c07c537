//! The packet sockets of a network namespace from `/proc/net/packet`: the proof that a capture is open.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::HeldFile;

/// One socket. The table says nothing of rings, fanout or drops: only a socket's owner knows those.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PacketSocket {
    /// 3 = SOCK_RAW, 2 = SOCK_DGRAM.
    pub socket_type: u32,
    /// EtherType it listens to; 3 = ETH_P_ALL, 0 = none: a sender that gets no copies of what it sends.
    pub protocol: u64,
    /// 0 = every interface, -1 = the one it was bound to is gone.
    pub ifindex: i32,
    /// Whether it is attached to the receive path.
    pub running: bool,
    /// Bytes that wait in its socket buffer (never those in a ring).
    pub receive_queue_bytes: u64,
    /// Its owner.
    pub uid: u32,
    /// As in `/proc/PID/fd`: `socket:[inode]`.
    pub inode: u64,
}

/// Reads `/proc/net/packet`; bound to the network namespace of the thread that makes it.
#[derive(Debug)]
pub struct PacketSocketReader {
    file: HeldFile,
    buffer: Vec<u8>,
}

impl PacketSocketReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        let file = HeldFile::open(root.join("proc/net/packet"))?;
        Ok(Self {
            file,
            buffer: Vec::new(),
        })
    }

    /// Of the namespace that a process is in; the table holds all of its sockets, not that process's alone.
    pub fn of_process(root: &Path, pid: u32) -> Result<Self> {
        let file = HeldFile::open(root.join(format!("proc/{pid}/net/packet")))?;
        Ok(Self {
            file,
            buffer: Vec::new(),
        })
    }

    /// All packet sockets of the namespace.
    pub fn read(&mut self) -> Result<Vec<PacketSocket>> {
        // sk RefCnt Type Proto Iface R Rmem User Inode
        let text = self.file.read(&mut self.buffer)?;
        text.lines()
            .skip(1)
            .map(|mut line| {
                Ok(PacketSocket {
                    socket_type: line.skip(2).number()?,
                    protocol: line.hex()?,
                    ifindex: line.number()?,
                    running: line.number::<u8>()? != 0,
                    receive_queue_bytes: line.number()?,
                    uid: line.number()?,
                    inode: line.number()?,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fixture, fixture_with};

    #[test]
    fn a_capture_and_a_sender() {
        let sockets = PacketSocketReader::new(&fixture()).unwrap().read().unwrap();
        let capture = PacketSocket {
            socket_type: 3,
            protocol: 3,
            ifindex: 1,
            running: true,
            receive_queue_bytes: 0,
            uid: 0,
            inode: sockets[0].inode,
        };
        assert_eq!(sockets[0], capture);
        assert_eq!(sockets.len(), 1);
    }

    #[test]
    fn a_socket_outlives_its_interface() {
        let root = fixture_with(
            "proc/net/packet",
            "sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n\
              0000000000000000 3      3    0003   -1    0 0      0      452211\n",
        );
        let sockets = PacketSocketReader::new(root.path()).unwrap().read();
        assert_eq!(sockets.unwrap()[0].ifindex, -1);
    }

    #[test]
    fn only_a_headline_means_no_sockets() {
        let root = fixture_with(
            "proc/net/packet",
            "sk  RefCnt Type Proto  Iface R Rmem   User   Inode\n",
        );
        assert_eq!(
            PacketSocketReader::new(root.path())
                .unwrap()
                .read()
                .unwrap(),
            []
        );
    }
}
