//! What a control group used: v1 and v2, decided for each controller, because hybrid hosts have both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::tick_ns;
use crate::held::HeldFile;
use crate::{CounterError, Result};

/// Controllers this reader knows what to do with.
pub const CONTROLLERS: [&str; 3] = ["cpu", "cpuacct", "memory"];

/// One reading; `None` = this version or kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct Cgroup {
    /// CPU time of its tasks, ended ones included.
    pub cpu_ns: Option<u64>,
    /// Of it, outside of the kernel.
    pub user_ns: Option<u64>,
    /// Of it, inside of the kernel.
    pub system_ns: Option<u64>,
    /// Periods in which it used up its quota.
    pub throttled_periods: Option<u64>,
    /// Time it was not let run for want of quota, summed over CPUs.
    pub throttled_ns: Option<u64>,
    /// Memory charged to it: page cache of whoever touched a file first included.
    pub memory_bytes: Option<u64>,
    /// The most it ever was (v2: since Linux 5.19).
    pub memory_peak_bytes: Option<u64>,
    /// `None` = unlimited.
    pub memory_limit_bytes: Option<u64>,
    /// Of the memory, anonymous.
    pub anon_bytes: Option<u64>,
    /// Of the memory, page cache.
    pub file_bytes: Option<u64>,
    /// Times the limit was hit: a sign of pressure, not yet of harm.
    pub memory_limit_hits: Option<u64>,
    /// Tasks killed for want of memory.
    pub oom_kills: Option<u64>,
}

/// Where a controller's files of one cgroup lie.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    version: u8,
    folder: PathBuf,
}

/// Which hierarchy has a controller, on the whole host: 1, 2, or absent.
pub fn versions(root: &Path) -> Result<BTreeMap<&'static str, u8>> {
    let mounts = mounts(root)?;
    let found = |controller| mounts.iter().find(|mount| mount.has(controller));
    Ok(CONTROLLERS
        .into_iter()
        .filter_map(|name| Some((name, found(name)?.version)))
        .collect())
}

/// Reads one cgroup, in whichever hierarchies have its controllers.
#[derive(Debug)]
pub struct CgroupReader {
    sources: Vec<(Source, HeldFile)>,
    buffer: Vec<u8>,
}

/// What a file's content means.
#[derive(Debug, Clone, Copy)]
enum Source {
    One(fn(&mut Cgroup) -> &mut Option<u64>),
    /// `name value` lines; name, unit in ns or bytes, place.
    Pairs(&'static [Pair]),
}

/// A name, the factor to our unit (0 = USER_HZ ticks), the place.
type Pair = (&'static str, u64, fn(&mut Cgroup) -> &mut Option<u64>);

const V1_CPU: &[Pair] = &[
    ("nr_throttled", 1, |c| &mut c.throttled_periods),
    ("throttled_time", 1, |c| &mut c.throttled_ns),
];
const V1_CPUACCT: &[Pair] = &[
    ("user", 0, |c| &mut c.user_ns),
    ("system", 0, |c| &mut c.system_ns),
];
const V1_MEMORY: &[Pair] = &[
    ("total_rss", 1, |c| &mut c.anon_bytes),
    ("total_cache", 1, |c| &mut c.file_bytes),
];
const V1_OOM: &[Pair] = &[("oom_kill", 1, |c| &mut c.oom_kills)];
const V2_CPU: &[Pair] = &[
    ("usage_usec", 1000, |c| &mut c.cpu_ns),
    ("user_usec", 1000, |c| &mut c.user_ns),
    ("system_usec", 1000, |c| &mut c.system_ns),
    ("nr_throttled", 1, |c| &mut c.throttled_periods),
    ("throttled_usec", 1000, |c| &mut c.throttled_ns),
];
const V2_MEMORY: &[Pair] = &[
    ("anon", 1, |c| &mut c.anon_bytes),
    ("file", 1, |c| &mut c.file_bytes),
];
const V2_EVENTS: &[Pair] = &[
    ("max", 1, |c| &mut c.memory_limit_hits),
    ("oom_kill", 1, |c| &mut c.oom_kills),
];

/// Controller, version, file, meaning.
const FILES: &[(&str, u8, &str, Source)] = &[
    ("cpu", 1, "cpu.stat", Source::Pairs(V1_CPU)),
    (
        "cpuacct",
        1,
        "cpuacct.usage",
        Source::One(|c| &mut c.cpu_ns),
    ),
    ("cpuacct", 1, "cpuacct.stat", Source::Pairs(V1_CPUACCT)),
    (
        "memory",
        1,
        "memory.usage_in_bytes",
        Source::One(|c| &mut c.memory_bytes),
    ),
    (
        "memory",
        1,
        "memory.max_usage_in_bytes",
        Source::One(|c| &mut c.memory_peak_bytes),
    ),
    (
        "memory",
        1,
        "memory.limit_in_bytes",
        Source::One(|c| &mut c.memory_limit_bytes),
    ),
    (
        "memory",
        1,
        "memory.failcnt",
        Source::One(|c| &mut c.memory_limit_hits),
    ),
    ("memory", 1, "memory.stat", Source::Pairs(V1_MEMORY)),
    ("memory", 1, "memory.oom_control", Source::Pairs(V1_OOM)),
    ("cpu", 2, "cpu.stat", Source::Pairs(V2_CPU)),
    (
        "memory",
        2,
        "memory.current",
        Source::One(|c| &mut c.memory_bytes),
    ),
    (
        "memory",
        2,
        "memory.peak",
        Source::One(|c| &mut c.memory_peak_bytes),
    ),
    (
        "memory",
        2,
        "memory.max",
        Source::One(|c| &mut c.memory_limit_bytes),
    ),
    ("memory", 2, "memory.stat", Source::Pairs(V2_MEMORY)),
    ("memory", 2, "memory.events", Source::Pairs(V2_EVENTS)),
];

/// v1 writes "no limit" as the largest multiple of a page below 2^63.
const V1_UNLIMITED: u64 = 1 << 62;

impl CgroupReader {
    /// The one that a process is in. `root` is `/` in production and a fixture folder in tests.
    pub fn of_process(root: &Path, pid: u32) -> Result<Self> {
        let mounts = mounts(root)?;
        let file = HeldFile::open(root.join(format!("proc/{pid}/cgroup")))?;
        let mut buffer = Vec::new();
        let membership = file.read(&mut buffer)?.text.to_owned();
        Self::open(file.path(), |controller| {
            place(&mounts, &membership, controller)
        })
    }

    /// By its path, as in `/proc/PID/cgroup` or below a mount point (`/sys/fs/cgroup/…`).
    pub fn of_path(root: &Path, path: &Path) -> Result<Self> {
        let mounts = mounts(root)?;
        let relative = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_owned();
        let full = root.join(relative(path));
        // The deepest mount point: v1 hierarchies are mounted below a folder that may be one itself.
        let below = mounts
            .iter()
            .filter_map(|mount| full.strip_prefix(&mount.point).ok())
            .min_by_key(|below| below.components().count());
        let below = below.map_or_else(|| relative(path), Path::to_owned);
        Self::open(path, |controller| {
            let mount = mounts.iter().find(|mount| mount.has(controller))?;
            let folder = mount.point.join(&below);
            Some(Place {
                version: mount.version,
                folder,
            })
        })
    }

    fn open(asked: &Path, place: impl Fn(&str) -> Option<Place>) -> Result<Self> {
        let mut sources = Vec::new();
        for (controller, version, name, source) in FILES {
            let Some(place) = place(controller).filter(|place| place.version == *version) else {
                continue;
            };
            if let Some(held) = HeldFile::open_if_present(place.folder.join(name))? {
                sources.push((*source, held.in_one_piece()));
            }
        }
        if sources.is_empty() {
            let source = std::io::Error::other("no cpu or memory controller of it is mounted here");
            return Err(CounterError::Read {
                path: asked.into(),
                source,
            });
        }
        let buffer = Vec::new();
        Ok(Self { sources, buffer })
    }

    /// The cgroup now.
    pub fn read(&mut self) -> Result<Cgroup> {
        let mut cgroup = Cgroup::default();
        for (source, file) in &self.sources {
            let text = file.read(&mut self.buffer)?;
            match source {
                Source::One(place) => {
                    let mut line = text.line()?;
                    // "max" = no limit.
                    let value = if text.text.trim() == "max" {
                        None
                    } else {
                        Some(line.number()?)
                    };
                    *place(&mut cgroup) = value;
                }
                Source::Pairs(pairs) => read_pairs(text, pairs, &mut cgroup)?,
            }
        }
        cgroup.memory_limit_bytes = cgroup
            .memory_limit_bytes
            .filter(|limit| *limit < V1_UNLIMITED);
        Ok(cgroup)
    }
}

fn read_pairs(text: crate::held::Text<'_, '_>, pairs: &[Pair], cgroup: &mut Cgroup) -> Result<()> {
    for mut line in text.lines() {
        let name = line.word("a name")?;
        if let Some((_, unit, place)) = pairs.iter().find(|(wanted, ..)| *wanted == name) {
            let unit = if *unit == 0 { tick_ns() } else { *unit };
            *place(cgroup) = Some(line.number::<u64>()?.saturating_mul(unit));
        }
    }
    Ok(())
}

/// One cgroup file system.
#[derive(Debug)]
struct Mount {
    version: u8,
    /// Where it is mounted, as a user of this host types it.
    named: PathBuf,
    point: PathBuf,
    /// Which cgroup appears at the mount point; not `/` inside of a container.
    shows: String,
    controllers: Vec<String>,
}

impl Mount {
    fn has(&self, controller: &str) -> bool {
        // v2 has no cpuacct: cpu.stat has it all.
        let controller = if self.version == 2 && controller == "cpuacct" {
            "cpu"
        } else {
            controller
        };
        self.controllers.iter().any(|name| name == controller)
    }

    fn folder(&self, path: &str) -> PathBuf {
        let below = path.strip_prefix(&self.shows).unwrap_or(path);
        self.point.join(below.trim_start_matches('/'))
    }
}

/// The mounts that this process sees; where none is (`ip netns exec` mounts a /sys without them) those of a process whose root may
/// be read: our parents, process 1, any.
fn mounts(root: &Path) -> Result<Vec<Mount>> {
    let own = mounts_of(root, "self", root)?;
    Ok(if own.is_empty() {
        seen_by_another(root).unwrap_or_default()
    } else {
        own
    })
}

/// Whether anybody's mounts of control groups can be read here.
pub fn sees_groups(root: &Path) -> bool {
    mounts(root).is_ok_and(|mounts| !mounts.is_empty())
}

fn seen_by_another(root: &Path) -> Option<Vec<Mount>> {
    let parent = |process: &str| -> Option<String> {
        let stat = fs::read_to_string(root.join("proc").join(process).join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        Some(rest.split_ascii_whitespace().nth(1)?.to_owned())
    };
    let parents = std::iter::successors(parent("self"), |pid| parent(pid));
    let parents = parents.take_while(|pid| pid != "0").take(64);
    let all = fs::read_dir(root.join("proc")).ok()?;
    let all = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let all = all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let mut near = parents.chain(["1".to_owned()]).chain(all);
    near.find_map(|pid| {
        let top = root.join("proc").join(&pid).join("root");
        let mounts = mounts_of(root, &pid, &top).ok()?;
        (!mounts.is_empty() && top.is_dir()).then_some(mounts)
    })
}

/// `ID PARENT MAJ:MIN SHOWS POINT OPTIONS [TAG]... - TYPE SOURCE SUPER_OPTIONS`, see proc_pid_mountinfo(5).
fn mounts_of(root: &Path, process: &str, top: &Path) -> Result<Vec<Mount>> {
    let file = HeldFile::open(root.join("proc").join(process).join("mountinfo"))?;
    let mut buffer = Vec::new();
    let mut mounts = Vec::new();
    for mut line in file.read(&mut buffer)?.lines() {
        let shows = line.skip(3).word("a root")?;
        let named = line.word("a mount point")?;
        let point = top.join(named.trim_start_matches('/'));
        while line.word("-")? != "-" {}
        let kind = line.word("a type")?;
        let options = line.skip(1).next().unwrap_or_default();
        let (version, controllers) = match kind {
            "cgroup" => (1, options.split(',').map(str::to_owned).collect()),
            "cgroup2" => (2, v2_controllers(&point)),
            _ => continue,
        };
        mounts.push(Mount {
            version,
            named: named.into(),
            point,
            shows: shows.to_owned(),
            controllers,
        });
    }
    Ok(mounts)
}

/// An unreadable list is an empty one: the hierarchy may only serve to name services.
fn v2_controllers(point: &Path) -> Vec<String> {
    let text = fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// `4:memory:/path` (v1) or `0::/path` (v2).
fn place(mounts: &[Mount], membership: &str, controller: &str) -> Option<Place> {
    let mount = mounts.iter().find(|mount| mount.has(controller))?;
    let path = path_in(mount, membership, controller)?;
    Some(Place {
        version: mount.version,
        folder: mount.folder(path),
    })
}

fn path_in<'m>(mount: &Mount, membership: &'m str, controller: &str) -> Option<&'m str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let ours = match mount.version {
            1 => names.split(',').any(|name| name == controller),
            _ => number == "0" && names.is_empty(),
        };
        ours.then_some(path)
    })
}

/// One control group of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// As a user of this host types it.
    pub name: PathBuf,
    pub folder: PathBuf,
}

/// A process's groups that have a say over a controller: its own and each above it. A hybrid host has both versions, and the
/// controller is in one of them.
pub(crate) fn groups_of(root: &Path, process: &str, controller: &str) -> Result<Vec<Group>> {
    let file = HeldFile::open(root.join(format!("proc/{process}/cgroup")))?;
    let mut buffer = Vec::new();
    let membership = file.read(&mut buffer)?.text;
    let mut found = Vec::new();
    for mount in mounts(root)? {
        // A group of version 2 says itself whether it has the controller: by the file.
        if mount.version == 1 && !mount.has(controller) {
            continue;
        }
        let Some(path) = path_in(&mount, membership, controller) else {
            continue;
        };
        let folder = mount.folder(path);
        found.extend(folder.ancestors().map_while(|folder| {
            let below = folder.strip_prefix(&mount.point).ok()?;
            // Without a slash at its end, as `join` of nothing would leave it.
            let name = mount.named.components().chain(below.components());
            Some(Group {
                name: name.collect(),
                folder: folder.to_owned(),
            })
        }));
    }
    Ok(found)
}

/// CPU time that a control group may have.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "CpuQuota")]
pub struct Quota {
    /// Its folder, as a user of this host types it.
    pub group: PathBuf,
    /// How many CPUs' worth.
    pub cpus: f64,
    /// In which it had something to run.
    pub periods: u64,
    /// In which it was held back.
    pub throttled_periods: u64,
    /// Summed over CPUs.
    pub throttled_s: f64,
}

/// Quotas that hold for a process (`self`, or a PID): that of its group, and of each above; empty if they may not be read.
pub fn quotas(root: &Path, process: &str) -> Vec<Quota> {
    let groups = groups_of(root, process, "cpu").unwrap_or_default();
    groups.into_iter().filter_map(quota).collect()
}

fn quota(group: Group) -> Option<Quota> {
    let text = |name: &str| fs::read_to_string(group.folder.join(name)).ok();
    let both = text("cpu.max").or_else(|| {
        let (quota, period) = (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?);
        Some(format!("{quota} {period}"))
    })?;
    let mut words = both.split_ascii_whitespace();
    // "max" and -1 = no limit.
    let quota: f64 = words.next()?.parse().ok().filter(|quota| *quota >= 0.0)?;
    let period: f64 = words.next()?.parse().ok()?;
    let stat = text("cpu.stat")?;
    let said: BTreeMap<&str, u64> = stat
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name, value.trim().parse().ok()?))
        })
        .collect();
    let number = |name: &str| said.get(name).copied();
    let held_ns = number("throttled_time")
        .or_else(|| Some(number("throttled_usec")?.saturating_mul(1000)))
        .unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "seconds, for people")]
    let throttled_s = held_ns as f64 / 1e9;
    Some(Quota {
        group: group.name,
        cpus: quota / period,
        periods: number("nr_periods").unwrap_or(0),
        throttled_periods: number("nr_throttled").unwrap_or(0),
        throttled_s,
    })
}

/// How often the memory limit of a control group was reached.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct MemoryHits {
    /// The file that counts it.
    pub file: String,
    /// Since the group was made.
    pub times: u64,
}

/// Of the groups of a process (`self`, or a PID).
pub fn memory_hits(root: &Path, process: &str) -> Vec<MemoryHits> {
    let groups = groups_of(root, process, "memory").unwrap_or_default();
    let of_group = |group: Group| {
        let text = |name: &str| fs::read_to_string(group.folder.join(name)).ok();
        let name = group.name.display();
        if let Some(events) = text("memory.events") {
            let max = events.lines().find_map(|line| line.strip_prefix("max "));
            let hits = max.and_then(|hits| hits.parse().ok()).unwrap_or(0);
            return Some(MemoryHits {
                file: format!("{name}/memory.events (max)"),
                times: hits,
            });
        }
        Some(MemoryHits {
            file: format!("{name}/memory.failcnt"),
            times: text("memory.failcnt")?.trim().parse().ok()?,
        })
    };
    groups.into_iter().filter_map(of_group).collect()
}

#[cfg(test)]
mod tests;
