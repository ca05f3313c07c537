//! Classic pcap files: any bytes are read or refused, and what is read lies in the file.

use nodrop_wire::pcap::PcapReader;

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    let Ok(mut reader) = PcapReader::new(bytes) else {
        return;
    };
    while let Ok(Some(record)) = reader.next_record() {
        let end = record.offset + record.frame.len();
        assert_eq!(&bytes[record.offset..end], record.frame);
    }
}
