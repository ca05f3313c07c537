//! Addresses of an end, and what carries the associations with it.

use std::fmt;
use std::io::Result;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;
use std::time::Duration;

use nodrop_sys::sctp::Sctp;

use crate::association::Association;
use crate::framed::Framed;
use crate::sctp::Carried;

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
    /// Nobody listens, or the system refuses.
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

    /// The next association, or an error of kind `WouldBlock`.
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
