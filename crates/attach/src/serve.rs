//! Serves eNodeBs: the reference MME behind a listening socket, in one thread, with a known service time.

use nix::poll::{PollFd, PollFlags};
use nodrop_sys::clock::{mono_ns, thread_cpu_ns};

use crate::address::Listener;
use crate::association::Association;
use crate::behind::Behind;
use crate::enb::PPID;
use crate::mme::Mme;
use crate::offer::wait;

/// Serves until stopped. Each Attach Request costs `work_ns` of this thread's CPU time.
///
/// # Errors
/// If the system refuses the socket, or its HSS is gone.
pub fn serve(
    mme: &mut Mme,
    listener: &Listener,
    mut behind: Option<Behind>,
    work_ns: u64,
    stopped: &dyn Fn() -> bool,
) -> std::io::Result<()> {
    let mut links: Vec<Option<Box<dyn Association>>> = Vec::new();
    let mut out = Vec::new();
    while !stopped() {
        while let Ok(link) = listener.accept() {
            links.push(Some(link));
        }
        mme.advance(mono_ns(), &mut out);
        if let Some(behind) = &mut behind {
            behind.exchange(mme, &mut out)?;
        }
        for index in 0..links.len() {
            let Some(link) = &mut links[index] else {
                continue;
            };
            let mut frames = Vec::new();
            let read = link.receive(&mut |frame| frames.push(frame));
            for frame in frames {
                let before = mme.counts.attach_requests;
                let begun = thread_cpu_ns();
                mme.receive(index, frame.ppid, &frame.pdu, mono_ns(), &mut out);
                if mme.counts.attach_requests != before {
                    while thread_cpu_ns() - begun < work_ns {}
                }
                send(&mut links, mme, &mut out);
            }
            if read.is_err() {
                links[index] = None;
                mme.lose(index, mono_ns());
            }
        }
        if let Some(behind) = &mut behind {
            behind.flush(mme)?;
        }
        send(&mut links, mme, &mut out);
        let mut files: Vec<PollFd<'_>> = links
            .iter()
            .flatten()
            .map(|link| {
                let more = if link.is_behind() {
                    PollFlags::POLLOUT
                } else {
                    PollFlags::empty()
                };
                PollFd::new(link.fd(), PollFlags::POLLIN | more)
            })
            .collect();
        files.push(PollFd::new(listener.fd(), PollFlags::POLLIN));
        files.extend(behind.iter().flat_map(Behind::polled));
        wait(&mut files, mme.next_due().unwrap_or(u64::MAX));
    }
    Ok(())
}

fn send(links: &mut [Option<Box<dyn Association>>], mme: &mut Mme, out: &mut Vec<crate::Outgoing>) {
    for message in out.drain(..) {
        if let Some(Some(link)) = links.get_mut(message.link) {
            link.push(PPID, message.stream, &message.pdu);
        }
    }
    for (index, link) in links.iter_mut().enumerate() {
        if link
            .as_mut()
            .is_some_and(|link| link.is_behind() && link.flush().is_err())
        {
            *link = None;
            mme.lose(index, mono_ns());
        }
    }
}
