//! The octets of S1AP, EPS NAS, S6a and S11, and EPS AKA: what the ends say, in types of ours. The only user of the OxiRush crates.
//!
//! What comes from the other end is untrusted: it decodes to one of these types, or it is [`Undecodable`].

pub mod aka;
pub mod diameter;
pub mod gtp;
pub mod nas;
pub mod s1ap;
pub mod s6a;

/// Octets that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these octets are no message")]
pub struct Undecodable;
