//! What the sending loop counts: packets by their fate, intervals, and how late each packet left.

use std::sync::atomic::{AtomicU64, Ordering};

use nodrop_io::tx::Sent;

use crate::lateness::Lateness;
use crate::outcome::{Achieved, Outcome, Spent};
use crate::sent_profile::SentProfile;

/// One more than the largest errno of Linux.
const ERRNOS: usize = 134;

/// Counters by their meaning; nothing in here allocates once it is made.
pub struct Books<'a> {
    pub sent_packets: u64,
    sent_bytes: u64,
    not_rewritten_packets: u64,
    refused: [u64; ERRNOS],
    pub first_sent: Option<u64>,
    last_sent: u64,
    lateness: Lateness,
    /// Whether packets have times to be late for.
    pub paced: bool,
    achieved: Achieved,
    sent_profile: SentProfile,
    /// End of the interval at hand, what was sent before it, and the largest error within.
    interval_end: u64,
    before_interval: (u64, u64),
    interval_error: u64,
    /// Where others may read `sent_packets`.
    pub seen_by: Option<&'a AtomicU64>,
    /// Why nothing can be sent any more.
    pub gone: Option<i32>,
}

impl Books<'_> {
    pub fn new(lateness: Lateness) -> Self {
        Self {
            sent_packets: 0,
            sent_bytes: 0,
            not_rewritten_packets: 0,
            refused: [0; ERRNOS],
            first_sent: None,
            last_sent: 0,
            lateness,
            paced: true,
            achieved: Achieved {
                packets: Vec::with_capacity(Achieved::MOST),
                bytes: Vec::with_capacity(Achieved::MOST),
                largest_error_ns: Vec::with_capacity(Achieved::MOST),
            },
            sent_profile: SentProfile::default(),
            interval_end: u64::MAX,
            before_interval: (0, 0),
            interval_error: 0,
            seen_by: None,
            gone: None,
        }
    }

    /// The replay begins then: before the first packet.
    pub fn begins_at(&mut self, start_mono_ns: u64) {
        self.interval_end = start_mono_ns + Achieved::INTERVAL_NS;
        self.sent_profile.begins_at(start_mono_ns);
    }

    /// Ends the intervals that are over.
    fn tick(&mut self, now: u64) {
        while now >= self.interval_end {
            self.interval_end += Achieved::INTERVAL_NS;
            self.end_interval();
        }
    }

    fn end_interval(&mut self) {
        if let Some(seen_by) = self.seen_by {
            seen_by.store(self.sent_packets, Ordering::Relaxed);
        }
        // The room was taken before: past it, nothing is kept.
        if self.achieved.packets.len() == Achieved::MOST {
            return;
        }
        let (packets, bytes) = self.before_interval;
        self.achieved.packets.push(self.sent_packets - packets);
        self.achieved.bytes.push(self.sent_bytes - bytes);
        if self.paced {
            self.achieved.largest_error_ns.push(self.interval_error);
        }
        self.interval_error = 0;
        self.before_interval = (self.sent_packets, self.sent_bytes);
    }

    /// A packet is about to be offered at `now`.
    pub fn leaves(&mut self, due: u64, now: u64) {
        self.tick(now);
        let late = self.lateness.leaves(due, now);
        self.interval_error = self.interval_error.max(late);
    }

    pub fn offers(&mut self, as_is: bool) {
        self.not_rewritten_packets += u64::from(as_is);
    }

    pub fn book(&mut self, bytes: usize, sent: Sent, now: u64) {
        self.book_many(1, bytes, sent, now);
    }

    /// Books packets of one length and fate.
    pub fn book_many(&mut self, packets: u64, bytes: usize, sent: Sent, now: u64) {
        self.tick(now);
        match sent {
            Sent::Taken if packets == 0 => {}
            Sent::Taken => {
                self.sent_packets += packets;
                self.sent_bytes += packets * bytes as u64;
                self.first_sent.get_or_insert(now);
                self.last_sent = now;
                self.sent_profile.add(packets, now);
            }
            Sent::Full(errno) | Sent::Unfit(errno) => {
                let slot = usize::try_from(errno).unwrap_or(0).min(ERRNOS - 1);
                self.refused[slot] += packets;
            }
            Sent::Gone(errno) => self.gone = Some(errno),
        }
    }

    /// At top speed the clock is read once in a while; the end is read in any case.
    pub fn ends_at(&mut self, now: u64) {
        if self.sent_packets > 0 {
            self.last_sent = now;
        }
    }

    pub fn closed(mut self, intended_packets: u64, spent: Spent) -> Outcome {
        self.end_interval();
        let refused = (0..).zip(self.refused).filter(|(_, packets)| *packets > 0);
        Outcome {
            intended_packets,
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            refused_packets: refused.collect(),
            not_rewritten_packets: self.not_rewritten_packets,
            first_sent_mono_ns: self.first_sent,
            last_sent_mono_ns: self.first_sent.map(|_| self.last_sent),
            schedule_errors: self.lateness.errors,
            asked_errors: self.lateness.asked_errors,
            late_bursts: self.lateness.bursts.closed(),
            shaping: self.lateness.shaping,
            spent,
            achieved: self.achieved,
            sent_profile: self.sent_profile,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bursts::LateBursts;
    use crate::lateness::Shaping;
    use crate::schedule_error::ScheduleErrors;

    #[test]
    fn every_outcome_of_a_send_is_booked_once() {
        let mut books = Books::new(Lateness::new(false, 0));
        books.begins_at(1_505);
        let seen = AtomicU64::new(0);
        books.seen_by = Some(&seen);
        books.leaves(10, 1_510);
        books.offers(true);
        books.book(60, Sent::Taken, 1_510);
        books.offers(false);
        books.book(60, Sent::Full(105), 1_520);
        books.book(9000, Sent::Unfit(90), 1_530);
        books.book(9000, Sent::Unfit(90), 1_540);
        let later = 1_505 + 2 * Achieved::INTERVAL_NS;
        books.book(100, Sent::Taken, later);
        assert_eq!(books.gone, None);
        books.book(60, Sent::Gone(100), later);
        assert_eq!(books.gone, Some(100));
        let mut schedule_errors = ScheduleErrors::default();
        schedule_errors.record(1_500);
        let spent = Spent {
            cpu_ns: 77,
            ns: 99,
            spun_ns: 88,
        };
        let mut sent_profile = SentProfile::default();
        sent_profile.begins_at(1_505);
        sent_profile.add(1, 1_510);
        sent_profile.add(1, later);
        assert_eq!(
            books.closed(6, spent),
            Outcome {
                intended_packets: 6,
                sent_packets: 2,
                sent_bytes: 160,
                refused_packets: BTreeMap::from([(90, 2), (105, 1)]),
                not_rewritten_packets: 1,
                first_sent_mono_ns: Some(1_510),
                last_sent_mono_ns: Some(later),
                asked_errors: schedule_errors.clone(),
                schedule_errors,
                late_bursts: LateBursts::default(),
                shaping: Shaping::default(),
                spent,
                achieved: Achieved {
                    packets: vec![1, 0, 1],
                    bytes: vec![60, 0, 100],
                    largest_error_ns: vec![1_500, 0, 0],
                },
                sent_profile,
            }
        );
    }

    #[test]
    fn nothing_sent_has_no_times() {
        let outcome = Books::new(Lateness::new(false, 0)).closed(3, Spent::default());
        assert_eq!(
            (outcome.first_sent_mono_ns, outcome.last_sent_mono_ns),
            (None, None)
        );
        assert_eq!(outcome.schedule_errors.summary(), None);
    }
}
