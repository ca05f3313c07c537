//! snoop files: any bytes are read or refused, and what is read lies in the file.

use nodrop_wire::capture::Reader;
use nodrop_wire::snoop;

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    // Every input is one of this format: the first bytes are no riddle for the fuzzer to solve.
    let mut file = snoop::MAGIC.to_vec();
    file.extend(bytes);
    let Ok(reader) = Reader::of_any_link(&file, true) else {
        return;
    };
    let mut end = 0;
    for record in reader.flatten() {
        assert!(record.offset >= end);
        end = record.offset + record.frame.len();
        assert_eq!(&file[record.offset..end], record.frame);
    }
}
