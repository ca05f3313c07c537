//! Snoop files, as Solaris writes them (RFC 1761).

use crate::record::{CaptureError, LINKTYPE_ETHERNET, MAX_CAPTURED_BYTES, Record, Source};

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"snoop\0\0\0";

const FILE_HEADER_BYTES: usize = 16;
const RECORD_HEADER_BYTES: usize = 24;
/// LINKTYPE_ values of the datalink types 0 to 9; what has none is refused by its own number above 16 bits.
const DATALINKS: [Option<u32>; 10] = [
    Some(LINKTYPE_ETHERNET),
    None,
    Some(6),
    None,
    Some(LINKTYPE_ETHERNET),
    None,
    None,
    None,
    Some(10),
    None,
];
const UNKNOWN: u32 = 0x1_0000;

/// Walks over the records of a snoop file.
#[derive(Debug, Clone)]
pub struct SnoopReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    packet: u64,
    source: Source,
}

impl<'a> SnoopReader<'a> {
    /// Reads the file header.
    ///
    /// # Errors
    /// If it is cut.
    pub fn new(bytes: &'a [u8]) -> Result<Self, CaptureError> {
        let mut reader = Self {
            bytes,
            offset: FILE_HEADER_BYTES,
            packet: 0,
            source: Source::of(LINKTYPE_ETHERNET),
        };
        let Some(datalink) = reader.u32_at(12) else {
            return Err(CaptureError::TruncatedFileHeader {
                have: bytes.len(),
                need: FILE_HEADER_BYTES,
            });
        };
        let known = DATALINKS.get(datalink as usize).copied().flatten();
        reader.source.linktype = known.unwrap_or_else(|| UNKNOWN.saturating_add(datalink));
        Ok(reader)
    }

    /// The next record, `None` at the end of the file.
    ///
    /// # Errors
    /// If the file ends inside a record or a length is absurd; the reader then stays where it is.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, CaptureError> {
        let (at, packet) = (self.offset, self.packet + 1);
        let left = self.bytes.len().saturating_sub(at);
        if left == 0 {
            return Ok(None);
        }
        let field = |number: usize| self.u32_at(at + 4 * number);
        let (Some(original_bytes), Some(captured), Some(record_bytes), Some(seconds), Some(micros)) =
            (field(0), field(1), field(2), field(4), field(5))
        else {
            return Err(CaptureError::TruncatedRecordHeader {
                packet,
                offset: at,
                have: left,
                need: RECORD_HEADER_BYTES,
            });
        };
        let (held, need) = (captured as usize, record_bytes as usize);
        if captured > MAX_CAPTURED_BYTES
            || need < RECORD_HEADER_BYTES + held
            || need > 2 * MAX_CAPTURED_BYTES as usize
        {
            return Err(CaptureError::Corrupt {
                packet,
                offset: at,
                what: format!("a record of {record_bytes} bytes with {captured} captured"),
            });
        }
        let begin = at + RECORD_HEADER_BYTES;
        let Some(frame) = self.bytes.get(begin..begin + held) else {
            return Err(CaptureError::TruncatedRecord {
                packet,
                offset: begin,
                have: left - RECORD_HEADER_BYTES,
                need: held,
            });
        };
        self.packet = packet;
        // The padding of the last record may be missing.
        self.offset = (at + need).min(self.bytes.len());
        Ok(Some(Record {
            timestamp_ns: u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1_000,
            original_bytes,
            frame,
            offset: begin,
            source: Source {
                odd_fraction: micros >= 1_000_000,
                ..self.source
            },
        }))
    }

    fn u32_at(&self, offset: usize) -> Option<u32> {
        crate::bytes::u32_at(self.bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
    use super::*;
    use crate::capture::Reader;
    use proptest::prelude::*;

    fn file(datalink: u32, frames: &[&[u8]]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(2_u32.to_be_bytes());
        bytes.extend(datalink.to_be_bytes());
        for (number, frame) in (0_u32..).zip(frames) {
            let padded = frame.len().next_multiple_of(4);
            let length = frame.len() as u32;
            for field in [length + 4, length, (padded + 24) as u32, 0, 7, number] {
                bytes.extend(field.to_be_bytes());
            }
            bytes.extend(*frame);
            bytes.resize(bytes.len() + padded - frame.len(), 0);
        }
        bytes
    }

    #[test]
    fn records_are_read_with_their_padding_left_out() {
        let bytes = file(4, &[b"first", b"second!!"]);
        let read: Vec<_> = Reader::new(&bytes, false)
            .unwrap()
            .map(|record| record.unwrap())
            .map(|r| (r.timestamp_ns, r.original_bytes, r.frame))
            .collect();
        assert_eq!(
            read,
            [
                (7_000_000_000, 9, &b"first"[..]),
                (7_000_001_000, 12, &b"second!!"[..])
            ]
        );
    }

    #[test]
    fn another_datalink_is_no_ethernet() {
        let bytes = file(3, &[b"first"]);
        let error = Reader::new(&bytes, false).unwrap().next().unwrap();
        assert!(matches!(
            error,
            Err(CaptureError::LinkType {
                linktype: 0x1_0003,
                packet: 1,
                ..
            })
        ));
    }

    proptest! {
        #[test]
        fn no_input_panics(tail in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..60, tolerant: bool) {
            let mut bytes = file(4, &[b"first"]);
            bytes.truncate(cut.max(8));
            bytes.extend(tail);
            if let Ok(reader) = Reader::new(&bytes, tolerant) {
                prop_assert!(reader.count() <= bytes.len());
            }
        }
    }
}
