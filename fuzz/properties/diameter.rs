//! Octets over S6a, at both ends: read or refused, what is read is written alike, and no UE is lost from the books.

use nodrop_attach::mme::{Faults, Home, Mme};
use nodrop_attach::stubs::Hss;
use nodrop_attach::subscribers::Subscribers;
use nodrop_attach::wire::aka::{Network, Subscriber};
use nodrop_attach::wire::diameter::Message;
use nodrop_attach::wire::nas::{self, ALL, Nas};
use nodrop_attach::wire::s1ap::{self, Cell, S1};

fn home() -> Option<Home> {
    Some(Home {
        subscribers: Subscribers::Range {
            first: 1_010_000_000_001,
            count: 10,
            keys: Subscriber::new(&[1; 16], &[2; 16]),
        },
        network: Network::new("001", "01")?,
    })
}

/// Panics if it does not hold. The octets come to an HSS, and as the answer to an MME that has asked for a vector.
pub fn holds(octets: &[u8]) {
    let (Some(for_hss), Some(for_mme)) = (home(), home()) else {
        return;
    };
    if let Ok(message) = Message::decode(octets) {
        let again = Message::decode(&message.encode());
        assert_eq!(again, Ok(message));
    }
    let mut hss = Hss::new(for_hss);
    if let Some(answer) = hss.answer(octets) {
        let answer = Message::decode(&answer);
        assert!(answer.is_ok_and(|answer| !answer.request));
    }
    let mut mme = Mme::new(for_mme, Faults::default(), 2, 2).with_core();
    let cell = Cell {
        mcc: "001".into(),
        mnc: "01".into(),
        tac: 1,
        enb_id: 1,
    };
    let request = nas::encode(&Nas::AttachRequest {
        imsi: "001010000000001".into(),
        capability: ALL,
    });
    let initial = request.and_then(|nas| s1ap::encode(&S1::InitialUe { enb: 0, nas }, &cell));
    let mut out = Vec::new();
    mme.receive(0, 18, &initial.unwrap_or_default(), 1, &mut out);
    assert_eq!(mme.ues(), 1);
    mme.from_hss(octets, 2, &mut out);
    mme.from_hss(octets, 3, &mut out);
    assert!(mme.ues() <= 1);
}
