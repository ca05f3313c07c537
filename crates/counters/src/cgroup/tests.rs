//! Made-up folders, captured files and this very process.

use super::*;
use crate::testing::{add, fixture_with};

#[test]
fn version_1_with_each_controller_in_its_own_place() {
    let root = fixture_with(
        "proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
         35 31 0:32 /box /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
    );
    add(
        &root,
        "sys/fs/cgroup/unified/cgroup.controllers",
        "hugetlb\n",
    );
    add(
        &root,
        "proc/7/cgroup",
        "4:memory:/box/sut\n2:cpu,cpuacct:/sut\n0::/x\n",
    );
    let cpu = |name: &str| format!("sys/fs/cgroup/cpu,cpuacct/sut/{name}");
    add(&root, &cpu("cpuacct.usage"), "123\n");
    add(&root, &cpu("cpuacct.stat"), "user 4\nsystem 5\n");
    add(
        &root,
        &cpu("cpu.stat"),
        "nr_periods 9\nnr_throttled 2\nthrottled_time 77\n",
    );
    let memory = |name: &str| format!("sys/fs/cgroup/memory/sut/{name}");
    add(&root, &memory("memory.usage_in_bytes"), "1000\n");
    add(
        &root,
        &memory("memory.limit_in_bytes"),
        "9223372036854771712\n",
    );
    add(&root, &memory("memory.failcnt"), "11894\n");
    add(
        &root,
        &memory("memory.stat"),
        "cache 1\ntotal_cache 300\ntotal_rss 700\n",
    );
    add(
        &root,
        &memory("memory.oom_control"),
        "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    );
    let cgroup = CgroupReader::of_process(root.path(), 7)
        .unwrap()
        .read()
        .unwrap();
    let expected = Cgroup {
        cpu_ns: Some(123),
        user_ns: Some(4 * tick_ns()),
        system_ns: Some(5 * tick_ns()),
        throttled_periods: Some(2),
        throttled_ns: Some(77),
        memory_bytes: Some(1000),
        memory_peak_bytes: None,
        memory_limit_bytes: None,
        anon_bytes: Some(700),
        file_bytes: Some(300),
        memory_limit_hits: Some(11894),
        oom_kills: Some(1),
    };
    assert_eq!(cgroup, expected);
    let folder = Path::new("/sys/fs/cgroup/cpu,cpuacct/sut");
    let mut reader = CgroupReader::of_path(root.path(), folder).unwrap();
    assert_eq!(reader.read().unwrap(), expected);
    let versions = versions(root.path()).unwrap();
    assert_eq!(
        versions,
        BTreeMap::from([("cpu", 1), ("cpuacct", 1), ("memory", 1)])
    );
}

#[test]
fn version_2() {
    let root = fixture_with(
        "proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
    );
    let here = |name: &str| format!("sys/fs/cgroup/{name}");
    add(
        &root,
        &here("cgroup.controllers"),
        "cpuset cpu io memory pids\n",
    );
    add(&root, "proc/7/cgroup", "0::/a/b\n");
    add(
        &root,
        &here("a/b/cpu.stat"),
        "usage_usec 5\nuser_usec 3\nsystem_usec 2\n",
    );
    add(&root, &here("a/b/memory.current"), "4096\n");
    add(&root, &here("a/b/memory.max"), "max\n");
    add(&root, &here("a/b/memory.stat"), "anon 4000\nfile 96\n");
    add(
        &root,
        &here("a/b/memory.events"),
        "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
    );
    let cgroup = CgroupReader::of_process(root.path(), 7)
        .unwrap()
        .read()
        .unwrap();
    let expected = Cgroup {
        cpu_ns: Some(5000),
        user_ns: Some(3000),
        system_ns: Some(2000),
        memory_bytes: Some(4096),
        anon_bytes: Some(4000),
        file_bytes: Some(96),
        memory_limit_hits: Some(3),
        oom_kills: Some(1),
        ..Cgroup::default()
    };
    assert_eq!(cgroup, expected);
    for path in ["/a/b", "a/b", "/sys/fs/cgroup/a/b/"] {
        let mut reader = CgroupReader::of_path(root.path(), Path::new(path)).unwrap();
        assert_eq!(reader.read().unwrap(), expected, "{path}");
    }
    let versions = versions(root.path()).unwrap();
    assert_eq!(
        versions,
        BTreeMap::from([("cpu", 2), ("cpuacct", 2), ("memory", 2)])
    );
}

#[test]
fn nothing_mounted_is_an_error_that_names_the_process() {
    let root = fixture_with("proc/self/mountinfo", "");
    add(&root, "proc/7/cgroup", "0::/\n");
    let error = CgroupReader::of_process(root.path(), 7)
        .unwrap_err()
        .to_string();
    assert!(error.contains("/proc/7/cgroup"), "{error}");
    let error = CgroupReader::of_path(root.path(), Path::new("/nonesuch")).unwrap_err();
    assert!(error.to_string().starts_with("/nonesuch: "), "{error}");
}
