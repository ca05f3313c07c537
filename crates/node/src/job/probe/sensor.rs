//! A host that captures packets, as its settings are now: ports, packet sockets, programs, CPUs. It only reads, and loads no module.

mod files;
mod machine;
mod ports;
mod programs;
mod spaces;

use std::collections::BTreeMap;
use std::path::Path;

use nodrop_counters::Quota;
use schemars::JsonSchema;
use serde::Serialize;

use files::Files;
pub use files::Lack;
use machine::{Machine, Value};
use ports::Port;
use programs::{Program, Text};
use spaces::{OURS, Socket, Spaces};

use super::driven::driven;

/// All that one look saw; absent = `None`, and `missing` has the right that would show it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorLook")]
pub struct Look {
    #[serde(flatten)]
    machine: Machine,
    /// Around this process.
    own_quotas: Vec<Quota>,
    /// Those of our own namespace, the loopback too.
    names: Vec<String>,
    /// Of our own namespace all, of others those that somebody captures on.
    ports: Vec<Port>,
    sockets: Vec<Socket>,
    programs: Vec<Program>,
    /// Files that were asked for: a suricata.yaml with those that it includes, or why it cannot be read.
    files: BTreeMap<String, Text>,
    /// Settings whose cost is not known.
    values: Vec<Value>,
    missing: Vec<Lack>,
}

/// With `asked`, ports of our own namespace, nothing else is looked at but what captures there.
pub fn look(asked: &[String], paths: &[String]) -> Look {
    let root = Path::new("/");
    let files = Files::new(root);
    let mut spaces = Spaces::of(&files);
    if !asked.is_empty() {
        spaces.only_ours(); // other namespaces hold peers alone
        files.forget();
    }
    let sockets = spaces.sockets(&files, asked);
    let programs = programs::all(&files, &spaces, &sockets);
    for one in driven(root) {
        files.lacks(one.what, &one.needs);
    }
    if !programs.is_empty() && !nodrop_counters::sees_groups(root) {
        files.lacks(
            "CPU quotas and memory limits of capture programs",
            "a /sys/fs/cgroup: `ip netns exec` mounts a /sys without it; start nodrop outside, where it finds other \
             namespaces itself, or by nsenter --net=/run/netns/NAME",
        );
    }
    Look {
        machine: Machine::of(&files),
        own_quotas: nodrop_counters::quotas(root, "self"),
        names: spaces.names(OURS),
        ports: ports::all(&files, &spaces, &sockets, asked),
        sockets,
        programs,
        files: paths
            .iter()
            .map(|path| (path.clone(), programs::with_includes(root, Path::new(path))))
            .collect(),
        values: machine::values(&files),
        missing: files.missing(),
    }
}
