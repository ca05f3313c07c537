//! S1AP over the kernel's SCTP: messages are whole, and the streams are those that the other end takes.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

use nodrop_sys::sctp::{Received, Sctp};

use crate::association::{Association, Frame, Gone, MOST_OCTETS};

/// Read at most before others have their turn.
const MESSAGES_AT_ONCE: usize = 256;

/// One association.
pub struct Carried {
    socket: Sctp,
    streams: u16,
    unread: Vec<u8>,
    unsent: VecDeque<(u32, u16, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl Carried {
    /// Takes over an association that is up.
    ///
    /// # Errors
    /// If it is over.
    pub fn new(socket: Sctp) -> std::io::Result<Self> {
        Ok(Self {
            streams: socket.out_streams()?,
            socket,
            unread: Vec::new(),
            unsent: VecDeque::new(),
            buffer: vec![0; MOST_OCTETS],
        })
    }
}

/// The stream of a UE, among those that the other end takes; 0 stays 0.
fn taken(stream: u16, streams: u16) -> u16 {
    match (stream, streams) {
        (0, _) | (_, 0 | 1) => 0,
        (stream, streams) => 1 + (stream - 1) % (streams - 1),
    }
}

impl Association for Carried {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn push(&mut self, ppid: u32, stream: u16, pdu: &[u8]) {
        let stream = taken(stream, self.streams);
        self.unsent.push_back((ppid, stream, pdu.to_vec()));
    }

    fn flush(&mut self) -> Result<(), Gone> {
        while let Some((ppid, stream, pdu)) = self.unsent.front() {
            match self.socket.send(*ppid, *stream, pdu) {
                Ok(()) => {
                    self.unsent.pop_front();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut dyn FnMut(Frame)) -> Result<(), Gone> {
        for _ in 0..MESSAGES_AT_ONCE {
            match self.socket.receive(&mut self.buffer)? {
                Received::Nothing => break,
                Received::Restarted => return Err(Gone::Restarted),
                Received::Closed if self.unread.is_empty() => return Err(Gone::Closed),
                Received::Closed => return Err(Gone::Broken),
                Received::Octets {
                    count,
                    ppid,
                    stream,
                    whole,
                } => {
                    self.unread.extend_from_slice(&self.buffer[..count]);
                    if self.unread.len() > MOST_OCTETS {
                        return Err(Gone::Broken);
                    }
                    if whole {
                        let pdu = std::mem::take(&mut self.unread);
                        take(Frame { ppid, stream, pdu });
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(&self) {
        // Refused: then it is over already.
        let _ = self.socket.finish();
    }
}

/// Chunks that this network namespace has sent again until now; `None` if its kernel has no SCTP.
#[must_use]
pub fn retransmitted() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/net/sctp/snmp")
        .ok()
        .map(|said| retransmits(&said))
}

fn retransmits(said: &str) -> u64 {
    let words = said.lines().filter_map(|line| line.split_once('\t'));
    words
        .filter(|(name, _)| {
            matches!(
                name.trim(),
                "SctpT3Retransmits" | "SctpFastRetransmits" | "SctpT1Retransmits"
            )
        })
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ues_keep_to_the_streams_that_the_other_end_takes() {
        let of = |streams| [0, 1, 2, 8].map(|stream| taken(stream, streams));
        assert_eq!(of(9), [0, 1, 2, 8]);
        assert_eq!(of(3), [0, 1, 2, 2]);
        assert_eq!(of(1), [0; 4]);
        assert_eq!(of(0), [0; 4]);
    }

    #[test]
    fn chunks_that_were_sent_again_are_summed() {
        let said = "SctpCurrEstab                   \t1\nSctpT1Retransmits               \t1\n\
                    SctpT3Retransmits               \t20\nSctpFastRetransmits             \t300\nodd";
        assert_eq!(retransmits(said), 321);
        assert_eq!(retransmits(""), 0);
    }
}
