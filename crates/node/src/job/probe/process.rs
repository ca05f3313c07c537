//! A look into one process: whether it stands still, its threads, its packet sockets, its memory.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use nodrop_counters::{CounterError, PacketSocket, PacketSocketReader, Result};
use schemars::JsonSchema;
use serde::Serialize;

/// PF_EXITING of the flags in `/proc/PID/stat` (include/linux/sched.h).
const EXITING: u64 = 0x4;
const LABEL: &str = "NODROP_LAB=";

/// docs/reference/counters.md says what each field is.
#[derive(Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "ProcessInside")]
pub struct Inside {
    stopped: bool,
    threads: Vec<String>,
    packet_sockets: Vec<PacketSocket>,
    /// VmHWM.
    rss_peak_bytes: Option<u64>,
    /// What all threads have run; null while one of them runs or waits for a CPU.
    asleep_cpu_ns: Option<u64>,
    /// NODROP_LAB of its environment: the run that it is of.
    lab: Option<String>,
}

/// Its main thread names itself, in `comm`: Suricata-Main.
pub fn is_suricata(comm: &str) -> bool {
    comm.starts_with("Suricata")
}

/// `None` if there is no such process, or it ends meanwhile. `root` is `/` in production and a fixture folder in tests.
pub fn look(root: &Path, pid: u32) -> Result<Option<Inside>> {
    let folder = root.join(format!("proc/{pid}"));
    match of(root, &folder, pid) {
        Err(error) if error.is_gone() => Ok(None),
        // Once its memory is gone, its descriptors are root's for the moment until it is.
        Err(_) if exiting(&folder) => Ok(None),
        seen => seen.map(Some),
    }
}

fn of(root: &Path, folder: &Path, pid: u32) -> Result<Inside> {
    let stat = text(folder.join("stat"))?;
    let own = socket_inodes(folder.join("fd"))?;
    let mut sockets = PacketSocketReader::of_process(root, pid)?.read()?;
    sockets.retain(|socket| own.contains(&socket.inode));
    Ok(Inside {
        stopped: matches!(fields(&stat).first(), Some(&("T" | "t"))),
        threads: threads(folder)?,
        packet_sockets: sockets,
        rss_peak_bytes: rss_peak_bytes(folder),
        asleep_cpu_ns: asleep_cpu_ns(folder)?,
        lab: lab(folder),
    })
}

fn exiting(folder: &Path) -> bool {
    let Ok(stat) = fs::read(folder.join("stat")) else {
        return true;
    };
    let stat = String::from_utf8_lossy(&stat);
    let flags = fields(&stat).get(6).and_then(|word| word.parse().ok());
    flags.is_none_or(|flags: u64| flags & EXITING != 0)
}

/// From the state on; the name before may hold anything.
pub fn fields(stat: &str) -> Vec<&str> {
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace().collect()
}

fn threads(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for task in tasks(folder)? {
        match text(task.join("comm")) {
            Ok(name) => names.push(name.trim_end_matches('\n').to_owned()),
            Err(error) if error.is_gone() => {} // ended between the listing and the reading
            Err(error) => return Err(error),
        }
    }
    Ok(names)
}

/// schedstat of the kernel: run time, time on the run queue, turns.
fn asleep_cpu_ns(folder: &Path) -> Result<Option<u64>> {
    let mut total_ns = 0;
    for task in tasks(folder)? {
        let read =
            text(task.join("stat")).and_then(|stat| Ok((stat, text(task.join("schedstat"))?)));
        let (stat, schedstat) = match read {
            Ok(read) => read,
            Err(error) if error.is_gone() => return Ok(None), // a thread that ends has run just now
            Err(error) => return Err(error),
        };
        let ran_ns = schedstat.split_ascii_whitespace().next();
        match (
            fields(&stat).first(),
            ran_ns.and_then(|ns| ns.parse::<u64>().ok()),
        ) {
            (Some(&"S"), Some(ns)) => total_ns += ns,
            _ => return Ok(None),
        }
    }
    Ok(Some(total_ns))
}

/// In the order of their ids.
fn tasks(folder: &Path) -> Result<Vec<PathBuf>> {
    let path = folder.join("task");
    let mut ids: Vec<u32> = Vec::new();
    for entry in fs::read_dir(&path).map_err(reading(&path))? {
        let name = entry.map_err(reading(&path))?.file_name();
        ids.extend(name.to_str().and_then(|id| id.parse::<u32>().ok()));
    }
    ids.sort_unstable();
    Ok(ids.iter().map(|id| path.join(id.to_string())).collect())
}

pub fn socket_inodes(path: PathBuf) -> Result<BTreeSet<u64>> {
    let inode = |target: &str| {
        let number = target.strip_prefix("socket:[")?.strip_suffix(']')?;
        number.parse::<u64>().ok()
    };
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&path).map_err(reading(&path))? {
        let entry = entry.map_err(reading(&path))?.path();
        match fs::read_link(&entry) {
            Ok(target) => found.extend(target.to_str().and_then(inode)),
            Err(error) if error.kind() == ErrorKind::NotFound => {} // closed since the listing
            Err(error) => return Err(reading(&entry)(error)),
        }
    }
    Ok(found)
}

fn lab(folder: &Path) -> Option<String> {
    let environment = fs::read(folder.join("environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let label = variables.find_map(|variable| variable.strip_prefix(LABEL.as_bytes()))?;
    Some(String::from_utf8_lossy(label).into_owned())
}

fn rss_peak_bytes(folder: &Path) -> Option<u64> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Of a file of a process, whatever bytes a name holds.
pub fn text(path: PathBuf) -> Result<String> {
    let read = fs::read(&path).map_err(reading(&path))?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

/// How a file of a process that cannot be read is said.
pub fn reading(path: &Path) -> impl FnOnce(Error) -> CounterError {
    let path = path.to_owned();
    move |source| CounterError::Read { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(tasks: &[(u32, &str, u64)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let of = |name: &str| root.path().join("proc/7").join(name);
        write(of("stat"), "7 (W#01) R) S 1 7 7 0 -1 4194560\n");
        write(of("environ"), "PATH=/bin\0NODROP_LAB=nine\0");
        write(
            of("net/packet"),
            "sk RefCnt Type Proto Iface R Rmem User Inode\n",
        );
        fs::create_dir_all(of("fd")).unwrap();
        for (id, state, ran_ns) in tasks {
            let stat = format!("{id} (W#0{id}) R) {state} 1 7 7 0 -1\n");
            write(of(&format!("task/{id}/stat")), &stat);
            write(of(&format!("task/{id}/comm")), &format!("W#0{id}) R\n"));
            write(
                of(&format!("task/{id}/schedstat")),
                &format!("{ran_ns} 900 3\n"),
            );
        }
        root
    }

    #[test]
    fn what_sleeping_threads_have_run_is_added() {
        for (tasks, sum) in [
            (vec![(7, "S", 100)], 100),
            (vec![(7, "S", 100), (8, "S", 23)], 123),
            (vec![(7, "S", 0), (8, "S", 5), (10, "S", 40)], 45),
        ] {
            let seen = look(process(&tasks).path(), 7).unwrap().unwrap();
            assert_eq!(seen.asleep_cpu_ns, Some(sum));
            assert_eq!(seen.threads.len(), tasks.len());
        }
    }

    /// R is also a thread that waits for a CPU; D waits for a disk, and goes on by itself.
    #[test]
    fn a_thread_that_runs_or_would_is_not_asleep() {
        for state in ["R", "D", "T", "Z"] {
            let root = process(&[(7, "S", 100), (8, state, 23)]);
            assert_eq!(look(root.path(), 7).unwrap().unwrap().asleep_cpu_ns, None);
        }
    }

    #[test]
    fn the_run_it_is_of() {
        let root = process(&[(7, "S", 1)]);
        assert_eq!(
            look(root.path(), 7).unwrap().unwrap().lab.as_deref(),
            Some("nine")
        );
        write(root.path().join("proc/7/environ"), "NODROP_LABEL=x\0");
        assert_eq!(look(root.path(), 7).unwrap().unwrap().lab, None);
    }

    #[test]
    fn what_is_gone_is_none() {
        assert_eq!(look(process(&[]).path(), 8).unwrap(), None);
        assert!(look(Path::new("/"), std::process::id()).unwrap().is_some());
        assert_eq!(look(Path::new("/"), 1 << 22).unwrap(), None);
    }

    /// Only rows whose inode is among its own descriptors.
    #[test]
    fn capture_sockets_of_the_process() {
        for (table, which) in [
            (
                include_str!("../../../../../tests/fixtures/suricata/packet-7.txt"),
                1,
            ),
            (
                include_str!("../../../../../tests/fixtures/suricata/packet-8.txt"),
                1,
            ),
            (
                include_str!("../../../../../tests/fixtures/suricata/packet-8.txt"),
                2,
            ),
        ] {
            let rows = || table.lines().skip(which);
            let inode: u64 = rows()
                .next()
                .unwrap()
                .split_whitespace()
                .nth(8)
                .unwrap()
                .parse()
                .unwrap();
            let root = process(&[(7, "S", 1)]);
            write(root.path().join("proc/7/net/packet"), table);
            let fd = root.path().join("proc/7/fd");
            std::os::unix::fs::symlink(format!("socket:[{inode}]"), fd.join("7")).unwrap();
            std::os::unix::fs::symlink("/dev/null", fd.join("8")).unwrap();
            let seen = look(root.path(), 7).unwrap().unwrap().packet_sockets;
            let found: Vec<_> = seen
                .iter()
                .map(|s| (s.inode, s.ifindex, s.running))
                .collect();
            assert_eq!(found, [(inode, 2, true)]);
        }
    }

    /// Seen as a normal user: `/proc/PID/fd` is root's once the memory is gone.
    #[test]
    fn what_a_dying_process_refuses_is_its_end() {
        for (flags, refuses) in [(0x0040_4140, true), (0x0040_4144, false)] {
            let root = process(&[(7, "S", 1)]);
            let folder = root.path().join("proc/7");
            write(
                folder.join("stat"),
                &format!("7 (W) R) R 1 7 7 0 -1 {flags} 0\n"),
            );
            fs::remove_dir(folder.join("fd")).unwrap();
            write(folder.join("fd"), "no folder: refused, and not gone");
            assert_eq!(look(root.path(), 7).is_err(), refuses);
        }
    }
}
