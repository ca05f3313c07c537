//! Job `overhear`: frames of one EtherType that arrive where they should not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `overhear`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize, clap::Args)]
pub struct OverhearSpec {
    /// Network interfaces to listen on; one that is not there is left out
    #[arg(long, value_name = "NAME[,NAME]...", value_delimiter = ',')]
    pub interfaces: Vec<String>,
    /// Of the frames that are counted
    #[arg(long)]
    pub ethertype: u16,
}

/// `ready` of `overhear`: every socket is open and bound.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct OverhearReady {
    /// Those that are there.
    pub interfaces: Vec<String>,
}

/// Frames of one sender at one interface.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Overheard {
    /// Where they arrived.
    pub interface: String,
    /// Source address, as `02:00:00:00:00:01`.
    pub source: String,
    /// How many.
    pub packets: u64,
}

/// `result` of `overhear`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct OverhearResult {
    /// By interface and sender; empty if none came.
    pub heard: Vec<Overheard>,
    /// Frames of this EtherType for which the sockets had no room: from whom is not known.
    pub lost_packets: u64,
}
