//! What the CPUs are and which clock they have, from `/proc/cpuinfo` and `/sys/devices/system`.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::HeldFile;

/// What makes two hosts' figures comparable, or not.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct CpuInfo {
    /// As the CPU names itself.
    pub model: Option<String>,
    /// CPUs the kernel runs on.
    pub cpus: u32,
    /// Which ones, e.g. `0-3`.
    pub online: Option<String>,
    /// Threads share cores.
    pub smt: Option<bool>,
    /// A hypervisor says it is there: this is a guest.
    pub hypervisor: bool,
    /// The TSC ticks at one rate and does not stop: clock reads are cheap and comparable.
    pub stable_tsc: bool,
    /// What CLOCK_MONOTONIC reads.
    pub clock_source: Option<String>,
    /// Frequency governor of CPU 0; `None` in most guests.
    pub governor: Option<String>,
    /// Whether the CPU may exceed its base frequency.
    pub boost: Option<bool>,
}

/// `root` is `/` in production and a fixture folder in tests.
pub fn read_cpu_info(root: &Path) -> Result<CpuInfo> {
    let file = HeldFile::open(root.join("proc/cpuinfo"))?;
    let mut buffer = Vec::new();
    let mut info = CpuInfo::default();
    for line in file.read(&mut buffer)?.text.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name.trim() {
            "processor" => info.cpus += 1,
            "model name" => info.model = Some(value.trim().to_owned()),
            "flags" => {
                let has = |flag| value.split_ascii_whitespace().any(|word| word == flag);
                info.hypervisor = has("hypervisor");
                info.stable_tsc = has("constant_tsc") && has("nonstop_tsc");
            }
            _ => {}
        }
    }
    let system = root.join("sys/devices/system");
    let text = |path: &str| {
        Some(
            fs::read_to_string(system.join(path))
                .ok()?
                .trim()
                .to_owned(),
        )
    };
    info.online = text("cpu/online");
    info.smt = text("cpu/smt/active").map(|active| active == "1");
    info.clock_source = text("clocksource/clocksource0/current_clocksource");
    info.governor = text("cpu/cpu0/cpufreq/scaling_governor");
    info.boost = text("cpu/cpufreq/boost")
        .map(|boost| boost == "1")
        .or_else(|| text("cpu/intel_pstate/no_turbo").map(|off| off == "0"));
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture;

    #[test]
    fn a_guest_with_two_cpus() {
        let info = read_cpu_info(&fixture()).unwrap();
        let expected = CpuInfo {
            model: Some("Intel(R) Xeon(R) Processor".into()),
            cpus: 2,
            online: Some("0-1".into()),
            smt: Some(false),
            hypervisor: true,
            stable_tsc: true,
            clock_source: Some("tsc".into()),
            governor: None,
            boost: None,
        };
        assert_eq!(info, expected);
    }
}
