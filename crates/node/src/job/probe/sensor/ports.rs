//! Ports: state and counters by netlink, what their driver says to ethtool, their queues, interrupt lines and slot in /sys, and
//! the other end of a veth.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nodrop_counters::{
    EthtoolReader, Link, LinkReader, Named, PortSettings, namespace_number, peer_namespace,
    read_port_settings,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::files::{ENTER, Files, Lack, TRACE, cpu_list};
use super::spaces::{OURS, Socket, Spaces, interfaces};
use crate::job::probe::namespace::within;

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorPort")]
pub struct Port {
    name: String,
    /// Number of its namespace in this look, and a process in it; `None`: ours.
    space: usize,
    pid: Option<u32>,
    index: i32,
    #[serde(flatten)]
    settings: PortSettings,
    /// `ethtool -S`.
    driver_counters: Named<u64>,
    #[serde(flatten)]
    state: State,
    #[serde(flatten)]
    files: PortFiles,
    /// The other end of a veth, if the namespace that the kernel names for it may be read.
    peer: Option<Peer>,
    missing: Vec<Lack>,
}

/// What the kernel says of it to whoever is in its namespace, /sys or not; absent if that may not be entered.
#[derive(Default, JsonSchema, Serialize)]
#[schemars(rename = "SensorPortState")]
struct State {
    mtu: Option<u32>,
    /// IFF_UP, and IFF_PROMISC if anybody has it take frames to other addresses, a packet socket too.
    flags: Option<u32>,
    /// A cable is in and the other end is on; `None`: the port is down.
    carrier: Option<bool>,
    /// `rtnl_link_stats64`, those that this kernel has, and `carrier_changes` since the port was made.
    statistics: BTreeMap<String, u64>,
}

/// What /sys shows of it; all of it absent if that is the /sys of another namespace.
#[derive(Default, JsonSchema, Serialize)]
#[schemars(rename = "SensorPortFiles")]
struct PortFiles {
    /// A NIC, and no veth or bridge.
    physical: bool,
    /// Receive queues that the kernel has made.
    queue_folders: usize,
    /// Queue → the CPUs that RPS hands its packets to; queues without are left out.
    rps: BTreeMap<u32, Vec<u32>>,
    lines: Vec<Line>,
    /// NUMA node of its slot; -1: the firmware did not say.
    node: Option<i32>,
    speed_mbit: Option<i64>,
    duplex: Option<String>,
    /// Files of its slot: widths and speeds of the link, now and at most.
    pcie: BTreeMap<String, String>,
}

/// An interrupt line of a receive queue.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorLine")]
struct Line {
    number: u32,
    name: String,
    allowed: Vec<u32>,
    effective: Vec<u32>,
    /// Since the host was booted.
    fired: u64,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorPeer")]
struct Peer {
    name: String,
    pid: Option<u32>,
    mtu: u32,
    /// Frames that it sent and the port refused.
    tx_dropped: u64,
}

const PCIE: [&str; 4] = [
    "current_link_width",
    "max_link_width",
    "current_link_speed",
    "max_link_speed",
];
/// In names of lines that a receive queue raises: eth1-rx-0, eth2-rxtx-0, TxRx, virtio2-input.0, mlx5_comp0.
const RECEIVES: [&str; 4] = ["rx", "input", "comp", "fp-"];

pub fn all(files: &Files, spaces: &Spaces, sockets: &[Socket], asked: &[String]) -> Vec<Port> {
    let captured: BTreeSet<(usize, i32)> = sockets
        .iter()
        .filter(|one| one.captures())
        .map(|one| (one.space, one.index))
        .collect();
    let wanted =
        |name: &str| asked.is_empty() && name != "lo" || asked.iter().any(|one| one == name);
    let ours = spaces.ports(OURS).filter(|(_, name)| wanted(name));
    let mut at: BTreeSet<(usize, i32)> = ours.map(|(index, _)| (OURS, index)).collect();
    for (space, index) in captured.iter().filter(|(space, _)| *space != OURS) {
        // A socket of index 0 takes from every port of its namespace.
        let all = spaces.ports(*space);
        let taken = all.filter(|(known, name)| [0, *known].contains(index) && *name != "lo");
        at.extend(taken.map(|(known, _)| (*space, known)));
    }
    let each = at.into_iter().filter_map(|(space, index)| {
        let name = spaces.name(space, index)?;
        let with_peer = !asked.is_empty()
            || captured.contains(&(space, index))
            || captured.contains(&(space, 0));
        Some(port(files, spaces, space, index, name, with_peer))
    });
    each.collect()
}

fn port(
    files: &Files,
    spaces: &Spaces,
    space: usize,
    index: i32,
    name: &str,
    with_peer: bool,
) -> Port {
    let pid = spaces.pids[space];
    let mut missing = Vec::new();
    let owned = name.to_owned();
    let asked = move || {
        let mut counters = Named::default();
        let read = EthtoolReader::new(&owned).and_then(|mut reader| reader.read(&mut counters));
        if read.is_err() {
            counters = Named::default(); // a driver that is just going
        }
        let link = LinkReader::new().and_then(|mut links| links.read(&owned));
        let settings = read_port_settings(&owned).unwrap_or_default();
        (settings, counters, link.ok())
    };
    let (mut settings, driver_counters, link) = within(pid, asked).unwrap_or_else(|_| {
        let pid = pid.map_or("self".into(), |pid| pid.to_string());
        missing.push(files.lack(
            format!("settings and statistics of {name} in the namespace of process {pid}"),
            ENTER,
        ));
        <_>::default()
    });
    let files_of = match folder(files, pid, name, index) {
        Ok(folder) => PortFiles::of(files, &folder),
        Err(needs) => {
            let of_slot = match link.as_ref().and_then(|link| link.kind.as_ref()) {
                Some(_) => "",
                None => ", interrupt lines and slot",
            };
            missing.push(files.lack(format!("RPS{of_slot} of {name}"), &needs));
            PortFiles::default()
        }
    };
    if settings.queues.is_none() {
        settings.queues = u32::try_from(files_of.queue_folders)
            .ok()
            .filter(|queues| *queues > 0);
    }
    let peer_index = driver_counters
        .get("peer_ifindex")
        .and_then(|index| i32::try_from(*index).ok());
    Port {
        peer: peer_index
            .filter(|_| with_peer)
            .and_then(|there| peer(files, spaces, pid, index, there)),
        name: name.to_owned(),
        space,
        pid,
        index,
        settings,
        driver_counters,
        state: link.as_ref().map(State::of).unwrap_or_default(),
        files: files_of,
        missing,
    }
}

/// /sys shows the ports of the namespace in which it was mounted. The error is what would show this one.
fn folder(files: &Files, pid: Option<u32>, name: &str, index: i32) -> Result<PathBuf, String> {
    let top = pid.map_or(PathBuf::new(), |pid| format!("proc/{pid}/root").into());
    let folder = top.join("sys/class/net").join(name);
    match fs::read_to_string(files.root.join(&folder).join("ifindex")) {
        Ok(found) if found.trim() == index.to_string() => Ok(folder),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(TRACE.into()),
        _ => {
            let whose = pid.map_or(String::new(), |pid| format!(" (that of process {pid})"));
            Err(format!("a /sys of its namespace{whose}"))
        }
    }
}

impl State {
    fn of(link: &Link) -> Self {
        let counters = serde_json::to_value(link.stats).unwrap_or_default();
        let counters = counters.as_object().into_iter().flatten();
        let carrier_changes = ("carrier_changes".to_owned(), link.carrier_changes.into());
        Self {
            mtu: Some(link.mtu),
            flags: Some(u32::from(link.up) | u32::from(link.promiscuity > 0) << 8),
            carrier: link.up.then_some(link.carrier),
            statistics: counters
                .filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)))
                .chain([carrier_changes])
                .collect(),
        }
    }
}

impl PortFiles {
    fn of(files: &Files, folder: &Path) -> Self {
        let device = folder.join("device");
        // A virtio port's device is its virtioN, and what belongs to its slot is one level up.
        let slots = [device.clone(), device.join("..")];
        let slot = slots
            .iter()
            .find(|slot| files.root.join(slot).join("numa_node").exists())
            .unwrap_or(&device);
        let queues: Vec<String> = files
            .names(folder.join("queues"))
            .into_iter()
            .filter(|name| name.starts_with("rx-"))
            .collect();
        Self {
            physical: files.root.join(&device).exists(),
            queue_folders: queues.len(),
            rps: queues
                .iter()
                .filter_map(|queue| rps(files, &folder.join("queues").join(queue), queue))
                .collect(),
            lines: lines(files, &device),
            node: files.number(slot.join("numa_node")),
            speed_mbit: files
                .number(folder.join("speed"))
                .filter(|speed| *speed > 0),
            duplex: files.word(folder.join("duplex")),
            pcie: PCIE
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), files.word(slot.join(name))?)))
                .collect(),
        }
    }
}

fn rps(files: &Files, folder: &Path, queue: &str) -> Option<(u32, Vec<u32>)> {
    let mask = files.word(folder.join("rps_cpus"))?.replace(',', "");
    let mut cpus = Vec::new();
    for (place, digit) in (0u32..).zip(mask.chars().rev()) {
        let bits = digit.to_digit(16)?;
        cpus.extend(
            (0..4)
                .filter(|bit| bits >> bit & 1 == 1)
                .map(|bit| 4 * place + bit),
        );
    }
    let number = queue.strip_prefix("rx-")?.parse().ok()?;
    (!cpus.is_empty()).then_some((number, cpus))
}

fn lines(files: &Files, device: &Path) -> Vec<Line> {
    // Those of a virtio port are one level up.
    let places = [device.join("msi_irqs"), device.join("../msi_irqs")];
    let numbers = places
        .iter()
        .map(|place| files.names(place))
        .find(|names| !names.is_empty());
    let Some(numbers) = numbers else {
        return Vec::new();
    };
    let table = files.text("proc/interrupts").unwrap_or_default();
    let mut rows = table.lines();
    let cpus = rows
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .count();
    let line = |row: &str| {
        let (number, rest) = row.trim_start().split_once(':')?;
        let name = rest.split_ascii_whitespace().next_back()?;
        let lower = name.to_lowercase();
        if !numbers.contains(number) || !RECEIVES.iter().any(|part| lower.contains(part)) {
            return None;
        }
        let list =
            |name: &str| cpu_list(&files.word(format!("proc/irq/{number}/{name}_affinity_list"))?);
        Some(Line {
            number: number.parse().ok()?,
            name: name.to_owned(),
            allowed: list("smp")?,
            effective: list("effective")?,
            fired: rest
                .split_ascii_whitespace()
                .take(cpus)
                .filter_map(|word| word.parse::<u64>().ok())
                .sum(),
        })
    };
    rows.filter_map(line).collect()
}

/// In the namespace that the kernel names for it. `None` if no process is in that one, or it may not be read.
fn peer(files: &Files, spaces: &Spaces, pid: Option<u32>, index: i32, there: i32) -> Option<Peer> {
    let readable: Vec<Option<u32>> = spaces.readable.values().copied().collect();
    let own = pid;
    let find = move || -> Option<Option<u32>> {
        let Some(number) = peer_namespace(index).ok()? else {
            return Some(own);
        };
        let here = std::process::id();
        readable
            .into_iter()
            .find(|pid| namespace_number(pid.unwrap_or(here)) == Some(number))
    };
    let peer_pid = within(pid, find).ok()??;
    let name = interfaces(files, peer_pid).remove(&there)?;
    let owned = name.clone();
    let link = within(peer_pid, move || {
        LinkReader::new().and_then(|mut links| links.read(&owned))
    });
    let link = link.ok()?.ok()?;
    Some(Peer {
        name,
        pid: peer_pid,
        mtu: link.mtu,
        tx_dropped: link.stats.tx_dropped,
    })
}
