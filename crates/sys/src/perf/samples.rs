//! What the kernel writes of one event of one thread into a ring, and how it is read.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Attributes, Event};
use crate::memory::Mapping;

const FREQUENCY: u64 = 1 << 10;
const CONTEXT_SWITCH: u64 = 1 << 26;

const WITH_TIME: u64 = 1 << 2;
const WITH_CALLERS: u64 = 1 << 5;
const WITH_REGISTERS: u64 = 1 << 12;
const WITH_STACK: u64 = 1 << 13;

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

/// When a sample is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// So many times a second of CPU time.
    Hertz(u64),
    /// Once for so many times that the event happens.
    Count(u64),
    /// Each time the event happens, with the times at which the thread leaves and takes a CPU.
    Time,
    /// Never, only those times.
    SwitchTimes,
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
        /// If it was asked for, and the program has a stack.
        program: Option<Program<'a>>,
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

/// Where the program was, and a copy of its stack from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    /// Address of the instruction that comes next.
    pub instruction: u64,
    /// What the stack pointer shows, the first word of `stack`.
    pub stack_pointer: u64,
    /// The frame pointer, or what else a program keeps there.
    pub frame_pointer: u64,
    /// Of an ARM: where the function returns to. Else 0.
    pub link: u64,
    /// Words.
    pub stack: &'a [u64],
}

/// Frame pointer, stack pointer, instruction by their bits in <asm/perf_regs.h>; of an ARM also the link, before the stack pointer.
const REGISTERS: u64 = if cfg!(target_arch = "aarch64") {
    0xf << 29
} else {
    0x7 << 6
};
const ABI_64: u64 = 2;

impl<'a> Program<'a> {
    /// `abi, registers, bytes, stack, bytes of it that are filled`; the two last only if there is one.
    fn parse(body: &'a [u64]) -> Option<Self> {
        let (&abi, rest) = body.split_first()?;
        let (registers, rest) = rest.split_at_checked(REGISTERS.count_ones() as usize)?;
        let (&bytes, rest) = rest.split_first()?;
        let (stack, rest) = rest.split_at_checked(usize::try_from(bytes / 8).ok()?)?;
        let filled = usize::try_from(rest.first()? / 8).ok()?;
        let &[frame_pointer, ref link @ .., stack_pointer, instruction] = registers else {
            return None;
        };
        (abi == ABI_64).then_some(Self {
            instruction,
            stack_pointer,
            frame_pointer,
            link: link.first().copied().unwrap_or(0),
            stack: stack.get(..filled)?,
        })
    }
}

/// Before the addresses of the kernel.
pub const IN_KERNEL: u64 = 0u64.wrapping_sub(128);
/// Before the addresses of the program.
pub const IN_PROGRAM: u64 = 0u64.wrapping_sub(512);

/// The records of one event of one thread.
#[derive(Debug)]
pub struct Samples {
    event: OwnedFd,
    ring: Mapping,
    /// What a record is copied to, so that it is in one piece and aligned.
    record: Vec<u64>,
}

impl Samples {
    /// `ring_pages` is a power of two; a smaller ring is taken if the limit on locked memory forbids that. With `stack_bytes`
    /// samples have a copy of so much of the program's stack beside the addresses. (Events that happen at once share their
    /// addresses in the kernel, so those of the program are never left out.)
    ///
    /// # Errors
    /// What perf_event_open(2) and mmap(2) say: EACCES and EPERM if it is not permitted.
    pub fn open(
        event: Event,
        tid: u32,
        every: Every,
        with_kernel: bool,
        ring_pages: usize,
        stack_bytes: u32,
    ) -> Result<Self> {
        let mut attributes = Attributes::new(event, with_kernel);
        attributes.sample_type = WITH_TIME | WITH_CALLERS;
        match every {
            Every::Hertz(hertz) => {
                attributes.flags |= FREQUENCY;
                attributes.period = hertz;
            }
            Every::Count(count) => attributes.period = count,
            Every::Time => {
                attributes.flags |= CONTEXT_SWITCH;
                attributes.period = 1;
            }
            Every::SwitchTimes => {
                attributes.flags |= CONTEXT_SWITCH;
                attributes.sample_type = WITH_TIME;
            }
        }
        if stack_bytes > 0 {
            attributes.sample_type |= WITH_REGISTERS | WITH_STACK;
            (attributes.user_registers, attributes.user_stack) = (REGISTERS, stack_bytes);
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
            event,
            ring,
            record: Vec::new(),
        })
    }

    /// From now on a sample for so many events.
    ///
    /// # Errors
    /// What ioctl(2) says.
    pub fn set_count(&self, count: u64) -> Result<()> {
        const SET_PERIOD: libc::Ioctl = 0x4008_2404;
        // SAFETY: the kernel reads the word.
        let done = unsafe { libc::ioctl(self.event.as_raw_fd(), SET_PERIOD, &raw const count) };
        if done == 0 {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    }

    /// So many samples more than are still allowed, then none until this is called again. Without it there is no end.
    ///
    /// # Errors
    /// What ioctl(2) says.
    pub fn allow(&self, samples: u32) -> Result<()> {
        const REFRESH: libc::Ioctl = 0x2402;
        // SAFETY: the kernel takes the number.
        let done = unsafe { libc::ioctl(self.event.as_raw_fd(), REFRESH, samples) };
        if done == 0 {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
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
        #[allow(
            clippy::cast_possible_truncation,
            reason = "below the size of the ring"
        )]
        let offset = (from % room as u64) as usize & !7;
        let words = words.min(room / 8);
        let first = words.min((room - offset) / 8);
        self.record.clear();
        self.record.reserve(words);
        let data = self.ring.start().as_ptr().wrapping_add(PAGE).cast::<u64>();
        // SAFETY: both parts lie within the data pages and are aligned, and the room for them was reserved; the kernel writes
        // there no more until the tail moves.
        unsafe {
            let to = self.record.as_mut_ptr();
            data.add(offset / 8).copy_to_nonoverlapping(to, first);
            data.copy_to_nonoverlapping(to.add(first), words - first);
            self.record.set_len(words);
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
            let (addresses, rest) = body.get(2..)?.split_at_checked(count)?;
            Some(Record::Sample {
                mono_ns: body[0],
                addresses,
                program: Program::parse(rest),
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
            program: None,
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
    #[cfg(target_arch = "x86_64")]
    fn a_copy_of_the_stack_stands_behind_the_addresses() {
        let sample = [7, 1, IN_KERNEL, 2, 0xb0, 0x50, 0x1000, 24, 1, 2, 0, 16];
        let Some(Record::Sample { program, .. }) = parse(RECORD_SAMPLE, 2, &sample) else {
            unreachable!()
        };
        let expected = Program {
            instruction: 0x1000,
            stack_pointer: 0x50,
            frame_pointer: 0xb0,
            link: 0,
            stack: &[1, 2],
        };
        assert_eq!(program, Some(expected));
        let of = |body: &[u64]| Program::parse(body).is_none();
        assert!(of(&[1, 0xb0, 0x50, 0x1000, 8, 1, 8])); // a program of 32 bits
        assert!(of(&[0, 0])); // a thread of the kernel
        assert!(of(&[2, 0xb0, 0x50, 0x1000, 16, 1, 8])); // more than there is
        assert!(of(&[2, 0xb0, 0x50, 0x1000, 8, 1, 16]));
    }
}
