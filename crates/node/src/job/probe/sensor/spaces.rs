//! Network namespaces that hold packet sockets, those sockets, and who holds them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{Error, ErrorKind};

use nix::net::if_::if_nameindex;
use nodrop_counters::{
    DiagSocket, PacketCountsReader, PacketSocket, PacketSocketReader, packet_diag,
    packet_diag_is_there,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::files::{CAP_NET_ADMIN, ENTER, Files, TRACE};
use crate::job::probe::namespace::{listed, within};
use crate::job::probe::process::{is_suricata, socket_inodes};

/// Number of the network namespace that we are in ourselves; others count up from it.
pub const OURS: usize = 0;
/// How names of capture programs begin: a normal user looks for packet sockets in their namespaces, and cannot see whose the
/// others are.
const CAPTURERS: [&str; 8] = [
    "suricata", "snort", "zeek", "bro", "tcpdump", "dumpcap", "arkime", "ntopng",
];
const MOST_SOCKETS: usize = 4096;
/// ETH_P_ALL.
const ALL: u64 = 3;

/// A packet socket of any program.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "SensorSocket")]
pub struct Socket {
    pub inode: u64,
    pub protocol: u64,
    /// Number of its namespace in this look.
    pub space: usize,
    /// 0 = every port of it.
    pub index: i32,
    pub port: Option<String>,
    uid: u32,
    /// `None`: we may not see who holds it.
    pub pid: Option<u32>,
    pub program: Option<String>,
    /// TPACKET version; `None`: packet_diag did not describe it.
    version: Option<u32>,
    block_bytes: Option<u32>,
    blocks: Option<u32>,
    frame_bytes: Option<u32>,
    frames: Option<u32>,
    retire_ms: Option<u32>,
    fanout_id: Option<u32>,
    fanout_type: Option<u32>,
    /// A filter of its own leaves packets out; `None`: this user may not know.
    filtered: Option<bool>,
    /// Taken by it since its owner last read its counters; `None`: not visible.
    packets: Option<u64>,
    /// That found no room there meanwhile.
    drops: Option<u64>,
}

impl Socket {
    /// A filter and no ring is a DHCP or LLDP client.
    pub fn captures(&self) -> bool {
        self.protocol == ALL
            && (self.blocks.is_some_and(|blocks| blocks > 0) || self.filtered != Some(true))
    }
}

pub struct Spaces {
    /// Every process's name.
    pub names: BTreeMap<u32, String>,
    /// By number: a process in it; `None`: our own.
    pub pids: Vec<Option<u32>>,
    /// Every namespace that may be read, by the kernel's name of it: a process in it.
    pub readable: BTreeMap<String, Option<u32>>,
    ports: Vec<BTreeMap<i32, String>>,
}

/// By PID; without those that are just going.
pub fn processes(files: &Files) -> BTreeMap<u32, String> {
    let names = files.names("proc").into_iter();
    let each = names.filter_map(|name| {
        let pid: u32 = name.parse().ok()?;
        let comm = fs::read(files.root.join(format!("proc/{pid}/comm"))).ok()?;
        Some((pid, String::from_utf8_lossy(&comm).trim_end().to_owned()))
    });
    each.collect()
}

/// The kernel's name of a process's network namespace; `None`: it is gone.
pub fn space_of(files: &Files, process: &str) -> Result<Option<String>, Error> {
    match fs::read_link(files.root.join(format!("proc/{process}/ns/net"))) {
        Ok(name) => Ok(Some(name.to_string_lossy().into_owned())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(None),
    }
}

fn captures(name: &str) -> bool {
    let name = name.to_lowercase();
    CAPTURERS.iter().any(|begin| name.starts_with(begin))
}

/// Of a process's namespace; `None`: our own.
fn table(files: &Files, pid: Option<u32>) -> Vec<PacketSocket> {
    let reader = match pid {
        Some(pid) => PacketSocketReader::of_process(&files.root, pid),
        None => PacketSocketReader::new(&files.root),
    };
    let mut rows = reader
        .and_then(|mut reader| reader.read())
        .unwrap_or_default();
    rows.truncate(MOST_SOCKETS);
    rows
}

impl Spaces {
    pub fn of(files: &Files) -> Self {
        let names = processes(files);
        let own = space_of(files, "self").ok().flatten();
        let ours: BTreeSet<u64> = table(files, None).iter().map(|row| row.inode).collect();
        let mut readable: BTreeMap<String, Option<u32>> =
            own.clone().map(|own| (own, None)).into_iter().collect();
        // Known by the kernel's name, or by a socket in it if that may not be read.
        let mut seen: BTreeSet<String> = own.into_iter().collect();
        let mut pids = vec![None];
        let mut unseen = Vec::new();
        for (pid, name) in &names {
            let space = space_of(files, &pid.to_string()).unwrap_or_else(|_| {
                unseen.push(format!("{name} (pid {pid})"));
                None
            });
            match &space {
                Some(space) => {
                    readable.entry(space.clone()).or_insert(Some(*pid));
                }
                None if !captures(name) => continue,
                None => {}
            }
            if space.as_ref().is_some_and(|space| seen.contains(space)) {
                continue;
            }
            let inodes = table(files, Some(*pid)).into_iter().map(|row| row.inode);
            let Some(first) = inodes.min() else { continue };
            // An inode is in one namespace, whether its name may be read or not.
            if (space.is_some() || !ours.contains(&first))
                && seen.insert(space.unwrap_or_else(|| first.to_string()))
            {
                pids.push(Some(*pid));
            }
        }
        if let Some(first) = unseen.first() {
            let more = match unseen.len() - 1 {
                0 => String::new(),
                others => format!(" and {others} other processes"),
            };
            files.lacks(format!("the network namespace of {first}{more}"), TRACE);
        }
        let ports = pids.iter().map(|pid| interfaces(files, *pid)).collect();
        Self {
            names,
            pids,
            readable,
            ports,
        }
    }

    pub fn only_ours(&mut self) {
        self.pids.truncate(1);
        self.ports.truncate(1);
    }

    pub fn name(&self, space: usize, index: i32) -> Option<&str> {
        Some(self.ports.get(space)?.get(&index)?)
    }

    pub fn names(&self, space: usize) -> Vec<String> {
        self.ports[space].values().cloned().collect()
    }

    /// Index and name of each port of a namespace.
    pub fn ports(&self, space: usize) -> impl Iterator<Item = (i32, &str)> {
        self.ports[space]
            .iter()
            .map(|(index, name)| (*index, name.as_str()))
    }

    /// Those at the ports asked for, or of every namespace.
    pub fn sockets(&self, files: &Files, asked: &[String]) -> Vec<Socket> {
        let mut found = Vec::new();
        let rows: Vec<_> = self.pids.iter().map(|pid| table(files, *pid)).collect();
        let may_ask = packet_diag_is_there(&files.root);
        if !may_ask {
            files.lacks(
                "rings and fanout groups of packet sockets",
                "the module af_packet_diag (modprobe af_packet_diag), which an audit does not load",
            );
        }
        for (space, rows) in rows
            .into_iter()
            .enumerate()
            .filter(|(_, rows)| !rows.is_empty())
        {
            let mut diag = HashMap::new();
            let sees_filters = files.capable(CAP_NET_ADMIN);
            if may_ask {
                match within(self.pids[space], packet_diag) {
                    Ok(Ok(said)) => {
                        if !sees_filters {
                            files.lacks("filters of packet sockets", "root, or CAP_NET_ADMIN");
                        }
                        diag.extend(said.into_iter().map(|one| (one.inode, one)));
                    }
                    _ => {
                        let pid = self.pids[space].map_or("self".into(), |pid| pid.to_string());
                        files.lacks(
                            format!("rings and fanout groups in the namespace of process {pid}"),
                            ENTER,
                        );
                    }
                }
            }
            let at = |row: &PacketSocket| {
                row.ifindex == 0
                    || self
                        .name(space, row.ifindex)
                        .is_some_and(|name| asked.iter().any(|one| one == name))
            };
            for row in rows.iter().filter(|row| asked.is_empty() || at(row)) {
                let mut socket = socket(row, diag.get(&row.inode), sees_filters);
                socket.space = space;
                socket.port = self.name(space, row.ifindex).map(str::to_owned);
                found.push(socket);
            }
        }
        self.find_holders(files, &mut found);
        self.count(files, &mut found);
        found
    }

    /// The first process that has each open.
    fn find_holders(&self, files: &Files, sockets: &mut [Socket]) {
        let mut left: BTreeMap<u64, usize> = sockets
            .iter()
            .enumerate()
            .map(|(at, one)| (one.inode, at))
            .collect();
        let mut refused = false;
        let mut likely_first: Vec<_> = self.names.iter().collect();
        likely_first.sort_by_key(|(_, name)| !captures(name));
        for (pid, name) in likely_first {
            if left.is_empty() {
                break;
            }
            let folder = files.root.join(format!("proc/{pid}/fd"));
            if let Err(error) = fs::read_dir(&folder) {
                refused |= error.kind() == ErrorKind::PermissionDenied;
                continue;
            }
            for inode in socket_inodes(folder).unwrap_or_default() {
                if let Some(at) = left.remove(&inode) {
                    sockets[at].pid = Some(*pid);
                    sockets[at].program = Some(name.clone());
                }
            }
        }
        if refused && !left.is_empty() {
            files.lacks("who holds which packet socket (/proc/PID/fd)", TRACE);
        }
    }

    /// Packets and drops of each, which resets nothing. A Suricata's are in its own counters.
    fn count(&self, files: &Files, sockets: &mut [Socket]) {
        let counted: HashMap<u64, (u64, u64)> = PacketCountsReader::new(&files.root)
            .and_then(|mut reader| reader.read())
            .unwrap_or_default()
            .into_iter()
            .map(|one| (one.inode, (one.tp_packets, one.tp_drops)))
            .collect();
        let mut uncounted = BTreeMap::new();
        for socket in sockets {
            let name = socket.program.clone().unwrap_or_default();
            let Some(pid) = socket.pid.filter(|_| !is_suricata(&name)) else {
                continue;
            };
            if let Some((packets, drops)) = counted.get(&socket.inode) {
                (socket.packets, socket.drops) = (Some(*packets), Some(*drops));
            } else if socket.captures() {
                uncounted.insert(pid, name);
            }
        }
        for (pid, name) in uncounted {
            files.lacks(
                format!("losses of {name} (pid {pid})"),
                "root, or CAP_BPF and CAP_PERFMON, and a kernel with BTF (5.11 or later)",
            );
        }
    }
}

fn socket(row: &PacketSocket, diag: Option<&DiagSocket>, sees_filters: bool) -> Socket {
    let ring = |at: usize| Some(diag?.ring?[at]);
    let fanout = |at: usize| Some(diag?.fanout?[at]);
    Socket {
        inode: row.inode,
        protocol: row.protocol,
        space: OURS,
        index: row.ifindex,
        port: None,
        uid: row.uid,
        pid: None,
        program: None,
        version: diag.map(|diag| diag.version),
        block_bytes: ring(0),
        blocks: ring(1),
        frame_bytes: ring(2),
        frames: ring(3),
        retire_ms: ring(4),
        fanout_id: fanout(0),
        fanout_type: fanout(1),
        filtered: diag.filter(|_| sees_filters).map(|diag| diag.filtered),
        packets: None,
        drops: None,
    }
}

/// Index → name; by tables that any user may read if the namespace may not be entered.
pub fn interfaces(files: &Files, pid: Option<u32>) -> BTreeMap<i32, String> {
    let named = || -> Option<BTreeMap<i32, String>> {
        let all = if_nameindex().ok()?;
        let each = all.iter().map(|one| {
            let name = one.name().to_string_lossy().into_owned();
            Some((i32::try_from(one.index()).ok()?, name))
        });
        each.collect()
    };
    if let Ok(Some(found)) = within(pid, named) {
        return found;
    }
    listed(&files.root, pid.unwrap_or_else(std::process::id))
}
