//! Whether /dev/kvm runs guests at the speed of the CPU: a guest of 12 bytes that counts down in ring 0, and how long it takes.
//!
//! That a guest runs at all says little: a nested /dev/kvm may emulate supervisor code a thousand times slower and still come
//! to its end. So the speed itself is measured.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

use crate::memory::Mapping;

const KVM_GET_API_VERSION: libc::c_ulong = 0xae00;
const KVM_CREATE_VM: libc::c_ulong = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: libc::c_ulong = 0xae04;
const KVM_CREATE_VCPU: libc::c_ulong = 0xae41;
const KVM_SET_USER_MEMORY_REGION: libc::c_ulong = 0x4020_ae46;
const KVM_SET_TSS_ADDR: libc::c_ulong = 0xae47;
const KVM_RUN: libc::c_ulong = 0xae80;
const KVM_SET_REGS: libc::c_ulong = 0x4090_ae82;
const KVM_GET_SREGS: libc::c_ulong = 0x8138_ae83;
const KVM_SET_SREGS: libc::c_ulong = 0x4138_ae84;
const KVM_EXIT_HLT: u32 = 5;
const EXIT_REASON_OFFSET: usize = 8;

const CODE_ADDRESS: usize = 0x1000;
const MEMORY_BYTES: usize = 0x4000;
/// Below the 4 GiB, away from the guest's memory: three pages that old Intel CPUs need for real mode.
const TSS_ADDRESS: libc::c_ulong = 0xfffb_d000;

#[repr(C)]
struct MemoryRegion {
    slot: u32,
    flags: u32,
    guest_address: u64,
    bytes: u64,
    host_address: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Segment {
    base: u64,
    limit: u32,
    selector: u16,
    kind: u8,
    present: u8,
    dpl: u8,
    db: u8,
    s: u8,
    l: u8,
    g: u8,
    avl: u8,
    unusable: u8,
    padding: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Table {
    base: u64,
    limit: u16,
    padding: [u16; 3],
}

/// struct kvm_sregs.
#[repr(C)]
#[derive(Default)]
struct SpecialRegisters {
    cs: Segment,
    data: [Segment; 5],
    tr_ldt: [Segment; 2],
    tables: [Table; 2],
    cr0: u64,
    cr2_3_4_8: [u64; 4],
    efer: u64,
    apic_base: u64,
    interrupts: [u64; 4],
}
const _: () = assert!(size_of::<SpecialRegisters>() == 0x138);

/// struct kvm_regs: 16 registers, rip, rflags.
#[repr(C)]
#[derive(Default)]
struct Registers {
    general: [u64; 16],
    rip: u64,
    rflags: u64,
}
const _: () = assert!(size_of::<Registers>() == 0x90);

/// Runs `iterations` of decrement and jump in ring 0 of a guest.
///
/// # Errors
/// What the kernel says of a step, or that the guest ended otherwise than by its `hlt`.
pub fn count_down(iterations: u32) -> Result<Duration> {
    let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
    if control(&kvm, KVM_GET_API_VERSION, 0)? != 12 {
        return Err(Error::other("/dev/kvm speaks another API version than 12"));
    }
    let machine = owned(control(&kvm, KVM_CREATE_VM, 0)?);
    // Only Intel asks for it, and only without unrestricted guests; elsewhere it may be refused.
    let _unneeded = control(&machine, KVM_SET_TSS_ADDR, TSS_ADDRESS);
    let mut memory = Mapping::anonymous(MEMORY_BYTES)?;
    memory.write(CODE_ADDRESS, &code(iterations));
    let region = MemoryRegion {
        slot: 0,
        flags: 0,
        guest_address: 0,
        bytes: MEMORY_BYTES as u64,
        host_address: memory.start().addr().get() as u64,
    };
    pass(&machine, KVM_SET_USER_MEMORY_REGION, &region)?;
    let cpu = owned(control(&machine, KVM_CREATE_VCPU, 0)?);
    let shared_bytes = control(&kvm, KVM_GET_VCPU_MMAP_SIZE, 0)?;
    let shared = Mapping::shared(&cpu, usize::try_from(shared_bytes).unwrap_or(0), 0)?;
    flat_protected_mode(&cpu)?;
    let began = Instant::now();
    control(&cpu, KVM_RUN, 0)?;
    let took = began.elapsed();
    match exit_reason(&shared) {
        KVM_EXIT_HLT => Ok(took),
        other => Err(Error::other(format!(
            "the guest ended with exit reason {other} instead of its hlt"
        ))),
    }
}

/// Of `struct kvm_run`, which the kernel shares.
fn exit_reason(run: &Mapping) -> u32 {
    assert!(EXIT_REASON_OFFSET + size_of::<u32>() <= run.bytes());
    // SAFETY: within the mapping, as just compared; the kernel wrote it before KVM_RUN returned. No alignment is asked for.
    unsafe {
        let reason = run.start().add(EXIT_REASON_OFFSET);
        reason.cast::<u32>().read_unaligned()
    }
}

/// mov ecx, iterations; dec ecx; jnz back; hlt
fn code(iterations: u32) -> [u8; 9] {
    let [a, b, c, d] = iterations.to_le_bytes();
    [0xb9, a, b, c, d, 0x49, 0x75, 0xfd, 0xf4]
}

fn flat_protected_mode(cpu: &File) -> Result<()> {
    let mut special = SpecialRegisters::default();
    pass_mut(cpu, KVM_GET_SREGS, &mut special)?;
    let flat = Segment {
        limit: u32::MAX,
        present: 1,
        db: 1,
        s: 1,
        g: 1,
        ..Segment::default()
    };
    special.cs = Segment {
        selector: 8,
        kind: 0xb, // code: execute, read, accessed
        ..flat
    };
    special.data = [Segment {
        selector: 16,
        kind: 3, // data: read, write, accessed
        ..flat
    }; 5];
    special.cr0 |= 1;
    pass(cpu, KVM_SET_SREGS, &special)?;
    let registers = Registers {
        rip: CODE_ADDRESS as u64,
        rflags: 2,
        ..Registers::default()
    };
    pass(cpu, KVM_SET_REGS, &registers)
}

fn control(file: &File, request: libc::c_ulong, argument: libc::c_ulong) -> Result<i32> {
    // SAFETY: the requests passed here take a number, no pointer.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    if answer < 0 {
        return Err(Error::last_os_error());
    }
    Ok(answer)
}

fn pass<T>(file: &File, request: libc::c_ulong, argument: &T) -> Result<()> {
    // SAFETY: each request's number holds the size of the structure it reads, which T has.
    let answer =
        unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_ref(argument)) };
    if answer < 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

fn pass_mut<T>(file: &File, request: libc::c_ulong, argument: &mut T) -> Result<()> {
    // SAFETY: as above; it writes as much.
    let answer =
        unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if answer < 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

fn owned(fd: i32) -> File {
    // SAFETY: the kernel has just given us this descriptor, and it is ours alone.
    unsafe { File::from_raw_fd(fd) }
}
