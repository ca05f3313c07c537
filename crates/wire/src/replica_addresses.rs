//! Replicas of a trace as flows of their own: every address mapped to a fresh one, checksums as right or wrong as before.
//!
//! Mapped are the addresses of IPv4 and IPv6 headers, also inside tunnels (tunnel.rs) and the datagrams that
//! ICMP errors quote, of ARP, and the targets of IPv6 neighbour discovery; both directions of a flow stay one
//! flow. Multicast, broadcast and unspecified addresses stay. Not touched are Ethernet addresses and addresses
//! in payloads (DNS, FTP, SIP). `addresses.rs` says which addresses are given.
//!
//! Places and values to write are found once per trace, and equal work is kept once: a replica costs its 80
//! bytes of bases, a frame an index.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::ops::Range;

use foldhash::fast::FixedState;

use crate::addresses::{Addresses, Bases};
pub use crate::addresses::{Origin, Origins};
use crate::checksum::Change;
use crate::walk::{Part, walk};

/// Why a trace cannot be made into so many replicas.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The address space is too small.
    #[error(
        "{addresses} addresses of one class times {replicas} replicas do not fit its address space"
    )]
    TooManyAddresses {
        /// Addresses of that class in the trace.
        addresses: usize,
        /// Replicas asked for.
        replicas: usize,
    },
}

impl Addresses {
    /// With the trace itself.
    fn most_replicas(&self) -> usize {
        usize::try_from(self.most().0).map_or(usize::MAX, |runs| runs.saturating_add(1))
    }

    fn must_hold(&self, replicas: usize) -> Result<(), RewriteError> {
        if replicas <= self.most_replicas() {
            return Ok(());
        }
        let addresses = self.most().1;
        Err(RewriteError::TooManyAddresses {
            addresses,
            replicas,
        })
    }
}

/// One thing to do to a frame; the order is from the innermost header outwards.
///
/// Two sums are carried from one to the next: `inner`, the change of the bytes inside the header at hand, and `own`, the change of its own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// Map an address of the IP header at hand: changes `own`.
    Address4 { offset: u32, class: u8, index: u32 },
    /// The same for IPv6.
    Address6 { offset: u32, class: u8, index: u32 },
    /// Map an address that no pseudo header covers (ARP, neighbour discovery): changes `inner`.
    Carried4 { offset: u32, class: u8, index: u32 },
    /// The same for IPv6.
    Carried6 { offset: u32, class: u8, index: u32 },
    /// Checksum over payload and pseudo header; a UDP checksum of zero means that there is none.
    Transport { offset: u32, udp: bool },
    /// Checksum over the payload alone: ICMP, GRE.
    Payload { offset: u32 },
    /// The header around begins at an odd distance: its words have the bytes of `inner` the other way round.
    Odd,
    /// End of an IPv4 header, whose checksum makes up for its addresses.
    Header4 { offset: u32 },
    /// End of an IPv6 header, which has no checksum.
    Header6,
}

/// Index of a frame's steps; [`Work::NONE`] if there is nothing to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work(u32);

impl Work {
    /// The frame is sent as it is.
    pub const NONE: Self = Self(0);
}

/// Finds the addresses of a trace: every frame is shown to it once, before the [`Rewriter`] is made.
#[derive(Debug, Default)]
pub struct Survey {
    addresses: Addresses,
}

impl Survey {
    /// Looks at one frame.
    pub fn add(&mut self, frame: &[u8]) {
        let to_all = frame.starts_with(&[0xff; 6]);
        let mut first = true;
        walk(frame, &mut |part| match part {
            Part::Ip(ip) => {
                self.addresses.note_source(ip.source);
                self.addresses.note(ip.destination);
                if to_all && std::mem::take(&mut first) {
                    self.addresses.note_broadcast(ip.destination);
                }
            }
            Part::Carried { address, .. } => self.addresses.note(address),
            _ => (),
        });
    }

    /// The way back from the addresses of these replicas; replica 0 is the trace itself.
    ///
    /// # Errors
    /// If the address space does not hold so many.
    pub fn origins(self, replicas: Range<usize>) -> Result<Origins, RewriteError> {
        let addresses = self.addresses.numbered();
        addresses.must_hold(replicas.end)?;
        Ok(addresses.origins(&replicas))
    }

    /// A rewriter for this trace; no replica has its addresses yet.
    #[must_use]
    pub fn rewriter(self) -> Rewriter {
        Rewriter {
            addresses: self.addresses.numbered(),
            first: 0,
            bases: Vec::new(),
            steps: Vec::new(),
            begins: vec![0, 0],
            known: HashMap::default(),
            spare: Vec::new(),
        }
    }
}

/// Rewrites frames of a trace into frames of its replicas.
#[derive(Debug)]
pub struct Rewriter {
    addresses: Addresses,
    /// The replica that has the first bases; the trace itself has none.
    first: usize,
    bases: Vec<Bases>,
    steps: Vec<Step>,
    /// Work number w is `steps[begins[w]..begins[w + 1]]`; number 0 is empty.
    begins: Vec<u32>,
    /// By the hash of their steps.
    known: HashMap<u64, Work, FixedState>,
    spare: Vec<Step>,
}

impl Rewriter {
    /// Replicas that there are addresses for, the trace itself included.
    #[must_use]
    pub fn most(&self) -> usize {
        self.addresses.most_replicas()
    }

    /// Gives these replicas their addresses, and those from before no more; replica 0 is the trace itself.
    ///
    /// # Errors
    /// If the address space does not hold so many.
    pub fn give(&mut self, replicas: Range<usize>) -> Result<(), RewriteError> {
        self.addresses.must_hold(replicas.end)?;
        self.first = replicas.start.max(1);
        let end = replicas.end.max(self.first);
        self.bases = self.addresses.runs(self.first - 1..end - 1);
        Ok(())
    }

    /// What has to be written into a frame; [`Work::NONE`] if it has no address that may be mapped.
    pub fn work(&mut self, frame: &[u8]) -> Work {
        let mut steps = std::mem::take(&mut self.spare);
        steps.clear();
        walk(frame, &mut |part| self.add_steps(part, &mut steps));
        let work = self.work_of(&steps);
        self.spare = steps;
        work
    }

    fn work_of(&mut self, steps: &[Step]) -> Work {
        let maps = |step: &Step| {
            matches!(
                step,
                Step::Address4 { .. }
                    | Step::Address6 { .. }
                    | Step::Carried4 { .. }
                    | Step::Carried6 { .. }
            )
        };
        if !steps.iter().any(maps) {
            return Work::NONE;
        }
        let hash = FixedState::default().hash_one(steps);
        if let Some(work) = self.known.get(&hash) {
            if self.steps_of(*work) == steps {
                return *work;
            }
        }
        let number = u32::try_from(self.begins.len() - 1);
        let end = u32::try_from(self.steps.len() + steps.len());
        let (Ok(number), Ok(end)) = (number, end) else {
            return Work::NONE;
        };
        self.steps.extend_from_slice(steps);
        self.begins.push(end);
        self.known.insert(hash, Work(number));
        Work(number)
    }

    fn steps_of(&self, work: Work) -> &[Step] {
        let begin = self.begins[work.0 as usize] as usize;
        let end = self.begins[work.0 as usize + 1] as usize;
        &self.steps[begin..end]
    }

    /// Frees what only [`Rewriter::work`] needs.
    pub fn seal(&mut self) {
        self.known = HashMap::default();
        self.spare = Vec::new();
        self.addresses.forget_places();
        self.steps.shrink_to_fit();
        self.begins.shrink_to_fit();
    }

    /// Makes the copy of a frame into the frame of a replica; replica 0 is the trace itself.
    pub fn apply(&self, work: Work, replica: usize, frame: &mut [u8]) {
        let Some(bases) = replica
            .checked_sub(self.first)
            .and_then(|replica| self.bases.get(replica))
        else {
            return;
        };
        let (mut inner, mut own) = (Change::NONE, Change::NONE);
        for step in self.steps_of(work) {
            match *step {
                Step::Address4 {
                    offset,
                    class,
                    index,
                } => {
                    own = own.plus(map4(frame, offset, bases.v4[class as usize] + index));
                }
                Step::Address6 {
                    offset,
                    class,
                    index,
                } => {
                    let address = bases.v6[class as usize] + u128::from(index);
                    own = own.plus(map6(frame, offset, address));
                }
                Step::Carried4 {
                    offset,
                    class,
                    index,
                } => {
                    inner = inner.plus(map4(frame, offset, bases.v4[class as usize] + index));
                }
                Step::Carried6 {
                    offset,
                    class,
                    index,
                } => {
                    let address = bases.v6[class as usize] + u128::from(index);
                    inner = inner.plus(map6(frame, offset, address));
                }
                Step::Transport { offset, udp } => {
                    if adjust(frame, offset, inner.plus(own), udp) {
                        inner = own.negated();
                    }
                }
                Step::Payload { offset } => {
                    adjust(frame, offset, inner, false);
                    inner = Change::NONE;
                }
                Step::Odd => inner = inner.swapped(),
                Step::Header4 { offset } => {
                    adjust(frame, offset, own, false);
                    own = Change::NONE;
                }
                Step::Header6 => inner = inner.plus(std::mem::take(&mut own)),
            }
        }
    }

    fn add_steps(&self, part: Part, steps: &mut Vec<Step>) {
        match part {
            Part::Ip(ip) => {
                let (source, destination) = match ip.source {
                    IpAddr::V4(_) => (ip.offset + 12, ip.offset + 16),
                    IpAddr::V6(_) => (ip.offset + 8, ip.offset + 24),
                };
                for (address, offset) in [(ip.source, source), (ip.destination, destination)] {
                    self.add_address(address, offset, false, steps);
                }
            }
            Part::Carried { address, offset } => self.add_address(address, offset, true, steps),
            Part::Transport { offset, udp } => {
                steps.push(Step::Transport {
                    offset: narrow(offset),
                    udp,
                });
            }
            Part::Payload { offset } => steps.push(Step::Payload {
                offset: narrow(offset),
            }),
            Part::Odd => steps.push(Step::Odd),
            Part::IpEnd(ip) => steps.push(match ip.source {
                IpAddr::V4(_) => Step::Header4 {
                    offset: narrow(ip.offset + 10),
                },
                IpAddr::V6(_) => Step::Header6,
            }),
        }
    }

    fn add_address(&self, address: IpAddr, offset: usize, carried: bool, steps: &mut Vec<Step>) {
        let Some((class, index)) = self.addresses.place(address) else {
            return;
        };
        let (offset, class) = (narrow(offset), u8::try_from(class).unwrap_or(0));
        steps.push(match (address, carried) {
            (IpAddr::V4(_), false) => Step::Address4 {
                offset,
                class,
                index,
            },
            (IpAddr::V6(_), false) => Step::Address6 {
                offset,
                class,
                index,
            },
            (IpAddr::V4(_), true) => Step::Carried4 {
                offset,
                class,
                index,
            },
            (IpAddr::V6(_), true) => Step::Carried6 {
                offset,
                class,
                index,
            },
        });
    }
}

/// Offsets lie within a frame, and frames are below 2^18 bytes.
fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

fn map4(frame: &mut [u8], offset: u32, address: u32) -> Change {
    let Some(field) = frame
        .get_mut(offset as usize..)
        .and_then(<[u8]>::first_chunk_mut::<4>)
    else {
        return Change::NONE;
    };
    let old = u32::from_be_bytes(*field);
    *field = address.to_be_bytes();
    Change::of_u32(old, address)
}

fn map6(frame: &mut [u8], offset: u32, address: u128) -> Change {
    let Some(field) = frame
        .get_mut(offset as usize..)
        .and_then(<[u8]>::first_chunk_mut::<16>)
    else {
        return Change::NONE;
    };
    let old = u128::from_be_bytes(*field);
    *field = address.to_be_bytes();
    Change::of_u128(old, address)
}

/// Updates the checksum at `offset`; false if there is none, which only UDP may say.
fn adjust(frame: &mut [u8], offset: u32, change: Change, udp: bool) -> bool {
    let Some(field) = frame
        .get_mut(offset as usize..)
        .and_then(<[u8]>::first_chunk_mut::<2>)
    else {
        return false;
    };
    let old = u16::from_be_bytes(*field);
    if udp && old == 0 {
        return false;
    }
    let new = change.applied_to(old);
    // RFC 768: a computed zero is sent as all ones.
    *field = if udp && new == 0 { 0xffff } else { new }.to_be_bytes();
    true
}

#[cfg(test)]
mod tests;
