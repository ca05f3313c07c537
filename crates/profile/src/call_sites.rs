//! Where a thread's waits were called from, beyond functions that keep no frame pointer.
//!
//! A copy of the stack at every switch would cost too much: a worker that its packets wake one by one leaves its CPU 20,000 times a
//! second. So if there are many, ten in each look into the rings have one, and what all of them waited is shared out by those.

use std::collections::{HashMap, VecDeque};
use std::io;

use foldhash::fast::RandomState;
use nodrop_sys::perf::{Event, Every, Record, Samples};

use crate::addresses::StackId;
use crate::rings::{STACK_BYTES, ring_pages};
use crate::stacks::Shared;

/// 99 a second, if the rings are looked into ten times a second.
const IN_EACH_LOOK: u64 = 10;
/// So many are all copied, and nothing is shared out: the ring holds them. In one look there are no more copies, for a thread that begins a
/// burst between two looks would fill the ring of its switches with the room that their copies take.
const FEW: u32 = 50;

/// Of one thread.
#[derive(Debug)]
pub struct CallSites {
    samples: Samples,
    /// One switch in so many has a copy of the stack.
    one_in: u64,
    chance: u64,
    /// Switches in a look, forgotten by and by.
    recent: u64,
    /// When, and the whole stack; those whose wait has not ended.
    ahead: VecDeque<(u64, StackId)>,
    /// By the stack that is known of every wait: whole stacks, with their weight in time and in number.
    found: HashMap<StackId, HashMap<StackId, Weight, RandomState>, RandomState>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Weight {
    ns: u64,
    times: u64,
}

impl CallSites {
    /// # Errors
    /// If it is not permitted.
    pub fn open(tid: u32) -> io::Result<Self> {
        let pages = ring_pages(99, STACK_BYTES);
        let samples = Samples::open(
            Event::Switches,
            tid,
            Every::Count(1),
            true,
            pages,
            STACK_BYTES,
        )?;
        samples.allow(FEW)?;
        Ok(Self {
            samples,
            one_in: 1,
            recent: 0,
            chance: u64::from(tid) | 1,
            ahead: VecDeque::new(),
            found: HashMap::default(),
        })
    }

    /// Takes what is in its ring; before the ring of all switches is looked into.
    pub fn drain(&mut self, shared: &mut Shared<'_>) {
        let (ahead, mut copied) = (&mut self.ahead, 0);
        self.samples.drain(|record| match record {
            Record::Sample {
                mono_ns,
                addresses,
                program,
            } => {
                ahead.push_back((mono_ns, shared.stack(addresses, program)));
                copied += 1;
            }
            Record::Lost(count) => copied += count,
            _ => {}
        });
        if copied > 0 {
            // If it is refused, the waits still have their times.
            let _ = (self.samples).allow(u32::try_from(copied).map_or(FEW, |n: u32| n.min(FEW)));
        }
    }

    /// A wait of this stack, between the times at which the thread took a CPU. The kernel may write the copy before or after the record
    /// that the thread left.
    pub fn waited(&mut self, took_ns: u64, back_ns: u64, stack: StackId, ns: u64) {
        let mut last = None;
        while self
            .ahead
            .front()
            .is_some_and(|(at_ns, _)| *at_ns <= back_ns)
        {
            last = self.ahead.pop_front();
        }
        // What is older belongs to a switch whose records were lost.
        if let Some((_, whole)) = last.filter(|(at_ns, _)| *at_ns > took_ns) {
            let of = self.found.entry(stack).or_default();
            let weight = of.entry(whole).or_default();
            weight.ns += ns.saturating_mul(self.one_in);
            weight.times += self.one_in;
        }
    }

    /// The thread left its CPU so many times since the last look. The next interval between samples is drawn, for a thread that
    /// waits in turns in two places would else show the same one each time.
    pub fn aim(&mut self, switches: u64) {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        // A thread that stood still for a look may run on in bursts.
        self.recent = switches.max(self.recent - self.recent / 8);
        let one_in = one_in(self.recent, self.chance);
        if one_in != self.one_in && self.samples.set_count(one_in).is_ok() {
            self.one_in = one_in;
        }
    }

    /// What waits of this stack took together, by whole stacks. The sums stay.
    pub fn share_out(&self, stack: StackId, ns: u64, times: u64) -> Vec<(StackId, u64, u64)> {
        let Some(found) = self.found.get(&stack) else {
            return vec![(stack, ns, times)];
        };
        let mut found: Vec<_> = found
            .iter()
            .map(|(&whole, &weight)| (whole, weight))
            .collect();
        found.sort_unstable_by_key(|(whole, _)| *whole);
        let ns = shares(ns, &found, |weight| weight.ns);
        let times = shares(times, &found, |weight| weight.times);
        let parts = found.iter().zip(ns.zip(times));
        parts
            .map(|((whole, _), (ns, times))| (*whole, ns, times))
            .collect()
    }
}

/// Odd, from a half to one and a half of what gives so many samples: a thread often waits in two places in turns.
fn one_in(switches: u64, chance: u64) -> u64 {
    if switches <= u64::from(FEW) {
        return 1;
    }
    let even = switches / IN_EACH_LOOK;
    (even / 2 + chance % even) | 1
}

/// Parts of a whole by weight; what rounding leaves goes on to the next.
fn shares(
    whole: u64,
    of: &[(StackId, Weight)],
    by: impl Fn(&Weight) -> u64,
) -> impl Iterator<Item = u64> {
    let total: u128 = of.iter().map(|(_, weight)| u128::from(by(weight))).sum();
    let (mut weighed, mut given) = (0, 0);
    let weights: Vec<_> = of
        .iter()
        .map(|(_, weight)| u128::from(by(weight)))
        .collect();
    weights.into_iter().map(move |weight| {
        weighed += weight;
        let until = (u128::from(whole) * weighed).checked_div(total);
        let until = until.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
        let part = until - given;
        given = until;
        part
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation)]
    use super::*;

    fn weights(of: &[u64]) -> Vec<(StackId, Weight)> {
        let weight = |(at, &ns): (usize, &u64)| (at as StackId, Weight { ns, times: 1 });
        of.iter().enumerate().map(weight).collect()
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        for (whole, of, expected) in [
            (100, &[1, 1][..], vec![50, 50]),
            (10, &[1, 1, 1], vec![3, 3, 4]),
            (
                u64::MAX,
                &[1 << 60, 1 << 60],
                vec![u64::MAX / 2, u64::MAX / 2 + 1],
            ),
            (7, &[0, 5], vec![0, 7]),
        ] {
            let parts: Vec<_> = shares(whole, &weights(of), |weight| weight.ns).collect();
            assert_eq!(parts, expected);
        }
    }

    #[test]
    fn a_wait_is_rarely_copied_if_waits_are_many() {
        assert_eq!([0, 5, 50].map(|switches| one_in(switches, 12_345)), [1; 3]);
        assert!((51..99).all(|switches| one_in(switches, 12_345) % 2 == 1));
        let drawn: Vec<_> = (0..1000).map(|chance| one_in(2000, chance)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&101), Some(&299))
        );
    }
}
