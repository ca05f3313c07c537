//! Big-endian fields of a frame, `None` if the frame is too short.

/// The byte at `offset`.
pub(crate) fn u8_at(frame: &[u8], offset: usize) -> Option<u8> {
    frame.get(offset).copied()
}

/// The 16-bit field at `offset`.
pub(crate) fn u16_at(frame: &[u8], offset: usize) -> Option<u16> {
    array_at(frame, offset).map(u16::from_be_bytes)
}

/// The 32-bit field at `offset`.
pub(crate) fn u32_at(frame: &[u8], offset: usize) -> Option<u32> {
    array_at(frame, offset).map(u32::from_be_bytes)
}

/// `N` bytes at `offset`.
pub(crate) fn array_at<const N: usize>(frame: &[u8], offset: usize) -> Option<[u8; N]> {
    frame.get(offset..)?.first_chunk::<N>().copied()
}
