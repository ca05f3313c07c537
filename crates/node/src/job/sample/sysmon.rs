//! The columns of sysmon.py, the monitor of the 2016 studies, so that old scripts and our importer read today's runs.
//!
//! docs/reference/counters.md says what each column means. Unlike the original, intervals do not drift and a row
//! follows from two readings of the same moment in every file.

use std::io::Write;
use std::path::Path;

use nodrop_counters::{CpuTimes, Disk, LinkStats, ProcessReading};
use nodrop_proto::{JobError, SampleSpec};

use super::row::Row;
use super::spool::{Spool, failed};

const SYSTEM_TAIL: &str = ", %MEM, mem.total.KB, mem.used.KB, mem.avail.KB, mem.free.KB, %SWAP, swap.total.KB, swap.used.KB, swap.free.KB, \
                           io.read, io.write, io.read.KB, io.write.KB, io.read.ms, io.write.ms";
const PORT_HEAD: &str = "Timestamp,  Uptime, NIC, sent.B, recv.B, sent.pkts, recv.pkts, err.in, err.out, drop.in, drop.out";
const PROCESS_HEAD: &str = "Timestamp, Uptime, %CPU, %MEM, io.read, io.read.KB, io.write, io.write.KB, mem.rss.KB, nctxsw, nthreads";

/// sysstat.csv, netstat.PORT.csv for each port and, if processes were asked for, psstat.csv.
pub struct Sysmon {
    system: Spool,
    ports: Vec<(String, Spool, LinkStats)>,
    processes: Option<Spool>,
    before: Option<Before>,
}

/// Of the row before.
struct Before {
    begin_s: u64,
    mono_ns: u64,
    cpus: Vec<CpuTimes>,
    disks: Disk,
    tree_cpu_ns: u64,
}

impl Sysmon {
    /// Makes the folder if it is missing.
    pub fn open(folder: &Path, spec: &SampleSpec) -> Result<Self, JobError> {
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
        let create = |name: &str| Spool::create(&folder.join(name));
        let mut ports = Vec::new();
        for port in &spec.ports {
            let mut spool = create(&format!("netstat.{port}.csv"))?;
            spool.write(|file| writeln!(file, "{PORT_HEAD}"))?;
            ports.push((port.clone(), spool, LinkStats::default()));
        }
        let mut processes = (!spec.pids.is_empty())
            .then(|| create("psstat.csv"))
            .transpose()?;
        if let Some(spool) = &mut processes {
            spool.write(|file| writeln!(file, "{PROCESS_HEAD}"))?;
        }
        Ok(Self {
            system: create("sysstat.csv")?,
            ports,
            processes,
            before: None,
        })
    }

    /// Rises are those since the row before; the first row has none.
    pub fn write(&mut self, row: &Row, processes: &[ProcessReading]) -> Result<(), JobError> {
        let now_s = row.real_ns / 1_000_000_000;
        let disks = all_disks(row);
        if self.before.is_none() {
            self.begin(row, now_s, disks)?;
        }
        let Some(before) = &mut self.before else {
            return Ok(());
        };
        let uptime_s = now_s.saturating_sub(before.begin_s);
        write_system(&mut self.system, row, before, &disks, (now_s, uptime_s))?;
        for (port, spool, before) in &mut self.ports {
            let Some(stats) = row.links.get(port) else {
                continue;
            };
            spool.write(|file| {
                write!(file, "{now_s}, {uptime_s}, {port}")?;
                for (now, then) in network(stats).into_iter().zip(network(before)) {
                    write!(file, ", {}", now.saturating_sub(then))?;
                }
                writeln!(file)
            })?;
            *before = *stats;
        }
        if let Some(spool) = &mut self.processes {
            write_processes(spool, row, processes, before, (now_s, uptime_s))?;
        }
        before.mono_ns = row.mono_ns;
        before.cpus.clone_from(&row.cpus);
        before.disks = disks;
        before.tree_cpu_ns = row.tree.cpu_ns;
        Ok(())
    }

    /// What was written is in the files when this returns.
    pub fn flush(&mut self) -> Result<(), JobError> {
        let ports = self.ports.iter_mut().map(|(_, spool, _)| spool);
        let spools = ports.chain(&mut self.processes);
        std::iter::once(&mut self.system)
            .chain(spools)
            .try_for_each(Spool::flush)
    }

    fn begin(&mut self, row: &Row, now_s: u64, disks: Disk) -> Result<(), JobError> {
        self.before = Some(Before {
            begin_s: now_s,
            mono_ns: row.mono_ns,
            cpus: row.cpus.to_vec(),
            disks,
            tree_cpu_ns: row.tree.cpu_ns,
        });
        for (port, _, before) in &mut self.ports {
            *before = row.links.get(port).copied().unwrap_or_default();
        }
        self.system.write(|file| {
            write!(file, "Timestamp,  Uptime, NCPU, %CPU")?;
            for number in 0..row.cpus.len() {
                write!(file, ", %CPU{number}")?;
            }
            writeln!(file, "{SYSTEM_TAIL}")
        })
    }
}

fn write_system(
    spool: &mut Spool,
    row: &Row,
    before: &Before,
    disks: &Disk,
    (now_s, uptime_s): (u64, u64),
) -> Result<(), JobError> {
    let memory = &row.memory;
    let (total, free) = (memory.total_bytes, memory.free_bytes);
    let (swap, swap_free) = (memory.swap_total_bytes, memory.swap_free_bytes);
    let then = |now: &CpuTimes| before.cpus.iter().find(|then| then.cpu == now.cpu);
    spool.write(|file| {
        let busy: f64 = row.cpus.iter().map(|now| busy_pct(now, then(now))).sum();
        write!(file, "{now_s}, {uptime_s}, {}, {busy:.1}", row.cpus.len())?;
        for now in row.cpus.iter() {
            write!(file, ", {:.1}", busy_pct(now, then(now)))?;
        }
        write!(file, ", {:.1}", used_pct(total, memory.available_bytes))?;
        for bytes in [total, used(total, free), memory.available_bytes, free] {
            write!(file, ", {}", bytes.unwrap_or_default() >> 10)?;
        }
        write!(file, ", {:.1}", used_pct(swap, swap_free))?;
        for bytes in [swap, used(swap, swap_free), swap_free] {
            write!(file, ", {}", bytes.unwrap_or_default() >> 10)?;
        }
        let rise = |value: fn(&Disk) -> u64| value(disks).saturating_sub(value(&before.disks));
        let (reads, writes) = (rise(|d| d.reads), rise(|d| d.writes));
        write!(file, ", {reads}, {writes}")?;
        for bytes in [rise(|d| d.read_bytes), rise(|d| d.write_bytes)] {
            write!(file, ", {}", bytes >> 10)?;
        }
        for ns in [rise(|d| d.read_ns), rise(|d| d.write_ns)] {
            write!(file, ", {}", ns / 1_000_000)?;
        }
        writeln!(file)
    })
}

fn write_processes(
    spool: &mut Spool,
    row: &Row,
    processes: &[ProcessReading],
    before: &Before,
    (now_s, uptime_s): (u64, u64),
) -> Result<(), JobError> {
    let cpu_ns = row.tree.cpu_ns.saturating_sub(before.tree_cpu_ns);
    let cpu = percent(cpu_ns, row.mono_ns.saturating_sub(before.mono_ns));
    let rss = row.tree.rss_bytes;
    let memory = percent(rss, row.memory.total_bytes.unwrap_or_default());
    let sum = |value: fn(&ProcessReading) -> u64| processes.iter().map(value).sum::<u64>();
    spool.write(|file| {
        writeln!(
            file,
            "{now_s}, {uptime_s}, {cpu:.1}, {memory:.3}, {}, {}, {}, {}, {}, {}, {}",
            sum(|p| p.io.unwrap_or_default().read_calls),
            sum(|p| p.io.unwrap_or_default().read_bytes) >> 10,
            sum(|p| p.io.unwrap_or_default().write_calls),
            sum(|p| p.io.unwrap_or_default().write_bytes) >> 10,
            rss >> 10,
            sum(main_switches),
            row.tree.threads,
        )
    })
}

/// psutil has those of the main thread alone.
fn main_switches(process: &ProcessReading) -> u64 {
    let main = process
        .threads
        .iter()
        .find(|thread| thread.tid == process.pid);
    main.map_or(0, |thread| {
        thread.voluntary_switches.unwrap_or_default()
            + thread.involuntary_switches.unwrap_or_default()
    })
}

fn network(stats: &LinkStats) -> [u64; 8] {
    [
        stats.tx_bytes,
        stats.rx_bytes,
        stats.tx_packets,
        stats.rx_packets,
        stats.rx_errors,
        stats.tx_errors,
        // As in /proc/net/dev, which psutil reads.
        stats.rx_dropped + stats.rx_missed_errors,
        stats.tx_dropped,
    ]
}

fn all_disks(row: &Row) -> Disk {
    let mut all = Disk::default();
    for (_, disk) in row.disks.iter() {
        all.reads += disk.reads;
        all.writes += disk.writes;
        all.read_bytes += disk.read_bytes;
        all.write_bytes += disk.write_bytes;
        all.read_ns += disk.read_ns;
        all.write_ns += disk.write_ns;
    }
    all
}

fn busy_pct(now: &CpuTimes, then: Option<&CpuTimes>) -> f64 {
    let Some(then) = then else {
        return 0.0;
    };
    let total = now.total_ns().saturating_sub(then.total_ns());
    percent(now.busy_ns().saturating_sub(then.busy_ns()), total)
}

fn used(total: Option<u64>, free: Option<u64>) -> Option<u64> {
    Some(total?.saturating_sub(free?))
}

fn used_pct(total: Option<u64>, free: Option<u64>) -> f64 {
    percent(
        used(total, free).unwrap_or_default(),
        total.unwrap_or_default(),
    )
}

#[expect(clippy::cast_precision_loss, reason = "a share that is shown")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    100.0 * part as f64 / whole as f64
}
