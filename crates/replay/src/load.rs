//! How fast: the time of each slot of a load whose slots go round the replicas.

use crate::round::Round;
use crate::trace::Trace;

/// How fast.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// The trace's own timing, so many times as fast.
    Timing {
        /// 1 is as captured.
        speed: f64,
    },
    /// A constant rate of packets.
    Rate {
        /// Packets per second of all replicas together.
        pps: f64,
        /// Packets that leave back to back; the rate stays the same.
        burst: u32,
    },
    /// A constant rate of bits: a packet is due when all before it have had their time.
    Bits {
        /// Bits of frames per second of all replicas together, without checksum, preamble and gap.
        bps: f64,
    },
    /// A rate that changes over time.
    Profile(Profile),
    /// As fast as the kernel takes them.
    TopSpeed,
}

/// What cannot be a load.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// Not a positive number.
    #[error("{field} = {value}: must be a positive number")]
    NotPositive {
        /// `speed`, `pps`, `bps`, `burst` or `multiplier`.
        field: &'static str,
        /// As given.
        value: f64,
    },
    /// A line of a profile that is none.
    #[error("line {line}: `{text}` is not `time_s,pps`")]
    NotAPoint {
        /// From 1.
        line: usize,
        /// As it stands.
        text: String,
    },
    /// Time does not grow, or does not begin at 0.
    #[error(
        "line {line}: time {time_s} s: the first must be 0, each later one more than the one before"
    )]
    TimeOrder {
        /// From 1.
        line: usize,
        /// As given.
        time_s: f64,
    },
    /// Nothing to do.
    #[error("a profile needs two points at least, and a rate above 0 before the last")]
    EmptyProfile,
}

impl Load {
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        match *self {
            Self::Timing { speed } => positive("speed", speed),
            Self::Rate { pps, burst } => {
                positive("pps", pps)?;
                positive("burst", f64::from(burst))
            }
            Self::Bits { bps } => positive("bps", bps),
            Self::Profile(_) | Self::TopSpeed => Ok(()),
        }
    }
}

pub(crate) fn positive(field: &'static str, value: f64) -> Result<(), LoadError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(LoadError::NotPositive { field, value })
    }
}

/// Due times of slots that go round the replicas.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InTurn {
    Rate {
        pps: f64,
        burst: u64,
    },
    Bits {
        bps: f64,
        /// Bytes of the trace before packet i, and at the end those of all; the same of what the last replica carries.
        bytes_before: Vec<u64>,
        part_before: Vec<u64>,
    },
    Profile(Profile),
    AtOnce,
}

impl InTurn {
    /// `None` if replicas have times of their own.
    pub(crate) fn new(load: &Load, trace: &Trace, round: &Round) -> Option<Self> {
        Some(match load {
            Load::Timing { .. } => return None,
            Load::Rate { pps, burst } => Self::Rate {
                pps: *pps,
                burst: u64::from(*burst),
            },
            Load::Bits { bps } => Self::Bits {
                bps: *bps,
                bytes_before: bytes_before(trace, 0..trace.packets().len()),
                part_before: bytes_before(trace, round.part().iter().copied()),
            },
            Load::Profile(profile) => Self::Profile(profile.clone()),
            Load::TopSpeed => Self::AtOnce,
        })
    }

    /// When a slot is due after the start; never falls.
    pub(crate) fn due_ns(&self, slot: u64, round: &Round) -> u64 {
        match self {
            Self::Rate { pps, burst } => rounded((slot - slot % burst) as f64 * 1e9 / pps),
            Self::Bits {
                bps,
                bytes_before,
                part_before,
            } => {
                let whole = u64::from(round.whole());
                let (pass, turn) = (slot / round.slots(), round.turn(slot % round.slots()));
                let all = bytes_before[bytes_before.len() - 1].saturating_mul(whole)
                    + part_before[part_before.len() - 1];
                let before = bytes_before[turn.packet];
                let of_packet = bytes_before[turn.packet + 1] - before;
                let bytes = (pass.saturating_mul(all))
                    .saturating_add(before.saturating_mul(whole))
                    .saturating_add(part_before[turn.part_before])
                    .saturating_add(u64::from(turn.replica) * of_packet);
                rounded(bytes as f64 * 8e9 / bps)
            }
            Self::Profile(profile) => profile.due_ns(slot),
            Self::AtOnce => 0,
        }
    }

    /// Time after which nothing is due.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        match self {
            Self::Profile(profile) => Some(profile.end_ns()),
            _ => None,
        }
    }
}

fn bytes_before(trace: &Trace, packets: impl Iterator<Item = usize>) -> Vec<u64> {
    let mut sum = 0;
    let mut before = vec![0];
    for packet in packets {
        sum += u64::from(trace.packets()[packet].length());
        before.push(sum);
    }
    before
}

/// A rate over time: points, and from one to the next a constant rate or a straight line.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    points: Vec<Point>,
    ramp: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    time_s: f64,
    pps: f64,
    /// Packets due before.
    before: f64,
}

impl Profile {
    /// Reads lines of `time_s,pps`, of which the first may be a heading; the last one ends the profile. Without `ramp` a rate
    /// holds until the next point, with it the rate changes evenly.
    ///
    /// # Errors
    /// If a line is no point, times do not grow, or nothing would be sent.
    pub fn from_csv(text: &str, ramp: bool) -> Result<Self, LoadError> {
        let mut points: Vec<Point> = Vec::new();
        for (line, row) in (1..).zip(text.lines()) {
            let row = row.trim();
            let is_heading = line == 1 && row.starts_with(|c: char| c.is_ascii_alphabetic());
            if row.is_empty() || row.starts_with('#') || is_heading {
                continue;
            }
            let (time_s, pps) = point(row).ok_or_else(|| LoadError::NotAPoint {
                line,
                text: row.into(),
            })?;
            let before = match points.last() {
                None if time_s == 0.0 => 0.0,
                Some(last) if time_s > last.time_s => {
                    let mean = if ramp {
                        f64::midpoint(last.pps, pps)
                    } else {
                        last.pps
                    };
                    last.before + mean * (time_s - last.time_s)
                }
                _ => return Err(LoadError::TimeOrder { line, time_s }),
            };
            points.push(Point {
                time_s,
                pps,
                before,
            });
        }
        match points.last() {
            Some(last) if points.len() > 1 && last.before > 0.0 => Ok(Self { points, ramp }),
            _ => Err(LoadError::EmptyProfile),
        }
    }

    fn end_ns(&self) -> u64 {
        self.points
            .last()
            .map_or(0, |last| rounded(last.time_s * 1e9))
    }

    /// When as many packets as `slot` are due before.
    fn due_ns(&self, slot: u64) -> u64 {
        let slot = slot as f64;
        let next = self.points.partition_point(|point| point.before <= slot);
        let (Some(next), Some(last)) =
            (self.points.get(next), self.points.get(next.wrapping_sub(1)))
        else {
            return self.end_ns();
        };
        let missing = slot - last.before;
        let slope = if self.ramp {
            (next.pps - last.pps) / (next.time_s - last.time_s)
        } else {
            0.0
        };
        // missing = pps * t + slope / 2 * t^2, solved in the form that has no cancellation.
        let root = (last.pps * last.pps + 2.0 * slope * missing)
            .max(0.0)
            .sqrt();
        let after = if missing > 0.0 {
            2.0 * missing / (last.pps + root)
        } else {
            0.0
        };
        rounded((last.time_s + after).min(next.time_s) * 1e9)
    }
}

fn point(row: &str) -> Option<(f64, f64)> {
    let (time_s, pps) = row.split_once(',')?;
    let (time_s, pps) = (
        time_s.trim().parse::<f64>().ok()?,
        pps.trim().parse::<f64>().ok()?,
    );
    (time_s.is_finite() && pps.is_finite() && pps >= 0.0).then_some((time_s, pps))
}

/// Times are positive; what is past 2^64 ns saturates.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "see above"
)]
pub(crate) fn rounded(ns: f64) -> u64 {
    ns.round() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::trace::tests::trace;

    fn dues(load: &Load, replicas: u32, slots: u64) -> Vec<u64> {
        let round = Round::new(2, replicas, None);
        let in_turn = InTurn::new(load, &trace(&[0, 0]), &round).unwrap();
        (0..slots)
            .map(|slot| in_turn.due_ns(slot, &round))
            .collect()
    }

    #[test]
    fn bursts_keep_the_rate() {
        let load = Load::Rate { pps: 1e9, burst: 3 };
        assert_eq!(dues(&load, 1, 8), [0, 0, 0, 3, 3, 3, 6, 6]);
    }

    #[test]
    fn bits_give_each_frame_its_time() {
        // Frames of 20 and 21 bytes at 1 byte per ns.
        let load = Load::Bits { bps: 8e9 };
        assert_eq!(dues(&load, 1, 5), [0, 20, 41, 61, 82]);
        assert_eq!(dues(&load, 2, 6), [0, 20, 40, 61, 82, 102]);
    }

    #[test]
    fn steps_hold_until_the_next_point() {
        let profile = Profile::from_csv("time_s,pps\n0,1\n2,4\n\n3, 0\n4,1\n5,0\n", false).unwrap();
        let dues = dues(&Load::Profile(profile), 1, 9);
        let quarters: Vec<u64> = dues.iter().map(|ns| ns / 250_000_000).collect();
        assert_eq!(quarters, [0, 4, 8, 9, 10, 11, 16, 20, 20]);
    }

    #[test]
    fn a_ramp_changes_evenly() {
        // 0 to 8 pps in 2 s: after t s, 2 t^2 packets are due.
        let profile = Profile::from_csv("0,0\n2,8", true).unwrap();
        let expected: Vec<u64> = (0..9)
            .map(|slot| rounded((f64::from(slot) / 2.0).sqrt() * 1e9))
            .collect();
        assert_eq!(dues(&Load::Profile(profile), 1, 9), expected);
        let down = Profile::from_csv("0,8\n2,0", true).unwrap();
        assert_eq!(down.due_ns(8), 2_000_000_000);
        assert_eq!(down.due_ns(6), 1_000_000_000);
    }

    #[test]
    fn a_bad_profile_is_named_by_line() {
        let error = |text| Profile::from_csv(text, false).unwrap_err().to_string();
        assert_eq!(error("0,5\n1;5"), "line 2: `1;5` is not `time_s,pps`");
        assert!(error("1,5\n2,5").starts_with("line 1: time 1 s"));
        assert!(error("0,5\n0,6").starts_with("line 2: time 0 s"));
        for nothing in ["", "0,5", "0,0\n1,9"] {
            assert!(error(nothing).starts_with("a profile needs"));
        }
    }
}
