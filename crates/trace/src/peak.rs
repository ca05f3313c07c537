//! What a trace asks of a sender at once.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

/// The most packets that one replica of the trace asks for within a short time, wherever that begins.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
pub struct PeakDemand {
    /// Factor on the trace's own timing.
    pub speed: f64,
    /// Within 1 ms.
    pub packets_in_1_ms: u64,
    /// Within 10 ms.
    pub packets_in_10_ms: u64,
}

impl PeakDemand {
    /// Of packets at these times, which never fall.
    pub fn of(times_ns: impl IntoIterator<Item = u64>, speed: f64) -> Self {
        let mut peaks = Peaks::new(speed);
        times_ns.into_iter().for_each(|due_ns| peaks.add(due_ns));
        peaks.demand()
    }
}

/// Finds it packet by packet.
#[derive(Debug)]
pub(crate) struct Peaks {
    speed: f64,
    in_1_ms: Peak,
    in_10_ms: Peak,
}

impl Peaks {
    pub fn new(speed: f64) -> Self {
        Self {
            speed,
            in_1_ms: Peak::of(1e6 * speed),
            in_10_ms: Peak::of(1e7 * speed),
        }
    }

    /// Times never fall: a packet with an earlier time is due with its forerunner.
    pub fn add(&mut self, due_ns: u64) {
        self.in_1_ms.add(due_ns);
        self.in_10_ms.add(due_ns);
    }

    pub fn demand(&self) -> PeakDemand {
        PeakDemand {
            speed: self.speed,
            packets_in_1_ms: self.in_1_ms.most as u64,
            packets_in_10_ms: self.in_10_ms.most as u64,
        }
    }
}

/// The most packets within a window that slides over the trace's own time.
#[derive(Debug)]
struct Peak {
    window_ns: u64,
    within: VecDeque<u64>,
    most: usize,
}

impl Peak {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive; a window that is too long saturates"
    )]
    fn of(window_ns: f64) -> Self {
        Self {
            window_ns: window_ns as u64,
            within: VecDeque::new(),
            most: 0,
        }
    }

    fn add(&mut self, due_ns: u64) {
        self.within.push_back(due_ns);
        let is_past = |first: &u64| due_ns - first >= self.window_ns.max(1);
        while self.within.front().is_some_and(is_past) {
            self.within.pop_front();
        }
        self.most = self.most.max(self.within.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(times: impl IntoIterator<Item = u64>, speed: f64) -> (u64, u64) {
        let found = PeakDemand::of(times, speed);
        (found.packets_in_1_ms, found.packets_in_10_ms)
    }

    #[test]
    fn one_time_for_thousands() {
        for packets in [500, 2_000, 20_000] {
            let times = (0..packets * 3).map(|n| n / packets * 50_000_000);
            assert_eq!(demand(times, 1.0), (packets, packets));
        }
    }

    #[test]
    fn a_window_begins_anywhere_and_is_as_long_as_the_speed_makes_it() {
        // 10,000 packets/s, and 300 of them twice as dense in the middle, off any whole millisecond.
        let dense = (0..300).map(|n| 1_000_250_000 + n * 50_000);
        let times: Vec<u64> = (0..10_000).map(|n| n * 100_000).chain(dense).collect();
        assert_eq!(demand(times.iter().copied(), 1.0), (20, 200));
        assert_eq!(demand(times.iter().copied(), 7.0).0, 140);
        assert_eq!(demand([5], 1.0), (1, 1));
        assert_eq!(demand([5, 5, 5], 1e-9), (3, 3));
    }
}
