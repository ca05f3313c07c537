//! What rows are made of, read from files and sockets that stay open.

use std::path::Path;

use nodrop_counters::{
    CgroupReader, DiskReader, EthtoolReader, InterruptReader, LinkReader, LoadReader, MemoryReader,
    Named, ProcessReading, ProcessTree, Result, SnmpReader, SoftnetReader, StatReader, SwapReader,
};
use nodrop_proto::{SampleSource, SampleSpec};
use nodrop_sys::clock::{mono_ns, real_ns};

use super::row::Row;
use super::schedule::Due;

/// The sources and the row they were last read into, for the sampler and for requests for metrics.
pub struct Watched {
    pub sources: Sources,
    pub row: Row,
}

/// Everything that is held open; `None` = not asked for.
pub struct Sources {
    stat: Option<StatReader>,
    memory: Option<MemoryReader>,
    swap: Option<SwapReader>,
    disks: Option<DiskReader>,
    load: Option<LoadReader>,
    softnet: Option<SoftnetReader>,
    interrupts: Option<InterruptReader>,
    links: Option<LinkReader>,
    ports: Vec<String>,
    ethtool: Vec<(String, EthtoolReader)>,
    snmp: Option<SnmpReader>,
    cgroup: Option<CgroupReader>,
    cgroups: Vec<(String, CgroupReader)>,
    tree: ProcessTree,
    beside: ProcessTree,
    asked: Due,
}

impl Sources {
    /// An absent process, interface or control group is an error; it must be there when the sampler starts.
    pub fn open(spec: &SampleSpec) -> Result<Self> {
        use SampleSource as S;
        let root = Path::new("/");
        let mut asked = Due::default();
        for source in SampleSource::ALL {
            if spec.interval_of(source) > 0 {
                asked.add(source);
            }
        }
        let wants = |source| asked.has(source).then_some(());
        let reads_cgroups = asked.has(S::Cgroup);
        let tree_of = |pids: &[u32]| {
            let followed = if asked.has(S::Tree) { pids } else { &[] };
            ProcessTree::new(root, followed)
        };
        Ok(Self {
            stat: wants(S::Cpus).map(|()| StatReader::new(root)).transpose()?,
            memory: wants(S::Memory)
                .map(|()| MemoryReader::new(root))
                .transpose()?,
            swap: wants(S::Swap).map(|()| SwapReader::new(root)).transpose()?,
            disks: wants(S::Disks)
                .map(|()| DiskReader::new(root))
                .transpose()?,
            load: wants(S::Load).map(|()| LoadReader::new(root)).transpose()?,
            softnet: wants(S::Softnet)
                .map(|()| SoftnetReader::new(root))
                .transpose()?,
            interrupts: wants(S::Interrupts)
                .map(|()| InterruptReader::new(root, &spec.ports))
                .transpose()?,
            links: wants(S::Links)
                .map(|()| links_of(&spec.ports))
                .transpose()?,
            ethtool: each(&spec.ports, asked.has(S::Ethtool), |port| {
                Ok((port.clone(), EthtoolReader::new(port)?))
            })?,
            snmp: wants(S::Snmp).map(|()| SnmpReader::new(root)).transpose()?,
            cgroup: spec
                .cgroup_of_pid
                .filter(|_| reads_cgroups)
                .map(|pid| CgroupReader::of_process(root, pid))
                .transpose()?,
            cgroups: each(&spec.cgroups, reads_cgroups, |path| {
                let reader = CgroupReader::of_path(root, path)?;
                Ok((path.display().to_string(), reader))
            })?,
            tree: tree_of(&spec.pids)?,
            beside: tree_of(&spec.beside_pids)?,
            ports: spec.ports.clone(),
            asked,
        })
    }

    /// Fills `row` with what is due and asked for; the processes come first, because they change fastest.
    pub fn read(&mut self, due: Due, row: &mut Row) -> Result<()> {
        use SampleSource as S;
        (row.mono_ns, row.real_ns) = (mono_ns(), real_ns());
        let mut shown = Due::default();
        // In the order of reading: the control group's 10 us belong beside the tree's.
        for source in [
            S::Details,
            S::Tree,
            S::Cgroup,
            S::Cpus,
            S::Links,
            S::Softnet,
            S::Memory,
            S::Load,
            S::Interrupts,
            S::Ethtool,
            S::Snmp,
            S::Disks,
            S::Swap,
        ] {
            if due.has(source) && self.asked.has(source) {
                row.age_us.read(source, mono_ns());
                self.read_one(source, row)?;
                shown.add(source);
            }
        }
        row.show_only(shown);
        row.age_us.end(mono_ns());
        Ok(())
    }

    fn read_one(&mut self, source: SampleSource, row: &mut Row) -> Result<()> {
        match source {
            SampleSource::Details => {
                self.tree.rescan()?;
                self.beside.rescan()?;
            }
            SampleSource::Tree => {
                self.tree.read()?;
                *row.tree = self.tree.totals();
                self.beside.read()?;
                self.beside.readings().clone_into(&mut row.beside);
            }
            SampleSource::Cgroup => self.read_cgroups(row)?,
            SampleSource::Cpus => when(&mut self.stat, |r| r.read(&mut row.cpus))?,
            SampleSource::Links => self.read_links(row)?,
            SampleSource::Softnet => when(&mut self.softnet, |r| r.read(&mut row.softnet))?,
            SampleSource::Memory => {
                when(&mut self.memory, |r| r.read().map(|m| *row.memory = m))?;
            }
            SampleSource::Load => when(&mut self.load, |reader| {
                *row.load = reader.load()?;
                *row.pressure = reader.pressure()?;
                Ok(())
            })?,
            SampleSource::Interrupts => {
                when(&mut self.interrupts, |r| r.read(&mut row.interrupts))?;
            }
            SampleSource::Ethtool => self.read_ethtool(row)?,
            SampleSource::Snmp => when(&mut self.snmp, |r| r.read(&mut row.snmp))?,
            SampleSource::Disks => when(&mut self.disks, |r| r.read(&mut row.disks))?,
            SampleSource::Swap => when(&mut self.swap, |r| r.read().map(|s| *row.swap = s))?,
        }
        Ok(())
    }

    /// The living processes as of the last reading.
    pub fn processes(&self) -> &[ProcessReading] {
        self.tree.readings()
    }

    /// Names and highest memory once more, then every process that was ever followed.
    pub fn final_processes(&mut self) -> Result<Vec<ProcessReading>> {
        self.tree.rescan()?;
        self.tree.read()?;
        Ok(self
            .tree
            .readings()
            .iter()
            .chain(self.tree.ended())
            .cloned()
            .collect())
    }

    /// A port that goes away while we look has no row any more, until there is one of its name again.
    fn read_links(&mut self, row: &mut Row) -> Result<()> {
        let Some(links) = &mut self.links else {
            return Ok(());
        };
        let mut there = row.links.renew();
        for port in &self.ports {
            match links.stats(port) {
                Ok(stats) => there.put(&[port], stats),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn read_ethtool(&mut self, row: &mut Row) -> Result<()> {
        let mut ports = row.ethtool.renew();
        for (port, reader) in &mut self.ethtool {
            let counters = ports.place(&[port]);
            match reader.read(counters) {
                Err(e) if e.is_gone() => *counters = Named::default(),
                read => read?,
            }
        }
        Ok(())
    }

    /// Removed with its container: what it had used last stands for the one of a process, the others have no row any more.
    fn read_cgroups(&mut self, row: &mut Row) -> Result<()> {
        if let Some(reader) = &mut self.cgroup {
            match reader.read() {
                Ok(cgroup) => *row.cgroup = Some(cgroup),
                Err(e) if e.is_gone() => self.cgroup = None,
                Err(e) => return Err(e),
            }
        }
        let mut there = row.cgroups.renew();
        for (path, reader) in &mut self.cgroups {
            match reader.read() {
                Ok(cgroup) => there.put(&[path], cgroup),
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Each port must be there at the start.
fn links_of(ports: &[String]) -> Result<LinkReader> {
    let mut links = LinkReader::new()?;
    for port in ports {
        links.stats(port)?;
    }
    Ok(links)
}

fn when<R>(reader: &mut Option<R>, read: impl FnOnce(&mut R) -> Result<()>) -> Result<()> {
    reader.as_mut().map_or(Ok(()), read)
}

fn each<T, R>(of: &[T], wanted: bool, open: impl Fn(&T) -> Result<R>) -> Result<Vec<R>> {
    let of = if wanted { of } else { &[] };
    of.iter().map(open).collect()
}
