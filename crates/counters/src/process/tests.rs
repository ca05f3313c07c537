//! Made-up folders, captured files and this very process.

use super::*;
use crate::clock::tick_ns;
use crate::testing::{add, fixture};
use tempfile::TempDir;

fn made_up(root: &TempDir, pid: u32, name: &str, utime: u64, children: &str) {
    let path = |file: &str| format!("proc/{pid}/{file}");
    let zeros = "0 0 0 0 0 0";
    // state, fields 4-9, minflt, cminflt, majflt, cmajflt, utime, stime, fields 16-23, rss (not the exact one)
    let stat = format!("{pid} ({name}) S {zeros} 11 0 12 0 {utime} 1 {zeros} 0 0 2 0 0\n");
    add(root, &path("stat"), &stat);
    add(root, &path("statm"), "9 3 1 1 0 1 0\n");
    add(
        root,
        &path("status"),
        "Name:\tx\nVmHWM:\t      20 kB\nVmRSS:\t 12 kB\n",
    );
    add(
        root,
        &path("io"),
        "rchar: 9\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n",
    );
    add(
        root,
        &path(&format!("task/{pid}/status")),
        &format!("Name:\t{name}\nvoluntary_ctxt_switches:\t8\nnonvoluntary_ctxt_switches:\t9\n"),
    );
    add(root, &path(&format!("task/{pid}/schedstat")), "500 600 7\n");
    add(root, &path(&format!("task/{pid}/children")), children);
    add(
        root,
        &path(&format!("task/{pid}/wchan")),
        "futex_wait_queue",
    );
    // From field 4 on, as many as there are before that of the last CPU.
    let skipped = "0 ".repeat(35);
    add(
        root,
        &path(&format!("task/{pid}/stat")),
        &format!("{pid} ({name}) D {skipped}3 0\n"),
    );
}

#[test]
fn children_are_followed_and_names_may_hold_anything() {
    let root = tempfile::tempdir().unwrap();
    made_up(&root, 10, "W#01) (a b", 4, "11 ");
    made_up(&root, 11, "child", 2, "");
    let tree = ProcessTree::new(root.path(), &[10]).unwrap();
    let tick = tick_ns();
    let thread = |tid, name: &str| ThreadReading {
        tid,
        name: name.into(),
        cpu_ns: 500,
        wait_ns: 600,
        slices: 7,
        state: 'D',
        wait_channel: "futex_wait_queue".into(),
        last_cpu: 3,
        voluntary_switches: Some(8),
        involuntary_switches: Some(9),
    };
    let process = |pid, name: &str, cpu_ns| ProcessReading {
        pid,
        name: name.into(),
        cpu_ns,
        rss_bytes: 3 * page_bytes(),
        rss_peak_bytes: Some(20 << 10),
        minor_faults: 11,
        major_faults: 12,
        io: Some(ProcessIo {
            read_calls: 3,
            write_calls: 4,
            read_bytes: 5,
            write_bytes: 6,
        }),
        threads: vec![thread(pid, name)],
    };
    let expected = [
        process(10, "W#01) (a b", 5 * tick),
        process(11, "child", 3 * tick),
    ];
    assert_eq!(tree.readings(), expected);
    let totals = TreeTotals {
        cpu_ns: 8 * tick,
        rss_bytes: 6 * page_bytes(),
        processes: 2,
        threads: 2,
    };
    assert_eq!(tree.totals(), totals);
}

#[test]
fn an_ended_child_keeps_its_cpu_time_and_frees_its_memory() {
    let root = tempfile::tempdir().unwrap();
    made_up(&root, 10, "parent", 4, "11");
    made_up(&root, 11, "child", 2, "");
    let mut tree = ProcessTree::new(root.path(), &[10]).unwrap();
    let before = tree.totals();
    add(
        &root,
        "proc/11/stat",
        "11 (child) Z 0 0 0 0 0 0 11 0 12 0 9 1 0 0 0 0 0 0 0 0 0 0 0\n",
    );
    tree.read().unwrap();
    let tick = tick_ns();
    let after = TreeTotals {
        cpu_ns: before.cpu_ns + 7 * tick,
        rss_bytes: 3 * page_bytes(),
        processes: 1,
        threads: 1,
    };
    assert_eq!(tree.totals(), after);
    // Its parent has not looked: it is still there, and still counted once.
    tree.rescan().unwrap();
    tree.read().unwrap();
    assert_eq!(tree.totals(), after);
    assert_eq!(tree.ended().len(), 1);
}

#[test]
fn a_root_that_is_not_there_is_an_error() {
    assert!(ProcessTree::new(&fixture(), &[1]).unwrap_err().is_gone());
}

#[test]
fn a_captured_suricata_has_named_threads() {
    let tree = ProcessTree::new(&fixture(), &[4242]).unwrap();
    let names: Vec<&str> = tree.readings()[0]
        .threads
        .iter()
        .map(|t| t.name.as_str())
        .collect();
    assert!(names.contains(&"Suricata-Main"), "{names:?}");
    assert!(
        names.iter().any(|name| name.starts_with("W#01-")),
        "{names:?}"
    );
}

#[test]
fn this_process_is_seen_as_it_sees_itself() {
    let before = crate::clock::process_cpu_ns(std::process::id()).unwrap();
    let mut tree = ProcessTree::new(Path::new("/"), &[std::process::id()]).unwrap();
    tree.read().unwrap();
    let after = crate::clock::process_cpu_ns(std::process::id()).unwrap();
    let reading = &tree.readings()[0];
    assert!((before..=after).contains(&reading.cpu_ns));
    assert!(reading.rss_bytes > 0 && reading.rss_peak_bytes >= Some(reading.rss_bytes / 2));
    assert!(
        reading
            .threads
            .iter()
            .any(|thread| thread.tid == reading.pid)
    );
}
