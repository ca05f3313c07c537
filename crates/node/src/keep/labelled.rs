//! Processes by the label in their environment. A handle pins each, so that no number names another process by the time it is used.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const VARIABLE: &str = "NODROP_LAB";
/// A program that is asked to end may have something to undo: a nodrop of its own that measures on this host.
const GRACE: Duration = Duration::from_secs(10);
/// One that is killed is gone at once, unless the kernel holds it.
const KILLED: Duration = Duration::from_secs(2);
/// A process may make another one while we look.
const ROUNDS: usize = 10;

/// What came of it.
#[derive(Default)]
pub struct Ended {
    /// So many there were.
    pub processes: usize,
    /// So many are still there.
    pub stuck: usize,
}

/// Ends every process that carries the label: waits, asks, kills.
pub fn end(label: &str, patience: Duration) -> Ended {
    end_within(label, patience, GRACE)
}

fn end_within(label: &str, patience: Duration, grace: Duration) -> Ended {
    let mut found = having(label);
    let processes = found.len();
    if !found.is_empty() && !patience.is_zero() {
        await_all(&mut found, patience);
    }
    for process in &found {
        let _gone = pidfd_send_signal(process, Signal::TERM);
    }
    await_all(&mut found, grace);
    for _ in 0..ROUNDS {
        found = having(label);
        if found.is_empty() {
            break;
        }
        for process in &found {
            let _gone = pidfd_send_signal(process, Signal::KILL);
        }
        await_all(&mut found, KILLED);
    }
    Ended {
        processes,
        stuck: found.len(),
    }
}

/// Kills one process and waits for it, if its arguments hold these words; whether it is gone.
pub fn kill_if(pid: u32, words: &[&str]) -> bool {
    let Some(process) = handle(pid) else {
        return true;
    };
    let argv = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let argv: Vec<&[u8]> = argv.split(|byte| *byte == 0).collect();
    if words.iter().any(|word| !argv.contains(&word.as_bytes())) {
        return false;
    }
    let _gone = pidfd_send_signal(&process, Signal::KILL);
    let mut found = vec![process];
    await_all(&mut found, KILLED);
    found.is_empty()
}

fn having(label: &str) -> Vec<OwnedFd> {
    let wanted = format!("{VARIABLE}={label}");
    let ours = std::process::id();
    let Ok(folders) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    folders
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != ours)
        .filter_map(|pid| {
            let process = handle(pid)?;
            // Read while the handle pins the number. Of one that has ended nothing can be read.
            let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables
                .any(|one| one == wanted.as_bytes())
                .then_some(process)
        })
        .collect()
}

fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Leaves those that are still there at the end.
fn await_all(found: &mut Vec<OwnedFd>, patience: Duration) {
    let deadline = Instant::now() + patience;
    found.retain(|process| {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut watched = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        poll(&mut watched, timeout).unwrap_or(0) == 0
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A program that has got as far as its first word.
    fn begun(label: &str, script: &str) -> Child {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .env(VARIABLE, label)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut word).unwrap();
        assert_eq!(word, "begun\n");
        child
    }

    #[test]
    fn the_polite_and_the_deaf_end_and_others_stay() {
        let [polite_label, deaf_label] =
            ["polite", "deaf"].map(|of| format!("test-{of}-{}", std::process::id()));
        let mut polite = begun(
            &polite_label,
            "trap 'kill $!; exit 7' TERM; sleep 60 & echo begun; wait",
        );
        let mut deaf = begun(
            &deaf_label,
            "trap '' TERM; echo begun; while :; do sleep 60; done",
        );
        let mut other = begun(&format!("{deaf_label}0"), "echo begun; exec sleep 60");
        for (label, grace) in [(polite_label, GRACE), (deaf_label, Duration::ZERO)] {
            // While the kernel loads a program, its environment reads as empty.
            let deadline = Instant::now() + GRACE;
            while having(&label).len() < 2 && Instant::now() < deadline {
                std::thread::yield_now();
            }
            let ended = end_within(&label, Duration::ZERO, grace);
            assert!(ended.processes >= 2, "{label}, with what it began");
            assert_eq!(ended.stuck, 0, "{label}");
        }
        assert_eq!(polite.wait().unwrap().code(), Some(7));
        assert_eq!(deaf.wait().unwrap().signal(), Some(9));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
