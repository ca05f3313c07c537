//! Who holds which packet socket, and in which network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nodrop_counters::{PacketCounts, PacketSocketReader, Result, RingShape};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job::probe::process::{fields, reading, socket_inodes, text};

/// What could not be read, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[schemars(rename = "NotVisible")]
pub struct Missing {
    pub what: String,
    pub needs: String,
    pub why: String,
}

/// A packet socket that receives, once for each program that holds it.
pub struct Holder {
    pub inode: u64,
    pub pid: Option<u32>,
    /// A process by whose `/proc/PID/net` its namespace is read.
    pub by_pid: u32,
    pub namespace: u64,
    pub ifindex: i32,
    pub receive_queue_bytes: Option<u64>,
    pub counts: Option<PacketCounts>,
}

/// What the looks before have found.
#[derive(Default)]
pub struct Holders {
    /// Rings whose fill is read.
    pub shapes: BTreeMap<u64, (u32, RingShape)>,
    /// Holders by inode of their socket; empty: none that this user may see.
    by_inode: BTreeMap<u64, Vec<u32>>,
}

impl Holders {
    /// By the kernel's own walk over files: nothing of `/proc` but the namespace.
    pub fn of_counts(&self, root: &Path, found: Vec<PacketCounts>) -> Vec<Holder> {
        let mut namespaces = BTreeMap::new();
        // A socket that a process holds twice is one.
        let mut seen = BTreeSet::new();
        let holders = found.into_iter().filter_map(|counts| {
            if counts.protocol == 0 || !seen.insert((counts.inode, counts.pid)) {
                return None;
            }
            let namespace = *namespaces
                .entry(counts.pid)
                .or_insert_with(|| namespace(root, counts.pid));
            Some(Holder {
                inode: counts.inode,
                pid: Some(counts.pid),
                by_pid: counts.pid,
                namespace: namespace?, // None: it has just ended
                ifindex: counts.ifindex,
                receive_queue_bytes: None,
                counts: Some(counts),
            })
        });
        holders.collect()
    }

    /// By the table of each namespace, which any user may read, and by open files, which not.
    pub fn of_tables(
        &mut self,
        root: &Path,
        missing: &mut BTreeSet<Missing>,
    ) -> Result<Vec<Holder>> {
        let pids = pids(root)?;
        let mut by_namespace = BTreeMap::new();
        for pid in &pids {
            if let Some(number) = namespace(root, *pid) {
                by_namespace.entry(number).or_insert(*pid);
            }
        }
        let mut tables = Vec::new();
        for (number, pid) in by_namespace {
            match PacketSocketReader::of_process(root, pid).and_then(|mut table| table.read()) {
                Ok(rows) => tables.extend(rows.into_iter().map(|row| (number, pid, row))),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        tables.retain(|(_, _, row)| row.protocol != 0);
        let inodes: BTreeSet<u64> = tables.iter().map(|(_, _, row)| row.inode).collect();
        if !inodes.iter().all(|inode| self.by_inode.contains_key(inode)) {
            self.by_inode = holders_of(root, &pids, &inodes);
        }
        self.by_inode.retain(|inode, _| inodes.contains(inode));
        let mut found = Vec::new();
        for (namespace, by_pid, row) in tables {
            let holders = self.by_inode.get(&row.inode).map_or(&[][..], Vec::as_slice);
            if holders.is_empty() {
                missing.insert(Missing {
                    what: format!("who holds the packet socket {}", row.inode),
                    needs: "CAP_SYS_PTRACE (root), or to be the same user".into(),
                    why: format!("it is user {}'s", row.uid),
                });
            }
            let each = holders.iter().map(|pid| Some(*pid));
            let none = holders.is_empty().then_some(None);
            for pid in each.chain(none) {
                found.push(Holder {
                    inode: row.inode,
                    pid,
                    by_pid: pid.unwrap_or(by_pid),
                    namespace,
                    ifindex: row.ifindex,
                    receive_queue_bytes: Some(row.receive_queue_bytes),
                    counts: None,
                });
            }
        }
        Ok(found)
    }
}

/// A file of `/proc/PID/net` is the same one for all processes of a namespace, and any user may ask for its number.
pub fn namespace(root: &Path, pid: u32) -> Option<u64> {
    let table = fs::metadata(root.join(format!("proc/{pid}/net/packet"))).ok()?;
    Some(table.ino())
}

/// Also of a process that all of its threads have left behind: false.
pub fn stopped(root: &Path, pid: u32) -> bool {
    let stat = text(root.join(format!("proc/{pid}/stat"))).unwrap_or_default();
    matches!(fields(&stat).first(), Some(&("T" | "t")))
}

pub fn arguments(root: &Path, pid: u32) -> Vec<String> {
    let line = fs::read(root.join(format!("proc/{pid}/cmdline"))).unwrap_or_default();
    let words = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn pids(root: &Path) -> Result<Vec<u32>> {
    let proc = root.join("proc");
    let mut found = Vec::new();
    for entry in fs::read_dir(&proc).map_err(reading(&proc))? {
        let name = entry.map_err(reading(&proc))?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

fn holders_of(root: &Path, pids: &[u32], inodes: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u32>> {
    let mut found: BTreeMap<u64, Vec<u32>> = inodes.iter().map(|inode| (*inode, vec![])).collect();
    for pid in pids {
        // Another user's: its sockets stay without a holder.
        let own = socket_inodes(root.join(format!("proc/{pid}/fd"))).unwrap_or_default();
        for inode in own {
            if let Some(holders) = found.get_mut(&inode) {
                holders.push(*pid);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    const HEAD: &str = "sk RefCnt Type Proto Iface R Rmem User Inode\n";

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// PID 7 and 8 in one namespace, 9 in another; 9 may not be looked into.
    fn host() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let shared = format!(
            "{HEAD}0 3 3 0003 2 1 0 0 41\n0 3 3 0000 2 1 0 0 42\n0 3 3 0003 3 1 900 0 43\n"
        );
        write(at("proc/7/net/packet"), &shared);
        fs::create_dir_all(at("proc/8/net")).unwrap();
        fs::hard_link(at("proc/7/net/packet"), at("proc/8/net/packet")).unwrap();
        write(
            at("proc/9/net/packet"),
            &format!("{HEAD}0 3 3 0003 2 1 0 101 51\n"),
        );
        for (pid, inode) in [(7, 41), (8, 43), (8, 41), (7, 99)] {
            let fd = at(&format!("proc/{pid}/fd"));
            fs::create_dir_all(&fd).unwrap();
            symlink(format!("socket:[{inode}]"), fd.join(inode.to_string())).unwrap();
        }
        root
    }

    #[test]
    fn receivers_of_every_namespace_with_all_who_hold_them() {
        let root = host();
        let mut missing = BTreeSet::new();
        let mut holders = Holders::default();
        let found = holders.of_tables(root.path(), &mut missing).unwrap();
        let mut seen: Vec<_> = found
            .iter()
            .map(|one| (one.inode, one.pid, one.ifindex, one.receive_queue_bytes))
            .collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [
                (41, Some(7), 2, Some(0)),
                (41, Some(8), 2, Some(0)),
                (43, Some(8), 3, Some(900)),
                (51, None, 2, Some(0)),
            ]
        );
        assert_eq!(namespace(root.path(), 7), namespace(root.path(), 8));
        assert_ne!(namespace(root.path(), 7), namespace(root.path(), 9));
        let whats: Vec<_> = missing.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(whats, ["who holds the packet socket 51"]);
    }

    #[test]
    fn a_socket_that_comes_later_is_found() {
        let root = host();
        let mut holders = Holders::default();
        let mut look = || {
            let found = holders
                .of_tables(root.path(), &mut BTreeSet::new())
                .unwrap();
            found
                .into_iter()
                .filter_map(|one| Some((one.inode, one.pid?)))
                .collect::<Vec<_>>()
        };
        assert!(!look().contains(&(51, 9)));
        let table = root.path().join("proc/9/net/packet");
        fs::write(&table, format!("{HEAD}0 3 3 0003 2 1 0 101 52\n")).unwrap();
        let fd = root.path().join("proc/9/fd");
        fs::create_dir_all(&fd).unwrap();
        symlink("socket:[52]", fd.join("3")).unwrap();
        assert!(look().contains(&(52, 9)));
    }

    #[test]
    fn a_program_that_stands_still() {
        let root = tempfile::tempdir().unwrap();
        for (state, is) in [("T", true), ("t", true), ("S", false), ("R", false)] {
            write(
                root.path().join("proc/7/stat"),
                &format!("7 (W) T) {state} 1 7\n"),
            );
            assert_eq!(stopped(root.path(), 7), is);
        }
        assert!(!stopped(root.path(), 8));
    }
}
