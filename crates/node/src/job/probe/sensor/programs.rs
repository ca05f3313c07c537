//! Programs that capture: their threads, limits and configuration, and what a Suricata says of itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use nodrop_counters::{MemoryHits, Quota, memory_hits, quotas, tick_ns};
use schemars::JsonSchema;
use serde::Serialize;

use super::files::{Files, Lack, TRACE, cpu_list};
use super::spaces::{OURS, Socket, Spaces, space_of};
use crate::job::probe::captures::{Control, Said, arguments, stopped};
use crate::job::probe::process::{fields, is_suricata};

/// Debian's, if the command line names none.
const SURICATA_YAML: &str = "/etc/suricata/suricata.yaml";
/// The kernel says when it was booted in whole seconds.
const CLOCK_S: f64 = 2.0;
const MOST_FILES: usize = 64;
const LONGEST_BYTES: u64 = 4 << 20;

/// A process that holds packet sockets, or a Suricata.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorProgram")]
pub struct Program {
    pid: u32,
    name: String,
    /// Whether a signal, such as SIGSTOP, holds it.
    stopped: bool,
    /// Number of its namespace in this look; `None`: none that holds packet sockets.
    space: Option<usize>,
    arguments: Vec<String>,
    threads: Vec<Thread>,
    quotas: Vec<Quota>,
    memory_hits: Vec<MemoryHits>,
    /// A Suricata's configuration; `None`: it may not be read, or there is none.
    yaml: Option<Yaml>,
    /// A Suricata's, by its command socket; `None` if it has none, or this user may not see which.
    answers: Option<Said>,
    uptime_s: Option<f64>,
    missing: Vec<Lack>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorThread")]
struct Thread {
    tid: u32,
    name: String,
    /// CPUs that it may run on.
    allowed: Vec<u32>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SensorYaml")]
struct Yaml {
    /// As the program was given it.
    path: String,
    /// It was written after the program was started.
    newer: bool,
    text: Text,
}

/// A yaml and the files that it includes.
#[derive(Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "YamlText")]
pub struct Text {
    /// Absolute path of the first, as its program sees it.
    path: String,
    /// Absolute path → text.
    texts: BTreeMap<String, String>,
    /// Path → why it cannot be read.
    errors: BTreeMap<String, String>,
}

pub fn all(files: &Files, spaces: &Spaces, sockets: &[Socket]) -> Vec<Program> {
    let holding: BTreeMap<u32, usize> = sockets
        .iter()
        .filter_map(|one| Some((one.pid?, one.space)))
        .collect();
    let mut known = BTreeMap::new();
    for (number, pid) in spaces.pids.iter().enumerate() {
        let process = pid.map_or("self".into(), |pid| pid.to_string());
        known.extend(
            space_of(files, &process)
                .ok()
                .flatten()
                .map(|name| (name, number)),
        );
    }
    let each = spaces.names.iter().filter_map(|(pid, name)| {
        let suricata = is_suricata(name);
        if !suricata && !holding.contains_key(pid) {
            return None;
        }
        let space = holding
            .get(pid)
            .copied()
            .or_else(|| match space_of(files, &pid.to_string()) {
                Ok(space) => known.get(&space?).copied(),
                Err(_) => Some(OURS),
            });
        Some(program(&files.root, *pid, name, space, suricata))
    });
    each.collect()
}

fn program(root: &Path, pid: u32, name: &str, space: Option<usize>, suricata: bool) -> Program {
    let files = &Files::new(root);
    let process = pid.to_string();
    let arguments = arguments(&files.root, pid);
    let started_s = started_s(files, pid);
    let uptime = files.text("proc/uptime").unwrap_or_default();
    let uptime_s: Option<f64> = uptime.split(' ').next().and_then(|word| word.parse().ok());
    Program {
        pid,
        name: name.to_owned(),
        stopped: stopped(&files.root, pid),
        space,
        threads: threads(files, pid),
        quotas: quotas(&files.root, &process),
        memory_hits: memory_hits(&files.root, &process),
        yaml: suricata
            .then(|| yaml(files, pid, &arguments, started_s))
            .flatten(),
        answers: suricata.then(|| said(files, pid, name)).flatten(),
        uptime_s: uptime_s
            .zip(started_s)
            .map(|(now, (after_boot, _))| now - after_boot),
        arguments,
        missing: files.missing(),
    }
}

/// After the boot, and since 1970.
fn started_s(files: &Files, pid: u32) -> Option<(f64, Option<f64>)> {
    let stat = files.text(format!("proc/{pid}/stat"))?;
    let ticks: u64 = fields(&stat).get(19)?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let after_boot = ticks.saturating_mul(tick_ns()) as f64 / 1e9;
    let text = files.text("proc/stat")?;
    let booted = text.lines().find_map(|line| line.strip_prefix("btime "));
    let booted: Option<f64> = booted.and_then(|text| text.trim().parse().ok());
    Some((after_boot, booted.map(|booted| booted + after_boot)))
}

fn threads(files: &Files, pid: u32) -> Vec<Thread> {
    let names = files.names(format!("proc/{pid}/task"));
    let mut tids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    tids.sort_unstable();
    let each = tids.into_iter().filter_map(|tid| {
        let status = files.text(format!("proc/{pid}/task/{tid}/status"))?;
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        Some(Thread {
            tid,
            name: field("Name")?.to_owned(),
            allowed: cpu_list(field("Cpus_allowed_list")?)?,
        })
    });
    each.collect()
}

fn said(files: &Files, pid: u32, name: &str) -> Option<Said> {
    if let Err(error) = fs::read_dir(files.root.join(format!("proc/{pid}/fd"))) {
        if error.kind() == ErrorKind::PermissionDenied {
            files.lacks(format!("counters of Suricata (pid {pid})"), TRACE);
        }
        return None;
    }
    let Some(mut control) = Control::of(&files.root, pid, name) else {
        files.lacks(
            format!("counters of {name} (pid {pid})"),
            "its command socket (suricata.yaml, unix-command: enabled: yes)",
        );
        return None;
    };
    let said = control.ask(stopped(&files.root, pid));
    let file = Path::new(&said.socket)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    if stopped(&files.root, pid) {
        files.lacks(
            format!("counters of {name} (pid {pid})"),
            "a Suricata that runs: this one is stopped",
        );
    } else if said.refused {
        files.lacks(
            format!("counters of {name} (pid {pid})"),
            &format!("root, or the group of its socket ({file})"),
        );
    } else if said.silent.is_some() {
        files.lacks(
            format!("counters of {name} (pid {pid})"),
            &format!("a Suricata that answers ({file})"),
        );
    }
    Some(said)
}

fn yaml(
    files: &Files,
    pid: u32,
    arguments: &[String],
    started_s: Option<(f64, Option<f64>)>,
) -> Option<Yaml> {
    let after = arguments
        .windows(2)
        .find(|pair| pair[0] == "-c")
        .map(|pair| pair[1].as_str());
    let joined = || {
        arguments.iter().find_map(|word| {
            word.strip_prefix("-c")
                .filter(|rest| !rest.is_empty() && !rest.starts_with('-'))
        })
    };
    let named = after.or_else(joined).unwrap_or(SURICATA_YAML);
    let folder = fs::read_link(files.root.join(format!("proc/{pid}/cwd"))).unwrap_or_default();
    let path = plain(&folder.join(named));
    let top = files.root.join(format!("proc/{pid}/root"));
    let written_s = match fs::File::open(within(&top, &path)).and_then(|file| file.metadata()) {
        Ok(meta) => meta
            .modified()
            .ok()?
            .duration_since(std::time::UNIX_EPOCH)
            .ok()?
            .as_secs_f64(),
        Err(error) => {
            if error.kind() == ErrorKind::PermissionDenied {
                files.lacks(format!("{named} of Suricata (pid {pid})"), TRACE);
            }
            return None;
        }
    };
    Some(Yaml {
        path: named.to_owned(),
        newer: started_s
            .and_then(|(_, since)| since)
            .is_some_and(|started_s| written_s > started_s + CLOCK_S),
        text: with_includes(&top, &path),
    })
}

fn within(top: &Path, path: &Path) -> PathBuf {
    top.join(path.strip_prefix("/").unwrap_or(path))
}

/// Without `.` and doubled slashes; links and `..` are kept, as users write them.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// `top`: the root folder of who names it.
pub fn with_includes(top: &Path, path: &Path) -> Text {
    let first = plain(path);
    let mut found = Text {
        path: first.to_string_lossy().into_owned(),
        texts: BTreeMap::new(),
        errors: BTreeMap::new(),
    };
    let mut left = vec![first];
    while let Some(path) = left.pop() {
        let name = path.to_string_lossy().into_owned();
        if found.texts.len() == MOST_FILES || found.texts.contains_key(&name) {
            continue;
        }
        match read(&within(top, &path)) {
            Ok(text) => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                left.extend(includes(&text).map(|name| plain(&folder.join(name))));
                found.texts.insert(name, text);
            }
            Err(error) => {
                let text = match error.raw_os_error() {
                    Some(number) => nix::errno::Errno::from_raw(number).desc().to_owned(),
                    None => error.to_string(),
                };
                found.errors.insert(name, text);
            }
        }
    }
    found
}

fn read(path: &Path) -> Result<String, std::io::Error> {
    if path.is_dir() {
        return Err(std::io::Error::from_raw_os_error(nix::libc::EISDIR));
    }
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("is no regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(LONGEST_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_BYTES {
        return Err(std::io::Error::other("is longer than 4 MiB"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// File names behind `include:`, in the list below one, and behind `!include`. A superfluous name costs one file more to read.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    let mut in_list = false;
    let names = text.lines().filter_map(move |line| {
        let line = line.trim();
        let name = if let Some((_, rest)) = line.split_once("!include ") {
            rest
        } else if let Some(rest) = line.strip_prefix("include:") {
            in_list = rest.trim().is_empty();
            rest
        } else if in_list && line.starts_with("- ") {
            &line[2..]
        } else {
            in_list &= line.is_empty() || line.starts_with('#');
            return None;
        };
        let name = name.split(" #").next().unwrap_or_default();
        let name = name.trim().trim_matches(['"', '\'']);
        (!name.is_empty()).then_some(name)
    });
    names.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yaml_with_those_it_includes() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("etc/suricata");
        fs::create_dir_all(&folder).unwrap();
        let first = "a: !include \"b.yaml\"\ninclude:\n  # more\n  - c.yaml\n  - /etc/suricata/./gone.yaml # late\nd: 1\n";
        fs::write(folder.join("s.yaml"), first).unwrap();
        fs::write(folder.join("b.yaml"), "include: s.yaml\n").unwrap();
        fs::write(folder.join("c.yaml"), "c: 1\n").unwrap();
        let found = with_includes(top.path(), Path::new("/etc//suricata/s.yaml"));
        assert_eq!(found.path, "/etc/suricata/s.yaml");
        let names: Vec<_> = found.texts.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "/etc/suricata/b.yaml",
                "/etc/suricata/c.yaml",
                "/etc/suricata/s.yaml"
            ]
        );
        let errors: Vec<_> = found
            .errors
            .iter()
            .map(|(path, why)| (path.as_str(), why.as_str()))
            .collect();
        assert_eq!(
            errors,
            [("/etc/suricata/gone.yaml", "No such file or directory")]
        );
    }

    #[test]
    fn a_suricata_without_a_command_socket_lacks_its_counters() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("proc/7/fd")).unwrap();
        fs::create_dir_all(top.path().join("proc/7/net")).unwrap();
        fs::write(top.path().join("proc/7/net/unix"), "Num RefCount\n").unwrap();
        let files = Files::new(top.path());
        assert!(said(&files, 7, "Suricata-Main").is_none());
        let lacks = serde_json::to_value(files.missing()).unwrap();
        assert_eq!(lacks[0]["what"], "counters of Suricata-Main (pid 7)");
        assert!(lacks[0]["needs"].as_str().unwrap().contains("unix-command"));
    }
}
