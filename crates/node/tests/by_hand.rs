//! The sampler with flags, as a person runs it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn sample(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodrop-node"));
    command
        .arg("sample")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

fn result(output: &Output) -> Value {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let value: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(value["type"], "result", "{value}");
    value
}

#[test]
fn ctrl_c_and_sigterm_are_a_stop_and_the_result_is_still_said() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = sample(&["--interval-ms", "3600000"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.contains(r#""type":"sample""#), "{first}");
        kill(pid(&child), signal).unwrap();
        let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
        assert_eq!(
            (&last["type"], &last["rows"]),
            (&"result".into(), &2.into())
        );
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn spooled_rows_are_all_there_and_nothing_else_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let spool = ["--path", path.to_str().unwrap()];
    let args = [&["--interval-ms", "20", "--duration-s", "0.2"], &spool[..]].concat();
    let output = sample(&args).output().unwrap();
    assert_eq!(
        output.stdout.iter().filter(|byte| **byte == b'\n').count(),
        1
    );
    let result = result(&output);
    let rows: Vec<Value> = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(result["rows"], rows.len());
    assert!(
        rows.windows(2)
            .all(|pair| pair[0]["mono_ns"].as_u64() < pair[1]["mono_ns"].as_u64())
    );
    assert_eq!(result["first"]["mono_ns"], rows[0]["mono_ns"]);
    assert_eq!(result["last"]["cpus"], rows[rows.len() - 1]["cpus"]);
}

#[test]
fn a_busy_process_is_charged_and_keeps_its_time_when_it_ends() {
    let mut busy = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let root = busy.id().to_string();
    let args = [
        "--interval-ms",
        "10",
        "--pid",
        &root,
        "--path",
        path.to_str().unwrap(),
    ];
    let sampler = sample(&args).spawn().unwrap();
    let used = |row: &Value| row["tree"]["cpu_ns"].as_u64().unwrap();
    let living = |row: &Value| row["tree"]["processes"].as_u64().unwrap();
    // Rows are spooled in blocks: the process's own clock says when it has run long enough to be seen running.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let ran = || {
        let clock = nix::time::ClockId::pid_cpu_clock_id(pid(&busy)).unwrap();
        std::time::Duration::from(clock.now().unwrap())
    };
    // Its file is there once everything asked for was read for the first time.
    while !path.exists() {
        assert!(
            std::time::Instant::now() < deadline,
            "the sampler does not begin"
        );
        std::thread::yield_now();
    }
    let begun = ran();
    while ran() < begun + std::time::Duration::from_millis(100) {
        assert!(std::time::Instant::now() < deadline, "starved");
        std::thread::yield_now();
    }
    busy.kill().unwrap();
    busy.wait().unwrap();
    kill(pid(&sampler), Signal::SIGINT).unwrap();
    let output = sampler.wait_with_output().unwrap();
    let result = result(&output);
    let text = fs::read_to_string(&path).unwrap();
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = rows.last().unwrap();
    assert!(
        rows.windows(2).all(|pair| used(&pair[0]) <= used(&pair[1])),
        "CPU time never falls"
    );
    assert_eq!(living(last), 0);
    assert_eq!(
        used(last),
        result["processes"][0]["cpu_ns"].as_u64().unwrap()
    );
    assert!(result["tree_cpu_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn errors_are_one_line_for_people() {
    let says = |args: &[&str], code: i32, words: &str| {
        let output = sample(args).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(code), 0),
            "{text}"
        );
        assert!(text.contains(words), "{text}");
        text
    };
    says(
        &["--interval-ms", "0"],
        2,
        "field `interval_ms`: must be at least 1",
    );
    says(&["--interval-ms", "x"], 2, "invalid value 'x'");
    let text = says(
        &["--port", "nonesuch0"],
        2,
        "no network interface `nonesuch0`",
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_it() {
    for format in ["jsonl", "csv"] {
        let args = ["--interval-ms", "1", "--format", format];
        let mut child = sample(&args).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().is_ok());
        drop(lines);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{format}");
    }
}

#[test]
fn a_full_disk_is_no_reader_that_has_seen_enough() {
    for format in ["jsonl", "csv"] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let args = ["--interval-ms", "1", "--format", format];
        let output = sample(&args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{format}");
        let said = String::from_utf8(output.stderr).unwrap();
        let words = "nodrop-node: stdout: cannot write: No space left on device";
        assert!(said.starts_with(words), "{said}");
    }
}

#[test]
fn csv_has_a_column_per_counter_and_a_line_per_row() {
    let args = [
        "--interval-ms",
        "10",
        "--duration-s",
        "0.03",
        "--port",
        "lo",
        "--format",
        "csv",
    ];
    let output = sample(&args).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    // Stdout is the table and nothing else.
    let rows: Value = serde_json::from_slice::<Value>(&output.stderr).unwrap()["rows"].clone();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!(rows, lines.len() - 1);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    let column = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
    let received = lines[1][column("links.lo.rx_packets")].parse::<u64>();
    assert!(received.is_ok() && lines[1][column("cpus.0.idle_ns")].parse::<u64>().is_ok());
}

fn rows_of(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    rows.collect()
}

#[test]
fn a_row_holds_the_sources_that_were_due() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let me = std::process::id().to_string();
    let every = ["--every", "cgroup=5", "--every", "softnet=0"];
    let place = ["--path", path.to_str().unwrap(), "--cgroup-of-pid", &me];
    let time = ["--interval-ms", "50", "--duration-s", "0.3"];
    sample(&[&every[..], &place, &time].concat())
        .output()
        .unwrap();
    let rows = rows_of(&path);
    let with = |key: &str| rows.iter().filter(|row| row.get(key).is_some()).count();
    assert!(with("cpus") < with("cgroup"), "{} rows", rows.len());
    assert_eq!(with("softnet"), 0);
    assert_eq!((with("disks"), with("processes")), (2, with("tree")));
    for row in &rows {
        let ages = row["age_us"].as_object().unwrap();
        assert!(ages["cgroup"].as_f64() < Some(1e6) && !ages.contains_key("softnet"));
        // What the row does not hold was read before it began.
        let began =
            row["age_us"]["cpus"].as_f64() <= row["age_us"]["disks"].as_f64().map(|a| a + 5e4);
        assert!(began, "{row}");
    }
}

#[test]
fn the_studies_columns() {
    let folder = tempfile::tempdir().unwrap();
    let me = std::process::id().to_string();
    let place = [
        "--format",
        "sysmon",
        "--path",
        folder.path().to_str().unwrap(),
    ];
    let what = ["--port", "lo", "--pid", &me];
    let time = ["--interval-ms", "20", "--duration-s", "0.1"];
    let output = sample(&[&place[..], &what, &time].concat())
        .output()
        .unwrap();
    let rows = result(&output)["rows"].as_u64().unwrap();
    for (name, begins) in [
        ("sysstat.csv", "Timestamp,  Uptime, NCPU, %CPU, %CPU0"),
        (
            "netstat.lo.csv",
            "Timestamp,  Uptime, NIC, sent.B, recv.B, sent.pkts",
        ),
        (
            "psstat.csv",
            "Timestamp, Uptime, %CPU, %MEM, io.read, io.read.KB",
        ),
    ] {
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.starts_with(begins), "{text}");
        let columns = |line: &str| line.split(", ").count();
        let head = columns(text.lines().next().unwrap());
        assert!(text.lines().all(|line| columns(line) == head), "{text}");
        assert_eq!(text.lines().count() as u64, rows + 1, "{name}");
    }
}

#[test]
fn metrics_are_served_and_nothing_else() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sampler.sock");
    let me = std::process::id().to_string();
    let place = socket.to_str().unwrap();
    let spool = folder.path().join("rows.jsonl");
    let rows = ["--path", spool.to_str().unwrap()];
    let args = ["--metrics", place, "--port", "lo", "--pid", &me];
    let mut child = sample(&[&args[..], &rows].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains(place));
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("200 OK") && head.contains(&format!("Content-Length: {}", body.len())));
    assert!(body.ends_with("\n# EOF\n"), "{body}");
    assert!(
        body.contains("nodrop_links_rx_packets_total{port=\"lo\"}"),
        "{body}"
    );
    assert!(
        body.contains("nodrop_cpus_idle_ns_total{cpu=\"0\"}"),
        "{body}"
    );
    assert!(
        body.contains("nodrop_processes_cpu_ns_total{name=\"by_hand"),
        "{body}"
    );
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask(&"x".repeat(4096)).starts_with("HTTP/1.1 400"));
    kill(pid(&child), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn what_is_not_there_is_bad_input_and_what_the_host_refuses_is_three() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = fifo.to_str().unwrap();
    for (args, code, says) in [
        (["--port", "nonesuch0"], 2, "nonesuch0"),
        (["--port", ""], 2, "no network interface"),
        (["--pid", "4194999"], 2, "there is no process 4194999"),
        (["--pid", "4294967295"], 2, "there is no process 4294967295"),
        (
            ["--cgroup-of-pid", "4194998"],
            2,
            "there is no process 4194998",
        ),
        (["--cgroup", "/nonesuch"], 2, "/nonesuch"),
        (["--metrics", "nonesuch"], 2, "neither a port nor a path"),
        (["--metrics", "/nonesuch/socket"], 3, "/nonesuch/socket"),
        (["--path", "/proc/nonesuch/rows"], 3, "/proc/nonesuch/rows"),
        (["--path", fifo], 3, "nothing reads it"),
    ] {
        let done = sample(&args).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(
            said.contains(says) && done.stdout.is_empty(),
            "{args:?}: {said}"
        );
    }
}
