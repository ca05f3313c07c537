//! pcapng files: sections of either byte order, any timestamp resolution, several interfaces.
//!
//! Read are section header, interface description, enhanced, simple and (obsolete) packet blocks; all others are
//! stepped over (draft-ietf-opsawg-pcapng).

use crate::record::{CaptureError, MAX_CAPTURED_BYTES, Record, Source};

/// First bytes of a file: the type of a section header block reads the same in both byte orders.
pub const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const OPTION_END: u16 = 0;
const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_IF_FCSLEN: u16 = 13;
const OPTION_IF_TSOFFSET: u16 = 14;
/// Type, length and the length again.
const SHORTEST_BLOCK: usize = 12;
/// A longer block means that the reader lost its place.
const LONGEST_BLOCK: usize = 16 << 20;

/// Walks over the packets of a pcapng file.
#[derive(Debug, Clone)]
pub struct PcapngReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    packet: u64,
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// Simple packet blocks have no time of their own.
    last_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    linktype: u32,
    snaplen: u32,
    clock: Clock,
    fcs_bytes: u8,
}

impl Interface {
    fn source(self, number: u32) -> Source {
        Source {
            interface: number,
            linktype: self.linktype,
            fcs_bytes: self.fcs_bytes,
            odd_fraction: false,
        }
    }
}

/// What a timestamp of an interface means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clock {
    /// if_tsresol: 10^-n s, or 2^-n s if the highest bit is set.
    resolution: u8,
    offset_s: i64,
}

impl Clock {
    const DEFAULT: Self = Self {
        resolution: 6,
        offset_s: 0,
    };

    fn ns(self, timestamp: u64) -> u64 {
        let timestamp = u128::from(timestamp);
        let exponent = u32::from(self.resolution & 0x7f);
        let since = if self.resolution & 0x80 != 0 {
            (timestamp * 1_000_000_000)
                .checked_shr(exponent)
                .unwrap_or(0)
        } else if exponent <= 9 {
            timestamp * 10u128.pow(9 - exponent)
        } else {
            10u128
                .checked_pow(exponent - 9)
                .map_or(0, |divisor| timestamp / divisor)
        };
        let since = i128::try_from(since).unwrap_or(i128::MAX);
        let time = since.saturating_add(i128::from(self.offset_s) * 1_000_000_000);
        u64::try_from(time.max(0)).unwrap_or(u64::MAX)
    }
}

/// A whole block: the body between both lengths.
#[derive(Clone, Copy)]
struct Block<'a> {
    kind: u32,
    offset: usize,
    body: &'a [u8],
}

impl<'a> PcapngReader<'a> {
    /// Reads the first section header.
    ///
    /// # Errors
    /// If it is cut or corrupt.
    pub fn new(bytes: &'a [u8]) -> Result<Self, CaptureError> {
        const NEED: usize = 28;
        if bytes.len() < NEED {
            return Err(CaptureError::TruncatedFileHeader {
                have: bytes.len(),
                need: NEED,
            });
        }
        let mut reader = Self {
            bytes,
            offset: 0,
            packet: 0,
            big_endian: false,
            interfaces: Vec::new(),
            last_ns: 0,
        };
        reader.begin_section()?;
        Ok(reader)
    }

    /// The next packet, `None` at the end of the file.
    ///
    /// # Errors
    /// If the file ends inside a block, a block is corrupt, or a packet is of no interface that was described.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, CaptureError> {
        while self.offset < self.bytes.len() {
            if self.bytes[self.offset..].starts_with(&MAGIC) {
                self.begin_section()?;
            }
            let block = self.block()?;
            let record = match block.kind {
                INTERFACE_DESCRIPTION => {
                    let interface = self.interface(&block)?;
                    self.interfaces.push(interface);
                    None
                }
                ENHANCED_PACKET | PACKET => Some(self.timed_packet(&block)?),
                SIMPLE_PACKET => Some(self.simple_packet(&block)?),
                _ => None,
            };
            self.offset += block.body.len() + SHORTEST_BLOCK;
            if let Some(record) = record {
                self.packet += 1;
                self.last_ns = record.timestamp_ns;
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// A section header says the byte order of all that follows, its own length included.
    fn begin_section(&mut self) -> Result<(), CaptureError> {
        let magic = self
            .bytes
            .get(self.offset + 8..)
            .and_then(<[u8]>::first_chunk::<4>);
        let Some(magic) = magic else {
            return Err(self.cut(self.offset, SHORTEST_BLOCK));
        };
        self.big_endian = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
            (BYTE_ORDER_MAGIC, _) => false,
            (_, BYTE_ORDER_MAGIC) => true,
            (other, _) => {
                return Err(self.corrupt(self.offset, format!("byte-order magic {other:#010x}")));
            }
        };
        self.interfaces.clear();
        Ok(())
    }

    fn block(&self) -> Result<Block<'a>, CaptureError> {
        let offset = self.offset;
        let left = self.bytes.len() - offset;
        if left < SHORTEST_BLOCK {
            return Err(CaptureError::TruncatedRecordHeader {
                packet: self.packet + 1,
                offset,
                have: left,
                need: SHORTEST_BLOCK,
            });
        }
        let length = self.u32(self.bytes, offset + 4).unwrap_or(0) as usize;
        if length < SHORTEST_BLOCK || length % 4 != 0 || length > LONGEST_BLOCK {
            return Err(self.corrupt(offset, format!("a block of {length} bytes")));
        }
        if length > left {
            return Err(self.cut(offset, length));
        }
        let again = self.u32(self.bytes, offset + length - 4).unwrap_or(0) as usize;
        if again != length {
            let what = format!("a block of {length} bytes that ends with a length of {again}");
            return Err(self.corrupt(offset, what));
        }
        Ok(Block {
            kind: self.u32(self.bytes, offset).unwrap_or(0),
            offset,
            body: &self.bytes[offset + 8..offset + length - 4],
        })
    }

    fn interface(&self, block: &Block) -> Result<Interface, CaptureError> {
        let (Some(linktype), Some(snaplen)) = (self.u16(block.body, 0), self.u32(block.body, 4))
        else {
            return Err(self.corrupt(block.offset, "a cut interface description".into()));
        };
        let (mut clock, mut fcs_bytes) = (Clock::DEFAULT, 0);
        let mut at = 8;
        while let (Some(code), Some(length)) =
            (self.u16(block.body, at), self.u16(block.body, at + 2))
        {
            let length = usize::from(length);
            let value = block.body.get(at + 4..at + 4 + length).unwrap_or_default();
            match (code, value) {
                (OPTION_END, _) => break,
                (OPTION_IF_TSRESOL, [resolution]) => clock.resolution = *resolution,
                (OPTION_IF_FCSLEN, [bytes]) => fcs_bytes = *bytes,
                (OPTION_IF_TSOFFSET, value) => {
                    if let Some(value) = value.first_chunk::<8>() {
                        clock.offset_s = if self.big_endian {
                            i64::from_be_bytes(*value)
                        } else {
                            i64::from_le_bytes(*value)
                        };
                    }
                }
                _ => (),
            }
            at += 4 + length.next_multiple_of(4);
        }
        Ok(Interface {
            linktype: linktype.into(),
            snaplen,
            clock,
            fcs_bytes,
        })
    }

    /// Enhanced packet block; the obsolete one has an interface of 16 bits and else the same fields.
    fn timed_packet(&self, block: &Block<'a>) -> Result<Record<'a>, CaptureError> {
        let field = |number: usize| self.u32(block.body, 4 * number);
        let (Some(high), Some(low), Some(captured), Some(original_bytes)) =
            (field(1), field(2), field(3), field(4))
        else {
            return Err(self.corrupt(block.offset, "a packet block without its fields".into()));
        };
        let number = match block.kind {
            PACKET => self.u16(block.body, 0).map(u32::from),
            _ => field(0),
        };
        let number = number.unwrap_or(0);
        let interface = self.of(block, number)?;
        let timestamp = u64::from(high) << 32 | u64::from(low);
        let frame = self.frame(block, 20, captured)?;
        Ok(Record {
            timestamp_ns: interface.clock.ns(timestamp),
            original_bytes,
            frame,
            offset: block.offset + 8 + 20,
            source: interface.source(number),
        })
    }

    /// Simple packet block: of the first interface, cut at its snaplen (0 = not cut).
    fn simple_packet(&self, block: &Block<'a>) -> Result<Record<'a>, CaptureError> {
        let Some(original_bytes) = self.u32(block.body, 0) else {
            return Err(self.corrupt(block.offset, "a packet block without its fields".into()));
        };
        let interface = self.of(block, 0)?;
        let captured = match interface.snaplen {
            0 => original_bytes,
            snaplen => original_bytes.min(snaplen),
        };
        let frame = self.frame(block, 4, captured)?;
        let offset = block.offset + 8 + 4;
        Ok(Record {
            timestamp_ns: self.last_ns,
            original_bytes,
            frame,
            offset,
            source: interface.source(0),
        })
    }

    fn of(&self, block: &Block, number: u32) -> Result<Interface, CaptureError> {
        match self.interfaces.get(number as usize) {
            Some(interface) => Ok(*interface),
            None => {
                let what = format!("interface {number} of {}", self.interfaces.len());
                Err(self.corrupt(block.offset, what))
            }
        }
    }

    fn frame(
        &self,
        block: &Block<'a>,
        begin: usize,
        captured: u32,
    ) -> Result<&'a [u8], CaptureError> {
        let frame = (captured <= MAX_CAPTURED_BYTES)
            .then(|| block.body.get(begin..begin + captured as usize))
            .flatten();
        frame.ok_or_else(|| {
            let room = block.body.len().saturating_sub(begin);
            let what = format!("a captured length of {captured} bytes in a block with {room}");
            self.corrupt(block.offset, what)
        })
    }

    fn u16(&self, bytes: &[u8], offset: usize) -> Option<u16> {
        let field = bytes.get(offset..)?.first_chunk::<2>()?;
        Some(if self.big_endian {
            u16::from_be_bytes(*field)
        } else {
            u16::from_le_bytes(*field)
        })
    }

    fn u32(&self, bytes: &[u8], offset: usize) -> Option<u32> {
        let field = bytes.get(offset..)?.first_chunk::<4>()?;
        Some(if self.big_endian {
            u32::from_be_bytes(*field)
        } else {
            u32::from_le_bytes(*field)
        })
    }

    fn corrupt(&self, offset: usize, what: String) -> CaptureError {
        CaptureError::Corrupt {
            packet: self.packet + 1,
            offset,
            what,
        }
    }

    fn cut(&self, offset: usize, need: usize) -> CaptureError {
        let have = self.bytes.len() - offset;
        CaptureError::TruncatedRecord {
            packet: self.packet + 1,
            offset,
            have,
            need,
        }
    }
}

#[cfg(test)]
mod tests;
