//! Levels of the capture rings that the watched processes hold, in a thread and a file of their own: a ring fills and empties
//! within a few milliseconds, far more often than rows are taken.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nodrop_counters::{CounterError, RingLook, RingWatch, WatchedRing};
use nodrop_proto::JobError;
use nodrop_sys::clock::{mono_ns, thread_cpu_ns};
use schemars::JsonSchema;
use serde::Serialize;

use super::spool::{Spool, failed};
use crate::session::Session;

/// Between looks while a ring fills or empties.
const MOVING_NS: u64 = 1_000_000;
/// A ring of which less is in use is as good as empty.
const MOVES_FROM: f64 = 1.0 / 32.0;
/// While a ring moves, looks take no more of a CPU than one part in so many: the reader that is watched may have no other.
const PART_OF_A_CPU: u64 = 64;
/// Looks that wait to be written together.
const MOST_TOGETHER: usize = 1 << 16;
/// After so many looks, as a power of two, and after as many again, the time between them doubles: an hour has some 300,000.
const LOOKS_AT_ONE_PACE: u32 = 16;

/// The first line of the file.
#[derive(Serialize)]
struct Head<'a> {
    rings: &'a [WatchedRing],
}

/// Rings that were watched and what it cost.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SampledLevels")]
pub struct LevelsResult {
    rings: Vec<WatchedRing>,
    looks: u64,
    longest_gap_us: f64,
    cpu_s: f64,
    /// Reason why no ring was watched; `None` if one was.
    unread: Option<String>,
}

/// Before the first look.
pub struct Levels {
    path: PathBuf,
    interval_ns: u64,
    watch: Result<RingWatch, String>,
}

/// Looks under way.
pub struct Looking {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Result<LevelsResult, JobError>>,
}

impl Levels {
    /// A host that shows no rings is no error: the result has the reason.
    pub fn open(path: &Path, interval_ms: u64, pids: &[u32]) -> Self {
        let watch = RingWatch::or_levels(Path::new("/"), pids).map_err(|error| error.to_string());
        Self {
            path: path.into(),
            interval_ns: interval_ms.saturating_mul(1_000_000).max(MOVING_NS),
            watch,
        }
    }

    /// Looks until `Looking::end` or `stop`.
    pub fn begin(self, session: &Session) -> Result<Looking, JobError> {
        let done = Arc::new(AtomicBool::new(false));
        let (session, ended) = (session.clone(), Arc::clone(&done));
        let thread = std::thread::Builder::new()
            .name("levels".into())
            .spawn(move || self.run(&session, &ended))
            .map_err(|error| JobError::new("thread", error.to_string()))?;
        Ok(Looking { done, thread })
    }

    /// A look that fails ends the watch and takes its file along: half a series would show too low a level. The rows go on.
    fn run(mut self, session: &Session, ended: &AtomicBool) -> Result<LevelsResult, JobError> {
        let mut result = LevelsResult {
            rings: Vec::new(),
            looks: 0,
            longest_gap_us: 0.0,
            cpu_s: 0.0,
            unread: None,
        };
        let mut watch = match std::mem::replace(&mut self.watch, Err(String::new())) {
            Ok(watch) if !watch.rings().is_empty() => watch,
            Ok(_) => {
                result.unread = Some("the watched processes map no capture ring".into());
                return Ok(result);
            }
            Err(why) => {
                result.unread = Some(why);
                return Ok(result);
            }
        };
        let cpu_ns = thread_cpu_ns();
        let mut file = Series::create(&self.path, watch.rings())?;
        let (mut looks, mut last_ns, mut longest_ns) = (Vec::new(), None, 0);
        let (mut used_ns, mut look_ns) = (cpu_ns, 0);
        loop {
            let now_ns = mono_ns();
            if let Err(error) = watch.look(&mut looks) {
                return self.spoilt(result, &error);
            }
            if let Some(last_ns) = last_ns {
                longest_ns = longest_ns.max(now_ns - last_ns);
            }
            last_ns = Some(now_ns);
            result.looks += 1;
            file.take(now_ns, &looks)?;
            let moves = looks.iter().any(|look| {
                let ring = &watch.rings()[look.ring];
                let of = ring.slots.unwrap_or(ring.blocks);
                look.full as f64 >= MOVES_FROM * of as f64
            });
            let now_used_ns = thread_cpu_ns();
            look_ns = smoothed(look_ns, now_used_ns - used_ns);
            used_ns = now_used_ns;
            let step_ns = step_ns(moves, look_ns, self.interval_ns, result.looks);
            if session.sleep_until(now_ns + step_ns) || ended.load(Ordering::Relaxed) {
                break;
            }
        }
        if let Err(error) = watch.look(&mut looks) {
            return self.spoilt(result, &error);
        }
        file.take(mono_ns(), &looks)?;
        file.write()?;
        result.rings = watch.rings().to_vec();
        result.longest_gap_us = longest_ns as f64 / 1e3;
        result.cpu_s = (thread_cpu_ns() - cpu_ns) as f64 / 1e9;
        Ok(result)
    }
}

/// Time from one look to the next. A ring that moves is looked at as often as the looks' cost allows, and never more seldom than
/// one that does not.
fn step_ns(moves: bool, look_ns: u64, interval_ns: u64, looks: u64) -> u64 {
    let step_ns = if moves {
        (look_ns * PART_OF_A_CPU).clamp(MOVING_NS, interval_ns)
    } else {
        interval_ns
    };
    step_ns << (looks >> LOOKS_AT_ONE_PACE).min(10)
}

/// Mean of the last looks' costs, in which the newest weighs an eighth.
fn smoothed(mean_ns: u64, newest_ns: u64) -> u64 {
    if mean_ns == 0 {
        return newest_ns;
    }
    (7 * mean_ns + newest_ns) / 8
}

impl Levels {
    fn spoilt(
        &self,
        mut result: LevelsResult,
        error: &CounterError,
    ) -> Result<LevelsResult, JobError> {
        std::fs::remove_file(&self.path).map_err(|error| failed(&self.path, &error))?;
        result.unread = Some(error.to_string());
        Ok(result)
    }
}

impl Looking {
    /// What was watched, once the last look is in the file.
    pub fn end(self) -> Result<LevelsResult, JobError> {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| {
            Err(JobError::new(
                "bug",
                "the thread that looks at rings panicked",
            ))
        })
    }
}

/// The file of looks: a head, then one array a ring and look.
struct Series {
    spool: Spool,
    waiting: Vec<(u64, RingLook)>,
}

impl Series {
    fn create(path: &Path, rings: &[WatchedRing]) -> Result<Self, JobError> {
        let mut spool = Spool::create(path)?;
        spool.write(|file| {
            serde_json::to_writer(&mut *file, &Head { rings })?;
            file.write_all(b"\n")
        })?;
        Ok(Self {
            spool,
            waiting: Vec::new(),
        })
    }

    fn take(&mut self, mono_ns: u64, looks: &[RingLook]) -> Result<(), JobError> {
        self.waiting
            .extend(looks.iter().map(|look| (mono_ns, *look)));
        if self.waiting.len() < MOST_TOGETHER {
            return Ok(());
        }
        self.write()
    }

    fn write(&mut self) -> Result<(), JobError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.spool.write(|file| {
            for (mono_ns, look) in &waiting {
                let RingLook {
                    ring,
                    packets,
                    full,
                    arrived,
                    dropped,
                } = look;
                let [arrived, dropped] = [arrived, dropped].map(|count| match count {
                    Some(count) => count.to_string(),
                    None => "null".into(),
                });
                writeln!(
                    file,
                    "[{mono_ns},{ring},{packets},{full},{arrived},{dropped}]"
                )?;
            }
            file.flush()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_a_moving_ring_cost_a_64th_of_a_cpu() {
        let interval_ns = 4_000_000;
        for look_ns in [1_000, 15_000, 16_000, 30_000, 62_500] {
            let step_ns = step_ns(true, look_ns, interval_ns, 100);
            assert!(64 * look_ns <= step_ns, "{look_ns} ns each {step_ns} ns");
            assert!(
                step_ns == MOVING_NS || step_ns == 64 * look_ns,
                "{step_ns} ns"
            );
        }
        assert_eq!(step_ns(true, 500_000, interval_ns, 100), interval_ns);
        assert_eq!(step_ns(false, 1_000, interval_ns, 100), interval_ns);
    }

    #[test]
    fn looks_of_an_hour_become_fewer() {
        let at_first_ns = step_ns(true, 1_000, 4_000_000, 65_535);
        assert_eq!(step_ns(true, 1_000, 4_000_000, 65_536), 2 * at_first_ns);
        assert_eq!(step_ns(true, 1_000, 4_000_000, 3 << 16), 8 * at_first_ns);
    }

    #[test]
    fn one_slow_look_weighs_an_eighth() {
        assert_eq!(smoothed(0, 30_000), 30_000);
        assert_eq!(smoothed(30_000, 110_000), 40_000);
    }

    #[test]
    fn a_head_and_one_array_a_look() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("levels.jsonl");
        let mut series = Series::create(&path, &[]).unwrap();
        let look = RingLook {
            ring: 1,
            packets: 30,
            full: 2,
            arrived: Some(77),
            dropped: Some(5),
        };
        let uncounted = RingLook {
            ring: 0,
            arrived: None,
            dropped: None,
            ..look
        };
        series.take(9, &[look, uncounted]).unwrap();
        series.write().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\"rings\":[]}\n[9,1,30,2,77,5]\n[9,0,30,2,null,null]\n"
        );
    }
}
