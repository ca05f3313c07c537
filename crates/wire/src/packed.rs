//! Packed capture files: gzip, zstd and xz, known by their first bytes.

use std::io::{self, Read};

use crate::capture;

/// So much may come out of any packed file.
const LEAST_BOUND_BYTES: usize = 1 << 30;
/// Of a longer file, so many times its length.
const MOST_RATIO: usize = 40;
/// What is unpacked before it is asked whether it is a capture at all.
const FIRST_BYTES: usize = 4_096;
/// What a decoder may keep of what it has unpacked: `zstd -d` takes no more either, and `xz -9` half of it.
const MOST_WINDOW_BYTES: u64 = 128 << 20;

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

/// The bytes inside of a packed file, or the first of them if it is no capture; `None` if it is not packed.
///
/// # Errors
/// If it is cut or corrupt, or holds more.
pub fn unpacked(file: &[u8], most: Most) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let (kind, done) = match file {
        [0x1f, 0x8b, ..] => {
            let decoder = flate2::read::MultiGzDecoder::new(file);
            ("gzip", read_up_to(most.bytes, decoder, &mut bytes))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", unpack_zstd(most.bytes, file, &mut bytes)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let kib = u32::try_from(MOST_WINDOW_BYTES >> 10).unwrap_or(u32::MAX);
            let decoder = lzma_rust2::XzReader::new_mem_limit(file, true, kib);
            ("xz", read_up_to(most.bytes, decoder, &mut bytes))
        }
        _ => return Ok(None),
    };
    done.map_err(|error| {
        let words = match error.kind() {
            io::ErrorKind::OutOfMemory => format!(
                "the {kind} file wants to look back further than {} MiB: pack it anew without that, or unpack it",
                MOST_WINDOW_BYTES >> 20
            ),
            // A decoder's own words ("failed to fill whole buffer") tell a user nothing.
            _ => format!(
                "the {kind} file is cut or corrupt after {} unpacked bytes: fetch or pack it anew",
                bytes.len()
            ),
        };
        io::Error::new(error.kind(), words)
    })?;
    if bytes.len() > most.bytes {
        let (bytes, why) = (most.bytes, most.why);
        let words = format!("the {kind} file holds more than {bytes} bytes, {why}");
        return Err(io::Error::other(words));
    }
    Ok(Some(bytes))
}

/// At most one byte more than the bound, which then says that it was passed. A bomb without a capture in it ends at once.
fn read_up_to(bound: usize, mut from: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    for goal in [FIRST_BYTES.min(bound + 1), bound + 1] {
        if is_no_capture(bytes) {
            break;
        }
        let room = goal.saturating_sub(bytes.len());
        (&mut from).take(room as u64).read_to_end(bytes)?;
    }
    Ok(())
}

fn is_no_capture(bytes: &[u8]) -> bool {
    bytes.len() >= FIRST_BYTES && !capture::begins(bytes)
}

/// A zstd file is a sequence of frames; the decoder reads one.
fn unpack_zstd(bound: usize, mut file: &[u8], bytes: &mut Vec<u8>) -> io::Result<()> {
    while !file.is_empty() && bytes.len() <= bound && !is_no_capture(bytes) {
        if zstd_window(file) > MOST_WINDOW_BYTES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let decoder = ruzstd::decoding::StreamingDecoder::new(&mut file);
        read_up_to(bound, decoder.map_err(io::Error::other)?, bytes)?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `printf frames | gzip`, `| zstd`, `| xz`.
    const PACKED: [&[u8]; 3] = [
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
    ];

    const MOST: Most = Most {
        bytes: 1 << 20,
        why: "the bound",
    };

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
}
