//! Work in the network namespace of a process, and the names of its ports.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::Path;

use nix::sched::{CloneFlags, setns};

/// Done by a thread of its own, for a namespace is a thread's: what it opens there can be used by all. `None`: in ours.
pub fn within<T: Send + 'static>(
    pid: Option<u32>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let Some(pid) = pid else { return Ok(work()) };
    let entered = move || {
        let space = File::open(format!("/proc/{pid}/ns/net"))?;
        setns(space, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    };
    let thread = std::thread::spawn(entered);
    thread
        .join()
        .unwrap_or_else(|_| Err(ErrorKind::Other.into()))
}

/// Index → name of the ports of a process's namespace, by tables that any user may read: `/proc/net/dev` has no numbers.
pub fn listed(root: &Path, pid: u32) -> BTreeMap<i32, String> {
    let folder = root.join(format!("proc/{pid}/net"));
    let table = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let mut found = BTreeMap::new();
    for line in table("if_inet6").lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        if let [_, index, _, _, _, name, ..] = words[..] {
            found.extend(i32::from_str_radix(index, 16).map(|index| (index, name.to_owned())));
        }
    }
    for line in [table("igmp"), table("dev_mcast")].join("\n").lines() {
        let mut words = line.split_ascii_whitespace();
        if let (Some(Ok(index)), Some(name)) = (words.next().map(str::parse), words.next()) {
            found.insert(index, name.trim_end_matches(':').to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_number_from_whichever_table_has_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7/net");
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("dev_mcast"),
            "2    eth0     1     0     333300000001\n",
        )
        .unwrap();
        fs::write(
            folder.join("igmp"),
            "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n",
        )
        .unwrap();
        fs::write(
            folder.join("if_inet6"),
            "fe80000000000000005056fffec00008 1f 40 20 80    veth9\n",
        )
        .unwrap();
        let named = [(1, "lo"), (2, "eth0"), (0x1f, "veth9")];
        let named = named.map(|(index, name)| (index, name.to_owned()));
        assert_eq!(listed(root.path(), 7), BTreeMap::from(named));
    }
}
