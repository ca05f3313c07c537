//! `nodrop-node trace`: the trace job for a controller, and traces made and looked at by hand.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use nodrop_proto::{JobError, TraceSpec};
use nodrop_sys::file::read_text;
use nodrop_trace::make::{self, Profile, rules::MOST_RULES};
use nodrop_wire::capture::Reader;
use nodrop_wire::flow::FlowKey;
use nodrop_wire::pcap::{file_header, record_header};

use crate::capture::{available_bytes, contents};
use crate::drive;
use crate::job;
use crate::progress::Progress;
use crate::trace_files::{self, CutArgs, MergeArgs, ReplicateArgs, folder_of, write};
use crate::trace_flows::{self, FlowsArgs};
use crate::trace_prepare::{self, PrepareArgs};
use crate::trace_window::{self, WindowArgs};

/// A controller's job, or one of the tools.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct TraceArgs {
    /// Be driven by JSON lines on stdin; end when stdin ends
    #[arg(long)]
    controlled: bool,
    #[command(subcommand)]
    tool: Option<Tool>,
}

#[derive(Subcommand)]
enum Tool {
    /// What a trace holds and what the kernel will do to it
    Info(InfoArgs),
    /// Make a synthetic trace
    Make(MakeArgs),
    /// Write a part of a trace
    Cut(CutArgs),
    /// Write a capture without packets that are chosen by a seed, or without some flows, and list them in OUT.json
    Withhold(WithholdArgs),
    /// Write the flow of each packet that a replay sends, in the order of sending
    Flows(FlowsArgs),
    /// Find the window of a trace that a load sends, and write it
    Window(WindowArgs),
    /// Write what a replay of several replicas sends
    Replicate(ReplicateArgs),
    /// Write a capture as an Ethernet port can send it, and say what was changed
    Prepare(PrepareArgs),
    /// Write several traces as one, each from its own beginning
    Merge(MergeArgs),
}

#[derive(Args)]
struct InfoArgs {
    #[command(flatten)]
    spec: TraceSpec,
    /// One JSON line, as a controller gets it
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct MakeArgs {
    /// What it is to look like
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(Profile::NAMES))]
    profile: String,
    /// Capture file to write; what is in it stands beside it in OUT.json
    out: PathBuf,
    /// Packets, from 100 to 5000000: the same traffic for a shorter or longer time
    #[arg(long, value_parser = clap::value_parser!(u64).range(make::PACKETS))]
    packets: Option<u64>,
    /// Another seed is another trace of the same kind
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plant flows that fire the simple content rules of this file; how often each fires stands in OUT.json
    #[arg(long, value_name = "RULES")]
    attacks: Option<PathBuf>,
}

#[derive(Args)]
struct WithholdArgs {
    /// Capture file: pcap, pcapng, snoop or ERF, also packed with gzip, zstd, xz or lz4
    trace: PathBuf,
    /// Capture file to write: pcap with times in ns; the numbers of the others, from 1, stand beside it in OUT.json
    out: PathBuf,
    /// Part of the packets, by chance
    #[arg(long, value_parser = ratio, required_unless_present = "flow")]
    ratio: Option<f64>,
    /// Another seed chooses others
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All packets of this flow, in both directions, such as `tcp 10.0.0.1:80 10.0.0.2:51312`; may be given several times
    #[arg(long, conflicts_with = "ratio")]
    flow: Vec<FlowKey>,
    /// Use what is whole of a file that ends in the middle of a packet
    #[arg(long)]
    tolerate_truncated: bool,
}

fn ratio(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|ratio| (0.0..1.0).contains(ratio))
        .ok_or_else(|| "must be a part of the packets, from 0 up to and without 1".into())
}

/// Does what the command line says.
pub fn run(args: TraceArgs) -> ExitCode {
    let done = match args.tool {
        Some(Tool::Info(args)) => info(&args),
        Some(Tool::Make(args)) => make(&args),
        Some(Tool::Cut(args)) => trace_files::cut(&args),
        Some(Tool::Withhold(args)) => withhold(&args),
        Some(Tool::Flows(args)) => trace_flows::flows(&args),
        Some(Tool::Window(args)) => trace_window::window(&args),
        Some(Tool::Replicate(args)) => trace_files::replicate(&args),
        Some(Tool::Merge(args)) => trace_files::merge(&args),
        Some(Tool::Prepare(args)) => trace_prepare::run(&args),
        None => return drive::controlled::<job::trace::Trace>(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // `| head` has seen enough.
        Err(error) if reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(error) = error.downcast_ref::<JobError>() {
                return drive::refused("trace", error);
            }
            eprintln!("nodrop-node trace: {error:#}");
            // The files of this host: what they hold has been refused above.
            ExitCode::from(3)
        }
    }
}

fn reader_is_gone(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

fn info(args: &InfoArgs) -> anyhow::Result<()> {
    let file = job::trace::open(&args.spec.trace)?;
    let progress = Progress::by_hand(&args.spec.trace, false);
    let outcome = job::trace::look(&args.spec, &file, &progress)?;
    drop(progress);
    let text = if args.json {
        format!("{}\n", serde_json::to_string(&outcome)?)
    } else {
        let mut text = outcome.info.to_string();
        if outcome.planned.is_other_than(&outcome.info) {
            text += &format!("to be sent   {}\n", outcome.planned);
        }
        if outcome.fragments_in_trial != outcome.info.fragments_in_pass {
            text += &format!("in the trial {}\n", outcome.fragments_in_trial);
        }
        text
    };
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

fn make(args: &MakeArgs) -> anyhow::Result<()> {
    let Some(profile) = Profile::named(&args.profile) else {
        bail!("no profile {}", args.profile);
    };
    let profile = match args.packets {
        Some(packets) => profile.scaled(packets),
        None => profile,
    };
    let (rules, skipped) = match &args.attacks {
        Some(path) => make::rules::read(&read_text(path).map_err(|error| {
            JobError::new("spec", format!("--attacks {}: {error}", path.display()))
        })?),
        None => (Vec::new(), Vec::new()),
    };
    if rules.len() > MOST_RULES {
        let words = format!(
            "--attacks: {} rules can be planted, and at most {MOST_RULES} are",
            rules.len()
        );
        return Err(JobError::new("spec", words)
            .hint("give a part of the file")
            .into());
    }
    refuse_without_memory(profile.memory_bytes(), available_bytes())?;
    let made = trace_files::spool(&args.out)
        .and_then(|spool| Ok(make::make(&profile, args.seed, &rules, spool)?));
    let (packets, mut made) =
        made.with_context(|| format!("the frames of {} on their way", args.out.display()))?;
    made.rules_skipped = skipped;
    write(&args.out, |out| Ok(packets.write(out)?))?;
    let contents = match contents_beside(&args.out) {
        Some(beside) => {
            write(&beside, |out| {
                serde_json::to_writer_pretty(&mut *out, &made)?;
                Ok(writeln!(out)?)
            })?;
            beside.display().to_string()
        }
        None => "not written, for there is no file to stand beside".into(),
    };
    eprintln!(
        "{}: {} packets, {} bytes, {:.3} s; contents: {contents}",
        args.out.display(),
        made.packets,
        made.frame_bytes,
        std::time::Duration::from_nanos(made.duration_ns).as_secs_f64(),
    );
    Ok(())
}

/// Writes a capture without some of its packets: what a SUT then cannot have seen is known.
fn withhold(args: &WithholdArgs) -> anyhow::Result<()> {
    trace_files::must_be_another(&args.out, &[&args.trace])?;
    let progress = Progress::by_hand(&args.trace, false);
    let bytes = contents(&args.trace, args.tolerate_truncated, &progress)?;
    let bad = |words: &dyn std::fmt::Display| trace_files::unusable(&args.trace, words);
    let (mut rng, mut withheld, mut packets) = (make::Rng::new(args.seed, 0), Vec::new(), 0_u64);
    write(&args.out, |out| {
        out.write_all(&file_header())?;
        let records = Reader::new(&bytes, args.tolerate_truncated).map_err(|error| bad(&error))?;
        for record in records {
            let record = record.map_err(|error| bad(&error))?;
            packets += 1;
            let chosen = match args.ratio {
                Some(ratio) => rng.chance(ratio),
                None => {
                    FlowKey::innermost(record.frame).is_some_and(|flow| args.flow.contains(&flow))
                }
            };
            if chosen {
                withheld.push(packets);
                continue;
            }
            let length = u32::try_from(record.frame.len())?;
            let header = record_header(record.timestamp_ns, length, record.original_bytes);
            out.write_all(&header)?;
            out.write_all(record.frame)?;
        }
        if withheld.len() as u64 == packets {
            return Err(bad(&"no packet is left").into());
        }
        if withheld.is_empty() && !args.flow.is_empty() {
            return Err(bad(&"no packet belongs to a flow that is to be left out").into());
        }
        Ok(())
    })?;
    let result = serde_json::json!({"packets": packets, "withheld": withheld});
    if let Some(beside) = contents_beside(&args.out) {
        write(&beside, |out| Ok(serde_json::to_writer(out, &result)?))?;
    }
    eprintln!(
        "{}: {} of {packets} packets withheld",
        args.out.display(),
        withheld.len()
    );
    Ok(())
}

/// OUT.json; `None` for a pipe, a device, and another name of an open file such as /dev/stdout.
fn contents_beside(out: &Path) -> Option<PathBuf> {
    let is_file = out.metadata().is_ok_and(|found| found.is_file());
    (is_file && folder_of(out).is_some()).then(|| {
        let mut name = out.as_os_str().to_owned();
        name.push(".json");
        name.into()
    })
}

fn refuse_without_memory(needed: u64, available: Option<u64>) -> Result<(), JobError> {
    match available {
        Some(available) if available < needed => {
            let words = format!(
                "where each packet lies is in memory while a trace is made, which takes about {} MiB, and this host has {} MiB available",
                needed >> 20,
                available >> 20
            );
            Err(JobError::new("spec", words).hint("give fewer --packets, or free memory"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_memory_does_not_hold_is_refused_before_it_is_made() {
        for (needed, available, fits) in [
            (5 << 30, Some(4 << 30), false),
            (5 << 30, Some(5 << 30), true),
            (1 << 20, Some(0), false),
            (u64::MAX, None, true),
        ] {
            let done = refuse_without_memory(needed, available);
            assert_eq!(done.is_ok(), fits, "{needed} of {available:?}");
            if let Err(error) = done {
                assert!(
                    error
                        .message
                        .contains(&format!("about {} MiB", needed >> 20))
                );
                assert_eq!(error.exit_code(), 2);
            }
        }
    }
}
