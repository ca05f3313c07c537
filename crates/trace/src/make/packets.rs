//! Frames with their times, in one block of memory, put in order at the end and written as a pcap file.

use std::io::{self, Write};
use std::ops::Range;

use nodrop_wire::pcap;

/// 2024-01-01 00:00:00 UTC: synthetic traces all begin then.
const EPOCH_NS: u64 = 1_704_067_200_000_000_000;

/// Longer quiet than this parts two bursts.
const BURST_GAP_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Packet {
    time_ns: u64,
    begin: usize,
    bytes: u32,
}

/// Frames in the order of their making.
#[derive(Debug, Default)]
pub struct Packets {
    frames: Vec<u8>,
    index: Vec<Packet>,
}

impl Packets {
    /// Number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The frames that are not of that range of their making.
    pub fn frames_outside(&self, range: &Range<usize>) -> impl Iterator<Item = &[u8]> + '_ {
        let range = range.clone();
        let outside = self
            .index
            .iter()
            .enumerate()
            .filter(move |(at, _)| !range.contains(at));
        outside.map(|(_, packet)| &self.frames[packet.begin..][..packet.bytes as usize])
    }

    /// Bytes of all frames.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Adds what `write` appends, as one frame.
    #[allow(clippy::cast_possible_truncation)] // a frame
    pub fn push(&mut self, time_ns: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.frames.len();
        write(&mut self.frames);
        let bytes = (self.frames.len() - begin) as u32;
        self.index.push(Packet {
            time_ns,
            begin,
            bytes,
        });
    }

    /// Time of the last of the frames made since `from`, counted from their own beginning.
    #[must_use]
    pub fn duration_ns(&self, from: usize) -> u64 {
        self.index[from..]
            .iter()
            .map(|packet| packet.time_ns)
            .max()
            .unwrap_or(0)
    }

    /// Puts the frames made since `from` elsewhere in time.
    pub fn retime(&mut self, from: usize, time: impl Fn(u64) -> u64) {
        for packet in &mut self.index[from..] {
            packet.time_ns = time(packet.time_ns);
        }
    }

    /// Puts the frames made since `from` elsewhere in time, burst by burst: a burst begins when `time` says that the share of bytes
    /// before it has gone, and a part `phase` of its own; it keeps the gaps within it.
    pub fn retime_bursts(&mut self, from: usize, phase: f64, time: impl Fn(f64) -> u64) {
        let packets = &mut self.index[from..];
        packets.sort_by_key(|packet| packet.time_ns);
        let bytes = |packets: &[Packet]| {
            packets
                .iter()
                .map(|packet| f64::from(packet.bytes))
                .sum::<f64>()
        };
        let total = bytes(packets);
        let (mut gone, mut end_ns) = (0.0, 0);
        for burst in packets.chunk_by_mut(|a, b| b.time_ns - a.time_ns <= BURST_GAP_NS) {
            let own = bytes(burst);
            let (was_ns, begin_ns) = (
                burst[0].time_ns,
                time((gone + phase * own) / total).max(end_ns),
            );
            for packet in burst {
                packet.time_ns = packet.time_ns - was_ns + begin_ns;
                end_ns = packet.time_ns;
            }
            gone += own;
        }
    }

    /// Times and lengths of the frames made since `from`.
    pub fn lengths(&self, from: usize) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.index[from..]
            .iter()
            .map(|packet| (packet.time_ns, packet.bytes))
    }

    /// Writes the trace; frames of one time keep the order of their making.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        self.index.sort_by_key(|packet| packet.time_ns);
        out.write_all(&pcap::file_header())?;
        for packet in &self.index {
            let time_ns = EPOCH_NS + packet.time_ns;
            out.write_all(&pcap::record_header(time_ns, packet.bytes, packet.bytes))?;
            out.write_all(&self.frames[packet.begin..][..packet.bytes as usize])?;
        }
        out.flush()
    }
}
