//! Capture files as a stream of Ethernet frames, whatever the file format, over bytes already in memory.

use crate::pcap::PcapReader;
use crate::pcapng::{self, PcapngReader};
use crate::record::{CaptureError, Record};

/// The frames of a capture file in file order.
///
/// An error ends the iteration. With `tolerate_truncated`, a file that ends inside a record (or is corrupt there) ends the iteration as if the
/// file were over; [`Reader::cut`] then says where.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    format: Format<'a>,
    tolerate_truncated: bool,
    cut: Option<CaptureError>,
    done: bool,
}

#[derive(Debug, Clone)]
enum Format<'a> {
    Pcap(PcapReader<'a>),
    Pcapng(PcapngReader<'a>),
}

/// Whether these are the first bytes of a capture file that can be read.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(&pcapng::MAGIC) || PcapReader::new(bytes).is_ok()
}

impl<'a> Reader<'a> {
    /// Reads the file header.
    ///
    /// # Errors
    /// If the file is empty, of an unknown format, or not of Ethernet frames.
    pub fn new(bytes: &'a [u8], tolerate_truncated: bool) -> Result<Self, CaptureError> {
        let format = if bytes.starts_with(&pcapng::MAGIC) {
            Format::Pcapng(PcapngReader::new(bytes)?)
        } else {
            Format::Pcap(PcapReader::new(bytes)?)
        };
        Ok(Self {
            format,
            tolerate_truncated,
            cut: None,
            done: false,
        })
    }

    /// Where and why the file ended early, if that was tolerated.
    #[must_use]
    pub fn cut(&self) -> Option<&CaptureError> {
        self.cut.as_ref()
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = match &mut self.format {
            Format::Pcap(reader) => reader.next_record(),
            Format::Pcapng(reader) => reader.next_record(),
        };
        match next {
            Ok(Some(record)) => Some(Ok(record)),
            Ok(None) => {
                self.done = true;
                None
            }
            Err(error) => {
                self.done = true;
                if self.tolerate_truncated && error.is_tolerable() {
                    self.cut = Some(error);
                    None
                } else {
                    Some(Err(error))
                }
            }
        }
    }
}
