//! The facts of a trace for people.

use std::fmt::{Display, Formatter, Result};

use crate::checksums::Verified;
use crate::info::{Info, Rate};
use crate::prepare::{count_of, grouped};
use crate::reassembly::Counts;

/// A gap of so long is named: a capture that long is rare, a wrong timestamp is not.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Most protocols shown.
const PROTOCOLS: usize = 12;
/// Columns of a key, and of a line.
const KEY: usize = 13;
const LINE: usize = 80;

impl Display for Info {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.totals(f)?;
        self.mix(f)?;
        self.checks(f)?;
        self.fragments(f)?;
        self.oddities(f)
    }
}

/// A key and its words, which go on below themselves.
fn row(f: &mut Formatter<'_>, key: &str, words: &str) -> Result {
    let (mut line, mut empty) = (format!("{key:KEY$}"), true);
    for word in words.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > LINE {
            writeln!(f, "{line}")?;
            (line, empty) = (" ".repeat(KEY), true);
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    writeln!(f, "{line}")
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(
            f,
            "{} IPv4: {} in {}, {} that never come out",
            grouped(self.offered_packets),
            grouped(self.absorbed_packets),
            count_of(self.datagrams, "complete datagram"),
            grouped(self.held_packets)
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
            .map(|(count, name)| format!("{} {name}", grouped(*count)))
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
        let seconds = self.duration_ns as f64 / 1e9;
        row(
            f,
            "packets",
            &format!("{} in {seconds:.6} s", grouped(self.packets)),
        )?;
        row(
            f,
            "frames",
            &format!(
                "{} bytes; shortest {}, mean {mean:.1}, longest {}",
                grouped(self.frame_bytes),
                self.shortest_frame_bytes,
                grouped(self.longest_frame_bytes)
            ),
        )?;
        let rate = |rate: &Rate, unit: &str| {
            let peak = grouped(rate.peak);
            let mean = match self.duration_ns {
                0 => "–".into(),
                _ => grouped(format_args!("{:.0}", rate.mean)),
            };
            format!("{mean} {unit}/s, {peak} in the busiest second")
        };
        row(f, "rate", &rate(&self.packets_per_s, "packets"))?;
        row(f, "", &rate(&self.bytes_per_s, "bytes"))?;
        let peak = &self.peak_demand;
        let at = match peak.speed {
            1.0 => String::new(),
            speed => format!(" at {speed} times its speed"),
        };
        for (key, packets, ms) in [
            ("peak demand", peak.packets_in_1_ms, 1),
            ("", peak.packets_in_10_ms, 10),
        ] {
            let (count, per_s) = (count_of(packets, "packet"), grouped(packets * 1_000 / ms));
            row(f, key, &format!("{count} within {ms} ms ({per_s}/s){at}"))?;
        }
        let (sizes, flows) = (&self.flow_sizes, grouped(self.flows));
        let outside = if self.outer_flows == self.flows {
            String::new()
        } else {
            format!(" inside tunnels, {} outside", grouped(self.outer_flows))
        };
        row(f, "flows", &format!("{flows}{outside}"))?;
        if sizes.packets == 0 {
            return Ok(());
        }
        let part = 100.0 * sizes.largest_packets as f64 / sizes.packets as f64;
        let largest = count_of(sizes.largest_packets, "packet");
        row(f, "", &format!("the largest has {largest}, {part:.1} %"))?;
        let like = equal_ones(sizes.effective);
        row(f, "", &format!("they spread over threads like {like}"))
    }

    /// So many packets of a kind, and their part of all.
    fn share(&self, f: &mut Formatter<'_>, key: &str, kind: &str, packets: u64) -> Result {
        let part = 100.0 * packets as f64 / self.packets.max(1) as f64;
        let (count, s) = (grouped(packets), if packets == 1 { " " } else { "s" });
        writeln!(f, "{key:KEY$}{kind:<20} {count:>11} packet{s} {part:5.1} %")
    }

    fn mix(&self, f: &mut Formatter<'_>) -> Result {
        let mut protocols: Vec<_> = self.protocols.iter().collect();
        protocols.sort_by_key(|(_, share)| std::cmp::Reverse(share.packets));
        for (n, (name, share)) in protocols.iter().take(PROTOCOLS).enumerate() {
            let key = if n == 0 { "protocols" } else { "" };
            self.share(f, key, name, share.packets)?;
        }
        if protocols.len() > PROTOCOLS {
            row(f, "", &format!("and {} more", protocols.len() - PROTOCOLS))?;
        }
        let (mut key, mut from) = ("sizes", 0);
        for (name, packets) in &self.sizes {
            let to: Option<u64> = name.parse().ok();
            let kind = match to {
                Some(to) => format!("{} to {} bytes", grouped(from), grouped(to)),
                None => format!("from {} bytes", grouped(from)),
            };
            from = to.unwrap_or(from) + 1;
            if *packets > 0 {
                self.share(f, key, &kind, *packets)?;
                key = "";
            }
        }
        Ok(())
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
        let mut head = false;
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
                if !head {
                    writeln!(
                        f,
                        "{:KEY$}{:6} {:>11} {:>11} {:>11} {:>14}",
                        "checksums", "", "right", "wrong", "absent", "not verifiable"
                    )?;
                    head = true;
                }
                let [right, wrong, absent, unverifiable] =
                    [right, wrong, absent, unverifiable].map(grouped);
                writeln!(
                    f,
                    "{:KEY$}{name:6} {right:>11} {wrong:>11} {absent:>11} {unverifiable:>14}",
                    ""
                )?;
            }
        }
        Ok(())
    }

    fn fragments(&self, f: &mut Formatter<'_>) -> Result {
        let counts = &self.fragments_in_pass;
        let untouched = &self.fragments_untouched;
        let mut key = "fragments";
        if counts.offered_packets > 0 {
            row(f, key, &counts.to_string())?;
            key = "";
        }
        let others = [
            (untouched.capture_cut_packets, "cut by the capture"),
            (untouched.bad_header_packets, "with a bad header"),
            (untouched.second_tag_packets, "behind a second VLAN tag"),
            (untouched.ipv6_packets, "IPv6"),
        ];
        let there: Vec<_> = (others.iter().filter(|(count, _)| *count > 0))
            .map(|(count, which)| format!("{} {which}", grouped(*count)))
            .collect();
        if !there.is_empty() {
            row(
                f,
                key,
                &format!("{}: these reach a sensor as fragments", there.join(", ")),
            )?;
        }
        Ok(())
    }

    fn oddities(&self, f: &mut Formatter<'_>) -> Result {
        for (link, count) in &self.given_header_packets {
            let packets = count_of(*count, "packet");
            let header = "shown with an Ethernet header, as a replay sends them";
            row(f, "note", &format!("{packets} of {link}: {header}"))?;
        }
        for (reason, left_out) in &self.left_out {
            let packets = count_of(left_out.packets, "packet");
            let first = grouped(left_out.first_packet);
            row(
                f,
                "note",
                &format!("{packets} not counted here: {reason} (the first is packet {first})"),
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
                "longer than 1,514 bytes",
            ),
            (self.duplicate_frames, "frame", "equal to an earlier one"),
            (
                self.backwards.packets,
                "packet",
                "that stood behind one of a later time: all of this is in the order of time, in which a replay sends it (load.order)",
            ),
            (
                self.no_handler.packets,
                "frame",
                "that no protocol of the kernel takes (rx_dropped, unless a tap is there)",
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
                row(f, "note", &format!("{} {what}", count_of(count, noun)))?;
            }
        }
        let gap_h = self.longest_gap.ns / HOUR_NS;
        if gap_h > 0 {
            let after = grouped(self.longest_gap.after_packet);
            row(
                f,
                "note",
                &format!(
                    "{gap_h} h pass without a packet after packet {after}: look at its timestamps"
                ),
            )?;
        }
        match &self.bad_record {
            Some(bad) => row(f, "bad record", &bad.message),
            None => Ok(()),
        }
    }
}
