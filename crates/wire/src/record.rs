//! One frame of a capture file, whatever its format, and why the next one cannot be read.

/// LINKTYPE_ETHERNET, the only link type that can be put on an Ethernet port.
pub const LINKTYPE_ETHERNET: u32 = 1;

/// Longest frame believed (libpcap's MAXIMUM_SNAPLEN); a longer one means that the reader lost its place.
pub const MAX_CAPTURED_BYTES: u32 = 262_144;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time of capture since the epoch.
    pub timestamp_ns: u64,
    /// Length the frame had on the wire; longer than `frame` when the capture cut it.
    pub original_bytes: u32,
    /// What was captured.
    pub frame: &'a [u8],
    /// Where `frame` begins in the file.
    pub offset: usize,
    /// Where it was captured.
    pub source: Source,
}

impl Record<'_> {
    /// Whether it was captured longer than it was on the wire.
    #[must_use]
    pub fn is_beyond_wire(&self) -> bool {
        let wire = self.original_bytes as usize;
        wire > 0 && self.frame.len() > wire
    }

    /// Whether a check sequence, which the header announces, ends its frame on an Ethernet.
    #[must_use]
    pub fn has_fcs(&self) -> bool {
        let check = u32::from(self.source.fcs_bytes);
        check > 0 && self.original_bytes > check && self.source.linktype == LINKTYPE_ETHERNET
    }
}

/// The interface of a capture file that a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Number of the interface in its section of a pcapng file; 0 in a file that has one for all.
    pub interface: u32,
    /// LINKTYPE_ value: what the frame begins with.
    pub linktype: u32,
    /// Length of the frame check sequence at the end of each frame; 0 where none is announced.
    pub fcs_bytes: u8,
    /// True if the fraction of the second is a second or more: nanoseconds under the magic of microseconds, mostly.
    pub odd_fraction: bool,
}

impl Source {
    /// An interface of frames without a check sequence.
    #[must_use]
    pub const fn of(linktype: u32) -> Self {
        Self {
            interface: 0,
            linktype,
            fcs_bytes: 0,
            odd_fraction: false,
        }
    }
}

/// Why a capture file cannot be read; packets count from 1, as Wireshark shows them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The file has no byte.
    #[error("the file is empty")]
    Empty,
    /// The file ends inside its own header.
    #[error("the file header is cut: {have} of {need} bytes")]
    TruncatedFileHeader {
        /// Bytes the file has.
        have: usize,
        /// Bytes the header takes.
        need: usize,
    },
    /// The first four bytes are of no format that is read.
    #[error(
        "not a capture file that can be read: it begins with {}; pcap, pcapng, snoop and ERF of Ethernet are read, each also packed with gzip, zstd, xz or lz4 (editcap converts others)",
        beginning(*.magic, *.name)
    )]
    UnknownFormat {
        /// The first four bytes, as they stand.
        magic: [u8; 4],
        /// The format, if it is known but not read.
        name: Option<&'static str>,
    },
    /// A frame is not Ethernet.
    #[error("link type {linktype} ({}), not Ethernet (1): packet {packet} of interface {interface} is the first", linktype_name(*.linktype))]
    LinkType {
        /// LINKTYPE_ value of its interface.
        linktype: u32,
        /// Number of that interface in its section, from 0.
        interface: u32,
        /// Number of the first such packet, from 1.
        packet: u64,
    },
    /// The file ends inside a record header.
    #[error(
        "cut at packet {packet}, byte {offset}: {have} of {need} bytes of its record header are there"
    )]
    TruncatedRecordHeader {
        /// Number of the packet, from 1.
        packet: u64,
        /// Offset of the record header.
        offset: usize,
        /// Bytes left in the file.
        have: usize,
        /// Bytes the header takes.
        need: usize,
    },
    /// The file ends inside a frame.
    #[error("cut at packet {packet}, byte {offset}: {have} of {need} bytes of the frame are there")]
    TruncatedRecord {
        /// Number of the packet, from 1.
        packet: u64,
        /// Offset of the frame.
        offset: usize,
        /// Bytes left in the file.
        have: usize,
        /// Bytes the record says it has.
        need: usize,
    },
    /// A field has a value no capture has.
    #[error("corrupt at packet {packet}, byte {offset}: {what}")]
    Corrupt {
        /// Number of the packet, from 1.
        packet: u64,
        /// Offset of the record or block.
        offset: usize,
        /// The field and its value.
        what: String,
    },
}

impl CaptureError {
    /// True if everything before this place is whole, so that `tolerate_truncated` may stop here.
    #[must_use]
    pub fn is_tolerable(&self) -> bool {
        matches!(
            self,
            Self::TruncatedRecordHeader { .. }
                | Self::TruncatedRecord { .. }
                | Self::Corrupt { .. }
        )
    }
}

fn beginning(magic: [u8; 4], name: Option<&'static str>) -> String {
    if let Some(name) = name {
        return format!("the bytes of {name}");
    }
    if magic.is_ascii()
        && magic
            .iter()
            .all(|byte| *byte >= b' ' || byte.is_ascii_whitespace())
    {
        return format!("the text {:?}", String::from_utf8_lossy(&magic));
    }
    format!("the bytes {magic:02x?}")
}

/// Name of the link types most often met beside Ethernet (tcpdump.org/linktypes.html).
#[must_use]
pub fn linktype_name(linktype: u32) -> &'static str {
    match linktype {
        0 => "BSD loopback",
        1 => "Ethernet",
        6 => "Token Ring",
        8 => "SLIP",
        9 | 50 | 166 | 204 => "PPP",
        10 => "FDDI",
        11 | 123 => "ATM",
        12 | 14 | 101 => "raw IP",
        19 => "classical IP over ATM",
        51 => "PPP over Ethernet",
        104 => "Cisco HDLC",
        105 => "802.11",
        107 => "frame relay",
        108 => "OpenBSD loopback",
        109 => "IPsec of BSD",
        113 => "Linux cooked",
        117 => "packet filter log",
        119 => "802.11 with Prism header",
        127 => "802.11 with radiotap",
        129..=137 | 178..=183 | 194 | 200 => "Juniper's own",
        138 => "IP over FireWire",
        143 => "DOCSIS",
        147..=162 => "of private use",
        163 => "802.11 with AVS header",
        187 | 201 => "Bluetooth HCI",
        189 | 220 => "USB",
        192 => "per-packet information",
        195 | 230 => "802.15.4",
        197 => "Endace ERF",
        226 => "Solaris ipnet",
        227 => "CAN",
        228 => "raw IPv4",
        229 => "raw IPv6",
        231 => "D-Bus",
        235 => "DVB-CI",
        239 => "netfilter log",
        240 | 241 => "netANALYZER",
        242 => "IP over InfiniBand",
        251 | 256 | 272 => "Bluetooth LE",
        252 => "exported PDUs of Wireshark",
        253 => "netlink",
        258 => "Apple's pktap",
        271 => "vsock",
        276 => "Linux cooked v2",
        281 | 282 => "Broadcom switch tag",
        284 | 285 => "Marvell switch tag",
        _ => "unknown",
    }
}
