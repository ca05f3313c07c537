//! `enter`: namespaces and a root folder first, then this process becomes the program.
//!
//! No wrapper process stays, so PID, CPU time, signals and exit status are the program's own. Works as root and as the mapped
//! root of `unshare --user --map-root-user --net --mount`, where inherited mounts are locked: they can be mounted over and
//! bound whole, but not taken apart, and fresh kernel file systems are only sometimes allowed.

mod calls;
mod failure;
mod mounts;
mod rights;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, dup2_stderr, dup2_stdout, getppid};

use failure::{Explain, Failure};
use mounts::Bind;
use rights::Rights;

/// Our own failures, as env(1), chroot(1) and nohup(1) say them; 126 and 127 as a shell says them.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Flags of `enter`.
#[derive(Debug, clap::Args)]
pub struct EnterArgs {
    /// Network namespace to enter: /run/netns/NAME or /proc/PID/ns/net
    #[arg(long, value_name = "PATH")]
    netns: Option<PathBuf>,
    /// Folder that becomes / for the program; gets the host's /proc, /dev and /sys
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Nothing of the host in that root: it is read-only, /dev holds null, zero, full, random and urandom, /proc is that of the PID namespace
    #[arg(long, requires = "root")]
    private: bool,
    /// Show the host's own files in that root, which is an empty folder
    #[arg(long, requires = "private")]
    of_host: bool,
    /// Keep these capabilities (NET_RAW,SYS_NICE), never gain another, and lose the system calls that change the kernel or reach other programs
    #[arg(long, value_name = "LIST")]
    caps: Option<Rights>,
    /// Become this user and group, keeping those capabilities
    #[arg(long, value_name = "UID", requires = "caps")]
    user: Option<u32>,
    /// Show a file or folder of the host at a place of the program's root; a missing place is made
    #[arg(long, value_name = "SRC:DST[:ro]")]
    bind: Vec<Bind>,
    /// Control group folder to join first, so that not one page is charged elsewhere
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// CPUs the program may run on, e.g. 0-3,6
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// Add a variable to the program's environment
    #[arg(long, value_name = "K=V", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Folder to start in, as the program sees it
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Wait until a byte can be read from this FIFO; its end without one means that the program is not needed any more
    #[arg(long, value_name = "FIFO")]
    gate: Option<PathBuf>,
    /// Append what the program writes to this file
    #[arg(long, value_name = "FILE")]
    stdout: Option<PathBuf>,
    /// Append what the program complains of to this file
    #[arg(long, value_name = "FILE")]
    stderr: Option<PathBuf>,
    /// Refuse to run if this is no longer the parent: closes the gap before the death signal is set
    #[arg(long, value_name = "PID")]
    parent: Option<i32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<std::ffi::OsString>,
}

/// A CPU list as in cpuset(7).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cpus(Vec<usize>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |s: &str| match s.trim().parse::<usize>() {
                Ok(cpu) if cpu < CpuSet::count() => Ok(cpu),
                _ => Err(format!(
                    "`{s}` is not a CPU number below {}",
                    CpuSet::count()
                )),
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{part}` goes backwards"));
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("expected K=V".into()),
    }
}

/// Does not return if all goes well.
pub fn run(args: &EnterArgs) -> ExitCode {
    match prepare(args) {
        Ok(()) => become_program(args),
        Err(Failure(line)) => {
            eprintln!("nodrop-node enter: {line}");
            ExitCode::from(FAILED)
        }
    }
}

fn prepare(args: &EnterArgs) -> Result<(), Failure> {
    let parent = die_with_parent(args.parent)?;
    if let Some(folder) = &args.cgroup {
        // 0 means the writer itself, in both versions of control groups.
        std::fs::write(folder.join("cgroup.procs"), "0")
            .explain(|| format!("cannot join control group {}", folder.display()))?;
    }
    if let Some(path) = &args.netns {
        let namespace =
            File::open(path).explain(|| format!("network namespace {}", path.display()))?;
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .explain(|| format!("cannot enter network namespace {}", path.display()))?;
    }
    if args.netns.is_some() || args.root.is_some() || !args.bind.is_empty() {
        let root = args.root.as_deref().map(|folder| mounts::Root {
            folder,
            private: args.private,
            of_host: args.of_host,
        });
        mounts::build(root, args.netns.is_some(), &args.bind)?;
    }
    if let Some(Cpus(cpus)) = &args.cpus {
        pin(cpus)?;
    }
    if let Some(cwd) = &args.cwd {
        std::env::set_current_dir(cwd).explain(|| format!("cannot start in {}", cwd.display()))?;
    }
    if let Some(file) = &args.stdout {
        dup2_stdout(appending(file)?).explain(|| format!("cannot write to {}", file.display()))?;
    }
    if let Some(file) = &args.stderr {
        dup2_stderr(appending(file)?).explain(|| format!("cannot write to {}", file.display()))?;
    }
    if let Some(fifo) = &args.gate {
        pass(fifo)?;
    }
    let Some(caps) = &args.caps else {
        return Ok(());
    };
    caps.keep_only(args.user)?;
    if args.user.is_some() {
        again_with(parent)?;
    }
    calls::deny(caps)
}

/// A container runs before its NIC can be moved into it; who moves it says so here. It holds the FIFO open for writing from
/// before we start: without a writer there is nothing to wait for.
fn pass(gate: &Path) -> Result<(), Failure> {
    let what = || format!("gate {}", gate.display());
    // A blocking open(2) would wait for a writer, even for one that has died.
    let mut fifo = File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(gate)
        .explain(what)?;
    fcntl(&fifo, FcntlArg::F_SETFL(OFlag::empty())).explain(what)?;
    let mut word = [0];
    match fifo.read(&mut word).explain(what)? {
        1 => Ok(()),
        _ => Err(Failure(format!("{}: closed without a word", what()))),
    }
}

fn appending(file: &Path) -> Result<File, Failure> {
    File::options()
        .append(true)
        .create(true)
        .open(file)
        .explain(|| format!("cannot open {}", file.display()))
}

/// The kernel sends the signal when the *thread* that made us ends, not when its process does: whoever calls `enter` must do
/// so from a thread that lives as long as the program shall. The setting survives execve(2), except of set-user-ID programs.
fn die_with_parent(expected: Option<i32>) -> Result<Parent, Failure> {
    let parent = expected.map_or_else(getppid, Pid::from_raw);
    set_pdeathsig(Signal::SIGKILL).explain(|| "cannot ask to end with the parent".into())?;
    // It may have ended before the call above; then the signal would never come. From a PID namespace of our own the
    // parent is not seen (0); /proc still is that of the namespace it lives in.
    let seen = getppid();
    let stat = File::open(format!("/proc/{parent}/stat")).ok();
    if seen == parent || (seen.as_raw() == 0 && stat.is_some()) {
        Ok(Parent { pid: parent, stat })
    } else {
        Err(Failure(format!("the parent process {parent} is gone")))
    }
}

/// `stat` of /proc can be read, as it was opened, until the process is gone. None of what no /proc here shows.
struct Parent {
    pid: Pid,
    stat: Option<File>,
}

/// A change of the user takes the death signal away, and the /proc of now may not show the parent.
fn again_with(parent: Parent) -> Result<(), Failure> {
    set_pdeathsig(Signal::SIGKILL).explain(|| "cannot ask to end with the parent".into())?;
    match parent.stat.map(|mut stat| stat.read(&mut [0])) {
        Some(Err(_)) => Err(Failure(format!(
            "the parent process {} is gone",
            parent.pid
        ))),
        _ => Ok(()),
    }
}

fn pin(cpus: &[usize]) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu).explain(|| format!("CPU {cpu}"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|e| {
        Failure(match e {
            Errno::EINVAL => format!("none of the CPUs {cpus:?} can be used here"),
            e => format!("cannot pin to CPUs {cpus:?}: {e}"),
        })
    })
}

fn become_program(args: &EnterArgs) -> ExitCode {
    let program = &args.program[0];
    // exec() also gives back what our own runtime changed: the signal mask and SIGPIPE.
    let error = Command::new(program)
        .args(&args.program[1..])
        .envs(args.env.iter().cloned())
        .exec();
    let place = match &args.root {
        Some(root) => format!(" (in root {})", root.display()),
        None => String::new(),
    };
    eprintln!(
        "nodrop-node enter: cannot run {}{place}: {error}",
        program.to_string_lossy()
    );
    ExitCode::from(match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_those_of_cpuset() {
        assert_eq!("0-2,5".parse(), Ok(Cpus(vec![0, 1, 2, 5])));
        assert_eq!("3-1".parse::<Cpus>(), Err("`3-1` goes backwards".into()));
        assert_eq!(
            "x".parse::<Cpus>(),
            Err("`x` is not a CPU number below 1024".into())
        );
    }
}
