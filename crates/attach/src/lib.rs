//! LTE attaches: eNodeBs with UEs that offer them open-loop to an MME, and a reference MME of known service time.
//!
//! The state machines do no I/O and read no clock: octets and the time go in, octets come out. So a test drives both ends against
//! each other, with any fault between them. Sockets and the clock are in [`serve`] and [`offer`].

pub mod address;
pub mod association;
pub mod behind;
pub mod core;
pub mod enb;
pub mod framed;
pub mod ledger;
pub mod mme;
pub mod offer;
pub mod sctp;
pub mod serve;
pub mod stubs;
pub mod subscribers;
pub mod ue;
pub mod wire;

/// One S1AP message, for an association, on one of its streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Which association, by its number.
    pub link: usize,
    /// 0 for messages of no UE.
    pub stream: u16,
    /// An S1AP PDU.
    pub pdu: Vec<u8>,
}
