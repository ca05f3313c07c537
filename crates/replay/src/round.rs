//! The order in which slots go round the replicas: each packet of the trace by every replica that carries it, then the next one.

/// What one pass of all replicas together consists of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Round {
    /// Of the trace.
    packets: usize,
    /// Replicas that carry all of them.
    whole: u32,
    /// Those of the last replica, if it carries some of them only.
    part: Option<Vec<usize>>,
}

/// Where a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Index into the trace.
    pub packet: usize,
    /// 0 is the trace itself.
    pub replica: u32,
    /// Packets that the last replica, if it is not whole, has sent before in this pass.
    pub part_before: usize,
}

impl Round {
    pub fn new(packets: usize, whole: u32, part: Option<Vec<usize>>) -> Self {
        Self {
            packets,
            whole,
            part,
        }
    }

    pub fn replicas(&self) -> u32 {
        self.whole + u32::from(self.part.is_some())
    }

    pub fn whole(&self) -> u32 {
        self.whole
    }

    pub fn part(&self) -> &[usize] {
        self.part.as_deref().unwrap_or_default()
    }

    /// Slots of one pass.
    pub fn slots(&self) -> u64 {
        self.packets as u64 * u64::from(self.whole) + self.part().len() as u64
    }

    /// Packets of the trace that a replica carries.
    pub fn carried(&self, replica: u32) -> usize {
        if replica < self.whole {
            self.packets
        } else {
            self.part().len()
        }
    }

    /// The packet that a replica sends as number `number` of a pass.
    pub fn packet(&self, replica: u32, number: usize) -> usize {
        if replica < self.whole {
            number
        } else {
            self.part()[number]
        }
    }

    /// The turn of slot `slot` of a pass; it must be one of the pass.
    pub fn turn(&self, slot: u64) -> Turn {
        let whole = u64::from(self.whole);
        let part = self.part();
        // The part's own slot comes after those of the whole replicas for the same packet.
        let own = |number: u64| (part[index(number)] as u64 + 1) * whole + number;
        let before = count_below(part.len() as u64, slot, own);
        let part_before = index(before);
        if part_before < part.len() && own(before) == slot {
            return Turn {
                packet: part[part_before],
                replica: self.whole,
                part_before,
            };
        }
        let of_whole = slot - before;
        Turn {
            packet: index(of_whole / whole),
            replica: u32::try_from(of_whole % whole).unwrap_or(0),
            part_before,
        }
    }

    /// The first turn of a pass.
    pub fn first(&self) -> Turn {
        Turn {
            packet: if self.whole > 0 { 0 } else { self.packet(0, 0) },
            replica: 0,
            part_before: 0,
        }
    }

    /// The turn after this one, of the next pass if this is the last.
    pub fn after(&self, turn: Turn) -> Turn {
        let part = self.part();
        let is_in_part = part.get(turn.part_before) == Some(&turn.packet);
        if turn.replica + 1 < self.whole || (turn.replica + 1 == self.whole && is_in_part) {
            return Turn {
                replica: turn.replica + 1,
                ..turn
            };
        }
        let part_before = turn.part_before + usize::from(is_in_part);
        let packet = if self.whole > 0 {
            turn.packet + 1
        } else {
            part.get(part_before).copied().unwrap_or(self.packets)
        };
        if packet == self.packets {
            return self.first();
        }
        Turn {
            packet,
            replica: 0,
            part_before,
        }
    }

    /// Of the first `slots` slots those of one replica.
    pub fn slots_of(&self, replica: u32, slots: u64) -> u64 {
        let (passes, rest) = (slots / self.slots(), slots % self.slots());
        let turn = self.turn(rest);
        let in_rest = if replica < self.whole {
            turn.packet + usize::from(replica < turn.replica)
        } else {
            turn.part_before
        };
        (self.carried(replica) as u64).saturating_mul(passes) + in_rest as u64
    }
}

/// How many of the slots 0..all are due before `limit`; due times never fall.
pub(crate) fn count_below(all: u64, limit: u64, due: impl Fn(u64) -> u64) -> u64 {
    let (mut low, mut high) = (0, all);
    while low < high {
        let middle = low + (high - low) / 2;
        if due(middle) < limit {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Indices into a trace come from its length.
#[expect(clippy::cast_possible_truncation, reason = "see above")]
pub(crate) fn index(packet: u64) -> usize {
    packet as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Turn after turn, or by number: each packet by each replica that carries it, in order.
        #[test]
        fn every_packet_comes_by_every_replica_that_carries_it(
            packets in 1usize..12, whole in 0u32..4, chosen in proptest::collection::vec(any::<bool>(), 12), has_part: bool,
        ) {
            let part: Vec<usize> = (0..packets).filter(|packet| chosen[*packet]).collect();
            prop_assume!(whole > 0 || (has_part && !part.is_empty()));
            let round = Round::new(packets, whole, has_part.then(|| part.clone()));
            let expected: Vec<(usize, u32)> = (0..packets)
                .flat_map(|packet| {
                    let last = u32::from(has_part && part.contains(&packet));
                    (0..whole + last).map(move |replica| (packet, replica))
                })
                .collect();
            prop_assert_eq!(round.slots(), expected.len() as u64);
            let mut turn = round.first();
            for pass in 0..2 {
                for (slot, (packet, replica)) in (0..).zip(&expected) {
                    prop_assert_eq!((turn.packet, turn.replica), (*packet, *replica));
                    prop_assert_eq!(round.turn(slot), turn);
                    for other in 0..round.replicas() {
                        let before = expected[..index(slot)].iter().filter(|(_, of)| *of == other).count();
                        let passes = pass * round.carried(other) as u64;
                        prop_assert_eq!(round.slots_of(other, pass * round.slots() + slot), passes + before as u64);
                    }
                    turn = round.after(turn);
                }
            }
        }
    }
}
