//! When packets really left: so many in each bin of time, from the start of the replay on.

/// Bins of one length; when they run out, two neighbours become one. Nothing in here allocates once it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentProfile {
    /// Begin of the first bin, which ports that send together have in common.
    pub first_mono_ns: u64,
    /// Length of a bin.
    pub bin_ns: u64,
    /// Packets of each bin, the last one with packets included.
    pub packets: Vec<u64>,
    /// End of the last of them.
    end_mono_ns: u64,
}

impl Default for SentProfile {
    /// Empty, with room for all bins.
    fn default() -> Self {
        Self {
            first_mono_ns: 0,
            bin_ns: Self::BIN_NS,
            packets: Vec::with_capacity(Self::MOST),
            end_mono_ns: 0,
        }
    }
}

impl SentProfile {
    /// Length of a bin while they suffice.
    pub const BIN_NS: u64 = 1_000_000;
    /// Bins at most: 8 s of the shortest.
    pub const MOST: usize = 8_192;

    /// Sets the begin of the first bin, before any packet.
    pub fn begins_at(&mut self, mono_ns: u64) {
        (self.first_mono_ns, self.end_mono_ns) = (mono_ns, mono_ns);
    }

    /// Books packets that left at `now`, which is no earlier than that of those before.
    pub fn add(&mut self, packets: u64, now: u64) {
        while now >= self.end_mono_ns {
            if self.packets.len() == Self::MOST {
                self.double();
            } else {
                self.packets.push(0);
                self.end_mono_ns = self.end_mono_ns.saturating_add(self.bin_ns);
            }
        }
        if let Some(last) = self.packets.last_mut() {
            *last += packets;
        }
    }

    /// Adds the bins of another port.
    pub fn join(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.bin_ns < other.bin_ns {
            self.double();
        }
        while other.bin_ns < self.bin_ns {
            other.double();
        }
        let bins = self.packets.len().max(other.packets.len());
        self.packets.resize(bins, 0);
        for (to, from) in self.packets.iter_mut().zip(&other.packets) {
            *to += from;
        }
        self.end_mono_ns = self.end_mono_ns.max(other.end_mono_ns);
    }

    fn double(&mut self) {
        let bins = self.packets.len();
        for bin in 0..bins.div_ceil(2) {
            let pair = &self.packets[2 * bin..bins.min(2 * bin + 2)];
            self.packets[bin] = pair.iter().sum();
        }
        if bins % 2 == 1 {
            self.end_mono_ns = self.end_mono_ns.saturating_add(self.bin_ns);
        }
        self.packets.truncate(bins.div_ceil(2));
        self.bin_ns = self.bin_ns.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = SentProfile::BIN_NS;
    const START: u64 = 5_000_000_007;

    fn profile(sent: &[(u64, u64)]) -> SentProfile {
        let mut profile = SentProfile::default();
        profile.begins_at(START);
        (sent.iter()).for_each(|(at, packets)| profile.add(*packets, START + at));
        profile
    }

    #[test]
    fn a_packet_is_in_the_bin_of_its_time() {
        let profile = profile(&[(0, 1), (MS - 1, 2), (MS, 4), (4 * MS, 8)]);
        assert_eq!(
            (profile.first_mono_ns, profile.bin_ns, profile.packets),
            (START, MS, vec![3, 4, 0, 0, 8])
        );
    }

    #[test]
    fn bins_that_run_out_are_doubled_in_place() {
        let mut full = profile(&[]);
        let place = full.packets.as_ptr();
        (0..8_192).for_each(|bin| full.add(1, START + bin * MS));
        assert_eq!((full.bin_ns, full.packets.len()), (MS, 8_192));
        full.add(5, START + 8_192 * MS);
        assert_eq!((full.bin_ns, full.packets.len()), (2 * MS, 4_097));
        assert_eq!((full.packets[4_095], full.packets[4_096]), (2, 5));
        // An hour later: 3,600,000 bins of 1 ms are 7,032 of 512 ms.
        full.add(7, START + 3_600_000 * MS);
        assert_eq!((full.bin_ns, full.packets.len()), (512 * MS, 7_032));
        assert_eq!(full.packets.iter().sum::<u64>(), 8_192 + 5 + 7);
        assert_eq!(
            (full.packets.as_ptr(), full.packets.capacity()),
            (place, 8_192)
        );
    }

    proptest! {
        /// However long the bins have become, they hold what one pass over all times at that length counts.
        #[test]
        fn ports_join_to_what_one_would_have_booked(
            mut sent in proptest::collection::vec((0u64..40_000, 1u64..9, 0usize..3), 1..60),
        ) {
            sent.sort_unstable();
            let mut ports = [0, 1, 2].map(|port| {
                let of_port = sent.iter().filter(|one| one.2 == port);
                profile(&of_port.map(|(at, packets, _)| (at * MS / 2, *packets)).collect::<Vec<_>>())
            });
            let [first, others @ ..] = &mut ports;
            others.iter().for_each(|other| first.join(other));
            let bins = |length: u64| {
                let mut bins = vec![0; 1 + usize::try_from(sent[sent.len() - 1].0 * MS / 2 / length).unwrap_or(0)];
                for (at, packets, _) in &sent {
                    bins[usize::try_from(at * MS / 2 / length).unwrap_or(0)] += packets;
                }
                bins
            };
            prop_assert_eq!(&first.packets, &bins(first.bin_ns));
            prop_assert!(first.packets.len() <= SentProfile::MOST);
            prop_assert!(first.bin_ns == MS || bins(first.bin_ns / 2).len() > SentProfile::MOST);
            prop_assert!(first.end_mono_ns == START + first.bin_ns * first.packets.len() as u64);
        }
    }
}
