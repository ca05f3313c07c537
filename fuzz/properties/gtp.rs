//! Octets over S11, at both ends: read or refused, what is read is written alike, and no session is counted twice.

use nodrop_attach::core::Core;
use nodrop_attach::stubs::Sgw;
use nodrop_attach::wire::gtp::Message;

/// Panics if it does not hold. The octets come to an SGW that has one session, and as answers to an MME that asked for one.
pub fn holds(octets: &[u8]) {
    if let Ok(message) = Message::decode(octets) {
        let octets = message.encode();
        let again = octets.as_deref().map(Message::decode);
        assert_eq!(again, Some(Ok(message)));
    }
    let (mut core, mut sgw) = (Core::new("001", "01"), Sgw::default());
    core.create(1, "001010000000001", 1);
    for asked in &core.to_sgw {
        assert!(sgw.answer(asked).is_some());
    }
    if let Some(answer) = sgw.answer(octets) {
        assert!(Message::decode(&answer).is_ok());
    }
    assert!(sgw.counts.peak_sessions <= 2);
    let _ = core.from_sgw(octets, 2);
    // What was answered once is asked no more.
    assert!(core.from_sgw(octets, 3).is_none());
}
