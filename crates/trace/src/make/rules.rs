//! Simple content rules, as far as it takes to plant payloads that fire them: TCP or UDP, plain `content`, nothing positional.

use std::collections::HashMap as Map;

use foldhash::fast::FixedState;
use serde::Serialize;

use super::hosts::FIRST_PORT;

type HashMap<K, V> = Map<K, V, FixedState>;

/// Rules that are planted: each is three flows, and is compared with those that begin as it does.
pub const MOST_RULES: usize = 10_000;

/// Fits into a frame with any header.
const LONGEST_DATAGRAM: usize = 1_400;

/// A rule that can be made to fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Signature number.
    pub sid: u64,
    /// Over UDP, else TCP.
    pub is_udp: bool,
    /// Ports of source and destination, where the rule names one.
    pub ports: [Option<u16>; 2],
    /// Whether the server sends what matches, if the rule says.
    pub from_server: Option<bool>,
    /// Whether source and destination have to be outside of HOME_NET, where the rule says.
    pub outside: [Option<bool>; 2],
    /// Only where both sides have spoken.
    pub established: bool,
    /// Only in one direction of the flow: who began it has to be seen.
    pub directed: bool,
    /// What has to occur, in any order.
    pub contents: Vec<Content>,
}

/// Bytes that have to occur.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whatever the case of letters.
    pub nocase: bool,
}

/// A rule for which nothing is planted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Line in the file, from 1.
    pub line: usize,
    /// Why.
    pub reason: String,
}

/// The rules of a file that can be planted, and the others.
#[must_use]
pub fn read(text: &str) -> (Vec<Rule>, Vec<Skipped>) {
    let (mut rules, mut skipped) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match rule(text) {
            Ok(rule) => rules.push(rule),
            Err(reason) => skipped.push(Skipped { line, reason }),
        }
    }
    (rules, skipped)
}

fn rule(text: &str) -> Result<Rule, String> {
    let (head, options) = text.split_once('(').ok_or("no options")?;
    let options = options
        .trim_end()
        .strip_suffix(')')
        .ok_or("no closing bracket")?;
    let head: Vec<_> = head.split_whitespace().collect();
    let [
        "alert",
        protocol,
        source,
        source_port,
        "->",
        destination,
        destination_port,
    ] = head[..]
    else {
        return Err("not `alert PROTOCOL SOURCE PORT -> DESTINATION PORT`".into());
    };
    let mut rule = Rule {
        sid: 0,
        is_udp: match protocol {
            "tcp" | "ip" => false,
            "udp" => true,
            other => return Err(format!("protocol {other}")),
        },
        ports: [port(source_port)?, port(destination_port)?],
        from_server: None,
        outside: [
            outside("source", source)?,
            outside("destination", destination)?,
        ],
        established: false,
        directed: false,
        contents: Vec::new(),
    };
    for option in split_options(options) {
        add_option(&mut rule, &option)?;
    }
    if rule.sid == 0 || rule.contents.is_empty() {
        return Err("no sid or no content".into());
    }
    rule.directed = rule.from_server.is_some();
    // A port that is named is the server's.
    if rule.from_server.is_none() && rule.ports != [None, None] {
        rule.from_server = Some(rule.ports[0].is_some());
    }
    if let [Some(source), Some(destination)] = rule.outside
        && source == destination
    {
        return Err("source and destination on one side of HOME_NET".into());
    }
    if rule.client_port().is_some_and(|port| port >= FIRST_PORT) {
        return Err("a client's port that other conversations have".into());
    }
    if rule.is_udp && rule.payload().len() > LONGEST_DATAGRAM {
        return Err("contents longer than a datagram".into());
    }
    Ok(rule)
}

fn outside(which: &str, text: &str) -> Result<Option<bool>, String> {
    match text {
        "$EXTERNAL_NET" | "$AIM_SERVERS" => Ok(Some(true)),
        "$HOME_NET" => Ok(Some(false)),
        // As in the configuration that comes with Suricata.
        servers if servers.starts_with('$') && servers.ends_with("_SERVERS") => Ok(Some(false)),
        "any" => Ok(None),
        other => Err(format!("{which} {other}")),
    }
}

fn port(text: &str) -> Result<Option<u16>, String> {
    match text {
        "any" => Ok(None),
        "$HTTP_PORTS" => Ok(Some(80)),
        number => number
            .parse()
            .map(Some)
            .map_err(|_| format!("port {number}")),
    }
}

/// At semicolons outside of quotes.
fn split_options(text: &str) -> Vec<String> {
    let (mut options, mut option, mut quoted, mut escaped) =
        (Vec::new(), String::new(), false, false);
    for letter in text.chars() {
        if letter == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = letter == '\\' && !escaped;
        if letter == ';' && !quoted && !option.ends_with('\\') {
            options.push(std::mem::take(&mut option).trim().to_owned());
        } else {
            option.push(letter);
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

fn add_option(rule: &mut Rule, option: &str) -> Result<(), String> {
    let (key, value) = option
        .split_once(':')
        .map_or((option, ""), |(key, value)| (key, value.trim()));
    match key.trim() {
        "msg" | "rev" | "classtype" | "reference" | "metadata" | "priority" | "gid" => {}
        "fast_pattern" if value.is_empty() => {}
        "sid" => rule.sid = value.parse().map_err(|_| format!("sid {value}"))?,
        "flow" => {
            for word in value.split(',').map(str::trim) {
                match word {
                    "established" => rule.established = true,
                    "to_server" | "from_client" => rule.from_server = Some(false),
                    "to_client" | "from_server" => rule.from_server = Some(true),
                    other => return Err(format!("flow:{other}")),
                }
            }
        }
        "nocase" => {
            rule.contents
                .last_mut()
                .ok_or("nocase before content")?
                .nocase = true
        }
        "content" => rule.contents.push(Content {
            bytes: content(value)?,
            nocase: false,
        }),
        other => return Err(format!("keyword {other}")),
    }
    Ok(())
}

/// `"text|0d 0a|text"`, with `\` before `"`, `;`, `:` and itself.
fn content(value: &str) -> Result<Vec<u8>, String> {
    let text = value
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let text = text.ok_or_else(|| format!("content {value}"))?;
    let mut bytes = Vec::new();
    for (index, part) in text.split('|').enumerate() {
        if index % 2 == 1 {
            for pair in part.split_whitespace() {
                bytes.push(u8::from_str_radix(pair, 16).map_err(|_| format!("hex {pair}"))?);
            }
            continue;
        }
        let mut escaped = false;
        for byte in part.bytes() {
            escaped = byte == b'\\' && !escaped;
            if !escaped {
                bytes.push(byte);
            }
        }
    }
    if bytes.len() < 4 {
        return Err("a content shorter than four bytes occurs anywhere".into());
    }
    Ok(bytes)
}

impl Content {
    /// Whether it occurs there.
    #[must_use]
    pub fn is_in(&self, payload: &[u8]) -> bool {
        if self.nocase {
            let lower = self.bytes.to_ascii_lowercase();
            return memchr::memmem::find(&payload.to_ascii_lowercase(), &lower).is_some();
        }
        memchr::memmem::find(payload, &self.bytes).is_some()
    }
}

impl Rule {
    /// A payload with all contents, one a line.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let mut payload = b"planted\n".to_vec();
        for content in &self.contents {
            payload.extend(&content.bytes);
            payload.push(b'\n');
        }
        payload
    }

    /// Who sends the message of a planted flow.
    #[must_use]
    pub fn is_from_server(&self) -> bool {
        self.from_server.unwrap_or(false)
    }

    /// Where the client of a planted flow is: at home, if the rule leaves it open.
    #[must_use]
    pub fn is_client_outside(&self) -> bool {
        let [source, destination] = self.outside;
        let source = source.or(destination.map(|outside| !outside));
        source.is_some_and(|outside| outside != self.is_from_server())
    }

    /// Of a planted flow, if the rule names it.
    #[must_use]
    pub fn client_port(&self) -> Option<u16> {
        self.ports[usize::from(self.is_from_server())]
    }

    /// Of a planted flow, if the rule names it.
    #[must_use]
    pub fn server_port(&self) -> Option<u16> {
        self.ports[usize::from(!self.is_from_server())]
    }

    /// Whether the flow that is planted for `other` with these ports (of client and server) fires this rule as well.
    #[must_use]
    pub fn fires_on(&self, other: &Self, mut ports: [u16; 2]) -> bool {
        let from_server = other.is_from_server();
        let source_outside = other.is_client_outside() != from_server;
        if from_server {
            ports.reverse();
        }
        let is_one = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
        self.is_udp == other.is_udp
            && is_one(self.from_server, from_server)
            && is_one(self.outside[0], source_outside)
            && is_one(self.outside[1], !source_outside)
            && self
                .ports
                .iter()
                .zip(ports)
                .all(|(wanted, is)| wanted.is_none_or(|port| port == is))
            && self.occurs_in(&other.payload())
    }

    /// Whether all contents are in there.
    #[must_use]
    pub fn occurs_in(&self, bytes: &[u8]) -> bool {
        self.contents.iter().all(|content| content.is_in(bytes))
    }

    /// The longest content begins with these bytes, whatever their case: no content is shorter.
    fn begin(&self) -> Begin {
        let longest = self.contents.iter().map(|content| &content.bytes);
        let longest = longest.max_by_key(|bytes| bytes.len());
        let mut begin = Begin::default();
        for (to, from) in begin.iter_mut().zip(longest.into_iter().flatten()) {
            *to = from.to_ascii_lowercase();
        }
        begin
    }
}

/// Rules by what they begin with, so that bytes are looked through once and not once for each rule.
pub struct Begins(HashMap<Begin, Vec<usize>>);

type Begin = [u8; 4];

impl Begins {
    /// Of these rules.
    #[must_use]
    pub fn of(rules: &[Rule]) -> Self {
        let mut found: HashMap<_, Vec<_>> = HashMap::default();
        for (which, rule) in rules.iter().enumerate() {
            found.entry(rule.begin()).or_default().push(which);
        }
        Self(found)
    }

    /// The rules that may occur there; no other does.
    pub fn found_in(&self, bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
        let mut begins: Vec<Begin> = Vec::new();
        if !self.0.is_empty() {
            let lower = bytes.to_ascii_lowercase();
            let windows = lower
                .windows(4)
                .map(|four| [four[0], four[1], four[2], four[3]]);
            begins.extend(windows.filter(|begin| self.0.contains_key(begin)));
            begins.sort_unstable();
            begins.dedup();
        }
        begins
            .into_iter()
            .flat_map(|begin| &self.0[&begin])
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_as_if_each_were_looked_for_by_itself() {
        let contents = [
            "evil",
            "EVIL twin",
            "|00 00 00 00|",
            "twin|3b|",
            "vil t",
            "planted|0a|evil",
        ];
        let mut text = String::new();
        for (at, content) in contents.iter().enumerate() {
            for (more, sid) in [("", 2 * at + 1), ("nocase; ", 2 * at + 2)] {
                text += &format!(
                    "alert tcp any any -> any any (content:\"{content}\"; {more}sid:{sid};)\n"
                );
            }
        }
        text +=
            "alert tcp any any -> any any (content:\"evil\"; content:\"longer twin\"; sid:99;)\n";
        let (rules, _) = read(&text);
        let begins = Begins::of(&rules);
        let payloads = rules.iter().map(Rule::payload);
        let others: [&[u8]; 5] = [b"", b"evi", b"EvIl", b"\0\0\0\0\0", b"evil longer twin"];
        for bytes in payloads.chain(others.map(<[u8]>::to_vec)) {
            let mut found: Vec<_> = begins.found_in(&bytes).collect();
            found.retain(|which| rules[*which].occurs_in(&bytes));
            found.sort_unstable();
            let each: Vec<_> = (0..rules.len())
                .filter(|i| rules[*i].occurs_in(&bytes))
                .collect();
            assert_eq!(found, each, "{bytes:?}");
        }
    }

    #[test]
    fn a_planted_flow_stands_where_source_and_destination_of_its_rule_are() {
        // client outside, client's port, server's port
        let planted = [
            ("any any -> $HOME_NET any", "to_server", (true, None, None)),
            ("any any -> $HOME_NET any", "to_client", (false, None, None)),
            (
                "any any -> $EXTERNAL_NET 25",
                "to_server",
                (false, None, Some(25)),
            ),
            (
                "any 25 -> $EXTERNAL_NET any",
                "from_server",
                (true, None, Some(25)),
            ),
            ("$HOME_NET any -> any any", "to_server", (false, None, None)),
            (
                "any any -> $SQL_SERVERS any",
                "to_server",
                (true, None, None),
            ),
            (
                "$EXTERNAL_NET any -> $HOME_NET 1024",
                "from_server",
                (false, Some(1024), None),
            ),
            (
                "$EXTERNAL_NET 80 -> $HOME_NET 1025",
                "to_client",
                (false, Some(1025), Some(80)),
            ),
            (
                "$EXTERNAL_NET 7 -> $HOME_NET any",
                "to_server",
                (true, Some(7), None),
            ),
            ("any any -> any any", "from_server", (false, None, None)),
        ];
        for (head, flow, expected) in planted {
            let text = format!("alert tcp {head} (flow:{flow}; content:\"evil\"; sid:1;)");
            let (rules, skipped) = read(&text);
            let [rule] = &rules[..] else {
                panic!("{text}: {skipped:?}");
            };
            let is = (
                rule.is_client_outside(),
                rule.client_port(),
                rule.server_port(),
            );
            assert_eq!(is, expected, "{text}");
            let ports = [
                rule.client_port().unwrap_or(20_000),
                rule.server_port().unwrap_or(4_444),
            ];
            assert!(rule.fires_on(rule, ports), "{text}");
        }
        for (head, why) in [
            (
                "$HOME_NET any -> $HOME_NET any",
                "source and destination on one side of HOME_NET",
            ),
            (
                "any any -> [1.2.3.4,5.6.7.8] any",
                "destination [1.2.3.4,5.6.7.8]",
            ),
            (
                "any 31337 -> any any",
                "a client's port that other conversations have",
            ),
        ] {
            let text = format!("alert tcp {head} (flow:to_server; content:\"evil\"; sid:1;)");
            assert_eq!(read(&text).1[0].reason, why, "{text}");
        }
    }

    #[test]
    fn simple_rules_are_read_and_others_are_named() {
        let text = r#"
# comment
alert tcp $EXTERNAL_NET any -> $HOME_NET 8080 (msg:"a;b"; flow:established,to_server; content:"evil\;|0d 0a|x"; nocase; sid:7; rev:1;)
alert tcp $EXTERNAL_NET 443 -> $HOME_NET any (flow:from_server; content:"reply"; sid:8;)
alert http any any -> any any (content:"abcd"; sid:9;)
alert udp any any -> any 53 (content:"abcd"; offset:3; sid:10;)
"#;
        let (rules, skipped) = read(text);
        let content = |bytes: &[u8], nocase| {
            vec![Content {
                bytes: bytes.to_vec(),
                nocase,
            }]
        };
        let expected = Rule {
            sid: 7,
            is_udp: false,
            ports: [None, Some(8080)],
            from_server: Some(false),
            outside: [Some(true), Some(false)],
            established: true,
            directed: true,
            contents: content(b"evil;\r\nx", true),
        };
        let reply = Rule {
            sid: 8,
            ports: [Some(443), None],
            from_server: Some(true),
            established: false,
            contents: content(b"reply", false),
            ..expected.clone()
        };
        assert_eq!(rules, [expected, reply]);
        let reasons: Vec<_> = skipped
            .iter()
            .map(|rule| (rule.line, rule.reason.as_str()))
            .collect();
        assert_eq!(reasons, [(5, "protocol http"), (6, "keyword offset")]);
    }
}
