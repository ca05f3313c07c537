//! One thread under the profiler: its events, and what they have shown so far.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use foldhash::fast::RandomState;
use nodrop_counters::ThreadReading;
use nodrop_sys::perf::{Counted, Counter, Event, Every, Record, Samples};

use crate::addresses::StackId;
use crate::call_sites::CallSites;
use crate::lacks::reason;
use crate::outcome::{Running, ThreadProfile, WaitedIn, Waiting};
use crate::rings::{ring_pages, stack_bytes};
use crate::stacks::Shared;

/// A tenth of a second of a thread that switches 75,000 times a second with 20 callers each. Seen with 128 pages: a worker
/// that its packets wake one by one lost a tenth of its switches.
const SWITCH_PAGES: usize = 512;
/// Of such a thread, if only its times are read: a normal user's rings share some megabytes.
const TIMES_PAGES: usize = 32;

const COUNTED: [Event; 4] = [
    Event::Migrations,
    Event::Cycles,
    Event::Instructions,
    Event::CacheMisses,
];

/// Its events, which count from when they are opened.
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    /// Among all threads, by the order in which they joined.
    index: usize,
    clock: Samples,
    /// Or why not.
    switches: Result<Samples, String>,
    /// `None` if it is not shown where the thread leaves its CPU.
    sites: Option<CallSites>,
    /// [`COUNTED`]; `None` was not asked for, else why not.
    counters: [Option<Result<Counter, String>>; 4],
    wait_channel: PathBuf,
    began_ns: u64,
    /// When `last` was read.
    last_ns: u64,
    first: ThreadReading,
    last: ThreadReading,
    /// What its counters said when it began.
    before: [Option<Counted>; 4],
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    /// What came before counts for nothing, but shows what the thread is in.
    began_ns: u64,
    samples: u64,
    lost: u64,
    throttled: u64,
    running: HashMap<StackId, u64, RandomState>,
    waiting: HashMap<StackId, (u64, u64), RandomState>,
    waiting_ns: u64,
    preempted_ns: u64,
    switches: u64,
    /// When it last took a CPU.
    took_ns: u64,
    /// The stack of the switch whose times come next.
    stack: Option<StackId>,
    /// Off the CPU since then; true = preempted.
    left: Option<(u64, bool)>,
    waited_in: HashMap<String, u64>,
}

impl Thread {
    /// # Errors
    /// If its samples are not permitted, or it has ended.
    #[expect(clippy::too_many_arguments, reason = "one caller")]
    pub fn open(
        pid: u32,
        reading: &ThreadReading,
        proc: &Path,
        index: usize,
        hertz: u64,
        hardware: bool,
        with_kernel: bool,
        began_ns: u64,
    ) -> io::Result<Self> {
        let tid = reading.tid;
        let count = |event| {
            let asked = hardware || event == Event::Migrations;
            asked.then(|| Counter::open(event, tid, with_kernel).map_err(|e| reason(&e, proc)))
        };
        // Where a thread leaves its CPU is an event inside the kernel; when it does is shown to its owner too.
        let (every, switch_pages) = if with_kernel {
            (Every::Time, SWITCH_PAGES)
        } else {
            (Every::SwitchTimes, TIMES_PAGES)
        };
        let samples = |event, every, pages, stack_bytes| {
            Samples::open(event, tid, every, with_kernel, pages, stack_bytes)
        };
        let stack_bytes = stack_bytes(hertz, with_kernel);
        let clock_pages = ring_pages(hertz, stack_bytes);
        Ok(Self {
            pid,
            tid,
            index,
            clock: samples(
                Event::CpuClock,
                Every::Hertz(hertz),
                clock_pages,
                stack_bytes,
            )?,
            switches: samples(Event::Switches, every, switch_pages, 0)
                .map_err(|error| reason(&error, proc)),
            sites: with_kernel.then(|| CallSites::open(tid).ok()).flatten(),
            counters: COUNTED.map(count),
            wait_channel: proc.join(format!("{pid}/task/{tid}/wchan")),
            began_ns,
            last_ns: began_ns,
            first: reading.clone(),
            last: reading.clone(),
            before: [Some(Counted::default()); 4],
            seen: Seen {
                began_ns,
                ..Seen::default()
            },
        })
    }

    /// From this time on: what it did before shows only what it is in.
    pub fn begin(&mut self, began_ns: u64, reading: &ThreadReading, shared: &mut Shared<'_>) {
        (self.began_ns, self.last_ns) = (began_ns, began_ns);
        self.first.clone_from(reading);
        self.last.clone_from(reading);
        self.before = self.counted();
        self.seen.began_ns = began_ns;
        self.drain(shared);
        (self.seen.lost, self.seen.throttled) = (0, 0);
    }

    /// Why it is not seen when it leaves its CPU.
    pub fn lacks_switches(&self) -> Option<String> {
        self.switches.as_ref().err().cloned()
    }

    /// Why each counter of the CPU that was asked for does not count.
    pub fn lacks_hardware(&self) -> [Option<String>; 3] {
        let why = |index: usize| self.counters[index].as_ref()?.as_ref().err().cloned();
        [why(1), why(2), why(3)]
    }

    fn counted(&self) -> [Option<Counted>; 4] {
        let read = |counter: &Option<Result<Counter, _>>| {
            let counter = counter.as_ref()?.as_ref().ok()?;
            counter.read().ok()
        };
        self.counters.each_ref().map(read)
    }

    /// What the scheduler says of it now, and where it sleeps.
    pub fn read(&mut self, reading: &ThreadReading, now_ns: u64) {
        self.last_ns = now_ns;
        self.last.clone_from(reading);
        if matches!(reading.state, 'S' | 'D') {
            match std::fs::read_to_string(&self.wait_channel) {
                Ok(function) if function != "0" && !function.is_empty() => {
                    *self.seen.waited_in.entry(function).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    /// Takes what is in its rings. Whether something was lost.
    pub fn drain(&mut self, shared: &mut Shared<'_>) -> bool {
        let lost_before = self.seen.lost;
        let (seen, index) = (&mut self.seen, self.index);
        self.clock.drain(|record| match record {
            Record::Sample { mono_ns, .. } if mono_ns < seen.began_ns => {}
            Record::Sample {
                addresses, program, ..
            } => {
                let stack = shared.stack(addresses, program);
                seen.samples += 1;
                *seen.running.entry(stack).or_default() += 1;
            }
            Record::Lost(count) => seen.lost += count,
            Record::Throttled => seen.throttled += 1,
            Record::Took { .. } | Record::Left { .. } => {}
        });
        if let Ok(switches) = &mut self.switches {
            let (sites, before) = (&mut self.sites, seen.switches);
            if let Some(sites) = sites {
                sites.drain(shared);
            }
            switches.drain(|record| seen.switch(record, index, sites.as_mut(), shared));
            if let Some(sites) = sites {
                // A sample beside which a stack is copied takes as much more room (perf_prepare_sample): some may not have fitted.
                sites.aim(seen.switches - before + seen.lost - lost_before);
            }
        }
        self.seen.lost > lost_before
    }

    /// A thread that has ended was seen until its last reading.
    pub fn into_profile(mut self) -> ThreadProfile {
        let ended_ns = self.last_ns;
        self.seen.back(ended_ns, self.sites.as_mut()); // a wait that has not ended counts up to here
        let (first, last) = (&self.first, &self.last);
        let seen = &self.seen;
        let seen_ns = ended_ns.saturating_sub(self.began_ns);
        let cpu_ns = last.cpu_ns.saturating_sub(first.cpu_ns).min(seen_ns);
        let queued_ns = last
            .wait_ns
            .saturating_sub(first.wait_ns)
            .min(seen_ns - cpu_ns);
        let rise = |first: Option<u64>, last: Option<u64>| Some(last?.saturating_sub(first?));
        let counted = self.counted();
        let rose = |index: usize| counted[index]?.since(self.before[index]?);
        let uncounted_ns = |index: usize| Some(counted[index]?.uncounted_ns(self.before[index]?));
        let has_switches = self.switches.is_ok();
        ThreadProfile {
            pid: self.pid,
            tid: self.tid,
            name: last.name.clone(),
            seen_ns,
            samples: seen.samples,
            lost: seen.lost,
            throttled: seen.throttled,
            running: seen.running(),
            waiting: seen.waiting(self.sites.as_ref()),
            waiting_ns: has_switches.then_some(seen.waiting_ns),
            preempted_ns: has_switches.then_some(seen.preempted_ns),
            cpu_ns,
            queued_ns,
            blocked_ns: seen_ns - cpu_ns - queued_ns,
            voluntary_switches: rise(first.voluntary_switches, last.voluntary_switches),
            involuntary_switches: rise(first.involuntary_switches, last.involuntary_switches),
            migrations: rose(0),
            cycles: rose(1),
            instructions: rose(2),
            cache_misses: rose(3),
            uncounted_ns: (1..4).filter_map(uncounted_ns).max().unwrap_or(0),
            waited_in: seen.waited_in(),
        }
    }
}

impl Seen {
    fn switch(
        &mut self,
        record: Record<'_>,
        index: usize,
        sites: Option<&mut CallSites>,
        shared: &mut Shared<'_>,
    ) {
        match record {
            Record::Sample {
                addresses, program, ..
            } => {
                self.stack = Some(shared.stack(addresses, program));
                self.switches += 1;
            }
            Record::Left { mono_ns, preempted } => {
                self.left = Some((mono_ns, preempted));
                shared.together.note(mono_ns, index, false);
            }
            Record::Took { mono_ns } => {
                self.back(mono_ns, sites);
                self.took_ns = mono_ns;
                shared.together.note(mono_ns, index, true);
            }
            Record::Lost(count) => {
                self.lost += count;
                (self.left, self.stack) = (None, None);
            }
            Record::Throttled => self.throttled += 1,
        }
    }

    fn back(&mut self, mono_ns: u64, sites: Option<&mut CallSites>) {
        let Some((left_ns, preempted)) = self.left.take() else {
            return;
        };
        let stack = self.stack.take();
        if mono_ns < self.began_ns {
            return;
        }
        let ns = mono_ns.saturating_sub(left_ns.max(self.began_ns));
        if preempted {
            self.preempted_ns += ns;
            return;
        }
        self.waiting_ns += ns;
        if let Some(stack) = stack {
            let (total_ns, times) = self.waiting.entry(stack).or_default();
            *total_ns += ns;
            *times += 1;
            if let Some(sites) = sites {
                sites.waited(self.took_ns, mono_ns, stack, ns);
            }
        }
    }

    fn running(&self) -> Vec<Running> {
        let found = self.running.iter();
        let mut found: Vec<_> = found
            .map(|(&stack, &samples)| Running { stack, samples })
            .collect();
        found.sort_unstable_by_key(|running| running.stack);
        found
    }

    fn waiting(&self, sites: Option<&CallSites>) -> Vec<Waiting> {
        let mut found: BTreeMap<StackId, (u64, u64)> = BTreeMap::new();
        for (&stack, &(ns, times)) in &self.waiting {
            let whole = sites.map_or_else(
                || vec![(stack, ns, times)],
                |sites| sites.share_out(stack, ns, times),
            );
            for (stack, ns, times) in whole {
                let (total_ns, all) = found.entry(stack).or_default();
                (*total_ns, *all) = (*total_ns + ns, *all + times);
            }
        }
        let found = found.into_iter();
        found
            .map(|(stack, (ns, times))| Waiting { stack, ns, times })
            .collect()
    }

    fn waited_in(&self) -> Vec<WaitedIn> {
        let found = self.waited_in.iter();
        let mut found: Vec<_> = found
            .map(|(function, &readings)| WaitedIn {
                function: function.clone(),
                readings,
            })
            .collect();
        found.sort_unstable_by(|a, b| {
            b.readings
                .cmp(&a.readings)
                .then(a.function.cmp(&b.function))
        });
        found
    }
}
