//! Packets that left late in one go: what a sender that was stopped makes arrive at once. Nothing is allocated after the start.

/// Packets that leave later than this are late together: a burst begins. Replicas leave up to 200 us after their time on purpose.
pub const LATE_NS: u64 = 500_000;
/// Bursts kept: the largest.
pub const MOST_BURSTS: usize = 64;

/// Late packets that left in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateBurst {
    /// When the first of them left.
    pub begin_mono_ns: u64,
    /// When the last of them left.
    pub end_mono_ns: u64,
    /// The largest schedule error among them.
    pub late_ns: u64,
    /// Packets that should have left before it began, less the most of them that were asked for back to back anyway.
    pub packets: u64,
}

/// All late bursts: how many, and the largest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LateBursts {
    /// Of at least one packet.
    pub bursts: u64,
    /// Sum of theirs.
    pub packets: u64,
    /// The largest, at most [`MOST_BURSTS`], in no order.
    pub largest: Vec<LateBurst>,
}

impl LateBursts {
    fn with_room() -> Self {
        Self {
            largest: Vec::with_capacity(MOST_BURSTS),
            ..Self::default()
        }
    }

    fn add(&mut self, burst: LateBurst) {
        self.bursts += 1;
        self.packets += burst.packets;
        self.keep(burst);
    }

    fn keep(&mut self, burst: LateBurst) {
        if self.largest.len() < MOST_BURSTS {
            return self.largest.push(burst);
        }
        let smallest = self.largest.iter_mut().min_by_key(|kept| kept.packets);
        if let Some(smallest) = smallest.filter(|kept| kept.packets < burst.packets) {
            *smallest = burst;
        }
    }

    /// Adds those of another port.
    pub fn join(&mut self, other: &Self) {
        self.bursts += other.bursts;
        self.packets += other.packets;
        other.largest.iter().for_each(|burst| self.keep(*burst));
    }
}

/// Follows late packets in their order, and keeps the bursts they make.
#[derive(Debug)]
pub struct Bursts {
    under_way: Option<Burst>,
    ended: LateBursts,
}

impl Bursts {
    /// Room for the largest.
    pub fn with_room() -> Self {
        Self {
            under_way: None,
            ended: LateBursts::with_room(),
        }
    }

    /// A packet leaves at `now_ns`, late by `late_ns`; `in_a_row` if it was asked for back to back with the one before, which
    /// left at `before_ns`.
    pub fn follow(
        &mut self,
        late_ns: u64,
        feasible_ns: u64,
        in_a_row: bool,
        before_ns: u64,
        now_ns: u64,
    ) {
        // A pause inside a burst ends it: what was due in the pause leaves at once after it.
        let paused = now_ns.saturating_sub(before_ns) > LATE_NS;
        if late_ns <= LATE_NS || paused {
            self.end();
        }
        if late_ns > LATE_NS {
            let burst = self.under_way.get_or_insert_with(|| Burst::from(now_ns));
            burst.add(late_ns, feasible_ns, in_a_row, now_ns);
        }
    }

    fn end(&mut self) {
        if let Some(burst) = self.under_way.take().map(Burst::done) {
            if burst.packets > 0 {
                self.ended.add(burst);
            }
        }
    }

    /// All of them, once no packet follows.
    pub fn closed(mut self) -> LateBursts {
        self.end();
        self.ended
    }
}

/// A burst under way.
#[derive(Debug)]
struct Burst {
    begin_ns: u64,
    last_ns: u64,
    late_ns: u64,
    /// Packets that should have left before it began; of them the run at hand of those asked for back to back, and the longest.
    owed: u64,
    run: u64,
    longest_run: u64,
}

impl Burst {
    fn from(begin_ns: u64) -> Self {
        Self {
            begin_ns,
            last_ns: begin_ns,
            late_ns: 0,
            owed: 0,
            run: 0,
            longest_run: 0,
        }
    }

    fn add(&mut self, late_ns: u64, feasible_ns: u64, in_a_row: bool, now_ns: u64) {
        self.last_ns = now_ns;
        self.late_ns = self.late_ns.max(late_ns);
        if feasible_ns <= self.begin_ns {
            self.owed += 1;
            self.run = if in_a_row { self.run + 1 } else { 1 };
            self.longest_run = self.longest_run.max(self.run);
        }
    }

    fn done(self) -> LateBurst {
        LateBurst {
            begin_mono_ns: self.begin_ns,
            end_mono_ns: self.last_ns,
            late_ns: self.late_ns,
            packets: self.owed - self.longest_run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_bursts_are_kept() {
        let mut bursts = LateBursts::with_room();
        let burst = |packets| LateBurst {
            begin_mono_ns: packets,
            end_mono_ns: packets,
            late_ns: 1,
            packets,
        };
        (1..=100).for_each(|packets| bursts.add(burst(packets)));
        assert_eq!((bursts.bursts, bursts.packets), (100, 5_050));
        assert_eq!(bursts.largest.len(), MOST_BURSTS);
        assert_eq!(
            bursts.largest.iter().map(|kept| kept.packets).min(),
            Some(37)
        );
        let mut all = LateBursts::with_room();
        all.join(&bursts);
        all.join(&bursts);
        assert_eq!((all.bursts, all.largest.len()), (200, MOST_BURSTS));
        assert_eq!(all.largest.iter().map(|kept| kept.packets).min(), Some(69));
    }
}
