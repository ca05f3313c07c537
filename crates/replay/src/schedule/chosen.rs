//! The slots of some packets of a trace alone: what is asked of a few packets does not cost a walk over all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Plan, Slot};
use crate::load::InTurn;
use crate::round::index;
use crate::trace::Trace;

impl Plan {
    /// The slots of the packets with these numbers, which grow, in the order of [`Plan::slots`].
    pub fn slots_of_packets<'a>(
        &'a self,
        trace: &'a Trace,
        packets: &'a [usize],
    ) -> Box<dyn Iterator<Item = Slot> + 'a> {
        match &self.in_turn {
            None => Box::new(self.by_time(trace, packets)),
            Some(in_turn) => Box::new(self.by_turn(in_turn, packets)),
        }
    }

    fn by_turn<'a>(
        &'a self,
        in_turn: &'a InTurn,
        packets: &'a [usize],
    ) -> impl Iterator<Item = Slot> + 'a {
        let (round, all) = (&self.round, self.counts[0]);
        let (whole, part) = (u64::from(round.whole()), round.part());
        let carried: Vec<usize> = (packets.iter().copied())
            .filter(|packet| whole > 0 || part.binary_search(packet).is_ok())
            .collect();
        let passes = if carried.is_empty() {
            0
        } else {
            all.div_ceil(round.slots())
        };
        let of_pass = move |pass: u64| {
            let begin = pass * round.slots();
            carried.clone().into_iter().flat_map(move |packet| {
                let (before, is_in_part) = match part.binary_search(&packet) {
                    Ok(before) => (before, true),
                    Err(before) => (before, false),
                };
                let first = begin + packet as u64 * whole + before as u64;
                let replicas = round.whole() + u32::from(is_in_part);
                (0..replicas)
                    .map(move |replica| (first + u64::from(replica), packet, replica, pass))
            })
        };
        (0..passes)
            .flat_map(of_pass)
            .take_while(move |(slot, ..)| *slot < all)
            .map(move |(slot, packet, replica, pass)| Slot {
                due_ns: in_turn.due_ns(slot, round),
                packet,
                replica,
                copy: self.copy(replica, pass),
            })
    }

    fn by_time<'a>(
        &'a self,
        trace: &'a Trace,
        packets: &[usize],
    ) -> impl Iterator<Item = Slot> + 'a {
        // Their numbers within a pass: of a replica that carries all, and of one that carries a part.
        let part = self.round.part();
        let numbers = [
            packets.to_vec(),
            (packets.iter())
                .filter_map(|packet| part.binary_search(packet).ok())
                .collect(),
        ];
        // When number `nth` of those of a replica is due, and its slot.
        let due = move |replica: u32, nth: u64| {
            let numbers = &numbers[usize::from(replica >= self.round.whole())];
            let pass = nth.checked_div(numbers.len() as u64)?;
            let number = numbers[index(nth % numbers.len() as u64)];
            let slot = pass * self.round.carried(replica) as u64 + number as u64;
            let which = replica as usize;
            (slot < self.counts[which]).then(|| {
                let after = self.timing_ns(trace, replica, slot);
                (self.offsets_ns[which].saturating_add(after), slot)
            })
        };
        let firsts = (0..self.replicas())
            .filter_map(|replica| Some(Reverse((due(replica, 0)?.0, replica, 0))));
        let mut queue: BinaryHeap<Reverse<(u64, u32, u64)>> = firsts.collect();
        std::iter::from_fn(move || {
            let Reverse((due_ns, replica, nth)) = queue.pop()?;
            let (_, slot) = due(replica, nth)?;
            if let Some((next_ns, _)) = due(replica, nth + 1) {
                queue.push(Reverse((next_ns, replica, nth + 1)));
            }
            Some(self.slot(due_ns, replica, slot))
        })
    }
}
