//! `enter` on the real kernel, inside namespaces of its own; needs unprivileged user namespaces or root.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const NODE: &str = env!("CARGO_BIN_EXE_nodrop-node");

fn mapped_root(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "sh",
        "-euc",
        script,
    ]);
    command.env("NODE", NODE);
    command
}

fn permitted() -> bool {
    let allowed = mapped_root("true")
        .output()
        .is_ok_and(|output| output.status.success());
    if !allowed {
        println!("skipped: unshare --user --net --mount is not permitted here");
    }
    allowed
}

fn lines(output: &Output) -> Vec<&str> {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout)
        .unwrap()
        .lines()
        .collect()
}

fn enter(args: &[&str]) -> Output {
    Command::new(NODE).arg("enter").args(args).output().unwrap()
}

/// Folders that a dynamically linked shell needs, shown in an otherwise empty root.
fn system_binds() -> Vec<String> {
    ["/usr", "/bin", "/lib", "/lib64"]
        .into_iter()
        .filter(|path| Path::new(path).exists())
        .map(|path| format!("--bind={path}:{path}:ro"))
        .collect()
}

#[test]
fn the_program_keeps_the_pid_and_the_exit_status() {
    let child = Command::new(NODE)
        .args(["enter", "--env", "COLOUR=blue", "--cwd", "/", "--"])
        .args(["sh", "-c", "echo $$ $COLOUR $PWD; exit 7"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{pid} blue /\n")
    );
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn the_program_sees_only_the_interfaces_of_the_namespace() {
    if !permitted() {
        return;
    }
    let script = r#"
        ip link add ndrnda type veth peer name ndrndb
        $NODE enter --netns /proc/self/ns/net -- ls /sys/class/net
    "#;
    let output = mapped_root(script).output().unwrap();
    assert_eq!(lines(&output), ["lo", "ndrnda", "ndrndb"]);
}

#[test]
fn a_root_gets_proc_dev_sys_and_the_binds() {
    if !permitted() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("note"), "from the host\n").unwrap();
    let script = format!(
        "$NODE enter --netns /proc/self/ns/net --root {root} {system} --bind {work}:/work:ro --bind {work}:/out --cwd /work -- \
         sh -c 'cat note; ls /sys/class/net; test -c /dev/null; test -d /proc/self; echo done > /out/mark; \
         if (echo no > /work/note) 2>/dev/null; then echo written; else echo kept; fi'",
        root = root.path().display(),
        system = system_binds().join(" "),
        work = work.path().display(),
    );
    let output = mapped_root(&script).output().unwrap();
    assert_eq!(lines(&output), ["from the host", "lo", "kept"]);
    assert_eq!(
        fs::read_to_string(work.path().join("mark")).unwrap(),
        "done\n"
    );
}

#[test]
fn nothing_is_made_on_the_host_without_a_root() {
    let output = enter(&["--bind", "/tmp:/no-such-place", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(!Path::new("/no-such-place").exists());
}

#[test]
fn failures_are_one_line_and_have_the_usual_codes() {
    let says = |args: &[&str], code: i32, words: &str| {
        let output = enter(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(words) && text.lines().count() == 1, "{text}");
    };
    says(
        &["--netns", "/run/netns/nope", "--", "true"],
        125,
        "network namespace /run/netns/nope",
    );
    says(
        &["--cpus", "1000", "--", "true"],
        125,
        "none of the CPUs [1000] can be used here",
    );
    says(
        &["--parent", "1", "--", "true"],
        125,
        "the parent process 1 is gone",
    );
    says(&["--", "nonesuch"], 127, "cannot run nonesuch");
    says(&["--", "/etc/passwd"], 126, "cannot run /etc/passwd");
}

/// Starts a shell that enters a long sleep as its child, and returns both PIDs.
fn parent_and_program() -> (Child, i32) {
    let mut parent = Command::new("sh")
        .args(["-c", "$NODE enter -- sh -c 'echo $$; exec sleep 60' & wait"])
        .env("NODE", NODE)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (parent, line.trim().parse().unwrap())
}

#[test]
fn the_program_dies_with_its_parent() {
    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    let (mut parent, program) = parent_and_program();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    // A zombie that is not reaped still takes signals; /proc sets it apart from a living process.
    let lives = || {
        kill(Pid::from_raw(program), None).is_ok()
            && fs::read_to_string(format!("/proc/{program}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
    };
    while lives() {
        assert!(
            std::time::Instant::now() < deadline,
            "{program} outlived its parent"
        );
        std::thread::yield_now();
    }
}

#[test]
fn behind_a_gate_the_program_waits_for_the_word() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, said) = (folder.path().join("gate"), folder.path().join("said"));
    let made = Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    // Held open for writing, as a controller does: without a writer it would wait for one.
    let start = || {
        Command::new(NODE)
            .arg("enter")
            .arg("--gate")
            .arg(&gate)
            .arg("--stdout")
            .arg(&said)
            .args(["--", "echo", "through"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut word = fs::File::options()
        .read(true)
        .write(true)
        .open(&gate)
        .unwrap();
    let child = start();
    std::io::Write::write_all(&mut word, b"x").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(fs::read_to_string(&said).unwrap(), "through\n");

    let child = start();
    drop(word);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("closed without a word"), "{words}");
}
