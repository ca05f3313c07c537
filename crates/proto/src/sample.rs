//! Job `sample`: read the host's counters on a schedule.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `sample`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct SampleSpec {
    /// Milliseconds between readings of every source that has no interval of its own
    #[arg(long, short, default_value_t = interval_ms(), value_name = "MS")]
    #[serde(default = "interval_ms")]
    pub interval_ms: u64,
    /// Another interval for one source, may be repeated: cgroup=10, disks=1000, snmp=1000; 0 = do not read it
    #[arg(long, value_name = "SOURCE=MS", long_help = EVERY_HELP)]
    #[serde(default, with = "by_source")]
    #[schemars(with = "std::collections::BTreeMap<SampleSource, u64>")]
    pub every: Vec<Every>,
    /// Root of a process tree, may be repeated; children are found
    #[arg(long = "pid", short, value_name = "PID")]
    #[serde(default)]
    pub pids: Vec<u32>,
    /// Processes that do not belong to the tree, read beside it: the sender of a trial
    #[arg(skip)]
    #[serde(default)]
    pub beside_pids: Vec<u32>,
    /// Network interface of this network namespace, may be repeated
    #[arg(long = "port", short = 'n', value_name = "NAME")]
    #[serde(default)]
    pub ports: Vec<String>,
    /// A process whose control group is read as well
    #[arg(long, value_name = "PID")]
    pub cgroup_of_pid: Option<u32>,
    /// Control group, as in /proc/PID/cgroup or below /sys/fs/cgroup, may be repeated
    #[arg(long = "cgroup", value_name = "PATH")]
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// End after this time; at stop (Ctrl-C) if absent
    #[arg(long, value_name = "SECONDS")]
    pub duration_s: Option<f64>,
    /// File for the rows (sysmon: folder for its files); as events (by hand: on stdout) if absent
    #[arg(long, short = 'o')]
    pub path: Option<PathBuf>,
    /// File for the levels of the capture rings that `pids` and their children hold at the start
    #[arg(skip)]
    pub levels_path: Option<PathBuf>,
    /// Milliseconds between looks at them while they are as good as empty; 1 while one fills
    #[arg(skip = level_ms())]
    #[serde(default = "level_ms")]
    pub level_ms: u64,
    /// CPUs whose speed is watched, each by a thread on it
    #[arg(skip)]
    #[serde(default)]
    pub speed_cpus: Vec<u32>,
    /// How rows are written to a file or by hand; events are always JSON
    #[arg(long, short, value_enum, default_value_t)]
    #[serde(default)]
    pub format: SampleFormat,
    /// Answer GET /metrics (OpenMetrics) on this port of 127.0.0.1 (0 = a free one) or on this Unix socket
    #[arg(long, value_name = "PORT|PATH")]
    pub metrics: Option<String>,
}

const EVERY_HELP: &str = "\
Another interval for one source, may be repeated; 0 = do not read it. A row holds the sources that were due; its age_us says how old the \
last reading of each is.

  cpus        time per CPU: user, system, softirq, steal, guest …    (--interval-ms)
  memory      /proc/meminfo                                          (--interval-ms)
  softnet     backlog counters per CPU                               (--interval-ms)
  links       all counters of each --port                            (--interval-ms)
  cgroup      --cgroup and --cgroup-of-pid                           (--interval-ms)
  tree        each --pid, its children, their threads                (--interval-ms)
  details     of the tree: new threads and children, names, peak
              memory, context switches, bytes read and written       (1000, or --interval-ms if longer)
  disks       whole disks                                            (likewise)
  load        load averages and pressure (PSI)                       (likewise)
  swap        pages swapped in and out, major faults                 (likewise)
  interrupts  per queue and CPU, of each --port                      (off)
  ethtool     the driver's own counters of each --port               (off)
  snmp        IP, fragment, TCP, UDP counters of this namespace      (off)

With --format sysmon everything its columns need is read for every row, and nothing else (but cgroup, if one is asked for).";

/// What can be read, each at an interval of its own.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum SampleSource {
    /// `/proc/stat`
    Cpus,
    /// `/proc/meminfo`
    Memory,
    /// `/proc/loadavg`, `/proc/pressure`
    Load,
    /// `/proc/net/softnet_stat`
    Softnet,
    /// rtnetlink
    Links,
    /// Control groups
    Cgroup,
    /// `/proc/PID`
    Tree,
    /// What of `/proc/PID` is dearer
    Details,
    /// `/proc/diskstats`
    Disks,
    /// `/proc/vmstat`
    Swap,
    /// `/proc/interrupts`
    Interrupts,
    /// `ethtool -S`
    Ethtool,
    /// `/proc/net/snmp`, `netstat`, `snmp6`
    Snmp,
}

impl SampleSource {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Cpus,
        Self::Memory,
        Self::Load,
        Self::Softnet,
        Self::Links,
        Self::Cgroup,
        Self::Tree,
        Self::Details,
        Self::Disks,
        Self::Swap,
        Self::Interrupts,
        Self::Ethtool,
        Self::Snmp,
    ];

    /// As in a spec.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Memory => "memory",
            Self::Load => "load",
            Self::Softnet => "softnet",
            Self::Links => "links",
            Self::Cgroup => "cgroup",
            Self::Tree => "tree",
            Self::Details => "details",
            Self::Disks => "disks",
            Self::Swap => "swap",
            Self::Interrupts => "interrupts",
            Self::Ethtool => "ethtool",
            Self::Snmp => "snmp",
        }
    }

    /// Sources that are dear or change slowly (the kernel renews load averages every 5 s) are read once per second if nothing
    /// else is asked; those that are asked for rarely, not at all.
    fn default_ms(self, spec: &SampleSpec) -> u64 {
        let has_every_column = spec.format == SampleFormat::Sysmon;
        match self {
            Self::Interrupts | Self::Ethtool | Self::Snmp => 0,
            // They have no column there.
            Self::Load | Self::Softnet | Self::Swap if has_every_column => 0,
            Self::Details | Self::Disks | Self::Load | Self::Swap if !has_every_column => {
                spec.interval_ms.max(1000)
            }
            _ => spec.interval_ms,
        }
    }
}

/// How often one source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every {
    /// Which.
    pub source: SampleSource,
    /// 0 = never.
    pub interval_ms: u64,
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, interval) = text
            .split_once('=')
            .ok_or("not SOURCE=MS, like cgroup=10")?;
        Ok(Self {
            source: SampleSource::from_str(name, false)?,
            interval_ms: interval.parse().map_err(|e| format!("{interval}: {e}"))?,
        })
    }
}

impl SampleSpec {
    /// Milliseconds between readings of a source; 0 = never.
    #[must_use]
    pub fn interval_of(&self, source: SampleSource) -> u64 {
        let asked = self.every.iter().rev().find(|every| every.source == source);
        asked.map_or_else(|| source.default_ms(self), |every| every.interval_ms)
    }
}

/// In JSON: `{"cgroup":10,"disks":1000}`.
mod by_source {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Every, SampleSource};

    pub fn serialize<S: Serializer>(every: &[Every], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(every.iter().map(|every| (every.source, every.interval_ms)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Every>, D::Error> {
        let map = BTreeMap::<SampleSource, u64>::deserialize(from)?;
        let every = map.into_iter().map(|(source, interval_ms)| Every {
            source,
            interval_ms,
        });
        Ok(every.collect())
    }
}

/// How rows are written.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum SampleFormat {
    /// JSON lines: everything
    #[default]
    Jsonl,
    /// One column per counter; of processes only the sums
    Csv,
    /// The columns of the 2016 studies' sysmon.py: sysstat.csv, netstat.PORT.csv and psstat.csv in the folder --path
    Sysmon,
}

/// `ready` of `sample`: one reading was taken and thrown away, so everything asked for can be read.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SampleReady {
    /// As asked.
    pub interval_ms: u64,
    /// Processes found under the roots.
    pub processes: u64,
    /// Their threads.
    pub threads: u64,
    /// Where OpenMetrics are served, if asked.
    pub metrics: Option<String>,
}

fn interval_ms() -> u64 {
    100
}

fn level_ms() -> u64 {
    4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> SampleSpec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_source_has_an_interval() {
        let spec = spec(r#"{"interval_ms":100,"every":{"cgroup":10,"snmp":2000,"links":0}}"#);
        let intervals = SampleSource::ALL.map(|source| spec.interval_of(source));
        let expected = [
            100, 100, 1000, 100, 0, 10, 100, 1000, 1000, 1000, 0, 0, 2000,
        ];
        assert_eq!(intervals, expected);
        assert_eq!(serde_json::to_value(&spec).unwrap()["every"]["snmp"], 2000);
    }

    #[test]
    fn names_are_the_same_in_json_and_in_flags() {
        for source in SampleSource::ALL {
            let name = source.name();
            assert_eq!(serde_json::to_value(source).unwrap(), name);
            let every = Every::from_str(&format!("{name}=7")).unwrap();
            assert_eq!((every.source, every.interval_ms), (source, 7));
        }
        assert!(Every::from_str("cgroups=7").is_err() && Every::from_str("cgroup").is_err());
    }

    #[test]
    fn the_studies_columns_are_all_in_every_row_and_nothing_else_is_read() {
        let spec = spec(r#"{"interval_ms":100,"format":"sysmon"}"#);
        let intervals = SampleSource::ALL.map(|source| spec.interval_of(source));
        let expected = [100, 100, 0, 0, 100, 100, 100, 100, 100, 0, 0, 0, 0];
        assert_eq!(intervals, expected);
    }
}
