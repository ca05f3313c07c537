//! `keep`: on a host that is reached from elsewhere, ends what a run has there once its controller is gone.
//!
//! The controller writes a byte every few seconds. The end of stdin means that it is gone, and so does silence for a term: a line
//! that is cut brings no end of file. No other process of a connection outlives this one's last deed.

mod kept;
mod labelled;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{read, setsid};
use serde_json::{Value, json};

use kept::{Folder, Run};

/// What a host refuses, as for a job by hand.
const REFUSED: u8 = 3;
/// A controller that was killed a moment ago may be followed at once: its keeper is about to end.
const HELD_WAIT: Duration = Duration::from_secs(3);
const HELD_POLL: Duration = Duration::from_millis(100);
/// Jobs that see the same end of file undo what they did by themselves.
const PATIENCE: Duration = Duration::from_secs(2);

/// Flags of `keep`.
#[derive(Debug, clap::Args)]
pub struct KeepArgs {
    /// Where the folder of what is kept is made; root's alone
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// What the run's processes carry as NODROP_LAB
    #[arg(long, value_parser = label)]
    label: String,
    /// Who has it, for people
    #[arg(long, value_name = "WHO")]
    holder: String,
    /// Which process has it, for programs
    #[arg(long, value_name = "WORDS", default_value = "")]
    controller: String,
    /// A controller that is silent for so long is gone
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=3600))]
    term_s: u16,
    /// What the same controller kept before: it is ended first
    #[arg(long, value_name = "NAME")]
    instead_of: Option<String>,
}

/// Flags of `sweep`.
#[derive(Debug, clap::Args)]
pub struct SweepArgs {
    /// Where `keep` makes its folders
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// End this run even if it has a keeper; repeatable
    #[arg(long, value_name = "LABEL", value_parser = label)]
    label: Vec<String>,
    /// End every run
    #[arg(long)]
    all: bool,
}

fn label(text: &str) -> Result<String, String> {
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "._-".contains(sign);
    if !text.is_empty() && text.chars().all(fits) {
        Ok(text.into())
    } else {
        Err("expected letters, digits, dots, dashes and underscores".into())
    }
}

/// Holds the host for one run until its controller is gone, and then ends all that is left of it.
pub fn run(args: &KeepArgs) -> ExitCode {
    concluded("keep", keep(args))
}

/// Ends what runs without a keeper have left, and the runs that are named.
pub fn sweep(args: &SweepArgs) -> ExitCode {
    concluded("sweep", swept(args))
}

fn concluded(what: &str, outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("nodrop-node {what}: {error:#}");
        ExitCode::from(REFUSED)
    })
}

fn keep(args: &KeepArgs) -> anyhow::Result<ExitCode> {
    outlive_the_connection()?;
    let deadline = Instant::now() + HELD_WAIT;
    let kept = loop {
        let folder = Folder::locked(&args.folder)?;
        let found = folder.sweep(|name, _| Some(name) == args.instead_of.as_deref())?;
        let other = found.goes_on.iter().find(|run| run.label != args.label);
        match other {
            None => {
                let run = Run::new(&args.label, &args.holder, &args.controller);
                break folder.keep(&run)?;
            }
            Some(run) if Instant::now() > deadline => {
                say(&json!({ "held": run }))?;
                return Ok(ExitCode::from(REFUSED));
            }
            Some(_) => drop(folder),
        }
        std::thread::sleep(HELD_POLL);
    };
    say(&json!({ "kept": kept.path() }))?;
    let patience = listen(Duration::from_secs(args.term_s.into()))?;
    let ended = labelled::end(&args.label, patience);
    kept.remove()?;
    anyhow::ensure!(ended.stuck == 0, "{} processes do not end", ended.stuck);
    Ok(ExitCode::SUCCESS)
}

/// Neither the death of what started us nor a polite signal is our end: only stdin is.
fn outlive_the_connection() -> anyhow::Result<()> {
    set_pdeathsig(None)?;
    let ignored: SigSet = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]
        .into_iter()
        .collect();
    ignored.thread_block()?;
    // Fails if we lead a group already, as a shell makes us do.
    let _ = setsid();
    Ok(())
}

/// Until the controller is gone. How long its jobs may take to end by themselves: those behind a cut line know of nothing.
fn listen(term: Duration) -> anyhow::Result<Duration> {
    let stdin = std::io::stdin();
    let term = PollTimeout::try_from(term)?;
    let mut beats = [0; 64];
    loop {
        let mut watched = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if poll(&mut watched, term)? == 0 {
            return Ok(Duration::ZERO);
        }
        if read(&stdin, &mut beats).unwrap_or(0) == 0 {
            return Ok(PATIENCE);
        }
    }
}

fn swept(args: &SweepArgs) -> anyhow::Result<ExitCode> {
    let mut stuck = 0;
    let mut ended = Vec::new();
    let mut goes_on = Vec::new();
    if args.folder.exists() {
        let folder = Folder::locked(&args.folder)?;
        let found = folder
            .sweep(|_, run| args.all || run.is_some_and(|r| args.label.contains(&r.label)))?;
        stuck += found
            .ended
            .iter()
            .map(|(_, ended)| ended.stuck)
            .sum::<usize>();
        ended.extend(found.ended);
        goes_on = found.goes_on;
    }
    for label in &args.label {
        let more = labelled::end(label, Duration::ZERO);
        stuck += more.stuck;
        if more.processes > 0 {
            ended.push((Run::new(label, "", ""), more));
        }
    }
    let ended: Vec<Value> = ended
        .iter()
        .map(|(run, ended)| json!({ "run": run, "processes": ended.processes, "stuck": ended.stuck }))
        .collect();
    say(&json!({ "ended": ended, "goes_on": goes_on }))?;
    Ok(ExitCode::from(if stuck == 0 { 0 } else { REFUSED }))
}

fn say(answer: &Value) -> anyhow::Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{answer}").context("stdout")
}
