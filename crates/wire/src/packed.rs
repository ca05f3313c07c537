//! Packed capture files: gzip, zstd and xz, known by their first bytes.

use std::io::{self, Read};

/// So much may come out of any packed file; the controller's bound (`nodrop.untrusted.packed`) is the same.
const LEAST_BOUND_BYTES: usize = 1 << 30;
/// Of a longer file, so many times its length.
const MOST_RATIO: usize = 40;

/// The bytes inside of a packed file; `None` if it is not packed.
///
/// # Errors
/// If it is cut or corrupt, or holds more than a capture does.
pub fn unpacked(file: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let bound = LEAST_BOUND_BYTES.max(file.len().saturating_mul(MOST_RATIO));
    unpacked_within(bound, file)
}

fn unpacked_within(bound: usize, file: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let (kind, done) = match file {
        [0x1f, 0x8b, ..] => {
            let decoder = flate2::read::MultiGzDecoder::new(file);
            ("gzip", read_up_to(bound, decoder, &mut bytes))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", unpack_zstd(bound, file, &mut bytes)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let decoder = lzma_rust2::XzReader::new(file, true);
            ("xz", read_up_to(bound, decoder, &mut bytes))
        }
        _ => return Ok(None),
    };
    // A decoder's own words ("failed to fill whole buffer") do not say what is wrong with which file.
    done.map_err(|e| {
        io::Error::new(
            e.kind(),
            format!(
                "the {kind} file is cut or corrupt after {} unpacked bytes: {e}",
                bytes.len()
            ),
        )
    })?;
    if bytes.len() > bound {
        return Err(io::Error::other(format!(
            "the {kind} file holds more than {bound} bytes: unpack it first"
        )));
    }
    Ok(Some(bytes))
}

/// At most one byte more than the bound, which then says that it was passed.
fn read_up_to(bound: usize, from: impl Read, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let room = (bound + 1).saturating_sub(bytes.len());
    from.take(room as u64).read_to_end(bytes)
}

/// A zstd file is a sequence of frames; the decoder reads one.
fn unpack_zstd(bound: usize, mut file: &[u8], bytes: &mut Vec<u8>) -> io::Result<usize> {
    while !file.is_empty() && bytes.len() <= bound {
        let decoder = ruzstd::decoding::StreamingDecoder::new(&mut file);
        read_up_to(bound, decoder.map_err(io::Error::other)?, bytes)?;
    }
    Ok(bytes.len())
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

    #[test]
    fn what_was_packed_is_unpacked() {
        for packed in PACKED {
            assert_eq!(unpacked(packed).unwrap().unwrap(), b"frames");
            assert_eq!(
                unpacked(&[packed, packed].concat()).unwrap().unwrap(),
                b"framesframes"
            );
        }
        assert_eq!(unpacked(b"").unwrap(), None);
        assert_eq!(unpacked(&[0xd4, 0xc3, 0xb2, 0xa1]).unwrap(), None);
    }

    #[test]
    fn what_is_cut_is_an_error() {
        for packed in PACKED {
            for length in 6..packed.len() {
                let error = unpacked(&packed[..length]).unwrap_err().to_string();
                assert!(
                    error.contains(" file is cut or corrupt after "),
                    "{length} of {packed:02x?}: {error}"
                );
            }
        }
    }

    #[test]
    fn what_swells_ends_at_the_bound() {
        for packed in PACKED {
            for (bound, holds) in [(6, true), (5, false), (1, false)] {
                let unpacked = unpacked_within(bound, packed);
                assert_eq!(unpacked.is_ok(), holds, "{bound}");
                let twice = unpacked_within(bound, &[packed, packed].concat());
                let words = twice.unwrap_err().to_string();
                assert!(words.contains(&format!(" file holds more than {bound} bytes: ")));
            }
        }
    }
}
