//! Copies of one frame by flood, booked by what the port has counted.

use std::time::Duration;

use nodrop_io::flood::{self, FloodSender, Towards};
use nodrop_io::tx::Sent;
use nodrop_sys::clock::mono_ns;

use crate::books::Books;

/// Copies per system call, which waits some 25 ms until its memory has come back: half a second, after which a stop is seen.
const COPIES: u64 = 1 << 20;
/// A port that has counted nothing for so long has taken all that it will: veth empties its ring within microseconds.
const AT_REST_NS: u64 = 50_000_000;
const LOOK: Duration = Duration::from_micros(200);

/// Sends copies of a frame until `is_over`; returns how many were meant to be sent.
pub fn send(
    sender: &FloodSender,
    frame: &[u8],
    copies: u64,
    books: &mut Books,
    is_over: impl Fn() -> bool,
) -> u64 {
    let mut count = Count::of(sender, frame.len());
    while count.asked < copies && !is_over() && books.gone.is_none() {
        count.send(frame, COPIES.min(copies - count.asked), books);
    }
    count.settle(books);
    count.asked
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

    /// Books what has left; the port counts what it sends for others too, so at most what was asked for.
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
