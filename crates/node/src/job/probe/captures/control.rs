//! Suricata's command socket, asked only what changes nothing. It is no interface for readers: `shutdown` and `memcap-set` are
//! on it too.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::job::probe::process::socket_inodes;

/// Everything that is ever sent.
const READ_ONLY: [&str; 5] = [
    "capture-mode",
    "iface-list",
    "iface-stat",
    "dump-counters",
    "memcap-list",
];
/// A Suricata that is blocked does not answer.
const DEADLINE: Duration = Duration::from_millis(200);
/// It renews its table of counters at stats.interval, 8 s by default.
const TABLE_EVERY: Duration = Duration::from_secs(4);
const LONGEST_ANSWER: usize = 64 << 20;
/// What a Suricata said of itself.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "SuricataSaid")]
pub struct Said {
    /// Where its command socket lies, as it sees it.
    pub socket: String,
    /// Why it did not answer this time; what stands here is what it said last.
    pub silent: Option<String>,
    /// This user may not ask it.
    pub refused: bool,
    /// How it captures (`AF_PACKET_DEV`, `PCAP_DEV` …); empty: it has not said it yet. By libpcap its `packets` are those it read.
    mode: String,
    /// Of each of its ports: packets (drops included) and drops, in steps of a second.
    ports: BTreeMap<String, PortSaid>,
    /// The same as it was said ahead of the sockets' own counters, which its owner reads meanwhile; empty: not asked then.
    ports_before: BTreeMap<String, PortSaid>,
    /// Sums over threads of its table, in steps of stats.interval; `None`: it has not said them yet.
    counters: Option<BTreeMap<String, u64>>,
    /// When they were asked for, by CLOCK_MONOTONIC.
    counters_mono_ns: Option<u64>,
    /// Name → limit, as it writes it.
    memcaps: BTreeMap<String, String>,
}

/// `iface-stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "SuricataPortSaid")]
struct PortSaid {
    packets: u64,
    drops: u64,
    invalid_checksums: u64,
}

impl Said {
    /// Whether its sums of sockets differ; one that is silent has none to go by. Invalid checksums move with each packet, and
    /// are in no sum of a socket.
    pub fn moved(&self, later: &Self) -> bool {
        let sums = |said: &Self| -> Vec<_> {
            let ports = said.ports.iter();
            ports
                .map(|(name, port)| (name.clone(), port.packets, port.drops))
                .collect()
        };
        later.silent.is_none() && (self.silent.is_some() || sums(self) != sums(later))
    }

    /// With what it said a moment ago.
    pub fn after(mut self, earlier: Option<&Self>) -> Self {
        self.ports_before = earlier.map(|said| said.ports.clone()).unwrap_or_default();
        self
    }
}

/// One that was found.
pub struct Control {
    path: PathBuf,
    stream: Option<UnixStream>,
    said: Said,
    table_at: Option<Instant>,
    /// It has kept us waiting within this look: it is not asked again before the next.
    given_up: bool,
}

impl Control {
    /// `None` if the process is no Suricata, or has no command socket.
    pub fn of(root: &Path, pid: u32, name: &str) -> Option<Self> {
        if !name.starts_with("Suricata") {
            return None;
        }
        let own = socket_inodes(root.join(format!("proc/{pid}/fd"))).ok()?;
        let table = fs::read_to_string(root.join(format!("proc/{pid}/net/unix"))).ok()?;
        let path = table
            .lines()
            .skip(1)
            .find_map(|line| listening(line, &own))?;
        Some(Self {
            // As the process sees it: its root may be an image's.
            path: root.join(format!("proc/{pid}/root{path}")),
            stream: None,
            said: Said {
                socket: path,
                ..Said::default()
            },
            table_at: None,
            given_up: false,
        })
    }

    /// Each look waits once for an answer, at most.
    pub fn begin_look(&mut self) {
        self.given_up = false;
    }

    /// A stopped program is not asked: its answer would come too late.
    pub fn ask(&mut self, stopped: bool) -> Said {
        if self.given_up {
            return self.said.clone();
        }
        self.said.silent = None;
        self.said.refused = false;
        let asked = if stopped {
            Err(Error::new(ErrorKind::TimedOut, "it is stopped"))
        } else {
            self.all()
        };
        if let Err(error) = asked {
            self.stream = None;
            self.given_up = true;
            self.said.refused = error.kind() == ErrorKind::PermissionDenied;
            self.said.silent = Some(match error.kind() {
                ErrorKind::WouldBlock => format!("no answer within {} ms", DEADLINE.as_millis()),
                _ => error.to_string(),
            });
        }
        self.said.clone()
    }

    fn all(&mut self) -> Result<(), Error> {
        if self.said.mode.is_empty() {
            let mode = self.command("capture-mode", None)?;
            self.said.mode = mode.as_str().unwrap_or_default().to_owned();
        }
        let list = self.command("iface-list", None)?;
        let names = list["ifaces"].as_array().cloned().unwrap_or_default();
        let mut ports = BTreeMap::new();
        for name in names.iter().filter_map(Value::as_str) {
            let said = self.command("iface-stat", Some(name))?;
            let number = |key: &str| said[key].as_u64();
            if let (Some(packets), Some(drops)) = (number("pkts"), number("drop")) {
                let port = PortSaid {
                    packets,
                    drops,
                    invalid_checksums: number("invalid-checksums").unwrap_or(0),
                };
                ports.insert(name.to_owned(), port);
            }
        }
        if self.table_at.is_none_or(|at| at.elapsed() >= TABLE_EVERY) {
            self.table()?;
        }
        // Last: one that falls silent on the way has said nothing.
        self.said.ports = ports;
        Ok(())
    }

    /// One that has only just begun refuses its table ("stats not yet synchronized"), and has sums of its ports all the same.
    fn table(&mut self) -> Result<(), Error> {
        let table = match self.command("dump-counters", None) {
            Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(()),
            said => said?,
        };
        let mut counters = BTreeMap::new();
        flatten("", &table, &mut counters);
        let caps = self.command("memcap-list", None)?;
        self.said.counters = Some(counters);
        self.said.counters_mono_ns = Some(nodrop_sys::clock::mono_ns());
        self.said.memcaps = memcaps(&caps);
        self.table_at = Some(Instant::now());
        Ok(())
    }

    fn command(&mut self, name: &str, port: Option<&str>) -> Result<Value, Error> {
        debug_assert!(READ_ONLY.contains(&name));
        let mut request = json!({ "command": name });
        if let Some(port) = port {
            request["arguments"] = json!({ "iface": port });
        }
        let answer = self.exchange(&request)?;
        if answer["return"] != "OK" {
            let words = format!("{name}: {}", answer["message"]);
            return Err(Error::new(ErrorKind::InvalidData, words));
        }
        Ok(answer["message"].clone())
    }

    fn exchange(&mut self, request: &Value) -> Result<Value, Error> {
        if self.stream.is_none() {
            let stream = UnixStream::connect(&self.path)?;
            stream.set_read_timeout(Some(DEADLINE))?;
            stream.set_write_timeout(Some(DEADLINE))?;
            let mut stream = self.stream.insert(stream);
            let answer = said_to(&mut stream, &json!({ "version": "0.2" }))?;
            if answer["return"] != "OK" {
                let words = format!("version 0.2: {}", answer["message"]);
                return Err(Error::new(ErrorKind::InvalidData, words));
            }
        }
        let mut stream = self.stream.as_ref().ok_or(ErrorKind::NotConnected)?;
        said_to(&mut stream, request)
    }
}

/// One line there, one line back.
fn said_to(stream: &mut (impl Read + Write), request: &Value) -> Result<Value, Error> {
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 65536];
    while !answer.ends_with(b"\n") {
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => answer.extend_from_slice(&part[..more]),
        }
        if answer.len() > LONGEST_ANSWER {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    serde_json::from_slice(&answer).map_err(Error::other)
}

/// A line of `/proc/net/unix`: Num RefCount Protocol Flags Type St Inode Path. A socket that listens has __SO_ACCEPTCON.
fn listening(line: &str, own: &std::collections::BTreeSet<u64>) -> Option<String> {
    const ACCEPTS: &str = "00010000";
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let path = *words.get(7)?;
    let inode: u64 = words.get(6)?.parse().ok()?;
    (words.get(3) == Some(&ACCEPTS) && own.contains(&inode) && path.starts_with('/'))
        .then(|| path.to_owned())
}

fn flatten(prefix: &str, table: &Value, into: &mut BTreeMap<String, u64>) {
    for (name, value) in table.as_object().into_iter().flatten() {
        // Of each thread: their sums stand beside.
        if prefix.is_empty() && name == "threads" {
            continue;
        }
        match value {
            Value::Object(_) => flatten(&format!("{prefix}{name}."), value, into),
            _ => {
                if let Some(number) = value.as_u64() {
                    into.insert(format!("{prefix}{name}"), number);
                }
            }
        }
    }
}

/// `[{"name": "flow", "value": "128mb"}, …]`.
fn memcaps(said: &Value) -> BTreeMap<String, String> {
    let each = said.as_array().into_iter().flatten().filter_map(|one| {
        Some((
            one["name"].as_str()?.to_owned(),
            one["value"].as_str()?.to_owned(),
        ))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// A Suricata that answers from a list, or not at all; what it was asked comes back.
    fn suricata(folder: &Path, answers: &'static [&str]) -> std::thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(folder.join("s.socket")).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let Ok(line) = line else { break };
                let question: Value = serde_json::from_str(&line).unwrap();
                let name = question["command"].as_str().unwrap_or("version").to_owned();
                let message = match name.as_str() {
                    "iface-list" => json!({"count": 1, "ifaces": ["eth1"]}),
                    "iface-stat" => json!({"pkts": 120, "drop": 20, "invalid-checksums": 3}),
                    "dump-counters" => json!({
                        "uptime": 9, "decoder": {"pkts": 100}, "flow": {"emerg_mode_entered": 1},
                        "threads": {"W#01": {"decoder": {"pkts": 100}}},
                    }),
                    "capture-mode" => json!("AF_PACKET_DEV"),
                    "memcap-list" => json!([{"name": "flow", "value": "128mb"}]),
                    _ => json!(""),
                };
                let heeded = answers.contains(&name.as_str());
                asked.push(name);
                if heeded || answers.contains(&"refusal") {
                    let word = if heeded { "OK" } else { "NOK" };
                    let answer = json!({"return": word, "message": message});
                    stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
                }
            }
            asked
        })
    }

    const ALL: [&str; 6] = [
        "version",
        "capture-mode",
        "iface-list",
        "iface-stat",
        "dump-counters",
        "memcap-list",
    ];

    fn control(folder: &Path) -> Control {
        Control {
            path: folder.join("s.socket"),
            stream: None,
            said: Said::default(),
            table_at: None,
            given_up: false,
        }
    }

    #[test]
    fn only_what_reads_is_asked_and_the_table_not_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let other = suricata(folder.path(), &ALL);
        let mut control = control(folder.path());
        let said = control.ask(false);
        assert_eq!(said.silent, None);
        assert_eq!(said.ports["eth1"].packets, 120);
        let counters = said.counters.unwrap();
        assert_eq!(counters["flow.emerg_mode_entered"], 1);
        assert_eq!(counters["uptime"], 9);
        assert_eq!(counters["decoder.pkts"], 100);
        assert_eq!(counters.len(), 3);
        assert_eq!(said.memcaps["flow"], "128mb");
        control.ask(false);
        drop(control);
        let asked = other.join().unwrap();
        assert_eq!(
            asked,
            [
                "version",
                "capture-mode",
                "iface-list",
                "iface-stat",
                "dump-counters",
                "memcap-list",
                "iface-list",
                "iface-stat"
            ]
        );
        assert!(
            asked[1..]
                .iter()
                .all(|name| READ_ONLY.contains(&name.as_str()))
        );
    }

    #[test]
    fn only_what_sockets_count_moves_the_sums_of_sockets() {
        let said = |packets, drops, invalid_checksums| Said {
            ports: BTreeMap::from([(
                "eth1".into(),
                PortSaid {
                    packets,
                    drops,
                    invalid_checksums,
                },
            )]),
            ..Said::default()
        };
        assert!(!said(120, 20, 3).moved(&said(120, 20, 4)));
        assert!(!said(7, 0, 0).moved(&said(7, 0, 90)));
        assert!(said(120, 20, 3).moved(&said(121, 20, 3)));
        assert!(said(120, 20, 3).moved(&said(120, 21, 3)));
    }

    #[test]
    fn silence_is_said_and_what_was_heard_last_stays() {
        let folder = tempfile::tempdir().unwrap();
        let other = suricata(folder.path(), &[]);
        let mut control = control(folder.path());
        control.said.memcaps = BTreeMap::from([("flow".into(), "1mb".into())]);
        let said = control.ask(false);
        assert_eq!(said.silent.as_deref(), Some("no answer within 200 ms"));
        assert_eq!(said.memcaps["flow"], "1mb");
        assert_eq!(other.join().unwrap(), ["version"]);
        let stopped = control.ask(true).silent;
        assert_eq!(
            stopped.as_deref(),
            Some("no answer within 200 ms"),
            "not asked again"
        );
        control.begin_look();
        let stopped = control.ask(true).silent;
        assert_eq!(stopped.as_deref(), Some("it is stopped"));
    }

    #[test]
    fn one_that_refuses_its_table_has_sums_and_one_that_falls_silent_on_the_way_has_said_nothing() {
        for (answers, silent, packets) in [
            (
                &[
                    "version",
                    "capture-mode",
                    "iface-list",
                    "iface-stat",
                    "refusal",
                ][..],
                None,
                120,
            ),
            (&ALL[..4], Some("no answer within 200 ms"), 7),
            (&ALL[..5], Some("no answer within 200 ms"), 7),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let other = suricata(folder.path(), answers);
            let mut control = control(folder.path());
            let before = PortSaid {
                packets: 7,
                drops: 0,
                invalid_checksums: 0,
            };
            control.said.ports = BTreeMap::from([("eth1".into(), before)]);
            let said = control.ask(false);
            assert_eq!(said.silent.as_deref(), silent);
            assert_eq!(said.ports["eth1"].packets, packets);
            assert_eq!(said.counters, None);
            drop(control);
            other.join().unwrap();
        }
    }

    #[test]
    fn the_socket_that_the_process_listens_on() {
        let own = BTreeSet::from([41, 43]);
        for (line, path) in [
            (
                "0: 00000002 00000000 00010000 0001 01 41 /run/s.socket",
                Some("/run/s.socket"),
            ),
            ("0: 00000002 00000000 00010000 0001 01 42 /run/other", None),
            (
                "0: 00000003 00000000 00000000 0001 03 43 /run/s.socket",
                None,
            ),
            ("0: 00000002 00000000 00010000 0001 01 43 @abstract", None),
            ("0: 00000002 00000000 00010000 0001 01 43", None),
        ] {
            assert_eq!(listening(line, &own).as_deref(), path);
        }
    }
}
