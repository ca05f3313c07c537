//! What a process took of this host: CPU time, and how long quotas of its control groups held it back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::cgroup::groups_of;
use crate::clock::tick_ns;
use crate::held::HeldFile;

/// One process, as its host's kernel sees it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Usage {
    /// The kernel's name of its main thread, 15 bytes.
    pub name: String,
    /// When it began, since boot: with its PID this never repeats.
    pub start_ticks: u64,
    /// CPU time of all its threads, ended ones included, in steps of a clock tick (10 ms). A machine emulator's holds its guest's.
    pub cpu_ns: u64,
    /// cpu.stat file → how long the processes of that group, summed over CPUs, were not let run for want of its quota: of the
    /// process's own group and of each above it, whose quotas hold as well. The kernel keeps no such time per CPU.
    pub throttled_ns: BTreeMap<PathBuf, u64>,
}

/// `None` for a process that has ended; a zombie has. `root` is `/` in production and a fixture folder in tests.
pub fn read(root: &Path, pid: u32) -> Result<Option<Usage>> {
    match of(root, pid) {
        Err(error) if error.is_gone() => Ok(None),
        usage => usage,
    }
}

fn of(root: &Path, pid: u32) -> Result<Option<Usage>> {
    let stat = HeldFile::open(root.join(format!("proc/{pid}/stat")))?;
    let mut buffer = Vec::new();
    let text = stat.read(&mut buffer)?;
    // The name before may hold anything, parentheses too.
    let Some((head, rest)) = text.text.rsplit_once(')') else {
        return Ok(None);
    };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // From the state on: proc_pid_stat(5) counts from 1, and the state is the third.
    let number = |field: usize| {
        fields
            .get(field - 3)
            .and_then(|word| word.parse::<u64>().ok())
    };
    let (Some(user), Some(system), Some(start_ticks)) = (number(14), number(15), number(22)) else {
        return Ok(None);
    };
    if matches!(fields[0], "Z" | "X") {
        return Ok(None);
    }
    let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
    let mut throttled_ns = BTreeMap::new();
    for group in groups_of(root, &pid.to_string(), "cpu")? {
        if let Some(held_ns) = read_throttled(&group.folder.join("cpu.stat"))? {
            throttled_ns.insert(group.name.join("cpu.stat"), held_ns);
        }
    }
    Ok(Some(Usage {
        name,
        start_ticks,
        cpu_ns: (user + system).saturating_mul(tick_ns()),
        throttled_ns,
    }))
}

/// `None` if no quota can be set: there is no such controller, or it is the host's top.
fn read_throttled(stat: &Path) -> Result<Option<u64>> {
    let Some(file) = HeldFile::open_if_present(stat.to_owned())? else {
        return Ok(None);
    };
    let mut buffer = Vec::new();
    for mut line in file.read(&mut buffer)?.lines() {
        match line.word("a name")? {
            "throttled_usec" => return Ok(Some(line.number::<u64>()?.saturating_mul(1000))),
            "throttled_time" => return Ok(Some(line.number()?)),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const V1: &str =
        "33 24 0:29 {within} /sys/fs/cgroup/cpu rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n";
    const V2: &str = "31 24 0:27 / {point} rw shared:9 - cgroup2 cgroup2 rw\n";

    fn stat(state: &str) -> String {
        let rest = "1 7 7 0 -1 4194560 0 0 0 0 31 4 900 900 20 0 1 0 5150 0 0";
        format!("7 (odd) name) {state} {rest}\n")
    }

    fn host(mounts: &str, own: &str, stats: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let alive = stat("S");
        let files = [
            ("proc/self/mountinfo", mounts),
            ("proc/7/cgroup", own),
            ("proc/7/stat", &alive),
        ];
        for (name, text) in files.iter().chain(stats) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn by_group(root: &Path, mount: &str) -> Vec<(String, u64)> {
        let mount = Path::new("/").join(mount);
        let seen = read(root, 7).unwrap().unwrap().throttled_ns.into_iter();
        let group = |file: PathBuf| {
            let folder = file.parent().unwrap().strip_prefix(&mount);
            folder.unwrap().to_str().unwrap().to_owned()
        };
        let mut found: Vec<_> = seen.map(|(file, ns)| (group(file), ns)).collect();
        found.sort();
        found
    }

    #[test]
    fn name_start_and_cpu_time() {
        let root = host("", "0::/\n", &[]);
        let seen = read(root.path(), 7).unwrap().unwrap();
        assert_eq!((seen.name.as_str(), seen.start_ticks), ("odd) name", 5150));
        assert_eq!(seen.cpu_ns, 35 * tick_ns());
    }

    #[test]
    fn groups_that_our_sys_hides_are_found_where_a_parent_sees_them() {
        let root = host(
            "31 24 0:27 / /sys rw - sysfs mendr rw\n",
            "0::/ids\n",
            &[
                ("proc/self/stat", "80 (nodrop) S 77 80\n"),
                ("proc/77/stat", "77 (sh ) x) S 0 1\n"),
                (
                    "proc/77/mountinfo",
                    "31 24 0:27 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
                ),
                (
                    "proc/77/root/sys/fs/cgroup/ids/cpu.stat",
                    "throttled_usec 9\n",
                ),
            ],
        );
        let found = by_group(root.path(), "sys/fs/cgroup");
        assert_eq!(found, [("ids".to_owned(), 9000)]);
    }

    #[test]
    fn what_has_ended_is_none() {
        let root = host("", "0::/\n", &[]);
        assert_eq!(read(root.path(), 8).unwrap(), None);
        for state in ["Z", "X"] {
            fs::write(root.path().join("proc/7/stat"), stat(state)).unwrap();
            assert_eq!(read(root.path(), 7).unwrap(), None);
        }
    }

    #[test]
    fn each_group_up_to_the_top_of_version_2() {
        let mount = "sys/fs/cgroup";
        let stats = [
            // The host's top knows no quota.
            ("sys/fs/cgroup/cpu.stat", "usage_usec 900\n"),
            (
                "sys/fs/cgroup/a.slice/cpu.stat",
                "nr_throttled 2\nthrottled_usec 5\n",
            ),
            (
                "sys/fs/cgroup/a.slice/b.scope/cpu.stat",
                "throttled_usec 30\n",
            ),
        ];
        let mounts = V2.replace("{point}", "/sys/fs/cgroup");
        let root = host(&mounts, "0::/a.slice/b.scope\n", &stats);
        let expected = [
            ("a.slice".into(), 5_000),
            ("a.slice/b.scope".into(), 30_000),
        ];
        assert_eq!(by_group(root.path(), mount), expected);
    }

    #[test]
    fn a_hybrid_host_has_quotas_in_version_1() {
        let stats = [
            (
                "sys/fs/cgroup/cpu/docker/abc/cpu.stat",
                "throttled_time 77\n",
            ),
            ("sys/fs/cgroup/cpu/docker/cpu.stat", "throttled_time 0\n"),
            ("sys/fs/cgroup/unified/x/cpu.stat", "usage_usec 3\n"),
        ];
        let mounts = V1.replace("{within}", "/") + &V2.replace("{point}", "/sys/fs/cgroup/unified");
        let own = "4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/x\n";
        let root = host(&mounts, own, &stats);
        let expected = [("docker".into(), 0), ("docker/abc".into(), 77)];
        assert_eq!(by_group(root.path(), "sys/fs/cgroup/cpu"), expected);
    }

    #[test]
    fn a_container_sees_its_own_part() {
        for inner in ["", "/inner"] {
            let mounts = V1.replace("{within}", "/docker/abc");
            let own = format!("4:cpu,cpuacct:/docker/abc{inner}\n");
            let root = host(
                &mounts,
                &own,
                &[("sys/fs/cgroup/cpu/cpu.stat", "throttled_time 8\n")],
            );
            assert_eq!(
                by_group(root.path(), "sys/fs/cgroup/cpu"),
                [(String::new(), 8)]
            );
        }
    }
}
