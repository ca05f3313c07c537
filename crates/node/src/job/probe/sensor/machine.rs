//! The machine around the sensor: CPUs, memory, and settings whose cost is not known.

use std::collections::BTreeMap;
use std::path::Path;

use nodrop_counters::SoftnetReader;
use schemars::JsonSchema;
use serde::Serialize;

use super::files::Files;
use crate::job::probe::captures::arguments;

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorMachine")]
pub struct Machine {
    online: Vec<u32>,
    /// By the boot line.
    isolated: Vec<u32>,
    /// NUMA node → its CPUs.
    nodes: BTreeMap<u32, Vec<u32>>,
    /// PID of each irqbalance → its arguments.
    balancers: BTreeMap<u32, Vec<String>>,
    /// CPU → packets that its backlog refused.
    softnet_dropped: BTreeMap<u64, u64>,
    memory_bytes: Option<u64>,
    uptime_s: Option<f64>,
    /// It is a guest: its PCIe links are emulated.
    hypervisor: bool,
}

/// A setting that is shown and not judged.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorValue")]
pub struct Value {
    what: String,
    value: String,
    at: String,
}

const VALUES: [(&str, &str); 12] = [
    ("kernel", "proc/sys/kernel/osrelease"),
    ("boot line", "proc/cmdline"),
    ("isolated CPUs", "sys/devices/system/cpu/isolated"),
    ("CPUs without tick", "sys/devices/system/cpu/nohz_full"),
    ("SMT", "sys/devices/system/cpu/smt/control"),
    (
        "governor",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    ),
    (
        "clock source",
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    ("huge pages", "sys/kernel/mm/transparent_hugepage/enabled"),
    ("firmware", "sys/class/dmi/id/bios_version"),
    ("machine", "sys/class/dmi/id/product_name"),
    ("softirq budget", "proc/sys/net/core/netdev_budget"),
    ("backlog", "proc/sys/net/core/netdev_max_backlog"),
];

impl Machine {
    pub fn of(files: &Files) -> Self {
        let cpu = Path::new("sys/devices/system/cpu");
        let mut softnet = Vec::new();
        let read = SoftnetReader::new(&files.root).and_then(|mut rows| rows.read(&mut softnet));
        if read.is_err() {
            softnet.clear();
        }
        let memory = files.text("proc/meminfo").unwrap_or_default();
        let total = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"));
        let total_kb = total.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
        let uptime = files.text("proc/uptime").unwrap_or_default();
        let flags = cpu_info(files, "flags").unwrap_or_default();
        Self {
            online: files.cpus(cpu.join("online")),
            isolated: files.cpus(cpu.join("isolated")),
            nodes: nodes(files),
            balancers: balancers(files),
            softnet_dropped: softnet.iter().map(|row| (row.cpu, row.dropped)).collect(),
            memory_bytes: total_kb.map(|kb: u64| kb * 1024),
            uptime_s: uptime
                .split_ascii_whitespace()
                .next()
                .and_then(|word| word.parse().ok()),
            hypervisor: flags.split(' ').any(|flag| flag == "hypervisor"),
        }
    }
}

fn nodes(files: &Files) -> BTreeMap<u32, Vec<u32>> {
    let folder = Path::new("sys/devices/system/node");
    let names = files.names(folder).into_iter();
    let each = names.filter_map(|name| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        Some((number, files.cpus(folder.join(name).join("cpulist"))))
    });
    each.collect()
}

fn balancers(files: &Files) -> BTreeMap<u32, Vec<String>> {
    let each = super::spaces::processes(files).into_iter();
    each.filter(|(_, name)| name == "irqbalance")
        .map(|(pid, _)| (pid, arguments(&files.root, pid)))
        .collect()
}

/// The first CPU's.
fn cpu_info(files: &Files, key: &str) -> Option<String> {
    let text = files.text("proc/cpuinfo")?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

pub fn values(files: &Files) -> Vec<Value> {
    let value = |what: &str, value: String, path: &str| Value {
        what: what.into(),
        value,
        at: format!("/{path}"),
    };
    let mut found: Vec<Value> = VALUES
        .iter()
        .filter_map(|(what, path)| Some(value(what, files.word(path)?, path)))
        .collect();
    if let Some(model) = cpu_info(files, "model name") {
        found.push(value("CPU", model, "proc/cpuinfo"));
    }
    let groups = "sys/kernel/iommu_groups";
    found.push(value(
        "IOMMU groups",
        files.names(groups).len().to_string(),
        groups,
    ));
    let states = "sys/devices/system/cpu/cpu0/cpuidle";
    let names = files.names(states).into_iter();
    let names: Vec<String> = names
        .filter_map(|state| files.word(Path::new(states).join(state).join("name")))
        .collect();
    if !names.is_empty() {
        found.push(value("idle states", names.join(", "), states));
    }
    found
}
