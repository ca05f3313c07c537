//! Frames with their times: the frames in a file until they are put in order and written as a pcap file, in memory where each lies.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use foldhash::fast::FixedState;
use nodrop_wire::pcap;

/// 2024-01-01 00:00:00 UTC: synthetic traces all begin then.
const EPOCH_NS: u64 = 1_704_067_200_000_000_000;

/// Longer quiet than this parts two bursts.
const BURST_GAP_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Packet {
    time_ns: u64,
    begin: u64,
    bytes: u32,
}

/// Frames in the order of their making.
#[derive(Debug)]
pub struct Packets {
    spool: BufWriter<File>,
    spooled_bytes: u64,
    /// The first thing that the file refused; nothing is written after it.
    refused: Option<io::Error>,
    frame: Vec<u8>,
    index: Vec<Packet>,
}

/// What a packet takes in memory: its entry, half of one while they are sorted, and what a list that grows has to spare.
pub const MEMORY_BYTES: u64 = 2 * (size_of::<Packet>() + size_of::<Packet>() / 2) as u64;

impl Packets {
    /// No frames yet; they go into this file, which is empty.
    #[must_use]
    pub fn new(spool: File) -> Self {
        Self {
            spool: BufWriter::with_capacity(1 << 16, spool),
            spooled_bytes: 0,
            refused: None,
            frame: Vec::new(),
            index: Vec::new(),
        }
    }

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

    /// Shows the frames that are not of that range of their making, in the order of the trace's index.
    ///
    /// # Errors
    /// Those of the file.
    pub fn frames_outside(
        &mut self,
        range: &Range<usize>,
        mut look: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.spool.flush()?;
        let (before, after) = (&self.index[..range.start], &self.index[range.end..]);
        let mut frame = Vec::new();
        for packet in before.iter().chain(after) {
            packet.read(self.spool.get_ref(), &mut frame)?;
            look(&frame);
        }
        Ok(())
    }

    /// Bytes of all frames.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        self.spooled_bytes
    }

    /// Adds what `write` appends, as one frame.
    #[allow(clippy::cast_possible_truncation)] // a frame
    pub fn push(&mut self, time_ns: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.frame.clear();
        write(&mut self.frame);
        if self.refused.is_none() {
            self.refused = self.spool.write_all(&self.frame).err();
        }
        self.index.push(Packet {
            time_ns,
            begin: self.spooled_bytes,
            bytes: self.frame.len() as u32,
        });
        self.spooled_bytes += self.frame.len() as u64;
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

    /// Puts the frames into the order of the trace; those of one time keep that of their making. The numbers there, from 1, of those
    /// that were made at these places.
    pub fn sort(&mut self, made: &[usize]) -> Vec<u64> {
        let begins: Vec<u64> = made.iter().map(|at| self.index[*at].begin).collect();
        self.index.sort_by_key(|packet| packet.time_ns);
        let mut numbers: HashMap<u64, u64, FixedState> =
            begins.iter().map(|begin| (*begin, 0)).collect();
        for (number, packet) in (1..).zip(&self.index) {
            if let Some(found) = numbers.get_mut(&packet.begin) {
                *found = number;
            }
        }
        begins.iter().map(|begin| numbers[begin]).collect()
    }

    /// Writes the trace.
    ///
    /// # Errors
    /// Those of the file that holds the frames, and of the writer.
    pub fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        self.spool.flush()?;
        out.write_all(&pcap::file_header())?;
        let mut frame = Vec::new();
        for packet in &self.index {
            let time_ns = EPOCH_NS + packet.time_ns;
            out.write_all(&pcap::record_header(time_ns, packet.bytes, packet.bytes))?;
            packet.read(self.spool.get_ref(), &mut frame)?;
            out.write_all(&frame)?;
        }
        out.flush()
    }
}

impl Packet {
    fn read(&self, spool: &File, frame: &mut Vec<u8>) -> io::Result<()> {
        frame.resize(self.bytes as usize, 0);
        spool.read_exact_at(frame, self.begin)
    }
}
