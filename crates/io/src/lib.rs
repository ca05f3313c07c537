//! Ways for frames: AF_PACKET and AF_XDP send, write to a tap, flood; TPACKET_V3 and V2 receive; listeners see some flows.

mod fit;
mod socket;

pub mod flood;
pub mod flows;
pub mod link;
pub mod loopback;
pub mod overhear;
mod ring;
pub mod rx;
pub mod slots;
pub mod tap;
pub mod tx;
pub mod xdp;

pub use socket::IoError;
