//! What this host is, for the manifest and for `doctor`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::utsname::uname;
use nodrop_counters::{CpuInfo, Memory, MemoryReader, Result, cgroup_versions, read_cpu_info};
use schemars::JsonSchema;
use serde::Serialize;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
pub struct Host {
    hostname: String,
    kernel: String,
    machine: String,
    /// Changes with every boot: monotonic times of two boots cannot be compared.
    boot_id: Option<String>,
    cpu: CpuInfo,
    memory: Memory,
    /// Controller → 1 or 2.
    cgroup: BTreeMap<&'static str, u8>,
    uid: u32,
    /// Names the user namespace; of the initial one it ends in `[4026531837]`.
    user_namespace: Option<String>,
    network_namespace: Option<String>,
    /// Effective capabilities as a hexadecimal mask.
    capabilities: Option<String>,
    /// Sysctl name → value, of those that decide where packets are lost.
    sysctl: BTreeMap<&'static str, String>,
}

const SYSCTLS: [&str; 10] = [
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.ipfrag_high_thresh",
    "net.ipv4.ipfrag_time",
    "kernel.sched_rt_runtime_us",
    "kernel.unprivileged_userns_clone",
    "user.max_user_namespaces",
];

/// Reads everything; what this kernel lacks is absent.
pub fn read() -> Result<Host> {
    let root = Path::new("/");
    let text = |path: &str| Some(fs::read_to_string(path).ok()?.trim().to_owned());
    let link = |path: &str| Some(fs::read_link(path).ok()?.to_string_lossy().into_owned());
    let sysctl = |name: &'static str| {
        text(&format!("/proc/sys/{}", name.replace('.', "/"))).map(|value| (name, value))
    };
    let name = uname().ok();
    let of = |part: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        name.as_ref()
            .map(|name| part(name).to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    Ok(Host {
        hostname: of(|name| name.nodename()),
        kernel: of(|name| name.release()),
        machine: of(|name| name.machine()),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        cpu: read_cpu_info(root)?,
        memory: MemoryReader::new(root)?.read()?,
        cgroup: cgroup_versions(root)?,
        uid: nix::unistd::geteuid().as_raw(),
        user_namespace: link("/proc/self/ns/user"),
        network_namespace: link("/proc/self/ns/net"),
        capabilities: capabilities(),
        sysctl: SYSCTLS.into_iter().filter_map(sysctl).collect(),
    })
}

fn capabilities() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    Some(mask.trim().to_owned())
}
