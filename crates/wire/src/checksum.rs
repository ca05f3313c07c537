//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! A change is kept as a sum of 16-bit words modulo 0xffff; whatever was right or wrong about a checksum before an update is right or wrong by
//! the same amount after it.

/// Sum of big-endian words, an odd last byte padded with zero; not yet folded.
#[must_use]
pub fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    let odd = words
        .remainder()
        .first()
        .map_or(0, |last| u32::from(*last) << 8);
    // 2^16 words of 0xffff fit u32, frames are at most 2^18 bytes: fold in a u64.
    let total: u64 = words
        .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    u32::from(fold64(total + u64::from(odd)))
}

/// Folds the carries back in.
#[must_use]
pub fn fold(sum: u32) -> u16 {
    fold64(u64::from(sum))
}

#[expect(clippy::cast_possible_truncation, reason = "the loop ends below 2^16")]
fn fold64(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// How much a sum of words changes; the group of integers modulo 0xffff.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change(u16);

impl Change {
    /// Nothing changed.
    pub const NONE: Self = Self(0);

    /// The change that replacing `old` by `new` makes: new - old = new + ~old.
    #[must_use]
    pub fn of_u32(old: u32, new: u32) -> Self {
        Self(fold64(words(new) + words(!old)))
    }

    /// The same for 128 bits.
    #[must_use]
    pub fn of_u128(old: u128, new: u128) -> Self {
        let mut total = 0;
        for shift in [0, 32, 64, 96] {
            total += words(low32(new >> shift)) + words(!low32(old >> shift));
        }
        Self(fold64(total))
    }

    /// Both changes together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(fold64(u64::from(self.0) + u64::from(other.0)))
    }

    /// The change that undoes this one.
    #[must_use]
    pub fn negated(self) -> Self {
        Self(!self.0)
    }

    /// The change of a sum whose words begin a byte earlier or later (RFC 1071, section 2 (B)).
    #[must_use]
    pub fn swapped(self) -> Self {
        Self(self.0.swap_bytes())
    }

    /// The checksum field after the words under it changed so: RFC 1624, equation 3, `HC' = ~(~HC + ~m + m')`.
    #[must_use]
    pub fn applied_to(self, field: u16) -> u16 {
        // 0xffff is the other zero: adding it would turn a field of 0xffff into 0.
        if self.0 == 0 || self.0 == 0xffff {
            return field;
        }
        !fold64(u64::from(!field) + u64::from(self.0))
    }
}

fn words(value: u32) -> u64 {
    u64::from(value >> 16) + u64::from(value & 0xffff)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low 32 bits are what is asked for"
)]
fn low32(value: u128) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(
            fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])),
            0xddf2
        );
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: HC 0xdd2f, m 0x5555 -> m' 0x3285 gives 0x0000 (equation 2 would give 0xffff).
        assert_eq!(Change::of_u32(0x5555, 0x3285).applied_to(0xdd2f), 0x0000);
    }

    proptest! {
        #[test]
        fn a_right_checksum_stays_right(mut bytes in proptest::collection::vec(any::<u8>(), 8..64), new: u32) {
            let field = !fold(sum(&bytes));
            let old = u32::from_be_bytes(*bytes.first_chunk().unwrap());
            bytes[..4].copy_from_slice(&new.to_be_bytes());
            let field = Change::of_u32(old, new).applied_to(field);
            prop_assert_eq!(fold(sum(&bytes) + u32::from(field)) % 0xffff, 0);
        }

        #[test]
        fn an_error_stays_the_same_error(old: u128, new: u128, field: u16) {
            let wide = |value: u128| u64::from(sum(&value.to_be_bytes()));
            let after = Change::of_u128(old, new).applied_to(field);
            prop_assert_eq!((wide(old) + u64::from(field)) % 0xffff, (wide(new) + u64::from(after)) % 0xffff);
        }

        #[test]
        fn a_change_and_its_opposite_are_none(old: u32, new: u32, field in 1u16..0xffff) {
            let change = Change::of_u32(old, new);
            prop_assert_eq!(change.plus(change.negated()).applied_to(field), field);
        }
    }
}
