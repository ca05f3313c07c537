//! Threads behind the receiving ones: each has a queue, and all packets of a flow are done by one of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use nodrop_sys::clock::mono_ns;
use nodrop_wire::flow::FlowKey;

use super::end::End;

/// Of each worker. A full one makes the receiving thread wait, so what is lost is lost at the socket.
pub const QUEUE_PACKETS: usize = 100;

/// What one worker has done so far; written by it alone.
#[derive(Default)]
pub struct Done {
    packets: AtomicU64,
    mono_ns: AtomicU64,
}

impl Done {
    /// Packets, and when the last of them was done: 0 before the first.
    pub fn read(&self) -> (u64, u64) {
        (
            self.packets.load(Ordering::Relaxed),
            self.mono_ns.load(Ordering::Relaxed),
        )
    }
}

/// How long a packet takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pub alone_ns: u64,
    /// While no other worker does the same.
    pub locked_ns: u64,
}

/// The ends of the workers' queues; a worker ends when all of its are gone.
#[derive(Clone)]
pub struct HandsOn(Vec<SyncSender<()>>);

impl HandsOn {
    /// So many queues: where packets go in, and where they come out.
    pub fn to(workers: usize) -> (Option<Self>, Vec<Receiver<()>>) {
        let (into, out): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| sync_channel(QUEUE_PACKETS)).unzip();
        ((workers > 0).then_some(Self(into)), out)
    }

    /// Waits for room; false if the worker has ended.
    pub fn take(&self, frame: &[u8]) -> bool {
        self.0[worker_of(frame, self.0.len())].send(()).is_ok()
    }
}

/// What is no IP is done by the first.
fn worker_of(frame: &[u8], workers: usize) -> usize {
    FlowKey::of_frame(frame).map_or(0, |flow| {
        let mut hasher = DefaultHasher::new();
        flow.hash(&mut hasher);
        usize::try_from(hasher.finish() % workers as u64).unwrap_or(0)
    })
}

/// Works until the queue is empty and no thread can fill it, or until the time to empty it is over.
pub fn work(queue: &Receiver<()>, cost: Cost, lock: &Mutex<()>, done: &Done, mut end: End<'_>) {
    while queue.recv().is_ok() {
        let now = mono_ns();
        if end.is_passed(now) {
            return;
        }
        let mut at = be_busy(now, cost.alone_ns);
        if cost.locked_ns > 0 {
            let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            at = be_busy(mono_ns(), cost.locked_ns);
            drop(held);
        }
        done.packets.fetch_add(1, Ordering::Relaxed);
        done.mono_ns.store(at, Ordering::Relaxed);
    }
}

/// Uses the CPU for so long; when it is over.
pub fn be_busy(now: u64, ns: u64) -> u64 {
    let (until, mut at) = (now + ns, now);
    while at < until {
        std::hint::spin_loop();
        at = mono_ns();
    }
    at
}
