//! `nodrop-node outcomes`: what a SUT found, from its eve.json, as units that are seen or not (docs/methodology.md).
//!
//! The file is untrusted and may be of any length: it is read once, in bounded memory, and what cannot be used is counted.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use memchr::memmem::Finder;
use nodrop_sys::file::read_text;
use nodrop_wire::capture::Reader;
use nodrop_wire::replica_addresses::{Origin, Origins, Survey};
use serde::{Deserialize, Serialize};

use crate::capture::contents;
use crate::progress::Progress;

/// A longer line is counted and not read.
const LONGEST_LINE: usize = 1 << 20;
/// More units, flows and signatures are counted and not kept.
const MOST_KEPT: usize = 1 << 20;
const LONGEST_NAME: usize = 400;
const AT_THE_END_OF_A_FLOW: &str = "stream (flow timeout)";
const TYPE: &[u8] = br#""event_type":""#;

/// Units and counts of an event log
#[derive(Args)]
pub struct OutcomesArgs {
    /// Event logs (JSON lines), the parts of a rotated one in their order
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Rules that limit their alerts: lines such as `1:2010935 by_src`; each counts once for an address, not for a flow
    #[arg(long, value_name = "FILE")]
    limited: Option<PathBuf>,
    /// Also the packets of each flow
    #[arg(long)]
    flows: bool,
    /// The capture that was sent. Only alerts of its replicas count, under the addresses of a start's first load. Units that only
    /// the end of a flow raises are listed apart
    #[arg(long, value_name = "TRACE")]
    sent: Option<PathBuf>,
    /// The first of the replicas that were sent; 0 is the trace itself
    #[arg(long, default_value_t = 0, requires = "sent")]
    first_copy: usize,
    /// Replicas that were sent
    #[arg(long, default_value_t = 1, requires = "sent")]
    copies: usize,
    /// Use what is whole of a capture that ends in the middle of a packet
    #[arg(long, requires = "sent")]
    tolerate_truncated: bool,
    /// Logs that are still written: begin at this byte of each, and leave a last line that is not whole for the next time
    #[arg(long, value_name = "BYTE[,BYTE]...", value_delimiter = ',')]
    from: Option<Vec<u64>>,
}

/// What an event log holds.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Outcomes {
    parts: u64,
    bytes: u64,
    lines: u64,
    /// Lines that are no JSON object.
    not_json: u64,
    /// Of the JSON objects.
    without_type: u64,
    /// Alerts without a signature number, or without addresses.
    without_unit: u64,
    /// Last lines of a file that end in their middle.
    cut_lines: u64,
    long_lines: u64,
    /// Beyond what is kept.
    left_out: u64,
    /// Alerts about addresses that the load does not have: those of an earlier one.
    of_other_loads: u64,
    /// Alerts about addresses that each load has: of multicast and broadcast alone.
    of_every_load: u64,
    /// The end of the last whole line of each file.
    ends: Vec<u64>,
    /// By type.
    events: BTreeMap<String, u64>,
    /// By `gid:sid`.
    signatures: BTreeMap<String, Signature>,
    /// Packets by flow; a tuple that came again has the sum.
    flows: BTreeMap<String, u64>,
    #[serde(skip)]
    kept: usize,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Signature {
    name: String,
    class: String,
    alerts: u64,
    /// Flows such as `tcp 10.0.0.1:80 10.0.0.2:999`, or addresses such as `by_src 10.0.0.1`.
    units: BTreeSet<String>,
    /// Those of `units` that no packet raised, but the end of the flow.
    late: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    event_type: Cow<'a, str>,
    #[serde(borrow, default)]
    proto: Cow<'a, str>,
    #[serde(borrow, default)]
    src_ip: Cow<'a, str>,
    #[serde(default)]
    src_port: u16,
    #[serde(borrow, default)]
    dest_ip: Cow<'a, str>,
    #[serde(default)]
    dest_port: u16,
    /// What raised it: a packet, or what Suricata makes up when a flow ends.
    #[serde(borrow, default)]
    pkt_src: Cow<'a, str>,
    #[serde(borrow)]
    alert: Option<Alert<'a>>,
    flow: Option<Flow>,
}

#[derive(Deserialize)]
struct Alert<'a> {
    #[serde(default = "one")]
    gid: u64,
    signature_id: Option<u64>,
    #[serde(borrow, default)]
    signature: Cow<'a, str>,
    #[serde(borrow, default)]
    category: Cow<'a, str>,
}

const fn one() -> u64 {
    1
}

#[derive(Deserialize)]
struct Flow {
    #[serde(default)]
    pkts_toserver: u64,
    #[serde(default)]
    pkts_toclient: u64,
}

/// By what a rule counts that limits its alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Source,
    Destination,
    Both,
    Rule,
}

type Limited = HashMap<(u64, u64), By>;

/// Does what the command line says.
pub fn run(args: &OutcomesArgs) -> ExitCode {
    let done = read(args).and_then(|found| {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &found)?;
        Ok(writeln!(out)?)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nodrop-node outcomes: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn read(args: &OutcomesArgs) -> anyhow::Result<Outcomes> {
    let mut reader = EventLogs {
        limited: match &args.limited {
            Some(path) => limited(&read_text(path).map_err(anyhow::Error::msg)?)?,
            None => Limited::new(),
        },
        with_flows: args.flows,
        sent: args
            .sent
            .as_deref()
            .map(|trace| sent(trace, args))
            .transpose()?,
        types: Finder::new(TYPE),
        found: Outcomes::default(),
    };
    for (number, path) in args.files.iter().enumerate() {
        let from = match &args.from {
            None => None,
            Some(from) => Some(*from.get(number).context("--from: one for each file")?),
        };
        reader
            .part(path, from)
            .with_context(|| path.display().to_string())?;
    }
    Ok(reader.found)
}

/// The way back from the addresses that were sent.
fn sent(trace: &Path, args: &OutcomesArgs) -> anyhow::Result<Origins> {
    let tolerate = args.tolerate_truncated;
    let bytes = contents(trace, tolerate, &Progress::of_nobody())?;
    let mut survey = Survey::default();
    for record in Reader::new(&bytes, tolerate)? {
        survey.add(record?.frame);
    }
    Ok(survey.origins(args.first_copy..args.first_copy + args.copies.max(1))?)
}

fn limited(text: &str) -> anyhow::Result<Limited> {
    let mut found = Limited::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let words = line.split_once(' ').and_then(|(rule, by)| {
            let (gid, sid) = rule.split_once(':')?;
            let by = match by {
                "by_src" => By::Source,
                "by_dst" => By::Destination,
                "by_both" => By::Both,
                "by_rule" => By::Rule,
                _ => return None,
            };
            Some(((gid.parse().ok()?, sid.parse().ok()?), by))
        });
        let Some((rule, by)) = words else {
            bail!("--limited: {line:?}: must be such as 1:2010935 by_src");
        };
        found.insert(rule, by);
    }
    Ok(found)
}

struct EventLogs {
    limited: Limited,
    with_flows: bool,
    /// `None` if all that a log holds counts as it is.
    sent: Option<Origins>,
    types: Finder<'static>,
    found: Outcomes,
}

impl EventLogs {
    /// `from`: its beginning if it is still written.
    fn part(&mut self, path: &Path, from: Option<u64>) -> io::Result<()> {
        let mut file = File::open(path)?;
        file.seek(io::SeekFrom::Start(from.unwrap_or(0)))?;
        self.bytes(file, from)
    }

    fn bytes(&mut self, mut file: impl Read, from: Option<u64>) -> io::Result<()> {
        self.found.parts += 1;
        let mut buffer = vec![0; 2 * LONGEST_LINE];
        // Bytes of a line that is not whole yet, and whether the rest of one that is too long is on its way.
        let (mut waiting, mut skipping) = (0, false);
        let (mut read, mut whole) = (0, 0);
        loop {
            let got = file.read(&mut buffer[waiting..])?;
            if got == 0 {
                break;
            }
            let (end, begins_at) = (waiting + got, read - waiting as u64);
            read += got as u64;
            let mut begin = 0;
            for newline in memchr::memchr_iter(b'\n', &buffer[..end]) {
                let line = &buffer[begin..newline];
                begin = newline + 1;
                whole = begins_at + begin as u64;
                if std::mem::take(&mut skipping) || line.len() > LONGEST_LINE {
                    self.found.long_lines += 1;
                } else if !line.trim_ascii().is_empty() {
                    self.line(line);
                }
            }
            buffer.copy_within(begin..end, 0);
            waiting = end - begin;
            if skipping || waiting > LONGEST_LINE {
                (waiting, skipping) = (0, true);
            }
        }
        self.found.ends.push(from.unwrap_or(0) + whole);
        if from.is_some() {
            self.found.bytes += whole;
            return Ok(());
        }
        self.found.bytes += read;
        let rest = &buffer[..waiting];
        if skipping {
            self.found.long_lines += 1;
        } else if serde_json::from_slice::<Event<'_>>(rest).is_ok() {
            self.line(rest);
        } else if !rest.is_empty() {
            self.found.cut_lines += 1;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        self.found.lines += 1;
        let named = self.types.find(line).and_then(|at| {
            let rest = &line[at + TYPE.len()..];
            memchr::memchr(b'"', rest).map(|end| &rest[..end])
        });
        match named {
            Some(b"alert") => {}
            Some(b"flow") if self.with_flows => {}
            // Of others only the number is asked.
            Some(name) if line.trim_ascii().ends_with(b"}") => {
                let name = String::from_utf8_lossy(name);
                return self.found.count(&name);
            }
            _ => {}
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else {
            self.found.not_json += 1;
            return;
        };
        if event.event_type.is_empty() {
            self.found.without_type += 1;
            return;
        }
        self.found.count(&event.event_type);
        match &*event.event_type {
            "alert" => self.alert(&event),
            "flow" if self.with_flows => self.flow(&event),
            _ => {}
        }
    }

    fn alert(&mut self, event: &Event<'_>) {
        let known = (event.alert.as_ref())
            .and_then(|alert| Some((alert, (alert.gid, alert.signature_id?), ends(event)?)));
        let Some((alert, id, ends)) = known else {
            self.found.without_unit += 1;
            return;
        };
        let limited = self.limited.get(&id).copied();
        let ends = match self.sent.as_ref().map(|sent| led_back(sent, ends, limited)) {
            None => ends,
            Some(LedBack::To(ends)) => ends,
            Some(LedBack::OtherLoad) => return self.found.of_other_loads += 1,
            Some(LedBack::EveryLoad) => return self.found.of_every_load += 1,
        };
        let late = self.sent.is_some() && event.pkt_src == AT_THE_END_OF_A_FLOW;
        let (id, unit) = (
            format!("{}:{}", id.0, id.1),
            unit(&event.proto, ends, limited),
        );
        let found = &mut self.found;
        if found.kept >= MOST_KEPT && !found.signatures.contains_key(&id) {
            found.left_out += 1;
            return;
        }
        let signature = found.signatures.entry(id).or_insert_with(|| {
            found.kept += 1;
            let short = |text: &str| text.chars().take(LONGEST_NAME).collect();
            Signature {
                name: short(&alert.signature),
                class: short(&alert.category),
                ..Signature::default()
            }
        });
        signature.alerts += 1;
        if !signature.units.contains(&unit) {
            if found.kept >= MOST_KEPT {
                found.left_out += 1;
                return;
            }
            found.kept += 1;
            if late {
                signature.late.insert(unit.clone());
            }
            signature.units.insert(unit);
        } else if !late {
            signature.late.remove(&unit);
        }
    }

    fn flow(&mut self, event: &Event<'_>) {
        let (Some(counts), Some(ends)) = (&event.flow, ends(event)) else {
            self.found.without_unit += 1;
            return;
        };
        let flow = unit(&event.proto, ends, None);
        let packets = counts.pkts_toserver.saturating_add(counts.pkts_toclient);
        let found = &mut self.found;
        if let Some(known) = found.flows.get_mut(&flow) {
            *known = known.saturating_add(packets);
        } else if found.kept >= MOST_KEPT {
            found.left_out += 1;
        } else {
            found.flows.insert(flow, packets);
            found.kept += 1;
        }
    }
}

impl Outcomes {
    fn count(&mut self, name: &str) {
        if let Some(known) = self.events.get_mut(name) {
            *known += 1;
        } else if self.events.len() < 1_000 {
            let name = name.chars().take(LONGEST_NAME).collect();
            *self.events.entry(name).or_default() += 1;
        }
    }
}

/// Source and destination.
type Ends = [(IpAddr, u16); 2];

fn ends(event: &Event<'_>) -> Option<Ends> {
    Some([
        (event.src_ip.parse().ok()?, event.src_port),
        (event.dest_ip.parse().ok()?, event.dest_port),
    ])
}

enum LedBack {
    To(Ends),
    OtherLoad,
    EveryLoad,
}

/// The ends as the first load of a start has them. What a unit is named by must be of this load: a rule's limit by an address that
/// every load has goes on from one load to the next.
fn led_back(sent: &Origins, ends: Ends, limited: Option<By>) -> LedBack {
    let [source, destination] = ends.map(|(address, _)| sent.of(address));
    let number = |origin| match origin {
        Origin::Replica { number, .. } => Some(number),
        Origin::Same | Origin::Other => None,
    };
    let numbers = [number(source), number(destination)];
    let apart = matches!(numbers, [Some(a), Some(b)] if a != b);
    if apart || [source, destination].contains(&Origin::Other) {
        return LedBack::OtherLoad;
    }
    let named = match limited {
        Some(By::Source) => numbers[0],
        Some(By::Destination) => numbers[1],
        Some(By::Rule) => None,
        Some(By::Both) | None => numbers[0].or(numbers[1]),
    };
    if named.is_none() {
        return LedBack::EveryLoad;
    }
    let of_first_load = |origin, end: (IpAddr, u16)| match origin {
        Origin::Replica { address, .. } => (address, end.1),
        Origin::Same | Origin::Other => end,
    };
    LedBack::To([
        of_first_load(source, ends[0]),
        of_first_load(destination, ends[1]),
    ])
}

/// The flow, whichever side spoke, or the address that the rule counts by.
fn unit(proto: &str, mut ends: Ends, limited: Option<By>) -> String {
    let [(source, _), (destination, _)] = ends;
    match limited {
        Some(By::Source) => format!("by_src {source}"),
        Some(By::Destination) => format!("by_dst {destination}"),
        Some(By::Both) => format!("by_both {source} {destination}"),
        Some(By::Rule) => "by_rule".into(),
        None => {
            ends.sort_unstable();
            let mut flow = proto.to_ascii_lowercase();
            for (address, port) in ends {
                // What has no ports has port 0: ICMP.
                let _ = write!(flow, " {}", std::net::SocketAddr::new(address, port));
            }
            flow
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read_text_of(text: &[u8], rules: &str, with_flows: bool) -> Outcomes {
        let mut logs = logs(rules, with_flows, None);
        logs.bytes(text, None).unwrap();
        logs.found
    }

    fn logs(rules: &str, with_flows: bool, sent: Option<Origins>) -> EventLogs {
        EventLogs {
            limited: limited(rules).unwrap(),
            with_flows,
            sent,
            types: Finder::new(TYPE),
            found: Outcomes::default(),
        }
    }

    fn alert(sid: u64, source: &str, destination: &str) -> String {
        let [(source, from), (destination, to)] =
            [source, destination].map(|end| end.rsplit_once(' ').unwrap());
        format!(
            r#"{{"timestamp":"x","event_type":"alert","src_ip":"{source}","src_port":{from},"dest_ip":"{destination}","dest_port":{to},"proto":"TCP","alert":{{"gid":1,"signature_id":{sid},"signature":"S \"{sid}\"","category":"C"}}}}"#
        ) + "\n"
    }

    #[test]
    fn a_flow_is_one_unit_whichever_side_spoke_and_however_often() {
        let text = [
            alert(7, "10.0.0.1 80", "10.0.0.2 999"),
            alert(7, "10.0.0.2 999", "10.0.0.1 80"),
            alert(7, "10.0.0.1 80", "10.0.0.2 998"),
            alert(
                8,
                "2001:0db8:0000:0000:0000:0000:0000:0001 1",
                "2001:db8::2 2",
            ),
        ]
        .concat();
        let found = read_text_of(text.as_bytes(), "", false);
        let seven = &found.signatures["1:7"];
        assert_eq!((seven.alerts, seven.units.len()), (3, 2));
        assert_eq!(
            (seven.name.as_str(), seven.class.as_str()),
            ("S \"7\"", "C")
        );
        let eight: Vec<_> = found.signatures["1:8"].units.iter().collect();
        assert_eq!(eight, ["tcp [2001:db8::1]:1 [2001:db8::2]:2"]);
        assert_eq!(found.events["alert"], 4);
    }

    #[test]
    fn a_rule_that_limits_its_alerts_counts_by_the_address_it_tracks() {
        let text = [
            alert(7, "10.0.0.1 80", "10.0.0.2 999"),
            alert(7, "10.0.0.1 81", "10.0.0.3 999"),
            alert(8, "10.0.0.1 81", "10.0.0.3 999"),
        ]
        .concat();
        for (by, units) in [
            ("by_src", vec!["by_src 10.0.0.1"]),
            ("by_dst", vec!["by_dst 10.0.0.2", "by_dst 10.0.0.3"]),
            (
                "by_both",
                vec!["by_both 10.0.0.1 10.0.0.2", "by_both 10.0.0.1 10.0.0.3"],
            ),
            ("by_rule", vec!["by_rule"]),
        ] {
            let found = read_text_of(text.as_bytes(), &format!("1:7 {by}\n"), false);
            assert!(found.signatures["1:7"].units.iter().eq(&units), "{by}");
            assert_eq!(found.signatures["1:8"].units.len(), 1);
        }
        assert!(limited("1:7 by_port").is_err());
    }

    #[test]
    fn whatever_cannot_be_used_is_counted() {
        let long = "x".repeat(LONGEST_LINE + 1);
        let text = [
            &alert(7, "10.0.0.1 80", "10.0.0.2 999")[..],
            "{\"event_type\": \"alert\", \"alert\": {\"signature_id\": 9}, \"src_ip\": \"1.1.1.1\", \"dest_ip\": \"1.1.1.2\"}\n",
            "{\"event_type\":\"alert\",\"src_ip\":\"1.1.1.1\",\"dest_ip\":\"1.1.1.2\",\"alert\":{}}\n",
            "{\"event_type\":\"alert\",\"src_ip\":\"nowhere\",\"alert\":{\"signature_id\":1}}\n",
            "{\"event_type\":\"http\",\"x\":1}\n{\"event_type\":\"http\",\"x\":\n",
            "not json\n[]\n\n{\"no\":\"type\"}\n",
            &long,
            "\n{\"event_type\":\"dns\"}\n",
            &format!("{}{}\n", long, long),
            "{\"event_type\":\"alert\",\"src_ip\":\"1.1",
        ]
        .concat();
        let found = read_text_of(text.as_bytes(), "", false);
        assert_eq!(found.lines, 10);
        assert_eq!(
            (found.not_json, found.without_type, found.without_unit),
            (3, 1, 2)
        );
        assert_eq!((found.long_lines, found.cut_lines), (2, 1));
        assert_eq!(found.bytes, text.len() as u64);
        let events: Vec<_> = found.events.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!(events, [("alert", 4), ("dns", 1), ("http", 1)]);
        assert!(found.signatures.keys().eq(["1:7", "1:9"]));
    }

    #[test]
    fn flows_have_their_packets_if_they_are_asked_for() {
        let flow = |packets: u64| {
            format!(
                "{{\"event_type\":\"flow\",\"src_ip\":\"1.1.1.1\",\"src_port\":5,\"dest_ip\":\"1.1.1.2\",\"dest_port\":6,\"proto\":\"UDP\",\"flow\":{{\"pkts_toserver\":{packets},\"pkts_toclient\":1}}}}\n"
            )
        };
        let text = flow(2) + &flow(4);
        assert!(read_text_of(text.as_bytes(), "", false).flows.is_empty());
        let found = read_text_of(text.as_bytes(), "", true);
        assert_eq!(found.flows["udp 1.1.1.1:5 1.1.1.2:6"], 8);
        assert_eq!(found.events["flow"], 2);
    }

    /// The way back of a trace in which 10.0.0.1 speaks to 8.8.8.8 and to a group.
    fn sent_copies(copies: std::ops::Range<usize>) -> Origins {
        let mut survey = Survey::default();
        for destination in [[8, 8, 8, 8], [224, 0, 0, 251]] {
            let mut frame = vec![2; 12];
            frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
            frame.extend(destination);
            frame.extend([0; 8]);
            survey.add(&frame);
        }
        survey.origins(copies).unwrap()
    }

    /// Replica 1 has 10.0.0.0 and 1.0.0.0, replica 2 has 10.0.0.2 and 1.0.0.1.
    #[test]
    fn alerts_of_a_later_load_lead_back_to_the_first_one() {
        let text = [
            alert(7, "10.0.0.1 80", "8.8.8.8 999"),
            alert(7, "10.0.0.0 80", "224.0.0.251 5353"),
            alert(7, "10.0.0.2 80", "1.0.0.1 999"),
            alert(7, "10.0.0.0 80", "1.0.0.1 999"),
            alert(7, "0.0.0.0 68", "255.255.255.255 67"),
        ]
        .concat();
        let itself = "tcp 8.8.8.8:999 10.0.0.1:80";
        let group = "tcp 10.0.0.1:80 224.0.0.251:5353";
        for (copies, rules, units, of_other_loads, of_every_load) in [
            (0..1, "", vec![itself], 3, 1),
            (1..2, "", vec![group], 3, 1),
            (2..3, "", vec![itself], 3, 1),
            (1..3, "", vec!["tcp 1.0.0.0:999 10.0.0.0:80", group], 2, 1),
            (1..2, "1:7 by_src\n", vec!["by_src 10.0.0.1"], 3, 1),
            (1..2, "1:7 by_dst\n", vec![], 3, 2),
            (1..2, "1:7 by_rule\n", vec![], 3, 2),
        ] {
            let mut logs = logs(rules, false, Some(sent_copies(copies)));
            logs.bytes(text.as_bytes(), None).unwrap();
            let found = logs.found;
            let seen = found.signatures.get("1:7").map(|one| &one.units);
            assert!(seen.into_iter().flatten().eq(&units), "{found:?}");
            let counted = (found.of_other_loads, found.of_every_load);
            assert_eq!(counted, (of_other_loads, of_every_load));
        }
    }

    #[test]
    fn what_only_the_end_of_a_flow_raises_is_late() {
        let early = alert(7, "10.0.0.1 80", "8.8.8.8 999");
        let at_the_end = |text: &str| {
            let said = format!(r#","pkt_src":"{AT_THE_END_OF_A_FLOW}","alert""#);
            text.replace(r#","alert""#, &said)
        };
        let other = at_the_end(&alert(7, "10.0.0.1 81", "8.8.8.8 999"));
        let text = [at_the_end(&early), early.clone(), at_the_end(&early), other].concat();
        let late = |sent| {
            let mut logs = logs("", false, sent);
            logs.bytes(text.as_bytes(), None).unwrap();
            let seven = logs.found.signatures.remove("1:7").unwrap();
            assert_eq!((seven.alerts, seven.units.len()), (4, 2));
            seven.late
        };
        let of_one = BTreeSet::from(["tcp 8.8.8.8:999 10.0.0.1:81".to_owned()]);
        assert_eq!(late(Some(sent_copies(0..1))), of_one);
        assert!(late(None).is_empty());
    }

    #[test]
    fn a_log_that_is_still_written_is_read_on_from_its_last_whole_line() {
        let [first, second] = [80, 81].map(|n| alert(7, &format!("10.0.0.1 {n}"), "8.8.8.8 999"));
        let (half, rest) = second.split_at(second.len() - 1);
        let mut read_once = logs("", false, None);
        let text = format!("{first}{half}");
        read_once.bytes(text.as_bytes(), Some(5_000)).unwrap();
        assert_eq!((read_once.found.lines, read_once.found.cut_lines), (1, 0));
        assert_eq!(read_once.found.bytes, first.len() as u64);
        assert_eq!(read_once.found.ends, [5_000 + first.len() as u64]);
        let mut again = logs("", false, None);
        let text = format!("{half}{rest}");
        again.bytes(text.as_bytes(), Some(0)).unwrap();
        let units = &again.found.signatures["1:7"].units;
        assert!(units.iter().eq(["tcp 8.8.8.8:999 10.0.0.1:81"]));
        assert_eq!(again.found.ends, [second.len() as u64]);
    }
}
