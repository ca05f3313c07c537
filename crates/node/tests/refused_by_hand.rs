//! Flags and files that make no sense, as a person gives them: one line, exit code 2, nothing written.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

mod hand;
use hand::{trace_tool, trace_tool_does};

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
        said.contains("do not fit its address space; use fewer replicas"),
        "{said}"
    );
    assert!(!refused.status.success());
}

/// Words of the one line that is said, with exit code 2.
fn refusal(job: &str, args: &[&str]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nodrop-node"))
        .arg(job)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that waits for a FIFO or reads without end is ended here, not by the CI's limit.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > deadline {
            child.kill().unwrap();
            panic!("{job} {args:?} does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{job} {args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{job} {args:?}: {said}");
    assert!(done.stdout.is_empty(), "{job} {args:?}");
    said
}

#[test]
fn what_is_no_trace_is_bad_input_and_never_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let out = path("out");
    nix::unistd::mkfifo(path("fifo").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _listens = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    fs::write(path("empty"), b"").unwrap();
    fs::write(path("text"), b"0,5\nno trace, no profile\n").unwrap();
    fs::write(path("cut.gz"), [0x1f, 0x8b, 8, 0, 0]).unwrap();
    std::os::unix::fs::symlink(path("fifo"), path("link")).unwrap();
    let others = ["/dev/zero", "/dev/null", "/dev/tty"];
    let odd: Vec<String> = (["fifo", "socket", "link", "empty", "text", "cut.gz", "."].map(path))
        .into_iter()
        .chain(others.map(String::from))
        .chain([path("missing"), path("missing/below")])
        .collect();
    for (number, file) in odd.iter().enumerate() {
        let interface = ["--port", "lo", "--yes", "--top-speed"];
        let of = |args: &[&str]| refusal("trace", args);
        let said = [
            of(&["info", file]),
            of(&["info", "--json", file, "--tolerate-truncated"]),
            of(&["cut", file, &out]),
            of(&["replicate", file, &out, "--multiplier", "2"]),
        ];
        for said in &said {
            assert!(said.contains(file.as_str()), "{said}");
            let is_odd = number < 3 || ["/dev/zero", "/dev/null"].contains(&file.as_str());
            assert!(!is_odd || said.contains("is no regular file"), "{said}");
        }
        // Before a socket is opened, so without rights.
        let profile = ["--trace", "t", "--port", "lo", "--yes", "--profile", file];
        assert!(refusal("replay", &profile).contains(file.as_str()));
        if nix::unistd::geteuid().is_root() {
            let said = refusal("replay", &[&["--trace", file], &interface[..]].concat());
            assert!(said.contains(file.as_str()), "{said}");
        }
        // A rule file may be empty, and its lines need not be rules.
        if !["/empty", "/text"].iter().any(|name| file.ends_with(name)) {
            let said = of(&["make", "demo", &out, "--packets", "100", "--attacks", file]);
            assert!(said.contains(file.as_str()), "{said}");
        }
        assert!(!Path::new(&out).exists(), "{file}");
    }
    fs::File::create(path("sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let said = refusal(
        "trace",
        &["make", "demo", &out, "--attacks", &path("sparse")],
    );
    assert!(said.contains("is larger than 64 MiB"), "{said}");
}

#[test]
fn numbers_that_make_no_sense_are_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, out) = (path("whole.pcap"), path("out.pcap"));
    trace_tool_does(&format!("make demo {whole} --packets 300"));
    let largest = u64::MAX.to_string();
    let no_count = ["-1", "NaN", "inf", "1.5", "", "x", "18446744073709551616"];
    let no_time = ["-1", "NaN", "inf", "-inf", "", "x"];
    let no_rate = ["0", "-1", "NaN", "inf", "-inf", "", "x"];
    let table: [(&str, Vec<&str>, &str, &[&str]); 17] = [
        ("trace", vec!["make", "demo", &out], "--packets", &no_count),
        (
            "trace",
            vec!["make", "ists-like", &out],
            "--packets",
            &["0", "99", "5000001", "4294967296", &largest],
        ),
        ("trace", vec!["make", "demo", &out], "--seed", &no_count),
        ("trace", vec!["cut", &whole, &out], "--packets", &no_count),
        ("trace", vec!["cut", &whole, &out], "--skip", &no_count),
        ("trace", vec!["cut", &whole, &out], "--from-s", &no_time),
        ("trace", vec!["cut", &whole, &out], "--to-s", &no_time),
        (
            "trace",
            vec!["replicate", &whole, &out],
            "--multiplier",
            &["0", "1000001", "4294967295", "-1", "NaN", "inf", &largest],
        ),
        (
            "trace",
            vec!["replicate", &whole, &out, "--flows", "same"],
            "--multiplier",
            &["0", "1000001", "4294967295"],
        ),
        (
            "trace",
            vec!["info", &whole, "--flows", "same"],
            "--multiplier",
            &["0", "1000001", "4294967295", "-1", "NaN", &largest],
        ),
        ("trace", vec!["info", &whole], "--speed", &no_rate),
        ("trace", vec!["info", &whole], "--pps", &no_rate),
        ("trace", vec!["info", &whole], "--duration-s", &no_rate),
        (
            "trace",
            vec!["info", &whole],
            "--loops",
            &["-1", "4294967296"],
        ),
        ("sample", vec![], "--duration-s", &no_rate),
        (
            "sample",
            vec![],
            "--interval-ms",
            &["0", "-1", "NaN", "inf", "18446744073709551616"],
        ),
        (
            "sample",
            vec![],
            "--every",
            &["cgroup=-1", "cpus=NaN", "all=1", ""],
        ),
    ];
    for (job, args, flag, values) in table {
        for value in values {
            let asked = format!("{flag}={value}");
            refusal(job, &[&args[..], &[&asked]].concat());
            assert!(!Path::new(&out).exists(), "{args:?} {asked}");
        }
    }
    let replay = ["--trace", &whole, "--port", "lo", "--yes"];
    for flag in ["--speed", "--pps", "--bps"] {
        for value in no_rate {
            refusal(
                "replay",
                &[&replay[..], &[&format!("{flag}={value}")]].concat(),
            );
        }
    }
    for more in [
        "--duration-s=0",
        "--duration-s=NaN",
        "--multiplier=0",
        "--multiplier=4294967295",
        "--burst=0",
        "--burst=-1",
        "--loops=4294967296",
    ] {
        refusal("replay", &[&replay[..], &["--pps=5", more]].concat());
    }
    let said = refusal("trace", &["make", "demo", &out, "--packets", &largest]);
    assert!(said.contains("is not in 100..=5000000"), "{said}");
    trace_tool_does(&format!("make demo {out} --packets=100 --seed={largest}"));
}

#[test]
fn a_ramp_without_a_profile_is_bad_input() {
    let asked = "--trace x.pcap --interface lo --pps 9 --ramp";
    let said = refusal("replay", &asked.split(' ').collect::<Vec<_>>());
    assert!(said.contains("--profile"), "{said}");
}

#[test]
fn a_trial_without_end_is_refused_and_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let whole = path("whole.pcap");
    trace_tool_does(&format!("make demo {whole} --packets 300"));
    for more in [
        "--loops 4294967295",
        "--loops 4294967295 --pps 5",
        "--loops 20000000 --speed 3",
        "--loops 300000 --multiplier 60",
        "--loops 0 --pps 1e9 --duration-s 1e6",
        // Minutes of following, if it were begun.
        "--multiplier 1000000 --flows same",
        "--multiplier 999999.5 --flows same --top-speed",
        "--multiplier 700000 --flows same --speed 1e6",
    ] {
        let args: Vec<&str> = ["info", &whole]
            .into_iter()
            .chain(more.split(' '))
            .collect();
        let said = refusal("trace", &args);
        assert!(
            said.contains("through at most 4194304 of them: these are "),
            "{more}: {said}"
        );
    }
    for more in [
        "--loops 4294967295 --duration-s 1",
        "--loops 4294967295 --pps 5 --duration-s 900",
        // Fifty million packets, and only their fragments are followed.
        "--multiplier 1000000 --flows same --pps 1e9 --duration-s 0.05",
    ] {
        trace_tool_does(&format!("info {whole} {more}"));
    }
    // A trace without fragments has nothing to follow.
    let few = path("few.pcap");
    trace_tool_does(&format!("cut {whole} {few} --packets 3"));
    for more in [
        "--multiplier 1000000 --flows same",
        "--loops 4294967295",
        "--loops 4294967295 --multiplier 999999.5 --flows same --pps 1e9",
    ] {
        trace_tool_does(&format!("info {few} {more}"));
    }
}

#[test]
fn a_fifo_without_a_reader_is_no_place_to_write_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, fifo, link) = (path("whole.pcap"), path("fifo"), path("link"));
    trace_tool_does(&format!("make demo {whole} --packets 300"));
    nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink(&fifo, &link).unwrap();
    for out in [&fifo, &link] {
        for args in [
            &["make", "demo", out, "--packets", "100"][..],
            &["cut", &whole, out],
            &["replicate", &whole, out, "--multiplier", "2"],
        ] {
            let said = refusal("trace", args);
            assert!(said.contains("nothing reads it"), "{args:?}: {said}");
        }
    }
}

#[test]
fn many_rules_are_planted_in_one_pass_and_too_many_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, rules) = (path("out.pcap"), path("many.rules"));
    let write = |count: usize| {
        let line = |n| {
            format!(
                "alert tcp any any -> any any (content:\"evil{n}\"; sid:{};)\n",
                n + 1
            )
        };
        fs::write(&rules, (0..count).map(line).collect::<String>()).unwrap();
    };
    write(10_001);
    let said = refusal("trace", &["make", "demo", &out, "--attacks", &rules]);
    assert!(said.contains("10001 rules can be planted"), "{said}");
    assert!(!Path::new(&out).exists());
    write(120);
    trace_tool_does(&format!("make demo {out} --packets 500 --attacks {rules}"));
    let said: serde_json::Value =
        serde_json::from_slice(&fs::read(format!("{out}.json")).unwrap()).unwrap();
    // evil7 also fires on evil70 to evil79, evil1 on evil10 to evil19 and evil100 to evil119.
    for (sid, rules) in [("120", 1), ("8", 11), ("2", 31), ("12", 11)] {
        assert_eq!(said["alerts"][sid], 3 * rules, "{sid}");
    }
}
