//! Job `probe`: look once and say what was seen; nothing is changed, no start is needed.

mod account;
mod af_packet;
mod captures;
mod counters;
mod driven;
mod flows;
mod host;
mod kvm;
mod namespace;
mod process;
mod processes;
mod proof;
mod sensor;
mod spells;
mod tsc;
mod usage;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use nodrop_counters::vmx::{self, Vmx};
use nodrop_proto::{JobError, ProbeSpec, ProbeWhat};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job::{Job, unreadable};
use crate::session::Session;

/// The words asked, in order.
pub struct Probe {
    spec: ProbeSpec,
    /// What `captures` keeps open for the next look.
    captures: Option<captures::CaptureReader>,
}

/// One object per word asked.
#[derive(JsonSchema, Serialize, Default)]
#[schemars(rename = "ProbeResult")]
pub struct Seen {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "host::Host")]
    host: Option<host::Host>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "counters::Counters")]
    counters: Option<counters::Counters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "af_packet::Proof")]
    af_packet: Option<af_packet::Proof>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, Option<process::Inside>>")]
    process: Option<BTreeMap<u32, Option<process::Inside>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, Option<proof::Proof>>")]
    proof: Option<BTreeMap<u32, Option<proof::Proof>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, processes::Entry>")]
    processes: Option<BTreeMap<u32, processes::Entry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, Option<usage::ProcessUsage>>")]
    usage: Option<BTreeMap<u32, Option<usage::ProcessUsage>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, Option<u64>>")]
    account: Option<BTreeMap<u32, Option<u64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "tsc::Costs")]
    tsc: Option<tsc::Costs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vmx")]
    vmx: Option<Vmx>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "kvm::Kvm")]
    kvm: Option<kvm::Kvm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "captures::Captures")]
    captures: Option<captures::Captures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "captures::Levels")]
    rings: Option<captures::Levels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "spells::Seen")]
    spells: Option<spells::Seen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "sensor::Look")]
    sensor: Option<sensor::Look>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "flows::Seen")]
    flows: Option<flows::Seen>,
}

impl Job for Probe {
    const NAME: &'static str = "probe";
    type Spec = ProbeSpec;
    type Ready = ();
    type Outcome = Seen;

    fn prepare(spec: ProbeSpec, _session: &Session) -> Result<(Self, ()), JobError> {
        if spec.what.is_empty() {
            return Err(JobError::new("spec", "field `what`: nothing asked for")
                .hint("any of host, counters, af_packet, process, proof, processes, account, usage, tsc, vmx, kvm, captures, rings, sensor, spells, flows"));
        }
        let captures = None;
        Ok((Self { spec, captures }, ()))
    }

    fn again(self, spec: ProbeSpec, session: &Session) -> Result<(Self, ()), JobError> {
        let (probe, ready) = Self::prepare(spec, session)?;
        let captures = self.captures;
        Ok((Self { captures, ..probe }, ready))
    }

    fn run(&mut self, session: &Session) -> Result<Seen, JobError> {
        let mut seen = Seen::default();
        for what in &self.spec.what {
            match what {
                ProbeWhat::Host => seen.host = Some(host::read().map_err(unreadable)?),
                ProbeWhat::Counters => {
                    seen.counters = Some(counters::read(&self.spec.ports).map_err(unreadable)?)
                }
                ProbeWhat::AfPacket => seen.af_packet = Some(af_packet::prove()?),
                ProbeWhat::Process => {
                    let root = Path::new("/");
                    let look = |pid: &u32| Ok((*pid, process::look(root, *pid)?));
                    let each = self.spec.pids.iter().map(look);
                    seen.process = Some(each.collect::<Result<_, _>>().map_err(unreadable)?);
                }
                ProbeWhat::Proof => {
                    let prove = |pid: &u32| Ok((*pid, proof::of(*pid, &self.spec.files)?));
                    let each = self.spec.pids.iter().map(prove);
                    seen.proof = Some(each.collect::<Result<_, _>>().map_err(unreadable)?);
                }
                ProbeWhat::Processes => {
                    seen.processes = Some(processes::list().map_err(unreadable)?)
                }
                ProbeWhat::Account => {
                    let root = Path::new("/");
                    let read = |pid: &u32| Ok((*pid, account::cpu_ns(root, *pid)?));
                    let each = self.spec.pids.iter().map(read);
                    seen.account = Some(each.collect::<Result<_, _>>().map_err(unreadable)?);
                }
                ProbeWhat::Usage => {
                    seen.usage = Some(usage::read(&self.spec.pids).map_err(unreadable)?)
                }
                ProbeWhat::Tsc => seen.tsc = Some(tsc::measure()?),
                ProbeWhat::Vmx => seen.vmx = Some(vmx::read(Path::new("/"))),
                ProbeWhat::Kvm => seen.kvm = Some(kvm::measure()),
                ProbeWhat::Captures => {
                    if self.captures.is_none() {
                        let opened = captures::CaptureReader::new(Path::new("/"), &self.spec.pids);
                        self.captures = Some(opened.map_err(unreadable)?);
                    }
                    let looked = self.captures.as_mut().map(captures::CaptureReader::look);
                    seen.captures = looked.transpose().map_err(unreadable)?;
                }
                ProbeWhat::Rings => {
                    seen.rings = self.captures.as_ref().map(captures::CaptureReader::levels)
                }
                ProbeWhat::Spells => {
                    seen.spells = match &mut self.captures {
                        Some(captures) => Some(captures.spells().map_err(unstarted)?),
                        None => None,
                    }
                }
                ProbeWhat::Sensor => {
                    seen.sensor = Some(sensor::look(&self.spec.ports, &self.spec.files));
                }
                ProbeWhat::Flows => {
                    let time = Duration::from_millis(self.spec.listen_ms.into());
                    seen.flows = Some(flows::listen(&self.spec.groups, time, session));
                }
            }
        }
        Ok(seen)
    }
}

fn unstarted(error: std::io::Error) -> JobError {
    JobError::new("thread", error.to_string())
}
