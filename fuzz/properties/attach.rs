//! Octets of an MME: whatever they are, they are counted, no UE is lost from the books, and nothing panics.

use nodrop_attach::enb::{Enbs, PPID, Plan};
use nodrop_attach::subscribers::Subscribers;
use nodrop_attach::wire::aka::{Network, Subscriber};
use nodrop_attach::wire::nas::{self, ALL, Way};
use nodrop_attach::wire::s1ap::{self, Cell, Ids, S1};

const START: u64 = 1_000_000_000;

/// Panics if it does not hold. The octets come as an S1AP message, and as NAS of a UE that attaches.
pub fn holds(octets: &[u8]) {
    let (Some(network), cell) = (
        Network::new("001", "01"),
        Cell {
            mcc: "001".into(),
            mnc: "01".into(),
            tac: 1,
            enb_id: 1,
        },
    ) else {
        return;
    };
    let _ = (nas::decode(octets, Way::Up), nas::decode(octets, Way::Down));
    let plan = Plan {
        count: 2,
        rate: 1e6,
        subscribers: Subscribers::Range {
            first: 1_010_000_000_001,
            count: 2,
            keys: Subscriber::new(&[1; 16], &[2; 16]),
        },
        network,
        capability: ALL,
        hold_ns: Some(0),
        timeout_ns: START,
        release_ns: START,
        cells: vec![cell.clone()],
    };
    let (mut enbs, mut out) = (Enbs::new(plan, START), Vec::new());
    enbs.advance(START + 1_000_000, &mut out);
    let ids = Ids { mme: 1, enb: 0 };
    let as_nas = S1::DownlinkNas {
        ids,
        nas: octets.to_vec(),
    };
    let wrapped = s1ap::encode(&as_nas, &cell);
    for pdu in std::iter::once(octets).chain(wrapped.as_deref()) {
        enbs.receive(0, PPID, pdu, START + 2_000_000, &mut out);
        let ledger = &enbs.ledger;
        assert_eq!(ledger.started, 2);
        assert_eq!(ledger.started, ledger.ended() + ledger.in_progress());
    }
    enbs.advance(START * 10, &mut out);
    enbs.stop(START * 20);
    assert_eq!(enbs.ledger.ended(), 2);
    assert!(enbs.is_over());
}
