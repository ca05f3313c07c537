//! Associations between eNodeB and MME, whatever carries them: kernel SCTP, or framed TCP for the reference MME.

use std::os::fd::BorrowedFd;

/// No S1AP message of an attach is near it.
pub const MOST_OCTETS: usize = 65_536;

/// A message as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Payload protocol identifier.
    pub ppid: u32,
    /// Stream.
    pub stream: u16,
    /// Octets.
    pub pdu: Vec<u8>,
}

/// Why an association is over.
#[derive(Debug, thiserror::Error)]
pub enum Gone {
    /// The other end closed it.
    #[error("the other end closed the association")]
    Closed,
    /// The other end began it anew, and knows nothing of its UEs any more.
    #[error("the other end began the association anew")]
    Restarted,
    /// The other end closed it within a message, or sent one that is too long.
    #[error("a message is cut off or longer than {MOST_OCTETS} octets")]
    Broken,
    /// The system did.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// One association. Nothing of it blocks.
pub trait Association {
    /// For poll(2).
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether something waits for room in the socket.
    fn is_behind(&self) -> bool;

    /// Queues a message; [`Self::flush`] sends it.
    fn push(&mut self, ppid: u32, stream: u16, pdu: &[u8]);

    /// Sends as much as fits.
    ///
    /// # Errors
    /// If the association is over.
    fn flush(&mut self) -> Result<(), Gone>;

    /// Reads what is there, at most a bounded part, and gives each whole message to `take`.
    ///
    /// # Errors
    /// If the association is over; what came before was given.
    fn receive(&mut self, take: &mut dyn FnMut(Frame)) -> Result<(), Gone>;

    /// No more will be sent; the other end reads what was, and closes.
    fn finish(&self);
}
