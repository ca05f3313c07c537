//! Classic pcap files: both byte orders, micro- and nanosecond timestamps.

use crate::record::{CaptureError, LINKTYPE_ETHERNET, MAX_CAPTURED_BYTES, Record};

/// Length of the header of a file.
pub const FILE_HEADER_BYTES: usize = 24;
/// Length of the header of a record.
pub const RECORD_HEADER_BYTES: usize = 16;

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

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
}

impl<'a> PcapReader<'a> {
    /// Reads the file header.
    ///
    /// # Errors
    /// If the file is empty, of another format, or not of Ethernet frames.
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
        let (order, ns_per_fraction) =
            match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
                (MAGIC_MICROSECONDS, _) => (ByteOrder::Little, 1_000),
                (MAGIC_NANOSECONDS, _) => (ByteOrder::Little, 1),
                (_, MAGIC_MICROSECONDS) => (ByteOrder::Big, 1_000),
                (_, MAGIC_NANOSECONDS) => (ByteOrder::Big, 1),
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
        let reader = Self {
            bytes,
            offset: FILE_HEADER_BYTES,
            packet: 0,
            order,
            ns_per_fraction,
        };
        // The upper bits say whether frames carry a checksum (FCS); the link type is the lower 16.
        let linktype = reader.u32_at(20) & 0xffff;
        if linktype != LINKTYPE_ETHERNET {
            return Err(CaptureError::LinkType { linktype });
        }
        Ok(reader)
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
        if left < RECORD_HEADER_BYTES {
            return Err(CaptureError::TruncatedRecordHeader {
                packet,
                offset: self.offset,
                have: left,
                need: RECORD_HEADER_BYTES,
            });
        }
        let captured = self.u32_at(self.offset + 8);
        if captured > MAX_CAPTURED_BYTES {
            return Err(CaptureError::Corrupt {
                packet,
                offset: self.offset,
                what: format!(
                    "a captured length of {captured} bytes (at most {MAX_CAPTURED_BYTES})"
                ),
            });
        }
        let begin = self.offset + RECORD_HEADER_BYTES;
        let Some(frame) = usize::try_from(captured)
            .ok()
            .and_then(|need| self.bytes[begin..].get(..need))
        else {
            return Err(CaptureError::TruncatedRecord {
                packet,
                offset: begin,
                have: left - RECORD_HEADER_BYTES,
                need: captured as usize,
            });
        };
        let seconds = u64::from(self.u32_at(self.offset));
        let fraction = u64::from(self.u32_at(self.offset + 4));
        let record = Record {
            timestamp_ns: seconds * 1_000_000_000 + fraction * self.ns_per_fraction,
            original_bytes: self.u32_at(self.offset + 12),
            frame,
            offset: begin,
        };
        self.packet = packet;
        self.offset = begin + frame.len();
        Ok(Some(record))
    }

    /// Callers have checked that the four bytes are there.
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
        [b's', b'n', b'o', b'o'] => Some("snoop"),
        [0x34, 0xcd, 0xb2, 0xa1] | [0xa1, 0xb2, 0xcd, 0x34] => Some("modified pcap"),
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
        bytes.extend([0; 16]);
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
                        offset: 40
                    },
                    Record {
                        timestamp_ns: 6_000_000_000,
                        original_bytes: 4,
                        frame: b"",
                        offset: 61
                    },
                ],
                "big {big} nano {nano}"
            );
        }
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
        let mut cooked = file(false, false, &[]);
        cooked[20] = 113;
        assert_eq!(
            Reader::new(&cooked, true).unwrap_err().to_string(),
            "link type 113 (Linux cooked), not Ethernet (1)"
        );
        assert_eq!(
            Reader::new(&[0x1f, 0x8b, 8, 0, 0], false)
                .unwrap_err()
                .to_string(),
            "not a capture file that can be read: it begins with [1f, 8b, 08, 00] (gzip)"
        );
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
                offset: 40
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
