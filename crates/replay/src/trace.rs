//! A trace in memory: the bytes of its file, and an index of when, where and what to rewrite per packet.

use std::fmt;
use std::hash::BuildHasher as _;
use std::ops::Deref;
use std::sync::Arc;

use foldhash::fast::FixedState;
use nodrop_wire::capture::Reader;
use nodrop_wire::flow::FlowKey;
use nodrop_wire::record::CaptureError;
use nodrop_wire::replica_addresses::{RewriteError, Rewriter, Survey, Work};
use nodrop_wire::tunnel::innermost;
use nodrop_wire::view::Ip;

use crate::ways::{Mac, Ways};

/// One packet of the index.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Time after the first packet.
    pub at_ns: u64,
    offset: usize,
    length: u32,
    work: Work,
}

impl Packet {
    /// Bytes of its frame, as captured.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// It has a header, and nothing else.
    #[error("the trace holds no packets")]
    NoPackets,
    /// Too many replicas.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
}

/// The bytes of a capture file: its own, or those of a file that somebody maps.
#[derive(Clone)]
pub enum Bytes {
    /// In memory of its own, which a kernel may be given.
    Own(Arc<Vec<u8>>),
    /// To be read only.
    Shared(Arc<dyn Deref<Target = [u8]> + Send + Sync>),
}

impl Bytes {
    /// What somebody else holds.
    pub fn shared(bytes: Arc<impl Deref<Target = [u8]> + Send + Sync + 'static>) -> Self {
        Self::Shared(bytes)
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(Arc::new(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Copies of the trace that are flows of their own; number 0 is the trace itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copies {
    /// Number of the first one.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Copies {
    const ITSELF: Self = Self { first: 0, count: 1 };
}

/// A trace that can be sent, as itself and as its replicas.
#[derive(Debug)]
pub struct Trace {
    bytes: Bytes,
    packets: Vec<Packet>,
    frame_bytes: u64,
    longest_frame: usize,
    rewriter: Option<Rewriter>,
    copies: Copies,
    ways: Option<Ways>,
    begins_ns: u64,
    same_flows: u64,
}

impl Trace {
    /// Indexes a capture file.
    ///
    /// # Errors
    /// As [`Trace::merged`].
    pub fn new(bytes: Vec<u8>, tolerate_truncated: bool) -> Result<Self, TraceError> {
        Self::merged(vec![bytes], tolerate_truncated).map_err(|(_, error)| error)
    }

    /// Indexes capture files as one trace, merged by time.
    ///
    /// The packets of a file stay in its order; one whose time lies before that of an earlier packet is due with it.
    ///
    /// # Errors
    /// With the number of the file that is no capture of Ethernet frames, is cut (unless tolerated), or holds no packets.
    pub fn merged(
        files: Vec<Vec<u8>>,
        tolerate_truncated: bool,
    ) -> Result<Self, (usize, TraceError)> {
        let (mut bytes, mut packets) = (Vec::new(), Vec::new());
        for (number, file) in files.into_iter().enumerate() {
            index_file(&file, tolerate_truncated, bytes.len(), &mut packets)
                .map_err(|error| (number, error))?;
            // The one file there mostly is costs no copy.
            if bytes.is_empty() {
                bytes = file;
            } else {
                bytes.extend(file);
            }
        }
        Ok(Self::indexed(bytes.into(), packets))
    }

    /// Indexes a capture file that is in memory.
    ///
    /// # Errors
    /// As [`Trace::merged`].
    pub fn of_bytes(bytes: Bytes, tolerate_truncated: bool) -> Result<Self, TraceError> {
        let mut packets = Vec::new();
        index_file(&bytes, tolerate_truncated, 0, &mut packets)?;
        Ok(Self::indexed(bytes, packets))
    }

    /// `packets` is not empty.
    fn indexed(bytes: Bytes, mut packets: Vec<Packet>) -> Self {
        // Stable: packets of one time stay in the order of their files.
        packets.sort_by_key(|packet| packet.at_ns);
        let begin = packets.first().map_or(0, |first| first.at_ns);
        packets.iter_mut().for_each(|packet| packet.at_ns -= begin);
        packets.shrink_to_fit();
        let lengths = || packets.iter().map(|packet| packet.length);
        Self {
            frame_bytes: lengths().map(u64::from).sum(),
            longest_frame: lengths().max().map_or(0, |length| length as usize),
            bytes,
            packets,
            rewriter: None,
            copies: Copies::ITSELF,
            ways: None,
            begins_ns: begin,
            same_flows: 0,
        }
    }

    /// Prepares copies whose flows are distinct: as many as are wanted or, if there are not so many addresses, as many times `at_once` as
    /// there are. They begin with number `first` if there are addresses for them from there on, otherwise with the trace itself.
    ///
    /// # Errors
    /// If there are not enough addresses for those that are sent at once.
    pub fn make_distinct(&mut self, wanted: Copies, at_once: u32) -> Result<(), TraceError> {
        if wanted.first == 0 && wanted.count < 2 {
            (self.rewriter, self.same_flows, self.copies) = (None, 0, Copies::ITSELF);
            return Ok(());
        }
        let surveyed = self.rewriter.is_none();
        let mut rewriter = self.rewriter.take().unwrap_or_else(|| self.survey());
        let most = u32::try_from(rewriter.most()).unwrap_or(u32::MAX);
        let at_once = at_once.max(1);
        let fit = (most / at_once).max(1).saturating_mul(at_once);
        let count = wanted.count.max(1).min(fit);
        let fits = (wanted.first.checked_add(count)).is_some_and(|end| end <= most);
        let first = if fits { wanted.first } else { 0 };
        let copies = Copies { first, count };
        if surveyed || copies != self.copies {
            self.copies = Copies::ITSELF;
            rewriter.give(first as usize..first as usize + count as usize)?;
        }
        (self.rewriter, self.copies) = (Some(rewriter), copies);
        if surveyed {
            self.same_flows = self.flows_that_stay();
        }
        Ok(())
    }

    /// Finds what is written into each packet.
    fn survey(&mut self) -> Rewriter {
        let mut survey = Survey::default();
        for packet in &self.packets {
            survey.add(frame(&self.bytes, packet));
        }
        let mut rewriter = survey.rewriter();
        for packet in &mut self.packets {
            packet.work = rewriter.work(frame(&self.bytes, packet));
        }
        rewriter.seal();
        rewriter
    }

    /// The copies that were prepared last.
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.copies
    }

    /// Shares the flows among destination addresses, which are written over each frame's own: for a bridge that splits by them.
    pub fn share_among(&mut self, macs: Vec<Mac>) {
        let frames = self.packets.iter().map(|packet| frame(&self.bytes, packet));
        self.ways = Ways::of_flows(macs, frames);
    }

    /// The same with replicas: each goes whole to one of the addresses.
    pub fn share_replicas_among(&mut self, macs: Vec<Mac>) {
        self.ways = Ways::of_replicas(macs);
    }

    fn flows_that_stay(&self) -> u64 {
        let packets = 0..self.packets.len();
        FirstOfFlows::of(self, packets, |_| true).same.len() as u64
    }

    /// The frame of a packet as it was captured.
    #[must_use]
    pub fn original(&self, packet: usize) -> &[u8] {
        frame(&self.bytes, &self.packets[packet])
    }

    /// The frame of a packet in the last copy with addresses of its own; without such a copy, the frame as it was captured.
    pub(crate) fn of_last_copy<'a>(&'a self, packet: usize, buffer: &'a mut [u8]) -> &'a [u8] {
        self.frame(packet, self.copies.count - 1, buffer).0
    }

    /// What is written into a packet of a replica.
    pub(crate) fn work(&self, packet: usize) -> Work {
        self.packets[packet].work
    }

    /// Flows that are the same in every replica though they should not: nothing in their addresses may be mapped. Later fragments
    /// count as a flow without ports.
    #[must_use]
    pub fn same_flows(&self) -> u64 {
        self.same_flows
    }

    /// The time of the first packet, since the epoch.
    #[must_use]
    pub fn begins_ns(&self) -> u64 {
        self.begins_ns
    }

    /// The index, in file order.
    #[must_use]
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// Bytes of all frames, as captured.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// First to last packet.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.packets.last().map_or(0, |packet| packet.at_ns)
    }

    /// Bytes of the longest frame.
    #[must_use]
    pub fn longest_frame(&self) -> usize {
        self.longest_frame
    }

    /// The memory that all frames are sent from; `None` if some are rewritten on their way, or it is not the trace's own.
    #[must_use]
    pub fn in_place(&self) -> Option<Arc<Vec<u8>>> {
        let as_they_are = self.rewriter.is_none() && self.ways.is_none();
        match &self.bytes {
            Bytes::Own(bytes) if as_they_are => Some(Arc::clone(bytes)),
            _ => None,
        }
    }

    /// A buffer for [`Trace::frame`], as long as the longest frame and touched.
    #[must_use]
    pub fn buffer(&self) -> Vec<u8> {
        vec![0; self.longest_frame]
    }

    /// The frame of a packet in a replica (of one beyond those it was prepared for, that of an earlier one), and whether it is sent as it is
    /// though its replica should have addresses of its own.
    pub fn frame<'a>(
        &'a self,
        packet: usize,
        replica: u32,
        buffer: &'a mut [u8],
    ) -> (&'a [u8], bool) {
        let (number, packet) = (packet, &self.packets[packet]);
        let original = frame(&self.bytes, packet);
        // Ways and rewriting both go by the number of the copy, of which the first that was prepared has 0.
        let replica = match self.rewriter {
            Some(_) => replica % self.copies.count,
            None => replica,
        };
        let copy = self.copies.first + replica;
        let rewriter = self.rewriter.as_ref().filter(|_| copy > 0);
        let as_is = rewriter.is_some() && packet.work == Work::NONE;
        let rewriter = rewriter.filter(|_| !as_is);
        if rewriter.is_none() && self.ways.is_none() {
            return (original, as_is);
        }
        let bytes = &mut buffer[..original.len()];
        bytes.copy_from_slice(original);
        if let Some(rewriter) = rewriter {
            rewriter.apply(packet.work, copy as usize, bytes);
        }
        if let Some(ways) = &self.ways {
            ways.lead(number, replica, rewriter.is_some(), bytes);
        }
        (bytes, as_is)
    }
}

/// Adds the packets of a file with their time since the epoch; its bytes will stand at `base`.
fn index_file(
    file: &[u8],
    tolerate_truncated: bool,
    base: usize,
    packets: &mut Vec<Packet>,
) -> Result<(), TraceError> {
    let (mut latest, before) = (0, packets.len());
    for record in Reader::new(file, tolerate_truncated)? {
        let record = record?;
        latest = record.timestamp_ns.max(latest);
        packets.push(Packet {
            at_ns: latest,
            offset: base + record.offset,
            // Bounded by MAX_CAPTURED_BYTES.
            length: u32::try_from(record.frame.len()).unwrap_or(u32::MAX),
            work: Work::NONE,
        });
    }
    if packets.len() == before {
        return Err(TraceError::NoPackets);
    }
    Ok(())
}

fn frame<'a>(bytes: &'a [u8], packet: &Packet) -> &'a [u8] {
    &bytes[packet.offset..packet.offset + packet.length as usize]
}

/// The innermost flows of some packets, known by a hash.
pub(crate) struct FirstOfFlows {
    /// Hashes of flows that are the same in every replica.
    pub same: Vec<u64>,
    /// Of each other flow the place of its first packet among those that were shown, in order.
    pub others: Vec<usize>,
}

impl FirstOfFlows {
    /// Of these packets, those whose innermost header `counts`.
    pub fn of(
        trace: &Trace,
        packets: impl Iterator<Item = usize>,
        counts: impl Fn(&Ip) -> bool,
    ) -> Self {
        const RECENT: usize = 4_096;
        let (hasher, mut buffer) = (FixedState::default(), trace.buffer());
        let flow_of = |frame: &[u8]| {
            let ip = innermost(frame).filter(&counts)?;
            Some(FlowKey::of_ip(frame, &ip))
        };
        // Flows that come often are seen once for many packets. What is rewritten alike stays, or does not, alike.
        let mut recent = vec![None; RECENT];
        let mut found: Vec<(u64, bool, usize)> = Vec::new();
        for (place, packet) in packets.enumerate() {
            let Some(flow) = flow_of(trace.original(packet)) else {
                continue;
            };
            let hash = hasher.hash_one(flow);
            let known = Some((hash, trace.work(packet)));
            #[expect(clippy::cast_possible_truncation, reason = "the lowest bits")]
            let slot = &mut recent[hash as usize % RECENT];
            if *slot != known {
                *slot = known;
                let is_same = flow_of(trace.of_last_copy(packet, &mut buffer)) == Some(flow);
                found.push((hash, is_same, place));
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|(hash, is_same, _)| (*hash, *is_same));
        let (same, others): (Vec<_>, Vec<_>) = found.iter().partition(|(_, is_same, _)| *is_same);
        let mut others: Vec<usize> = others.iter().map(|(_, _, place)| *place).collect();
        others.sort_unstable();
        Self {
            same: same.iter().map(|(hash, _, _)| *hash).collect(),
            others,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
    use super::*;
    use nodrop_wire::pcap;

    /// A trace of frames with these times; frame i is `i + 20` bytes long.
    pub(crate) fn trace(times_ns: &[u64]) -> Trace {
        Trace::new(file(times_ns), false).unwrap()
    }

    fn file(times_ns: &[u64]) -> Vec<u8> {
        let mut bytes = pcap::file_header().to_vec();
        for (number, time) in times_ns.iter().enumerate() {
            let length = number as u32 + 20;
            bytes.extend(pcap::record_header(*time, length, length));
            bytes.resize(bytes.len() + length as usize, number as u8);
        }
        bytes
    }

    #[test]
    fn files_are_merged_by_time() {
        let files = vec![file(&[100, 300]), file(&[50, 100, 200])];
        let trace = Trace::merged(files, false).unwrap();
        let mut buffer = trace.buffer();
        let sent: Vec<(u64, usize)> = (trace.packets().iter().enumerate())
            .map(|(i, packet)| (packet.at_ns, trace.frame(i, 0, &mut buffer).0.len()))
            .collect();
        assert_eq!(sent, [(0, 20), (50, 20), (50, 21), (150, 22), (250, 21)]);
        assert_eq!(trace.frame_bytes(), 20 + 21 + 20 + 21 + 22);

        let (number, error) = Trace::merged(vec![file(&[1]), file(&[])], false).unwrap_err();
        assert_eq!(
            (number, error.to_string().as_str()),
            (1, "the trace holds no packets")
        );
    }

    #[test]
    fn time_that_goes_backwards_stands_still() {
        let trace = trace(&[100, 130, 90, 120, 140]);
        let times: Vec<_> = trace.packets().iter().map(|packet| packet.at_ns).collect();
        assert_eq!(times, [0, 30, 30, 30, 40]);
        assert_eq!(
            (trace.duration_ns(), trace.frame_bytes()),
            (40, 20 + 21 + 22 + 23 + 24)
        );
    }

    #[test]
    fn a_trace_without_packets_is_an_error() {
        let error = Trace::new(pcap::file_header().to_vec(), true).unwrap_err();
        assert!(matches!(error, TraceError::NoPackets));
    }

    #[test]
    fn frames_that_are_led_somewhere_are_not_sent_from_the_trace() {
        let mut trace = trace(&[0]);
        assert!(trace.in_place().is_some());
        trace.share_among(Vec::new());
        assert!(trace.in_place().is_some(), "no address to write");
        trace.share_among(vec![[7; 6]]);
        assert!(trace.in_place().is_none());
    }

    #[test]
    fn replicas_are_those_that_were_asked_for_last() {
        let sent = |trace: &Trace| -> Vec<(Vec<u8>, bool)> {
            let mut buffer = trace.buffer();
            let all = (0..3).flat_map(|packet| (0..4).map(move |replica| (packet, replica)));
            all.map(|(packet, replica)| {
                let (frame, as_is) = trace.frame(packet, replica, &mut buffer);
                (frame.to_vec(), as_is)
            })
            .collect()
        };
        let prepared = |replicas: &[u32]| {
            let mut trace = trace_of(&[udp(1, 2), udp(2, 1), udp(3, 7)]);
            for replicas in replicas {
                number_copies(&mut trace, *replicas);
            }
            (sent(&trace), trace.in_place().is_some(), trace.same_flows())
        };
        for history in [[4, 1, 3], [2, 9, 1], [1, 3, 4], [4, 4, 2]] {
            assert_eq!(prepared(&history), prepared(&history[2..]), "{history:?}");
        }
        assert_ne!(prepared(&[1]), prepared(&[4]));
        for replicas in [2, 4, 64] {
            assert_eq!(prepared(&[replicas]).2, 0, "flows that stay");
        }
    }

    /// As many copies, from the trace itself on.
    pub(crate) fn number_copies(trace: &mut Trace, count: u32) {
        let copies = Copies { first: 0, count };
        trace.make_distinct(copies, count).unwrap();
    }

    fn sent_by(trace: &Trace, copies: u32) -> Vec<Vec<u8>> {
        let mut buffer = trace.buffer();
        (0..copies)
            .map(|copy| trace.frame(0, copy, &mut buffer).0.to_vec())
            .collect()
    }

    #[test]
    fn copies_number_on_until_the_addresses_run_out() {
        // 169.254.0.1 and .2: (65,536 - 3) / 2 runs behind them, and the trace itself; .0 alone holds no run.
        let most = 32_767;
        let frame = |low| {
            let mut frame = udp(1, 2);
            frame[26..34].copy_from_slice(&[169, 254, 0, low, 169, 254, 0, low + 1]);
            frame
        };
        let mut all = trace_of(&[frame(1)]);
        number_copies(&mut all, most);
        let flows = sent_by(&all, most);
        let mut different = flows.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), flows.len());

        let mut trace = trace_of(&[frame(1)]);
        for (first, count) in [(0, 1), (1, 3), (4, 1), (4, 5), (most - 2, 2), (0, 2)] {
            let wanted = Copies { first, count };
            trace.make_distinct(wanted, 1).unwrap();
            assert_eq!(trace.copies(), wanted);
            let of_all = &flows[first as usize..][..count as usize];
            assert_eq!(sent_by(&trace, count), of_all, "{wanted:?}");
            assert_eq!(trace.frame(0, count, &mut trace.buffer()).0, of_all[0]);
            assert_eq!(trace.same_flows(), 0);
            assert_eq!(trace.original(0), flows[0]);
        }
        for (first, count, given) in [(most - 1, 2, 2), (7, most + 9, most), (0, most + 9, most)] {
            trace.make_distinct(Copies { first, count }, 1).unwrap();
            assert_eq!(
                trace.copies(),
                Copies {
                    first: 0,
                    count: given
                }
            );
        }
        let wanted = Copies {
            first: 0,
            count: most + 9,
        };
        trace.make_distinct(wanted, 1_000).unwrap();
        assert_eq!(trace.copies().count, 32_000, "whole passes");
        assert!(trace.make_distinct(wanted, most + 1).is_err());
    }

    pub(crate) fn udp(source: u8, destination: u8) -> Vec<u8> {
        let ethernet = [[2; 12].as_slice(), &[0x08, 0x00]].concat();
        let ip = [0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0];
        let hosts = [10, 0, 0, source, 10, 0, 0, destination];
        [ethernet.as_slice(), &ip, &hosts, &[4, 1, 0, 53, 0, 8, 0, 0]].concat()
    }

    pub(crate) fn trace_of(frames: &[Vec<u8>]) -> Trace {
        let mut bytes = pcap::file_header().to_vec();
        for (time, frame) in (0..).zip(frames) {
            let length = frame.len() as u32;
            bytes.extend(pcap::record_header(time, length, length));
            bytes.extend(frame);
        }
        Trace::new(bytes, false).unwrap()
    }

    #[test]
    fn frames_that_cannot_be_rewritten_are_told_apart() {
        let mut trace = trace(&[0]);
        let mut buffer = trace.buffer();
        assert_eq!(
            trace.frame(0, 1, &mut buffer),
            (&[0; 20][..], false),
            "same flows"
        );
        number_copies(&mut trace, 2);
        assert_eq!(trace.frame(0, 0, &mut buffer), (&[0; 20][..], false));
        assert_eq!(trace.frame(0, 1, &mut buffer), (&[0; 20][..], true));
        assert!(trace.in_place().is_none(), "replicas are rewritten");
        trace.share_among(vec![[7; 6]]);
        let led = [[7; 6].as_slice(), &[0; 14]].concat();
        for (replica, as_is) in [(0, false), (1, true)] {
            assert_eq!(
                trace.frame(0, replica, &mut buffer),
                (led.as_slice(), as_is)
            );
        }
    }
}
