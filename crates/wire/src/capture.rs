//! Capture files as a stream of frames, whatever the file format, over bytes already in memory.

use crate::erf::{self, ErfReader};
use crate::pcap::PcapReader;
use crate::pcapng::{self, PcapngReader};
use crate::record::{CaptureError, LINKTYPE_ETHERNET, Record};
use crate::snoop::{self, SnoopReader};

/// The frames of a capture file in file order: Ethernet alone, or of any link type.
///
/// An error ends the iteration. With `tolerate_truncated`, a file that ends inside a record (or is corrupt there) ends the iteration as if the
/// file were over; [`Reader::cut`] then says where.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    format: Format<'a>,
    any_linktype: bool,
    packet: u64,
    tolerate_truncated: bool,
    cut: Option<CaptureError>,
    done: bool,
}

#[derive(Debug, Clone)]
enum Format<'a> {
    Pcap(PcapReader<'a>),
    Pcapng(PcapngReader<'a>),
    Snoop(SnoopReader<'a>),
    Erf(ErfReader<'a>),
}

/// Whether these are the first bytes of a capture file that can be read.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(&pcapng::MAGIC)
        || bytes.starts_with(&snoop::MAGIC)
        || PcapReader::new(bytes).is_ok()
        || erf::begins(bytes)
}

impl<'a> Reader<'a> {
    /// Reads the file header; the first frame that is not Ethernet is an error.
    ///
    /// # Errors
    /// If the file is empty or of an unknown format.
    pub fn new(bytes: &'a [u8], tolerate_truncated: bool) -> Result<Self, CaptureError> {
        Self::open(bytes, tolerate_truncated, false)
    }

    /// Reads the file header; frames of any link type follow.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn of_any_link(bytes: &'a [u8], tolerate_truncated: bool) -> Result<Self, CaptureError> {
        Self::open(bytes, tolerate_truncated, true)
    }

    fn open(
        bytes: &'a [u8],
        tolerate_truncated: bool,
        any_linktype: bool,
    ) -> Result<Self, CaptureError> {
        let format = if bytes.starts_with(&pcapng::MAGIC) {
            Format::Pcapng(PcapngReader::new(bytes)?)
        } else if bytes.starts_with(&snoop::MAGIC) {
            Format::Snoop(SnoopReader::new(bytes)?)
        } else {
            match PcapReader::new(bytes) {
                Err(CaptureError::UnknownFormat { .. }) if erf::begins(bytes) => {
                    Format::Erf(ErfReader::new(bytes))
                }
                reader => Format::Pcap(reader?),
            }
        };
        Ok(Self {
            format,
            any_linktype,
            packet: 0,
            tolerate_truncated,
            cut: None,
            done: false,
        })
    }

    /// Takes the fractions of a second in a pcap file for nanoseconds, whatever its header says.
    #[must_use]
    pub fn in_nanoseconds(mut self) -> Self {
        if let Format::Pcap(reader) = &mut self.format {
            reader.read_nanoseconds();
        }
        self
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
            Format::Snoop(reader) => reader.next_record(),
            Format::Erf(reader) => reader.next_record(),
        };
        self.packet += 1;
        match next {
            Ok(Some(Record { source, .. }))
                if !self.any_linktype && source.linktype != LINKTYPE_ETHERNET =>
            {
                self.done = true;
                Some(Err(CaptureError::LinkType {
                    linktype: source.linktype,
                    interface: source.interface,
                    packet: self.packet,
                }))
            }
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
