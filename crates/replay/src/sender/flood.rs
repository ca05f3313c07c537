//! Sending by flood: each packet of the trace so many times in a row, without times, and booked by what the port has counted.

use std::time::Duration;

use nodrop_io::flood::{self, FloodSender, Towards};
use nodrop_io::tx::Sent;
use nodrop_sys::clock::mono_ns;

use super::{Backend, Books, Replay};
use crate::schedule::Slot;

/// Copies per system call, which waits some 25 ms until its memory has come back: half a second, after which a stop is seen.
const COPIES: u64 = 1 << 20;
/// A port that has counted nothing for so long has taken all that it will: veth empties its ring within microseconds.
const AT_REST_NS: u64 = 50_000_000;
const LOOK: Duration = Duration::from_micros(200);

impl Replay<'_> {
    /// Sends copies of each packet; returns how many were meant to be sent.
    pub(super) fn flood(&mut self, start: u64, stopped: &impl Fn() -> bool) -> u64 {
        let Backend::Flood(sender) = &*self.backend else {
            return self.intended_packets;
        };
        if self.pacer.wait(start, stopped).is_none() {
            return self.intended_packets;
        }
        let begin = mono_ns();
        let packets = self.trace.packets().len();
        let copies = self.plan.slots_of(0) / packets as u64;
        let mut reached = 0;
        for packet in 0..packets {
            let slot = Slot {
                due_ns: 0,
                packet,
                replica: 0,
            };
            if !self.share.has(&slot) {
                continue;
            }
            let frame = self.trace.frame(packet, 0, &mut self.buffer).0;
            let mut count = Count::of(sender, frame.len());
            while count.asked < copies {
                let is_over = self
                    .limit_ns
                    .is_some_and(|limit| mono_ns() >= start + limit);
                if is_over || stopped() || self.books.gone.is_some() {
                    break;
                }
                count.send(frame, COPIES.min(copies - count.asked), &mut self.books);
            }
            count.settle(&mut self.books);
            reached += count.asked;
        }
        self.books.ends_at(mono_ns());
        // Booked only once the first call has ended.
        self.books.first_sent = self.books.first_sent.map(|_| begin);
        if self.limit_ns.is_some() {
            reached
        } else {
            self.intended_packets
        }
    }
}

/// The books of the copies of one packet.
struct Count<'a> {
    sender: &'a FloodSender,
    bytes: usize,
    /// The port's counter before.
    before: u64,
    asked: u64,
    /// Of those, the kernel has run.
    ran: u64,
    booked: u64,
}

impl<'a> Count<'a> {
    fn of(sender: &'a FloodSender, bytes: usize) -> Self {
        Self {
            sender,
            bytes,
            before: sender.tx_packets().unwrap_or(0),
            asked: 0,
            ran: 0,
            booked: 0,
        }
    }

    fn send(&mut self, frame: &[u8], copies: u64, books: &mut Books) {
        self.asked += copies;
        // At most COPIES.
        match self.sender.send(frame, u32::try_from(copies).unwrap_or(0)) {
            Sent::Taken => self.ran += copies,
            Sent::Gone(errno) => books.gone = Some(errno),
            refused => books.book_many(copies, self.bytes, refused, mono_ns()),
        }
        self.book(books);
    }

    /// Books what has left; what the port sends for others is not told apart, so at most what was asked for.
    fn book(&mut self, books: &mut Books) {
        let left = match self.sender.towards() {
            Towards::Host => self.ran,
            Towards::Wire => {
                let counted = self.sender.tx_packets().unwrap_or(self.before);
                counted.saturating_sub(self.before).min(self.ran)
            }
        };
        books.book_many(left - self.booked, self.bytes, Sent::Taken, mono_ns());
        self.booked = left;
    }

    /// Waits until the port counts no further; what it has not counted then, it has not sent.
    fn settle(&mut self, books: &mut Books) {
        let mut moved = mono_ns();
        while self.booked < self.ran && mono_ns() < moved + AT_REST_NS {
            std::thread::sleep(LOOK);
            let before = self.booked;
            self.book(books);
            if self.booked > before {
                moved = mono_ns();
            }
        }
        let lost = self.ran - self.booked;
        if lost > 0 && self.booked == 0 {
            books.gone.get_or_insert(flood::TAKES_NONE);
        }
        books.book_many(lost, self.bytes, flood::LOST, mono_ns());
    }
}
