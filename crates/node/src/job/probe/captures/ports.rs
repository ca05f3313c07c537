//! Ports on which programs capture, in whatever network namespace, and what reassembly took out ahead of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nix::net::if_::if_indextoname;
use nodrop_counters::{CounterError, EthtoolReader, Link, LinkReader, Named, Snmp, SnmpReader};
use schemars::JsonSchema;
use serde::Serialize;

use super::holders::{Holder, Missing, namespace as namespace_of};
use crate::job::probe::namespace::{listed, within};

/// One port. Its frames are counted before everything else of a look, and after.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CapturePort")]
pub struct PortCounts {
    namespace: u64,
    index: i32,
    name: String,
    /// `None`: the namespace may not be entered, `table` has what any user may read.
    link: Option<Link>,
    table: Option<Row>,
    /// The driver's own counters.
    ethtool: Named<u64>,
    rx_packets: [u64; 2],
    /// Packets that this host sent by it; a capture sees them too.
    tx_packets: [u64; 2],
}

/// A line of `/proc/PID/net/dev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "PortTableRow")]
pub struct Row {
    rx_packets: u64,
    rx_errors: u64,
    /// rx_dropped and rx_missed_errors in one: what came to no protocol is among it, and no loss.
    rx_dropped_or_missed: u64,
    tx_packets: u64,
}

/// What IPv4 reassembly of a namespace took in and gave back, `Ip.Reasm*` of its snmp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Reassembled {
    requests: i64,
    oks: i64,
    fails: i64,
    timeouts: i64,
}

type Key = (u64, i32);

/// Those that are open.
#[derive(Default)]
pub struct Ports {
    ports: BTreeMap<Key, Port>,
    reassembly: BTreeMap<u64, SnmpReader>,
}

struct Port {
    name: String,
    reader: Reader,
}

enum Reader {
    Netlink {
        links: LinkReader,
        ethtool: EthtoolReader,
    },
    Table(PathBuf),
}

/// One reading of all.
pub struct Reading {
    ports: BTreeMap<Key, (String, One)>,
    reassembly: BTreeMap<u64, Reassembled>,
}

enum One {
    Link(Box<Link>, Named<u64>),
    Row(Row),
}

impl One {
    fn packets(&self) -> (u64, u64) {
        match self {
            Self::Link(link, _) => (link.stats.rx_packets, link.stats.tx_packets),
            Self::Row(row) => (row.rx_packets, row.tx_packets),
        }
    }
}

impl Ports {
    /// Of the ports that are open.
    pub fn names(&self) -> Vec<Key> {
        self.ports.keys().copied().collect()
    }

    /// What is gone is not in it.
    pub fn read(&mut self) -> Reading {
        let ports = self.ports.iter_mut();
        let ports = ports.filter_map(|(key, port)| Some((*key, (port.name.clone(), port.read()?))));
        let ports = ports.collect();
        let reassembly = self.reassembly.iter_mut();
        let reassembly = reassembly.filter_map(|(number, reader)| {
            let mut all = Snmp::default();
            reader.read(&mut all).ok()?;
            let value = |name: &str| all.get(name).copied();
            let seen = Reassembled {
                requests: value("Ip.ReasmReqds")?,
                oks: value("Ip.ReasmOKs")?,
                fails: value("Ip.ReasmFails")?,
                timeouts: value("Ip.ReasmTimeout")?,
            };
            Some((*number, seen))
        });
        Reading {
            reassembly: reassembly.collect(),
            ports,
        }
    }

    /// Opens those of sockets that are new, and closes those without.
    pub fn keep(&mut self, root: &Path, held: &[Holder], missing: &mut BTreeSet<Missing>) {
        let wanted: BTreeMap<Key, u32> = held
            .iter()
            .filter(|one| one.ifindex > 0)
            .map(|one| ((one.namespace, one.ifindex), one.by_pid))
            .collect();
        self.ports.retain(|key, _| wanted.contains_key(key));
        self.reassembly
            .retain(|number, _| wanted.keys().any(|(namespace, _)| namespace == number));
        for ((namespace, index), pid) in wanted {
            let key = (namespace, index);
            if !self.ports.contains_key(&key) {
                self.ports
                    .extend(open(root, namespace, index, pid).map(|port| (key, port)));
            }
            let table = |port: &&Port| matches!(port.reader, Reader::Table(_));
            if let Some(port) = self.ports.get(&key).filter(table) {
                missing.insert(Missing {
                    what: format!("losses of the NIC and its driver at {}", port.name),
                    needs: "CAP_SYS_ADMIN and CAP_SYS_PTRACE (root): another network namespace"
                        .into(),
                    why: format!("/proc/{pid}/ns/net may not be entered"),
                });
            }
            if !self.reassembly.contains_key(&namespace) {
                let reader = SnmpReader::of_process(root, pid).ok();
                self.reassembly
                    .extend(reader.map(|reader| (namespace, reader)));
            }
        }
    }
}

impl Port {
    fn read(&mut self) -> Option<One> {
        match &mut self.reader {
            Reader::Netlink { links, ethtool } => {
                let link = links.read(&self.name).ok()?;
                let mut named = Named::default();
                // A driver that is just going: its counters are absent, not zero.
                let _ = ethtool.read(&mut named);
                Some(One::Link(Box::new(link), named))
            }
            Reader::Table(path) => {
                let table = fs::read_to_string(path).ok()?;
                row(&table, &self.name).map(One::Row)
            }
        }
    }
}

/// `None` if it is gone.
fn open(root: &Path, namespace: u64, index: i32, pid: u32) -> Option<Port> {
    if root == Path::new("/") {
        let own = namespace_of(root, std::process::id()) == Some(namespace);
        if let Some(port) = entered((!own).then_some(pid), index) {
            return Some(port);
        }
    }
    Some(Port {
        name: listed(root, pid).remove(&index)?,
        reader: Reader::Table(root.join(format!("proc/{pid}/net/dev"))),
    })
}

fn entered(pid: Option<u32>, index: i32) -> Option<Port> {
    let open = move || -> Option<Port> {
        let name = if_indextoname(index.unsigned_abs()).ok()?;
        let name = name.to_str().ok()?.to_owned();
        let readers = || -> Result<Reader, CounterError> {
            Ok(Reader::Netlink {
                links: LinkReader::new()?,
                ethtool: EthtoolReader::new(&name)?,
            })
        };
        let reader = readers().ok()?;
        Some(Port { name, reader })
    };
    within(pid, open).ok().flatten()
}

/// `name: eight numbers of receiving, eight of sending`.
fn row(table: &str, name: &str) -> Option<Row> {
    let line = table.lines().find_map(|line| {
        let (own, rest) = line.split_once(':')?;
        (own.trim() == name).then_some(rest)
    })?;
    let words: Vec<u64> = line
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    Some(Row {
        rx_packets: *words.get(1)?,
        rx_errors: *words.get(2)?,
        rx_dropped_or_missed: *words.get(3)?,
        tx_packets: *words.get(9)?,
    })
}

/// Of the ports that both readings saw.
pub fn both(before: Reading, mut after: Reading) -> Vec<PortCounts> {
    let each = before.ports.into_iter().filter_map(|(key, (name, first))| {
        let (_, last) = after.ports.remove(&key)?;
        let (begin, end) = (first.packets(), last.packets());
        let (link, table, ethtool) = match last {
            One::Link(link, ethtool) => (Some(*link), None, ethtool),
            One::Row(row) => (None, Some(row), Named::default()),
        };
        Some(PortCounts {
            namespace: key.0,
            index: key.1,
            name,
            link,
            table,
            ethtool,
            rx_packets: [begin.0, end.0],
            tx_packets: [begin.1, end.1],
        })
    });
    each.collect()
}

/// By namespace, of those that both readings saw.
pub fn reassembly(before: &Reading, after: &Reading) -> BTreeMap<u64, [Reassembled; 2]> {
    let each = before.reassembly.iter().filter_map(|(number, first)| {
        let last = after.reassembly.get(number)?;
        Some((*number, [*first, *last]))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_that_any_user_may_read() {
        let table = "Inter-|   Receive | Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12\n  t0:10 20 30 40 0 0 0 0 90 100 0 0\n";
        for (name, seen) in [
            ("lo", Some((2, 3, 4, 10))),
            ("t0", Some((20, 30, 40, 100))),
            ("t", None),
        ] {
            let found = row(table, name).map(|row| {
                (
                    row.rx_packets,
                    row.rx_errors,
                    row.rx_dropped_or_missed,
                    row.tx_packets,
                )
            });
            assert_eq!(found, seen);
        }
    }

    #[test]
    fn the_loopback_of_this_machine_by_both_ways() {
        let port = entered(None, 1).unwrap();
        assert_eq!(port.name, "lo");
        assert!(entered(None, i32::MAX).is_none());
    }
}
