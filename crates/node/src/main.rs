//! nodrop-node: one job per process, JSON lines on stdin and stdout (docs/node-protocol.md).

mod capture;
mod drive;
mod emit;
mod enter;
mod guest;
mod job;
mod keep;
mod outcomes;
mod progress;
mod schema;
mod session;
mod trace_files;
mod trace_flows;
mod trace_prepare;
mod trace_tool;
mod trace_window;

use std::process::ExitCode;

use clap::{Args, FromArgMatches, Parser, Subcommand, error::ErrorKind};

use job::Job;

/// Works on a host for nodrop: replays, receives, samples, probes.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send a trace
    Replay(ByFlags<job::replay::Replay>),
    /// Receive and count: a SUT whose truth is known
    Sink(ByFlags<job::sink::Sink>),
    /// Attach LTE UEs to an MME by the clock
    #[cfg(feature = "attach")]
    Attach(ByFlags<job::attach::Attach>),
    /// An MME of known service time, with faults on order: a yardstick
    #[cfg(feature = "attach")]
    ReferenceMme(ByFlags<job::reference_mme::ReferenceMme>),
    /// An HSS that knows what an attach takes: Diameter over TCP, beside an MME
    #[cfg(feature = "attach")]
    StubHss(ByFlags<job::stubs::StubHss>),
    /// An SGW that knows what an attach takes: GTPv2-C over UDP, beside an MME
    #[cfg(feature = "attach")]
    StubSgw(ByFlags<job::stubs::StubSgw>),
    /// Not in this node: its build needs Rust 1.88
    #[cfg(not(feature = "attach"))]
    #[command(aliases = ["reference-mme", "stub-hss", "stub-sgw"])]
    Attach(NotBuilt),
    /// Count frames of one EtherType that arrive where they should not
    Overhear(ByFlags<job::overhear::Overhear>),
    /// Read the host's counters on a schedule
    Sample(ByFlags<job::sample::Sample>),
    /// Look once: host, counters, what AF_PACKET counts here
    Probe(ByFlags<job::probe::Probe>),
    /// Where the time of a program goes: functions, waits, how many threads run at once
    Profile(ByFlags<job::profile::Profile>),
    /// What a trace holds and what the kernel will do to it; synthetic traces
    Trace(trace_tool::TraceArgs),
    /// What a SUT found, from its event log: units that are seen or not, and counts
    Outcomes(outcomes::OutcomesArgs),
    /// Print the JSON Schema of every job's spec and events
    Schema,
    /// Enter namespaces and a root folder, then become the program
    Enter(enter::EnterArgs),
    /// Hold this host for a run, and end what is left of it once its controller is gone
    Keep(keep::KeepArgs),
    /// End what runs have left on this host
    Sweep(keep::SweepArgs),
    /// Be process 1 of a virtual machine, driven through a virtio-serial port
    Guest(guest::GuestArgs),
}

/// Flags of a job that is not in this node.
#[cfg(not(feature = "attach"))]
#[derive(Args)]
struct NotBuilt {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<String>,
}

#[cfg(not(feature = "attach"))]
impl NotBuilt {
    fn run(&self) -> ExitCode {
        eprintln!(
            "nodrop-node: this node has neither `attach` nor `reference-mme`: it was built by Rust {}, and they take 1.88",
            env!("NODROP_RUSTC")
        );
        ExitCode::from(2)
    }
}

/// A job's parameters as flags; `None` if a controller will send them.
struct ByFlags<J: Job>(Option<J::Spec>);

const CONTROLLED: &str = "controlled";

impl<J: Job> Args for ByFlags<J> {
    fn augment_args(command: clap::Command) -> clap::Command {
        J::Spec::augment_args(command).arg(
            clap::Arg::new(CONTROLLED)
                .long(CONTROLLED)
                .action(clap::ArgAction::SetTrue)
                .exclusive(true)
                .help("Be driven by JSON lines on stdin; end when stdin ends"),
        )
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<J: Job> FromArgMatches for ByFlags<J> {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        if matches.get_flag(CONTROLLED) {
            return Ok(Self(None));
        }
        J::Spec::from_arg_matches(matches).map(|spec| Self(Some(spec)))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<J: Job> ByFlags<J> {
    fn run(self) -> ExitCode {
        match self.0 {
            Some(spec) => drive::by_hand::<J>(spec),
            None => drive::controlled::<J>(),
        }
    }
}

/// Flags that are wrong are one line on stderr, like any other bad input.
fn refused(error: &clap::Error) -> ExitCode {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        error.exit();
    }
    // Usage and tips stand below an empty line.
    let said = error.render().to_string();
    let first = said.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    eprintln!("{}", words.join(" "));
    ExitCode::from(2)
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    match cli.command {
        Command::Replay(job) => job.run(),
        Command::Sink(job) => job.run(),
        Command::Attach(job) => job.run(),
        #[cfg(feature = "attach")]
        Command::ReferenceMme(job) => job.run(),
        #[cfg(feature = "attach")]
        Command::StubHss(job) => job.run(),
        #[cfg(feature = "attach")]
        Command::StubSgw(job) => job.run(),
        Command::Overhear(job) => job.run(),
        Command::Sample(job) => job.run(),
        Command::Probe(job) => job.run(),
        Command::Profile(job) => job.run(),
        Command::Trace(args) => trace_tool::run(args),
        Command::Outcomes(args) => outcomes::run(&args),
        Command::Schema => schema::print(),
        Command::Enter(args) => enter::run(&args),
        Command::Keep(args) => keep::run(&args),
        Command::Sweep(args) => keep::sweep(&args),
        Command::Guest(args) => guest::run(&args),
    }
}
