//! Every word the node says about the host is explained in docs/reference/counters.md.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Below these, keys are names of the kernel, a driver or a user.
const OPEN: [&str; 4] = ["snmp", "ethtool", "sysctl", "conntrack"];
const NAMED: [&str; 3] = ["links", "disks", "cgroups"];

fn words(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                found.insert(name.clone());
                match name.as_str() {
                    open if OPEN.contains(&open) => {}
                    // As a number it is a source of `age_us`.
                    named if NAMED.contains(&named) && field.is_object() => {
                        field
                            .as_object()
                            .unwrap()
                            .values()
                            .for_each(|port| words(port, found));
                    }
                    _ => words(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| words(item, found)),
        _ => {}
    }
}

fn said(args: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_nodrop-node"))
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut found = BTreeSet::new();
    for line in std::str::from_utf8(&output.stdout).unwrap().lines() {
        words(&serde_json::from_str(line).unwrap(), &mut found);
    }
    found
}

#[test]
fn every_word_is_explained() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/counters.md");
    let page = std::fs::read_to_string(page).unwrap();
    let me = std::process::id().to_string();
    let sample = [
        "sample",
        "--interval-ms",
        "10",
        "--duration-s",
        "0.01",
        "--port",
        "lo",
        "--cgroup",
        "/",
        "--every",
        "snmp=10",
        "--every",
        "ethtool=10",
        "--every",
        "interrupts=10",
    ];
    let sampled = said(&[&sample[..], &["--pid", &me, "--cgroup-of-pid", &me]].concat());
    let probed = said(&["probe", "--what", "host,counters", "--port", "lo"]);
    let unknown: Vec<_> = sampled
        .union(&probed)
        .filter(|word| *word != "type" && *word != "host" && *word != "counters")
        .filter(|word| !page.contains(&format!("`{word}`")))
        .collect();
    assert_eq!(unknown, Vec::<&String>::new());
}
