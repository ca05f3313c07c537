//! ERF files, as Endace's cards and TRex write them: records one after the other, without a file header.

use crate::bytes::{array_at, u8_at, u16_at};
use crate::pcap::LAST_NS;
use crate::record::{CaptureError, LINKTYPE_ETHERNET, Record, Source};

/// Time, type, flags, length of the record, a counter, length on the wire.
const RECORD_HEADER_BYTES: usize = 16;
/// A record of Ethernet has two bytes more before its frame: offset and padding.
const ETHERNET_PAD_BYTES: usize = 2;
const EXTENSION_BYTES: usize = 8;
/// Set in the type, and in the first byte of an extension header that another one follows.
const MORE: u8 = 0x80;
/// Always zero.
const RESERVED_FLAGS: u8 = 0xc0;
/// TYPE_ETH, TYPE_COLOR_ETH, TYPE_DSM_COLOR_ETH, TYPE_COLOR_HASH_ETH: one layout.
const ETHERNET: [u8; 4] = [2, 11, 16, 20];
/// TYPE_META, TYPE_PAD: no packets.
const WITHOUT_PACKET: [u8; 2] = [27, 48];
/// LINKTYPE_ERF: records of other links.
const LINKTYPE_ERF: u32 = 197;
/// A frame is captured with its check sequence, and its length on the wire counts it.
const FCS_BYTES: u8 = 4;
/// Records that must make sense, for the file has no magic number.
const LOOKED_AT: usize = 3;

/// Walks over the records of an ERF file.
#[derive(Debug, Clone)]
pub struct ErfReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    packet: u64,
}

/// One record: where what it holds begins and ends, and the end of the record.
struct Place {
    kind: u8,
    begin: usize,
    end: usize,
}

/// The record at `at`; `None` if its lengths make no sense or its header is cut.
fn place(bytes: &[u8], at: usize) -> Option<Place> {
    let mut more = u8_at(bytes, at + 8)?;
    let kind = more & !MORE;
    let (record, mut begin) = (u16_at(bytes, at + 10)?, at + RECORD_HEADER_BYTES);
    u16_at(bytes, at + 14)?;
    while more & MORE != 0 {
        more = u8_at(bytes, begin)?;
        begin += EXTENSION_BYTES;
    }
    begin += usize::from(ETHERNET.contains(&kind)) * ETHERNET_PAD_BYTES;
    let end = at + usize::from(record);
    (begin <= end).then_some(Place { kind, begin, end })
}

/// Whether the first records are those of such a file, with at least one of Ethernet at its beginning.
#[must_use]
pub fn begins(bytes: &[u8]) -> bool {
    let (mut at, mut before) = (0, 0);
    for number in 0..LOOKED_AT {
        if at >= bytes.len() && number > 0 {
            return true;
        }
        let Some(found) = place(bytes, at) else {
            // Cut by an end within a later record: said when it is read.
            return number > 0 && bytes.len() - at < RECORD_HEADER_BYTES;
        };
        let seconds = array_at::<4>(bytes, at + 4).map_or(0, u32::from_le_bytes);
        let is_packet = ETHERNET.contains(&found.kind);
        let is_sound = u8_at(bytes, at + 9).is_some_and(|flags| flags & RESERVED_FLAGS == 0)
            && (is_packet || number > 0 && WITHOUT_PACKET.contains(&found.kind))
            && (!is_packet || u16_at(bytes, at + 14).is_some_and(|wire| wire > 0))
            && seconds.abs_diff(if number > 0 { before } else { seconds }) < 366 * 86_400;
        if !is_sound {
            return false;
        }
        (at, before) = (found.end, seconds);
    }
    true
}

impl<'a> ErfReader<'a> {
    /// Reads from the first record on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            offset: 0,
            packet: 0,
        }
    }

    /// The next record with a packet, `None` at the end of the file.
    ///
    /// # Errors
    /// If the file ends inside a record or a length is absurd; the reader then stays where it is.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, CaptureError> {
        loop {
            let (at, packet) = (self.offset, self.packet + 1);
            let left = self.bytes.len() - at;
            if left == 0 {
                return Ok(None);
            }
            if left < RECORD_HEADER_BYTES {
                return Err(CaptureError::TruncatedRecordHeader {
                    packet,
                    offset: at,
                    have: left,
                    need: RECORD_HEADER_BYTES,
                });
            }
            let Some(found) = place(self.bytes, at) else {
                let length = u16_at(self.bytes, at + 10).unwrap_or_default();
                return Err(CaptureError::Corrupt {
                    packet,
                    offset: at,
                    what: format!("a record of {length} bytes"),
                });
            };
            let Some(held) = self.bytes.get(found.begin..found.end) else {
                return Err(CaptureError::TruncatedRecord {
                    packet,
                    offset: found.begin,
                    have: self.bytes.len().saturating_sub(found.begin),
                    need: found.end - found.begin,
                });
            };
            self.offset = found.end;
            if WITHOUT_PACKET.contains(&found.kind) {
                continue;
            }
            self.packet = packet;
            let wire = u16_at(self.bytes, at + 14).unwrap_or_default();
            let is_ethernet = ETHERNET.contains(&found.kind);
            // Records are filled up to eight bytes.
            let frame = &held[..held.len().min(usize::from(wire))];
            return Ok(Some(Record {
                timestamp_ns: ns(array_at(self.bytes, at).unwrap_or_default()),
                original_bytes: u32::from(wire),
                frame,
                offset: found.begin,
                source: Source {
                    fcs_bytes: if is_ethernet { FCS_BYTES } else { 0 },
                    ..Source::of(if is_ethernet {
                        LINKTYPE_ETHERNET
                    } else {
                        LINKTYPE_ERF
                    })
                },
            }));
        }
    }
}

/// Seconds in the upper 32 bits, parts of 2^32 of one in the lower.
fn ns(time: [u8; 8]) -> u64 {
    let time = u64::from_le_bytes(time);
    let fraction = ((time & u64::from(u32::MAX)) * 1_000_000_000 + (1 << 31)) >> 32;
    ((time >> 32) * 1_000_000_000 + fraction).min(LAST_NS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
    use super::*;
    use crate::capture::Reader;
    use proptest::prelude::*;

    /// A record as a card writes it: filled up to eight bytes.
    fn record(kind: u8, seconds: u32, half: bool, extensions: &[u8], frame: &[u8]) -> Vec<u8> {
        let mut bytes = if half { 1_u32 << 31 } else { 0 }.to_le_bytes().to_vec();
        bytes.extend(seconds.to_le_bytes());
        bytes.extend([kind, 4]);
        let pad = usize::from(ETHERNET.contains(&(kind & !MORE))) * ETHERNET_PAD_BYTES;
        let length = RECORD_HEADER_BYTES + extensions.len() + pad + frame.len();
        let filled = length.next_multiple_of(8);
        bytes.extend((filled as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend((frame.len() as u16).to_be_bytes());
        bytes.extend(extensions);
        bytes.extend(vec![0; pad]);
        bytes.extend(frame);
        bytes.resize(filled, 0);
        bytes
    }

    #[test]
    fn records_are_read_without_their_filling_and_with_their_check_sequence_named() {
        let more = [[0x80, 0, 0, 0, 0, 0, 0, 1], [5, 0, 0, 0, 0, 0, 0, 2]].concat();
        let bytes = [
            record(2, 7, false, &[], &[1; 64]),
            record(48, 7, false, &[], &[]),
            record(2 | MORE, 7, true, &more, &[2; 71]),
            record(11, 8, false, &[], &[3; 60]),
        ]
        .concat();
        let read: Vec<_> = Reader::new(&bytes, false)
            .unwrap()
            .map(Result::unwrap)
            .map(|r| {
                (
                    r.timestamp_ns,
                    r.original_bytes,
                    r.frame.to_vec(),
                    r.has_fcs(),
                )
            })
            .collect();
        assert_eq!(
            read,
            [
                (7_000_000_000, 64, vec![1; 64], true),
                (7_500_000_000, 71, vec![2; 71], true),
                (8_000_000_000, 60, vec![3; 60], true)
            ]
        );
    }

    #[test]
    fn a_cut_frame_keeps_its_length_on_the_wire() {
        let mut cut = record(2, 7, false, &[], &[1; 78]);
        cut[14..16].copy_from_slice(&1_518_u16.to_be_bytes());
        let read = Reader::new(&cut, false).unwrap().next().unwrap().unwrap();
        assert_eq!((read.original_bytes, read.frame.len()), (1_518, 78));
    }

    #[test]
    fn a_record_of_another_link_is_refused_by_name_and_a_cut_one_by_place() {
        let first = record(2, 7, false, &[], &[1; 64]);
        let padding = record(48, 7, false, &[], &[]);
        let other = record(1, 7, false, &[], &[1; 64]);
        let bytes = [&first[..], &padding, &padding, &other].concat();
        let last = |bytes: &[u8]| {
            Reader::new(bytes, false)
                .unwrap()
                .last()
                .unwrap()
                .unwrap_err()
        };
        assert!(
            last(&bytes)
                .to_string()
                .starts_with("link type 197 (Endace ERF)")
        );
        let two = [&first[..], &first].concat();
        let begin = first.len();
        assert_eq!(
            last(&two[..two.len() - 3]),
            CaptureError::TruncatedRecord {
                packet: 2,
                offset: begin + 18,
                have: begin - 21,
                need: begin - 18
            }
        );
        assert!(matches!(
            last(&two[..begin + 5]),
            CaptureError::TruncatedRecordHeader { packet: 2, .. }
        ));
    }

    #[test]
    fn what_is_no_such_file_stays_unknown() {
        let sound = record(2, 7, false, &[], &[1; 64]);
        let changed = |at: usize, byte: u8| {
            let mut bytes = sound.clone();
            bytes[at] = byte;
            bytes
        };
        let later = record(2, 400 * 86_400, false, &[], &[1; 64]);
        for bytes in [
            changed(8, 3),
            changed(9, 0x84),
            changed(11, 9),
            [&sound[..], &later].concat(),
            vec![0; 64],
            b"a text that is long enough to be looked at".to_vec(),
        ] {
            assert!(matches!(
                Reader::new(&bytes, false).unwrap_err(),
                CaptureError::UnknownFormat { .. }
            ));
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(tail in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..90, tolerant: bool) {
            let mut bytes = record(2, 7, false, &[], &[1; 64]);
            bytes.truncate(cut);
            bytes.extend(tail);
            let mut reader = ErfReader::new(&bytes);
            while let Ok(Some(record)) = reader.next_record() {
                prop_assert!(record.offset <= bytes.len());
            }
            if let Ok(reader) = Reader::new(&bytes, tolerant) {
                prop_assert!(reader.count() <= bytes.len());
            }
        }
    }
}
