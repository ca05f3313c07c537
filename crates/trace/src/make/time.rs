//! Units of time, in ns.

pub const MICROSECOND_NS: u64 = 1_000;
pub const MILLISECOND_NS: u64 = 1_000_000;
pub const SECOND_NS: u64 = 1_000_000_000;
