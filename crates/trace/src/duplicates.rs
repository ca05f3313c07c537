//! Packets that a capture holds twice: a mirror port that copies both directions, `any` on a bond, two interfaces of one host.

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use nodrop_wire::view;

/// A copy follows its packet within microseconds, hardly ever later than this; what a sender repeats comes later.
pub const WITHIN_NS: u64 = 2_000_000;

/// Sees packet after packet, in the order of their time.
#[derive(Debug, Default)]
pub struct Duplicates {
    hasher: FixedState,
    order: VecDeque<(u64, u64)>,
    recent: HashSet<u64, FixedState>,
}

impl Duplicates {
    /// Whether an equal packet was there at most [`WITHIN_NS`] before. Headers of the link and padding behind the datagram do not count:
    /// copies differ in them.
    pub fn has(&mut self, at_ns: u64, frame: &[u8]) -> bool {
        while let Some((before_ns, hash)) = self.order.front()
            && at_ns.saturating_sub(*before_ns) > WITHIN_NS
        {
            self.recent.remove(hash);
            self.order.pop_front();
        }
        let hash = match (view::link(frame), view::network(frame)) {
            (_, Some(ip)) => self.hasher.hash_one(&frame[ip.offset..ip.end]),
            (Some(link), None) => {
                let rest = frame.get(link.offset..).unwrap_or_default();
                self.hasher.hash_one((link.ethertype, rest))
            }
            (None, None) => self.hasher.hash_one(frame),
        };
        if !self.recent.insert(hash) {
            return true;
        }
        self.order.push_back((at_ns, hash));
        false
    }
}
