//! Every program of this host that captures packets, and what was counted on the way to it: ports, rings, threads. In whatever
//! network namespace it is, and without changing a counter of anybody's.

mod control;
mod holders;
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nodrop_counters::{
    Fanout, PacketCounts, PacketCountsReader, ProcessTree, Result, RingFill, RingLevel, RingShape,
    SoftnetReader, SoftnetRow, ThreadReading, read_usage, ring_addresses, ring_fill, ring_level,
};
use nodrop_sys::clock::{mono_ns, real_ns};
use schemars::JsonSchema;
use serde::Serialize;

use super::driven::driven;
use super::sensor::Lack;
use super::spells::{self, Spells};
use super::usage::ProcessUsage;
pub use control::{Control, Said};
use holders::{Holder, Holders, Missing};
pub use holders::{arguments, stopped};
use ports::{PortCounts, Ports, Reassembled};

/// All that one look saw; docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
pub struct Captures {
    mono_ns: u64,
    real_ns: u64,
    /// From the first reading of a counter to the last: what moves meanwhile is read before and after.
    took_ns: u64,
    softnet: Vec<SoftnetRow>,
    sockets: Vec<Socket>,
    ports: Vec<PortCounts>,
    /// IPv4 reassembly of each network namespace, by its number, before and after.
    reassembly: BTreeMap<u64, [Reassembled; 2]>,
    programs: BTreeMap<u32, Program>,
    /// Network namespace of this process, as `ports` number theirs; `None`: it may not be read.
    namespace: Option<u64>,
    driven: Vec<Lack>,
    missing: Vec<Missing>,
}

/// Levels of the rings that the last look at `captures` saw, by inode of their socket.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "RingLevels")]
pub struct Levels {
    mono_ns: u64,
    rings: BTreeMap<u64, RingLevel>,
}

/// A packet socket that receives.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CaptureSocket")]
struct Socket {
    inode: u64,
    /// `None`: we may not see who holds it.
    pid: Option<u32>,
    fd: Option<u32>,
    /// Stands for its network namespace; the same number in `ports`.
    namespace: u64,
    /// 0 = every port of it, -1 = the port is gone.
    ifindex: i32,
    /// `None`: not known; see `missing`. A socket known by the table alone may have a ring.
    ring: Option<RingShape>,
    fanout: Option<Fanout>,
    /// Whether it takes only some of the port's packets: a filter of its owner, or one EtherType alone; `None`: not known.
    selective: Option<bool>,
    /// Bytes that wait in the socket's buffer; never those in a ring.
    receive_queue_bytes: Option<u64>,
    /// Since its owner last asked; `None`: not known.
    counted: Option<Counted>,
    /// What the ring held, before and after.
    waiting: Option<[RingFill; 2]>,
}

#[derive(Clone, Copy, JsonSchema, Serialize)]
#[schemars(rename = "SocketCounted")]
struct Counted {
    /// Without those that were dropped.
    tp_packets: u64,
    tp_drops: u64,
    tp_freezes: u64,
}

/// A process that holds such a socket.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CaptureProgram")]
struct Program {
    name: String,
    arguments: Vec<String>,
    /// Whether it stands still: SIGSTOP, a debugger, a frozen control group.
    stopped: bool,
    usage: ProcessUsage,
    threads: Vec<ThreadReading>,
    /// `None` if the program has no counters to ask for.
    suricata: Option<Said>,
}

/// ETH_P_ALL.
const ALL: u32 = 3;
/// Readings anew if counters fell between two.
const OWNERS_TURN: u32 = 3;

/// What stays open from look to look.
pub struct CaptureReader {
    root: PathBuf,
    counts: std::result::Result<PacketCountsReader, String>,
    holders: Holders,
    ports: Ports,
    programs: BTreeMap<(u32, u64), Known>,
    /// The only programs that are looked at, with their children; `None`: all of the host.
    only: Option<ProcessTree>,
    spells: Option<Spells>,
}

/// Of a program, by PID and start.
struct Known {
    tree: ProcessTree,
    arguments: Vec<String>,
    rings: BTreeMap<u64, u64>,
    control: Option<Control>,
}

impl CaptureReader {
    /// `root` is `/` in production and a fixture folder in tests, which have no sockets of a kernel. `only` are the roots of the
    /// process trees that are looked at; empty: every program.
    pub fn new(root: &Path, only: &[u32]) -> Result<Self> {
        crate::job::hold_many_files();
        let only = if only.is_empty() {
            None
        } else {
            Some(ProcessTree::new(root, only)?)
        };
        Ok(Self {
            only,
            root: root.into(),
            counts: PacketCountsReader::new(root).map_err(|error| error.to_string()),
            holders: Holders::default(),
            ports: Ports::default(),
            programs: BTreeMap::new(),
            spells: None,
        })
    }

    /// Ports, rings, sockets, rings, ports: whatever moves lies between two readings.
    pub fn look(&mut self) -> Result<Captures> {
        if let Some(tree) = &mut self.only {
            tree.rescan()?;
        }
        for known in self.programs.values_mut() {
            if let Some(control) = &mut known.control {
                control.begin_look();
            }
        }
        let mut missing = BTreeSet::new();
        // Once more if there was a socket that the first did not know: its port and its ring were not read before.
        for _ in 0..3 {
            let known = self.known();
            let found = self.once(&mut missing)?;
            if self.known() == known {
                return Ok(found);
            }
        }
        self.once(&mut missing)
    }

    fn known(&self) -> (Vec<(u64, i32)>, Vec<u64>) {
        let rings = self.holders.shapes.keys().copied();
        (self.ports.names(), rings.collect())
    }

    fn once(&mut self, missing: &mut BTreeSet<Missing>) -> Result<Captures> {
        missing.clear();
        let (began_ns, real_ns) = (mono_ns(), real_ns());
        let (mut seen, mut said, mut unsure) = self.counted(missing)?;
        // An owner that read its counters meanwhile has set them to zero, and its sums have them or not: Suricata once a second,
        // and with each loss.
        for _ in 0..OWNERS_TURN {
            if unsure.is_empty() {
                break;
            }
            (seen, said, unsure) = self.counted(missing)?;
        }
        let Moment {
            before,
            fills,
            held,
            fills_after,
            after,
        } = seen;
        let took_ns = mono_ns() - began_ns;
        self.ports.keep(&self.root, &held, missing);
        let sockets = held
            .into_iter()
            .map(|one| {
                let counts = one.counts.as_ref();
                Socket {
                    inode: one.inode,
                    pid: one.pid,
                    fd: counts.map(|counts| counts.fd),
                    namespace: one.namespace,
                    ifindex: one.ifindex,
                    ring: counts.and_then(|counts| counts.ring),
                    fanout: counts.and_then(|counts| counts.fanout),
                    selective: counts.map(|counts| counts.filtered || counts.protocol != ALL),
                    receive_queue_bytes: one.receive_queue_bytes,
                    counted: counts.map(counted),
                    waiting: fills
                        .get(&one.inode)
                        .zip(fills_after.get(&one.inode))
                        .map(|(first, last)| [*first, *last]),
                }
            })
            .collect();
        let mut softnet = Vec::new();
        SoftnetReader::new(&self.root)?.read(&mut softnet)?;
        Ok(Captures {
            mono_ns: began_ns,
            real_ns,
            took_ns,
            softnet,
            sockets,
            reassembly: ports::reassembly(&before, &after),
            ports: ports::both(before, after),
            programs: self.described(said)?,
            namespace: holders::namespace(&self.root, std::process::id()),
            driven: driven(&self.root),
            missing: missing.iter().cloned().collect(),
        })
    }

    /// The sockets between two readings of everything that moves; and owners whose sums moved around them: the sockets' counters are
    /// in the later ones or not.
    fn counted(
        &mut self,
        missing: &mut BTreeSet<Missing>,
    ) -> Result<(Moment, BTreeMap<u32, Said>, BTreeSet<u32>)> {
        let said_before = self.ask();
        let before = self.ports.read();
        let fills = self.fills();
        let held = self.sockets(missing)?;
        let fills_after = self.fills();
        let after = self.ports.read();
        let pids: BTreeSet<u32> = held.iter().filter_map(|one| one.pid).collect();
        self.follow(&pids, &held, missing);
        let said: BTreeMap<u32, Said> = self
            .ask()
            .into_iter()
            .map(|(pid, said)| (pid, said.after(said_before.get(&pid))))
            .collect();
        let moved = said
            .iter()
            .filter(|(pid, said)| said_before.get(pid).is_none_or(|old| old.moved(said)))
            .map(|(pid, _)| *pid)
            .collect();
        let moment = Moment {
            before,
            fills,
            held,
            fills_after,
            after,
        };
        Ok((moment, said, moved))
    }

    /// Those that receive, with whoever holds them.
    fn sockets(&mut self, missing: &mut BTreeSet<Missing>) -> Result<Vec<Holder>> {
        let mut held = self.every_socket(missing)?;
        if let Some(tree) = &self.only {
            let pids: BTreeSet<_> = tree.readings().iter().map(|one| Some(one.pid)).collect();
            held.retain(|one| pids.contains(&one.pid));
        }
        Ok(held)
    }

    fn every_socket(&mut self, missing: &mut BTreeSet<Missing>) -> Result<Vec<Holder>> {
        match &mut self.counts {
            Ok(reader) => Ok(self.holders.of_counts(&self.root, reader.read()?)),
            Err(why) => {
                missing.insert(Missing {
                    what: "arrived and dropped of each socket ring, its size and fanout group"
                        .into(),
                    needs: "CAP_BPF and CAP_PERFMON (root), and a kernel with BTF (5.11 or later)"
                        .into(),
                    why: why.clone(),
                });
                self.holders.of_tables(&self.root, missing)
            }
        }
    }

    /// Opens what is new and forgets what has ended.
    fn follow(&mut self, pids: &BTreeSet<u32>, held: &[Holder], missing: &mut BTreeSet<Missing>) {
        let mut living = BTreeSet::new();
        for pid in pids {
            let Ok(Some(usage)) = read_usage(&self.root, *pid) else {
                continue;
            };
            let key = (*pid, usage.start_ticks);
            living.insert(key);
            if !self.programs.contains_key(&key) {
                let Ok(tree) = ProcessTree::new(&self.root, &[*pid]) else {
                    continue;
                };
                let known = Known {
                    tree,
                    arguments: holders::arguments(&self.root, *pid),
                    rings: BTreeMap::new(),
                    control: Control::of(&self.root, *pid, &usage.name),
                };
                self.programs.insert(key, known);
            }
            let Some(known) = self.programs.get_mut(&key) else {
                continue;
            };
            // A main thread that took its name since, or a socket of commands that came later than the capture.
            if known.control.is_none() {
                known.control = Control::of(&self.root, *pid, &usage.name);
            }
            let rings: Vec<_> = held
                .iter()
                .filter(|one| one.pid == Some(*pid))
                .filter(|one| one.counts.as_ref().is_some_and(|c| c.ring.is_some()))
                .collect();
            if rings
                .iter()
                .any(|one| !known.rings.contains_key(&one.inode))
            {
                match ring_addresses(&self.root, *pid) {
                    Ok(found) => known.rings = found,
                    Err(error) if error.is_gone() => {}
                    Err(error) => {
                        missing.insert(Missing {
                            what: format!("what waits in the rings of {} {pid}", usage.name),
                            needs: "CAP_SYS_PTRACE, or to be the same user".into(),
                            why: error.to_string(),
                        });
                    }
                }
            }
        }
        self.programs.retain(|key, _| living.contains(key));
        self.holders.shapes = held
            .iter()
            .filter_map(|one| Some((one.inode, (one.pid?, one.counts.as_ref()?.ring?))))
            .collect();
    }

    /// How full the rings are that the last look saw: nothing else is read, so it can be asked often.
    pub fn levels(&self) -> Levels {
        Levels {
            mono_ns: mono_ns(),
            rings: self.rings(|pid, address, shape| ring_level(pid, address, shape).ok()),
        }
    }

    /// Spells since the last question, of the programs that the last look saw.
    pub fn spells(&mut self) -> std::io::Result<spells::Seen> {
        let spells = match self.spells.take() {
            Some(spells) => spells,
            None => Spells::begin()?,
        };
        let pids = self.programs.keys().map(|(pid, _)| *pid).collect();
        Ok(self.spells.insert(spells).ask(pids))
    }

    fn fills(&self) -> BTreeMap<u64, RingFill> {
        self.rings(|pid, address, shape| ring_fill(pid, address, shape, None).ok().flatten())
    }

    /// Of the rings that the look before knew.
    fn rings<T>(&self, read: impl Fn(u32, u64, &RingShape) -> Option<T>) -> BTreeMap<u64, T> {
        let address = |pid: u32, inode: &u64| {
            let mut of_pid = self.programs.range((pid, 0)..=(pid, u64::MAX));
            of_pid.find_map(|(_, known)| known.rings.get(inode))
        };
        let known = self.holders.shapes.iter();
        known
            .filter_map(|(inode, (pid, shape))| {
                Some((*inode, read(*pid, *address(*pid, inode)?, shape)?))
            })
            .collect()
    }

    fn ask(&mut self) -> BTreeMap<u32, Said> {
        let asked = self.programs.iter_mut().filter_map(|((pid, _), known)| {
            let stopped = holders::stopped(&self.root, *pid);
            Some((*pid, known.control.as_mut()?.ask(stopped)))
        });
        asked.collect()
    }

    fn described(&mut self, mut said: BTreeMap<u32, Said>) -> Result<BTreeMap<u32, Program>> {
        let mut programs = BTreeMap::new();
        for ((pid, _), known) in &mut self.programs {
            // A file that another user's process hides: the others go on.
            if known
                .tree
                .rescan()
                .and_then(|()| known.tree.read())
                .is_err()
            {
                continue;
            }
            let usage = super::usage::read(&[*pid])?.remove(pid).flatten();
            let (Some(usage), Some(reading)) = (usage, known.tree.readings().first()) else {
                continue; // it has just ended
            };
            let program = Program {
                name: reading.name.clone(),
                arguments: known.arguments.clone(),
                stopped: holders::stopped(&self.root, *pid),
                usage,
                threads: reading.threads.clone(),
                suricata: said.remove(pid),
            };
            programs.insert(*pid, program);
        }
        Ok(programs)
    }
}

/// What was read around one reading of the sockets.
struct Moment {
    before: ports::Reading,
    fills: BTreeMap<u64, RingFill>,
    held: Vec<Holder>,
    fills_after: BTreeMap<u64, RingFill>,
    after: ports::Reading,
}

fn counted(counts: &PacketCounts) -> Counted {
    Counted {
        tp_packets: counts.tp_packets,
        tp_drops: counts.tp_drops,
        tp_freezes: counts.tp_freezes,
    }
}
