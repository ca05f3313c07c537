//! NAS of an MME in any order, plain and under keys that are right: counted, no UE is lost from the books, and nothing panics.

use nodrop_attach::enb::{Enbs, PPID, Plan};
use nodrop_attach::subscribers::Subscribers;
use nodrop_attach::wire::aka::{Network, Subscriber};
use nodrop_attach::wire::nas::{self, ALL, Context, Nas, Way};
use nodrop_attach::wire::s1ap::{self, Cell, Ids, S1};

const START: u64 = 1_000_000_000;

/// Panics if it does not hold. Each octet takes a step: a message of an MME, or as many raw octets as the next one says.
pub fn holds(octets: &[u8]) {
    let (subscriber, Some(network)) = (
        Subscriber::new(&[1; 16], &[2; 16]),
        Network::new("001", "01"),
    ) else {
        return;
    };
    let cell = Cell {
        mcc: "001".into(),
        mnc: "01".into(),
        tac: 1,
        enb_id: 1,
    };
    let plan = Plan {
        count: 1,
        rate: 1.0,
        subscribers: Subscribers::Range {
            first: 1_010_000_000_001,
            count: 1,
            keys: Subscriber::new(&[1; 16], &[2; 16]),
        },
        network,
        capability: ALL,
        hold_ns: Some(START),
        timeout_ns: 15 * START,
        release_ns: START,
        cells: vec![cell.clone()],
    };
    let (mut enbs, mut out) = (Enbs::new(plan, START), Vec::new());
    enbs.advance(START, &mut out);
    let (mut now, mut sqn, mut keys) = (START, 32, None);
    let mut rest = octets;
    while let Some((&step, after)) = rest.split_first() {
        rest = after;
        now += START / 100;
        let (algorithm, said) = (step >> 4 & 3, step & 15);
        let mut protected = |message: &Nas, begins: bool| {
            let (_, context) = keys.as_mut()?;
            Context::protect(context, message, Way::Down, begins)
        };
        let message = match said {
            0 => {
                // A challenge, and the keys that follow from it.
                let vector = subscriber.vector([step; 16], sqn, network);
                sqn += 32;
                let (rand, autn) = (vector.rand, vector.autn);
                keys = Context::new(&vector.kasme, algorithm, 2)
                    .map(|context| (vector.kasme, context));
                nas::encode(&Nas::AuthenticationRequest { rand, autn })
            }
            1 => {
                let command = Nas::SecurityModeCommand {
                    eea: algorithm,
                    eia: 2,
                    replayed: ALL,
                    imeisv: step > 127,
                    hash: (step > 63).then_some([step; 8]),
                };
                protected(&command, true)
            }
            2 => protected(&Nas::AttachAccept { bearer: 5, pti: 1 }, false),
            3 => protected(&Nas::EsmInformationRequest { pti: step }, false),
            4 => protected(&Nas::IdentityRequest, false),
            5 => protected(&Nas::EmmInformation, false),
            6 => protected(&Nas::AttachReject { cause: step }, false),
            7 => protected(&Nas::AuthenticationReject, step > 127),
            8 => nas::encode(&Nas::IdentityRequest),
            9 => {
                enbs.advance(now + START, &mut out);
                continue;
            }
            _ => {
                let length = rest.first().map_or(0, |&length| usize::from(length));
                let (raw, behind) = rest.split_at(rest.len().min(1 + length));
                rest = behind;
                raw.get(1..).map(<[u8]>::to_vec)
            }
        };
        let Some(nas) = message else {
            continue;
        };
        let ids = Ids { mme: 1, enb: 0 };
        let s1 = match said {
            2 => S1::ContextSetupRequest {
                ids,
                nas: Some(nas),
            },
            _ => S1::DownlinkNas { ids, nas },
        };
        if let Some(pdu) = s1ap::encode(&s1, &cell) {
            enbs.receive(0, PPID, &pdu, now, &mut out);
        }
        let ledger = &enbs.ledger;
        assert_eq!(ledger.started, 1);
        assert_eq!(ledger.started, ledger.ended() + ledger.in_progress());
        assert!(ledger.sessions <= 1);
    }
    enbs.advance(now + 100 * START, &mut out);
    enbs.stop(now + 200 * START);
    assert_eq!(enbs.ledger.ended(), 1);
    assert!(enbs.is_over());
}
