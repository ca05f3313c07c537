//! Packet views, capture-file readers, flow hashing and address rewriting; no I/O.

pub mod capture;
pub mod checksum;
pub mod erf;
pub mod ethernet;
pub mod flow;
pub mod packed;
pub mod pcap;
pub mod pcapng;
pub mod record;
pub mod replica_addresses;
pub mod segment;
pub mod snoop;
pub mod tunnel;
pub mod view;

mod addresses;
mod bytes;
mod ip;
mod link;
mod walk;
