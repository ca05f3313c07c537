//! Offers a load: associations by the clock, one thread, one poll over all of them.

use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::SigSet;
use nix::sys::time::TimeSpec;
use nodrop_sys::clock::mono_ns;

use nodrop_sys::sctp;

use crate::address::Address;
use crate::association::{Association, Gone};
use crate::enb::{Enbs, PPID};
use crate::ledger::Ledger;
use crate::wire::s1ap::{self, Cell, S1};

/// How often a start is looked for, and a stop.
const LOOK_NS: u64 = 100_000_000;
const CONNECT_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for the MME to read the last message.
const LINGER_NS: u64 = 5_000_000_000;

/// Why there is no association.
#[derive(Debug, thiserror::Error)]
pub enum NoAssociation {
    /// Nobody listens.
    #[error("no connection to {0}: {1}")]
    Refused(Address, std::io::Error),
    /// The kernel has no SCTP.
    #[error(
        "no association with {0}: this kernel has no SCTP: modprobe sctp, or a kernel that has it"
    )]
    NoSctp(Address),
    /// The MME says no.
    #[error("the MME at {0} answered S1 Setup with a failure")]
    Failure(Address),
    /// The MME says nothing.
    #[error("the MME at {0} did not answer S1 Setup in time")]
    Silent(Address),
    /// The MME closes it, or it breaks.
    #[error("the association with {0} ended during S1 Setup: {1}")]
    Gone(Address, Gone),
    /// A field of the cell does not fit.
    #[error("the eNodeB's PLMN or id does not fit an S1 Setup Request")]
    Cell,
}

/// An association that is set up, and how long that took from the call.
pub struct Associated {
    /// The association.
    pub link: Box<dyn Association>,
    /// Until somebody listened.
    pub listen_ns: u64,
    /// Until the S1 Setup Response.
    pub setup_ns: u64,
}

/// Waits until `now` is later than `until`, a file is ready or a signal came.
pub(crate) fn wait(files: &mut [PollFd<'_>], until: u64) {
    let left = Duration::from_nanos(until.saturating_sub(mono_ns()).min(LOOK_NS));
    // Interrupted: the caller looks anyway.
    let _ = ppoll(
        files,
        Some(TimeSpec::from_duration(left)),
        Some(SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty())),
    );
}

/// Connects every 10 ms until somebody listens, then sets S1 up; a failure with a time to wait is tried again then.
///
/// # Errors
/// If that is not done within `within`.
pub fn associate(
    mme: Address,
    cell: &Cell,
    within: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Associated, NoAssociation> {
    let begun = mono_ns();
    let deadline = begun + u64::try_from(within.as_nanos()).unwrap_or(u64::MAX / 2);
    let mut link = loop {
        match mme.connect(within) {
            Ok(link) => break link,
            Err(error) if sctp::lacks(&error) => return Err(NoAssociation::NoSctp(mme)),
            Err(error) if mono_ns() > deadline || stopped() => {
                return Err(NoAssociation::Refused(mme, error));
            }
            Err(_) => std::thread::sleep(CONNECT_EVERY),
        }
    };
    let listen_ns = mono_ns() - begun;
    let request = s1ap::encode(&S1::SetupRequest, cell).ok_or(NoAssociation::Cell)?;
    let mut ask_at = Some(mono_ns());
    loop {
        let now = mono_ns();
        if now > deadline || stopped() {
            return Err(NoAssociation::Silent(mme));
        }
        if ask_at.is_some_and(|at| at <= now) {
            ask_at = None;
            link.push(PPID, 0, &request);
        }
        link.flush()
            .map_err(|gone| NoAssociation::Gone(mme, gone))?;
        let mut answer = None;
        let read = link.receive(&mut |frame| {
            if let Ok(message @ (S1::SetupResponse | S1::SetupFailure { .. })) =
                s1ap::decode(&frame.pdu)
            {
                answer = Some(message);
            }
        });
        match answer {
            Some(S1::SetupResponse) => {
                return Ok(Associated {
                    link,
                    listen_ns,
                    setup_ns: mono_ns() - begun,
                });
            }
            Some(S1::SetupFailure {
                wait_s: Some(wait_s),
            }) => {
                ask_at = Some(mono_ns() + u64::from(wait_s) * 1_000_000_000);
            }
            Some(_) => return Err(NoAssociation::Failure(mme)),
            None => {}
        }
        read.map_err(|gone| NoAssociation::Gone(mme, gone))?;
        wait(
            &mut [PollFd::new(link.fd(), PollFlags::POLLIN)],
            ask_at.unwrap_or(u64::MAX),
        );
    }
}

/// Offers until each UE has ended, or until stopped; then waits for the MMEs to read the last message.
pub fn offer(
    enbs: &mut Enbs,
    links: Vec<Box<dyn Association>>,
    stopped: &dyn Fn() -> bool,
    sample: &mut dyn FnMut(u64, &Ledger),
) {
    let mut links: Vec<Option<Box<dyn Association>>> = links.into_iter().map(Some).collect();
    let (mut out, mut next_sample) = (Vec::new(), mono_ns() + LOOK_NS);
    while !enbs.is_over() {
        let now = mono_ns();
        if stopped() {
            enbs.stop(now);
            break;
        }
        if now >= next_sample {
            sample(now, &enbs.ledger);
            next_sample = now + LOOK_NS;
        }
        enbs.advance(now, &mut out);
        read_all(&mut links, enbs, &mut out);
        for message in out.drain(..) {
            if let Some(link) = &mut links[message.link] {
                link.push(PPID, message.stream, &message.pdu);
            }
        }
        for (index, link) in links.iter_mut().enumerate() {
            if link.as_mut().is_some_and(|link| link.flush().is_err()) {
                *link = None;
                enbs.lose(index, mono_ns());
            }
        }
        let mut files: Vec<PollFd<'_>> =
            links.iter().flatten().map(|link| polled(&**link)).collect();
        wait(
            &mut files,
            enbs.next_due().unwrap_or(u64::MAX).min(next_sample),
        );
    }
    linger(links, stopped);
}

fn polled(link: &dyn Association) -> PollFd<'_> {
    let more = if link.is_behind() {
        PollFlags::POLLOUT
    } else {
        PollFlags::empty()
    };
    PollFd::new(link.fd(), PollFlags::POLLIN | more)
}

fn read_all(
    links: &mut [Option<Box<dyn Association>>],
    enbs: &mut Enbs,
    out: &mut Vec<crate::Outgoing>,
) {
    for (index, slot) in links.iter_mut().enumerate() {
        let Some(link) = slot else {
            continue;
        };
        let read =
            link.receive(&mut |frame| enbs.receive(index, frame.ppid, &frame.pdu, mono_ns(), out));
        if let Err(gone) = read {
            enbs.ledger.anomalies.undecodable_pdus += u64::from(matches!(gone, Gone::Broken));
            *slot = None;
            enbs.lose(index, mono_ns());
        }
    }
}

fn linger(links: Vec<Option<Box<dyn Association>>>, stopped: &dyn Fn() -> bool) {
    let deadline = mono_ns() + LINGER_NS;
    let mut finished = false;
    let mut links: Vec<Box<dyn Association>> = links.into_iter().flatten().collect();
    while !links.is_empty() && mono_ns() < deadline && !(finished && stopped()) {
        links.retain_mut(|link| link.flush().is_ok());
        if !finished && links.iter().all(|link| !link.is_behind()) {
            links.iter().for_each(|link| link.finish());
            finished = true;
        }
        let mut files: Vec<PollFd<'_>> = links.iter().map(|link| polled(&**link)).collect();
        wait(&mut files, deadline);
        links.retain_mut(|link| link.receive(&mut |_| {}).is_ok());
    }
}
