//! When things happen: a curve of bytes over time with a set mean and peak, and where along it a transfer lies.

use crate::make::rng::Rng;
use crate::make::time::SECOND_NS;

/// Bytes per bin of time.
#[derive(Debug, Clone)]
pub struct Tempo {
    bin_ns: u64,
    duration_ns: u64,
    bytes: Vec<f64>,
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // bytes and nanoseconds of a trace, far below 2^53
impl Tempo {
    /// A curve with slow swells and short bursts, whose busiest bin has `peak_to_mean` of the mean; bins of a second, but at least ten.
    #[must_use]
    pub fn new(rng: &mut Rng, duration_ns: u64, total_bytes: u64, peak_to_mean: f64) -> Self {
        let count = (duration_ns / SECOND_NS).max(10) as usize;
        let swell = (rng.unit(), rng.unit());
        let mut bytes: Vec<f64> = (0..count)
            .map(|bin| {
                let x = bin as f64 / count as f64;
                let slow = (std::f64::consts::TAU * (1.3 * x + swell.0)).sin();
                let fast = (std::f64::consts::TAU * (5.7 * x + swell.1)).sin();
                1.0 + 0.25 * slow + 0.15 * fast + 0.3 * (rng.unit() - 0.5)
            })
            .collect();
        bytes[rng.index(count)] = 2.0 * peak_to_mean;
        // Cut at the peak and scale to the mean; each round moves less, and 50 are more than enough.
        for _ in 0..50 {
            let mean = bytes.iter().sum::<f64>() / count as f64;
            for value in &mut bytes {
                *value = (*value / mean).min(peak_to_mean);
            }
        }
        for value in &mut bytes {
            *value *= total_bytes as f64 / count as f64;
        }
        Self {
            bin_ns: duration_ns.div_ceil(count as u64).max(1),
            duration_ns,
            bytes,
        }
    }

    /// Takes away what is sent at that time already.
    pub fn subtract(&mut self, time_ns: u64, bytes: u64) {
        let bin = ((time_ns / self.bin_ns) as usize).min(self.bytes.len() - 1);
        self.bytes[bin] -= bytes as f64;
    }

    /// The curve as the way of a transfer.
    #[must_use]
    pub fn course(&self) -> Course {
        let mut reached = Vec::with_capacity(self.bytes.len() + 1);
        let mut sum = 0.0;
        reached.push(0.0);
        for bytes in &self.bytes {
            sum += bytes.max(1.0);
            reached.push(sum);
        }
        for value in &mut reached {
            *value /= sum;
        }
        Course {
            bin_ns: self.bin_ns,
            duration_ns: self.duration_ns,
            reached,
        }
    }
}

/// What share of the bytes has gone when.
#[derive(Debug)]
pub struct Course {
    bin_ns: u64,
    duration_ns: u64,
    /// At the beginning of each bin, and at the end.
    reached: Vec<f64>,
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // nanoseconds of a trace, far below 2^53
impl Course {
    /// When that share has gone.
    #[must_use]
    pub fn time_ns(&self, share: f64) -> u64 {
        let bin = self
            .reached
            .partition_point(|reached| *reached <= share)
            .clamp(1, self.reached.len() - 1)
            - 1;
        let within = (share - self.reached[bin]) / (self.reached[bin + 1] - self.reached[bin]);
        let time = (bin as f64 + within.clamp(0.0, 1.0)) * self.bin_ns as f64;
        (time as u64).min(self.duration_ns)
    }
}
