//! How many replicas of a trace at once: whole ones, and one that may carry a part of the flows.

use crate::load::rounded;

/// Memory is taken for each; the controller's bound (`nodrop.config.replay`) is the same.
const MOST: f64 = 1_000_000.0;
const BILLION: u32 = 1_000_000_000;

/// What cannot be a number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("multiplier = {0}: must be from 0.000000001 to {MOST}")]
pub struct ReplicasError(f64);

/// Whole replicas, and one more that carries a part of the flows if the number is no whole one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// Those that carry everything.
    pub whole: u32,
    /// What the last one carries if it does not.
    pub fraction: Option<Fraction>,
}

/// So many of a trace's flows, in billionths: 0.4 is the same part of 0.4, 1.4 and 3.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    billionths: u32,
    /// Another seed chooses others.
    pub seed: u64,
}

impl Replicas {
    /// Of a multiplier, to nine digits after the point.
    ///
    /// # Errors
    /// If it is not positive, or too large.
    pub fn of(multiplier: f64, seed: u64) -> Result<Self, ReplicasError> {
        if !(0.0..=MOST).contains(&multiplier) {
            return Err(ReplicasError(multiplier));
        }
        let all = rounded(multiplier * f64::from(BILLION));
        let (whole, billionths) = (all / u64::from(BILLION), all % u64::from(BILLION));
        // At most a million, and less than a billion.
        let [whole, billionths] = [whole, billionths].map(|n| u32::try_from(n).unwrap_or(0));
        let fraction = (billionths > 0).then_some(Fraction { billionths, seed });
        if whole == 0 && fraction.is_none() {
            return Err(ReplicasError(multiplier));
        }
        Ok(Self { whole, fraction })
    }

    /// Whole ones alone.
    #[must_use]
    pub const fn whole(whole: u32) -> Self {
        Self {
            whole,
            fraction: None,
        }
    }

    /// All of them, the one that is not whole included.
    #[must_use]
    pub fn count(self) -> u32 {
        self.whole + u32::from(self.fraction.is_some())
    }
}

impl Fraction {
    /// So many of a number of flows, rounded.
    pub(crate) fn of_flows(self, flows: usize) -> usize {
        let billion = u128::from(BILLION);
        let share = (flows as u128 * u128::from(self.billionths) + billion / 2) / billion;
        // Less than there are.
        usize::try_from(share).unwrap_or(flows)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_part_after_the_point_is_the_same_of_every_number() {
        for (multiplier, whole, billionths) in [
            (0.4, 0, 400_000_000),
            (3.4, 3, 400_000_000),
            (999_999.4, 999_999, 400_000_000),
            (0.1 + 0.2, 0, 300_000_000),
            (1e-9, 0, 1),
            (2.999_999_999_9, 3, 0),
            (1e6, 1_000_000, 0),
        ] {
            let found = Replicas::of(multiplier, 7).unwrap();
            let part = found.fraction.map_or(0, |fraction| fraction.billionths);
            assert_eq!((found.whole, part), (whole, billionths), "{multiplier}");
            assert_eq!(found.count(), whole + u32::from(billionths > 0));
        }
    }

    #[test]
    fn what_is_no_number_of_replicas_is_refused() {
        for bad in [
            0.0,
            -0.4,
            1e-10,
            1_000_000.1,
            4_294_967_295.0,
            f64::NAN,
            f64::INFINITY,
        ] {
            let error = Replicas::of(bad, 1).unwrap_err().to_string();
            assert!(error.starts_with("multiplier = "), "{error}");
            assert!(error.ends_with("from 0.000000001 to 1000000"), "{error}");
        }
    }

    #[test]
    fn flows_are_rounded() {
        let of = |multiplier, flows| {
            let fraction = Replicas::of(multiplier, 1).unwrap().fraction.unwrap();
            fraction.of_flows(flows)
        };
        assert_eq!([of(0.4, 10), of(0.44, 10), of(0.45, 10)], [4, 4, 5]);
        assert_eq!([of(3.1, 5), of(0.1, 4), of(0.999_999_999, 7)], [1, 0, 7]);
        assert_eq!(of(0.5, 0), 0);
    }
}
