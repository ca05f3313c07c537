//! `nodrop-node trace`, as a person runs it: what it writes, and to whom.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

mod hand;
use hand::{trace_tool, trace_tool_does};

#[test]
fn a_part_of_a_trace_is_cut_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, part) = (path("whole.pcap"), path("part.pcap"));
    trace_tool_does(&format!("make bigflows-like {whole} --packets 300"));
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
}

/// OUT may be the only copy of another capture; the one that is read is never written over.
#[test]
fn what_has_the_name_stays_until_a_whole_file_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, other, link) = (path("whole.pcap"), path("other.pcap"), path("link.pcap"));
    let new = path("new.pcap");
    trace_tool(&["make", "bigflows-like", &whole, "--packets", "300"]);
    fs::copy(&whole, &other).unwrap();
    std::os::unix::fs::symlink("other.pcap", &link).unwrap();
    let before = fs::read(&whole).unwrap();
    for out in [&other, &link, &new] {
        let nothing = trace_tool(&["cut", &whole, out, "--from-s", "1e6"]);
        assert_eq!(nothing.status.code(), Some(2));
        assert_eq!(fs::read(&other).unwrap(), before);
    }
    let itself = trace_tool(&["cut", &other, &link, "--packets", "20"]);
    assert_eq!(itself.status.code(), Some(2));
    assert_eq!(fs::read(&other).unwrap(), before);
    let full = Command::new("sh")
        .args(["-c", "ulimit -f 8; exec \"$@\"", "sh"])
        .args([env!("CARGO_BIN_EXE_nodrop-node"), "trace", "replicate"])
        .args([&whole, &other, "--multiplier", "4"])
        .output()
        .unwrap();
    assert!(!full.status.success());
    assert_eq!(fs::read(&other).unwrap(), before);

    let cut = trace_tool(&["cut", &whole, &link, "--packets", "20"]);
    assert!(cut.status.success() && Path::new(&link).is_symlink());
    assert!(fs::read(&other).unwrap().len() < before.len());
    assert_eq!(fs::read(&whole).unwrap(), before);
    assert!(!Path::new(&new).exists());
    fs::write(&new, "").unwrap();
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&other), mode(&new));
}

/// Each from its own beginning, whenever it was captured; the frames of each have an address.
#[test]
fn traces_are_merged_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (first, second, out) = (path("first.pcap"), path("second.pcap"), path("out.pcap"));
    let write = |path: &str, packets: &[(u64, u32)]| {
        let mut bytes = nodrop_wire::pcap::file_header().to_vec();
        for (at_ns, length) in packets {
            let header = nodrop_wire::pcap::record_header(*at_ns, *length, length + 5);
            bytes.extend(header);
            bytes.resize(bytes.len() + *length as usize, 9);
        }
        fs::write(path, bytes).unwrap();
    };
    write(
        &first,
        &[(1_000, 60), (1_030, 61), (1_010, 62), (1_040, 63)],
    );
    write(&second, &[(7_000_000, 70), (7_000_030, 71), (7_000_090, 4)]);
    let macs = "--dst-macs=02:00:00:00:00:01,02:00:00:00:00:02";
    let merged = trace_tool(&["merge", &first, &second, "--out", &out, macs]);
    let said = String::from_utf8(merged.stdout).unwrap();
    assert_eq!(said, "{\"joined\":false,\"packets\":[4,3]}\n");
    let bytes = fs::read(&out).unwrap();
    let found: Vec<(u64, u32, usize, u8)> = nodrop_wire::capture::Reader::new(&bytes, false)
        .unwrap()
        .map(Result::unwrap)
        .inspect(|record| assert!(record.frame.iter().skip(6).all(|byte| *byte == 9)))
        .map(|r| {
            (
                r.timestamp_ns,
                r.original_bytes,
                r.frame.len(),
                *r.frame.get(5).unwrap_or(&0),
            )
        })
        .collect();
    let expected = [
        (1_000, 65, 60, 1),
        (1_000, 75, 70, 2),
        (1_030, 66, 61, 1),
        (1_030, 67, 62, 1), // its time lies before that of the one ahead of it
        (1_030, 76, 71, 2),
        (1_040, 68, 63, 1),
        (1_090, 9, 4, 0), // too short to have an address
    ];
    assert_eq!(found, expected);

    let empty = path("empty.pcap");
    write(&empty, &[]);
    for (bad, words) in [
        (vec!["merge", &first, "--out", &out], "2"),
        (
            vec![
                "merge",
                &first,
                &second,
                "--out",
                &out,
                "--dst-macs=02:00:00:00:00:01",
            ],
            "1 for 2",
        ),
        (
            vec!["merge", &first, &second, "--out", &out, "--dst-macs=x,y"],
            "`x`",
        ),
        (
            vec!["merge", &first, &empty, "--out", &out],
            "empty.pcap: the trace holds no packets",
        ),
    ] {
        let refused = trace_tool(&bad);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// Seen: 0 packets/s of one packet, and 2,000 of two that lie 1 ms apart.
#[test]
fn a_mean_rate_is_that_of_a_replay_and_not_known_if_no_time_passes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rate.pcap");
    let info = |more: &[&str]| {
        let found = trace_tool(&[&["info", path.to_str().unwrap()], more].concat());
        String::from_utf8(found.stdout).unwrap()
    };
    for (times_ms, mean, words) in [
        (
            &[7_u64][..],
            0.0,
            "– packets/s, 1 in the busiest second\n             – bytes/s, 60 in",
        ),
        (&[7, 7, 7], 0.0, "– packets/s, 3 in the busiest second"),
        (&[7, 6], 1000.0, "1,000 packets/s, 2 in the busiest second"),
        (
            &[7, 8],
            1000.0,
            "1,000 packets/s, 2 in the busiest second\n             60,000 bytes/s",
        ),
        (
            &[0, 1000, 2000, 3000],
            1.0,
            "1 packets/s, 1 in the busiest second",
        ),
        // No second that is counted from the first packet has three.
        (
            &[0, 900, 1000, 1100, 2500, 2600, 3000],
            2.0,
            "2 packets/s, 3 in the busiest second\n             120 bytes/s, 180 in",
        ),
    ] {
        let mut bytes = nodrop_wire::pcap::file_header().to_vec();
        for ms in times_ms {
            bytes.extend(nodrop_wire::pcap::record_header(ms * 1_000_000, 60, 60));
            bytes.resize(bytes.len() + 60, 9);
        }
        fs::write(&path, bytes).unwrap();
        assert!(
            info(&[]).contains(&format!("rate         {words}")),
            "{times_ms:?}"
        );
        let facts: serde_json::Value = serde_json::from_str(&info(&["--json"])).unwrap();
        assert_eq!(
            facts["packets_per_s"]["mean"].as_f64(),
            Some(mean),
            "{times_ms:?}"
        );
    }
}

/// Seen: the figures of packets of an earlier time as if all of them left at once, at the end.
#[test]
fn a_capture_whose_time_steps_back_is_looked_at_in_the_order_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("back.pcap");
    let facts = |times_ms: &[u64]| -> serde_json::Value {
        let mut bytes = nodrop_wire::pcap::file_header().to_vec();
        for ms in times_ms {
            bytes.extend(nodrop_wire::pcap::record_header(ms * 1_000_000, 60, 60));
            bytes.resize(bytes.len() + 60, u8::try_from(ms % 250).unwrap());
        }
        fs::write(&path, bytes).unwrap();
        let found = trace_tool(&["info", path.to_str().unwrap(), "--json"]);
        serde_json::from_slice(&found.stdout).unwrap()
    };
    // Times, packets that step back, the longest gap and the packet of the file before it.
    for (times_ms, back, gap_ms, after_packet) in [
        (&[5_000, 0, 1_000, 2_000][..], 3, 3_000, 4),
        (&[10_000, 11_000, 12_000, 0, 1_000, 1_001], 3, 8_999, 6),
        (&[900, 4_000, 100, 3_000, 2_000], 3, 1_100, 1),
    ] {
        let mut in_order = times_ms.to_vec();
        in_order.sort_unstable();
        let (mut found, mut expected) = (facts(times_ms), facts(&in_order));
        assert_eq!(found["backwards"]["packets"], back, "{times_ms:?}");
        assert_eq!(found["longest_gap"]["ns"], gap_ms * 1_000_000_u64);
        assert_eq!(found["longest_gap"]["after_packet"], after_packet);
        for facts in [&mut found, &mut expected] {
            let facts = facts.as_object_mut().unwrap();
            facts["longest_gap"]["after_packet"] = 0.into();
            facts.retain(|name, _| name != "backwards" && name != "sha256");
        }
        assert_eq!(found, expected, "{times_ms:?}");
    }
}

/// Seen: 6 s in three pieces of `tcpdump -G` became 2 s at three times the rate.
#[test]
fn pieces_of_a_rotated_capture_are_joined_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, link: u32, times_ms: &[u64]| {
        let mut bytes = nodrop_wire::pcap::file_header().to_vec();
        bytes[20..24].copy_from_slice(&link.to_le_bytes());
        for ms in times_ms {
            bytes.extend(nodrop_wire::pcap::record_header(ms * 1_000_000, 60, 60));
            let raw = [0x45, 0, 0, 60, 0, 7, 0, 0, 64, 17];
            bytes.extend(raw);
            bytes.resize(bytes.len() + 50, 9);
        }
        fs::write(path(name), bytes).unwrap();
        path(name)
    };
    let merged = |traces: &[&str], own_times: bool| {
        let out = path("out.pcap");
        let mut argv = vec!["merge"];
        argv.extend(traces);
        argv.extend(["--out", &out]);
        argv.extend(own_times.then_some("--own-times"));
        let said = trace_tool(&argv);
        assert!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        let bytes = fs::read(&out).unwrap();
        let read: Vec<_> = nodrop_wire::capture::Reader::of_any_link(&bytes, false)
            .unwrap()
            .map(Result::unwrap)
            .map(|r| (r.timestamp_ns / 1_000_000, r.source.linktype))
            .collect();
        (said["joined"].as_bool().unwrap(), read)
    };
    let first = write("a.pcap0", 1, &[100_000, 101_990]);
    let second = write("a.pcap1", 1, &[102_000, 103_990]);
    let third = write("a.pcap2", 1, &[104_000, 105_990]);
    let beside = write("beside.pcap", 1, &[100_500, 101_500]);
    let empty = write("a.pcap3", 1, &[]);
    let raw = write("b.pcap1", 101, &[102_000]);
    let times = |read: &[(u64, u32)]| read.iter().map(|(at, _)| *at).collect::<Vec<_>>();

    // Named in whatever order.
    let (joined, read) = merged(&[&third, &first, &second], false);
    assert!(joined);
    assert_eq!(
        times(&read),
        [100_000, 101_990, 102_000, 103_990, 104_000, 105_990]
    );
    // Two ports at once begin together, unless their own times are asked for.
    let (joined, read) = merged(&[&first, &beside], false);
    assert!(!joined);
    assert_eq!(times(&read), [100_000, 100_000, 101_000, 101_990]);
    let (joined, read) = merged(&[&first, &beside, &empty], true);
    assert!(joined);
    assert_eq!(times(&read), [100_000, 100_500, 101_500, 101_990]);
    // One link stays, two become Ethernet.
    assert_eq!(merged(&[&raw, &raw], true).1, [(102_000, 101); 2]);
    let (_, read) = merged(&[&first, &raw], true);
    assert_eq!(read, [(100_000, 1), (101_990, 1), (102_000, 1)]);
}

/// Seen: `info` called captures empty that hold packets which no port carries, and others usable that `prepare` refuses.
#[test]
fn info_refuses_what_prepare_refuses_in_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("odd.pcap").to_str().unwrap().to_owned();
    let out = folder.path().join("out.pcap").to_str().unwrap().to_owned();
    let beacon = [&[0, 0, 8, 0, 0, 0, 0, 0, 0x80][..], &[0; 30]].concat();
    let negotiation = [&[0xff, 0x03, 0xc0, 0x21][..], &[1; 20]].concat();
    let long = [&[2; 12][..], &[0x88, 0xb5], &vec![3; 70_000]].concat();
    for (link, frames, words) in [
        (
            127_u32,
            vec![&beacon; 3],
            "no packet of 3 can be sent: 802.11 with radiotap without a network packet",
        ),
        (
            9,
            vec![&negotiation; 2],
            "no packet of 2 can be sent: PPP without a network packet",
        ),
        (
            1,
            vec![&long],
            "no packet of 1 can be sent: longer than any port takes",
        ),
        (
            1,
            vec![&beacon[..9].to_vec(); 4],
            "no packet of 4 can be sent: shorter than an Ethernet header",
        ),
        (1, vec![], "the trace holds no packets"),
    ] {
        let mut bytes = nodrop_wire::pcap::file_header().to_vec();
        bytes[20..24].copy_from_slice(&link.to_le_bytes());
        for frame in frames {
            let length = u32::try_from(frame.len()).unwrap();
            bytes.extend(nodrop_wire::pcap::record_header(5, length, length));
            bytes.extend(frame);
        }
        fs::write(&trace, bytes).unwrap();
        for argv in [vec!["info", &trace], vec!["prepare", &trace, &out]] {
            let refused = trace_tool(&argv);
            let said = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(2), "{argv:?}");
            assert_eq!(said.trim(), format!("nodrop-node trace: {trace}: {words}"));
        }
    }
}

/// Seen: link types refused, "1 packets", and neither odd fractions nor check sequences named.
#[test]
fn what_is_odd_in_a_capture_or_of_another_link_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.pcap");
    let ip = [
        &[
            0x45, 0, 0, 46, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ][..],
        &[0; 26],
    ]
    .concat();
    let ethernet = [&[2; 12][..], &[8, 0], &ip].concat();
    let cooked = [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 8, 0][..], &ip].concat();
    let beacon = [&[0, 0, 8, 0, 0, 0, 0, 0, 0x80][..], &[0; 30]].concat();
    let usb = vec![0; 64];
    // Link type, length on the wire, ticks after the second, frames, packets there are of facts, and a line of the text.
    let none = 0_u64;
    for (link, wire, fraction, frames, packets, words) in [
        (
            1,
            60,
            1_000_000,
            vec![&ethernet],
            1,
            "note         1 packet with a fraction of a second or more",
        ),
        (
            1,
            60,
            999_999,
            vec![&ethernet; 3],
            3,
            "flows 1 the largest has 3 packets, 100.0 % they spread over threads like a single one",
        ),
        (
            1,
            60,
            10_000_000,
            vec![&ethernet; 3],
            3,
            "note         3 packets with a fraction of a second or more",
        ),
        (
            0x2400_0001,
            60,
            5,
            vec![&ethernet; 2],
            2,
            "note         2 packets with a frame check sequence",
        ),
        (
            1,
            46,
            5,
            vec![&ethernet],
            1,
            "note         1 packet captured longer than on the wire",
        ),
        (
            113,
            62,
            5,
            vec![&cooked; 2],
            2,
            "note         2 packets of Linux cooked (113): shown with an Ethernet header",
        ),
        (
            113,
            62,
            1_000_000,
            vec![&cooked; 4],
            4,
            "note         4 packets with a fraction of a second or more",
        ),
        (
            101,
            46,
            7_000_000,
            vec![&ip],
            1,
            "note         1 packet with a fraction of a second or more",
        ),
        (
            101,
            46,
            5,
            vec![&ip],
            1,
            "note         1 packet of raw IP (101): shown with an Ethernet header",
        ),
        (
            1,
            60,
            5,
            vec![
                &ethernet,
                &usb[..0].to_vec(),
                &ethernet,
                &usb[..13].to_vec(),
            ],
            2,
            "note         2 packets not counted here: shorter than an Ethernet header (the first is packet 2)",
        ),
        (
            127,
            39,
            5,
            vec![&beacon],
            none,
            "no packet of 1 can be sent: 802.11 with radiotap without a network packet",
        ),
        (
            220,
            64,
            5,
            vec![&usb; 2],
            none,
            "2 packets of link type 220 (USB) on interface 0 cannot be put on an Ethernet port: packet 1 is the first",
        ),
    ] {
        let mut bytes = nodrop_wire::pcap::file_header().to_vec();
        bytes[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
        bytes[20..24].copy_from_slice(&u32::to_le_bytes(link));
        for frame in frames {
            let captured = u32::try_from(frame.len()).unwrap();
            for field in [7_u32, fraction, captured, wire] {
                bytes.extend(field.to_le_bytes());
            }
            bytes.extend(frame);
        }
        fs::write(&path, bytes).unwrap();
        let said = |more: &[&str]| {
            let found = trace_tool(&[&["info", path.to_str().unwrap()], more].concat());
            String::from_utf8([found.stdout, found.stderr].concat()).unwrap()
        };
        let told = said(&[]);
        let mut table = told.lines().filter(|line| !line.starts_with("nodrop-node"));
        assert!(table.all(|line| line.chars().count() <= 80), "{told}");
        let [told, words] =
            [&told, words].map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(told.contains(&words), "{words}: {told}");
        if packets > 0 {
            let facts: serde_json::Value = serde_json::from_str(&said(&["--json"])).unwrap();
            assert_eq!(
                (facts["packets"].as_u64(), facts["frame_bytes"].as_u64()),
                (Some(packets), Some(packets * 60))
            );
        }
    }
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
        // There before the writer, which is not waited for; it goes when it has read something.
        let mut opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(&fifo)
            .unwrap();
        let reader = std::thread::spawn(move || {
            while !matches!(opened.read(&mut [0; 64]), Ok(1..)) {
                std::thread::yield_now();
            }
        });
        let done = trace_tool(args);
        reader.join().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        let line = format!("nodrop-node trace: cannot write {fifo}: whoever read it has gone\n");
        assert_eq!((done.status.code(), said), (Some(3), line), "{args:?}");
        assert!(done.stdout.is_empty() && Path::new(&fifo).exists());
    }
}

#[test]
fn a_flow_of_a_trace_is_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, part, out) = (path("whole.pcap"), path("part.pcap"), path("flows"));
    trace_tool_does(&format!("make bigflows-like {whole} --packets 300"));
    let flows = |trace: &str, more: &str| {
        trace_tool_does(&format!("flows {trace} --out {out} {more}"));
        let bytes = fs::read(&out).unwrap();
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let head: serde_json::Value = serde_json::from_slice(&bytes[..end]).unwrap();
        let known = head["flows"].as_array().unwrap().iter();
        let names: Vec<String> = known
            .map(|f| f["name"].as_str().unwrap().to_owned())
            .collect();
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let packets = bytes[end + 1..].chunks(8);
        let sent: Vec<_> = packets
            .map(|p| (number(&p[..4]), number(&p[4..])))
            .collect();
        (names, sent)
    };
    let (names, sent) = flows(&whole, "");
    assert!(sent.len() >= 300);
    assert!(
        sent.iter()
            .all(|(flow, copy)| *flow as usize <= names.len() && *copy == 0)
    );

    // Two replicas: each flow twice as often, once in each copy.
    let (again, twice) = flows(&whole, "--multiplier 2");
    let of = |sent: &[(u32, u32)], wanted| sent.iter().filter(|one| **one == wanted).count();
    assert_eq!((&again, twice.len()), (&names, 2 * sent.len()));
    assert_eq!(of(&twice, (0, 1)), of(&sent, (0, 0)));
    let (_, same) = flows(&whole, "--multiplier 2 --flows same");
    assert_eq!(of(&same, (0, 0)), 2 * of(&sent, (0, 0)));

    let left_out = trace_tool(&["withhold", &whole, &part, "--flow", &names[0]]);
    assert!(left_out.status.success());
    let (rest, kept) = flows(&part, "");
    assert!(!rest.contains(&names[0]));
    assert_eq!(kept.len(), sent.len() - of(&sent, (0, 0)));

    let nothing = trace_tool(&[
        "withhold",
        &whole,
        &part,
        "--flow",
        "tcp 1.2.3.4:5 6.7.8.9:10",
    ]);
    assert!(!nothing.status.success());
    let large = trace_tool(&["flows", &whole, "--out", &out, "--most-packets", "299"]);
    assert_eq!(large.status.code(), Some(2));
}
