//! Associations between eNodeB and MME, whatever carries them: kernel SCTP, or framed TCP for the reference MME.

use std::fmt;
use std::io::Result;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;
use std::time::Duration;

use nodrop_sys::sctp::Sctp;

use crate::framed::Framed;
use crate::sctp::Carried;

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
    fn flush(&mut self) -> std::result::Result<(), Gone>;

    /// Reads what is there, at most a bounded part, and gives each whole message to `take`.
    ///
    /// # Errors
    /// If the association is over; what came before was given.
    fn receive(&mut self, take: &mut dyn FnMut(Frame)) -> std::result::Result<(), Gone>;

    /// No more will be sent; the other end reads what was, and closes.
    fn finish(&self);
}

/// An end's address: `sctp:127.0.0.1:36412`, or `127.0.0.1:36412` for framed TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// Kernel SCTP.
    Sctp(SocketAddr),
    /// Framed TCP.
    Framed(SocketAddr),
}

const SCTP: &str = "sctp:";

impl FromStr for Address {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text.strip_prefix(SCTP) {
            Some(address) => address.parse().map(Self::Sctp),
            None => text.parse().map(Self::Framed),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sctp(address) => write!(f, "{SCTP}{address}"),
            Self::Framed(address) => write!(f, "{address}"),
        }
    }
}

impl Address {
    /// What carries it, as results name it.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Sctp(_) => "sctp",
            Self::Framed(_) => "tcp-framed (not SCTP)",
        }
    }

    /// Sets an association up.
    ///
    /// # Errors
    /// If nobody listens or the system refuses.
    pub fn connect(&self, within: Duration) -> Result<Box<dyn Association>> {
        Ok(match self {
            Self::Sctp(address) => Box::new(Carried::new(Sctp::connect(*address, within)?)?),
            Self::Framed(address) => {
                Box::new(Framed::new(TcpStream::connect_timeout(address, within)?)?)
            }
        })
    }

    /// Listens.
    ///
    /// # Errors
    /// If the address is taken or the system refuses.
    pub fn listen(&self) -> Result<Listener> {
        Ok(match self {
            Self::Sctp(address) => Listener::Sctp(Sctp::listen(*address)?),
            Self::Framed(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Listener::Framed(listener)
            }
        })
    }
}

/// A listening end.
pub enum Listener {
    /// Kernel SCTP.
    Sctp(Sctp),
    /// Framed TCP.
    Framed(TcpListener),
}

impl Listener {
    /// Own address, with the port that the system chose.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn address(&self) -> Result<Address> {
        match self {
            Self::Sctp(listener) => listener.address().map(Address::Sctp),
            Self::Framed(listener) => listener.local_addr().map(Address::Framed),
        }
    }

    /// The next association; an error of kind `WouldBlock` if there is none.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn accept(&self) -> Result<Box<dyn Association>> {
        Ok(match self {
            Self::Sctp(listener) => Box::new(Carried::new(listener.accept()?)?),
            Self::Framed(listener) => Box::new(Framed::new(listener.accept()?.0)?),
        })
    }

    /// For poll(2).
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Sctp(listener) => listener.as_fd(),
            Self::Framed(listener) => listener.as_fd(),
        }
    }
}
