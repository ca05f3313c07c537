//! pcapng files: any bytes are read or refused, and what is read lies in the file.

use nodrop_wire::capture::Reader;
use nodrop_wire::pcapng;

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    // Every input is one of this format: the first bytes are no riddle for the fuzzer to solve.
    let mut file = pcapng::MAGIC.to_vec();
    file.extend(bytes);
    for tolerate in [false, true] {
        let Ok(reader) = Reader::new(&file, tolerate) else {
            return;
        };
        for record in reader.flatten() {
            let end = record.offset + record.frame.len();
            assert_eq!(&file[record.offset..end], record.frame);
        }
    }
}
