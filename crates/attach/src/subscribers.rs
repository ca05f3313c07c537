//! Subscribers by their IMSIs: a range of them with one key, or each with a key of its own.

use crate::wire::aka::Subscriber;

/// UEs of a load, or what a home network knows.
pub enum Subscribers {
    /// IMSIs that follow each other.
    Range {
        /// IMSI of the first.
        first: u64,
        /// How many there are.
        count: u64,
        /// K and OPc of all.
        keys: Subscriber,
    },
    /// Sorted by IMSI: [`Self::listed`] makes it.
    Listed(Vec<(u64, Subscriber)>),
}

impl Subscribers {
    /// Each with a key of its own.
    ///
    /// # Errors
    /// An IMSI that is there twice.
    pub fn listed(mut each: Vec<(u64, Subscriber)>) -> Result<Self, u64> {
        each.sort_unstable_by_key(|(imsi, _)| *imsi);
        match each.windows(2).find(|two| two[0].0 == two[1].0) {
            Some(two) => Err(two[0].0),
            None => Ok(Self::Listed(each)),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Range { count, .. } => *count,
            Self::Listed(each) => each.len() as u64,
        }
    }

    /// The one at this place in the order of IMSIs.
    #[must_use]
    pub fn nth(&self, at: u32) -> Option<(u64, &Subscriber)> {
        match self {
            Self::Range { first, count, keys } => {
                let at = Some(u64::from(at)).filter(|at| at < count)?;
                Some((first + at, keys))
            }
            Self::Listed(each) => each.get(at as usize).map(|(imsi, keys)| (*imsi, keys)),
        }
    }

    /// The one with this IMSI.
    #[must_use]
    pub fn of(&self, imsi: &str) -> Option<&Subscriber> {
        let imsi: u64 = imsi.parse().ok()?;
        match self {
            Self::Range { first, count, keys } => {
                let at = imsi.checked_sub(*first)?;
                (at < *count).then_some(keys)
            }
            Self::Listed(each) => {
                let at = each.binary_search_by_key(&imsi, |(imsi, _)| *imsi).ok()?;
                Some(&each[at].1)
            }
        }
    }
}
