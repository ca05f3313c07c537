//! Trees of processes and their threads from `/proc/PID`: who used how much CPU, waited how long for one, held how much memory.

mod files;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use educe::Educe;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::clock::{page_bytes, process_cpu_ns};
use crate::held::HeldFile;
use files::{
    State, peak, read_children, read_io, read_schedstat, read_stat, read_status, read_thread_stat,
    read_wait_channel, thread_ids,
};

/// A kernel's names of functions are rarely longer: a reading allocates nothing.
const LONGEST_WAIT_CHANNEL: usize = 128;

/// One thread, from its schedstat and its stat.
#[derive(Debug, Educe, PartialEq, Eq, JsonSchema, Serialize)]
#[educe(Clone)]
pub struct ThreadReading {
    /// Thread id; the main thread's is the process id.
    pub tid: u32,
    /// Its name at the last rescan: programs name their threads after they have started.
    pub name: String,
    /// On a CPU, since its start. Up to a tick (4 ms at HZ=250) behind while it runs.
    pub cpu_ns: u64,
    /// Runnable but not on a CPU: someone else had it.
    pub wait_ns: u64,
    /// Times it was put on a CPU.
    pub slices: u64,
    /// What it was doing at this moment, as ps(1) has it: R runs or wants to, S sleeps, D sleeps and cannot be woken, T and t are
    /// stopped.
    pub state: char,
    /// The function of the kernel in which it sleeps. Empty if it does not sleep, or we may not look (root may).
    pub wait_channel: String,
    /// The CPU it ran on last.
    pub last_cpu: u32,
    /// Times it gave the CPU away, to wait for something; as of the last rescan.
    pub voluntary_switches: Option<u64>,
    /// Times the CPU was taken from it; as of the last rescan.
    pub involuntary_switches: Option<u64>,
}

/// What a process read and wrote, ended threads included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct ProcessIo {
    /// Calls of read(2) and its like.
    pub read_calls: u64,
    /// Calls of write(2) and its like.
    pub write_calls: u64,
    /// Fetched from a disk.
    pub read_bytes: u64,
    /// Dirtied to be written to a disk.
    pub write_bytes: u64,
}

/// One process. Its values stay what they were last when it has ended, but for the memory it no longer holds.
#[derive(Debug, Educe, PartialEq, Eq, JsonSchema, Serialize)]
#[educe(Clone)]
pub struct ProcessReading {
    /// As in the reader's `/proc`.
    pub pid: u32,
    /// The kernel's name of its main thread, 15 bytes.
    pub name: String,
    /// CPU time of all its threads, ended ones included.
    pub cpu_ns: u64,
    /// Resident: anonymous, file pages it maps (shared libraries counted in each process), AF_PACKET rings it maps.
    pub rss_bytes: u64,
    /// The most it was ever resident (VmHWM), as of the last rescan. `None` for kernel threads.
    pub rss_peak_bytes: Option<u64>,
    /// Page faults without a disk.
    pub minor_faults: u64,
    /// Page faults that had to read a disk.
    pub major_faults: u64,
    /// As of the last rescan; `None` if we may not look (another user's) or the kernel does not count.
    pub io: Option<ProcessIo>,
    /// Its living threads.
    pub threads: Vec<ThreadReading>,
}

impl ProcessReading {
    fn new(pid: u32) -> Self {
        Self {
            pid,
            name: String::new(),
            cpu_ns: 0,
            rss_bytes: 0,
            rss_peak_bytes: None,
            minor_faults: 0,
            major_faults: 0,
            io: None,
            threads: Vec::new(),
        }
    }
}

/// Sums over a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct TreeTotals {
    /// Living and ended.
    pub cpu_ns: u64,
    /// Of the living.
    pub rss_bytes: u64,
    /// Living processes.
    pub processes: u64,
    /// Their threads.
    pub threads: u64,
}

/// The processes under some roots. A process that was found once is followed until it ends, whoever its parent becomes.
#[derive(Debug)]
pub struct ProcessTree {
    root: PathBuf,
    /// The clock of a process is a system call: only of use if `root` is the real one.
    real: bool,
    living: Vec<Process>,
    readings: Vec<ProcessReading>,
    ended: Vec<ProcessReading>,
    buffer: Vec<u8>,
}

/// The open files of one process; `readings` has its values at the same index.
#[derive(Debug)]
struct Process {
    pid: u32,
    stat: HeldFile,
    statm: HeldFile,
    status: HeldFile,
    io: Option<HeldFile>,
    threads: Vec<Thread>,
}

/// Of one thread; `ProcessReading::threads` has its values at the same index.
#[derive(Debug)]
struct Thread {
    schedstat: HeldFile,
    stat: HeldFile,
    status: HeldFile,
    children: HeldFile,
    wait_channel: Option<HeldFile>,
}

impl ProcessTree {
    /// `root` is `/` in production and a fixture folder in tests. Each of `pids` must be there.
    pub fn new(root: &Path, pids: &[u32]) -> Result<Self> {
        let mut tree = Self {
            root: root.into(),
            real: root == Path::new("/"),
            living: Vec::new(),
            readings: Vec::new(),
            ended: Vec::new(),
            buffer: Vec::new(),
        };
        for pid in pids {
            tree.follow(*pid)?;
            // Without CONFIG_PROC_CHILDREN a tree would silently be its root alone.
            HeldFile::open(root.join(format!("proc/{pid}/task/{pid}/children")))?;
        }
        tree.rescan()?;
        tree.read()?;
        Ok(tree)
    }

    /// The living, in the order they were found.
    pub fn readings(&self) -> &[ProcessReading] {
        &self.readings
    }

    /// Those that ended while they were followed.
    pub fn ended(&self) -> &[ProcessReading] {
        &self.ended
    }

    /// The sums as of the last reading.
    pub fn totals(&self) -> TreeTotals {
        let sum = |value: fn(&ProcessReading) -> u64| {
            let values = self.readings.iter().map(value);
            values.fold(0, u64::saturating_add)
        };
        TreeTotals {
            cpu_ns: self
                .ended
                .iter()
                .fold(sum(|p| p.cpu_ns), |sum, p| sum.saturating_add(p.cpu_ns)),
            rss_bytes: sum(|p| p.rss_bytes),
            processes: self.readings.len() as u64,
            threads: sum(|p| p.threads.len() as u64),
        }
    }

    /// Reads every known process and thread anew.
    pub fn read(&mut self) -> Result<()> {
        let mut index = 0;
        while index < self.living.len() {
            let process = &mut self.living[index];
            let reading = &mut self.readings[index];
            match process.read(reading, self.real, &mut self.buffer) {
                Ok(()) => index += 1,
                Err(e) if e.is_gone() => self.end(index),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Looks for new threads and children, for names, highest memory, context switches and what was read and written.
    pub fn rescan(&mut self) -> Result<()> {
        let mut index = 0;
        // `living` grows while it is walked: children of children are found in the same pass.
        while index < self.living.len() {
            match self.rescan_process(index) {
                Ok(()) => index += 1,
                Err(e) if e.is_gone() => self.end(index),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn rescan_process(&mut self, index: usize) -> Result<()> {
        let process = &mut self.living[index];
        let reading = &mut self.readings[index];
        reading.rss_peak_bytes =
            peak(&process.status, &mut self.buffer)?.or(reading.rss_peak_bytes);
        if let Some(file) = &process.io {
            reading.io = Some(read_io(file, &mut self.buffer)?);
        }
        let folder = self.root.join(format!("proc/{}/task", process.pid));
        let mut children = Vec::new();
        for tid in thread_ids(&folder)? {
            let task = folder.join(tid.to_string());
            match process.rescan_thread(tid, &task, reading, &mut children, &mut self.buffer) {
                Err(e) if !e.is_gone() => return Err(e),
                _ => {}
            }
        }
        for child in children {
            match self.follow(child) {
                Err(e) if !e.is_gone() => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    fn follow(&mut self, pid: u32) -> Result<()> {
        if self.living.iter().any(|process| process.pid == pid) {
            return Ok(());
        }
        let folder = self.root.join(format!("proc/{pid}"));
        let process = Process {
            pid,
            stat: HeldFile::open(folder.join("stat"))?.in_one_piece(),
            statm: HeldFile::open(folder.join("statm"))?.in_one_piece(),
            status: HeldFile::open(folder.join("status"))?.in_one_piece(),
            // Readable by the same user and by root alone, and that is checked again at each read.
            io: HeldFile::open(folder.join("io"))
                .ok()
                .filter(|io| io.read(&mut self.buffer).is_ok()),
            threads: Vec::new(),
        };
        let mut reading = ProcessReading::new(pid);
        let state = read_stat(&process.stat, &mut reading, &mut self.buffer)?;
        // A zombie stays a child until its parent looks: its CPU time must not be counted at each rescan.
        let counted = || self.ended.iter().any(|process| process.pid == pid);
        if state == State::Living || !counted() {
            self.living.push(process);
            self.readings.push(reading);
        }
        Ok(())
    }

    fn end(&mut self, index: usize) {
        self.living.remove(index);
        let last = self.readings.remove(index);
        self.ended.push(ProcessReading {
            rss_bytes: 0,
            threads: Vec::new(),
            ..last
        });
    }
}

impl Process {
    fn read(
        &mut self,
        reading: &mut ProcessReading,
        real: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let before = reading.cpu_ns;
        let state = read_stat(&self.stat, reading, buffer)?;
        // `stat` leaves out what each CPU has counted and not yet added up: megabytes, and more with more CPUs.
        let resident = self.statm.read(buffer)?.line()?.skip(1).number::<u64>()?;
        reading.rss_bytes = resident.saturating_mul(page_bytes());
        if real {
            // Gone between the two calls: the file's ticks stand.
            reading.cpu_ns = process_cpu_ns(self.pid).unwrap_or(reading.cpu_ns);
        }
        reading.cpu_ns = reading.cpu_ns.max(before);
        if state == State::Ended {
            return Err(self.stat.gone());
        }
        let mut index = 0;
        while index < self.threads.len() {
            match self.threads[index].read(&mut reading.threads[index], buffer) {
                Ok(()) => index += 1,
                Err(e) if e.is_gone() => {
                    self.threads.remove(index);
                    reading.threads.remove(index);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn rescan_thread(
        &mut self,
        tid: u32,
        task: &Path,
        reading: &mut ProcessReading,
        children: &mut Vec<u32>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let known = reading.threads.iter().position(|thread| thread.tid == tid);
        let index = known.unwrap_or(reading.threads.len());
        if known.is_none() {
            self.threads.push(Thread {
                schedstat: HeldFile::open(task.join("schedstat"))?.in_one_piece(),
                stat: HeldFile::open(task.join("stat"))?.in_one_piece(),
                status: HeldFile::open(task.join("status"))?.in_one_piece(),
                children: HeldFile::open(task.join("children"))?,
                wait_channel: HeldFile::open(task.join("wchan")).ok(),
            });
            reading.threads.push(ThreadReading {
                tid,
                name: String::new(),
                cpu_ns: 0,
                wait_ns: 0,
                slices: 0,
                state: 'S',
                wait_channel: String::with_capacity(LONGEST_WAIT_CHANNEL),
                last_cpu: 0,
                voluntary_switches: None,
                involuntary_switches: None,
            });
        }
        read_status(
            &self.threads[index].status,
            &mut reading.threads[index],
            buffer,
        )?;
        read_children(&self.threads[index].children, children, buffer)
    }
}

impl Thread {
    fn read(&self, reading: &mut ThreadReading, buffer: &mut Vec<u8>) -> Result<()> {
        read_schedstat(&self.schedstat, reading, buffer)?;
        read_thread_stat(&self.stat, reading, buffer)?;
        let sleeps = matches!(reading.state, 'S' | 'D');
        let file = self.wait_channel.as_ref().filter(|_| sleeps);
        reading.wait_channel.clear();
        if let Some(file) = file {
            read_wait_channel(file, reading, buffer);
        }
        Ok(())
    }
}
