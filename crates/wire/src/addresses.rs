//! Fresh addresses for the replicas of a trace: which are given, and why none is given twice.
//!
//! The addresses of a trace that may be mapped are sorted into classes (private, link-local, public,
//! loopback; the same for IPv6, whose one loopback address stays), so that a replica keeps what a rule's
//! HOME_NET sees. Within a class the n addresses in use are numbered 0..n in address order, and each replica
//! gets one run of n successive addresses of the class' pool: address i of replica k is `base[k] + i`.
//!
//! No two can be the same: the runs are laid one after the other, so they do not overlap; each keeps clear of
//! every address that occurs in the trace, mapped or not; and the pools of different classes are disjoint. A
//! packet with one mapped address in its header therefore has a 5-tuple that occurs in no other replica.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use foldhash::fast::FixedState;

/// Classes of one IP version.
pub(crate) const CLASSES: usize = 4;

/// Inclusive.
type Span = (u128, u128);

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u128 {
    u32::from_be_bytes([a, b, c, d]) as u128
}

const PRIVATE_4: &[Span] = &[
    (v4(10, 0, 0, 0), v4(10, 255, 255, 255)),
    (v4(172, 16, 0, 0), v4(172, 31, 255, 255)),
    (v4(192, 168, 0, 0), v4(192, 168, 255, 255)),
];
const LINK_LOCAL_4: &[Span] = &[(v4(169, 254, 0, 0), v4(169, 254, 255, 255))];
/// What is left of unicast, without this host (0/8), loopback and the carriers' shared space.
const PUBLIC_4: &[Span] = &[
    (v4(1, 0, 0, 0), v4(9, 255, 255, 255)),
    (v4(11, 0, 0, 0), v4(100, 63, 255, 255)),
    (v4(100, 128, 0, 0), v4(126, 255, 255, 255)),
    (v4(128, 0, 0, 0), v4(169, 253, 255, 255)),
    (v4(169, 255, 0, 0), v4(172, 15, 255, 255)),
    (v4(172, 32, 0, 0), v4(191, 255, 255, 255)),
    (v4(192, 1, 0, 0), v4(192, 167, 255, 255)),
    (v4(192, 169, 0, 0), v4(223, 255, 255, 255)),
];
/// Loopback stays loopback: captures of `lo` are full of conversations of 127.0.0.1 with itself.
const LOOPBACK_4: &[Span] = &[(v4(127, 0, 0, 0), v4(127, 255, 255, 255))];
const UNIQUE_LOCAL_6: &[Span] = &[(0xfd << 120, (0xfe << 120) - 1)];
const LINK_LOCAL_6: &[Span] = &[(0xfe80 << 112, (0xfe80 << 112) + u64::MAX as u128)];
const GLOBAL_6: &[Span] = &[(0x2a00 << 112, (0x2b00 << 112) - 1)];

const POOLS_4: [&[Span]; CLASSES] = [PRIVATE_4, LINK_LOCAL_4, PUBLIC_4, LOOPBACK_4];
const POOLS_6: [&[Span]; CLASSES] = [UNIQUE_LOCAL_6, LINK_LOCAL_6, GLOBAL_6, &[]];

/// The class of an address, `None` if it stays what it is: multicast, broadcast, unspecified, reserved, IPv6 loopback.
pub(crate) fn class_of(address: IpAddr) -> Option<usize> {
    match address {
        IpAddr::V4(address) => class_of_v4(address),
        IpAddr::V6(address) => class_of_v6(address),
    }
}

fn class_of_v4(address: Ipv4Addr) -> Option<usize> {
    if address.is_private() {
        Some(0)
    } else if address.is_link_local() {
        Some(1)
    } else if address.is_loopback() {
        Some(3)
    } else {
        // 0/8 is this host, 240/4 is reserved and ends with the broadcast address.
        (!matches!(address.octets()[0], 0 | 224..)).then_some(2)
    }
}

fn class_of_v4_number(number: u128) -> Option<usize> {
    class_of_v4(u32::try_from(number).ok()?.into())
}

fn class_of_v6(address: Ipv6Addr) -> Option<usize> {
    let high = address.segments()[0];
    // ::/16 holds the unspecified, loopback and IPv4-mapped addresses.
    match high {
        0 => None,
        0xfc00..=0xfdff => Some(0),
        0xfe80..=0xfebf => Some(1),
        0xff00.. => None,
        _ => Some(2),
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// A sender: it is no broadcast address.
const SOURCE: u8 = 1;
/// The broadcast address of a subnet, by its looks.
const TO_ALL: u8 = 2;

/// The addresses of one IP version that occur in a trace.
#[derive(Debug, Default)]
struct Family {
    /// With what is known of each.
    noted: HashMap<u128, u8, FixedState>,
    /// All of them, in order, once they are numbered.
    seen: Vec<u128>,
    /// Numbers of those that are mapped, within their class.
    numbers: HashMap<u128, u32, FixedState>,
    mapped: [usize; CLASSES],
}

impl Family {
    fn number_all(&mut self, class_of: impl Fn(u128, u8) -> Option<usize>) {
        let noted = std::mem::take(&mut self.noted);
        self.seen = noted.keys().copied().collect();
        self.seen.sort_unstable();
        for address in &self.seen {
            if let Some(class) = class_of(*address, noted[address]) {
                let number = u32::try_from(self.mapped[class]).unwrap_or(u32::MAX);
                self.numbers.insert(*address, number);
                self.mapped[class] += 1;
            }
        }
    }

    /// By class the addresses that are mapped, by their numbers.
    fn originals(&self, class_of: impl Fn(u128) -> Option<usize>) -> [Vec<u128>; CLASSES] {
        let mut found: [Vec<u128>; CLASSES] = Default::default();
        let mapped = (self.seen.iter()).filter(|address| self.numbers.contains_key(address));
        for address in mapped {
            if let Some(class) = class_of(*address) {
                found[class].push(*address);
            }
        }
        found
    }

    /// The stretches of a pool without an address of the trace: first address and length.
    fn gaps(&self, pool: &[Span]) -> impl Iterator<Item = (u128, u128)> {
        pool.iter().flat_map(|(first, last)| {
            let begin = self.seen.partition_point(|address| address < first);
            let end = self.seen.partition_point(|address| address <= last);
            let ends = self.seen[begin..end].iter().copied().chain([last + 1]);
            ends.scan(*first, |base, end| {
                let gap = (*base, end - *base);
                *base = end + 1;
                Some(gap)
            })
        })
    }
}

/// All addresses that occur in a trace; first collected, then numbered.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    v4: Family,
    v6: Family,
}

impl Addresses {
    /// Notes an address, wherever it stands in a frame.
    pub(crate) fn note(&mut self, address: IpAddr) {
        self.add(address, 0);
    }

    /// Notes a sender: a sender is no broadcast address.
    pub(crate) fn note_source(&mut self, address: IpAddr) {
        self.add(address, SOURCE);
    }

    /// Notes the IP destination of a frame that went to the Ethernet broadcast address: the broadcast address of a subnet, if it looks like one.
    pub(crate) fn note_broadcast(&mut self, address: IpAddr) {
        let looks = address.is_ipv4() && number(address) & 3 == 3;
        self.add(address, if looks { TO_ALL } else { 0 });
    }

    fn add(&mut self, address: IpAddr, known: u8) {
        let family = self.family_mut(address);
        *family.noted.entry(number(address)).or_default() |= known;
    }

    /// Numbers what is to be mapped; nothing may be noted afterwards.
    pub(crate) fn numbered(mut self) -> Self {
        self.v4.number_all(|address, known| {
            let is_subnet_broadcast = known & (TO_ALL | SOURCE) == TO_ALL;
            class_of_v4_number(address).filter(|_| !is_subnet_broadcast)
        });
        self.v6.number_all(|address, _| class_of_v6(address.into()));
        self
    }

    /// Class and number of an address, `None` if it stays what it is.
    pub(crate) fn place(&self, address: IpAddr) -> Option<(usize, u32)> {
        let class = class_of(address)?;
        let known = &self.family(address).numbers;
        Some((class, *known.get(&number(address))?))
    }

    /// Frees what only [`Addresses::place`] needs.
    pub(crate) fn forget_places(&mut self) {
        (self.v4.numbers, self.v6.numbers) = Default::default();
    }

    /// Replicas that the pools hold runs for, and the addresses of the class that holds fewest.
    pub(crate) fn most(&self) -> (u128, usize) {
        let of_class = |class: usize| {
            let [v4, v6] = [(&self.v4, POOLS_4), (&self.v6, POOLS_6)].map(|(family, pools)| {
                let need = family.mapped[class];
                let runs = |(_, length): (u128, u128)| length / need as u128;
                let most = (need > 0).then(|| family.gaps(pools[class]).map(runs).sum());
                (most.unwrap_or(u128::MAX), need)
            });
            v4.min(v6)
        };
        (0..CLASSES).map(of_class).min().unwrap_or((u128::MAX, 0))
    }

    /// The first address of each run of some replicas, per class. Run 0 belongs to the first replica that is not the trace itself.
    /// There are so many (`most`).
    pub(crate) fn runs(&self, runs: Range<usize>) -> Vec<Bases> {
        let mut bases = vec![Bases::default(); runs.len()];
        for class in 0..CLASSES {
            let firsts = first_addresses(&self.v4, class, POOLS_4[class], &runs);
            for (bases, first) in bases.iter_mut().zip(firsts) {
                bases.v4[class] = u32::try_from(first).unwrap_or(0);
            }
            let firsts = first_addresses(&self.v6, class, POOLS_6[class], &runs);
            for (bases, first) in bases.iter_mut().zip(firsts) {
                bases.v6[class] = first;
            }
        }
        bases
    }

    /// The way back from the addresses of these replicas, of which 0 is the trace itself. There are so many (`most`).
    pub(crate) fn origins(self, replicas: &Range<usize>) -> Origins {
        let runs = |begin: usize, end: usize| self.runs(begin.max(1) - 1..end.max(1) - 1);
        Origins {
            given: runs(replicas.start, replicas.end),
            expected: runs(1, replicas.len()),
            first: replicas.start,
            originals_v4: self.v4.originals(class_of_v4_number),
            originals_v6: self.v6.originals(|number| class_of_v6(number.into())),
            addresses: self,
        }
    }

    fn family(&self, address: IpAddr) -> &Family {
        if address.is_ipv4() {
            &self.v4
        } else {
            &self.v6
        }
    }

    fn family_mut(&mut self, address: IpAddr) -> &mut Family {
        if address.is_ipv4() {
            &mut self.v4
        } else {
            &mut self.v6
        }
    }
}

/// First addresses of one replica's runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bases {
    pub(crate) v4: [u32; CLASSES],
    pub(crate) v6: [u128; CLASSES],
}

/// Where an address of a replica comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Every replica has it: multicast, broadcast, unspecified.
    Same,
    /// One of the replicas has it, the trace itself counted as number 0.
    Replica {
        /// Its number, counted from the first of them.
        number: usize,
        /// What it stands for in the replica that has this number from the trace itself on.
        address: IpAddr,
    },
    /// None of the replicas has it.
    Other,
}

/// The way back from the addresses of replicas k to k + n to those of replicas 0 to n.
#[derive(Debug)]
pub struct Origins {
    addresses: Addresses,
    first: usize,
    /// Of each replica but the trace itself, in ascending order in each class.
    given: Vec<Bases>,
    /// Of replicas 1 to n.
    expected: Vec<Bases>,
    originals_v4: [Vec<u128>; CLASSES],
    originals_v6: [Vec<u128>; CLASSES],
}

impl Origins {
    /// Where an address comes from.
    #[must_use]
    pub fn of(&self, address: IpAddr) -> Origin {
        let Some(class) = class_of(address) else {
            return Origin::Same;
        };
        let (wanted, family) = (number(address), self.addresses.family(address));
        if family.seen.binary_search(&wanted).is_ok() {
            return match self.addresses.place(address) {
                None => Origin::Same,
                Some(_) if self.first == 0 => Origin::Replica { number: 0, address },
                Some(_) => Origin::Other,
            };
        }
        let base = |bases: &Bases| match address {
            IpAddr::V4(_) => u128::from(bases.v4[class]),
            IpAddr::V6(_) => bases.v6[class],
        };
        let after = self.given.partition_point(|bases| base(bases) <= wanted);
        let index = |at: usize| usize::try_from(wanted - base(&self.given[at])).ok();
        let of_run = after.checked_sub(1).and_then(|at| Some((at, index(at)?)));
        let Some((at, index)) = of_run.filter(|(_, index)| *index < family.mapped[class]) else {
            return Origin::Other;
        };
        let number = at + usize::from(self.first == 0);
        let original = match number.checked_sub(1) {
            Some(run) => base(&self.expected[run]) + index as u128,
            None if address.is_ipv4() => self.originals_v4[class][index],
            None => self.originals_v6[class][index],
        };
        let address = match address {
            IpAddr::V4(_) => {
                u32::try_from(original).map_or(address, |bits| Ipv4Addr::from(bits).into())
            }
            IpAddr::V6(_) => Ipv6Addr::from(original).into(),
        };
        Origin::Replica { number, address }
    }
}

/// Empty if no address of the class is mapped.
fn first_addresses(family: &Family, class: usize, pool: &[Span], runs: &Range<usize>) -> Vec<u128> {
    let need = family.mapped[class] as u128;
    let (mut found, mut skip) = (Vec::new(), runs.start as u128);
    if need == 0 {
        return found;
    }
    for (first, length) in family.gaps(pool) {
        let fit = length / need;
        let left = (runs.len() - found.len()) as u128;
        found.extend((skip..fit.min(skip.saturating_add(left))).map(|run| first + run * need));
        skip = skip.saturating_sub(fit);
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn collected(addresses: &[IpAddr]) -> Addresses {
        let mut collected = Addresses::default();
        addresses
            .iter()
            .for_each(|address| collected.note(*address));
        collected.numbered()
    }

    #[test]
    fn classes_are_kept() {
        for (address, class) in [
            ("10.1.2.3", Some(0)),
            ("192.168.0.1", Some(0)),
            ("169.254.1.1", Some(1)),
            ("8.8.8.8", Some(2)),
            ("0.0.0.0", None),
            ("127.0.0.1", Some(3)),
            ("224.0.0.251", None),
            ("255.255.255.255", None),
            ("fd00::1", Some(0)),
            ("fe80::1", Some(1)),
            ("2001:db8::1", Some(2)),
            ("::", None),
            ("::1", None),
            ("::ffff:10.0.0.1", None),
            ("ff02::1", None),
        ] {
            assert_eq!(class_of(address.parse().unwrap()), class, "{address}");
        }
        for (pools, class_of) in [(POOLS_4, true), (POOLS_6, false)].map(|(pools, v4)| {
            (pools, move |bits: u128| {
                if v4 {
                    class_of_v4(u32::try_from(bits).unwrap().into())
                } else {
                    class_of_v6(bits.into())
                }
            })
        }) {
            for (class, pool) in pools.iter().enumerate() {
                for (first, last) in *pool {
                    assert_eq!(class_of(*first), Some(class));
                    assert_eq!(class_of(*last), Some(class));
                }
            }
        }
    }

    #[test]
    fn a_pool_that_is_too_small_says_how_many_addresses_there_are() {
        let many: Vec<IpAddr> = (0..300u32)
            .map(|low| Ipv4Addr::from(0xa9fe_0000 + low).into())
            .collect();
        // 169.254.1.44 to 169.254.255.255 are 65,236 addresses.
        assert_eq!(collected(&many).most(), (65_236 / 300, 300));
        let far = collected(&many).runs(216..217)[0].v4[1];
        assert_eq!(far, 0xa9fe_0000 + 300 + 216 * 300);
        assert_eq!(collected(&[]).most().0, u128::MAX);
    }

    #[test]
    fn the_broadcast_address_of_a_subnet_stays() {
        let mut addresses = Addresses::default();
        for address in ["192.168.1.255", "192.168.1.6", "192.168.2.255"] {
            addresses.note(address.parse().unwrap());
            addresses.note_broadcast(address.parse().unwrap());
        }
        addresses.note_source("192.168.2.255".parse().unwrap());
        let addresses = addresses.numbered();
        assert_eq!(addresses.place("192.168.1.255".parse().unwrap()), None);
        assert_eq!(
            addresses.place("192.168.1.6".parse().unwrap()),
            Some((0, 0))
        );
        assert_eq!(
            addresses.place("192.168.2.255".parse().unwrap()),
            Some((0, 1))
        );
    }

    proptest! {
        /// Over all replicas and all addresses: no address twice, none that the trace has.
        #[test]
        fn no_address_is_given_twice(low in proptest::collection::btree_set(0u32..2_000, 1..60), replicas in 1usize..20, other in 0usize..20) {
            let trace: Vec<IpAddr> = low.iter().map(|low| Ipv4Addr::from(0x0a00_0000 + low).into()).collect();
            let addresses = collected(&trace);
            let mut given: BTreeSet<u32> = low.iter().map(|low| 0x0a00_0000 + low).collect();
            let all = addresses.runs(0..replicas);
            prop_assert_eq!(&addresses.runs(other.min(replicas)..replicas), &all[other.min(replicas)..]);
            for bases in all {
                for address in &trace {
                    let (class, index) = addresses.place(*address).unwrap();
                    prop_assert!(given.insert(bases.v4[class] + index));
                }
            }
        }

        /// From the replicas that a later load sends, of both versions and of all classes, to those that the first one sent.
        #[test]
        fn an_address_leads_back_to_that_of_the_first_load(
            low in proptest::collection::btree_set(0u32..400, 1..40), first in 0usize..9, count in 1usize..6, before in 0usize..9,
        ) {
            let v4 = |from: u32| low.iter().map(move |low| IpAddr::from(Ipv4Addr::from(from + low)));
            let v6 = low.iter().map(|low| IpAddr::from(Ipv6Addr::from((0x2001_u128 << 112) + u128::from(*low))));
            let trace: Vec<IpAddr> = v4(0x0a00_0000).chain(v4(0x0808_0000)).chain(v6).collect();
            let addresses = collected(&trace);
            let of_replica = |replica: usize, address: IpAddr| -> IpAddr {
                let Some(run) = replica.checked_sub(1) else { return address };
                let (class, index) = addresses.place(address).unwrap();
                let bases = addresses.runs(run..run + 1)[0];
                match address {
                    IpAddr::V4(_) => Ipv4Addr::from(bases.v4[class] + index).into(),
                    IpAddr::V6(_) => Ipv6Addr::from(bases.v6[class] + u128::from(index)).into(),
                }
            };
            let origins = collected(&trace).origins(&(first..first + count));
            for address in &trace {
                for number in 0..count {
                    let expected = Origin::Replica { number, address: of_replica(number, *address) };
                    prop_assert_eq!(origins.of(of_replica(first + number, *address)), expected);
                }
                for other in [before.min(first).checked_sub(1), Some(first + count)].into_iter().flatten() {
                    prop_assert_eq!(origins.of(of_replica(other, *address)), Origin::Other);
                }
            }
            for same in ["224.0.0.251", "255.255.255.255", "0.0.0.0", "ff02::1", "::"] {
                prop_assert_eq!(origins.of(same.parse().unwrap()), Origin::Same);
            }
        }
    }
}
