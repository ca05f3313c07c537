//! S1AP over TCP, each message behind its length, payload protocol identifier and stream: for the reference MME alone. Not SCTP.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use crate::association::{Association, Frame, Gone, MOST_OCTETS};

const HEADER: usize = 10;
const READ_AT_ONCE: usize = 65_536;

/// One association.
pub struct Framed {
    stream: TcpStream,
    unread: Vec<u8>,
    unsent: Vec<u8>,
}

impl Framed {
    /// Takes over a connection.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            unread: Vec::new(),
            unsent: Vec::new(),
        })
    }
}

impl Association for Framed {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn push(&mut self, ppid: u32, stream: u16, pdu: &[u8]) {
        let length = u32::try_from(pdu.len()).unwrap_or(u32::MAX);
        self.unsent.extend_from_slice(&length.to_be_bytes());
        self.unsent.extend_from_slice(&ppid.to_be_bytes());
        self.unsent.extend_from_slice(&stream.to_be_bytes());
        self.unsent.extend_from_slice(pdu);
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(());
            }
            match self.stream.write(&self.unsent[sent..]) {
                Ok(octets) => sent += octets,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error.into()),
            }
        };
        self.unsent.drain(..sent);
        result
    }

    fn receive(&mut self, take: &mut dyn FnMut(Frame)) -> Result<(), Gone> {
        let before = self.unread.len();
        self.unread.resize(before + READ_AT_ONCE, 0);
        let octets = match self.stream.read(&mut self.unread[before..]) {
            Ok(octets) => octets,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                self.unread.truncate(before);
                return Ok(());
            }
            Err(error) => {
                self.unread.truncate(before);
                return Err(error.into());
            }
        };
        self.unread.truncate(before + octets);
        if octets == 0 {
            return Err(if before == 0 {
                Gone::Closed
            } else {
                Gone::Broken
            });
        }
        let mut rest = &self.unread[..];
        while let Some((header, after)) = rest.split_first_chunk::<HEADER>() {
            let word = |at: usize| {
                u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let length = usize::try_from(word(0)).unwrap_or(usize::MAX);
            if length > MOST_OCTETS {
                return Err(Gone::Broken);
            }
            let Some((pdu, behind)) = after.split_at_checked(length) else {
                break;
            };
            let stream = u16::from_be_bytes([header[8], header[9]]);
            take(Frame {
                ppid: word(4),
                stream,
                pdu: pdu.to_vec(),
            });
            rest = behind;
        }
        let used = self.unread.len() - rest.len();
        self.unread.drain(..used);
        Ok(())
    }

    fn finish(&self) {
        // Refused: then it is closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
