//! What a reader of the result alone needs: first and last reading, peaks, and what the sampler itself took.

use hdrhistogram::Histogram;
use nodrop_counters::{Cgroup, CpuTimes, ProcessReading, TreeTotals};
use nodrop_proto::{Percentiles, SampleSpec};
use nodrop_sys::clock::{process_cpu_ns, thread_cpu_ns};
use schemars::JsonSchema;
use serde::Serialize;

use super::levels::LevelsResult;
use super::row::Row;
use super::schedule::{Schedule, microseconds};
use super::speed::SpeedResult;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
pub struct SampleResult {
    rows: usize,
    missed_rows: u64,
    interval_ms: u64,
    path: Option<std::path::PathBuf>,
    lateness_us: Option<Percentiles>,
    cost_us: Option<Percentiles>,
    rows_cpu_s: f64,
    cpu_s: f64,
    first: Option<Edge>,
    last: Option<Edge>,
    host_busy_ratio: Option<f64>,
    host_steal_ratio: Option<f64>,
    tree_cpu_s: Option<f64>,
    tree_rss_peak_bytes: u64,
    processes: Vec<ProcessReading>,
    /// `None` if the spec asks for none.
    levels: Option<LevelsResult>,
    speeds: Vec<SpeedResult>,
}

/// One end of the time that was sampled.
#[derive(Clone, JsonSchema, Serialize)]
#[schemars(rename = "SampleEdge")]
struct Edge {
    mono_ns: u64,
    cpus: Vec<CpuTimes>,
    tree: TreeTotals,
    cgroup: Option<Cgroup>,
}

impl Edge {
    fn of(row: &Row) -> Self {
        Self {
            mono_ns: row.mono_ns,
            cpus: row.cpus.to_vec(),
            tree: *row.tree,
            cgroup: *row.cgroup,
        }
    }

    fn host(&self, part: fn(&CpuTimes) -> u64) -> u64 {
        self.cpus.iter().map(part).sum()
    }
}

/// Kept while rows come.
pub struct Summary {
    rows: usize,
    lateness_ns: Histogram<u64>,
    cost_ns: Histogram<u64>,
    rows_cpu_ns: u64,
    begun_cpu_ns: u64,
    first: Option<Edge>,
    last: Option<Edge>,
    rss_peak_bytes: u64,
    cpu_ns: u64,
}

impl Summary {
    /// From here on CPU time counts as the rows' cost; `begun_cpu_ns`: of the process, before it became a sampler.
    pub fn new(begun_cpu_ns: u64) -> Self {
        Self {
            rows: 0,
            lateness_ns: nanoseconds(),
            cost_ns: nanoseconds(),
            rows_cpu_ns: 0,
            begun_cpu_ns,
            first: None,
            last: None,
            rss_peak_bytes: 0,
            cpu_ns: thread_cpu_ns(),
        }
    }

    /// Takes note of a row and writes its cost and lateness (`None`: it had no date) into it.
    pub fn add(&mut self, row: &mut Row, lateness_ns: Option<u64>) {
        let cpu_ns = thread_cpu_ns();
        let cost_ns = cpu_ns.saturating_sub(self.cpu_ns);
        row.cost_us = microseconds(cost_ns);
        row.lateness_us = lateness_ns.map(microseconds);
        self.cpu_ns = cpu_ns;
        self.rows += 1;
        self.rows_cpu_ns += cost_ns;
        self.cost_ns.saturating_record(cost_ns);
        if let Some(lateness_ns) = lateness_ns {
            self.lateness_ns.saturating_record(lateness_ns);
        }
        self.rss_peak_bytes = self.rss_peak_bytes.max(row.tree.rss_bytes);
        if self.first.is_none() {
            self.first = Some(Edge::of(row));
        }
        match &mut self.last {
            Some(last) => {
                last.mono_ns = row.mono_ns;
                last.cpus.clone_from(&row.cpus);
                (last.tree, last.cgroup) = (*row.tree, *row.cgroup);
            }
            None => self.last = Some(Edge::of(row)),
        }
    }

    /// Since the last row: the writing of those that still waited.
    pub fn count_writing(&mut self) {
        self.rows_cpu_ns += thread_cpu_ns().saturating_sub(self.cpu_ns);
    }

    /// Before the first row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn finish(
        self,
        spec: &SampleSpec,
        schedule: &Schedule,
        processes: Vec<ProcessReading>,
        (levels, speeds): (Option<LevelsResult>, Vec<SpeedResult>),
    ) -> SampleResult {
        let rise = |value: &dyn Fn(&Edge) -> u64| {
            let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
            Some(value(last).saturating_sub(value(first)))
        };
        let host = |part: fn(&CpuTimes) -> u64| rise(&|edge: &Edge| edge.host(part));
        let total = host(CpuTimes::total_ns);
        SampleResult {
            rows: self.rows,
            missed_rows: schedule.missed(),
            interval_ms: spec.interval_ms,
            path: spec.path.clone(),
            host_busy_ratio: ratio(host(CpuTimes::busy_ns), total),
            host_steal_ratio: ratio(host(|times| times.steal_ns), total),
            tree_cpu_s: rise(&|edge: &Edge| edge.tree.cpu_ns).map(seconds),
            tree_rss_peak_bytes: self.rss_peak_bytes,
            processes,
            levels,
            speeds,
            lateness_us: percentiles(&self.lateness_ns),
            cost_us: percentiles(&self.cost_ns),
            rows_cpu_s: seconds(self.rows_cpu_ns),
            cpu_s: seconds(process_cpu_ns().saturating_sub(self.begun_cpu_ns)),
            first: self.first,
            last: self.last,
        }
    }
}

/// To 0.1 %, up to an hour, in memory that does not grow.
fn nanoseconds() -> Histogram<u64> {
    let highest = 3_600_000_000_000;
    // Bounds and digits are constants that the histogram takes.
    Histogram::new_with_bounds(1, highest, 3).unwrap_or_else(|error| unreachable!("{error:?}"))
}

/// `None` for nothing at all.
fn percentiles(values: &Histogram<u64>) -> Option<Percentiles> {
    let at = |quantile| microseconds(values.value_at_quantile(quantile));
    (!values.is_empty()).then(|| Percentiles {
        p50: at(0.5),
        p99: at(0.99),
        max: microseconds(values.max()),
    })
}

fn seconds(ns: u64) -> f64 {
    microseconds(ns) / 1e6
}

/// `None` if no time has passed: USER_HZ is coarse.
fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let (part, whole) = (part?, whole.filter(|whole| *whole > 0)?);
    Some(microseconds(part) / microseconds(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_thousandth() {
        let mut values = nanoseconds();
        assert_eq!(percentiles(&values), None);
        for us in 1..=200 {
            values.saturating_record(us * 1000);
        }
        let seen = percentiles(&values).unwrap();
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() <= 1e-3;
        assert!(near(seen.p50, 100.0) && near(seen.p99, 198.0) && near(seen.max, 200.0));
    }
}
