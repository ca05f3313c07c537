//! How often each of many millions of keys occurs, in 16 bytes a key.
//!
//! A hash table of millions of keys misses the cache at each packet. Keys that come often stay in a small table in front; others are appended,
//! sorted by the hundred thousand and merged.

/// Slots of the table in front: 64 KiB.
const RECENT: usize = 4_096;
/// Entries that wait to be merged; later as many as half of the keys known.
const LEAST_WAITING: usize = 1 << 17;

/// Counts keys, which are hashes: each of their bits is as good as any other.
#[derive(Debug)]
pub(crate) struct Tally {
    recent: Box<[Entry]>,
    waiting: Vec<Entry>,
    /// By key, each once.
    counted: Vec<Entry>,
}

/// A key and its count, at least 1; a count of 0 is an empty slot.
type Entry = (u64, u64);

impl Default for Tally {
    fn default() -> Self {
        Self {
            recent: vec![(0, 0); RECENT].into(),
            waiting: Vec::new(),
            counted: Vec::new(),
        }
    }
}

impl Tally {
    /// Counts a key once more.
    pub fn add(&mut self, key: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
        let slot = &mut self.recent[key as usize % RECENT];
        if slot.0 == key {
            slot.1 += 1;
            return;
        }
        let before = std::mem::replace(slot, (key, 1));
        if before.1 > 0 {
            self.waiting.push(before);
            if self.waiting.len() >= LEAST_WAITING.max(self.counted.len() / 2) {
                self.merge();
            }
        }
    }

    /// The keys with their counts, in order.
    pub fn counts(mut self) -> Vec<Entry> {
        let recent = std::mem::take(&mut self.recent);
        self.waiting
            .extend(recent.iter().filter(|(_, count)| *count > 0));
        self.merge();
        self.counted
    }

    fn merge(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_unstable_by_key(|(key, _)| *key);
        let mut all = std::mem::take(&mut self.counted);
        all.append(&mut waiting);
        self.waiting = waiting;
        self.counted = sums(all);
    }
}

/// Entries by key, each key once. Two sorted runs are merged in one pass.
pub(crate) fn sums(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|(key, _)| *key);
    entries.dedup_by(|other, kept| {
        let is_same = other.0 == kept.0;
        kept.1 += if is_same { other.1 } else { 0 };
        is_same
    });
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn keys_are_counted_however_many_there_are_and_however_often_they_come() {
        for (keys, times, step) in [
            (3_u64, 9, 1),
            (10_000, 5, 0x9e37_79b9),
            (400_000, 3, 1 << 20),
        ] {
            let mut tally = Tally::default();
            let mut expected = BTreeMap::new();
            for number in 0..keys * times {
                // Some come `times` times, some more often.
                let key = (number % keys / (1 + number % 2)).wrapping_mul(step);
                tally.add(key);
                *expected.entry(key).or_insert(0) += 1;
            }
            assert_eq!(tally.counts(), expected.into_iter().collect::<Vec<_>>());
        }
        assert_eq!(Tally::default().counts(), []);
    }
}
