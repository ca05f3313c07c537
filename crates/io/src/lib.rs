//! Sockets that carry frames: AF_PACKET send, TPACKET_V3 receive; and the clock, sleep and priority of the thread that drives them.

mod socket;

pub mod file;
pub mod kvm;
pub mod link;
pub mod loopback;
pub mod packed;
pub mod rx;
pub mod thread;
pub mod tx;
pub mod xdp;

pub use socket::IoError;
