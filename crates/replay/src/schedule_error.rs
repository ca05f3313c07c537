//! How far from their schedule packets left: a histogram and its figures.

use hdrhistogram::Histogram;

/// Schedule errors are kept to three digits up to this many ns; the maximum is exact.
const LONGEST_ERROR_NS: u64 = 100_000_000_000;

/// |sent - due| over the packets that were offered to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleErrorNs {
    /// Median.
    pub p50: u64,
    /// 99 % are below.
    pub p99: u64,
    /// 99.9 % are below.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// All schedule errors.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleErrors {
    histogram: Histogram<u64>,
    largest: u64,
}

impl Default for ScheduleErrors {
    fn default() -> Self {
        // Bounds and digits are constants that the histogram takes.
        let histogram = Histogram::new_with_bounds(1, LONGEST_ERROR_NS, 3)
            .unwrap_or_else(|error| unreachable!("{error:?}"));
        Self {
            histogram,
            largest: 0,
        }
    }
}

impl ScheduleErrors {
    /// Counts one.
    pub fn record(&mut self, error_ns: u64) {
        self.largest = self.largest.max(error_ns);
        self.histogram.saturating_record(error_ns);
    }

    /// Adds those of another port.
    pub fn join(&mut self, other: &Self) {
        self.largest = self.largest.max(other.largest);
        // Fails only if the bounds differ, and they are all the same.
        let _ = self.histogram.add(&other.histogram);
    }

    /// `None` at top speed, and if nothing was offered.
    #[must_use]
    pub fn summary(&self) -> Option<ScheduleErrorNs> {
        // The histogram says the upper end of a bucket, which may lie above the largest value.
        let quantile = |q| self.histogram.value_at_quantile(q).min(self.largest);
        (!self.histogram.is_empty()).then(|| ScheduleErrorNs {
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.largest,
        })
    }
}
