//! A flood of copies of one frame, made inside the kernel: BPF_PROG_RUN of an XDP program on live frames (Linux 5.18).
//!
//! One system call sends as many copies as it is asked for, which makes it fast: no frame is copied in, and none has a time
//! or an answer of its own. What has left is known from the counter of the port alone, and a veth whose other end does no NAPI
//! takes frames and loses them without counting anything.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::fit::Fit;
use crate::socket::{IoError, PacketSocket};
use crate::tx::Sent;

const BPF_PROG_LOAD: i32 = 5;
const BPF_PROG_RUN: i32 = 10;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 2;
const BPF_FUNC_REDIRECT: i32 = 23;
const XDP_PASS: i32 = 2;
/// Frames per turn inside the kernel; more is E2BIG.
const BATCH: u32 = 256;
/// Helpers for GPL programs only are not called.
const LICENSE: &std::ffi::CStr = c"Apache-2.0";

/// What became of a copy that the kernel ran and the port did not count: its queue was full.
pub const LOST: Sent = Sent::Full(libc::ENOBUFS);
/// The errno of a port that has taken none at all.
pub const TAKES_NONE: i32 = libc::EOPNOTSUPP;

/// Where the copies go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    /// Out of the port, by its driver's XDP transmit.
    Wire,
    /// Into this host, as if received on the port.
    Host,
}

/// An XDP program that is run, and attached to nothing.
pub struct FloodSender {
    program: OwnedFd,
    interface: String,
    index: u32,
    fit: Fit,
    towards: Towards,
}

/// `bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
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
}

/// The part of `bpf_attr` that BPF_PROG_RUN needs.
#[repr(C)]
#[derive(Default)]
struct Run {
    program: u32,
    returned: u32,
    bytes_in: u32,
    bytes_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_bytes_in: u32,
    context_bytes_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    padding: u32,
}

/// `xdp_md`: where the frame ends and which port it came by.
#[repr(C)]
#[derive(Default)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    port: u32,
    queue: u32,
    egress_port: u32,
}

impl FloodSender {
    /// Loads the program.
    ///
    /// # Errors
    /// If there is no such interface or no permission (CAP_BPF and CAP_NET_ADMIN, outside of any user namespace).
    pub fn open(interface: &str, towards: Towards) -> Result<Self, IoError> {
        let socket = PacketSocket::new(interface)?;
        let index = socket.index.unsigned_abs();
        let code = match towards {
            Towards::Wire => redirect_to(socket.index).to_vec(),
            Towards::Host => vec![set(0, XDP_PASS), EXIT],
        };
        let load = Load {
            kind: BPF_PROG_TYPE_XDP,
            // Four at most.
            instructions: u32::try_from(code.len()).unwrap_or(0),
            first_instruction: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            ..Load::default()
        };
        // SAFETY: the instructions and the license, which are all that `load` points at, live through the call.
        let fd = unsafe { bpf(BPF_PROG_LOAD, &load) };
        let fd = socket.check(fd, "bpf(BPF_PROG_LOAD)")?;
        Ok(Self {
            // SAFETY: the kernel has just given us this descriptor, and it is ours alone.
            program: unsafe { OwnedFd::from_raw_fd(fd) },
            interface: interface.to_owned(),
            index,
            fit: Fit::of(interface)?,
            towards,
        })
    }

    /// Where the copies go.
    #[must_use]
    pub fn towards(&self) -> Towards {
        self.towards
    }

    /// Has the kernel run so many copies of a frame; `Taken` says that it ran them, not that the port took them.
    pub fn send(&self, frame: &[u8], copies: u32) -> Sent {
        if let Some(refused) = self.fit.refusal(frame) {
            return refused;
        }
        // Bounded by the MTU.
        let bytes = u32::try_from(frame.len()).unwrap_or(0);
        let context = Context {
            data_end: bytes,
            port: self.index,
            ..Context::default()
        };
        let mut run = Run {
            program: self.program.as_raw_fd().unsigned_abs(),
            bytes_in: bytes,
            data_in: frame.as_ptr() as u64,
            repeat: copies,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            batch: BATCH,
            ..Run::default()
        };
        // A frame that is redirected needs no port to come from, and not every driver has one to offer.
        if self.towards == Towards::Host {
            run.context_in = (&raw const context) as u64;
            run.context_bytes_in = CONTEXT_BYTES;
        }
        // SAFETY: the frame and the context, which are all that `run` points at, live through the call, which only reads them.
        let done = unsafe { bpf(BPF_PROG_RUN, &run) };
        if done >= 0 {
            return Sent::Taken;
        }
        match Error::last_os_error().raw_os_error().unwrap_or(0) {
            errno @ (libc::ENODEV | libc::ENETDOWN) => Sent::Gone(errno),
            // A signal; the call does not say how many were sent before it.
            errno @ (libc::EINTR | libc::ENOMEM | libc::EAGAIN) => Sent::Full(errno),
            errno => Sent::Unfit(errno),
        }
    }

    /// Frames that have left by the port since it exists, by its own count; `None` if it is gone.
    #[must_use]
    pub fn tx_packets(&self) -> Option<u64> {
        // Of the network namespace of this thread; /sys is that of whoever mounted it.
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").ok()?;
        tx_packets_in(&table, &self.interface)
    }
}

const CONTEXT_BYTES: u32 = 24;
const _: () = assert!(CONTEXT_BYTES as usize == size_of::<Context>());

const EXIT: Instruction = Instruction {
    code: 0x95,
    registers: 0,
    offset: 0,
    value: 0,
};

/// `register = value`.
const fn set(register: u8, value: i32) -> Instruction {
    Instruction {
        code: 0xb7,
        registers: register,
        offset: 0,
        value,
    }
}

/// `return bpf_redirect(index, 0)`.
const fn redirect_to(index: i32) -> [Instruction; 4] {
    let call = Instruction {
        code: 0x85,
        registers: 0,
        offset: 0,
        value: BPF_FUNC_REDIRECT,
    };
    [set(1, index), set(2, 0), call, EXIT]
}

/// bpf(2).
///
/// # Safety
/// What the attribute points at must live through the call, and be as long as it says.
unsafe fn bpf<T>(command: i32, attribute: &T) -> i32 {
    let bytes = size_of::<T>();
    // SAFETY: the attribute lives through the call and its length is its own; the rest is the caller's to see to.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attribute), bytes) };
    // A descriptor, zero or minus one.
    i32::try_from(done).unwrap_or(-1)
}

/// A line of /proc/net/dev: the name, eight counters of receiving, of sending first the bytes, then the packets.
fn tx_packets_in(table: &str, interface: &str) -> Option<u64> {
    let fields = table.lines().find_map(|line| {
        let (name, fields) = line.split_once(':')?;
        (name.trim() == interface).then_some(fields)
    })?;
    fields.split_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_packets_are_the_tenth_number() {
        let table = "Inter-|   Receive | Transmit\n face |bytes packets\n    lo:  1 2 3 4 5 6 7 8 9 10 11\n  t0: 11 12 13 14 15 16 17 18 19 20 21\n";
        assert_eq!(tx_packets_in(table, "t0"), Some(20));
        assert_eq!(tx_packets_in(table, "0"), None);
    }
}
