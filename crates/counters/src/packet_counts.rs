//! What the kernel counts for every packet socket of every process and network namespace, read without touching it.
//!
//! A getsockopt(PACKET_STATISTICS) sets the counters of a socket to zero, so that its owner misses them for good. This reader is
//! a BPF iterator over open files (`iter/task_file`): the kernel walks its own tables once per reading, and nothing runs per
//! packet. The program below is its own source: no compiler and no object file; offsets come from the kernel's BTF. It reads
//! kernel memory by `bpf_probe_read_kernel`, which the kernel gives to programs under a licence compatible with the GPL alone;
//! those instructions are under Apache-2.0 or GPL-2.0 (docs/adr/0026-others-ring-counters.md).

use std::ffi::CStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::btf::Btf;
use crate::netlink::{u32_at, u64_at};
use crate::{CounterError, Result};

const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_ITER_CREATE: i32 = 33;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_ITER: u32 = 28;
const GET_CURRENT_TASK: i32 = 35;
const PROBE_READ_KERNEL: i32 = 113;
const SEQ_WRITE: i32 = 127;
/// Since 5.11.
const SOCK_FROM_FILE: i32 = 162;
const AF_PACKET: i32 = 17;
/// The kernel's word for "Apache-2.0 or GPL-2.0" is that of the half it asks for.
const LICENSE: &CStr = c"GPL";

/// PACKET_FANOUT_FLAG_DEFRAG in the byte that the kernel keeps.
const DEFRAG: u64 = 0x80;

/// A packet socket as one process holds it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PacketCounts {
    /// Of a process that holds it, as our own PID namespace numbers it.
    pub pid: u32,
    /// Its number there: programs that open one socket per thread do so in order.
    pub fd: u32,
    /// As in `/proc/PID/fd`: `socket:[inode]`.
    pub inode: u64,
    /// 0 = every interface, -1 = the one it was bound to is gone.
    pub ifindex: i32,
    /// EtherType it listens to; 3 = all; 0 = none, a sender.
    pub protocol: u32,
    /// Its owner's BPF filter leaves packets out, and no counter has those. A classic filter that takes all, as that of a tcpdump
    /// without an expression, is none.
    pub filtered: bool,
    /// `None` if it has none: packets wait in the socket's buffer.
    pub ring: Option<RingShape>,
    /// `None` if it stands alone.
    pub fanout: Option<Fanout>,
    /// Packets that it took, without those that were dropped, since its owner last asked.
    pub tp_packets: u64,
    /// Packets that found its ring, or its buffer, full, since its owner last asked.
    pub tp_drops: u64,
    /// Times a ring of version 3 was found full, since its owner last asked.
    pub tp_freezes: u64,
}

/// A receive ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct RingShape {
    /// TPACKET_V1, 2 or 3.
    pub version: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the ring.
    pub blocks: u64,
    /// Of versions 1 and 2: room of one packet.
    pub frame_bytes: u64,
    /// Of versions 1 and 2: packets that it holds.
    pub frames: u64,
    /// Frame or, of version 3, block that the kernel writes into next.
    pub head: u64,
    /// Of version 3: a block is given to the reader after that long, however empty.
    pub retire_ms: Option<u64>,
}

/// A group of sockets that share the packets of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Fanout {
    /// Its number in the network namespace.
    pub id: u64,
    /// PACKET_FANOUT_*: 0 hash of the flow, 1 in turns, 2 CPU, 5 receive queue of the NIC …
    pub kind: u64,
    /// Whether it puts IPv4 fragments together first: fewer packets come to the sockets than to the port.
    pub defrag: bool,
}

/// What is read of each socket: a name of ours is its place in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Pid,
    Inode,
    Ifindex,
    Protocol,
    Version,
    Blocks,
    BlockPages,
    FrameBytes,
    FrameMax,
    Head,
    ActiveBlock,
    RetireMs,
    RetireNs,
    FanoutId,
    FanoutKind,
    FanoutFlags,
    Packets,
    Drops,
    Freezes,
    Fd,
    Filter,
    /// The first instruction of a classic filter.
    FirstStep,
    /// Three that are not for the record's reader: pointers on the way, the depth of our PID namespace, and the family.
    Pointer,
    Level,
    Family,
}

const FIELDS: usize = Field::Family as usize + 1;
const RECORD: usize = 8 * FIELDS;
/// The same as the program's instructions have it.
const RECORD_BYTES: i32 = 8 * (Field::Family as i32 + 1);

/// Beside the record, on the program's stack of 512 bytes.
const fn slot(field: Field) -> i32 {
    (field as i32) * 8 - RECORD_BYTES
}

/// Field of ours, where it lies and its length.
const OF_SOCKET: [(Field, &str, i32); 15] = [
    (Field::Filter, "sock.sk_filter", 8),
    (Field::Ifindex, "packet_sock.ifindex", 4),
    (Field::Protocol, "packet_sock.num", 2),
    (Field::Version, "packet_sock.tp_version", 4),
    (Field::Blocks, "packet_sock.rx_ring.pg_vec_len", 4),
    (Field::BlockPages, "packet_sock.rx_ring.pg_vec_pages", 4),
    (Field::FrameBytes, "packet_sock.rx_ring.frame_size", 4),
    (Field::FrameMax, "packet_sock.rx_ring.frame_max", 4),
    (Field::Head, "packet_sock.rx_ring.head", 4),
    (
        Field::ActiveBlock,
        "packet_sock.rx_ring.prb_bdqc.kactive_blk_num",
        2,
    ),
    (Field::Packets, "packet_sock.stats.stats1.tp_packets", 4),
    // Until 4.18 a plain counter of the socket's statistics.
    (Field::Drops, "packet_sock.tp_drops", 4),
    (
        Field::Freezes,
        "packet_sock.stats.stats3.tp_freeze_q_cnt",
        4,
    ),
    // Until 6.18 in ms, from then on in ns.
    (
        Field::RetireMs,
        "packet_sock.rx_ring.prb_bdqc.retire_blk_tov",
        2,
    ),
    (
        Field::RetireNs,
        "packet_sock.rx_ring.prb_bdqc.interval_ktime",
        8,
    ),
];
/// Without them a reading has nothing to say of those.
const MAY_LACK: [Field; 2] = [Field::RetireMs, Field::RetireNs];
const OF_FANOUT: [(Field, &str, i32); 3] = [
    (Field::FanoutId, "packet_fanout.id", 2),
    (Field::FanoutKind, "packet_fanout.type", 1),
    (Field::FanoutFlags, "packet_fanout.flags", 1),
];
/// From the filter of a socket to its instructions as its owner wrote them; an eBPF program has none.
const TO_STEPS: [&str; 3] = [
    "sk_filter.prog",
    "bpf_prog.orig_prog",
    "sock_fprog_kern.filter",
];
/// BPF_RET | BPF_K: the packet's first K bytes are taken.
const RETURN: u64 = 0x06;

/// `bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    value: i32,
}

/// The part of `bpf_attr` that BPF_PROG_LOAD needs; the kernel takes what is missing for zero.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    first_instruction: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
    /// Of types of the program's own: it has none.
    types: [u32; 9],
    attach_to: u32,
    attach_within: u32,
}

/// For BPF_LINK_CREATE.
#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    /// Address of a `Walk`; 0 = every process.
    walk: u64,
    walk_bytes: u32,
    rest: u32,
}

/// `bpf_iter_link_info` of tasks: one process. Since 6.1.
#[repr(C)]
#[derive(Default)]
struct Walk {
    thread: u32,
    process: u32,
    process_fd: u32,
    rest: u32,
}

/// Bytes of a `Walk`.
const WALK_BYTES: u32 = 16;

/// For BPF_ITER_CREATE.
#[repr(C)]
#[derive(Default)]
struct Iterator {
    link: u32,
    flags: u32,
}

/// The iterator, in the kernel for as long as this lives.
#[derive(Debug)]
pub struct PacketCountsReader {
    link: OwnedFd,
    records: Vec<u8>,
}

impl PacketCountsReader {
    /// Loads the program.
    ///
    /// # Errors
    /// Without BTF, or without CAP_BPF and CAP_PERFMON in the first user namespace.
    pub fn new(root: &Path) -> Result<Self> {
        Self::walking(&Btf::of_kernel(root)?, None)
    }

    /// Loads the program for the files of one process, so that a reading costs what that process holds, not what all do. A
    /// kernel before 6.1 cannot: it walks over all of them.
    ///
    /// # Errors
    /// Without BTF, or without CAP_BPF and CAP_PERFMON in the first user namespace.
    pub(crate) fn of_process(btf: &Btf, pid: u32) -> Result<Self> {
        Self::walking(btf, Some(pid)).or_else(|_| Self::walking(btf, None))
    }

    fn walking(btf: &Btf, process: Option<u32>) -> Result<Self> {
        let absent = || CounterError::Kernel {
            call: "BPF iterator over files",
            source: ErrorKind::Unsupported.into(),
        };
        let code = program(&|path| btf.offset(path)).ok_or_else(absent)?;
        let load = Load {
            kind: BPF_PROG_TYPE_TRACING,
            instructions: u32::try_from(code.len()).unwrap_or(0),
            first_instruction: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            name: *b"nodrop_psockets\0",
            expected_attach_type: BPF_TRACE_ITER,
            attach_to: btf.function("bpf_iter_task_file").ok_or_else(absent)?,
            ..Load::default()
        };
        // SAFETY: the instructions and the license, which are all that `load` points at, live through the call.
        let program = unsafe { bpf(BPF_PROG_LOAD, &load, "bpf(BPF_PROG_LOAD)") }?;
        let walk = process.map(|process| Walk {
            process,
            ..Walk::default()
        });
        let link = Link {
            program: program.as_raw_fd().unsigned_abs(),
            attach_type: BPF_TRACE_ITER,
            walk: walk
                .as_ref()
                .map_or(0, |walk| std::ptr::from_ref(walk) as u64),
            walk_bytes: if walk.is_some() { WALK_BYTES } else { 0 },
            ..Link::default()
        };
        Ok(Self {
            // SAFETY: the walk, which is all that it points at, lives through the call.
            link: unsafe { bpf(BPF_LINK_CREATE, &link, "bpf(BPF_LINK_CREATE)") }?,
            records: Vec::new(),
        })
    }

    /// Every packet socket, once for each process that holds it.
    pub fn read(&mut self) -> Result<Vec<PacketCounts>> {
        let link = Iterator {
            link: self.link.as_raw_fd().unsigned_abs(),
            ..Iterator::default()
        };
        // SAFETY: it points at nothing.
        let iterator = unsafe { bpf(BPF_ITER_CREATE, &link, "bpf(BPF_ITER_CREATE)") }?;
        self.records.clear();
        let read = File::from(iterator).read_to_end(&mut self.records);
        read.map_err(|source| CounterError::Kernel {
            call: "read(BPF iterator)",
            source,
        })?;
        let records = self.records.chunks_exact(RECORD);
        Ok(records.filter_map(parsed).collect())
    }
}

fn parsed(record: &[u8]) -> Option<PacketCounts> {
    let word = |field: Field| u64_at(record, field as usize * 8);
    let half = |field: Field| u32_at(record, field as usize * 8);
    let blocks = word(Field::Blocks)?;
    let version = half(Field::Version)? + 1;
    let retire_ms = match (word(Field::RetireMs)?, word(Field::RetireNs)?) {
        _ if version != 3 => None,
        (0, 0) => None,
        (0, ns) => Some(ns / 1_000_000),
        (ms, _) => Some(ms),
    };
    let ring = RingShape {
        version,
        block_bytes: word(Field::BlockPages)? * crate::clock::page_bytes(),
        blocks,
        frame_bytes: word(Field::FrameBytes)?,
        frames: word(Field::FrameMax)? + 1,
        head: word(if version == 3 {
            Field::ActiveBlock
        } else {
            Field::Head
        })?,
        retire_ms,
    };
    let flags = word(Field::FanoutFlags)?;
    let fanout = Fanout {
        id: word(Field::FanoutId)?,
        kind: word(Field::FanoutKind)?,
        defrag: flags & DEFRAG != 0,
    };
    let drops = word(Field::Drops)?;
    Some(PacketCounts {
        pid: half(Field::Pid)?,
        fd: half(Field::Fd)?,
        inode: word(Field::Inode)?,
        ifindex: i32::from_ne_bytes(half(Field::Ifindex)?.to_ne_bytes()),
        protocol: u16::from_be(u16::try_from(half(Field::Protocol)?).ok()?).into(),
        filtered: word(Field::Filter)? != 0 && !takes_all(word(Field::FirstStep)?),
        ring: (blocks > 0).then_some(ring),
        // The pointer that was followed last: null for a socket that stands alone.
        fanout: (word(Field::Pointer)? != 0).then_some(fanout),
        tp_packets: word(Field::Packets)?,
        tp_drops: drops,
        tp_freezes: word(Field::Freezes)?,
    })
}

/// `sock_filter`: code in its first two bytes, K in its last four.
pub(crate) fn takes_all(first_step: u64) -> bool {
    first_step & 0xffff == RETURN && first_step >> 32 != 0
}

/// The program: for each open file of each process, one record if it is a packet socket. `offset` is where a field lies; `None`
/// if this kernel lacks one that it takes.
fn program(offset: &dyn Fn(&str) -> Option<u32>) -> Option<Vec<Instruction>> {
    let at = |path: &str| offset(path).and_then(|bytes| i32::try_from(bytes).ok());
    let (context, file, socket, task) = (7, 6, 8, 9);
    let mut code = Code(vec![copy(context, 1)]);
    code.load(task, context, at("bpf_iter__task_file.task")?);
    code.leave_if_null(task);
    code.load(file, context, at("bpf_iter__task_file.file")?);
    code.leave_if_null(file);
    code.0.extend([copy(1, file), call(SOCK_FROM_FILE)]);
    code.leave_if_null(0);
    code.load(socket, 0, at("socket.sk")?);
    code.leave_if_null(socket);
    // What is read into half a word must not be beside what an earlier file left.
    for number in 0..FIELDS {
        let field = i32::try_from(number).ok()? * 8 - RECORD_BYTES;
        code.0.push(store_zero(field));
    }
    code.read(Field::Family, 2, socket, at("sock.__sk_common.skc_family")?);
    code.load(1, 10, slot(Field::Family));
    code.leave_unless(1, AF_PACKET);
    for (field, path, bytes) in OF_SOCKET {
        match at(path) {
            Some(place) => code.read(field, bytes, socket, place),
            None if MAY_LACK.contains(&field) => {}
            None => return None,
        }
    }
    code.read(Field::Pointer, 8, socket, at("sock.sk_filter")?);
    for path in TO_STEPS {
        code.load(3, 10, slot(Field::Pointer));
        code.read_at(Field::Pointer, 8, at(path)?);
    }
    code.load(3, 10, slot(Field::Pointer));
    code.read_at(Field::FirstStep, 8, 0);
    code.read(Field::Pointer, 8, file, at("file.f_inode")?);
    code.load(3, 10, slot(Field::Pointer));
    code.read_at(Field::Inode, 8, at("inode.i_ino")?);
    // A process has a number in each PID namespace around it; ours is that of whoever reads.
    let pid_of = at("task_struct.thread_pid")?;
    code.0.push(call(GET_CURRENT_TASK));
    code.read(Field::Pointer, 8, 0, pid_of);
    code.load(3, 10, slot(Field::Pointer));
    code.read_at(Field::Level, 4, at("pid.level")?);
    code.read(Field::Pointer, 8, task, at("task_struct.group_leader")?);
    code.load(3, 10, slot(Field::Pointer));
    code.read_at(Field::Pointer, 8, pid_of);
    code.load(3, 10, slot(Field::Pointer));
    code.load(1, 10, slot(Field::Level));
    code.0
        .extend([multiply(1, at("upid.ns")? + 8), add_register(3, 1)]);
    code.read_at(Field::Pid, 4, at("pid.numbers")? + at("upid.nr")?);
    code.load_half(1, context, at("bpf_iter__task_file.fd")?);
    code.0.push(store(slot(Field::Fd), 1));
    code.read(Field::Pointer, 8, socket, at("packet_sock.fanout")?);
    for (field, path, bytes) in OF_FANOUT {
        // Of a null pointer the read fails and leaves zeros.
        code.load(3, 10, slot(Field::Pointer));
        code.read_at(field, bytes, at(path)?);
    }
    code.load(1, context, at("bpf_iter__task_file.meta")?);
    code.load(1, 1, at("bpf_iter_meta.seq")?);
    code.0.extend([
        copy(2, 10),
        add(2, -RECORD_BYTES),
        set(3, RECORD_BYTES),
        call(SEQ_WRITE),
    ]);
    Some(code.finished())
}

/// Instructions so far; jumps without a target leave.
struct Code(Vec<Instruction>);

const LEAVE: i16 = i16::MAX;

impl Code {
    fn load(&mut self, register: u8, base: u8, offset: i32) {
        self.0.push(instruction(0x79, register, base, offset, 0));
    }

    fn load_half(&mut self, register: u8, base: u8, offset: i32) {
        self.0.push(instruction(0x61, register, base, offset, 0));
    }

    fn leave_if_null(&mut self, register: u8) {
        self.0.push(instruction(0x15, register, 0, LEAVE.into(), 0));
    }

    fn leave_unless(&mut self, register: u8, value: i32) {
        self.0
            .push(instruction(0x55, register, 0, LEAVE.into(), value));
    }

    /// Into the slot of a field, from a register that points at kernel memory.
    fn read(&mut self, field: Field, bytes: i32, base: u8, offset: i32) {
        self.0.push(copy(3, base));
        self.read_at(field, bytes, offset);
    }

    /// The same from register 3.
    fn read_at(&mut self, field: Field, bytes: i32, offset: i32) {
        self.0.extend([
            add(3, offset),
            copy(1, 10),
            add(1, slot(field)),
            set(2, bytes),
            call(PROBE_READ_KERNEL),
        ]);
    }

    fn finished(mut self) -> Vec<Instruction> {
        let end = self.0.len();
        self.0.extend([set(0, 0), instruction(0x95, 0, 0, 0, 0)]);
        for (place, step) in self.0.iter_mut().enumerate() {
            if matches!(step.code, 0x15 | 0x55) && step.offset == LEAVE {
                step.offset = i16::try_from(end - place - 1).unwrap_or(0);
            }
        }
        self.0
    }
}

fn instruction(code: u8, to: u8, from: u8, offset: i32, value: i32) -> Instruction {
    Instruction {
        code,
        registers: from << 4 | to,
        // Of a struct or the stack: far less than 32 KiB.
        offset: i16::try_from(offset).unwrap_or(0),
        value,
    }
}

fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

fn add(register: u8, value: i32) -> Instruction {
    instruction(0x07, register, 0, 0, value)
}

fn add_register(to: u8, from: u8) -> Instruction {
    instruction(0x0f, to, from, 0, 0)
}

fn multiply(register: u8, value: i32) -> Instruction {
    instruction(0x27, register, 0, 0, value)
}

fn set(register: u8, value: i32) -> Instruction {
    instruction(0xb7, register, 0, 0, value)
}

fn call(helper: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, helper)
}

/// `*(u64 *)(r10 + offset) = 0`.
fn store_zero(offset: i32) -> Instruction {
    instruction(0x7a, 10, 0, offset, 0)
}

fn store(offset: i32, from: u8) -> Instruction {
    instruction(0x7b, 10, from, offset, 0)
}

/// bpf(2) of a command that answers with a descriptor.
///
/// # Safety
/// What the attribute points at must live through the call, and be as long as it says.
unsafe fn bpf<T>(command: i32, attribute: &T, call: &'static str) -> Result<OwnedFd> {
    let bytes = size_of::<T>();
    // SAFETY: the attribute lives through the call and its length is its own; the rest is the caller's to see to.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), bytes) };
    match i32::try_from(done) {
        // SAFETY: the kernel has just given us this descriptor, and it is ours alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(CounterError::Kernel {
            call,
            source: Error::last_os_error(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(values: &[(Field, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; RECORD];
        for (field, value) in values {
            bytes[*field as usize * 8..][..8].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_ring_in_a_group_and_a_socket_alone() {
        let all = u64::from(3u16.to_be());
        let grouped = parsed(&record(&[
            (Field::Pid, 77),
            (Field::Fd, 9),
            (Field::Inode, 4_000_000_000),
            (Field::Ifindex, 2),
            (Field::Protocol, all),
            (Field::Version, 2),
            (Field::Blocks, 13),
            (Field::BlockPages, 32),
            (Field::RetireNs, 10_000_000),
            (Field::Pointer, 0xffff_8880_0000_0000),
            (Field::FanoutId, 99),
            (Field::FanoutFlags, 0x80),
            (Field::Filter, 1),
            (Field::FirstStep, 0x000c_0000_0000_0028), // loads a half word
            (Field::Packets, 120),
            (Field::Drops, 30),
            (Field::Freezes, 2),
        ]))
        .unwrap();
        let ring = grouped.ring.unwrap();
        assert_eq!(
            (ring.version, ring.blocks, ring.retire_ms),
            (3, 13, Some(10))
        );
        assert_eq!(ring.block_bytes, 32 * crate::clock::page_bytes());
        let fanout = grouped.fanout.unwrap();
        assert_eq!((fanout.id, fanout.kind, fanout.defrag), (99, 0, true));
        assert_eq!(
            (grouped.tp_packets, grouped.tp_drops, grouped.tp_freezes),
            (120, 30, 2)
        );
        assert_eq!((grouped.pid, grouped.fd, grouped.protocol), (77, 9, 3));
        assert!(grouped.filtered);
        let gone = u64::from(u32::MAX);
        let alone = parsed(&record(&[(Field::Ifindex, gone), (Field::RetireMs, 8)])).unwrap();
        assert_eq!((alone.ifindex, alone.ring, alone.fanout), (-1, None, None));
        assert!(!alone.filtered);
    }

    #[test]
    fn jumps_lead_to_the_end_and_a_kernel_without_a_field_has_no_program() {
        let code = program(&|_| Some(16)).unwrap();
        let end = code.len() - 2;
        let jumps = code
            .iter()
            .enumerate()
            .filter(|(_, i)| matches!(i.code, 0x15 | 0x55));
        for (place, jump) in jumps {
            assert_eq!(place + 1 + usize::try_from(jump.offset).unwrap(), end);
        }
        for (path, lacks) in [
            ("packet_sock.tp_drops", true),
            ("packet_fanout.flags", true),
            ("packet_sock.rx_ring.prb_bdqc.retire_blk_tov", false),
        ] {
            let found = program(&|asked| (asked != path).then_some(16));
            assert_eq!(found.is_none(), lacks, "{path}");
        }
    }

    /// As root on a kernel with BTF. Elsewhere it is refused, which is an answer as well.
    #[test]
    fn a_socket_of_this_process_and_nothing_taken_from_it() {
        let Ok(mut reader) = PacketCountsReader::new(Path::new("/")) else {
            return;
        };
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0x0300) };
        assert!(fd >= 0);
        // SAFETY: `fd` is open and ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let own = |found: Vec<PacketCounts>| {
            let mine =
                |one: &PacketCounts| one.pid == std::process::id() && one.fd == fd.unsigned_abs();
            found.into_iter().find(mine).unwrap()
        };
        let first = own(reader.read().unwrap());
        assert!(!first.filtered);
        assert_eq!((first.ifindex, first.protocol, first.ring), (0, 3, None));
        let again = own(reader.read().unwrap());
        assert!(again.tp_packets >= first.tp_packets && again.inode == first.inode);
        let cases = [
            (0x06, 96, false),
            (0x06, 0, true),
            (0x06, 262_144, false),
            (0x16, 0, true),
        ];
        for (code, k, selective) in cases {
            let mut steps = [libc::sock_filter {
                code,
                jt: 0,
                jf: 0,
                k,
            }];
            let filter = libc::sock_fprog {
                len: 1,
                filter: steps.as_mut_ptr(),
            };
            // SAFETY: the kernel copies the filter, whose steps live through the call.
            let done = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_ATTACH_FILTER,
                    std::ptr::from_ref(&filter).cast(),
                    u32::try_from(size_of::<libc::sock_fprog>()).unwrap(),
                )
            };
            assert_eq!(done, 0);
            let filtered = own(reader.read().unwrap()).filtered;
            assert_eq!(filtered, selective, "{code} {k}");
        }
    }
}
