//! Ways for frames: AF_PACKET and AF_XDP send, write to a tap, flood, TPACKET_V3 and V2 receive; and the clock, sleep and priority of the thread that drives them.

mod fit;
mod socket;

pub mod file;
pub mod flood;
pub mod idle;
pub mod kvm;
pub mod link;
pub mod loopback;
pub mod packed;
mod ring;
pub mod rx;
pub mod slots;
pub mod tap;
pub mod thread;
pub mod tx;
pub mod xdp;

pub use socket::IoError;
