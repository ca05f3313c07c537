//! Frames on the controller's serial port: several conversations on one line (docs/node-protocol.md, "A guest").
//!
//! `payload length: u32 LE | channel: u32 LE | kind: u8 | payload`

use std::io::{Error, ErrorKind, Read, Result, Write};

/// Longest payload either side sends.
pub const LONGEST: usize = 64 * 1024;
const HEAD: usize = 9;

/// To the guest: `o`pen, `d`ata, `e`nd of data, `k`ill, `t`ime. To the controller: `h`ello, `s`tarted, `f`ailed, `1` and `2` for
/// stdout and stderr, e`x`it, `t`ime.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub channel: u32,
    pub kind: u8,
    pub payload: Vec<u8>,
}

/// The next frame; an error at the end of the stream.
pub fn read(from: &mut impl Read) -> Result<Frame> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = word(0) as usize;
    if length > LONGEST {
        let words = format!("a frame of {length} bytes, allowed are {LONGEST}");
        return Err(Error::new(ErrorKind::InvalidData, words));
    }
    let mut payload = vec![0; length];
    from.read_exact(&mut payload)?;
    Ok(Frame {
        channel: word(4),
        kind: head[8],
        payload,
    })
}

/// In one write, so that frames of several threads do not mix.
pub fn write(to: &mut impl Write, channel: u32, kind: u8, payload: &[u8]) -> Result<()> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&channel.to_le_bytes());
    frame.push(kind);
    frame.extend_from_slice(payload);
    to.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_is_held() {
        for length in [65 * 1024_u32, 1 << 31, u32::MAX] {
            let mut line = length.to_le_bytes().to_vec();
            line.extend_from_slice(&[0; 5]);
            let refused = read(&mut line.as_slice()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut line = Vec::new();
        write(&mut line, 7, b'd', b"abc").unwrap();
        write(&mut line, 8, b'e', b"").unwrap();
        let mut rest = line.as_slice();
        let frame = |channel, kind, payload: &[u8]| Frame {
            channel,
            kind,
            payload: payload.into(),
        };
        assert_eq!(read(&mut rest).unwrap(), frame(7, b'd', b"abc"));
        assert_eq!(read(&mut rest).unwrap(), frame(8, b'e', b""));
        assert!(read(&mut rest).is_err());
    }
}
