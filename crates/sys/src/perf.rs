//! perf_event_open(2): samples of what a thread runs, records of when it leaves and takes a CPU, and counters.
//!
//! Times are CLOCK_MONOTONIC, as everywhere in nodrop.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::Mapping;

/// What an event counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A timer of the CPU time of the thread; every kernel has it.
    CpuClock,
    /// Each time the thread leaves its CPU.
    Switches,
    /// Each time the thread goes on on another CPU.
    Migrations,
    /// CPU cycles, if the CPU and its hypervisor count them.
    Cycles,
    /// Instructions that were completed.
    Instructions,
    /// Misses of the last cache before memory, as the CPU defines them.
    CacheMisses,
}

impl Event {
    /// `type` and `config` of perf_event_attr.
    const fn numbers(self) -> (u32, u64) {
        match self {
            Self::CpuClock => (1, 0),
            Self::Switches => (1, 3),
            Self::Migrations => (1, 4),
            Self::Cycles => (0, 0),
            Self::Instructions => (0, 1),
            Self::CacheMisses => (0, 3),
        }
    }
}

/// Why an event cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// To this user, or by the level of kernel.perf_event_paranoid.
    NotPermitted,
    /// The kernel was built without, or a filter of system calls says so.
    NoPerfEvents,
    /// The CPU, or its hypervisor, has no such counter.
    NoSuchEvent,
    /// Anything else: the thread has ended, there are too many open files.
    Other,
}

impl Refusal {
    /// By the number of the error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted,
            Some(libc::ENOSYS) => Self::NoPerfEvents,
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Self::NoSuchEvent,
            _ => Self::Other,
        }
    }
}

/// When a sample is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// So many times a second of CPU time.
    Hertz(u64),
    /// Each time the event happens, with the times at which the thread leaves and takes a CPU.
    Time,
    /// Never, only those times.
    SwitchTimes,
}

/// perf_event_attr up to PERF_ATTR_SIZE_VER5 (Linux 4.1).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config_1: u64,
    config_2: u64,
    branches: u64,
    user_registers: u64,
    user_stack: u32,
    clock: i32,
    interrupt_registers: u64,
    auxiliary: u32,
    most_frames: u16,
    reserved: u16,
}

const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FREQUENCY: u64 = 1 << 10;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCK: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;

const TIME_ENABLED: u64 = 1;
const TIME_RUNNING: u64 = 1 << 1;

const WITH_TIME: u64 = 1 << 2;
const WITH_CALLERS: u64 = 1 << 5;

const RECORD_LOST: u32 = 2;
const RECORD_THROTTLE: u32 = 5;
const RECORD_SAMPLE: u32 = 9;
const RECORD_SWITCH: u32 = 14;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPTED: u16 = 1 << 14;

/// Where `data_head`, `data_tail` and `data_offset` lie in perf_event_mmap_page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
const PAGE: usize = 4096;

impl Attributes {
    fn new(event: Event, with_kernel: bool) -> Self {
        let (kind, config) = event.numbers();
        let mut flags = EXCLUDE_HYPERVISOR | SAMPLE_ID_ALL | USE_CLOCK;
        if !with_kernel {
            flags |= EXCLUDE_KERNEL;
        }
        Self {
            kind,
            config,
            flags,
            size: 112,
            sample_type: WITH_TIME,
            clock: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    fn open(&self, tid: u32) -> Result<OwnedFd> {
        const CLOSE_ON_EXEC: libc::c_ulong = 8;
        let tid = libc::pid_t::try_from(tid).map_err(|_| Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: the attributes live through the call and `size` is theirs; on any CPU (-1), in no group (-1).
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(self),
                tid,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        match i32::try_from(opened) {
            // SAFETY: a new descriptor that is ours alone.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(Error::last_os_error()),
        }
    }
}

/// A counter of one thread.
#[derive(Debug)]
pub struct Counter(OwnedFd);

impl Counter {
    /// # Errors
    /// What perf_event_open(2) says: ENOENT if there is no such counter here, EACCES if it is not permitted.
    pub fn open(event: Event, tid: u32, with_kernel: bool) -> Result<Self> {
        let attributes = Attributes::new(event, with_kernel);
        let attributes = Attributes {
            read_format: TIME_ENABLED | TIME_RUNNING,
            ..attributes
        };
        attributes.open(tid).map(Self)
    }

    /// What was counted since it was opened.
    ///
    /// # Errors
    /// What read(2) says.
    pub fn read(&self) -> Result<Counted> {
        let mut words = [0u64; 3];
        let bytes = size_of_val(&words);
        // SAFETY: the kernel writes the three words.
        let read = unsafe { libc::read(self.0.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
        if usize::try_from(read) != Ok(bytes) {
            return Err(Error::last_os_error());
        }
        let [value, enabled_ns, running_ns] = words;
        Ok(Counted {
            value,
            enabled_ns,
            running_ns,
        })
    }
}

/// What a counter shows. Counters of the CPU take turns if more are asked for than it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// What it saw in its turns.
    pub value: u64,
    /// Time of the thread on a CPU.
    pub enabled_ns: u64,
    /// The part of it in which this counter had its turn.
    pub running_ns: u64,
}

impl Counted {
    /// What came since, reckoned for the whole time if it had only part of it. `None`: it never had its turn, though the thread ran.
    #[must_use]
    pub fn since(self, before: Self) -> Option<u64> {
        let value = u128::from(self.value.saturating_sub(before.value));
        let enabled = u128::from(self.enabled_ns.saturating_sub(before.enabled_ns));
        let running = u128::from(self.running_ns.saturating_sub(before.running_ns));
        match running {
            0 if enabled > 0 => None,
            _ if running >= enabled => u64::try_from(value).ok(),
            _ => u64::try_from(value * enabled / running).ok(),
        }
    }

    /// Time of the thread on a CPU in which it did not count.
    #[must_use]
    pub fn uncounted_ns(self, before: Self) -> u64 {
        let enabled = self.enabled_ns.saturating_sub(before.enabled_ns);
        enabled.saturating_sub(self.running_ns.saturating_sub(before.running_ns))
    }
}

/// What stands in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// Addresses, the innermost first; those of the kernel come after [`IN_KERNEL`], those of the program after [`IN_PROGRAM`].
    Sample {
        /// When.
        mono_ns: u64,
        /// The stack.
        addresses: &'a [u64],
    },
    /// The thread took a CPU.
    Took {
        /// When.
        mono_ns: u64,
    },
    /// The thread left its CPU.
    Left {
        /// When.
        mono_ns: u64,
        /// It wanted to go on, but another got the CPU.
        preempted: bool,
    },
    /// So many records did not fit into the ring.
    Lost(u64),
    /// The kernel took no samples for a while, because they came too fast.
    Throttled,
}

/// Before the addresses of the kernel.
pub const IN_KERNEL: u64 = 0u64.wrapping_sub(128);
/// Before the addresses of the program.
pub const IN_PROGRAM: u64 = 0u64.wrapping_sub(512);

/// The records of one event of one thread.
#[derive(Debug)]
pub struct Samples {
    _event: OwnedFd,
    ring: Mapping,
    /// What a record is copied to, so that it is in one piece and aligned.
    record: Vec<u64>,
}

impl Samples {
    /// `ring_pages` is a power of two; a smaller ring is taken if the limit on locked memory forbids that.
    ///
    /// # Errors
    /// What perf_event_open(2) and mmap(2) say: EACCES and EPERM if it is not permitted.
    pub fn open(
        event: Event,
        tid: u32,
        every: Every,
        with_kernel: bool,
        ring_pages: usize,
    ) -> Result<Self> {
        let mut attributes = Attributes::new(event, with_kernel);
        match every {
            Every::Hertz(hertz) => {
                attributes.flags |= FREQUENCY;
                attributes.period = hertz;
                attributes.sample_type |= WITH_CALLERS;
            }
            Every::Time => {
                attributes.flags |= CONTEXT_SWITCH;
                attributes.period = 1;
                attributes.sample_type |= WITH_CALLERS;
            }
            Every::SwitchTimes => attributes.flags |= CONTEXT_SWITCH,
        }
        let event = attributes.open(tid)?;
        let mut pages = ring_pages;
        let ring = loop {
            match Mapping::shared(&event, (1 + pages) * PAGE, 0) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && pages > 1 => pages /= 2,
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    let limits = "kernel.perf_event_mlock_kb and ulimit -l";
                    let why = format!("no more memory may be locked for rings ({limits})");
                    return Err(Error::new(ErrorKind::PermissionDenied, why));
                }
                other => break other?,
            }
        };
        Ok(Self {
            _event: event,
            ring,
            record: Vec::new(),
        })
    }

    /// Hands over what is in the ring and frees its room.
    pub fn drain(&mut self, mut take: impl FnMut(Record<'_>)) {
        let head = self.place(HEAD).load(Ordering::Acquire);
        let mut tail = self.place(TAIL).load(Ordering::Relaxed);
        while tail < head {
            let words = self.copy(tail, 1).first().copied().unwrap_or(0);
            let [kind, misc, bytes] = header(words);
            if bytes < 8 || u64::from(bytes) > head - tail {
                break; // nothing that a kernel writes
            }
            let record = self.copy(tail, bytes as usize / 8);
            if let Some(record) = parse(kind, misc, &record[1..]) {
                take(record);
            }
            tail += u64::from(bytes);
        }
        self.place(TAIL).store(head, Ordering::Release);
    }

    fn place(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: an aligned word in the first page of the mapping, which the kernel reads and writes as one.
        unsafe { AtomicU64::from_ptr(self.ring.start().add(offset).as_ptr().cast()) }
    }

    /// Records are whole words and go round the end of the ring.
    fn copy(&mut self, from: u64, words: usize) -> &[u64] {
        let room = self.ring.bytes() - PAGE;
        self.record.clear();
        for index in 0..words {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "below the size of the ring"
            )]
            let offset = ((from + 8 * index as u64) % room as u64) as usize & !7;
            // SAFETY: within the data pages of the mapping and aligned; the kernel writes there no more until the tail moves.
            let word = unsafe { self.ring.start().add(PAGE + offset).cast::<u64>().read() };
            self.record.push(word);
        }
        &self.record
    }
}

/// `type`, `misc` and `size` of perf_event_header.
fn header(word: u64) -> [u32; 3] {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
    let kind = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    [kind, half(4), half(6)]
}

fn parse(kind: u32, misc: u32, body: &[u64]) -> Option<Record<'_>> {
    let has = |flag: u16| misc & u32::from(flag) != 0;
    match kind {
        RECORD_SAMPLE => {
            let count = usize::try_from(*body.get(1)?).ok()?;
            Some(Record::Sample {
                mono_ns: body[0],
                addresses: body.get(2..)?.get(..count)?,
            })
        }
        // Of the fields of sample_id only the time was asked for.
        RECORD_SWITCH if has(SWITCH_OUT) => Some(Record::Left {
            mono_ns: *body.first()?,
            preempted: has(SWITCH_OUT_PREEMPTED),
        }),
        RECORD_SWITCH => Some(Record::Took {
            mono_ns: *body.first()?,
        }),
        RECORD_LOST => Some(Record::Lost(*body.get(1)?)),
        RECORD_THROTTLE => Some(Record::Throttled),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_are_read_as_the_kernel_writes_them() {
        let sample = [7, 3, IN_PROGRAM, 0x1000, 0x2000];
        let expected = Record::Sample {
            mono_ns: 7,
            addresses: &sample[2..],
        };
        assert_eq!(parse(RECORD_SAMPLE, 2, &sample), Some(expected));
        let left = |preempted| Record::Left {
            mono_ns: 9,
            preempted,
        };
        assert_eq!(parse(14, 1 << 13, &[9]), Some(left(false)));
        assert_eq!(parse(14, 3 << 13, &[9]), Some(left(true)));
        assert_eq!(parse(14, 0, &[9]), Some(Record::Took { mono_ns: 9 }));
        assert_eq!(parse(2, 0, &[1, 44, 9]), Some(Record::Lost(44)));
        // A count that reaches beyond the record, and a record of a kind that was not asked for.
        assert_eq!(parse(9, 2, &[7, 4, 1, 2]), None);
        assert_eq!(parse(1, 0, &[1, 2, 3]), None);
        assert_eq!(header(0x0018_2000_0000_000e), [14, 0x2000, 0x18]);
    }

    #[test]
    fn a_counter_that_took_turns_is_reckoned_for_the_whole_time() {
        let counted = |value, enabled_ns, running_ns| Counted {
            value,
            enabled_ns,
            running_ns,
        };
        let nothing = Counted::default();
        for (now, before, expected, uncounted_ns) in [
            (counted(500, 100, 100), nothing, Some(500), 0),
            (counted(500, 100, 50), nothing, Some(1000), 50),
            (counted(500, 100, 25), counted(300, 60, 15), Some(800), 30),
            // A thread that did not run, and a counter that never had its turn.
            (counted(500, 100, 50), counted(500, 100, 50), Some(0), 0),
            (counted(0, 100, 0), nothing, None, 100),
            // No overflow on the way: 2^63 in a half of 2^63 ns.
            (
                counted(1 << 62, 1 << 63, 1 << 62),
                nothing,
                Some(1 << 63),
                1 << 62,
            ),
        ] {
            assert_eq!(now.since(before), expected);
            assert_eq!(now.uncounted_ns(before), uncounted_ns);
        }
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        let opened = Counter::open(Event::CpuClock, u32::MAX, false);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
