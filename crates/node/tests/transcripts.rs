//! The golden transcripts of tests/protocol, with this test as the controller and the real binary as the node.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

struct Transcript {
    path: PathBuf,
    job: String,
    varies: Vec<String>,
    lines: Vec<Value>,
}

impl Transcript {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let head = lines.next().unwrap();
        let varies = head["varies"].as_array().unwrap().iter();
        Self {
            job: head["job"].as_str().unwrap().into(),
            varies: varies.map(|name| name.as_str().unwrap().into()).collect(),
            lines: lines.collect(),
            path,
        }
    }

    fn noise(&self) -> String {
        let words = self.lines.iter().filter_map(|line| line["noise"].as_str());
        words.map(|word| format!("{word}\n")).collect()
    }

    /// Every field that is expected is there with its value, or, if values vary, with its kind or null.
    fn check(&self, seen: &Value, expected: &Value) {
        for (name, value) in expected.as_object().unwrap() {
            let found = seen.get(name).unwrap_or_else(|| self.fail(name, seen));
            let alike = if self.varies.contains(name) {
                let same_kind = std::mem::discriminant(found) == std::mem::discriminant(value);
                same_kind || found.is_null() || value.is_null()
            } else if value.is_object() {
                self.check(found, value);
                true
            } else {
                found == value
            };
            if !alike {
                self.fail(name, seen)
            }
        }
    }

    fn fail(&self, what: &str, seen: &Value) -> ! {
        panic!(
            "{}: {what} is not as expected in {seen}",
            self.path.display()
        )
    }
}

struct Node {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
}

impl Node {
    fn start(transcript: &Transcript) -> Self {
        let mut process = Command::new("sh")
            .args(["-c", "printf %s \"$NOISE\"; exec \"$@\"", "sh"])
            .args([
                env!("CARGO_BIN_EXE_nodrop-node"),
                &transcript.job,
                "--controlled",
            ])
            .env("NOISE", transcript.noise())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, stdout) = channel();
        std::thread::spawn(move || lines.for_each(|line| drop(sender.send(line.unwrap()))));
        Self {
            stdin: process.stdin.take(),
            process,
            stdout,
        }
    }

    fn say(&mut self, message: &Value) {
        let text = message
            .as_str()
            .map_or_else(|| message.to_string(), str::to_owned);
        // A node that has said its last word need not listen any more.
        let _ = writeln!(self.stdin.as_mut().unwrap(), "{text}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn replay(transcript: &Transcript) {
    let mut node = Node::start(transcript);
    let here = transcript.path.display();
    for line in &transcript.lines {
        let (key, value) = line.as_object().unwrap().iter().next().unwrap();
        match key.as_str() {
            "noise" => assert_eq!(
                node.stdout.recv_timeout(PATIENCE).ok().as_deref(),
                value.as_str()
            ),
            "controller" => node.say(value),
            "controller_closes" => node.stdin = None,
            "node" => {
                let seen = node.stdout.recv_timeout(PATIENCE);
                let seen = seen.unwrap_or_else(|e| panic!("{here}: {e} instead of {value}"));
                transcript.check(&serde_json::from_str(&seen).unwrap(), value);
            }
            "exit" => {
                let more = node.stdout.recv_timeout(PATIENCE);
                assert_eq!(
                    more,
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected),
                    "{here}"
                );
                assert_eq!(
                    node.process.wait().unwrap().code(),
                    value.as_i64().and_then(|code| code.try_into().ok()),
                    "{here}"
                );
            }
            other => panic!("{here}: unknown line `{other}`"),
        }
    }
}

#[test]
fn the_node_keeps_to_every_transcript() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/protocol");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    assert!(files.len() >= 10, "only {} transcripts", files.len());
    for path in files {
        replay(&Transcript::read(path));
    }
}
