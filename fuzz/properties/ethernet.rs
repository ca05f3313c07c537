//! Ethernet headers for frames of other links: of any bytes, the parts that stay behind lie in the frame.
//!
//! The input is a link type of two bytes and a frame.

use nodrop_wire::ethernet::lifted;
use nodrop_wire::flow::FlowKey;
use nodrop_wire::view;

/// Panics if it does not hold.
pub fn holds(bytes: &[u8]) {
    let Some((linktype, frame)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    // Small numbers most of the time.
    let linktype = u32::from(u16::from_be_bytes(*linktype) & 0x01ff);
    let Ok(Some(lifted)) = lifted(linktype, frame) else {
        return;
    };
    let payload = &frame[lifted.skipped..frame.len() - lifted.trailing];
    let made = [&lifted.header, payload].concat();
    assert_eq!(view::link(&made).is_some(), made.len() >= 14);
    let _ = FlowKey::innermost(&made);
}
