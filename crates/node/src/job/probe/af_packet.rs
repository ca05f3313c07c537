//! What AF_PACKET's counters mean on this kernel, proved on a loopback: manuals contradict each other and the ledger may not
//! rest on any of them.

use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nodrop_io::rx::{RingOptions, RxRing};
use nodrop_io::tx::{PacketSender, Sent, Way};
use nodrop_io::{IoError, loopback};
use nodrop_proto::JobError;
use nodrop_wire::checksum::{fold, sum};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job::interface_error;

/// Two pages hold far fewer than FRAMES.
const SMALL: RingOptions = RingOptions {
    block_bytes: 4096,
    blocks: 2,
};
const FRAMES: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(2);
/// IEEE 802 local experimental EtherType 1: no protocol of any host wants it.
const EXPERIMENTAL: u16 = 0x88b5;
const IPV4: u16 = 0x0800;
/// TEST-NET-1: no host has it.
const SOURCE: [u8; 4] = [192, 0, 2, 1];
const MORE_FRAGMENTS: u16 = 0x2000;
const PAYLOAD_BYTES: u16 = 64;
/// IP identification of the fragments, and of the packet behind them that ends the test.
const FRAGMENT: u16 = 1;
const MARK: u16 = 2;

/// The answers, with the numbers they rest on.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "AfPacketProof")]
pub struct Proof {
    /// Whether the test had a network namespace of its own, or ran on the loopback of this one.
    own_namespace: bool,
    ring: RingProof,
    /// `None` if the kernel refuses a fanout group that puts fragments together.
    defrag: Option<DefragProof>,
}

/// What PACKET_STATISTICS says of a ring that was not read.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
struct RingProof {
    sent_packets: u64,
    readable_packets: u64,
    tp_packets: u64,
    tp_drops: u64,
    /// `None` if neither meaning adds up.
    tp_packets_includes_drops: Option<bool>,
}

/// What a fanout group saw of one datagram in two fragments.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
struct DefragProof {
    sent_fragments: u64,
    received_packets: u64,
    merges_fragments: bool,
}

/// On a thread of its own: a network namespace belongs to a thread, and other probes are about the one we came in.
pub fn prove() -> Result<Proof, JobError> {
    let test = || {
        let own_namespace = unshare(CloneFlags::CLONE_NEWNET).is_ok();
        loopback::raise()?;
        Ok(Proof {
            own_namespace,
            ring: overflow()?,
            defrag: defragment()?,
        })
    };
    match std::thread::spawn(test).join() {
        Ok(outcome) => outcome.map_err(|e| interface_error(&e)),
        Err(_) => Err(JobError::new("bug", "the AF_PACKET self-test panicked")),
    }
}

fn overflow() -> Result<RingProof, IoError> {
    let mut ring = RxRing::open(loopback::NAME, SMALL)?;
    let sender = PacketSender::open(loopback::NAME, Way::PastDiscipline)?;
    let frame = frame(EXPERIMENTAL, &[0; 46]);
    let taken = (0..FRAMES)
        .filter(|_| sender.send(&frame) == Sent::Taken)
        .count();
    let sent_packets = taken as u64;
    // The loopback hands over in a softirq, which may be put off: wait until the counters account for every frame.
    let deadline = Instant::now() + PATIENCE;
    let counted = loop {
        let counted = ring.statistics()?;
        let either = counted.tp_packets + counted.tp_drops >= sent_packets;
        if either || Instant::now() > deadline {
            break counted;
        }
        std::thread::yield_now();
    };
    // Each block once: what is given back may be filled again.
    let mut readable_packets = 0;
    for _ in 0..SMALL.blocks {
        let packets = ring.next_block().map_or(0, |block| block.packets().count());
        readable_packets += packets as u64;
    }
    Ok(RingProof {
        sent_packets,
        readable_packets,
        tp_packets: counted.tp_packets,
        tp_drops: counted.tp_drops,
        tp_packets_includes_drops: meaning(counted.tp_packets, counted.tp_drops, readable_packets),
    })
}

/// Without a drop nothing is proved.
fn meaning(tp_packets: u64, tp_drops: u64, readable_packets: u64) -> Option<bool> {
    match tp_packets {
        _ if tp_drops == 0 => None,
        all if all == readable_packets + tp_drops => Some(true),
        kept if kept == readable_packets => Some(false),
        _ => None,
    }
}

fn defragment() -> Result<Option<DefragProof>, IoError> {
    let mut group = match RxRing::open_group(loopback::NAME, SMALL, 2, true) {
        Ok(group) => group,
        Err(IoError::Setup {
            step: "PACKET_FANOUT",
            ..
        }) => return Ok(None),
        Err(e) => return Err(e),
    };
    let sender = PacketSender::open(loopback::NAME, Way::PastDiscipline)?;
    for packet in [
        datagram(FRAGMENT, MORE_FRAGMENTS),
        datagram(FRAGMENT, PAYLOAD_BYTES / 8),
        datagram(MARK, 0),
    ] {
        sender.send(&frame(IPV4, &packet));
    }
    let deadline = Instant::now() + PATIENCE;
    let (mut seen, mut marked, mut received_packets) = (0, false, 0);
    let mut counted = u64::MAX;
    // The mark came last: once it is here, whatever else came is counted, and we have it when we have as many as were counted.
    while (!marked || seen < counted) && Instant::now() < deadline {
        counted = 0;
        for ring in &mut group {
            while let Some(block) = ring.next_block() {
                for packet in block.packets() {
                    seen += 1;
                    match identification(packet.frame) {
                        Some(MARK) => marked = true,
                        Some(_) => received_packets += 1,
                        None => {}
                    }
                }
            }
            counted += ring.statistics()?.tp_packets;
        }
        std::thread::yield_now();
    }
    let merges_fragments = received_packets == 1;
    Ok(Some(DefragProof {
        sent_fragments: 2,
        received_packets,
        merges_fragments,
    }))
}

/// Of our own packets; `None` for all others.
fn identification(frame: &[u8]) -> Option<u16> {
    let ours = frame.get(14 + 12..14 + 16)? == SOURCE;
    let bytes = frame.get(14 + 4..14 + 6)?.try_into().ok()?;
    ours.then_some(u16::from_be_bytes(bytes))
}

fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[0; 12], &ether_type.to_be_bytes()[..], payload].concat()
}

/// IPv4 to another test address, of an experimental protocol: the stack throws it away, the tap has seen it.
fn datagram(identification: u16, fragment: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + PAYLOAD_BYTES).to_be_bytes());
    header.extend(identification.to_be_bytes());
    header.extend(fragment.to_be_bytes());
    header.extend([64, 253, 0, 0]);
    header.extend(SOURCE);
    header.extend([192, 0, 2, 2]);
    let checksum = !fold(sum(&header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header.resize(20 + usize::from(PAYLOAD_BYTES), 0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_meanings_are_told_apart_and_doubt_is_told() {
        assert_eq!(meaning(200, 168, 32), Some(true));
        assert_eq!(meaning(32, 168, 32), Some(false));
        assert_eq!(meaning(150, 168, 32), None);
        assert_eq!(meaning(32, 0, 32), None);
    }
}
