//! `nodrop-node trace`, as a person runs it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn trace_tool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nodrop-node"))
        .arg("trace")
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn a_part_of_a_trace_is_cut_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, part) = (path("whole.pcap"), path("part.pcap"));
    assert!(
        trace_tool(&["make", "bigflows-like", &whole, "--packets", "300"])
            .status
            .success()
    );
    let cut = trace_tool(&["cut", &whole, &part, "--skip", "10", "--packets", "20"]);
    assert_eq!(String::from_utf8(cut.stdout).unwrap(), "{\"packets\":20}\n");
    let records = |path: &str| {
        let bytes = std::fs::read(path).unwrap();
        let reader = nodrop_wire::capture::Reader::new(&bytes, false).unwrap();
        reader
            .map(|record| {
                let record = record.unwrap();
                (
                    record.timestamp_ns,
                    record.original_bytes,
                    record.frame.to_vec(),
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(records(&part), records(&whole)[10..30]);

    // Frames on stdout, and nothing else.
    let piped = trace_tool(&[
        "cut",
        &whole,
        "/dev/stdout",
        "--skip",
        "10",
        "--packets",
        "20",
    ]);
    assert_eq!(piped.stdout, std::fs::read(&part).unwrap());
    assert_eq!(piped.stderr, b"{\"packets\":20}\n");

    let nothing = trace_tool(&["cut", &whole, &part, "--from-s", "1e6"]);
    assert!(!nothing.status.success() && !folder.path().join("part.pcap").exists());
}

#[test]
fn a_reader_that_is_gone_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, out) = (path("whole.pcap"), path("out.pcap"));
    trace_tool(&["make", "bigflows-like", &whole, "--packets", "300"]);
    for args in [
        &["info", &whole][..],
        &["info", "--json", &whole],
        &["cut", &whole, &out],
        &["cut", &whole, "/dev/stdout"],
        &["replicate", &whole, &out, "--multiplier", "2"],
    ] {
        let (reader, written) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        drop(reader);
        let done = Command::new(env!("CARGO_BIN_EXE_nodrop-node"))
            .arg("trace")
            .args(args)
            .stdout(written)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(
            (done.status.code(), said.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}

#[test]
fn a_fifo_whose_reader_is_gone_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, fifo) = (path("whole.pcap"), path("fifo"));
    // More than a pipe holds, so that the writer is at it when the reader goes.
    trace_tool(&["make", "bigflows-like", &whole, "--packets", "3000"]);
    nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for args in [
        &["cut", &whole, &fifo][..],
        &["replicate", &whole, &fifo, "--multiplier", "2"],
    ] {
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || drop(fs::File::open(fifo).unwrap())
        });
        let done = trace_tool(args);
        reader.join().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        let line = format!("nodrop-node trace: cannot write {fifo}: whoever read it has gone\n");
        assert_eq!((done.status.code(), said), (Some(1), line), "{args:?}");
        assert!(done.stdout.is_empty() && Path::new(&fifo).exists());
    }
}

/// Even if the trace has no fragments, for which alone the replay would be laid out.
#[test]
fn too_many_replicas_are_refused_before_a_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcap");
    let mut capture = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        capture.extend(word.to_le_bytes());
    }
    for word in [1_700_000_000_u32, 0, 60, 60] {
        capture.extend(word.to_le_bytes());
    }
    let mut frame = vec![0; 60];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[169, 254, 0, 1, 169, 254, 0, 2]);
    capture.extend(frame);
    fs::write(&path, capture).unwrap();
    let info = |replicas| trace_tool(&["info", path.to_str().unwrap(), "--multiplier", replicas]);
    assert_eq!(info("100").status.code(), Some(0));
    let refused = info("1000000");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("do not fit its address space (use fewer replicas"),
        "{said}"
    );
    assert!(!refused.status.success());
}
