//! Small start offsets of replicas, so that they do not send each packet at one time.

use crate::load::rounded;

/// At most; a hundredth of a pass if that is shorter.
const LARGEST_NS: f64 = 100e6;

/// Replica 0 begins at 0, the others at a time that the seed gives.
pub fn offsets(seed: u64, replicas: u32, pass_ns: f64) -> Vec<u64> {
    let window_ns = LARGEST_NS.min(pass_ns / 100.0);
    (0..u64::from(replicas))
        .map(|replica| match replica {
            0 => 0,
            _ => {
                let share = mixed(seed ^ mixed(replica)) as f64 / u64::MAX as f64;
                rounded(share * window_ns)
            }
        })
        .collect()
}

/// One step of SplitMix64 (Steele et al. 2014).
pub fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
