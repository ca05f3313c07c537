//! Ways for frames: AF_PACKET and AF_XDP send, write to a tap, flood, TPACKET_V3 receive; and the clock, sleep and priority of the thread that drives them.

mod fit;
mod socket;

pub mod file;
pub mod flood;
pub mod idle;
pub mod kvm;
pub mod link;
pub mod loopback;
pub mod packed;
pub mod rx;
pub mod tap;
pub mod thread;
pub mod tx;
pub mod xdp;

pub use socket::IoError;
