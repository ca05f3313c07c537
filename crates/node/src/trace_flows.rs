//! `nodrop-node trace flows`: the flow of each packet that a replay sends, in the order of sending.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use nodrop_proto::{Flows, TraceSpec};
use nodrop_wire::flow::FlowKey;

use crate::job::replay::scheduled;
use crate::trace_files::{must_be_another, unusable, write};

#[derive(Args)]
pub struct FlowsArgs {
    #[command(flatten)]
    spec: TraceSpec,
    /// File to write: a line of JSON with all flows (name, protocol number, the lower of both ports), then for each packet the number of its flow and that of the copy of the
    /// trace whose addresses it has, 4 bytes each, the lowest first
    #[arg(long)]
    out: PathBuf,
    /// Refuse a replay of more packets
    #[arg(long, default_value_t = 1 << 22)]
    most_packets: u64,
}

/// Writes the flows; what is no IP has the number after the last one.
pub fn flows(args: &FlowsArgs) -> anyhow::Result<()> {
    must_be_another(&args.out, &[&args.spec.trace])?;
    let (trace, plan) = scheduled(&args.spec.as_replay(), true)?;
    if plan.intended_packets() > args.most_packets {
        let words = format!("the replay has {} packets", plan.intended_packets());
        return Err(unusable(&args.spec.trace, &words).into());
    }
    let mut known = BTreeMap::new();
    let mut names = Vec::new();
    let numbers: Vec<Option<usize>> = (0..trace.packets().len())
        .map(|packet| {
            let flow = FlowKey::innermost(trace.original(packet))?;
            Some(*known.entry(flow).or_insert_with(|| {
                names.push(serde_json::json!({
                    "name": flow.to_string(),
                    "protocol": flow.protocol,
                    "port": flow.low.1.min(flow.high.1),
                }));
                names.len() - 1
            }))
        })
        .collect();
    let is_same = args.spec.flows == Flows::Same;
    write(&args.out, |out| {
        serde_json::to_writer(&mut *out, &serde_json::json!({ "flows": names }))?;
        out.write_all(b"\n")?;
        for slot in plan.slots(&trace) {
            let flow = u32::try_from(numbers[slot.packet].unwrap_or(names.len()))?;
            let copy = if is_same { 0 } else { slot.copy };
            out.write_all(&flow.to_le_bytes())?;
            out.write_all(&copy.to_le_bytes())?;
        }
        Ok(())
    })
}
