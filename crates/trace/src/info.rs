//! The facts of a trace: everything the packet ledger must know before a packet is sent.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::checksums::Checksums;
use crate::peak::PeakDemand;
use crate::prepare::LeftOut;
use crate::reassembly::Counts;

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "TraceShare")]
pub struct Share {
    /// Frames.
    pub packets: u64,
    /// Captured bytes of them.
    pub frame_bytes: u64,
}

impl Share {
    /// One more frame.
    pub fn add(&mut self, frame: &[u8]) {
        self.packets += 1;
        self.frame_bytes += frame.len() as u64;
    }
}

/// Mean and peak over seconds of the trace's own time.
#[derive(Debug, Clone, Copy, Default, PartialEq, JsonSchema, Serialize)]
pub struct Rate {
    /// Over the whole duration and the mean gap once more, so that n packets have the time of n; 0 if no time passes.
    pub mean: f64,
    /// In the busiest second, wherever it begins.
    pub peak: u64,
}

/// Fragments that fanout defragmentation delivers as they are, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct UntouchedFragments {
    /// The capture holds less than the IP header announces.
    pub capture_cut_packets: u64,
    /// Version, header length or total length make no sense.
    pub bad_header_packets: u64,
    /// A second VLAN tag hides the IP header.
    pub second_tag_packets: u64,
    /// IPv6.
    pub ipv6_packets: u64,
}

/// Frames that the receiving host's stack has no use for: not lost, an IDS sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct NoHandler {
    /// All of them; `rx_dropped` counts these if no tap listens.
    pub packets: u64,
    /// Those with a VLAN tag; `rx_dropped` counts these even if a tap listens, after the tap has got them.
    pub tagged_packets: u64,
    /// By protocol after the outermost tag; "llc" has a handler if the kernel's llc module is loaded.
    pub untagged: BTreeMap<String, u64>,
    /// The same for the tagged ones.
    pub tagged: BTreeMap<String, u64>,
    /// Frames too short to reach a tap at all.
    pub never_at_tap_packets: u64,
}

/// Time that runs backwards in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Backwards {
    /// Packets earlier than one before them.
    pub packets: u64,
    /// How far the earliest of them lies behind.
    pub max_ns: u64,
}

/// The longest time without a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Gap {
    /// How long.
    pub ns: u64,
    /// The packet before it, from 1; 0 in a trace without a gap.
    pub after_packet: u64,
}

/// How the packets fall to the flows: what a hash over flows can make even, and what it cannot.
#[derive(Debug, Clone, Copy, Default, PartialEq, JsonSchema, Serialize)]
pub struct FlowSizes {
    /// Packets that belong to a flow.
    pub packets: u64,
    /// Of those, packets of the largest flow.
    pub largest_packets: u64,
    /// So many flows of equal size would spread over threads as unevenly (square of the sum by the sum of squares).
    pub effective: f64,
}

impl FlowSizes {
    #[allow(clippy::cast_precision_loss)] // a figure for people and for a rule of thumb
    pub(crate) fn of(sizes: impl Iterator<Item = u64>) -> Self {
        let (mut found, mut squares) = (Self::default(), 0.0);
        for size in sizes {
            found.packets += size;
            found.largest_packets = found.largest_packets.max(size);
            squares += (size as f64).powi(2);
        }
        if found.packets > 0 {
            found.effective = (found.packets as f64).powi(2) / squares;
        }
        found
    }
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct BadRecord {
    /// What is wrong, with packet number and byte offset.
    pub message: String,
}

/// Facts of a trace.
#[derive(Debug, Clone, JsonSchema, Serialize)]
pub struct Info {
    /// LINKTYPE_ of the file: Ethernet.
    pub link_type: u32,
    /// Whole packets.
    pub packets: u64,
    /// Their captured bytes, which is what a replay sends.
    pub frame_bytes: u64,
    /// Their bytes on the wire where they were captured.
    pub original_bytes: u64,
    /// Packets that the capture cut.
    pub cut_packets: u64,
    /// Packets that end with a frame check sequence which the header announces, and which no replay sends.
    pub fcs_packets: u64,
    /// Packets captured longer than they were on the wire; no replay sends the rest.
    pub beyond_wire_packets: u64,
    /// Packets whose fraction of a second is a second or more: nanoseconds under the magic of microseconds, mostly.
    pub odd_fraction_packets: u64,
    /// Packets of other links, which are looked at with an Ethernet header, as a replay sends them.
    pub given_header_packets: BTreeMap<String, u64>,
    /// Packets that no Ethernet port carries, by reason; nothing else here counts them.
    pub left_out: BTreeMap<String, LeftOut>,
    /// Since the epoch; `None` in an empty trace.
    pub first_timestamp_ns: Option<u64>,
    /// The latest, wherever in the file it stands.
    pub last_timestamp_ns: Option<u64>,
    /// From the first packet to the latest timestamp.
    pub duration_ns: u64,
    /// Packets per second.
    pub packets_per_s: Rate,
    /// Bytes per second.
    pub bytes_per_s: Rate,
    /// What it asks of a sender at once.
    pub peak_demand: PeakDemand,
    /// Shortest frame.
    pub shortest_frame_bytes: u64,
    /// Longest frame.
    pub longest_frame_bytes: u64,
    /// Frames longer than 1,514 bytes, which a port with an MTU of 1500 refuses (four more with a VLAN tag).
    pub longer_than_1514_packets: u64,
    /// Packets by captured length: upper end of each class, and "longer".
    pub sizes: BTreeMap<&'static str, u64>,
    /// By network and transport protocol below all tags.
    pub protocols: BTreeMap<String, Share>,
    /// Packets with one VLAN tag, and with more.
    pub vlan_packets: [u64; 2],
    /// Distinct symmetric 5-tuples, of tunnels the innermost, as an IDS sees them; later fragments, which have no ports, are left out.
    pub flows: u64,
    /// The same by the outermost header, as the kernel spreads them.
    pub outer_flows: u64,
    /// How large the outermost ones are.
    pub flow_sizes: FlowSizes,
    /// Frames equal, byte by byte, to an earlier one.
    pub duplicate_frames: u64,
    /// Time that runs backwards in the file; all else here is in the order of time.
    pub backwards: Backwards,
    /// The longest time without a packet, beyond the latest before.
    pub longest_gap: Gap,
    /// Right, wrong and absent checksums.
    pub checksums: Checksums,
    /// What the kernel has no handler for.
    pub no_handler: NoHandler,
    /// What fanout defragmentation makes of one pass on its own.
    pub fragments_in_pass: Counts,
    /// Fragments it leaves alone, in one pass.
    pub fragments_untouched: UntouchedFragments,
    /// Where the file ended early, if that was tolerated.
    pub bad_record: Option<BadRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_one_size_are_as_many_as_they_are() {
        for flows in [1_u8, 7, 200] {
            let found = FlowSizes::of((0..flows).map(|_| 3));
            assert_eq!(found.packets, 3 * u64::from(flows));
            assert_eq!(found.largest_packets, 3);
            assert!((found.effective - f64::from(flows)).abs() < 1e-9);
        }
    }

    #[test]
    fn an_elephant_counts_for_all() {
        for (elephant, mice, effective) in [
            (100, 100_usize, 40_000.0 / 10_100.0),
            (1_000, 10, 1_010.0_f64.powi(2) / 1_000_010.0),
            (60, 0, 1.0),
        ] {
            let found = FlowSizes::of(std::iter::repeat_n(1, mice).chain([elephant]));
            assert_eq!(found.largest_packets, elephant);
            assert!((found.effective - effective).abs() < 1e-9);
        }
    }

    #[test]
    fn no_flow_has_no_size() {
        assert_eq!(FlowSizes::of(std::iter::empty()), FlowSizes::default());
    }
}
