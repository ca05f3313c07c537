//! Random numbers that are the same for a seed in every version of every library: a trace is named by profile and seed.

/// SplitMix64 (Steele, Lea, Flood 2014): passes BigCrush, eight lines, and every flow can have a generator of its own.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for one purpose: `stream` sets the generators of one seed apart.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        rng.next_u64();
        rng
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + ((u128::from(self.next_u64()) * u128::from(high - low + 1)) >> 64) as u64
    }

    /// From 0 up to and without 1.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True this often.
    pub fn chance(&mut self, ratio: f64) -> bool {
        self.unit() < ratio
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// An index below `length`.
    #[allow(clippy::cast_possible_truncation)] // below a usize
    pub fn index(&mut self, length: usize) -> usize {
        self.between(0, length as u64 - 1) as usize
    }

    /// A heavy tail: Pareto with exponent `alpha` from `low`, cut at `high`.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )] // sizes and times, far below 2^53
    pub fn pareto(&mut self, low: u64, high: u64, alpha: f64) -> u64 {
        let value = low as f64 * (1.0 - self.unit()).powf(-1.0 / alpha);
        (value.min(high as f64)) as u64
    }

    /// Appends `length` bytes without pattern, as ciphertext is.
    pub fn fill(&mut self, out: &mut Vec<u8>, length: usize) {
        let end = out.len() + length;
        while out.len() + 8 <= end {
            out.extend(self.next_u64().to_le_bytes());
        }
        let rest = self.next_u64().to_le_bytes();
        out.extend(&rest[..end - out.len()]);
    }
}
