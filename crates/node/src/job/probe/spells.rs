//! Spells of looks at the rings of every program that captures: a ring fills and empties within milliseconds, and to look that
//! often all the time would cost too much. A thread looks for some seconds, then rests until its share of a CPU is small again.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nodrop_counters::{ProcessTree, Result, RingWatch, WatchedRing};
use nodrop_sys::clock::{mono_ns, real_ns, sleep_until, thread_cpu_ns};
use schemars::JsonSchema;
use serde::Serialize;

/// Between two looks: 250 a second.
const STEP_NS: u64 = 4_000_000;
/// Length of a spell.
const SPELL_NS: u64 = 3_000_000_000;
/// From the begin of a spell to that of the next, at least.
const APART_NS: u64 = 12_000_000_000;
/// A spell's CPU time is at most one part in so many of the time until the next one begins: 0.4 % of a CPU.
const PART_OF_CPU: u64 = 250;
/// Between two readings of what the threads ran.
const THREADS_NS: u64 = 100_000_000;
/// A spell ends early with so many looks at rings: what it takes of memory and of the wire is bounded however many there are.
const MOST_LOOKS: usize = 16_384;
/// Spells that wait to be asked for; the oldest goes.
const MOST_SPELLS: usize = 4;

/// What the spells since the last question saw.
#[derive(JsonSchema, Serialize, Default)]
#[schemars(rename = "RingSpells")]
pub struct Seen {
    spells: Vec<Spell>,
    /// Why the last spell saw no ring; `None` if it did, or there was none.
    unread: Option<String>,
}

/// Looks at the rings for some seconds.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "RingSpell")]
struct Spell {
    mono_ns: u64,
    /// The same moment, its begin, by CLOCK_REALTIME.
    real_ns: u64,
    rings: Vec<WatchedRing>,
    /// When, place in `rings`, packets that wait, frames or blocks in use; arrived and dropped since the first look.
    looks: Vec<[u64; 6]>,
    threads: Vec<ThreadTimes>,
    /// CPU time of the thread that looked, this spell.
    cpu_ns: u64,
    longest_gap_ns: u64,
}

/// A thread of a program whose rings were looked at, that ran.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SpellThread")]
struct ThreadTimes {
    pid: u32,
    tid: u32,
    name: String,
    /// When, ran and waited for a CPU since its start.
    times: Vec<[u64; 3]>,
}

/// The thread that looks. Ended with this.
pub struct Spells {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pids: Vec<u32>,
    spells: VecDeque<Spell>,
    unread: Option<String>,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until that time, or the end; true at the end.
    fn rest_until(&self, deadline_ns: u64) -> bool {
        let mut state = self.lock();
        loop {
            let left_ns = deadline_ns.saturating_sub(mono_ns());
            if state.ended || left_ns == 0 {
                return state.ended;
            }
            let waited = self
                .changed
                .wait_timeout(state, Duration::from_nanos(left_ns));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Processes to look at; `None` at the end.
    fn pids(&self) -> Option<Vec<u32>> {
        let mut state = self.lock();
        while state.pids.is_empty() && !state.ended {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        (!state.ended).then(|| state.pids.clone())
    }

    fn keep(&self, spell: Result<Spell>) {
        let mut state = self.lock();
        match spell {
            Ok(spell) if spell.rings.is_empty() => {
                state.unread = Some("no program maps a ring".into());
            }
            Ok(spell) => {
                state.unread = None;
                state.spells.push_back(spell);
                if state.spells.len() > MOST_SPELLS {
                    state.spells.pop_front();
                }
            }
            Err(error) => state.unread = Some(error.to_string()),
        }
    }
}

impl Spells {
    pub fn begin() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("spells".into())
            .spawn(move || run(&its))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Spells that ended since the last question; from now on they look at the rings of these processes.
    pub fn ask(&self, pids: Vec<u32>) -> Seen {
        let mut state = self.shared.lock();
        state.pids = pids;
        let seen = Seen {
            spells: state.spells.drain(..).collect(),
            unread: state.unread.clone(),
        };
        drop(state);
        self.shared.changed.notify_all();
        seen
    }
}

impl Drop for Spells {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    while let Some(pids) = shared.pids() {
        let (began_ns, cpu_ns) = (mono_ns(), thread_cpu_ns());
        let spell = spell(shared, &pids);
        let spent_ns = thread_cpu_ns() - cpu_ns;
        let spell = spell.map(|spell| Spell {
            cpu_ns: spent_ns,
            ..spell
        });
        shared.keep(spell);
        if shared.rest_until(next_ns(began_ns, spent_ns)) {
            break;
        }
    }
}

fn next_ns(began_ns: u64, spent_ns: u64) -> u64 {
    began_ns + APART_NS.max(spent_ns.saturating_mul(PART_OF_CPU))
}

fn spell(shared: &Shared, pids: &[u32]) -> Result<Spell> {
    let root = Path::new("/");
    let mut watch = RingWatch::new(root, pids)?;
    let mut spell = Spell {
        mono_ns: mono_ns(),
        real_ns: real_ns(),
        rings: watch.rings().to_vec(),
        looks: Vec::new(),
        threads: Vec::new(),
        cpu_ns: 0,
        longest_gap_ns: 0,
    };
    if spell.rings.is_empty() {
        return Ok(spell);
    }
    let mut threads = Threads::of(root, &spell.rings);
    let (mut looks, mut last_ns, mut threads_ns) = (Vec::new(), None, 0);
    let end_ns = spell.mono_ns + SPELL_NS;
    loop {
        let now_ns = mono_ns();
        watch.look(&mut looks)?;
        if let Some(last_ns) = last_ns.replace(now_ns) {
            spell.longest_gap_ns = spell.longest_gap_ns.max(now_ns - last_ns);
        }
        spell.looks.extend(looks.iter().filter_map(|look| {
            Some([
                now_ns,
                look.ring as u64,
                look.packets,
                look.full,
                look.arrived?,
                look.dropped?,
            ])
        }));
        let ends = now_ns >= end_ns || spell.looks.len() + spell.rings.len() > MOST_LOOKS;
        if ends || now_ns >= threads_ns {
            threads.read();
            threads_ns = now_ns + THREADS_NS;
        }
        if ends || shared.lock().ended {
            break;
        }
        sleep_until(now_ns + STEP_NS);
    }
    spell.threads = threads.that_ran();
    Ok(spell)
}

/// What the threads of some processes ran and waited, reading by reading.
struct Threads {
    trees: Vec<ProcessTree>,
    found: BTreeMap<u32, ThreadTimes>,
}

impl Threads {
    fn of(root: &Path, rings: &[WatchedRing]) -> Self {
        let mut pids: Vec<u32> = rings.iter().map(|ring| ring.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let trees = pids.iter().map(|pid| ProcessTree::new(root, &[*pid]));
        Self {
            trees: trees.filter_map(Result::ok).collect(),
            found: BTreeMap::new(),
        }
    }

    fn read(&mut self) {
        for tree in &mut self.trees {
            if tree.read().is_err() {
                continue; // it has ended: its ring is gone too
            }
            let now_ns = mono_ns();
            for process in tree.readings() {
                for thread in &process.threads {
                    let known = self.found.entry(thread.tid).or_insert_with(|| ThreadTimes {
                        pid: process.pid,
                        tid: thread.tid,
                        name: thread.name.clone(),
                        times: Vec::new(),
                    });
                    known.times.push([now_ns, thread.cpu_ns, thread.wait_ns]);
                }
            }
        }
    }

    fn that_ran(self) -> Vec<ThreadTimes> {
        let ran = |one: &ThreadTimes| {
            let cpu_ns = |at: Option<&[u64; 3]>| at.map(|[_, cpu_ns, _]| *cpu_ns);
            cpu_ns(one.times.first()) != cpu_ns(one.times.last())
        };
        self.found.into_values().filter(ran).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell_of(mono_ns: u64, rings: Vec<WatchedRing>) -> Spell {
        Spell {
            mono_ns,
            real_ns: 0,
            rings,
            looks: Vec::new(),
            threads: Vec::new(),
            cpu_ns: 0,
            longest_gap_ns: 0,
        }
    }

    const RING: WatchedRing = WatchedRing {
        inode: 7,
        pid: 1,
        fd: 3,
        version: 2,
        slots: Some(64),
        blocks: 4,
        block_bytes: 4096,
    };

    #[test]
    fn a_costly_spell_is_followed_by_a_longer_rest() {
        assert_eq!(next_ns(5, 1_000_000), 5 + APART_NS);
        // 60 ms of CPU: 15 s.
        assert_eq!(next_ns(5, 60_000_000), 5 + 15_000_000_000);
    }

    #[test]
    fn spells_wait_for_a_question_and_the_oldest_goes() {
        let shared = Shared::default();
        shared.keep(Ok(spell_of(0, Vec::new())));
        assert!(shared.lock().unread.is_some() && shared.lock().spells.is_empty());
        for n in 0..7 {
            shared.keep(Ok(spell_of(n, vec![RING])));
        }
        let state = shared.lock();
        let begins: Vec<u64> = state.spells.iter().map(|one| one.mono_ns).collect();
        assert_eq!((begins, &state.unread), (vec![3, 4, 5, 6], &None));
    }

    #[test]
    fn the_thread_ends_with_its_owner_also_while_it_has_nobody_to_look_at() {
        let spells = Spells::begin().unwrap();
        assert!(spells.ask(Vec::new()).spells.is_empty());
        drop(spells);
    }

    #[test]
    fn threads_that_ran_have_their_times() {
        let own = std::process::id();
        let mut threads = Threads::of(Path::new("/"), &[WatchedRing { pid: own, ..RING }]);
        threads.read();
        let busy_until = thread_cpu_ns() + 20_000_000;
        while thread_cpu_ns() < busy_until {}
        threads.read();
        let ran = threads.that_ran();
        assert!(ran.iter().any(|one| one.pid == own
            && one.times.len() == 2
            && one.times[1][1] > one.times[0][1]));
    }
}
