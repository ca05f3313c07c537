//! Packed capture files: gzip, zstd, xz and lz4, known by their first bytes.

use std::cell::Cell;
use std::io::{self, Read};

use crate::bytes::array_at;
use crate::capture;

/// So much may come out of any packed file.
const LEAST_BOUND_BYTES: usize = 1 << 30;
/// Of a longer file, so many times its length.
const MOST_RATIO: usize = 40;
/// What is unpacked before it is asked whether it is a capture at all.
const FIRST_BYTES: usize = 4_096;
/// So much is unpacked between two looks at how far it has come.
const STEP_BYTES: usize = 1 << 20;
/// A decoder that fails gives none of what it was last asked for: a cut file is read in small steps.
const SMALL_STEP_BYTES: usize = 4_096;
/// What a decoder may keep of what it has unpacked: `zstd -d` takes no more either, and `xz -9` half of it.
const MOST_WINDOW_BYTES: u64 = 128 << 20;

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const LZ4: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// The most that a packed file of this length may hold.
#[must_use]
pub fn bound(packed_bytes: usize) -> usize {
    LEAST_BOUND_BYTES.max(packed_bytes.saturating_mul(MOST_RATIO))
}

/// Where unpacking ends.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// So many bytes may come out.
    pub bytes: usize,
    /// What they are, and what allows more, for the error.
    pub why: &'static str,
}

/// Why a packed file cannot be unpacked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackedError {
    /// It takes a decoder with more memory.
    #[error("the {kind} file wants to look back further than {} MiB: pack it anew without that, or unpack it", MOST_WINDOW_BYTES >> 20)]
    Window {
        /// Its format.
        kind: &'static str,
    },
    /// It ends early, or is damaged.
    #[error(
        "the {kind} file is cut or corrupt after {unpacked_bytes} unpacked bytes: fetch or pack it anew"
    )]
    Cut {
        /// Its format.
        kind: &'static str,
        /// What came out before that place.
        unpacked_bytes: usize,
    },
    /// It holds more than it may.
    #[error("the {kind} file holds more than {} bytes, {}", .most.bytes, .most.why)]
    Large {
        /// Its format.
        kind: &'static str,
        /// The bound.
        most: Most,
    },
}

impl PartialEq for Most {
    fn eq(&self, other: &Self) -> bool {
        (self.bytes, self.why) == (other.bytes, other.why)
    }
}

impl Eq for Most {}

/// What a packed file holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The bytes; the first of them if they are no capture.
    pub bytes: Vec<u8>,
    /// Where it ended early, if that was tolerated.
    pub cut: Option<PackedError>,
}

/// The bytes inside of a packed file; `None` if it is not packed. With `tolerate_truncated`, a file that is cut or corrupt is over at that
/// place. `at` is called now and then with the share of the file that has been read.
///
/// # Errors
/// If it is cut or corrupt, or holds more.
pub fn unpacked(
    file: &[u8],
    most: Most,
    tolerate_truncated: bool,
    at: &mut dyn FnMut(usize),
) -> Result<Option<Unpacked>, PackedError> {
    let taken = Cell::new(0);
    let mut output = Output {
        bytes: Vec::new(),
        bound: most.bytes,
        step: if tolerate_truncated {
            SMALL_STEP_BYTES
        } else {
            STEP_BYTES
        },
        taken: &taken,
        at,
    };
    let from = Counted {
        rest: file,
        taken: &taken,
    };
    let (kind, done) = match file {
        [0x1f, 0x8b, ..] => ("gzip", output.read(flate2::read::MultiGzDecoder::new(from))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            ("zstd", unpack_zstd(file, tolerate_truncated, &mut output))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let kib = u32::try_from(MOST_WINDOW_BYTES >> 10).unwrap_or(u32::MAX);
            let decoder = lzma_rust2::XzReader::new_mem_limit(from, true, kib);
            ("xz", output.read(decoder))
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => ("lz4", unpack_lz4(file, &mut output)),
        _ => return Ok(None),
    };
    let bytes = output.bytes;
    // A decoder's own words ("failed to fill whole buffer") tell a user nothing.
    let cut = match done {
        Ok(()) => None,
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            return Err(PackedError::Window { kind });
        }
        Err(_) => Some(PackedError::Cut {
            kind,
            unpacked_bytes: bytes.len(),
        }),
    };
    if bytes.len() > most.bytes {
        return Err(PackedError::Large { kind, most });
    }
    match cut {
        Some(error) if !tolerate_truncated || bytes.is_empty() => Err(error),
        cut => Ok(Some(Unpacked { bytes, cut })),
    }
}

/// A packed file, and how much of it a decoder has read.
struct Counted<'f, 't> {
    rest: &'f [u8],
    taken: &'t Cell<usize>,
}

impl Read for Counted<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.rest.read(buffer)?;
        self.taken.set(self.taken.get() + count);
        Ok(count)
    }
}

/// What comes out of a decoder.
struct Output<'a> {
    bytes: Vec<u8>,
    bound: usize,
    step: usize,
    taken: &'a Cell<usize>,
    at: &'a mut dyn FnMut(usize),
}

impl Output<'_> {
    /// At most one byte more than the bound, which then says that it was passed. A bomb without a capture in it ends at once.
    fn read(&mut self, mut from: impl Read) -> io::Result<()> {
        while !self.is_over() {
            let step = if self.bytes.len() < FIRST_BYTES {
                FIRST_BYTES
            } else {
                self.step
            };
            let room = step.min(self.bound + 1 - self.bytes.len());
            if (&mut from).take(room as u64).read_to_end(&mut self.bytes)? == 0 {
                break;
            }
            (self.at)(self.taken.get());
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let is_no_capture = self.bytes.len() >= FIRST_BYTES && !capture::begins(&self.bytes);
        is_no_capture || self.bytes.len() > self.bound
    }
}

/// A zstd file is a sequence of frames; the decoder reads one.
fn unpack_zstd(mut file: &[u8], tolerate_truncated: bool, output: &mut Output) -> io::Result<()> {
    while !file.is_empty() && !output.is_over() {
        if zstd_window(file) > MOST_WINDOW_BYTES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let decoder = ruzstd::decoding::StreamingDecoder::new(Counted {
            rest: file,
            taken: output.taken,
        });
        let mut decoder = decoder.map_err(io::Error::other)?;
        let before = output.bytes.len();
        match output.read(&mut decoder) {
            Ok(()) => file = decoder.into_inner().rest,
            Err(error) if tolerate_truncated => {
                // It keeps what later blocks may repeat until there are none: the whole blocks, and an empty one for the last.
                output.bytes.truncate(before);
                let closed = file[..zstd_blocks(file)].chain(&[1, 0, 0, 0, 0, 0, 0][..]);
                let decoder = ruzstd::decoding::StreamingDecoder::new(closed);
                output.read(decoder.map_err(io::Error::other)?)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The window that a frame asks for (RFC 8878, 3.1.1.1); 0 if it is the content, which has a bound of its own.
fn zstd_window(frame: &[u8]) -> u64 {
    match frame {
        [_, _, _, _, descriptor, window, ..] if descriptor & 0x20 == 0 => {
            let base = 1_u64 << (10 + (window >> 3));
            base + base / 8 * u64::from(window & 7)
        }
        _ => 0,
    }
}

/// Where the last whole block of a cut frame ends (RFC 8878, 3.1.1).
fn zstd_blocks(frame: &[u8]) -> usize {
    let descriptor = frame.get(4).copied().unwrap_or(0);
    let is_single = descriptor & 0x20 != 0;
    let content = match descriptor >> 6 {
        0 => usize::from(is_single),
        exponent => 1 << exponent,
    };
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let mut end = ZSTD.len() + 1 + usize::from(!is_single) + dictionary + content;
    while let Some([low, middle, high]) = frame.get(end..).and_then(<[u8]>::first_chunk::<3>) {
        let header = usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high) << 16;
        // A run of one byte is that byte.
        let bytes = if header >> 1 & 3 == 1 { 1 } else { header >> 3 };
        if end + 3 + bytes > frame.len() {
            break;
        }
        end += 3 + bytes;
    }
    end.min(frame.len())
}

/// An lz4 file is a sequence of frames, whose decoder takes one that is cut between two blocks for whole.
fn unpack_lz4(mut file: &[u8], output: &mut Output) -> io::Result<()> {
    while !file.is_empty() && !output.is_over() {
        let end = lz4_end(file);
        let (frame, rest) = file.split_at(end.unwrap_or(file.len()));
        output.read(lz4_flex::frame::FrameDecoder::new(Counted {
            rest: frame,
            taken: output.taken,
        }))?;
        if end.is_none() && !output.is_over() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file = rest;
    }
    Ok(())
}

/// Where the first frame ends (lz4_Frame_format.md 1.6.4); `None` if it is cut.
fn lz4_end(file: &[u8]) -> Option<usize> {
    if !file.starts_with(&LZ4) {
        return None;
    }
    let flags = *file.get(LZ4.len())?;
    let has = |bit: u8| usize::from(flags & bit != 0);
    // Flags, block size and header checksum; content size and dictionary.
    let mut end = LZ4.len() + 3 + 8 * has(0x08) + 4 * has(0x01);
    loop {
        let size = array_at(file, end).map(u32::from_le_bytes)? as usize & 0x7fff_ffff;
        end += 4;
        if size == 0 {
            break;
        }
        end += size + 4 * has(0x10);
    }
    end += 4 * has(0x04);
    (end <= file.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `printf frames | gzip`, `| zstd`, `| xz`, `| lz4`.
    const PACKED: [&[u8]; 4] = [
        &[
            0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x4b, 0x2b, 0x4a, 0xcc,
            0x4d, 0x2d, 0x06, 0x00, 0x3a, 0x89, 0x6e, 0xfe, 0x06, 0x00, 0x00, 0x00,
        ],
        &[
            0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x31, 0x00, 0x00, 0x66, 0x72, 0x61, 0x6d, 0x65,
            0x73, 0x85, 0x7c, 0x96, 0x35,
        ],
        &[
            0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00,
            0x21, 0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x05, 0x66,
            0x72, 0x61, 0x6d, 0x65, 0x73, 0x00, 0x00, 0x00, 0x66, 0x52, 0xc5, 0x36, 0x43, 0xf0,
            0xf8, 0x11, 0x00, 0x01, 0x1e, 0x06, 0xc1, 0x2f, 0xa4, 0x1d, 0x1f, 0xb6, 0xf3, 0x7d,
            0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
        ],
        &[
            0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7, 0x06, 0x00, 0x00, 0x80, 0x66, 0x72, 0x61,
            0x6d, 0x65, 0x73, 0x00, 0x00, 0x00, 0x00, 0x16, 0x70, 0x87, 0xf2,
        ],
    ];

    const MOST: Most = Most {
        bytes: 1 << 26,
        why: "the bound",
    };

    fn unpacked(file: &[u8], most: Most) -> Result<Option<Vec<u8>>, PackedError> {
        let found = super::unpacked(file, most, false, &mut |_| ())?;
        assert!(found.as_ref().is_none_or(|found| found.cut.is_none()));
        Ok(found.map(|found| found.bytes))
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        for packed in PACKED {
            assert_eq!(unpacked(packed, MOST).unwrap().unwrap(), b"frames");
            assert_eq!(
                unpacked(&[packed, packed].concat(), MOST).unwrap().unwrap(),
                b"framesframes"
            );
        }
        assert_eq!(unpacked(b"", MOST).unwrap(), None);
        assert_eq!(unpacked(&[0xd4, 0xc3, 0xb2, 0xa1], MOST).unwrap(), None);
    }

    #[test]
    fn what_is_cut_is_an_error() {
        for packed in PACKED {
            for length in 6..packed.len() {
                let error = unpacked(&packed[..length], MOST).unwrap_err().to_string();
                assert!(
                    error.contains(" file is cut or corrupt after ")
                        && error.ends_with(": fetch or pack it anew"),
                    "{length} of {packed:02x?}: {error}"
                );
            }
        }
    }

    #[test]
    fn what_swells_ends_at_the_bound() {
        for packed in PACKED {
            for (bound, holds) in [(6, true), (5, false), (1, false)] {
                let most = Most {
                    bytes: bound,
                    ..MOST
                };
                let once = unpacked(packed, most);
                assert_eq!(once.is_ok(), holds, "{bound}");
                let twice = unpacked(&[packed, packed].concat(), most);
                let words = twice.unwrap_err().to_string();
                let expected = format!(" file holds more than {bound} bytes, the bound");
                assert!(words.contains(&expected), "{words}");
            }
        }
    }

    #[test]
    fn a_long_file_may_hold_more() {
        for (packed, most) in [(0, 1 << 30), (1 << 20, 1 << 30), (1 << 28, 40 << 28)] {
            assert_eq!(bound(packed), most);
        }
        assert_eq!(bound(usize::MAX), usize::MAX);
    }

    #[test]
    fn a_frame_that_wants_too_large_a_window_is_refused() {
        for window in [0xa8, 0xff, 0x89] {
            let mut frame = PACKED[1].to_vec();
            frame[5] = window;
            let words = unpacked(&frame, MOST).unwrap_err().to_string();
            assert!(words.contains("further than 128 MiB"), "{words}");
        }
        for (window, bytes) in [(0x88, 1 << 27), (0x89, 9 << 24), (0xa8, 1 << 31)] {
            assert_eq!(zstd_window(&[0, 0, 0, 0, 0x04, window, 0]), bytes);
            assert_eq!(zstd_window(&[0, 0, 0, 0, 0x24, window, 0]), 0);
        }
        assert_eq!(zstd_window(&PACKED[1][..5]), 0);
    }

    fn packed(kind: &str, bytes: &[u8]) -> Vec<u8> {
        use std::io::Write;
        match kind {
            "gzip" => {
                let mut file =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                file.write_all(bytes).unwrap();
                file.finish().unwrap()
            }
            "zstd" => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress_to_vec(bytes, level)
            }
            "xz" => {
                let options = lzma_rust2::XzOptions::with_preset(0);
                let mut file = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
                file.write_all(bytes).unwrap();
                file.finish().unwrap()
            }
            _ => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max64KB);
                let mut file = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
                file.write_all(bytes).unwrap();
                file.finish().unwrap()
            }
        }
    }

    /// A capture header, then bytes that pack to about half.
    fn capture(length: usize) -> Vec<u8> {
        let mut word = 1_u32;
        let noise = move || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from(word >> 28).unwrap()
        };
        let header = crate::pcap::file_header();
        header
            .into_iter()
            .chain(std::iter::repeat_with(noise))
            .take(length)
            .collect()
    }

    /// Wherever it is cut, a tolerated file gives a beginning of what it holds: all but what a decoder takes at once.
    #[test]
    fn what_is_whole_of_a_cut_file_is_used_where_that_is_tolerated() {
        for (kind, length, at_once) in [
            ("gzip", 300_000, 70_000),
            ("zstd", 600_000, 140_000),
            ("xz", 600_000, 160_000),
            ("lz4", 300_000, 70_000),
            ("gzip", 700_000, 70_000),
            ("zstd", 900_000, 140_000),
            ("lz4", 700_000, 70_000),
        ] {
            let whole = capture(length);
            let file = packed(kind, &whole);
            for part in [0.3, 0.55, 0.9] {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a place"
                )]
                let at = (file.len() as f64 * part) as usize;
                assert!(matches!(
                    unpacked(&file[..at], MOST),
                    Err(PackedError::Cut { kind: said, .. }) if said == kind
                ));
                let found = super::unpacked(&file[..at], MOST, true, &mut |_| ())
                    .unwrap()
                    .unwrap();
                let unpacked_bytes = found.bytes.len();
                assert!(whole.starts_with(&found.bytes), "{kind}");
                let expected = whole.len() * at / file.len();
                assert!(
                    unpacked_bytes + at_once > expected,
                    "{kind}: {unpacked_bytes} of {expected}"
                );
                assert!(found.cut.is_some());
            }
            let found = super::unpacked(&file, MOST, true, &mut |_| ())
                .unwrap()
                .unwrap();
            assert_eq!((found.bytes, found.cut), (whole, None));
        }
    }

    #[test]
    fn how_much_of_a_file_is_read_grows_to_all_of_it() {
        for kind in ["gzip", "zstd", "lz4"] {
            let file = packed(kind, &capture(2_500_000));
            let mut seen = vec![0];
            super::unpacked(&file, MOST, false, &mut |at| seen.push(at)).unwrap();
            assert!(seen.is_sorted() && seen.len() > 3, "{kind}: {seen:?}");
            assert!(
                seen[seen.len() - 1] + 64 > file.len(),
                "{kind}: {seen:?} of {}",
                file.len()
            );
        }
    }
}
