//! The facts of a trace for people.

use std::fmt::{Display, Formatter, Result};

use crate::checksums::Verified;
use crate::info::{Info, Rate};
use crate::prepare::count_of;
use crate::reassembly::Counts;

/// A gap of so long is named: a capture that long is rare, a wrong timestamp is not.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Most protocols shown.
const PROTOCOLS: usize = 12;

impl Display for Info {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.totals(f)?;
        self.mix(f)?;
        self.checks(f)?;
        self.fragments(f)?;
        self.oddities(f)
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(
            f,
            "{} IPv4: {} in {}, {} that never come out",
            self.offered_packets,
            self.absorbed_packets,
            count_of(self.datagrams, "complete datagram"),
            self.held_packets
        )?;
        let classes = [
            (self.incomplete_packets, "incomplete"),
            (self.timed_out_packets, "timed out"),
            (self.duplicate_packets, "duplicate"),
            (self.overlapping_packets, "overlapping"),
            (self.contradicting_packets, "contradicting"),
            (self.oversize_packets, "oversize"),
            (self.ecn_mixed_packets, "mixed ECN"),
            (self.too_far_packets, "too far"),
            (self.refused_packets, "refused for memory"),
        ];
        let there: Vec<_> = (classes.iter().filter(|(count, _)| *count > 0))
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        if there.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", there.join(", "))
    }
}

/// So many flows of one size.
fn equal_ones(effective: f64) -> String {
    match format!("{effective:.0}").as_str() {
        "1" => "a single one".into(),
        flows => format!("{flows} equal ones"),
    }
}

#[allow(clippy::cast_precision_loss)] // figures for people
impl Info {
    fn totals(&self, f: &mut Formatter<'_>) -> Result {
        let mean = self.frame_bytes as f64 / self.packets.max(1) as f64;
        writeln!(
            f,
            "packets      {} in {:.6} s",
            self.packets,
            self.duration_ns as f64 / 1e9
        )?;
        writeln!(
            f,
            "frames       {} bytes; shortest {}, mean {mean:.1}, longest {}",
            self.frame_bytes, self.shortest_frame_bytes, self.longest_frame_bytes
        )?;
        let mean = |rate: &Rate| match self.duration_ns {
            0 => "–".into(),
            _ => format!("{:.0}", rate.mean),
        };
        writeln!(
            f,
            "rate         {} packets/s, peak {}; {} bytes/s, peak {}",
            mean(&self.packets_per_s),
            self.packets_per_s.peak,
            mean(&self.bytes_per_s),
            self.bytes_per_s.peak
        )?;
        let (peak, ms) = (&self.peak_demand, 1_000);
        let at = match peak.speed {
            1.0 => String::new(),
            speed => format!(" at {speed} times its speed"),
        };
        writeln!(
            f,
            "peak demand  {} within 1 ms ({}/s), {} within 10 ms ({}/s){at}",
            count_of(peak.packets_in_1_ms, "packet"),
            peak.packets_in_1_ms * ms,
            peak.packets_in_10_ms,
            peak.packets_in_10_ms * ms / 10
        )?;
        let sizes = &self.flow_sizes;
        write!(f, "flows        {}", self.flows)?;
        if self.outer_flows != self.flows {
            write!(f, " inside tunnels, {} outside", self.outer_flows)?;
        }
        if sizes.packets > 0 {
            let part = 100.0 * sizes.largest_packets as f64 / sizes.packets as f64;
            write!(
                f,
                "; the largest has {}, {part:.1} %; they spread like {}",
                count_of(sizes.largest_packets, "packet"),
                equal_ones(sizes.effective)
            )?;
        }
        writeln!(f)
    }

    fn mix(&self, f: &mut Formatter<'_>) -> Result {
        let mut protocols: Vec<_> = self.protocols.iter().collect();
        protocols.sort_by_key(|(_, share)| std::cmp::Reverse(share.packets));
        for (row, (name, share)) in protocols.iter().take(PROTOCOLS).enumerate() {
            let title = if row == 0 { "protocols" } else { "" };
            let part = 100.0 * share.packets as f64 / self.packets as f64;
            writeln!(
                f,
                "{title:12} {name:<14} {:>10} packet{} {part:5.1} %",
                share.packets,
                if share.packets == 1 { " " } else { "s" }
            )?;
        }
        if protocols.len() > PROTOCOLS {
            writeln!(f, "{:12} and {} more", "", protocols.len() - PROTOCOLS)?;
        }
        let sizes: Vec<_> = self
            .sizes
            .iter()
            .map(|(end, count)| format!("{end} {count}"))
            .collect();
        writeln!(f, "sizes        up to {}", sizes.join(", "))
    }

    fn checks(&self, f: &mut Formatter<'_>) -> Result {
        let sums = &self.checksums;
        let rows = [
            ("IPv4", sums.ipv4_header),
            ("TCP", sums.tcp),
            ("UDP", sums.udp),
            ("ICMP", sums.icmp),
            ("ICMPv6", sums.icmpv6),
        ];
        for (
            name,
            Verified {
                right,
                wrong,
                absent,
                unverifiable,
            },
        ) in rows
        {
            if right + wrong + absent + unverifiable > 0 {
                writeln!(
                    f,
                    "checksums    {name:<6} {right} right, {wrong} wrong, {absent} absent, {unverifiable} not verifiable"
                )?;
            }
        }
        Ok(())
    }

    fn fragments(&self, f: &mut Formatter<'_>) -> Result {
        let counts = &self.fragments_in_pass;
        let untouched = &self.fragments_untouched;
        if counts.offered_packets > 0 {
            writeln!(f, "fragments    {counts}")?;
        }
        let others = [
            (untouched.capture_cut_packets, "cut by the capture"),
            (untouched.bad_header_packets, "with a bad header"),
            (untouched.second_tag_packets, "behind a second VLAN tag"),
            (untouched.ipv6_packets, "IPv6"),
        ];
        for (count, which) in others {
            if count > 0 {
                writeln!(f, "             {count} {which}: delivered as they are")?;
            }
        }
        Ok(())
    }

    fn oddities(&self, f: &mut Formatter<'_>) -> Result {
        for (link, count) in &self.given_header_packets {
            let packets = count_of(*count, "packet");
            writeln!(
                f,
                "note         {packets} of {link}: shown with an Ethernet header, as a replay sends them"
            )?;
        }
        for (reason, left_out) in &self.left_out {
            let packets = count_of(left_out.packets, "packet");
            writeln!(
                f,
                "note         {packets} not counted here: {reason} (the first is packet {})",
                left_out.first_packet
            )?;
        }
        let odd = [
            (self.cut_packets, "packet", "cut by the capture"),
            (
                self.fcs_packets,
                "packet",
                "with a frame check sequence, which no replay sends",
            ),
            (
                self.beyond_wire_packets,
                "packet",
                "captured longer than on the wire; no replay sends the rest",
            ),
            (
                self.odd_fraction_packets,
                "packet",
                "with a fraction of a second or more beside the seconds: nanoseconds under the header of microseconds (load.nanoseconds, trace prepare --nanoseconds)",
            ),
            (self.vlan_packets[0], "frame", "with one VLAN tag"),
            (self.vlan_packets[1], "frame", "with more VLAN tags"),
            (
                self.longer_than_1514_packets,
                "frame",
                "longer than 1514 bytes",
            ),
            (self.duplicate_frames, "frame", "equal to an earlier one"),
            (
                self.backwards.packets,
                "packet",
                "earlier than the one before: all of this is in the order of time, in which a replay sends it (load.order)",
            ),
            (
                self.no_handler.packets,
                "frame",
                "without a protocol handler in the kernel (rx_dropped without a tap)",
            ),
            (
                self.no_handler.tagged_packets,
                "frame",
                "that count as rx_dropped even with a tap",
            ),
            (
                self.no_handler.never_at_tap_packets,
                "frame",
                "too short to reach a tap",
            ),
        ];
        for (count, noun, what) in odd {
            if count > 0 {
                writeln!(f, "note         {} {what}", count_of(count, noun))?;
            }
        }
        let gap_h = self.longest_gap.ns / HOUR_NS;
        if gap_h > 0 {
            writeln!(
                f,
                "note         {gap_h} h pass without a packet after packet {}: look at its timestamps",
                self.longest_gap.after_packet
            )?;
        }
        match &self.bad_record {
            Some(bad) => writeln!(f, "bad record   {}", bad.message),
            None => Ok(()),
        }
    }
}
