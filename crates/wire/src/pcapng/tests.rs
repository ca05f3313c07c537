//! Files made by hand, block by block.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
use super::*;
use crate::capture::Reader;
use proptest::prelude::*;

const SECTION_HEADER: u32 = u32::from_be_bytes(MAGIC);

struct Writer {
    big: bool,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(big: bool) -> Self {
        let mut writer = Self {
            big,
            bytes: Vec::new(),
        };
        writer.section();
        writer
    }

    fn word(&self, value: u32) -> [u8; 4] {
        if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    fn half(&self, value: u16) -> [u8; 2] {
        if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let padded = body.len().next_multiple_of(4);
        let length = self.word(padded as u32 + 12);
        self.bytes.extend(self.word(kind));
        self.bytes.extend(length);
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len() + padded - body.len(), 0);
        self.bytes.extend(length);
    }

    fn section(&mut self) {
        let mut body = self.word(BYTE_ORDER_MAGIC).to_vec();
        body.extend([0, 1, 0, 0]);
        body.extend([0xff; 8]);
        self.block(SECTION_HEADER, &body);
    }

    fn interface(&mut self, linktype: u16, options: &[(u16, &[u8])]) {
        let mut body = [self.half(linktype), self.half(0)].concat();
        body.extend(self.word(0));
        for (code, value) in options {
            body.extend(self.half(*code));
            body.extend(self.half(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(INTERFACE_DESCRIPTION, &body);
    }

    fn packet(&mut self, interface: u32, timestamp: u64, frame: &[u8]) {
        let (high, low) = ((timestamp >> 32) as u32, timestamp as u32);
        let length = frame.len() as u32;
        let mut body: Vec<u8> = [interface, high, low, length, length]
            .iter()
            .flat_map(|w| self.word(*w))
            .collect();
        body.extend(frame);
        self.block(ENHANCED_PACKET, &body);
    }
}

fn records(bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let reader = Reader::new(bytes, false).unwrap();
    reader
        .map(|record| record.map(|r| (r.timestamp_ns, r.frame)).unwrap())
        .collect()
}

#[test]
fn both_byte_orders_and_several_sections_and_interfaces() {
    for big in [false, true] {
        let mut file = Writer::new(big);
        file.interface(1, &[]);
        file.interface(1, &[(OPTION_IF_TSRESOL, &[9])]);
        file.block(5, &[0; 12]); // interface statistics
        file.packet(0, 7, b"micro");
        file.packet(1, 7, b"nano");
        file.section();
        file.interface(1, &[(OPTION_IF_TSRESOL, &[3])]);
        file.packet(0, 7, b"milli");
        let expected: [(u64, &[u8]); 3] = [(7_000, b"micro"), (7, b"nano"), (7_000_000, b"milli")];
        assert_eq!(records(&file.bytes), expected);
    }
}

#[test]
fn odd_resolutions_and_offsets() {
    let clock = |resolution, offset_s| Clock {
        resolution,
        offset_s,
    };
    for (clock, timestamp, ns) in [
        (clock(0, 0), 3, 3_000_000_000),
        (clock(12, 0), 5_999, 5),
        (clock(0x80 | 10, 0), 1 << 10, 1_000_000_000),
        (clock(0x80 | 30, 0), 1 << 29, 500_000_000),
        (clock(6, 100), 1, 100_000_001_000),
        (clock(6, -1), 1_500_000, 500_000_000),
        (clock(6, -100), 1, 0),
        (clock(127, 0), u64::MAX, 0),
        (clock(0xff, 0), u64::MAX, 0),
        (clock(0, 0), u64::MAX, u64::MAX),
    ] {
        assert_eq!(clock.ns(timestamp), ns, "{clock:?} {timestamp}");
    }
}

#[test]
fn simple_packets_are_of_the_first_interface_and_the_last_time() {
    let mut file = Writer::new(false);
    file.interface(1, &[]);
    file.packet(0, 7, b"timed");
    let body = [&[6, 0, 0, 0][..], b"simple"].concat();
    file.block(SIMPLE_PACKET, &body);
    let expected: [(u64, &[u8]); 2] = [(7_000, b"timed"), (7_000, b"simple")];
    assert_eq!(records(&file.bytes), expected);
}

#[test]
fn errors_say_which_packet_and_which_byte() {
    let mut file = Writer::new(false);
    file.interface(1, &[]);
    file.interface(113, &[]);
    file.packet(0, 7, b"whole");
    let second = file.bytes.len();
    file.packet(0, 7, b"cut");
    let bytes = file.bytes.clone();
    let last = |bytes: &[u8]| {
        Reader::new(bytes, false)
            .unwrap()
            .last()
            .unwrap()
            .unwrap_err()
    };
    assert_eq!(
        last(&bytes[..bytes.len() - 1]),
        CaptureError::TruncatedRecord {
            packet: 2,
            offset: second,
            have: 35,
            need: 36
        }
    );
    let mut corrupt = bytes.clone();
    corrupt[second + 4] = 13;
    assert_eq!(
        last(&corrupt).to_string(),
        format!("corrupt at packet 2, byte {second}: a block of 13 bytes")
    );
    file.packet(1, 7, b"cooked");
    assert_eq!(
        last(&file.bytes),
        CaptureError::LinkType {
            linktype: 113,
            interface: 1,
            packet: 3
        }
    );
    let of_any_link = Reader::of_any_link(&file.bytes, false).unwrap();
    let links: Vec<_> = of_any_link.map(|r| r.unwrap().source.linktype).collect();
    assert_eq!(links, [1, 1, 113]);
    let mut tolerant = Reader::new(&bytes[..bytes.len() - 1], true).unwrap();
    assert_eq!(tolerant.by_ref().count(), 1);
    assert!(tolerant.cut().is_some());
}

proptest! {
    /// Blocks of any type and content, some of the lengths right.
    #[test]
    fn no_input_panics(big: bool, blocks in proptest::collection::vec(
        (0u32..8, proptest::collection::vec(any::<u8>(), 0..60), any::<bool>()), 0..8),
        flip in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>()))) {
        let mut file = Writer::new(big);
        file.interface(1, &[]);
        for (kind, body, whole) in &blocks {
            if *whole { file.packet(0, 1, body) } else { file.block(*kind, body) }
        }
        if let Some((place, value)) = flip {
            let place = place.index(file.bytes.len());
            file.bytes[place] = value;
        }
        if let Ok(reader) = Reader::new(&file.bytes, false) {
            for record in reader.flatten() {
                prop_assert_eq!(record.frame, &file.bytes[record.offset..][..record.frame.len()]);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let file = [&MAGIC[..], &bytes].concat();
        let _ = Reader::new(&file, true).map(Iterator::count);
    }
}
