//! A capture made into one that an Ethernet port can send, and the list of what was changed.
//!
//! The capture is read twice: first for the maximum segment sizes of its connections, the longest datagram of its wire and its order, then
//! frame by frame. Frames that need nothing pass as they are.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

use foldhash::fast::FixedState;
use nodrop_wire::ethernet::{NoEthernet, lifted};
use nodrop_wire::flow::FlowKey;
use nodrop_wire::pcap::{file_header, record_header};
use nodrop_wire::record::{CaptureError, Record, linktype_name};
use nodrop_wire::segment::{Tcp, fragments, write_checksums};
use nodrop_wire::view;
use schemars::JsonSchema;
use serde::Serialize;

use crate::duplicates::Duplicates;

/// An Ethernet header: no port sends less.
pub const SHORTEST_FRAME_BYTES: usize = 14;
/// The greatest MTU of Linux' ports and a header; a longer frame is refused by every port (EINVAL, EMSGSIZE).
pub const LONGEST_FRAME_BYTES: usize = 65_549;
const USUAL_MTU: usize = 1_500;
/// The greatest MTU of common switches; longer datagrams were joined, or never left their host.
const JUMBO_MTU: usize = 9_216;
const LEAST_JUMBO_MTU: usize = 4_000;
/// A tenth or more of the long datagrams have the length of the longest, and no few: that is the MTU of their wire.
const MTU_SHARE: u64 = 10;
const MTU_PACKETS: u64 = 8;
/// Headers of IPv4 and TCP without options, which a maximum segment size leaves out (RFC 9293, 3.7.1).
const V4_TCP_BYTES: usize = 40;
const V6_TCP_BYTES: usize = 60;
/// A clock that goes back by so much was set, or another capture begins: packets of one capture are not so far out of order.
const CLOCK_SET_NS: u64 = 60_000_000_000;
/// Reason for which a frame without a whole header is left out.
const SHORT: &str = "shorter than an Ethernet header";
/// Reason for which a duplicate is left out.
const DUPLICATE: &str = "equal to one at most 2 ms before";

/// How a capture is prepared.
#[derive(Debug, Clone)]
pub struct Options {
    /// Frames longer than the wire carries become the segments and fragments that it does; else they are sent as long as they are.
    pub split_offloaded: bool,
    /// Frames that the capture cut are filled with zeros to the length they had, and their checksums made right; else they are sent as short
    /// as they are.
    pub pad_cut: bool,
    /// Frames shorter than their own IP length are filled to it as well.
    pub pad_to_ip: bool,
    /// Packets equal to one shortly before are left out.
    pub drop_duplicates: bool,
    /// Packets are sent in the order of their time; else as they stand in the file, and one of an earlier time leaves with the one before it.
    pub by_time: bool,
    /// Link types whose frames are left out instead of refused.
    pub skip_link_types: Vec<u32>,
    /// A longer time between two packets is made so long.
    pub longest_gap_ns: Option<u64>,
    /// All packets are so much earlier than they were captured.
    pub earlier_ns: u64,
    /// `read` takes the fractions of a second for nanoseconds: said, and no oddity any more.
    pub nanoseconds: bool,
    /// Bytes of zeros that may be added; a hostile file claims more.
    pub most_padding_bytes: u64,
}

/// As a wire carries it, whatever zeros that takes.
impl Default for Options {
    fn default() -> Self {
        Self {
            split_offloaded: true,
            pad_cut: true,
            pad_to_ip: false,
            drop_duplicates: false,
            by_time: true,
            skip_link_types: Vec::new(),
            longest_gap_ns: None,
            earlier_ns: 0,
            nanoseconds: false,
            most_padding_bytes: u64::MAX,
        }
    }
}

/// How many packets, and the first of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct LeftOut {
    /// How many.
    pub packets: u64,
    /// Number of the first one in the file, from 1.
    pub first_packet: u64,
}

/// What was changed, and what is odd and was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Changes {
    /// Packets of the capture.
    pub read_packets: u64,
    /// Packets of the prepared one.
    pub written_packets: u64,
    /// Packets that got an Ethernet header, by the name of their link.
    pub given_header_packets: BTreeMap<String, u64>,
    /// Of those, packets whose link had no address that Ethernet carries: theirs is nodrop's.
    pub own_address_packets: u64,
    /// Frames that became TCP segments.
    pub split_packets: u64,
    /// Segments that they became.
    pub split_into_packets: u64,
    /// Datagrams that became fragments.
    pub fragmented_packets: u64,
    /// Fragments that they became.
    pub fragmented_into_packets: u64,
    /// Frames filled with zeros to the length they had on the wire.
    pub padded_packets: u64,
    /// Zeros that were added.
    pub padded_bytes: u64,
    /// Frames whose check sequence was taken off.
    pub fcs_packets: u64,
    /// Frames captured longer than they were on the wire, and cut to that.
    pub beyond_wire_packets: u64,
    /// Bytes that were cut off.
    pub beyond_wire_bytes: u64,
    /// Packets that stood behind one of a later time, and were put in order.
    pub reordered_packets: u64,
    /// Times between packets that were made shorter.
    pub shortened_gaps: u64,
    /// By how much in all.
    pub shortened_ns: u64,
    /// Packets that were made this much earlier: a pcap file holds no time after 2106.
    pub earlier_ns: u64,
    /// Whether fractions of a second were taken for nanoseconds, whatever the header says.
    pub nanoseconds: bool,
    /// Packets that are not sent, by reason.
    pub left_out: BTreeMap<String, LeftOut>,
    /// Frames that the capture cut and that are sent so: the sender's stubs are no packets of the wire.
    pub cut_packets: u64,
    /// Packets of an earlier time than one before them, if the order of the file is kept.
    pub late_packets: u64,
    /// Frames longer than the usual 1,514 bytes that are sent as they are.
    pub long_packets: u64,
    /// Packets whose fraction of a second is a second or more: nanoseconds under the magic of microseconds, mostly. Taken for those, none is.
    pub odd_fraction_packets: u64,
    /// Whole frames that end before the length in their IP header.
    pub short_packets: u64,
    /// Number in the file of the first of them.
    pub first_short_packet: u64,
    /// Packets equal, from the network header on, to one at most 2 ms before; left out or sent.
    pub duplicate_packets: u64,
    /// Packets with a time after the year 2554, which 64 bits of nanoseconds do not hold: all have the last time that they hold.
    pub timeless_packets: u64,
    /// Packets behind a clock that was set back, sent later than their time says: the order of the file is kept.
    pub moved_packets: u64,
    /// The furthest that the time steps back from one packet to the next.
    pub steps_back_ns: u64,
    /// Number in the file of the packet before that step.
    pub steps_back_after_packet: u64,
    /// The longest time between two packets that are sent.
    pub longest_gap_ns: u64,
    /// Number in the file of the packet that is sent before it.
    pub longest_gap_after_packet: u64,
}

impl Changes {
    /// Whether the prepared capture differs from the one that was read.
    #[must_use]
    pub fn any(&self) -> bool {
        self.written_packets != self.read_packets
            || self.nanoseconds
            || !self.given_header_packets.is_empty()
            || !self.left_out.is_empty()
            || [
                self.split_packets,
                self.fragmented_packets,
                self.padded_packets,
                self.fcs_packets,
                self.beyond_wire_packets,
                self.reordered_packets,
                self.moved_packets,
                self.shortened_gaps,
            ]
            .iter()
            .any(|count| *count > 0)
    }

    /// `own_address`: as [`ethernet`] says.
    fn give_header(&mut self, linktype: u32, own_address: Option<bool>) {
        if let Some(own) = own_address {
            let link = format!("{} ({linktype})", linktype_name(linktype));
            *self.given_header_packets.entry(link).or_default() += 1;
            self.own_address_packets += u64::from(own);
        }
    }

    /// # Errors
    /// If no packet is left.
    fn must_leave_some<E: std::error::Error>(&self) -> Result<(), PrepareError<E>> {
        if self.written_packets > 0 {
            return Ok(());
        }
        let mut why = self.left_out.keys().cloned().collect::<Vec<_>>().join(", ");
        if why.is_empty() {
            why = "the trace holds no packets".into();
        }
        let read = self.read_packets;
        Err(PrepareError::Nothing { read, why })
    }

    fn leave_out(&mut self, reason: &str, number: u64) {
        if !self.left_out.contains_key(reason) {
            let first = LeftOut {
                packets: 0,
                first_packet: number,
            };
            self.left_out.insert(reason.into(), first);
        }
        if let Some(left_out) = self.left_out.get_mut(reason) {
            left_out.packets += 1;
        }
    }
}

/// Why a capture cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError<E: std::error::Error + 'static> {
    /// It cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// It has frames that no Ethernet port can carry.
    #[error(
        "{} of link type {linktype} ({}) on interface {interface} cannot be put on an Ethernet port: packet {first_packet} is the first",
        count_of(*.packets, "packet"),
        linktype_name(*.linktype)
    )]
    Link {
        /// LINKTYPE_ value.
        linktype: u32,
        /// Number of the interface in its section.
        interface: u32,
        /// Number of the first such packet, from 1.
        first_packet: u64,
        /// How many there are.
        packets: u64,
    },
    /// Nothing can be sent of it.
    #[error("{}{why}", if *.read > 0 { format!("no packet of {} can be sent: ", grouped(*.read)) } else { String::new() })]
    Nothing {
        /// Packets that were read.
        read: u64,
        /// Why they were left out.
        why: String,
    },
    /// Its cut frames claim more than is believed.
    #[error("its cut frames were {} bytes longer on the wire, by their headers", grouped(*.bytes))]
    Padding {
        /// Zeros that would be added.
        bytes: u64,
    },
    /// The prepared capture cannot be written.
    #[error(transparent)]
    Write(E),
}

/// So many of something: `1 packet`, `2,072 packets`.
#[must_use]
pub fn count_of(number: u64, what: &str) -> String {
    let number = grouped(number);
    format!("{number} {what}{}", if number == "1" { "" } else { "s" })
}

/// A number for people: `1,234,567`.
#[must_use]
pub fn grouped(number: impl std::fmt::Display) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What the first reading finds.
#[derive(Debug, Default)]
struct Survey {
    /// The lesser of both sides' maximum segment sizes.
    segment_sizes: HashMap<FlowKey, u16, FixedState>,
    /// Datagrams by length that are longer than usual and whose length field is written.
    long_datagrams: BTreeMap<usize, u64>,
    goes_back: bool,
    latest_ns: u64,
}

impl Survey {
    fn add(&mut self, record: &Record<'_>) {
        if record.frame.is_empty() {
            return; // a block of the file that was never written
        }
        self.goes_back |= record.timestamp_ns < self.latest_ns;
        self.latest_ns = self.latest_ns.max(record.timestamp_ns);
        let (frame, _) = match ethernet(record) {
            Ok(made) => made,
            Err(_) => return,
        };
        let Some(ip) = view::network(&frame) else {
            return;
        };
        let length = on_wire(record, &frame);
        if let Some(datagram) = length.checked_sub(ip.offset).filter(|d| *d > USUAL_MTU) {
            let is_written = frame.get(ip.offset + 2..ip.offset + 4) != Some(&[0, 0]);
            if is_written || ip.source.is_ipv6() {
                *self.long_datagrams.entry(datagram).or_default() += 1;
            }
        }
        if let Some(size) = Tcp::of_frame(&frame).and_then(|tcp| tcp.maximum_segment_size(&frame)) {
            let least = self
                .segment_sizes
                .entry(FlowKey::of_ip(&frame, &ip))
                .or_insert(size);
            *least = size.min(*least);
        }
    }

    /// The longest datagram of the captured wire, as far as it shows.
    fn mtu(&self) -> usize {
        let all: u64 = self.long_datagrams.values().sum();
        let is_mtu = |longest: usize, count: u64| {
            (LEAST_JUMBO_MTU..=JUMBO_MTU).contains(&longest)
                && count >= MTU_PACKETS
                && count * MTU_SHARE >= all
        };
        match self.long_datagrams.last_key_value() {
            Some((longest, count)) if is_mtu(*longest, *count) => *longest,
            _ => USUAL_MTU,
        }
    }
}

/// Length on the wire of the frame that a record became, by its header: fewer bytes than the frame has if that makes no sense.
fn on_wire(record: &Record<'_>, frame: &[u8]) -> usize {
    (record.original_bytes as usize + frame.len()).saturating_sub(record.frame.len())
}

/// The bytes of a record as an Ethernet frame, and whether its source address is nodrop's; `None` if it has its own header.
fn ethernet<'a>(
    record: &Record<'a>,
) -> Result<(std::borrow::Cow<'a, [u8]>, Option<bool>), NoEthernet> {
    let Some(lifted) = lifted(record.source.linktype, record.frame)? else {
        return Ok((record.frame.into(), None));
    };
    let payload = &record.frame[lifted.skipped..record.frame.len() - lifted.trailing];
    let frame = [&lifted.header, payload].concat();
    Ok((frame.into(), Some(!lifted.has_source)))
}

/// Shows the frames of the prepared capture, in order, with their times and their lengths on the wire; says what was changed.
///
/// `read` begins a reading of the capture anew.
///
/// # Errors
/// As [`PrepareError`].
pub fn prepare<'a, R, E>(
    read: impl Fn() -> Result<R, CaptureError>,
    options: &Options,
    mut write: impl FnMut(u64, &[u8], u32) -> Result<(), E>,
) -> Result<Changes, PrepareError<E>>
where
    R: Iterator<Item = Result<Record<'a>, CaptureError>>,
    E: std::error::Error + 'static,
{
    let mut survey = Survey::default();
    let mut refused = Refused::default();
    for (number, record) in (1..).zip(read()?) {
        let record = record?;
        if !options.skip_link_types.contains(&record.source.linktype)
            && lifted(record.source.linktype, record.frame) == Err(NoEthernet::Link)
        {
            refused.add(number, record);
        }
        survey.add(&record);
    }
    refused.must_be_none()?;

    let mut preparing = Preparing {
        options,
        mtu: survey.mtu(),
        segment_sizes: survey.segment_sizes,
        changes: Changes {
            earlier_ns: options.earlier_ns,
            nanoseconds: options.nanoseconds,
            ..Changes::default()
        },
        before: None,
        saved_ns: 0,
        fragment_id: 0,
        duplicates: Duplicates::default(),
    };
    let mut latest_ns = 0;
    let (mut before_ns, mut clock_ns) = (0, 0);
    if survey.goes_back && options.by_time {
        let mut records = (1..)
            .zip(read()?)
            .map(|(number, record)| record.map(|record| (number, record)))
            .collect::<Result<Vec<_>, _>>()?;
        for (_, record) in &records {
            let is_late = record.timestamp_ns < latest_ns && !record.frame.is_empty();
            preparing.changes.reordered_packets += u64::from(is_late);
            latest_ns = latest_ns.max(record.timestamp_ns);
        }
        for (number, record) in &records {
            preparing.step(*number, &mut before_ns, record);
        }
        // Stable: packets of one time stay in the order of the file.
        records.sort_by_key(|(_, record)| record.timestamp_ns);
        for (number, record) in records {
            preparing.add(number, &record, &mut write)?;
        }
    } else {
        for (number, record) in (1..).zip(read()?) {
            let mut record = record?;
            preparing.step(number, &mut before_ns, &record);
            if !options.by_time && !record.frame.is_empty() {
                // A clock that was set goes on where it was: what follows keeps its distances.
                let now_ns: u64 = record.timestamp_ns.saturating_add(clock_ns);
                if latest_ns.saturating_sub(now_ns) >= CLOCK_SET_NS {
                    clock_ns = latest_ns - record.timestamp_ns;
                }
                record.timestamp_ns = record.timestamp_ns.saturating_add(clock_ns);
                preparing.changes.moved_packets += u64::from(clock_ns > 0);
            }
            let is_late = record.timestamp_ns < latest_ns && !record.frame.is_empty();
            preparing.changes.late_packets += u64::from(is_late);
            latest_ns = latest_ns.max(record.timestamp_ns);
            record.timestamp_ns = latest_ns;
            preparing.add(number, &record, &mut write)?;
        }
    }
    preparing.changes.must_leave_some()?;
    Ok(preparing.changes)
}

/// Packets of the first link that no Ethernet port carries.
#[derive(Default)]
struct Refused<'a>(Option<(u64, Record<'a>, u64)>);

impl<'a> Refused<'a> {
    fn add(&mut self, number: u64, record: Record<'a>) {
        let (_, first, packets) = self.0.get_or_insert((number, record, 0));
        let (first, source) = (first.source, record.source);
        *packets +=
            u64::from((first.linktype, first.interface) == (source.linktype, source.interface));
    }

    fn must_be_none<E: std::error::Error>(self) -> Result<(), PrepareError<E>> {
        self.0.map_or(Ok(()), |(first_packet, first, packets)| {
            Err(PrepareError::Link {
                linktype: first.source.linktype,
                interface: first.source.interface,
                first_packet,
                packets,
            })
        })
    }
}

/// A capture of Ethernet frames in memory, made of one of any link: each packet with its time and as much as was captured of it. The
/// changes count headers that were given, packets that have none, and odd times.
///
/// # Errors
/// As [`PrepareError`].
pub fn with_ethernet_headers<'a>(
    records: impl Iterator<Item = Result<Record<'a>, CaptureError>>,
) -> Result<(Vec<u8>, Changes), PrepareError<Infallible>> {
    let (mut file, mut changes) = (file_header().to_vec(), Changes::default());
    let mut refused = Refused::default();
    for (number, record) in (1..).zip(records) {
        let record = record?;
        changes.read_packets += 1;
        changes.odd_fraction_packets += u64::from(record.source.odd_fraction);
        match ethernet(&record) {
            Ok((frame, _)) if frame.len() < SHORTEST_FRAME_BYTES => {
                changes.leave_out(SHORT, number);
            }
            Ok((frame, own_address)) => {
                changes.give_header(record.source.linktype, own_address);
                let [length, wire] = [frame.len(), on_wire(&record, &frame)]
                    .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
                file.extend(record_header(record.timestamp_ns, length, wire));
                file.extend_from_slice(&frame);
                changes.written_packets += 1;
            }
            Err(NoEthernet::Link) => refused.add(number, record),
            Err(why) => changes.leave_out(&reason(record.source.linktype, why), number),
        }
    }
    refused.must_be_none()?;
    changes.must_leave_some()?;
    Ok((file, changes))
}

fn reason(linktype: u32, why: NoEthernet) -> String {
    let link = linktype_name(linktype);
    match why {
        NoEthernet::Link => format!("link type {linktype} ({link})"),
        NoEthernet::Control => format!("{link} without a network packet"),
        NoEthernet::Encrypted => format!("{link}, encrypted"),
        NoEthernet::Cut => format!("{link}, cut in its header"),
    }
}

struct Preparing<'o> {
    options: &'o Options,
    mtu: usize,
    segment_sizes: HashMap<FlowKey, u16, FixedState>,
    changes: Changes,
    /// Time of the packet that is sent before, and its number in the file.
    before: Option<(u64, u64)>,
    /// Time that shortened gaps have saved.
    saved_ns: u64,
    fragment_id: u32,
    duplicates: Duplicates,
}

impl Preparing<'_> {
    fn add<E: std::error::Error + 'static>(
        &mut self,
        number: u64,
        record: &Record<'_>,
        write: &mut impl FnMut(u64, &[u8], u32) -> Result<(), E>,
    ) -> Result<(), PrepareError<E>> {
        self.changes.read_packets += 1;
        self.changes.odd_fraction_packets += u64::from(record.source.odd_fraction);
        let linktype = record.source.linktype;
        let record = self.as_on_the_wire(record);
        let (mut frame, own_address) = match ethernet(&record) {
            Ok(made) => made,
            Err(why) => {
                self.changes.leave_out(&reason(linktype, why), number);
                return Ok(());
            }
        };
        if frame.len() < SHORTEST_FRAME_BYTES {
            self.changes.leave_out(SHORT, number);
            return Ok(());
        }
        if self.duplicates.has(record.timestamp_ns, &frame) {
            self.changes.duplicate_packets += 1;
            if self.options.drop_duplicates {
                self.changes.leave_out(DUPLICATE, number);
                return Ok(());
            }
        }
        let on_wire = on_wire(&record, &frame).max(frame.len());
        let claimed = view::network(&frame).map_or(0, |ip| ip.claimed_end);
        let is_short = on_wire == frame.len() && claimed > on_wire;
        if is_short {
            if self.changes.short_packets == 0 {
                self.changes.first_short_packet = number;
            }
            self.changes.short_packets += 1;
        }
        let on_wire = if is_short && self.options.pad_to_ip {
            claimed
        } else {
            on_wire
        };
        let missing = on_wire - frame.len();
        let pads = missing > 0 && self.options.pad_cut && on_wire <= usize::from(u16::MAX) * 4;
        if pads {
            let padded = self.changes.padded_bytes + missing as u64;
            if padded > self.options.most_padding_bytes {
                return Err(PrepareError::Padding { bytes: padded });
            }
            self.changes.padded_bytes = padded;
            let filled = frame.to_mut();
            filled.resize(on_wire, 0);
            write_checksums(filled);
        }
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let splits = self.options.split_offloaded && (pads || missing == 0);
        let split = splits && self.split(&frame, &mut pieces);
        if !split && frame.len() > LONGEST_FRAME_BYTES {
            self.changes.leave_out("longer than any port takes", number);
            return Ok(());
        }
        self.changes.padded_packets += u64::from(pads);
        self.changes.cut_packets += u64::from(missing > 0 && !pads);
        self.changes.give_header(linktype, own_address);
        let at_ns = self.time_of(number, record.timestamp_ns);
        if !split {
            let usual = USUAL_MTU + SHORTEST_FRAME_BYTES;
            self.changes.long_packets += u64::from(frame.len() > usual + 8);
            self.changes.written_packets += 1;
            let length = if pads { frame.len() } else { on_wire };
            return write(at_ns, &frame, u32::try_from(length).unwrap_or(u32::MAX))
                .map_err(PrepareError::Write);
        }
        for piece in &pieces {
            self.changes.written_packets += 1;
            write(at_ns, piece, u32::try_from(piece.len()).unwrap_or(u32::MAX))
                .map_err(PrepareError::Write)?;
        }
        Ok(())
    }

    /// Looks at the time of the next packet of the file.
    fn step(&mut self, number: u64, before_ns: &mut u64, record: &Record<'_>) {
        if record.frame.is_empty() {
            return;
        }
        let back_ns = before_ns.saturating_sub(record.timestamp_ns);
        if back_ns > self.changes.steps_back_ns {
            self.changes.steps_back_ns = back_ns;
            self.changes.steps_back_after_packet = number - 1;
        }
        *before_ns = record.timestamp_ns;
        self.changes.timeless_packets += u64::from(record.timestamp_ns == u64::MAX);
    }

    /// The record without what never was on its wire, and without its check sequence.
    fn as_on_the_wire<'a>(&mut self, record: &Record<'a>) -> Record<'a> {
        let mut made = *record;
        if record.is_beyond_wire() {
            let wire = record.original_bytes as usize;
            self.changes.beyond_wire_packets += 1;
            self.changes.beyond_wire_bytes += (made.frame.len() - wire) as u64;
            made.frame = &made.frame[..wire];
        }
        if record.has_fcs() {
            made.original_bytes -= u32::from(record.source.fcs_bytes);
            let most = made.original_bytes as usize;
            made.frame = &made.frame[..most.min(made.frame.len())];
            self.changes.fcs_packets += 1;
        }
        made
    }

    /// Whether the frame is one that offloads joined; then its pieces are those of the wire.
    fn split(&mut self, frame: &[u8], pieces: &mut Vec<Vec<u8>>) -> bool {
        let Some(ip) = view::network(frame) else {
            return false;
        };
        let datagram = ip.end - ip.offset;
        let unwritten =
            ip.source.is_ipv4() && frame.get(ip.offset + 2..ip.offset + 4) == Some(&[0, 0]);
        if datagram <= USUAL_MTU && !unwritten {
            return false;
        }
        let mut keep = |piece: &[u8]| pieces.push(piece.to_vec());
        if let Some(tcp) = Tcp::of_frame(frame) {
            let mtu = self.mtu_of(&FlowKey::of_ip(frame, &ip), ip.source.is_ipv6());
            if datagram <= mtu && !unwritten {
                return false;
            }
            let count = tcp.split(frame, tcp.room(mtu), &mut keep);
            self.changes.split_packets += u64::from(count > 0);
            self.changes.split_into_packets += count as u64;
            return count > 0;
        }
        // Not joined: a datagram that never left its host. What a switch may carry is left whole.
        if datagram <= self.mtu.max(JUMBO_MTU) {
            return false;
        }
        self.fragment_id = self.fragment_id % u32::from(u16::MAX) + 1;
        let count = fragments(frame, self.mtu, self.fragment_id, &mut keep);
        self.changes.fragmented_packets += u64::from(count > 0);
        self.changes.fragmented_into_packets += count as u64;
        count > 0
    }

    /// By the handshake, else by what the capture shows; segment sizes of a loopback are no wire's.
    fn mtu_of(&self, flow: &FlowKey, v6: bool) -> usize {
        let headers = if v6 { V6_TCP_BYTES } else { V4_TCP_BYTES };
        let by_handshake = self
            .segment_sizes
            .get(flow)
            .map(|size| usize::from(*size) + headers);
        by_handshake
            .filter(|mtu| *mtu <= JUMBO_MTU && *mtu > headers + 8)
            .unwrap_or(self.mtu)
    }

    /// When a packet is sent: gaps beyond the longest one allowed are shortened.
    fn time_of(&mut self, number: u64, now_ns: u64) -> u64 {
        let (before_ns, before) = self.before.unwrap_or((now_ns, number));
        let gap_ns = now_ns.saturating_sub(before_ns);
        self.before = Some((now_ns, number));
        let kept_ns = match self.options.longest_gap_ns {
            Some(most_ns) if gap_ns > most_ns => {
                self.changes.shortened_gaps += 1;
                self.saved_ns += gap_ns - most_ns;
                most_ns
            }
            _ => gap_ns,
        };
        if kept_ns > self.changes.longest_gap_ns {
            self.changes.longest_gap_ns = kept_ns;
            self.changes.longest_gap_after_packet = before;
        }
        self.changes.shortened_ns = self.saved_ns;
        now_ns - self.saved_ns - self.options.earlier_ns
    }
}

#[cfg(test)]
mod tests;
