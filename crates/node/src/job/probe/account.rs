//! The account of a process: what it and the children that it waited for have run. A zombie still has one.

use std::path::Path;

use nodrop_counters::{Result, tick_ns};

use super::process::{fields, text};

/// `None` if there is no such process. `root` is `/` in production and a fixture folder in tests.
pub fn cpu_ns(root: &Path, pid: u32) -> Result<Option<u64>> {
    let stat = match text(root.join(format!("proc/{pid}/stat"))) {
        Err(error) if error.is_gone() => return Ok(None),
        stat => stat?,
    };
    // utime, stime, cutime and cstime of proc_pid_stat(5), whose fields count from 1; the state is the third.
    let times = fields(&stat).into_iter().skip(14 - 3).take(4);
    let ticks: Option<u64> = times.map(|word| word.parse::<u64>().ok()).sum();
    Ok(ticks.map(|ticks| ticks.saturating_mul(tick_ns())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn its_own_and_its_childrens_also_of_a_zombie() {
        for (state, times, ticks) in [
            ("S", "31 4 0 0", 35),
            ("R", "31 4 100 20", 155),
            ("Z", "0 0 7 1", 8),
        ] {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("proc/7");
            fs::create_dir_all(&folder).unwrap();
            let stat =
                format!("7 (odd) name) {state} 1 7 7 0 -1 4194560 0 0 0 0 {times} 20 0 1 0\n");
            fs::write(folder.join("stat"), stat).unwrap();
            assert_eq!(cpu_ns(root.path(), 7).unwrap(), Some(ticks * tick_ns()));
            assert_eq!(cpu_ns(root.path(), 8).unwrap(), None);
        }
    }
}
