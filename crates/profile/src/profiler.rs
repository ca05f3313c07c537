//! All threads of some process trees: found, looked at, and summed up.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use nodrop_counters::{CounterError, ProcessTree};
use nodrop_sys::clock::process_cpu_ns;
use nodrop_sys::perf::{Event, Every, Samples};

use crate::addresses::{Addresses, Known};
use crate::concurrency::Together;
use crate::lacks::{Lacks, reason};
use crate::outcome::{Outcome, ThreadProfile};
use crate::stacks::{Shared, Stacks};
use crate::thread::Thread;

/// New threads are looked for so often.
const RESCAN_NS: u64 = 1_000_000_000;

/// Looks at every thread below some processes.
pub struct Profiler {
    tree: ProcessTree,
    hertz: u64,
    hardware: bool,
    with_kernel: bool,
    common: Common,
    threads: Vec<Thread>,
    ended: Vec<ThreadProfile>,
    joined: usize,
    lacks: Lacks,
    began_ns: u64,
    began_cpu_ns: u64,
    rescanned_ns: u64,
}

/// What all threads share.
struct Common {
    proc: PathBuf,
    known: Known,
    processes: HashMap<u32, Addresses>,
    stacks: Stacks,
    together: Together,
}

impl Common {
    /// For a thread of this process.
    fn shared(&mut self, pid: u32) -> Shared<'_> {
        let found = self.processes.entry(pid);
        Shared {
            process: found.or_insert_with(|| Addresses::of(pid, &self.proc, &mut self.known)),
            stacks: &mut self.stacks,
            known: &mut self.known,
            together: &mut self.together,
        }
    }
}

/// Why nothing can be profiled.
#[derive(Debug)]
pub enum Failed {
    /// The kernel gives no samples of these processes.
    Samples(io::Error),
    /// A process cannot be looked at.
    Counters(CounterError),
}

impl From<CounterError> for Failed {
    fn from(error: CounterError) -> Self {
        Self::Counters(error)
    }
}

impl Profiler {
    /// Reads all names, so that nothing is left to do when the threads have run.
    ///
    /// # Errors
    /// If a process is not there, or its samples are not permitted.
    pub fn open(pids: &[u32], hertz: u64, hardware: bool) -> Result<Self, Failed> {
        let proc = Path::new("/proc");
        let tree = ProcessTree::new(Path::new("/"), pids)?;
        let mut common = Common {
            proc: proc.into(),
            known: Known::new(proc),
            processes: HashMap::new(),
            stacks: Stacks::default(),
            together: Together::default(),
        };
        for process in tree.readings() {
            common.shared(process.pid);
        }
        let tid = *pids.first().unwrap_or(&0);
        let clock = |with_kernel| {
            Samples::open(Event::CpuClock, tid, Every::Hertz(hertz), with_kernel, 1, 0)
        };
        let refused = clock(true).err();
        if refused.is_some() {
            clock(false).map_err(Failed::Samples)?;
        }
        let mut profiler = Self {
            tree,
            hertz,
            hardware,
            with_kernel: refused.is_none(),
            common,
            threads: Vec::new(),
            ended: Vec::new(),
            joined: 0,
            lacks: Lacks {
                kernel: refused.map(|error| reason(&error, proc)),
                ..Lacks::default()
            },
            began_ns: 0,
            began_cpu_ns: 0,
            rescanned_ns: 0,
        };
        profiler.join(0);
        Ok(profiler)
    }

    /// Processes and threads below them now.
    pub fn count(&self) -> (u64, u64) {
        let totals = self.tree.totals();
        (totals.processes, totals.threads)
    }

    /// From this time on, which may be a little past: what came since waits in the rings.
    ///
    /// # Errors
    /// If a process cannot be read, though it is there.
    pub fn begin(&mut self, began_ns: u64) -> Result<(), CounterError> {
        (self.began_ns, self.began_cpu_ns) = (began_ns, process_cpu_ns());
        self.rescanned_ns = began_ns;
        self.common.together.begin(began_ns);
        self.tree.rescan()?;
        self.tree.read()?;
        self.join(began_ns);
        let readings = self.tree.readings().iter();
        let readings: HashMap<_, _> = readings
            .flat_map(|process| &process.threads)
            .map(|reading| (reading.tid, reading))
            .collect();
        for thread in &mut self.threads {
            if let Some(reading) = readings.get(&thread.tid) {
                let mut shared = self.common.shared(thread.pid);
                thread.begin(began_ns, reading, &mut shared);
            }
        }
        Ok(())
    }

    /// Takes what has come; some ten times a second, so that no ring overflows.
    ///
    /// # Errors
    /// If a process cannot be read, though it is there.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), CounterError> {
        let mut lost = false;
        for thread in &mut self.threads {
            let mut shared = self.common.shared(thread.pid);
            shared.process.refresh();
            lost |= thread.drain(&mut shared);
        }
        self.common.together.advance(now_ns, lost);
        let rescans = now_ns.saturating_sub(self.rescanned_ns) >= RESCAN_NS;
        if rescans {
            self.rescanned_ns = now_ns;
            self.tree.rescan()?;
        }
        self.tree.read()?;
        if rescans {
            self.join(now_ns);
        }
        self.read(now_ns);
        Ok(())
    }

    /// The last records, and everything that was seen.
    ///
    /// # Errors
    /// If a process cannot be read, though it is there.
    pub fn finish(mut self, now_ns: u64) -> Result<Outcome, CounterError> {
        self.rescanned_ns = 0; // for the last counts of switches
        self.tick(now_ns)?;
        let living = self.threads.into_iter().map(Thread::into_profile);
        let mut threads = self.ended;
        threads.extend(living);
        threads.sort_by_key(|thread| (thread.pid, thread.tid));
        if self.hardware {
            self.lacks.look_at(&threads);
        }
        let has_times = self.lacks.waits.is_none();
        let names_the_kernel = self.common.known.names_the_kernel();
        Ok(Outcome {
            began_mono_ns: self.began_ns,
            ended_mono_ns: now_ns,
            own_cpu_ns: process_cpu_ns().saturating_sub(self.began_cpu_ns),
            missing: self.lacks.missing(self.hardware, names_the_kernel),
            functions: self.common.known.into_functions(),
            stacks: self.common.stacks.into_all(),
            threads,
            concurrency: has_times.then(|| self.common.together.into_found()),
        })
    }

    /// Opens the events of threads that were not seen before.
    fn join(&mut self, now_ns: u64) {
        for process in self.tree.readings() {
            for reading in &process.threads {
                let same = |thread: &Thread| thread.tid == reading.tid;
                if self.threads.iter().any(same) {
                    continue;
                }
                let opened = Thread::open(
                    process.pid,
                    reading,
                    &self.common.proc,
                    self.joined,
                    self.hertz,
                    self.hardware,
                    self.with_kernel,
                    now_ns,
                );
                match opened {
                    Ok(thread) => {
                        self.lacks
                            .join(thread.lacks_switches(), thread.lacks_hardware());
                        self.common.together.join(reading.state == 'R');
                        self.joined += 1;
                        self.threads.push(thread);
                    }
                    // It has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => {}
                    Err(error) => {
                        let why = reason(&error, &self.common.proc);
                        self.lacks.unseen(reading.tid, why);
                    }
                }
            }
        }
    }

    /// What the scheduler says of each; those that have ended are put aside.
    fn read(&mut self, now_ns: u64) {
        let mut index = 0;
        while index < self.threads.len() {
            let thread = &mut self.threads[index];
            let of = self.tree.readings().iter();
            let mut threads = of.filter(|p| p.pid == thread.pid).flat_map(|p| &p.threads);
            if let Some(reading) = threads.find(|reading| reading.tid == thread.tid) {
                thread.read(reading, now_ns);
                index += 1;
            } else {
                let thread = self.threads.remove(index);
                self.ended.push(thread.into_profile());
            }
        }
    }
}

const NO_SUCH_PROCESS: i32 = 3;
