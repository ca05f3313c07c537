//! What processes took of this host so far, and where they may run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use nodrop_counters::{Usage, read_usage};
use schemars::JsonSchema;
use serde::Serialize;

/// As described in docs/reference/counters.md.
#[derive(JsonSchema, Serialize)]
pub struct ProcessUsage {
    #[serde(flatten)]
    usage: Usage,
    /// CPUs on which any of its threads may run; cpusets are in it.
    allowed_cpus: BTreeSet<usize>,
}

/// By PID; `None` for one that has ended.
pub fn read(pids: &[u32]) -> nodrop_counters::Result<BTreeMap<u32, Option<ProcessUsage>>> {
    let each = pids.iter().map(|pid| {
        let usage = read_usage(Path::new("/"), *pid)?;
        let seen = usage.map(|usage| ProcessUsage {
            usage,
            allowed_cpus: allowed_cpus(*pid),
        });
        Ok((*pid, seen))
    });
    each.collect()
}

fn allowed_cpus(pid: u32) -> BTreeSet<usize> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let ids = tasks.into_iter().flatten().filter_map(|task| {
        let id = task.ok()?.file_name().to_str()?.parse().ok()?;
        sched_getaffinity(Pid::from_raw(id)).ok() // ended meanwhile
    });
    let cpus = |set: CpuSet| (0..CpuSet::count()).filter(move |cpu| set.is_set(*cpu) == Ok(true));
    ids.flat_map(cpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_process_and_of_none() {
        let own = std::process::id();
        let seen = read(&[own, 1 << 22]).unwrap();
        let here = seen[&own].as_ref().unwrap();
        let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count()).find(|cpu| mine.is_set(*cpu) == Ok(true));
        assert!(here.allowed_cpus.contains(&first.unwrap()));
        assert!(!here.usage.name.is_empty() && here.usage.start_ticks > 0);
        assert!(seen[&(1 << 22)].is_none());
    }
}
