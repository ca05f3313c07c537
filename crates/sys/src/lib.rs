//! What needs unsafe code and is no packet: mapped memory and files, clocks, threads, idle states, associations of SCTP, events of the kernel, and the speed of /dev/kvm.

pub mod clock;
pub mod file;
pub mod idle;
pub mod kvm;
pub mod memory;
pub mod perf;
pub mod run_queue;
pub mod sctp;
pub mod seccomp;
pub mod thread;
