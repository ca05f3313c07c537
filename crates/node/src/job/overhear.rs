//! Job `overhear`: counts frames of one EtherType at interfaces that should have none of them.

use std::collections::BTreeMap;

use nodrop_io::IoError;
use nodrop_io::overhear::{Mac, Overhearing};
use nodrop_proto::{JobError, OverhearReady, OverhearResult, OverhearSpec, Overheard};

use crate::job::{Job, interface_error};
use crate::session::Session;

/// So often the sockets are emptied: each holds some frames even if they are long.
const EMPTIED_NS: u64 = 2_000_000;

/// Listens.
pub struct Overhear {
    at: Vec<Overhearing>,
}

impl Job for Overhear {
    const NAME: &'static str = "overhear";
    type Spec = OverhearSpec;
    type Ready = OverhearReady;
    type Outcome = OverhearResult;

    fn prepare(spec: OverhearSpec, _session: &Session) -> Result<(Self, OverhearReady), JobError> {
        let mut at = Vec::new();
        for interface in &spec.interfaces {
            match Overhearing::open(interface, spec.ethertype) {
                Ok(one) => at.push(one),
                Err(IoError::NoSuchInterface(_)) => {}
                Err(error) => return Err(interface_error(&error)),
            }
        }
        let interfaces = at.iter().map(|one| one.interface().to_owned()).collect();
        Ok((Self { at }, OverhearReady { interfaces }))
    }

    fn run(&mut self, session: &Session) -> Result<OverhearResult, JobError> {
        let mut found = BTreeMap::new();
        let mut next = session.wait_start();
        loop {
            next += EMPTIED_NS;
            let ends = session.sleep_until(next);
            self.empty(&mut found).map_err(|e| interface_error(&e))?;
            if ends {
                break;
            }
        }
        let mut lost_packets = 0;
        for one in &self.at {
            lost_packets += one.lost().map_err(|e| interface_error(&e))?;
        }
        let heard = found
            .into_iter()
            .map(|((index, source), packets)| Overheard {
                interface: self.at[index].interface().to_owned(),
                source: source.map(|byte| format!("{byte:02x}")).join(":"),
                packets,
            });
        Ok(OverhearResult {
            heard: heard.collect(),
            lost_packets,
        })
    }
}

impl Overhear {
    fn empty(&self, found: &mut BTreeMap<(usize, Mac), u64>) -> Result<(), IoError> {
        for (index, one) in self.at.iter().enumerate() {
            while let Some(source) = one.next()? {
                *found.entry((index, source)).or_default() += 1;
            }
        }
        Ok(())
    }
}
