//! Whatever stands in a kernel file, a reader answers with values or with an error, never with a panic.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use nodrop_counters::*;
use proptest::prelude::*;

type Read = fn(&Path);

/// A file, what stands in it on a machine, and its reader.
const FILES: [(&str, &str, Read); 17] = [
    (
        "proc/stat",
        include_str!("../fixtures/linux-6.18/proc/stat"),
        |root| {
            let mut cpus = Vec::new();
            drop(StatReader::new(root).unwrap().read(&mut cpus));
            let _sums: Vec<u64> = cpus.iter().map(CpuTimes::total_ns).collect();
        },
    ),
    (
        "proc/meminfo",
        include_str!("../fixtures/linux-6.18/proc/meminfo"),
        |root| {
            drop(MemoryReader::new(root).unwrap().read());
        },
    ),
    (
        "proc/vmstat",
        "pswpin 1\npswpout 2\npgmajfault 3\n",
        |root| {
            drop(SwapReader::new(root).unwrap().read());
        },
    ),
    (
        "proc/diskstats",
        " 254 0 vda 2 9 8 4 5 9 6 7 1 10 11 0 0\n 254 1 vda1 2 9 8\n",
        |root| {
            std::fs::create_dir_all(root.join("sys/block/vda")).unwrap();
            drop(DiskReader::new(root).unwrap().read(&mut Disks::default()));
        },
    ),
    (
        "proc/interrupts",
        "  CPU0 CPU1\n 38: 0 115531 PCI-MSIX 1-edge nd0-in.0\nNMI: 0 0 x\n",
        |root| {
            let mut reader = InterruptReader::new(root, &["nd0".into()]).unwrap();
            drop(reader.read(&mut Vec::new()));
        },
    ),
    ("proc/loadavg", "0.20 0.37 0.30 1/93 3908\n", |root| {
        drop(LoadReader::new(root).unwrap().load());
    }),
    (
        "proc/pressure/cpu",
        "some avg10=0.03 avg60=0.72 avg300=1.36 total=7\n",
        |root| {
            std::fs::write(root.join("proc/loadavg"), "").unwrap();
            drop(LoadReader::new(root).unwrap().pressure());
        },
    ),
    (
        "proc/net/softnet_stat",
        "0000000a 3 2 0 0 0 0 0 0 4 5 0 7 0 0\n",
        |root| {
            drop(SoftnetReader::new(root).unwrap().read(&mut Vec::new()));
        },
    ),
    (
        "proc/net/snmp",
        "Ip: ReasmReqds ReasmOKs\nIp: 3 1\nUdp: A\nUdp: -1\n",
        |root| {
            std::fs::write(root.join("proc/net/netstat"), "").unwrap();
            drop(SnmpReader::new(root).unwrap().read(&mut Snmp::default()));
        },
    ),
    (
        "proc/net/sockstat",
        "sockets: used 17\nFRAG: inuse 3 memory 4096\n",
        |root| {
            drop(ReassemblyReader::new(root).read());
        },
    ),
    (
        "proc/net/stat/nf_conntrack",
        "entries  found drop\n00000005 00000001 0000000a\n",
        |root| {
            let mut all = Conntrack::default();
            drop(ConntrackReader::new(root).unwrap().read(&mut all));
        },
    ),
    (
        "proc/net/packet",
        "sk RefCnt Type Proto Iface R Rmem User Inode\n0 3 3 0003 2 1 0 0 9\n",
        |root| {
            drop(PacketSocketReader::new(root).unwrap().read());
        },
    ),
    (
        "proc/7/stat",
        "7 (a b) S 1 1 1 0 -1 4 9 0 8 0 7 6 0 0 20 0 1 0 5 4 3 2\n",
        |root| process(root),
    ),
    ("proc/7/task/7/schedstat", "500 600 7\n", |root| {
        process(root)
    }),
    (
        "proc/7/task/7/status",
        "Name:\ta\nvoluntary_ctxt_switches:\t8\n",
        |root| process(root),
    ),
    ("proc/7/task/7/children", "8 9\n", |root| process(root)),
    (
        "proc/self/mountinfo",
        "30 23 0:26 / /cg rw shared:4 - cgroup2 cgroup2 rw\n",
        |root| {
            add(root, "cg/cgroup.controllers", "cpu memory\n");
            add(root, "cg/a/memory.stat", "anon 4000\nfile 96\n");
            drop(CgroupReader::of_path(root, Path::new("/a")).map(|mut reader| reader.read()));
            drop(cgroup_versions(root));
        },
    ),
];

fn add(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    if !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// One process whose other files are as they should be.
fn process(root: &Path) {
    for (path, text) in FILES
        .iter()
        .filter(|(path, ..)| path.starts_with("proc/7/"))
        .map(|(p, t, _)| (p, t))
    {
        add(root, path, text);
    }
    add(root, "proc/7/statm", "9 3 1 1 0 1 0\n");
    add(root, "proc/7/status", "VmHWM: 20 kB\n");
    if let Ok(mut tree) = ProcessTree::new(root, &[7]) {
        drop(tree.rescan());
        drop(tree.read());
        tree.totals();
    }
}

/// Nonsense, or what really stands there with some of it replaced.
fn text(good: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "18446744073709551615",
        "99999999999999999999",
        "-1",
        "",
        "\n",
        " ",
        ":",
        "(",
        ")",
        "max",
        "\0",
        "\u{e9}",
        "0x",
        "/",
        "-",
        "cpu",
        "total=",
        "some",
    ]);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..6usize, token), 0..6);
    let changed = edits.prop_map(move |edits| {
        let mut bytes = good.as_bytes().to_vec();
        for (place, length, token) in edits {
            let begin = place.index(bytes.len() + 1);
            let end = (begin + length).min(bytes.len());
            bytes.splice(begin..end, token.bytes());
        }
        bytes
    });
    prop_oneof![4 => changed, 1 => prop::collection::vec(any::<u8>(), 0..300)]
}

fn any_file() -> impl Strategy<Value = (usize, Vec<u8>)> {
    (0..FILES.len()).prop_flat_map(|index| text(FILES[index].1).prop_map(move |text| (index, text)))
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic((index, text) in any_file()) {
        let root = tempfile::tempdir().unwrap();
        let (path, _, read) = FILES[index];
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        read(root.path());
    }

    #[test]
    fn a_version_2_group_says_what_its_files_say(
        parts in prop::collection::vec("[a-z][a-z0-9_.-]{0,8}", 1..5),
        usage in any::<u32>(), anon in any::<u32>(), kills in prop::option::of(any::<u32>()),
        limit in prop::option::of(any::<u32>()),
    ) {
        let root = tempfile::tempdir().unwrap();
        let group = parts.join("/");
        let here = |file: &str| format!("sys/fs/cgroup/{group}/{file}");
        add(root.path(), "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        add(root.path(), "sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        add(root.path(), "proc/7/cgroup", &format!("0::/{group}\n"));
        add(root.path(), &here("cpu.stat"), &format!("usage_usec {usage}\n"));
        add(root.path(), &here("memory.stat"), &format!("anon {anon}\nfile 1\n"));
        add(root.path(), &here("memory.max"), &limit.map_or("max\n".into(), |l| format!("{l}\n")));
        if let Some(kills) = kills {
            add(root.path(), &here("memory.events"), &format!("oom 9\noom_kill {kills}\n"));
        }
        let expected = Cgroup {
            cpu_ns: Some(u64::from(usage) * 1000),
            anon_bytes: Some(anon.into()),
            file_bytes: Some(1),
            oom_kills: kills.map(u64::from),
            memory_limit_bytes: limit.map(u64::from),
            ..Cgroup::default()
        };
        let by_pid = CgroupReader::of_process(root.path(), 7).unwrap().read().unwrap();
        let path = format!("/{group}");
        let by_path = CgroupReader::of_path(root.path(), Path::new(&path)).unwrap().read().unwrap();
        prop_assert_eq!((by_pid, by_path), (expected, expected));
    }
}
