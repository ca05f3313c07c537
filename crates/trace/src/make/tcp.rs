//! One TCP conversation as a tap beside the client sees it: handshake, flights of segments, acknowledgements, the end.

use nodrop_wire::view::protocol;

use crate::make::frame::{self, TcpHeader, Way, flag};
use crate::make::packets::Packets;
use crate::make::rng::Rng;

/// From the tap to the client and back.
const NEAR_NS: u64 = 40_000;
const FIRST_WINDOW_SEGMENTS: usize = 10;
const LARGEST_WINDOW_SEGMENTS: usize = 80;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who opened the conversation.
    Client = 0,
    /// The other.
    Server = 1,
}

impl Side {
    fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How a conversation goes on its path.
#[derive(Debug, Clone)]
pub struct Path {
    /// From the client, and back.
    pub ways: [Way; 2],
    /// Ports of client and server.
    pub ports: [u16; 2],
    /// Round trip from the tap to the server and back.
    pub rtt_ns: u64,
    /// Time between two segments of a flight.
    pub gap_ns: u64,
    /// Largest segment.
    pub mss: u16,
    /// Segments per acknowledgement.
    pub segments_per_ack: usize,
    /// Share of segments that are lost behind the tap and sent again.
    pub loss_ratio: f64,
    /// Share of segments that change places with the next.
    pub reorder_ratio: f64,
}

/// A conversation that goes on.
#[derive(Debug)]
pub struct Tcp<'a> {
    out: &'a mut Packets,
    rng: Rng,
    path: Path,
    now_ns: u64,
    next: [u32; 2],
    ip_id: [u16; 2],
    window_segments: usize,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Segments that changed places.
    pub reordered: u64,
}

#[derive(Clone, Copy)]
struct Segment<'d> {
    time_ns: u64,
    begin: u32,
    data: &'d [u8],
    last: bool,
    lost: bool,
}

impl<'a> Tcp<'a> {
    /// The handshake.
    #[allow(clippy::cast_possible_truncation)] // random bits
    pub fn open(out: &'a mut Packets, mut rng: Rng, path: Path) -> Self {
        let next = [rng.next_u64() as u32, rng.next_u64() as u32];
        let ip_id = [rng.next_u64() as u16, rng.next_u64() as u16];
        let mut tcp = Self {
            out,
            rng,
            path,
            now_ns: 0,
            next,
            ip_id,
            window_segments: FIRST_WINDOW_SEGMENTS,
            retransmitted: 0,
            reordered: 0,
        };
        let mss = tcp.path.mss.to_be_bytes();
        // MSS, SACK permitted, no-op, window scale 7: what Linux sends but for timestamps.
        let options = [2, 4, mss[0], mss[1], 1, 1, 4, 2, 1, 3, 3, 7];
        tcp.put(0, Side::Client, flag::SYN, tcp.next[0], 0, &options, &[]);
        tcp.next[0] = tcp.next[0].wrapping_add(1);
        let rtt_ns = tcp.path.rtt_ns;
        tcp.put(
            rtt_ns,
            Side::Server,
            flag::SYN | flag::ACK,
            tcp.next[1],
            tcp.next[0],
            &options,
            &[],
        );
        tcp.next[1] = tcp.next[1].wrapping_add(1);
        tcp.now_ns = rtt_ns + NEAR_NS;
        tcp.control(Side::Client, flag::ACK);
        tcp
    }

    /// The conversation's own random numbers.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Packets and bytes in the trace so far, those of other conversations included.
    #[must_use]
    pub fn written(&self) -> (u64, u64) {
        (self.out.len() as u64, self.out.frame_bytes())
    }

    /// Nothing is sent for that long.
    pub fn pause(&mut self, pause_ns: u64) {
        self.now_ns += pause_ns;
    }

    /// Bytes from one side, acknowledged by the other.
    pub fn send(&mut self, side: Side, data: &[u8]) {
        let segments = data.len().div_ceil(self.path.mss.into());
        let mut sent = 0;
        while sent < segments {
            let count = self.window_segments.min(segments - sent);
            let begin = sent * usize::from(self.path.mss);
            let end = data.len().min((sent + count) * usize::from(self.path.mss));
            self.flight(side, &data[begin..end], sent + count == segments);
            sent += count;
            self.window_segments = (self.window_segments * 2).min(LARGEST_WINDOW_SEGMENTS);
        }
    }

    /// The client asks whether the other side is still there (RFC 9293 3.8.4).
    pub fn keep_alive(&mut self) {
        let before = self.next[0].wrapping_sub(1);
        self.put(
            self.now_ns,
            Side::Client,
            flag::ACK,
            before,
            self.next[1],
            &[],
            &[],
        );
        self.now_ns += self.path.rtt_ns;
        self.control(Side::Server, flag::ACK);
    }

    /// Both sides say that they are done, `side` first.
    pub fn close(mut self, side: Side) -> (u64, u64) {
        for (side, flags) in [(side, flag::FIN), (side.peer(), flag::FIN), (side, 0)] {
            self.control(side, flags | flag::ACK);
            self.now_ns += self.answer_ns(side);
            if flags & flag::FIN != 0 {
                let next = &mut self.next[side as usize];
                *next = next.wrapping_add(1);
            }
        }
        (self.retransmitted, self.reordered)
    }

    /// One side breaks off.
    pub fn reset(mut self, side: Side) -> (u64, u64) {
        self.control(side, flag::RST | flag::ACK);
        (self.retransmitted, self.reordered)
    }

    /// From something that `side` sends, seen at the tap, to the answer seen there.
    fn answer_ns(&self, side: Side) -> u64 {
        match side {
            Side::Client => self.path.rtt_ns,
            Side::Server => NEAR_NS,
        }
    }

    fn flight(&mut self, side: Side, data: &[u8], last: bool) {
        let mut segments = self.segments(side, data, last);
        self.disturb(&mut segments);
        for segment in &segments {
            self.data(side, segment);
        }
        segments.sort_by_key(|segment| segment.time_ns);
        let end_ns = self.acknowledge(side, &segments);
        let lost: Vec<_> = segments
            .iter()
            .filter(|segment| segment.lost)
            .copied()
            .collect();
        let sent = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let next = &mut self.next[side as usize];
        *next = next.wrapping_add(sent);
        self.now_ns = end_ns;
        for segment in &lost {
            self.now_ns += self.path.rtt_ns;
            self.data(
                side,
                &Segment {
                    time_ns: self.now_ns,
                    ..*segment
                },
            );
            self.retransmitted += 1;
        }
        if !lost.is_empty() {
            self.now_ns += self.answer_ns(side);
            self.control(side.peer(), flag::ACK);
        }
        // The next flight of the far side comes a round trip after the acknowledgement.
        if side == Side::Server && !last {
            self.now_ns += self.path.rtt_ns;
        }
    }

    #[allow(clippy::cast_possible_truncation)] // far below 2^32
    fn segments<'d>(&self, side: Side, data: &'d [u8], last: bool) -> Vec<Segment<'d>> {
        let mss = usize::from(self.path.mss);
        let count = data.len().div_ceil(mss);
        data.chunks(mss)
            .enumerate()
            .map(|(index, data)| Segment {
                time_ns: self.now_ns + index as u64 * self.path.gap_ns,
                begin: self.next[side as usize].wrapping_add((index * mss) as u32),
                data,
                last: last && index + 1 == count,
                lost: false,
            })
            .collect()
    }

    /// Loss and reordering on the way, in flights long enough that the other side notices.
    fn disturb(&mut self, segments: &mut [Segment<'_>]) {
        for index in 0..segments.len().saturating_sub(3) {
            if self.rng.chance(self.path.loss_ratio) {
                segments[index].lost = true;
            } else if self.rng.chance(self.path.reorder_ratio) {
                segments[index].time_ns += self.path.gap_ns + self.path.gap_ns / 2;
                self.reordered += 1;
            }
        }
    }

    /// What the receiver says to each segment as it comes: every second one in order, at once if one is missing (RFC 5681 4.2).
    fn acknowledge(&mut self, side: Side, segments: &[Segment<'_>]) -> u64 {
        let answer_ns = self.answer_ns(side);
        let base = self.next[side as usize];
        let (mut expected, mut waiting, mut end_ns) = (base, 0, self.now_ns);
        let mut early: Vec<&Segment<'_>> = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            end_ns = segment.time_ns + answer_ns;
            if segment.lost {
                continue;
            }
            let is_next = segment.begin == expected;
            early.push(segment);
            early.sort_by_key(|segment| segment.begin.wrapping_sub(base));
            while early.first().is_some_and(|first| first.begin == expected) {
                expected = expected.wrapping_add(length32(early.remove(0).data));
            }
            waiting += 1;
            let is_last = index + 1 == segments.len();
            if waiting >= self.path.segments_per_ack || !is_next || is_last {
                waiting = 0;
                let from = side.peer();
                let sequence = self.next[from as usize];
                self.put(end_ns, from, flag::ACK, sequence, expected, &[], &[]);
            }
        }
        end_ns
    }

    fn data(&mut self, side: Side, segment: &Segment<'_>) {
        let push = if segment.last { flag::PSH } else { 0 };
        let acknowledgement = self.next[side.peer() as usize];
        self.put(
            segment.time_ns,
            side,
            flag::ACK | push,
            segment.begin,
            acknowledgement,
            &[],
            segment.data,
        );
    }

    fn control(&mut self, side: Side, flags: u8) {
        let (sequence, acknowledgement) =
            (self.next[side as usize], self.next[side.peer() as usize]);
        self.put(
            self.now_ns,
            side,
            flags,
            sequence,
            acknowledgement,
            &[],
            &[],
        );
    }

    #[allow(clippy::too_many_arguments)] // the fields of a header
    fn put(
        &mut self,
        time_ns: u64,
        side: Side,
        flags: u8,
        sequence: u32,
        acknowledgement: u32,
        options: &[u8],
        data: &[u8],
    ) {
        let from = side as usize;
        self.ip_id[from] = self.ip_id[from].wrapping_add(1);
        let header = TcpHeader {
            source: self.path.ports[from],
            destination: self.path.ports[1 - from],
            sequence,
            acknowledgement,
            flags,
            options,
        };
        let (way, id) = (&self.path.ways[from], self.ip_id[from]);
        self.out.push(time_ns, |out| {
            frame::ip(out, way, id, protocol::TCP, |out| {
                frame::tcp(out, header, data)
            });
        });
    }
}

fn length32(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}
