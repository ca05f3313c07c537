//! When sources are due: start + n x interval each, so that a late row does not make the next one late.

use nodrop_proto::{SampleSource, SampleSpec};

/// A set of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due(u16);

impl Due {
    /// Every source there is.
    pub const ALL: Self = Self(u16::MAX);

    pub fn add(&mut self, source: SampleSource) {
        self.0 |= 1 << source as u16;
    }

    pub fn has(self, source: SampleSource) -> bool {
        self.0 & (1 << source as u16) != 0
    }
}

/// Dates of the rows on CLOCK_MONOTONIC: whenever any source is due.
pub struct Schedule {
    start_ns: u64,
    end_ns: Option<u64>,
    dates: Vec<Dates>,
}

/// Of one source.
struct Dates {
    source: SampleSource,
    interval_ns: u64,
    number: u64,
    missed: u64,
}

impl Schedule {
    /// Everything is due at the start.
    pub fn new(start_ns: u64, spec: &SampleSpec) -> Self {
        let dates = SampleSource::ALL.into_iter().map(|source| Dates {
            source,
            interval_ns: spec.interval_of(source).saturating_mul(1_000_000),
            number: 0,
            missed: 0,
        });
        Self {
            start_ns,
            end_ns: spec
                .duration_s
                .map(|s| start_ns.saturating_add(nanoseconds(s))),
            dates: dates.filter(|dates| dates.interval_ns > 0).collect(),
        }
    }

    /// Of the next row; the end if that comes first.
    pub fn due_ns(&self) -> u64 {
        let next = self.dates.iter().map(|dates| dates.at_ns(self.start_ns));
        let due = next.min().unwrap_or(u64::MAX);
        self.end_ns.map_or(due, |end| due.min(end))
    }

    /// The sources whose date has come.
    pub fn due(&self, now_ns: u64) -> Due {
        let mut due = Due::default();
        for dates in &self.dates {
            if dates.at_ns(self.start_ns) <= now_ns {
                due.add(dates.source);
            }
        }
        due
    }

    /// Whether the row taken now is the last by `duration_s`.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.end_ns.is_some_and(|end| now_ns >= end)
    }

    /// How late a row begun now is.
    pub fn lateness_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.due_ns())
    }

    /// After a row of `due`: on to dates that are still ahead; those that have passed meanwhile are missed, not caught up with.
    pub fn advance(&mut self, due: Due, now_ns: u64) {
        let since_start = now_ns.saturating_sub(self.start_ns);
        for dates in self.dates.iter_mut().filter(|dates| due.has(dates.source)) {
            let next = dates.number + 1;
            let ahead = since_start / dates.interval_ns + 1;
            dates.missed += ahead.saturating_sub(next);
            dates.number = next.max(ahead);
        }
    }

    /// Dates of the source that is read most often at which no row was taken because the one before was not done.
    pub fn missed(&self) -> u64 {
        let often = self.dates.iter().min_by_key(|dates| dates.interval_ns);
        often.map_or(0, |dates| dates.missed)
    }
}

impl Dates {
    fn at_ns(&self, start_ns: u64) -> u64 {
        start_ns.saturating_add(self.number.saturating_mul(self.interval_ns))
    }
}

/// For people: f64 holds microseconds of centuries exactly enough.
#[expect(clippy::cast_precision_loss, reason = "a duration that is shown")]
pub fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive; `as` saturates"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_100_ms(more: &str) -> Schedule {
        let spec = serde_json::from_str(&format!("{{\"interval_ms\":100{more}}}")).unwrap();
        Schedule::new(1_000_000_000, &spec)
    }

    fn step(schedule: &mut Schedule, now_ns: u64) {
        let due = schedule.due(now_ns);
        schedule.advance(due, now_ns);
    }

    #[test]
    fn lateness_does_not_add_up() {
        let mut schedule = every_100_ms("");
        assert_eq!(schedule.due_ns(), 1_000_000_000);
        assert_eq!(schedule.lateness_ns(1_030_000_000), 30_000_000);
        step(&mut schedule, 1_040_000_000);
        assert_eq!((schedule.due_ns(), schedule.missed()), (1_100_000_000, 0));
    }

    #[test]
    fn dates_that_have_passed_are_missed() {
        let mut schedule = every_100_ms("");
        step(&mut schedule, 1_350_000_000);
        assert_eq!((schedule.due_ns(), schedule.missed()), (1_400_000_000, 3));
    }

    #[test]
    fn the_duration_ends_with_a_row() {
        let mut schedule = every_100_ms(",\"duration_s\":0.25");
        for _ in 0..3 {
            let due = schedule.due_ns();
            step(&mut schedule, due);
        }
        assert_eq!(schedule.due_ns(), 1_250_000_000);
        assert!(schedule.is_over(1_250_000_000) && !schedule.is_over(1_249_999_999));
    }

    #[test]
    fn each_source_keeps_its_own_dates() {
        use SampleSource::{Cgroup, Cpus, Disks, Links};
        let mut schedule = every_100_ms(",\"every\":{\"cgroup\":10,\"links\":0}");
        let (mut cgroup, mut cpus, mut disks, mut links) = (0, 0, 0, 0);
        while schedule.due_ns() < 3_000_000_000 {
            let now = schedule.due_ns();
            let due = schedule.due(now);
            cgroup += u32::from(due.has(Cgroup));
            cpus += u32::from(due.has(Cpus));
            disks += u32::from(due.has(Disks));
            links += u32::from(due.has(Links));
            schedule.advance(due, now);
        }
        assert_eq!((cgroup, cpus, disks, links), (200, 20, 2, 0));
        assert_eq!(schedule.missed(), 0);
    }
}
