//! Tunnels: the innermost header of any frame lies in it, and in the one around it.

use nodrop_wire::flow::FlowKey;
use nodrop_wire::tunnel::{innermost, innermost_of};
use nodrop_wire::view;

/// Panics if it does not hold.
pub fn holds(frame: &[u8]) {
    let Some(outer) = view::network(frame) else {
        return;
    };
    assert!(outer.end <= frame.len());
    let inner = innermost(frame).expect("it has a header");
    assert!(inner.offset >= outer.offset && inner.end <= frame.len());
    match innermost_of(frame, &outer) {
        Some(within) => assert!(within == inner && inner.offset >= outer.payload),
        None => assert_eq!(inner, outer),
    }
    assert_eq!(
        FlowKey::innermost(frame),
        Some(FlowKey::of_ip(frame, &inner))
    );
    // Cut anywhere, it is still read or refused.
    for cut in [frame.len() / 2, frame.len().saturating_sub(1)] {
        let _ = innermost(&frame[..cut]);
    }
}
