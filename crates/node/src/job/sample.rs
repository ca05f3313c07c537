//! Job `sample`: the host's counters on an absolute schedule, with what each reading cost, how late it was and how old.

mod csv;
mod exposition;
mod levels;
mod metrics;
pub(crate) mod output;
mod row;
mod schedule;
mod sources;
mod speed;
mod spool;
mod summary;
mod sysmon;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nodrop_counters::CounterError;
use nodrop_proto::{JobError, SampleReady, SampleSource, SampleSpec};
use nodrop_sys::clock::{mono_ns, process_cpu_ns};

use crate::job::{Job, hold_many_files, present, unreadable};
use crate::session::Session;
use levels::Levels;
use metrics::Metrics;
use output::Output;
use row::Row;
use schedule::{Due, Schedule};
use sources::{Sources, Watched};
use speed::Speeds;
use summary::{SampleResult, Summary};

/// Everything that is read, and where it goes.
pub struct Sample {
    spec: SampleSpec,
    watched: Arc<Mutex<Watched>>,
    output: Output,
    levels: Option<Levels>,
    /// `nodrop monitor` became this process: what its Python took is not the sampler's.
    begun_cpu_ns: u64,
    _metrics: Option<Metrics>,
}

impl Job for Sample {
    const NAME: &'static str = "sample";
    type Spec = SampleSpec;
    type Ready = SampleReady;
    type Outcome = SampleResult;

    fn prepare(spec: SampleSpec, session: &Session) -> Result<(Self, SampleReady), JobError> {
        check(&spec)?;
        let begun_cpu_ns = process_cpu_ns();
        hold_many_files();
        let mut sources = Sources::open(&spec).map_err(|error| unopened(&spec, error))?;
        let mut row = Row::default();
        sources.read(Due::ALL, &mut row).map_err(unreadable)?;
        let output = Output::open(&spec, session.is_controlled())?;
        let (processes, threads) = (row.tree.processes, row.tree.threads);
        let levels = spec.levels_path.as_deref().map(|path| {
            let pids: Vec<u32> = sources.processes().iter().map(|one| one.pid).collect();
            Levels::open(path, spec.level_ms, &pids)
        });
        let watched = Arc::new(Mutex::new(Watched { sources, row }));
        let place = spec.metrics.as_deref();
        let metrics = place
            .map(|place| Metrics::serve(place, Arc::clone(&watched)))
            .transpose()?;
        if let Some(metrics) = metrics.as_ref().filter(|_| !session.is_controlled()) {
            eprintln!("nodrop-node sample: metrics at {}", metrics.address);
        }
        let ready = SampleReady {
            interval_ms: spec.interval_ms,
            processes,
            threads,
            metrics: metrics.as_ref().map(|metrics| metrics.address.clone()),
        };
        // The default of 50 us would be lateness of our own making; refused only by sandboxes.
        let _coarser = nix::sys::prctl::set_timerslack(1);
        Ok((
            Self {
                spec,
                watched,
                output,
                levels,
                begun_cpu_ns,
                _metrics: metrics,
            },
            ready,
        ))
    }

    fn run(&mut self, session: &Session) -> Result<SampleResult, JobError> {
        let mut schedule = Schedule::new(session.wait_start(), &self.spec);
        let mut summary = Summary::new(self.begun_cpu_ns);
        let watched = Arc::clone(&self.watched);
        let looking = self.levels.take().map(|levels| levels.begin(session));
        let looking = looking.transpose()?;
        let speeds = Speeds::begin(&self.spec.speed_cpus, session)?;
        loop {
            let stopped = session.sleep_until(schedule.due_ns());
            let now = mono_ns();
            // The last row is taken at `stop`, whenever that is: it belongs to no date of the schedule.
            let last = stopped || schedule.is_over(now);
            let first = summary.is_empty();
            let due = if first || last {
                Due::ALL
            } else {
                schedule.due(now)
            };
            let lateness_ns = (!stopped).then(|| schedule.lateness_ns(now));
            self.take_row(&mut lock(&watched), due, lateness_ns, &mut summary, session)?;
            if last {
                break;
            }
            schedule.advance(due, mono_ns());
        }
        let levels = looking.map(levels::Looking::end).transpose()?;
        let speeds = speeds.end();
        self.output.close()?;
        summary.count_writing();
        let processes = lock(&watched).sources.final_processes();
        let processes = processes.map_err(unreadable)?;
        Ok(summary.finish(&self.spec, &schedule, processes, (levels, speeds)))
    }
}

impl Sample {
    fn take_row(
        &mut self,
        watched: &mut Watched,
        due: Due,
        lateness_ns: Option<u64>,
        summary: &mut Summary,
        session: &Session,
    ) -> Result<(), JobError> {
        let Watched { sources, row } = watched;
        sources.read(due, row).map_err(unreadable)?;
        summary.add(row, lateness_ns);
        self.output.write(row, sources.processes(), session)
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(spec: &SampleSpec) -> Result<(), JobError> {
    let wrong = |words: &str| Err(JobError::new("spec", words));
    if spec.interval_ms == 0 {
        return wrong("field `interval_ms`: must be at least 1");
    }
    let positive = |duration: f64| duration.is_finite() && duration > 0.0;
    if !spec.duration_s.is_none_or(positive) {
        return wrong("field `duration_s`: must be above 0");
    }
    if SampleSource::ALL
        .iter()
        .all(|source| spec.interval_of(*source) == 0)
    {
        return wrong("field `every`: nothing is left to read");
    }
    let asked = spec.pids.iter().chain(&spec.beside_pids);
    let asked: Vec<u32> = asked.chain(&spec.cgroup_of_pid).copied().collect();
    present(&asked)
}

fn unopened(spec: &SampleSpec, error: CounterError) -> JobError {
    match &error {
        CounterError::Read { path, .. } if spec.cgroups.contains(path) => {
            JobError::new("no_such_cgroup", error.to_string())
        }
        _ => unreadable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use nodrop_proto::SampleFormat;
    use output::Spooled;
    use std::process::{Command, Stdio};

    /// What a row reads between two looks for new threads.
    fn all_but_details() -> Due {
        let mut due = Due::default();
        for source in SampleSource::ALL {
            if source != SampleSource::Details {
                due.add(source);
            }
        }
        due
    }

    #[test]
    fn a_tick_allocates_nothing() {
        let mut idle = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = idle.id();
        let spec: SampleSpec = serde_json::from_value(serde_json::json!({
            "interval_ms": 10, "every": {"snmp": 10, "ethtool": 10, "interrupts": 10},
            "pids": [pid], "ports": ["lo"], "cgroup_of_pid": pid,
        }))
        .unwrap();
        let mut sources = Sources::open(&spec).unwrap();
        let (mut row, mut summary) = (Row::default(), Summary::new(0));
        let folder = tempfile::tempdir().unwrap();
        let mut spooled = ["jsonl", "csv"].map(|format| {
            let format = SampleFormat::from_str(format, false).unwrap();
            let spec = SampleSpec {
                format,
                ..spec.clone()
            };
            Spooled::create(&folder.path().join(format!("{format:?}")), &spec).unwrap()
        });
        let mut tick = |due| {
            sources.read(due, &mut row).unwrap();
            // Time stands, so that only a full buffer is written: a busy host's ticks never fill one within its 0.9 s.
            row.mono_ns = 1;
            summary.add(&mut row, Some(1));
            for spooled in &mut spooled {
                spooled.take(&row, sources.processes()).unwrap();
            }
        };
        // As many as wait to be written together, and once more.
        for _ in 0..600 {
            tick(all_but_details());
        }
        tick(Due::ALL);
        let seen = allocation_counter::measure(|| {
            for _ in 0..200 {
                tick(all_but_details());
            }
        });
        // On a busy host many numbers grow by a digit beyond what a buffer held; a tick that allocates shows 200 times.
        assert!(seen.count_total < 100, "{} allocations", seen.count_total);
        drop(idle.stdin.take());
        idle.wait().unwrap();
    }
}
