//! How many packets wait in another program's capture ring, and since when: read from the ring as its owner maps it
//! (process_vm_readv), a few bytes of each block. It writes nothing and blocks no program.

use std::collections::BTreeMap;
use std::io::Error;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::held::HeldFile;
use crate::netlink::{u32_at, u64_at};
use crate::packet_counts::RingShape;
use crate::{CounterError, Result};

/// `struct tpacket_block_desc` up to the time of its first packet.
const BLOCK_HEADER: usize = 48;
/// TP_STATUS_USER: the reader's.
const USER: u32 = 1;
/// What one call takes (IOV_MAX).
const MOST_PARTS: usize = 1024;
/// Of `struct tpacket_block_desc`.
const BLOCK_STATUS: u64 = 8;
/// A level needs no more.
const MOST_SAMPLED: u64 = 256;
/// As much as finds the ends of a long run, at a quarter of the cost (261 us a look with 256 of 8,192 blocks).
const LEAST_SAMPLED: u64 = 64;
/// A ring of more blocks costs more than a look at all of them may: its fill is not known.
const MOST_BLOCKS: u64 = 8192;

/// What a ring holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct RingFill {
    /// Packets that the reader has not given back; of a ring of version 3 also those in the block that is being filled.
    pub packets: u64,
    /// Blocks, of versions 1 and 2 frames, that are the reader's.
    pub full: u64,
    /// Of so many.
    pub of: u64,
    /// When the oldest of them came, by CLOCK_REALTIME; `None` if the ring is empty, or of version 1 or 2.
    pub oldest_real_ns: Option<u64>,
}

/// How full a ring is, from a sample of its blocks or frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct RingLevel {
    /// That are the reader's.
    pub full: u64,
    /// Of so many that were looked at, evenly spread.
    pub of: u64,
}

/// Where a process maps its packet sockets' rings, by inode of the socket.
///
/// # Errors
/// Of another user's process, without CAP_SYS_PTRACE.
pub fn ring_addresses(root: &Path, pid: u32) -> Result<BTreeMap<u64, u64>> {
    let file = HeldFile::open(root.join(format!("proc/{pid}/maps")))?;
    let mut buffer = Vec::new();
    let text = file.read(&mut buffer)?.text;
    let mapped = text.lines().filter_map(|line| {
        let inode = line.split_once("socket:[")?.1.strip_suffix(']')?;
        let address = u64::from_str_radix(line.split_once('-')?.0, 16).ok()?;
        Some((inode.parse().ok()?, address))
    });
    let mut found = BTreeMap::new();
    for (inode, address) in mapped {
        // One ring may be mapped in several parts: the first is its beginning.
        found.entry(inode).or_insert(address);
    }
    Ok(found)
}

/// Reads the ring that process `pid` maps at `address`; `None` if it is too large for a look. `near`: frames or blocks that
/// were the reader's a while ago, if the shape's head is of this moment; the look then costs a few reads if little has changed.
pub fn ring_fill(
    pid: u32,
    address: u64,
    shape: &RingShape,
    near: Option<u64>,
) -> Result<Option<RingFill>> {
    let memory = |places: &[u64], bytes: usize, into: &mut [u8]| read(pid, places, bytes, into);
    match near {
        None if shape.version == 3 => all_blocks(address, shape, &memory),
        Some(near) if shape.version == 3 => blocks(address, shape, near, &memory).map(Some),
        near => frames(address, shape, near.unwrap_or(0), &memory).map(Some),
    }
}

/// As `ring_fill`, where the frame or block that the kernel writes into next is not known. A level of versions 1 and 2 that is
/// below one 64th of the ring may count as none.
pub fn ring_fill_without_head(
    pid: u32,
    address: u64,
    shape: &RingShape,
) -> Result<Option<RingFill>> {
    let memory = |places: &[u64], bytes: usize, into: &mut [u8]| read(pid, places, bytes, into);
    if shape.version == 3 {
        return all_blocks(address, shape, &memory);
    }
    frames_without_head(address, shape, &memory).map(Some)
}

/// The reader's frames lie one behind the other: their ends are found by a look at frames evenly spread, and by halving
/// between two of them that differ.
fn frames_without_head(address: u64, shape: &RingShape, memory: &Memory<'_>) -> Result<RingFill> {
    let count = shape.frames;
    let users = |numbers: &[u64]| -> Result<Vec<bool>> {
        let places: Vec<u64> = numbers
            .iter()
            .map(|number| frame_place(address, shape, number % count.max(1)))
            .collect();
        let mut words = vec![0; places.len() * 4];
        memory(&places, 4, &mut words)?;
        Ok(words
            .chunks_exact(4)
            .map(|word| u32_at(word, 0).is_some_and(|status| status & USER != 0))
            .collect())
    };
    let sampled = count.min(LEAST_SAMPLED);
    let mut numbers: Vec<u64> = (0..sampled).map(|n| n * count / sampled).collect();
    let mut seen = users(&numbers)?;
    numbers.push(count);
    seen.push(seen.first().copied().unwrap_or(false));
    let mut packets = 0;
    for n in 0..numbers.len() - 1 {
        let (begin, end) = (numbers[n], numbers[n + 1]);
        let (mut same, mut other) = (begin, end);
        while seen[n] != seen[n + 1] && other - same > 1 {
            let middle = same.midpoint(other);
            if users(&[middle])?.first() == Some(&seen[n]) {
                same = middle;
            } else {
                other = middle;
            }
        }
        packets += match (seen[n], seen[n + 1]) {
            (true, true) => end - begin,
            (true, false) => other - begin,
            (false, true) => end - other,
            (false, false) => 0,
        };
    }
    Ok(RingFill {
        packets,
        full: packets,
        of: count,
        oldest_real_ns: None,
    })
}

/// Length of the reader's run of frames or blocks, which end just before the one that the kernel writes into: found by steps
/// that double, from `near` on, and by halving. `is_users` tells it of the one so far back.
fn run(of: u64, near: u64, is_users: &dyn Fn(u64) -> Result<bool>) -> Result<u64> {
    let (mut users, mut beyond, mut step) = (0, of + 1, 1);
    let mut back = near.clamp(1, of.max(1));
    while users < back && back < beyond {
        if is_users(back)? {
            users = back;
            back = (back + step).min(of);
        } else {
            beyond = back;
            back = back.saturating_sub(step);
        }
        // A step that turned round has closed in.
        if users > 0 && beyond <= of {
            break;
        }
        step *= 2;
    }
    while beyond - users > 1 {
        let middle = users.midpoint(beyond);
        if is_users(middle)? {
            users = middle;
        } else {
            beyond = middle;
        }
    }
    Ok(users)
}

/// A much cheaper look than `ring_fill`: one call, and no more than `MOST_SAMPLED` words of 4 bytes.
pub fn ring_level(pid: u32, address: u64, shape: &RingShape) -> Result<RingLevel> {
    level(address, shape, &|places, bytes, into| {
        read(pid, places, bytes, into)
    })
}

fn level(address: u64, shape: &RingShape, memory: &Memory<'_>) -> Result<RingLevel> {
    let version3 = shape.version == 3;
    let count = if version3 { shape.blocks } else { shape.frames };
    let sampled = count.min(MOST_SAMPLED);
    let places: Vec<u64> = (0..sampled)
        .map(|sample| {
            let number = sample * count / sampled;
            if version3 {
                address + number * shape.block_bytes + BLOCK_STATUS
            } else {
                frame_place(address, shape, number)
            }
        })
        .collect();
    let mut words = vec![0; places.len() * 4];
    memory(&places, 4, &mut words)?;
    let full = words
        .chunks_exact(4)
        .filter(|word| u32_at(word, 0).is_some_and(|status| status & USER != 0));
    Ok(RingLevel {
        full: full.count() as u64,
        of: sampled,
    })
}

/// Reads `bytes` at each place, one behind the other.
type Memory<'m> = dyn Fn(&[u64], usize, &mut [u8]) -> Result<()> + 'm;

/// The part of a `struct tpacket_block_desc` that a look needs.
struct Block {
    is_users: bool,
    packets: u64,
    sequence: u64,
    first_real_ns: u64,
}

fn read_blocks(places: &[u64], memory: &Memory<'_>) -> Result<Vec<Block>> {
    let mut headers = vec![0; places.len() * BLOCK_HEADER];
    for (part, into) in places
        .chunks(MOST_PARTS)
        .zip(headers.chunks_mut(MOST_PARTS * BLOCK_HEADER))
    {
        memory(part, BLOCK_HEADER, into)?;
    }
    let word = |header: &[u8], at| u64::from(u32_at(header, at).unwrap_or(0));
    let blocks = headers.chunks_exact(BLOCK_HEADER).map(|header| Block {
        is_users: word(header, 8) & u64::from(USER) != 0,
        packets: word(header, 12),
        sequence: u64_at(header, 24).unwrap_or(0),
        first_real_ns: word(header, 32) * 1_000_000_000 + word(header, 36),
    });
    Ok(blocks.collect())
}

/// Fill of a ring, from the blocks that can hold packets and the one that the kernel fills, which is no reader's.
fn fill_of(blocks: &[Block], filled: Option<&Block>, of: u64) -> RingFill {
    let users = || blocks.iter().filter(|block| block.is_users);
    let filled = filled.filter(|block| !block.is_users);
    RingFill {
        packets: users().chain(filled).map(|block| block.packets).sum(),
        full: users().count() as u64,
        of,
        oldest_real_ns: users().map(|block| block.first_real_ns).min(),
    }
}

fn all_blocks(address: u64, shape: &RingShape, memory: &Memory<'_>) -> Result<Option<RingFill>> {
    if shape.blocks > MOST_BLOCKS {
        return Ok(None);
    }
    let places: Vec<u64> = (0..shape.blocks)
        .map(|block| address + block * shape.block_bytes)
        .collect();
    let blocks = read_blocks(&places, memory)?;
    let newest = blocks.iter().max_by_key(|block| block.sequence);
    Ok(Some(fill_of(&blocks, newest, shape.blocks)))
}

fn blocks(address: u64, shape: &RingShape, near: u64, memory: &Memory<'_>) -> Result<RingFill> {
    let count = shape.blocks.max(1);
    let place = |back: u64| address + (shape.head + count - back) % count * shape.block_bytes;
    let full = run(shape.blocks, near, &|back| {
        let mut status = [0; 4];
        memory(&[place(back) + BLOCK_STATUS], 4, &mut status)?;
        Ok(u32::from_ne_bytes(status) & USER != 0)
    })?;
    let places: Vec<u64> = (0..=full.min(count - 1)).map(place).collect();
    let blocks = read_blocks(&places, memory)?;
    Ok(fill_of(&blocks, blocks.first(), shape.blocks))
}

fn frames(address: u64, shape: &RingShape, near: u64, memory: &Memory<'_>) -> Result<RingFill> {
    let users = run(shape.frames, near, &|back| {
        let frame = (shape.head + shape.frames - back) % shape.frames.max(1);
        let mut status = [0; 4];
        // An unsigned long in version 1, whose low half comes first here.
        memory(&[frame_place(address, shape, frame)], 4, &mut status)?;
        Ok(u32::from_ne_bytes(status) & USER != 0)
    })?;
    Ok(RingFill {
        packets: users,
        full: users,
        of: shape.frames,
        oldest_real_ns: None,
    })
}

fn frame_place(address: u64, shape: &RingShape, frame: u64) -> u64 {
    let per_block = (shape.block_bytes / shape.frame_bytes.max(1)).max(1);
    address + frame / per_block * shape.block_bytes + frame % per_block * shape.frame_bytes
}

fn read(pid: u32, places: &[u64], bytes: usize, into: &mut [u8]) -> Result<()> {
    let from: Vec<libc::iovec> = places
        .iter()
        .map(|place| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(usize::try_from(*place).unwrap_or(0)),
            iov_len: bytes,
        })
        .collect();
    let to = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let pid = libc::pid_t::try_from(pid).unwrap_or(libc::pid_t::MAX);
    // SAFETY: what is written is our own live buffer, of the length that stands there; the other process's memory is only read,
    // and the kernel checks its addresses.
    let got = unsafe {
        libc::process_vm_readv(pid, &raw const to, 1, from.as_ptr(), from.len() as u64, 0)
    };
    match usize::try_from(got) {
        Ok(length) if length == into.len() => Ok(()),
        Ok(_) => Err(CounterError::Kernel {
            call: "process_vm_readv",
            source: std::io::ErrorKind::UnexpectedEof.into(),
        }),
        Err(_) => Err(CounterError::Kernel {
            call: "process_vm_readv",
            source: Error::last_os_error(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture_with;

    const V3: RingShape = RingShape {
        version: 3,
        block_bytes: 4096,
        blocks: 4,
        frame_bytes: 0,
        frames: 1,
        head: 0,
        retire_ms: Some(10),
    };

    fn ring(headers: &[(u32, u32, u64, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 4096 * headers.len()];
        for (block, (status, packets, sequence, seconds)) in bytes.chunks_mut(4096).zip(headers) {
            block[8..12].copy_from_slice(&status.to_ne_bytes());
            block[12..16].copy_from_slice(&packets.to_ne_bytes());
            block[24..32].copy_from_slice(&sequence.to_ne_bytes());
            block[32..36].copy_from_slice(&seconds.to_ne_bytes());
        }
        bytes
    }

    fn within(bytes: &[u8]) -> impl Fn(&[u64], usize, &mut [u8]) -> Result<()> {
        |places, length, into| {
            for (place, part) in places.iter().zip(into.chunks_mut(length)) {
                let at = usize::try_from(*place - 0x1000).unwrap();
                part.copy_from_slice(&bytes[at..at + length]);
            }
            Ok(())
        }
    }

    #[test]
    fn frames_are_counted_without_a_head() {
        let frames: u64 = 2058;
        let shape = RingShape {
            version: 2,
            block_bytes: 28_672,
            blocks: 147,
            frame_bytes: 2048,
            frames,
            head: 0,
            retire_ms: None,
        };
        for (begin, length) in [
            (0, 0),
            (0, frames),
            (5, 1400),
            (1900, 700),
            (2050, 9),
            (700, 900),
        ] {
            let mut bytes = vec![0_u8; 147 * 28_672];
            for n in begin..begin + length {
                let place = frame_place(0, &shape, n % frames);
                bytes[usize::try_from(place).unwrap()] = 1;
            }
            let memory = |places: &[u64], size: usize, into: &mut [u8]| {
                for (place, part) in places.iter().zip(into.chunks_mut(size)) {
                    let at = usize::try_from(*place).unwrap();
                    part.copy_from_slice(&bytes[at..at + size]);
                }
                Ok(())
            };
            let fill = frames_without_head(0, &shape, &memory).unwrap();
            assert!(
                fill.full.abs_diff(length) <= frames / MOST_SAMPLED,
                "{begin} {length}"
            );
            assert!(
                length < 20 || fill.packets == length,
                "{begin} {length}: {}",
                fill.packets
            );
        }
        // Between two of the frames that are looked at: the stated gap.
        let bytes_between = |places: &[u64], _: usize, into: &mut [u8]| {
            for (place, part) in places.iter().zip(into.chunks_mut(4)) {
                let among = (40..49).any(|n| frame_place(0, &shape, n) == *place);
                part.copy_from_slice(&u32::from(among).to_ne_bytes());
            }
            Ok(())
        };
        let fill = frames_without_head(0, &shape, &bytes_between).unwrap();
        assert_eq!(fill.packets, 0);
    }

    #[test]
    fn blocks_of_the_reader_and_the_one_that_is_filled() {
        for (head, headers, expected) in [
            // The kernel fills the fourth; two wait.
            (
                3,
                [(0, 9, 1, 5), (1, 30, 2, 7), (1, 12, 3, 6), (0, 4, 4, 0)],
                (46, 2, Some(6_000_000_000)),
            ),
            // All are the reader's: it is full, and the next is the oldest.
            (
                3,
                [(1, 1, 5, 9), (1, 2, 6, 9), (1, 3, 7, 9), (3, 4, 4, 8)],
                (10, 4, Some(8_000_000_000)),
            ),
            // Around the end.
            (
                1,
                [(1, 8, 6, 9), (0, 2, 7, 0), (0, 3, 4, 0), (1, 5, 5, 8)],
                (15, 2, Some(8_000_000_000)),
            ),
            (
                1,
                [(0, 0, 1, 0), (0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)],
                (0, 0, None),
            ),
        ] {
            let bytes = ring(&headers);
            let shape = RingShape { head, ..V3 };
            let near = [0, 1, 3, 4, 900];
            let from_near = near.map(|near| blocks(0x1000, &shape, near, &within(&bytes)).unwrap());
            let whole = all_blocks(0x1000, &V3, &within(&bytes)).unwrap().unwrap();
            for fill in from_near.into_iter().chain([whole]) {
                assert_eq!((fill.packets, fill.full, fill.oldest_real_ns), expected);
                assert_eq!(fill.of, 4);
            }
        }
        let large = RingShape {
            blocks: MOST_BLOCKS + 1,
            ..V3
        };
        assert_eq!(all_blocks(0, &large, &within(&[])).unwrap(), None);
    }

    #[test]
    fn frames_behind_the_head_also_around_the_end() {
        let shape = RingShape {
            version: 2,
            frame_bytes: 1024,
            frames: 8,
            blocks: 2,
            ..V3
        };
        for (head, users) in [(0, 0), (3, 2), (1, 4), (5, 8)] {
            let mut bytes = vec![0; 8192];
            for back in 1..=users {
                let frame = (head + 8 - back) % 8;
                bytes[usize::try_from(frame * 1024).unwrap()] = 1;
            }
            let shape = RingShape { head, ..shape };
            for near in [0, 2, 7, 8, 70] {
                let fill = frames(0x1000, &shape, near, &within(&bytes)).unwrap();
                assert_eq!((fill.packets, fill.of), (users, 8), "head {head}");
            }
        }
    }

    #[test]
    fn a_run_is_found_from_anywhere_and_in_few_reads_from_near() {
        for of in [1, 2, 3, 14, 2058_u64] {
            for users in (0..=of).filter(|n| *n < 20 || n % 97 == 0 || *n == of) {
                for near in [0, 1, users.saturating_sub(3), users, users + 5, of, of + 9] {
                    let reads = std::cell::Cell::new(0);
                    let found = run(of, near, &|back| {
                        assert!((1..=of).contains(&back));
                        reads.set(reads.get() + 1);
                        Ok(back <= users)
                    });
                    assert_eq!(found.unwrap(), users, "{of} from {near}");
                    assert!(reads.get() <= 26, "{} reads of {of}", reads.get());
                    assert!(near.abs_diff(users) > 5 || reads.get() <= 7);
                }
            }
        }
    }

    #[test]
    fn the_level_of_a_ring_from_all_of_it_or_from_a_sample() {
        let headers: Vec<_> = (0..600).map(|n| (u32::from(n < 450), 5, 9, 0)).collect();
        for (count, full, of) in [(4, 4, 4), (451, 256, 256), (600, 192, 256)] {
            let bytes = ring(&headers[..count]);
            let shape = RingShape {
                blocks: count as u64,
                ..V3
            };
            let found = level(0x1000, &shape, &within(&bytes)).unwrap();
            assert_eq!((found.full, found.of), (full, of));
        }
        // Frames of version 2, three to a block with a rest behind them.
        let shape = RingShape {
            version: 2,
            frame_bytes: 1280,
            frames: 6,
            blocks: 2,
            ..V3
        };
        let mut bytes = vec![0; 8192];
        for place in [0, 1280, 2560, 4096 + 1280] {
            bytes[place] = 1;
        }
        let found = level(0x1000, &shape, &within(&bytes)).unwrap();
        assert_eq!((found.full, found.of), (4, 6));
    }

    #[test]
    fn where_rings_are_mapped() {
        let root = fixture_with(
            "proc/7/maps",
            "55e0-55f0 r--p 00000000 08:01 12 /usr/bin/x\n\
             7f0000001000-7f0000005000 rw-s 00000000 00:08 442 socket:[442]\n\
             7f0000009000-7f000000a000 rw-s 00004000 00:08 442 socket:[442]\n\
             7fff0000-7fff1000 rw-p 00000000 00:00 0 [stack]\n",
        );
        let found = ring_addresses(root.path(), 7).unwrap();
        assert_eq!(found, BTreeMap::from([(442, 0x7f00_0000_1000)]));
        assert!(ring_addresses(root.path(), 8).unwrap_err().is_gone());
    }

    #[test]
    fn memory_of_this_process_and_of_none() {
        let bytes = ring(&[(1, 30, 2, 7), (0, 4, 4, 0), (0, 0, 0, 0), (0, 0, 0, 0)]);
        let shape = RingShape { head: 1, ..V3 };
        for near in [None, Some(0)] {
            let fill = ring_fill(std::process::id(), bytes.as_ptr() as u64, &shape, near);
            assert_eq!(fill.unwrap().unwrap().packets, 34);
            assert!(ring_fill(1 << 22, 0x1000, &V3, near).is_err());
        }
    }
}
