//! Classic pcap files: both byte orders, micro- and nanosecond timestamps, and the variants that libpcap reads (sf-pcap.c).

use crate::record::{CaptureError, LINKTYPE_ETHERNET, MAX_CAPTURED_BYTES, Record, Source};

/// Length of the header of a file.
pub const FILE_HEADER_BYTES: usize = 24;
/// Length of the header of a record.
pub const RECORD_HEADER_BYTES: usize = 16;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Alexey Kuznetzov's "modified" pcap of 1998: interface, protocol and direction stand after the lengths.
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;
const MODIFIED_BYTES: usize = 8;
/// Bits of the link type field: the announced frame check sequence, in units of 16 bits, and whether it is announced.
const FCS_ANNOUNCED: u32 = 0x0400_0000;
const FCS_SHIFT: u32 = 28;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

/// Walks over the records of a classic pcap file.
#[derive(Debug, Clone)]
pub struct PcapReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    packet: u64,
    order: ByteOrder,
    ns_per_fraction: u64,
    record_header_bytes: usize,
    lengths: Lengths,
    source: Source,
}

/// Order of both lengths in a record: files before version 2.4 had the length on the wire first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    /// Version 2.3: either, and the captured one is the lesser.
    LesserIsCaptured,
}

impl<'a> PcapReader<'a> {
    /// Reads the file header.
    ///
    /// # Errors
    /// If the file is empty or of another format.
    pub fn new(bytes: &'a [u8]) -> Result<Self, CaptureError> {
        let Some(magic) = bytes.first_chunk::<4>() else {
            return Err(match bytes.len() {
                0 => CaptureError::Empty,
                have => CaptureError::TruncatedFileHeader {
                    have,
                    need: FILE_HEADER_BYTES,
                },
            });
        };
        let (order, kind) = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
            (little @ (MAGIC_MICROSECONDS | MAGIC_NANOSECONDS | MAGIC_MODIFIED), _) => {
                (ByteOrder::Little, little)
            }
            (_, big @ (MAGIC_MICROSECONDS | MAGIC_NANOSECONDS | MAGIC_MODIFIED)) => {
                (ByteOrder::Big, big)
            }
            _ => {
                let name = format_name(*magic);
                return Err(CaptureError::UnknownFormat {
                    magic: *magic,
                    name,
                });
            }
        };
        if bytes.len() < FILE_HEADER_BYTES {
            return Err(CaptureError::TruncatedFileHeader {
                have: bytes.len(),
                need: FILE_HEADER_BYTES,
            });
        }
        let extra = usize::from(kind == MAGIC_MODIFIED) * MODIFIED_BYTES;
        let mut reader = Self {
            bytes,
            offset: FILE_HEADER_BYTES,
            packet: 0,
            order,
            ns_per_fraction: if kind == MAGIC_NANOSECONDS { 1 } else { 1_000 },
            record_header_bytes: RECORD_HEADER_BYTES + extra,
            lengths: Lengths::CapturedFirst,
            source: Source::of(LINKTYPE_ETHERNET),
        };
        reader.lengths = match (reader.u16_at(4), reader.u16_at(6)) {
            (2, 0..=2) | (543, _) => Lengths::WireFirst,
            (2, 3) => Lengths::LesserIsCaptured,
            _ => Lengths::CapturedFirst,
        };
        let field = reader.u32_at(20);
        // The lower 16 bits are the link type; the uppermost 4 count a check sequence in units of 16 bits.
        reader.source.linktype = field & 0xffff;
        if field & FCS_ANNOUNCED != 0 {
            reader.source.fcs_bytes = u8::try_from(field >> FCS_SHIFT).unwrap_or(0) * 2;
        }
        Ok(reader)
    }

    /// Takes the fractions of a second for nanoseconds, whatever the header says.
    pub(crate) fn read_nanoseconds(&mut self) {
        self.ns_per_fraction = 1;
    }

    /// The next record, `None` at the end of the file.
    ///
    /// # Errors
    /// If the file ends inside a record or a length is absurd; the reader then stays where it is.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, CaptureError> {
        let left = self.bytes.len() - self.offset;
        let packet = self.packet + 1;
        if left == 0 {
            return Ok(None);
        }
        if left < self.record_header_bytes {
            return Err(CaptureError::TruncatedRecordHeader {
                packet,
                offset: self.offset,
                have: left,
                need: self.record_header_bytes,
            });
        }
        let (first, second) = (self.u32_at(self.offset + 8), self.u32_at(self.offset + 12));
        let (captured, original_bytes) = match self.lengths {
            Lengths::WireFirst => (second, first),
            Lengths::LesserIsCaptured if first > second => (second, first),
            _ => (first, second),
        };
        if let Some(what) = self.no_record(captured) {
            return Err(CaptureError::Corrupt {
                packet,
                offset: self.offset,
                what,
            });
        }
        let begin = self.offset + self.record_header_bytes;
        let Some(frame) = usize::try_from(captured)
            .ok()
            .and_then(|need| self.bytes[begin..].get(..need))
        else {
            return Err(CaptureError::TruncatedRecord {
                packet,
                offset: begin,
                have: left - self.record_header_bytes,
                need: captured as usize,
            });
        };
        let seconds = u64::from(self.u32_at(self.offset));
        let fraction = u64::from(self.u32_at(self.offset + 4));
        let record = Record {
            timestamp_ns: seconds * 1_000_000_000 + fraction * self.ns_per_fraction,
            original_bytes,
            frame,
            offset: begin,
            source: Source {
                odd_fraction: fraction * self.ns_per_fraction >= 1_000_000_000,
                ..self.source
            },
        };
        self.packet = packet;
        self.offset = begin + frame.len();
        Ok(Some(record))
    }

    /// Reason why no record begins here.
    fn no_record(&self, captured: u32) -> Option<String> {
        let (here, rest) = self.bytes[self.offset..].split_at(self.record_header_bytes);
        // The header of a file, read as that of a record, has the time zone for a length.
        if here[..4] == self.bytes[..4] && (captured == 0 || captured > MAX_CAPTURED_BYTES) {
            return Some("another capture file begins here; mergecap joins files".into());
        }
        if captured > MAX_CAPTURED_BYTES {
            return Some(format!(
                "a captured length of {captured} bytes (at most {MAX_CAPTURED_BYTES})"
            ));
        }
        // A writer that was killed leaves the room that it had taken ahead.
        let zeros = here.iter().chain(rest).all(|byte| *byte == 0);
        zeros.then(|| {
            let length = here.len() + rest.len();
            format!("nothing but zeros follow, {length} bytes")
        })
    }

    /// Callers have checked that the bytes are there.
    fn u16_at(&self, offset: usize) -> u16 {
        let field = [self.bytes[offset], self.bytes[offset + 1]];
        match self.order {
            ByteOrder::Little => u16::from_le_bytes(field),
            ByteOrder::Big => u16::from_be_bytes(field),
        }
    }

    /// The same for four bytes.
    fn u32_at(&self, offset: usize) -> u32 {
        let mut field = [0; 4];
        field.copy_from_slice(&self.bytes[offset..offset + 4]);
        match self.order {
            ByteOrder::Little => u32::from_le_bytes(field),
            ByteOrder::Big => u32::from_be_bytes(field),
        }
    }
}

/// Formats that are recognised, so that the error can name them.
fn format_name(magic: [u8; 4]) -> Option<&'static str> {
    match magic {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => Some("zstd"),
        [0xfd, b'7', b'z', b'X'] => Some("xz"),
        [b'B', b'Z', b'h', _] => Some("bzip2"),
        [b'P', b'K', ..] => Some("zip"),
        [0x1c, 0x00, 0x01, 0xac] | [0xac, 0x01, 0x00, 0x1c] => Some("Ixia lcap"),
        [0x02, 0x21, 0x4c, 0x18] => Some("legacy lz4"),
        _ => None,
    }
}

/// The bytes of a little-endian nanosecond pcap file header for Ethernet frames.
#[must_use]
pub fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
    header[4..6].copy_from_slice(&2u16.to_le_bytes());
    header[6..8].copy_from_slice(&4u16.to_le_bytes());
    header[16..20].copy_from_slice(&MAX_CAPTURED_BYTES.to_le_bytes());
    header[20..].copy_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
    header
}

/// The same for frames of this source's link, with its check sequence announced.
#[must_use]
pub fn file_header_of(source: Source) -> [u8; FILE_HEADER_BYTES] {
    let mut header = file_header();
    let mut field = source.linktype & 0xffff;
    if source.fcs_bytes > 0 {
        field |= FCS_ANNOUNCED | u32::from(source.fcs_bytes / 2) << FCS_SHIFT;
    }
    header[20..].copy_from_slice(&field.to_le_bytes());
    header
}

/// Greatest time that the 32 bits of seconds in a pcap file hold.
pub const LAST_NS: u64 = (u32::MAX as u64 + 1) * 1_000_000_000 - 1;

/// The bytes of a record header to stand after [`file_header`]; times past the year 2106 wrap, as the format has 32 bits of seconds.
#[must_use]
pub fn record_header(timestamp_ns: u64, captured: u32, original: u32) -> [u8; RECORD_HEADER_BYTES] {
    let seconds = (timestamp_ns / 1_000_000_000) & u64::from(u32::MAX);
    let fraction = timestamp_ns % 1_000_000_000;
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&seconds.to_le_bytes()[..4]);
    header[4..8].copy_from_slice(&fraction.to_le_bytes()[..4]);
    header[8..12].copy_from_slice(&captured.to_le_bytes());
    header[12..].copy_from_slice(&original.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
    use super::*;
    use crate::capture::Reader;
    use proptest::prelude::*;

    fn file(big: bool, nano: bool, frames: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let word = |value: u32| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let mut bytes = Vec::new();
        bytes.extend(word(if nano {
            MAGIC_NANOSECONDS
        } else {
            MAGIC_MICROSECONDS
        }));
        bytes.extend([0; 16]); // version 0.0: as 2.4
        bytes.extend(word(LINKTYPE_ETHERNET));
        for (seconds, fraction, frame) in frames {
            for value in [
                *seconds,
                *fraction,
                frame.len() as u32,
                frame.len() as u32 + 4,
            ] {
                bytes.extend(word(value));
            }
            bytes.extend(*frame);
        }
        bytes
    }

    #[test]
    fn both_byte_orders_and_both_clocks_read_alike() {
        for (big, nano, fraction) in [
            (false, false, 7),
            (true, false, 7),
            (false, true, 7_000),
            (true, true, 7_000),
        ] {
            let bytes = file(big, nano, &[(5, fraction, b"first"), (6, 0, b"")]);
            let records: Vec<_> = Reader::new(&bytes, false)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            assert_eq!(
                records,
                [
                    Record {
                        timestamp_ns: 5_000_007_000,
                        original_bytes: 9,
                        frame: b"first",
                        offset: 40,
                        source: Source::of(LINKTYPE_ETHERNET),
                    },
                    Record {
                        timestamp_ns: 6_000_000_000,
                        original_bytes: 4,
                        frame: b"",
                        offset: 61,
                        source: Source::of(LINKTYPE_ETHERNET),
                    },
                ],
                "big {big} nano {nano}"
            );
        }
    }

    #[test]
    fn zeros_and_a_second_file_behind_the_last_packet_are_no_packets() {
        for big in [false, true] {
            let whole = file(big, false, &[(5, 0, b"first"), (6, 0, b"second")]);
            for (behind, said) in [
                (vec![0; 16], "nothing but zeros follow, 16 bytes"),
                (vec![0; 4_096], "nothing but zeros follow, 4096 bytes"),
                (
                    whole.clone(),
                    "another capture file begins here; mergecap joins files",
                ),
            ] {
                let bytes = [whole.clone(), behind].concat();
                let found: Vec<_> = Reader::new(&bytes, false).unwrap().collect();
                assert_eq!(found.len(), 3);
                assert!(found[..2].iter().all(Result::is_ok));
                let error = found[2].as_ref().unwrap_err();
                assert!(error.to_string().ends_with(said), "{error}");
                assert!(error.is_tolerable());
            }
        }
        // A packet of no bytes at no time, and one behind it.
        let empty = [0; RECORD_HEADER_BYTES];
        let bytes = [file(false, false, &[]), empty.to_vec()].concat();
        let bytes = [
            bytes,
            file(false, false, &[(6, 0, b"second")])[24..].to_vec(),
        ]
        .concat();
        assert!(Reader::new(&bytes, false).unwrap().all(|one| one.is_ok()));
    }

    #[test]
    fn errors_say_which_packet_and_which_byte() {
        let whole = file(false, false, &[(0, 0, b"first"), (0, 0, b"second")]);
        let last = |bytes: &[u8]| {
            Reader::new(bytes, false)
                .unwrap()
                .last()
                .unwrap()
                .unwrap_err()
        };
        assert_eq!(
            last(&whole[..whole.len() - 2]),
            CaptureError::TruncatedRecord {
                packet: 2,
                offset: 61,
                have: 4,
                need: 6
            }
        );
        assert_eq!(
            last(&whole[..50]),
            CaptureError::TruncatedRecordHeader {
                packet: 2,
                offset: 45,
                have: 5,
                need: 16
            }
        );
        let mut absurd = whole.clone();
        absurd[45 + 8..45 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(
            last(&absurd),
            CaptureError::Corrupt {
                packet: 2,
                offset: 45,
                ..
            }
        ));
    }

    #[test]
    fn what_is_whole_is_used_where_that_is_tolerated() {
        let whole = file(false, false, &[(0, 0, b"first"), (0, 0, b"second")]);
        let mut reader = Reader::new(&whole[..whole.len() - 1], true).unwrap();
        assert_eq!(
            reader
                .by_ref()
                .map(|record| record.unwrap().frame)
                .collect::<Vec<_>>(),
            [b"first"]
        );
        assert!(matches!(
            reader.cut(),
            Some(CaptureError::TruncatedRecord { packet: 2, .. })
        ));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert_eq!(Reader::new(b"", false).unwrap_err(), CaptureError::Empty);
        assert_eq!(
            Reader::new(&[0xd4, 0xc3], false).unwrap_err(),
            CaptureError::TruncatedFileHeader { have: 2, need: 24 }
        );
        let mut cooked = file(false, false, &[(5, 0, b"first")]);
        cooked[20] = 113;
        let first = Reader::new(&cooked, true).unwrap().next().unwrap();
        assert_eq!(
            first.unwrap_err().to_string(),
            "link type 113 (Linux cooked), not Ethernet (1): packet 1 of interface 0 is the first"
        );
        for (bytes, words) in [
            (&[0x1f, 0x8b, 8, 0, 0], "the bytes of gzip; pcap, pcapng"),
            (b"# Two", "the text \"# Tw\"; pcap, pcapng"),
            (
                &[0, b'T', b'w', b'o', 0],
                "the bytes [00, 54, 77, 6f]; pcap, pcapng",
            ),
        ] {
            let said = Reader::new(bytes, false).unwrap_err().to_string();
            let begin = "not a capture file that can be read: it begins with";
            assert!(said.starts_with(&format!("{begin} {words}")), "{said}");
        }
    }

    #[test]
    fn variants_are_read_as_libpcap_reads_them() {
        let read = |bytes: &[u8]| {
            let record = Reader::new(bytes, false).unwrap().next().unwrap().unwrap();
            (record.frame.len(), record.original_bytes, record.source)
        };
        let plain = file(false, false, &[(5, 7, b"first")]);
        let source = Source::of(LINKTYPE_ETHERNET);
        assert_eq!(read(&plain), (5, 9, source));

        let mut modified = plain.clone();
        modified[..4].copy_from_slice(&MAGIC_MODIFIED.to_le_bytes());
        modified.splice(40..40, [2, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(read(&modified), (5, 9, source));

        for (minor, wire_first) in [(2, true), (3, true), (3, false), (4, false)] {
            let mut old = plain.clone();
            old[4..8].copy_from_slice(&[2, 0, minor, 0]);
            if wire_first {
                let (captured, wire) = (old[32..36].to_vec(), old[36..40].to_vec());
                old[32..40].copy_from_slice(&[wire, captured].concat());
            }
            assert_eq!(read(&old), (5, 9, source), "2.{minor}");
        }

        let mut checked = plain.clone();
        checked[20..24].copy_from_slice(&(1_u32 | FCS_ANNOUNCED | 2 << FCS_SHIFT).to_le_bytes());
        assert_eq!(read(&checked).2.fcs_bytes, 4);

        let odd = file(false, false, &[(5, 1_000_000, b"first")]);
        assert!(read(&odd).2.odd_fraction);
    }

    #[test]
    fn a_written_file_reads_back() {
        let mut bytes = file_header().to_vec();
        bytes.extend(record_header(1_700_000_000_123_456_789, 3, 60));
        bytes.extend(b"abc");
        let record = Reader::new(&bytes, false).unwrap().next().unwrap().unwrap();
        assert_eq!(
            record,
            Record {
                timestamp_ns: 1_700_000_000_123_456_789,
                original_bytes: 60,
                frame: b"abc",
                offset: 40,
                source: Source::of(LINKTYPE_ETHERNET),
            }
        );
    }

    proptest! {
        /// Any bytes after a right magic give records that lie in the file, or one error, and end.
        #[test]
        fn no_input_panics(big: bool, nano: bool, tail in proptest::collection::vec(any::<u8>(), 0..400),
                           small in proptest::collection::vec(0u8..3, 0..400), tolerant: bool) {
            for body in [&tail, &small] {
                let mut bytes = file(big, nano, &[]);
                bytes.extend(body);
                let mut read = 0;
                for record in Reader::new(&bytes, tolerant).unwrap() {
                    read += 1;
                    prop_assert!(read <= bytes.len() / RECORD_HEADER_BYTES + 1);
                    if let Ok(record) = record {
                        prop_assert_eq!(record.frame, &bytes[record.offset..][..record.frame.len()]);
                    } else {
                        prop_assert!(!tolerant);
                    }
                }
            }
        }

        #[test]
        fn no_header_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Reader::new(&bytes, true).map(Iterator::count);
        }
    }
}
