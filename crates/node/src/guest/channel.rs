//! One conversation: a program with its pipes, a file read or written, a Unix socket connected to.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::json;

use super::frame::LONGEST;
use super::line::Line;

/// The payload of `open`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Open {
    Run {
        argv: Vec<String>,
        #[serde(default)]
        env: Vec<(String, String)>,
        cwd: Option<PathBuf>,
    },
    Read {
        path: PathBuf,
        #[serde(default)]
        offset: u64,
    },
    Write {
        path: PathBuf,
    },
    Connect {
        path: PathBuf,
    },
}

/// The controller's side of it. Dropping the sender is the end of data.
pub struct Channel {
    data: Option<Sender<Vec<u8>>>,
    /// `None` once it was waited for: its number may be another's by then.
    process: Arc<Mutex<Option<Pid>>>,
}

impl Channel {
    pub fn data(&mut self, payload: Vec<u8>) {
        if let Some(sender) = &self.data {
            // The other end may be gone; then it is not wanted.
            let _unwanted = sender.send(payload);
        }
    }

    pub fn end_of_data(&mut self) {
        self.data = None;
    }

    pub fn kill(&self, signal: Option<u8>) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let signal = signal.and_then(|number| Signal::try_from(i32::from(number)).ok());
        if let (Some(pid), Some(signal)) = (*process, signal) {
            let _gone = kill(pid, signal);
        }
    }
}

/// Starts what is asked for; the channel's threads say the rest.
pub fn open(id: u32, payload: &[u8], line: &Line) -> Result<Channel, String> {
    let asked: Open = serde_json::from_slice(payload).map_err(|e| format!("open: {e}"))?;
    let (sender, receiver) = channel();
    let process = Arc::new(Mutex::new(None));
    match asked {
        Open::Run { argv, env, cwd } => {
            run(id, &argv, env, cwd.as_deref(), receiver, &process, line)?;
        }
        Open::Read { path, offset } => read(id, &path, offset, line)?,
        Open::Write { path } => write(id, &path, receiver, line)?,
        Open::Connect { path } => connect(id, &path, receiver, line)?,
    }
    Ok(Channel {
        data: Some(sender),
        process,
    })
}

fn run(
    id: u32,
    argv: &[String],
    env: Vec<(String, String)>,
    cwd: Option<&Path>,
    data: Receiver<Vec<u8>>,
    process: &Arc<Mutex<Option<Pid>>>,
    line: &Line,
) -> Result<(), String> {
    let (program, arguments) = argv.split_first().ok_or("open: empty argv")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    let mut child = command
        .spawn()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    let pid = child.id();
    *process.lock().unwrap_or_else(PoisonError::into_inner) =
        i32::try_from(pid).ok().map(Pid::from_raw);
    line.say(id, b's', &json!({ "pid": pid }));
    let stdin = child.stdin.take();
    std::thread::spawn(move || drain_into(stdin, &data));
    let outputs = [
        child
            .stdout
            .take()
            .map(|from| forward(id, b'1', from, line)),
        child
            .stderr
            .take()
            .map(|from| forward(id, b'2', from, line)),
    ];
    let (process, line) = (Arc::clone(process), line.clone());
    std::thread::spawn(move || {
        let status = wait(child, &process);
        outputs
            .into_iter()
            .flatten()
            .for_each(|output| drop(output.join()));
        line.say(id, b'x', &json!({ "status": status }));
    });
    Ok(())
}

/// As subprocess.Popen says it: the exit status, or minus the signal.
fn wait(mut child: Child, process: &Mutex<Option<Pid>>) -> i32 {
    let as_number = |status: ExitStatus| status.code().or_else(|| status.signal().map(|n| -n));
    let status = child.wait();
    *process.lock().unwrap_or_else(PoisonError::into_inner) = None;
    status.ok().and_then(as_number).unwrap_or(-1)
}

fn drain_into(to: Option<impl Write>, data: &Receiver<Vec<u8>>) {
    if let Some(mut to) = to {
        for payload in data {
            if to.write_all(&payload).and_then(|()| to.flush()).is_err() {
                return;
            }
        }
    }
}

fn forward(id: u32, kind: u8, mut from: impl Read + Send + 'static, line: &Line) -> JoinHandle<()> {
    let line = line.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; LONGEST];
        while let Ok(count) = from.read(&mut buffer) {
            if count == 0 {
                return;
            }
            line.send(id, kind, &buffer[..count]);
        }
    })
}

/// What the file holds now from `offset` on.
fn read(id: u32, path: &Path, offset: u64, line: &Line) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let output = forward(id, b'1', file, line);
    let line = line.clone();
    std::thread::spawn(move || {
        drop(output.join());
        line.say(id, b'x', &json!({ "status": 0 }));
    });
    Ok(())
}

fn write(id: u32, path: &Path, data: Receiver<Vec<u8>>, line: &Line) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let mut file = File::create(path).map_err(failed)?;
    let line = line.clone();
    std::thread::spawn(move || {
        let written = data.iter().try_for_each(|payload| file.write_all(&payload));
        match written {
            Ok(()) => line.say(id, b'x', &json!({ "status": 0 })),
            Err(e) => line.say(id, b'f', &json!({ "message": e.to_string() })),
        }
    });
    Ok(())
}

fn connect(id: u32, path: &Path, data: Receiver<Vec<u8>>, line: &Line) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let stream = UnixStream::connect(path).map_err(failed)?;
    let reading = stream.try_clone().map_err(failed)?;
    line.say(id, b's', &json!({}));
    let output = forward(id, b'1', reading, line);
    let writing = stream.try_clone().map_err(failed)?;
    std::thread::spawn(move || {
        drain_into(Some(writing), &data);
        // Both ways: after the last question no answer is wanted.
        let _closed = stream.shutdown(Shutdown::Both);
    });
    let line = line.clone();
    std::thread::spawn(move || {
        drop(output.join());
        line.say(id, b'x', &json!({ "status": 0 }));
    });
    Ok(())
}
