//! A row in the words of OpenMetrics 1.0: names of ports, CPUs, processes become labels.

use std::collections::BTreeMap;
use std::fmt::Write;

use nodrop_counters::ProcessReading;
use serde_json::Value;

use super::output::Line;
use super::row::Row;

/// Maps whose keys are names of things: the label that holds each level of keys.
const LABELS: [(&str, &[&str]); 6] = [
    ("links", &["port"]),
    ("ethtool", &["port", "name"]),
    ("snmp", &["name"]),
    ("disks", &["disk"]),
    ("cgroups", &["path"]),
    ("age_us", &["source"]),
];
/// Fields that say which one of a list an object is.
const IDENTITIES: [&str; 4] = ["cpu", "irq", "pid", "tid"];
/// Values of the moment; everything else only rises.
const GAUGES: [&str; 16] = [
    "age_us",
    "cgroup_anon_bytes",
    "cgroup_file_bytes",
    "cost_us",
    "disks_in_flight",
    "lateness_us",
    "load",
    "memory",
    "mono_ns",
    "processes_rss_bytes",
    "processes_rss_peak_bytes",
    "real_ns",
    "tree_processes",
    "tree_rss_bytes",
    "tree_threads",
    "cgroup_memory",
];
/// What each of these is, only its author knows.
const UNKNOWN: [&str; 2] = ["snmp", "ethtool"];

/// Everything that is known, ended as the format demands.
pub fn exposition(row: &Row, processes: &[ProcessReading]) -> String {
    let line = serde_json::to_value(Line::of(row, processes)).unwrap_or_default();
    // Samples of one family must stand together.
    let mut families = BTreeMap::new();
    let whole = Place {
        family: String::new(),
        labels: String::new(),
        keys: &[],
    };
    collect(&line, &whole, &mut families);
    let mut text = String::new();
    for (family, samples) in &families {
        let (kind, suffix) = kind(family);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# TYPE nodrop_{family} {kind}");
        for (labels, value) in samples {
            let _ = match labels.as_str() {
                "" => writeln!(text, "nodrop_{family}{suffix} {value}"),
                labels => writeln!(text, "nodrop_{family}{suffix}{{{labels}}} {value}"),
            };
        }
    }
    text.push_str("# EOF\n");
    text
}

fn kind(family: &str) -> (&'static str, &'static str) {
    let among = |names: &[&str]| {
        names.iter().any(|name| {
            let rest = family.replacen("cgroups_", "cgroup_", 1);
            let rest = rest.strip_prefix(name).map(str::to_owned);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
    };
    if among(&UNKNOWN) {
        ("unknown", "")
    } else if among(&GAUGES) && !family.ends_with("_limit_hits") {
        ("gauge", "")
    } else {
        ("counter", "_total")
    }
}

type Families = BTreeMap<String, Vec<(String, String)>>;

/// Where we are in the row: the family's name so far, the labels, and labels that the next levels of keys belong in.
#[derive(Clone)]
struct Place<'k> {
    family: String,
    labels: String,
    keys: &'k [&'static str],
}

fn collect(value: &Value, place: &Place<'_>, families: &mut Families) {
    match (value, place.keys) {
        (Value::Object(fields), [label, keys @ ..]) => {
            for (name, field) in fields {
                let labels = labelled(&place.labels, label, name);
                let family = place.family.clone();
                let inner = Place {
                    family,
                    labels,
                    keys,
                };
                collect(field, &inner, families);
            }
        }
        (Value::Object(fields), []) => collect_fields(fields, place, families),
        (Value::Array(items), _) => {
            for (number, item) in items.iter().enumerate() {
                let mut inner = place.clone();
                if !item.is_object() {
                    // Interrupts of one queue, by CPU.
                    inner.labels = labelled(&inner.labels, "cpu", &number.to_string());
                }
                collect(item, &inner, families);
            }
        }
        (Value::Number(number), _) => {
            let samples = families.entry(place.family.clone()).or_default();
            samples.push((place.labels.clone(), number.to_string()));
        }
        _ => {}
    }
}

/// Of an object its names and numbers of itself are labels of the rest.
fn collect_fields(
    fields: &serde_json::Map<String, Value>,
    place: &Place<'_>,
    families: &mut Families,
) {
    let mut labels = place.labels.clone();
    for (name, field) in fields {
        let label = match name.as_str() {
            "name" if place.family == "processes_threads" => "thread",
            name => name,
        };
        match field {
            // A label is what a series goes by, and this changes from row to row.
            Value::String(_) if label == "state" => {}
            Value::String(text) => labels = labelled(&labels, label, text),
            Value::Number(number) if IDENTITIES.contains(&label) => {
                labels = labelled(&labels, label, &number.to_string());
            }
            _ => {}
        }
    }
    for (name, field) in fields {
        if IDENTITIES.contains(&name.as_str()) {
            continue;
        }
        let mut inner = Place {
            family: name.clone(),
            labels: labels.clone(),
            keys: &[],
        };
        if place.family.is_empty() {
            let known = LABELS.iter().find(|(map, _)| map == name);
            inner.keys = known.map_or(&[], |(_, keys)| keys);
        } else {
            inner.family = format!("{}_{name}", place.family);
        }
        collect(field, &inner, families);
    }
}

fn labelled(labels: &str, name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    let comma = if labels.is_empty() { "" } else { "," };
    format!("{labels}{comma}{name}=\"{value}\"")
}
