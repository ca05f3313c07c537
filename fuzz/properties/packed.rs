//! Packed files: any bytes are unpacked within the bound or refused, and a tolerated cut gives no more than the whole.
//!
//! The input is a byte that chooses the format, and a file without its first bytes.

use nodrop_wire::packed::{Most, unpacked};

const MAGICS: [&[u8]; 4] = [
    &[0x1f, 0x8b],
    &[0x28, 0xb5, 0x2f, 0xfd],
    &[0xfd, b'7', b'z', b'X', b'Z', 0],
    &[0x04, 0x22, 0x4d, 0x18],
];

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let file = [MAGICS[usize::from(*kind) % MAGICS.len()], rest].concat();
    let most = Most {
        bytes: 1 << 20,
        why: "the bound",
    };
    let mut last = 0;
    let strict = unpacked(&file, most, false, &mut |at| {
        assert!(at >= last && at <= file.len());
        last = at;
    });
    let tolerant = unpacked(&file, most, true, &mut |_| ());
    match (strict, tolerant) {
        (Ok(strict), Ok(tolerant)) => assert_eq!(strict, tolerant),
        (Ok(strict), Err(error)) => panic!("{strict:?} and {error}"),
        (Err(_), Ok(Some(found))) => {
            assert!(found.cut.is_some() && found.bytes.len() <= most.bytes);
        }
        (Err(_), _) => {}
    }
}
