//! Sockets behind an MME: Diameter over TCP to an HSS, GTPv2-C over UDP to an SGW, and the stubs of both.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{setsockopt, sockopt};
use nodrop_sys::clock::mono_ns;

use crate::Outgoing;
use crate::mme::Mme;
use crate::offer::wait;
use crate::stubs::{Hss, Sgw};
use crate::wire::diameter;

const READ_AT_ONCE: usize = 65_536;
/// Read at most before others have their turn.
const DATAGRAMS_AT_ONCE: usize = 256;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Room for 5,000 datagrams, each of which the kernel counts as 768 octets. Linux's usual 208 kB hold 277. More wait while
/// a reader has no CPU for half a second. Nothing repeats a lost message of S11, so each would cost a UE.
const RECEIVE_BUFFER: usize = 1 << 22;

/// Diameter messages over one connection.
struct Diameter {
    stream: TcpStream,
    unread: Vec<u8>,
    unsent: Vec<u8>,
}

impl Diameter {
    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            unread: Vec::new(),
            unsent: Vec::new(),
        })
    }

    fn flush(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(octets) => drop(self.unsent.drain(..octets)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whole messages that are there. An error if the other end closed the connection, or speaks something else.
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let before = self.unread.len();
        self.unread.resize(before + READ_AT_ONCE, 0);
        let read = self.stream.read(&mut self.unread[before..]);
        self.unread
            .truncate(before + read.as_ref().map_or(0, |octets| *octets));
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let mut used = 0;
        while let Some(length) = diameter::framed(&self.unread[used..])
            .map_err(|no_message| Error::new(ErrorKind::InvalidData, no_message))?
        {
            let Some(message) = self.unread.get(used..used + length) else {
                break;
            };
            take(message);
            used += length;
        }
        self.unread.drain(..used);
        Ok(())
    }

    fn polled(&self) -> PollFd<'_> {
        let more = if self.unsent.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::POLLOUT
        };
        PollFd::new(self.stream.as_fd(), PollFlags::POLLIN | more)
    }
}

/// Asks for [`RECEIVE_BUFFER`]: beyond net.core.rmem_max with the right to, else up to it.
fn widen(socket: &UdpSocket) {
    if setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _ = setsockopt(socket, sockopt::RcvBuf, &RECEIVE_BUFFER);
    }
}

/// Links of an MME to its HSS and its SGW.
pub struct Behind {
    hss: Diameter,
    sgw: UdpSocket,
}

impl Behind {
    /// Connects to both.
    ///
    /// # Errors
    /// The HSS does not listen, or the system refuses.
    pub fn connect(hss: SocketAddr, sgw: SocketAddr) -> Result<Self> {
        // An address as text would link the resolver of names, 150 kB of the C library.
        let any: IpAddr = if sgw.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(sgw)?;
        socket.set_nonblocking(true)?;
        widen(&socket);
        let hss = Diameter::new(TcpStream::connect_timeout(&hss, CONNECT_WITHIN)?)?;
        Ok(Self { hss, sgw: socket })
    }

    /// Sends what the MME asks, and gives it what came.
    ///
    /// # Errors
    /// The HSS is gone.
    pub fn exchange(&mut self, mme: &mut Mme, out: &mut Vec<Outgoing>) -> Result<()> {
        self.hss
            .receive(&mut |octets| mme.from_hss(octets, mono_ns(), out))?;
        let mut octets = vec![0; READ_AT_ONCE];
        for _ in 0..DATAGRAMS_AT_ONCE {
            // Nothing there, or the SGW is not: that shows in what it does not answer.
            let Ok(length) = self.sgw.recv(&mut octets) else {
                break;
            };
            mme.from_sgw(&octets[..length], mono_ns(), out);
        }
        self.flush(mme)
    }

    /// Sends what the MME asks.
    ///
    /// # Errors
    /// The HSS is gone.
    pub fn flush(&mut self, mme: &mut Mme) -> Result<()> {
        let Some(core) = mme.core() else {
            return Ok(());
        };
        core.to_hss
            .drain(..)
            .for_each(|message| self.hss.unsent.extend(message));
        for message in core.to_sgw.drain(..) {
            // As on the way: lost.
            let _ = self.sgw.send(&message);
        }
        self.hss.flush()
    }

    /// For poll(2).
    #[must_use]
    pub fn polled(&self) -> [PollFd<'_>; 2] {
        let sgw = PollFd::new(self.sgw.as_fd(), PollFlags::POLLIN);
        [self.hss.polled(), sgw]
    }
}

/// Answers MMEs until stopped.
///
/// # Errors
/// If the system refuses the socket.
pub fn serve_hss(hss: &mut Hss, listener: &TcpListener, stopped: &dyn Fn() -> bool) -> Result<()> {
    listener.set_nonblocking(true)?;
    let mut peers: Vec<Diameter> = Vec::new();
    while !stopped() {
        while let Ok((stream, _)) = listener.accept() {
            peers.push(Diameter::new(stream)?);
        }
        peers.retain_mut(|peer| {
            let mut answers = Vec::new();
            let read = peer.receive(&mut |octets| answers.extend(hss.answer(octets)));
            peer.unsent.extend(answers.into_iter().flatten());
            read.is_ok() && peer.flush().is_ok()
        });
        let mut files: Vec<PollFd<'_>> = peers.iter().map(Diameter::polled).collect();
        files.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        wait(&mut files, u64::MAX);
    }
    Ok(())
}

/// Answers MMEs until stopped.
///
/// # Errors
/// If the system refuses the socket.
pub fn serve_sgw(sgw: &mut Sgw, socket: &UdpSocket, stopped: &dyn Fn() -> bool) -> Result<()> {
    socket.set_nonblocking(true)?;
    widen(socket);
    let mut octets = vec![0; READ_AT_ONCE];
    while !stopped() {
        for _ in 0..DATAGRAMS_AT_ONCE {
            // An error is of a datagram that was sent: its MME is gone.
            let Ok((length, from)) = socket.recv_from(&mut octets) else {
                break;
            };
            if let Some(answer) = sgw.answer(&octets[..length]) {
                let _ = socket.send_to(&answer, from);
            }
        }
        wait(
            &mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)],
            u64::MAX,
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mme::{Faults, Home};
    use crate::subscribers::Subscribers;
    use crate::wire::aka::{Network, Subscriber};

    /// Twice what the kernel's usual buffer holds.
    const WAITING: u64 = 500;

    #[test]
    fn answers_wait_for_an_mme_that_works() {
        let hss = TcpListener::bind("127.0.0.1:0").unwrap();
        let sgw = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut behind =
            Behind::connect(hss.local_addr().unwrap(), sgw.local_addr().unwrap()).unwrap();
        let of_the_mme = behind.sgw.local_addr().unwrap().port();
        for _ in 0..WAITING {
            sgw.send_to(b"no answer", ("127.0.0.1", of_the_mme))
                .unwrap();
        }
        let home = Home {
            subscribers: Subscribers::Range {
                first: 1,
                count: 0,
                keys: Subscriber::new(&[1; 16], &[2; 16]),
            },
            network: Network::new("001", "01").unwrap(),
        };
        let mut mme = Mme::new(home, Faults::default(), 2, 2).with_core();
        for _ in 0..=WAITING / DATAGRAMS_AT_ONCE as u64 {
            behind.exchange(&mut mme, &mut Vec::new()).unwrap();
        }
        assert_eq!(mme.core().unwrap().undecodable, WAITING);
    }
}
