//! A look into one process: whether it stands still, its threads, its packet sockets, its memory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nodrop_counters::{PacketSocket, PacketSocketReader};
use schemars::JsonSchema;
use serde::Serialize;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ProcessInside")]
pub struct Inside {
    stopped: bool,
    threads: Vec<String>,
    packet_sockets: Vec<PacketSocket>,
    /// VmHWM.
    rss_peak_bytes: Option<u64>,
}

/// `None` if there is no such process, or it ends meanwhile.
pub fn look(pid: u32) -> Option<Inside> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    let own = socket_inodes(&folder)?;
    let sockets = PacketSocketReader::new(Path::new("/")).and_then(|mut reader| reader.read());
    Some(Inside {
        stopped: matches!(state, 'T' | 't'),
        threads: threads(&folder)?,
        packet_sockets: sockets
            .ok()?
            .into_iter()
            .filter(|socket| own.contains(&socket.inode))
            .collect(),
        rss_peak_bytes: rss_peak_bytes(&folder),
    })
}

fn threads(folder: &Path) -> Option<Vec<String>> {
    let mut ids: Vec<u32> = fs::read_dir(folder.join("task"))
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    let name = |id| fs::read_to_string(folder.join(format!("task/{id}/comm"))).ok();
    let names = ids.into_iter().filter_map(name);
    Some(names.map(|name| name.trim_end().to_owned()).collect())
}

fn socket_inodes(folder: &Path) -> Option<BTreeSet<u64>> {
    let inode = |target: &str| {
        let number = target.strip_prefix("socket:[")?.strip_suffix(']')?;
        number.parse().ok()
    };
    let found = fs::read_dir(folder.join("fd")).ok()?.filter_map(|entry| {
        let target = fs::read_link(entry.ok()?.path()).ok()?;
        inode(target.to_str()?)
    });
    Some(found.collect())
}

fn rss_peak_bytes(folder: &Path) -> Option<u64> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
