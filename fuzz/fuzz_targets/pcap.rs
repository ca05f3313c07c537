//! Classic pcap files: any bytes are read or refused, and what is read lies in the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nodrop_wire::pcap::PcapReader;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = PcapReader::new(bytes) else {
        return;
    };
    while let Ok(Some(record)) = reader.next_record() {
        let end = record.offset + record.frame.len();
        assert_eq!(&bytes[record.offset..end], record.frame);
    }
});
