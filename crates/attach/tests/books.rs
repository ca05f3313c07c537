//! Generator and reference MME against each other without sockets or clock, with faults between them: the books always close.

#![allow(clippy::unwrap_used, missing_docs)]

use nodrop_attach::Outgoing;
use nodrop_attach::enb::{Enbs, PPID, Plan};
use nodrop_attach::ledger::{Anomalies, Ledger};
use nodrop_attach::mme::{Faults, Home, Mme};
use nodrop_attach::subscribers::Subscribers;
use nodrop_attach::wire::aka::{Network, Subscriber};
use nodrop_attach::wire::nas::{self, ALL, Capability, Nas};
use nodrop_attach::wire::s1ap::{self, Cell, Ids, S1};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const FIRST: u64 = 1_010_000_000_001;
const START: u64 = SECOND;
/// Of a message, one way.
const FLIGHT: u64 = 50_000;

fn network() -> Network {
    Network::new("001", "01").unwrap()
}

fn cell(enb_id: u32) -> Cell {
    Cell {
        mcc: "001".into(),
        mnc: "01".into(),
        tac: 1,
        enb_id,
    }
}

fn keys() -> Subscriber {
    Subscriber::new(&[1; 16], &[2; 16])
}

fn subscribers(count: u64) -> Subscribers {
    Subscribers::Range {
        first: FIRST,
        count,
        keys: keys(),
    }
}

fn plan(count: u32, rate: f64, hold_ns: Option<u64>, links: u32) -> Plan {
    Plan {
        count,
        rate,
        subscribers: subscribers(count.into()),
        network: network(),
        capability: ALL,
        hold_ns,
        timeout_ns: 15 * SECOND,
        release_ns: 5 * SECOND,
        cells: (0..links).map(|at| cell(1 + at)).collect(),
    }
}

fn enbs(count: u32, rate: f64, hold_ns: Option<u64>, links: u32) -> Enbs {
    Enbs::new(plan(count, rate, hold_ns, links), START)
}

fn mme(count: u64, faults: Faults) -> Mme {
    let home = Home {
        subscribers: subscribers(count),
        network: network(),
    };
    Mme::new(home, faults, 2, 2)
}

/// What happens to octets on their way to an eNodeB; `None` = lost.
type Spoil<'a> = &'a mut dyn FnMut(Vec<u8>) -> Option<Vec<u8>>;

/// Runs to the end on a clock of its own. One MME serves all associations.
fn run(enbs: &mut Enbs, mme: &mut Mme, spoil: Spoil<'_>, lose: Option<(u64, usize)>) {
    let (mut now, mut up, mut down) = (START, Vec::<Outgoing>::new(), Vec::<Outgoing>::new());
    for _ in 0..1_000_000 {
        if enbs.is_over() {
            return;
        }
        if let Some((at, link)) = lose.filter(|(at, _)| *at <= now) {
            let _ = at;
            enbs.lose(link, now);
            mme.lose(link, now);
        }
        enbs.advance(now, &mut up);
        mme.advance(now, &mut down);
        let said = std::mem::take(&mut up);
        for message in &said {
            mme.receive(message.link, PPID, &message.pdu, now, &mut down);
        }
        let said_down = std::mem::take(&mut down);
        for message in &said_down {
            if let Some(octets) = spoil(message.pdu.clone()) {
                enbs.receive(message.link, PPID, &octets, now, &mut up);
            }
        }
        now = if said.is_empty() && said_down.is_empty() {
            match enbs.next_due().into_iter().chain(mme.next_due()).min() {
                Some(due) => due.max(now + 1),
                None => now, // It is over, or the rounds run out.
            }
        } else {
            now + FLIGHT
        };
    }
    panic!("it does not end");
}

fn unspoiled(enbs: &mut Enbs, mme: &mut Mme) {
    run(enbs, mme, &mut Some, None);
}

fn closes(ledger: &Ledger, count: u32) {
    let rejected: u64 = ledger.rejected.values().sum();
    let aborted: u64 = ledger.aborted.values().sum();
    assert_eq!(ledger.started, u64::from(count));
    assert_eq!(
        ledger.started,
        ledger.attached + rejected + ledger.timed_out + aborted
    );
    assert_eq!(ledger.attached, ledger.attach_us.len());
    assert_eq!(
        ledger.attached,
        ledger
            .accepts
            .iter()
            .map(|&bin| u64::from(bin))
            .sum::<u64>()
    );
}

#[test]
fn each_ue_attaches_and_detaches_and_both_ends_count_the_same() {
    let (mut enbs, mut mme) = (enbs(200, 400.0, Some(0), 2), mme(200, Faults::default()));
    unspoiled(&mut enbs, &mut mme);
    let ledger = &enbs.ledger;
    closes(ledger, 200);
    assert_eq!(
        (ledger.attached, ledger.detached, ledger.unreleased),
        (200, 200, 0)
    );
    assert_eq!(ledger.anomalies, Anomalies::default());
    assert_eq!(mme.counts.attached, 200);
    assert_eq!(ledger.received, mme.counts.sent);
    // The last Release Complete is on its way when the load is over.
    let sum = |counts: &std::collections::BTreeMap<&str, u64>| counts.values().sum::<u64>();
    assert!(sum(&ledger.sent) - sum(&mme.counts.received) <= 1);
    assert_eq!(
        ledger.sent["uplink_nas_transport"],
        4 * 200,
        "RES, SMC, complete, detach"
    );
    assert!(ledger.last_accept_ns.unwrap() >= 199 * SECOND / 400);
}

#[test]
fn a_slow_mme_shows_in_each_step_as_long_as_it_took() {
    let faults = Faults {
        delay_ns: 2 * SECOND,
        ..Faults::default()
    };
    let (mut enbs, mut mme) = (enbs(20, 1000.0, Some(0), 1), mme(20, faults));
    unspoiled(&mut enbs, &mut mme);
    let ledger = &enbs.ledger;
    for (of, seconds) in [
        (&ledger.auth_us, 2),
        (&ledger.smc_us, 2),
        (&ledger.ics_us, 2),
        (&ledger.detach_us, 2),
        (&ledger.attach_us, 6),
    ] {
        let (p50, exact) = (of.value_at_quantile(0.5), seconds * 1_000_000);
        assert!(p50.abs_diff(exact) < exact / 100, "{p50} for {exact}");
    }
    assert_eq!(ledger.attached, 20);
}

#[test]
fn ues_that_stay_pile_up() {
    let (mut enbs, mut mme) = (enbs(50, 1000.0, None, 1), mme(50, Faults::default()));
    unspoiled(&mut enbs, &mut mme);
    assert_eq!((enbs.ledger.peak_sessions, enbs.ledger.detached), (50, 0));
}

#[test]
fn an_imsi_that_is_not_in_the_home_network_is_turned_away_by_cause() {
    let (mut enbs, mut mme) = (enbs(10, 1000.0, None, 1), mme(7, Faults::default()));
    unspoiled(&mut enbs, &mut mme);
    closes(&enbs.ledger, 10);
    assert_eq!(enbs.ledger.rejected, [(2, 3)].into());
    assert_eq!(enbs.ledger.attached, 7);
}

#[test]
fn each_has_keys_of_its_own_and_a_wrong_one_turns_away_its_ue_alone() {
    let listed = |wrong: u64| {
        let each = (0..10).rev().map(|at| {
            let k = [u8::try_from(at).unwrap(); 16];
            let opc = [u8::from(at == wrong); 16];
            (FIRST + 3 * at, Subscriber::new(&k, &opc))
        });
        Subscribers::listed(each.collect()).unwrap()
    };
    let offered = Plan {
        subscribers: listed(4),
        ..plan(10, 1000.0, Some(0), 1)
    };
    let home = Home {
        subscribers: listed(99),
        network: network(),
    };
    let mut enbs = Enbs::new(offered, START);
    unspoiled(&mut enbs, &mut Mme::new(home, Faults::default(), 2, 2));
    closes(&enbs.ledger, 10);
    assert_eq!(enbs.ledger.attached, 9);
    assert_eq!(
        enbs.ledger.rejected,
        [(0, 1)].into(),
        "Authentication Reject"
    );
    assert_eq!(enbs.ledger.anomalies.wrong_autns, 1);
    let twice = vec![(7, keys()), (5, keys()), (7, keys())];
    assert_eq!(Subscribers::listed(twice).err(), Some(7));
}

/// A UE refuses what it did not offer: so the MME took the one that it offered.
#[test]
fn each_algorithm_attaches_and_none_in_common_is_turned_away() {
    let offer = |capability| {
        let offered = Plan {
            capability,
            ..plan(3, 1000.0, Some(0), 1)
        };
        let mut enbs = Enbs::new(offered, START);
        unspoiled(&mut enbs, &mut mme(3, Faults::default()));
        closes(&enbs.ledger, 3);
        enbs.ledger
    };
    for eea in 0..4 {
        for eia in 1..4 {
            let books = offer(Capability::new(&[eea], &[eia]));
            assert_eq!(
                (books.attached, books.detached),
                (3, 3),
                "EEA{eea}, EIA{eia}"
            );
            assert_eq!(books.anomalies, Anomalies::default());
        }
    }
    for nothing in [Capability::new(&[], &[2]), Capability::new(&[2], &[0, 7])] {
        assert_eq!(offer(nothing).rejected, [(23, 3)].into());
    }
    let best = |eea: &[u8], eia: &[u8]| Capability::new(eea, eia).best(3, 3);
    assert_eq!(best(&[0, 1, 2, 3], &[1, 2, 3]), Some((3, 3)), "preferred");
    assert_eq!(best(&[0, 1, 2], &[1, 2]), Some((2, 2)), "AES");
    assert_eq!(best(&[0, 1], &[1]), Some((1, 1)), "SNOW 3G before none");
}

#[test]
fn an_mme_at_its_limit_turns_ues_away_for_congestion() {
    let faults = Faults {
        limit: Some(4),
        ..Faults::default()
    };
    let (mut enbs, mut mme) = (enbs(10, 1000.0, None, 1), mme(10, faults));
    unspoiled(&mut enbs, &mut mme);
    assert_eq!(
        (enbs.ledger.attached, &enbs.ledger.rejected),
        (4, &[(22, 6)].into())
    );
}

#[test]
fn a_silent_mme_lets_ues_time_out() {
    let faults = Faults {
        silent_after: Some(6),
        ..Faults::default()
    };
    let (mut enbs, mut mme) = (enbs(10, 1000.0, None, 1), mme(10, faults));
    unspoiled(&mut enbs, &mut mme);
    closes(&enbs.ledger, 10);
    assert!(enbs.ledger.timed_out >= 4);
    assert!(enbs.ledger.resolved_ns.unwrap() >= 15 * SECOND);
}

#[test]
fn a_lost_association_takes_its_ues_and_no_others() {
    let (mut enbs, mut mme) = (
        enbs(100, 100.0, Some(0), 2),
        mme(
            100,
            Faults {
                delay_ns: SECOND / 10,
                ..Faults::default()
            },
        ),
    );
    run(
        &mut enbs,
        &mut mme,
        &mut Some,
        Some((START + SECOND / 2, 1)),
    );
    closes(&enbs.ledger, 100);
    let aborted = &enbs.ledger.aborted;
    assert!(aborted["association_lost"] > 0 && aborted["no_association"] > 0);
    assert_eq!(aborted.values().sum::<u64>() + enbs.ledger.attached, 100);
    assert!(enbs.ledger.attached >= 50, "those of the other association");
}

#[test]
fn a_wrong_mac_is_counted_and_no_ue_attaches_by_it() {
    let (mut enbs, mut mme) = (
        enbs(5, 1000.0, None, 1),
        mme(
            5,
            Faults {
                bad_mac: 1.0,
                ..Faults::default()
            },
        ),
    );
    unspoiled(&mut enbs, &mut mme);
    closes(&enbs.ledger, 5);
    assert_eq!((enbs.ledger.attached, enbs.ledger.timed_out), (0, 5));
    assert!(enbs.ledger.anomalies.mac_failures >= 5);
}

#[test]
fn ids_that_are_nobodys_are_counted() {
    let (mut enbs, mut mme) = (
        enbs(5, 1000.0, None, 1),
        mme(
            5,
            Faults {
                wrong_id: 1.0,
                ..Faults::default()
            },
        ),
    );
    unspoiled(&mut enbs, &mut mme);
    assert_eq!(enbs.ledger.timed_out, 5);
    assert!(enbs.ledger.anomalies.unknown_ue_ids >= 5);
}

/// An eNodeB with UE 0 that has sent its Attach Request, on association 0 of 2.
fn one() -> (Enbs, Vec<Outgoing>) {
    let (mut enbs, mut out) = (enbs(2, 0.01, None, 2), Vec::new());
    enbs.advance(START, &mut out);
    out.clear();
    (enbs, out)
}

fn counted(count: impl Fn(&mut Anomalies), message: &S1) {
    let (mut enbs, mut out) = one();
    enbs.receive(
        0,
        PPID,
        &s1ap::encode(message, &cell(1)).unwrap(),
        START,
        &mut out,
    );
    let mut expected = Anomalies::default();
    count(&mut expected);
    assert_eq!(enbs.ledger.anomalies, expected, "{message:?}");
    assert_eq!(
        enbs.ledger.in_progress(),
        1,
        "the UE goes on after {message:?}"
    );
}

fn down(enb: u32, nas: Vec<u8>) -> S1 {
    S1::DownlinkNas {
        ids: Ids { mme: 1, enb },
        nas,
    }
}

#[test]
fn each_odd_message_moves_its_own_count() {
    let plain = |message: Nas| nas::encode(&message).unwrap();
    counted(|odd| odd.undecodable_nas += 1, &down(0, vec![]));
    counted(
        |odd| odd.undecodable_nas += 1,
        &down(0, vec![0x07, 0xff, 1, 2, 3]),
    );
    counted(|odd| odd.unknown_ue_ids += 1, &down(77, vec![7]));
    counted(|odd| odd.unknown_ue_ids += 1, &down(1, vec![7]));
    counted(
        |odd| odd.without_context += 1,
        &down(0, vec![0x27, 0, 0, 0, 0, 0, 7, 0x42]),
    );
    counted(
        |odd| odd.without_context += 1,
        &down(0, vec![0x37, 0, 0, 0, 0, 0, 7, 0x5d]),
    );
    counted(
        |odd| odd.unexpected += 1,
        &down(0, plain(Nas::AttachAccept { bearer: 5, pti: 1 })),
    );
    counted(|odd| odd.unexpected += 1, &S1::SetupResponse);
    counted(
        |odd| odd.error_indications += 1,
        &S1::ErrorIndication {
            mme: None,
            enb: None,
        },
    );
    let wrong = Subscriber::new(&[9; 16], &[9; 16]).vector([5; 16], 64, network());
    let challenge = Nas::AuthenticationRequest {
        rand: wrong.rand,
        autn: wrong.autn,
    };
    counted(|odd| odd.wrong_autns += 1, &down(0, plain(challenge)));
    let old = keys().vector([5; 16], 0, network());
    let challenge = Nas::AuthenticationRequest {
        rand: old.rand,
        autn: old.autn,
    };
    counted(|odd| odd.old_sqns += 1, &down(0, plain(challenge)));
    let ids = Ids { mme: 1, enb: 0 };
    counted(
        |odd| odd.empty_contexts += 1,
        &S1::ContextSetupRequest { ids, nas: None },
    );
    counted(
        |odd| odd.unknown_ue_ids += 1,
        &S1::ReleaseCommand { mme: 5, enb: None },
    );
}

#[test]
fn octets_that_are_no_s1ap_are_counted() {
    let (mut enbs, mut out) = one();
    let whole = s1ap::encode(&S1::Reset, &cell(1)).unwrap();
    enbs.receive(0, 0, &whole, START, &mut out);
    enbs.receive(0, PPID, &[], START, &mut out);
    enbs.receive(0, PPID, &whole[..whole.len() - 1], START, &mut out);
    let odd = enbs.ledger.anomalies;
    assert_eq!((odd.wrong_ppids, odd.undecodable_pdus + odd.resets), (1, 2));
    assert!(odd.undecodable_pdus >= 1 && out.len() <= 1);
}

/// Takes UE 0 past its challenge and offers these algorithms and capabilities.
fn secured(eea: u8, eia: u8, replayed: Capability) -> Enbs {
    let (mut enbs, mut out) = one();
    let vector = keys().vector([5; 16], 64, network());
    let challenge = nas::encode(&Nas::AuthenticationRequest {
        rand: vector.rand,
        autn: vector.autn,
    })
    .unwrap();
    let mut say = |nas: Vec<u8>| {
        enbs.receive(
            0,
            PPID,
            &s1ap::encode(&down(0, nas), &cell(1)).unwrap(),
            START,
            &mut out,
        );
    };
    say(challenge.clone());
    say(challenge);
    let mut context = nas::Context::new(&vector.kasme, eea, eia).unwrap();
    let command = Nas::SecurityModeCommand {
        eea,
        eia,
        replayed,
        imeisv: false,
        hash: None,
    };
    say(context.protect(&command, nas::Way::Down, true).unwrap());
    enbs
}

#[test]
fn a_repeated_challenge_is_answered_again_and_a_bid_down_is_refused() {
    let good = secured(2, 2, ALL);
    assert_eq!(
        good.ledger.anomalies,
        Anomalies {
            repeats: 1,
            ..Anomalies::default()
        }
    );
    assert_eq!(good.ledger.sent["uplink_nas_transport"], 3);
    for refused in [
        secured(
            2,
            2,
            Capability {
                eea: 0x80,
                eia: 0x80,
            },
        ),
        secured(0, 0, ALL),
    ] {
        assert_eq!(refused.ledger.anomalies.refused_algorithms, 1);
        assert_eq!(
            refused.ledger.aborted,
            [("security_mode_refused", 1)].into()
        );
    }
}

#[test]
fn a_release_or_a_reset_before_the_accept_aborts() {
    for (message, reason) in [
        (
            S1::ReleaseCommand {
                mme: 1,
                enb: Some(0),
            },
            "released",
        ),
        (S1::Reset, "reset"),
    ] {
        let (mut enbs, mut out) = one();
        let octets = s1ap::encode(&message, &cell(1)).unwrap();
        enbs.receive(0, PPID, &octets, START, &mut out);
        assert_eq!(enbs.ledger.aborted, [(reason, 1)].into());
        assert_eq!(enbs.ledger.anomalies.resets, u64::from(reason == "reset"));
        enbs.receive(
            0,
            PPID,
            &s1ap::encode(&down(0, vec![7]), &cell(1)).unwrap(),
            START,
            &mut out,
        );
        assert_eq!(
            enbs.ledger.anomalies.ended_ues, 1,
            "late NAS for a UE that has ended"
        );
    }
}

#[test]
fn a_stop_aborts_what_is_in_progress() {
    let (mut enbs, _) = one();
    enbs.stop(START + 1);
    assert!(enbs.is_over());
    assert_eq!((enbs.ledger.started, enbs.ledger.ended()), (1, 1));
    assert_eq!(enbs.ledger.aborted, [("stopped", 1)].into());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// 100 random mixtures of faults, with octets flipped, cut and lost on the way: the identity holds, exactly.
    #[test]
    fn no_fault_opens_the_books(
        seed: u64,
        drop in 0.0..0.3,
        wrong_id in 0.0..0.3,
        bad_mac in 0.0..0.3,
        reject in 0.0..0.3,
        delay_ms in 0_u64..3000,
        limit in prop::option::of(1_u64..40),
        silent_after in prop::option::of(0_u64..40),
        damage in 0_u64..40,
        lose_ms in prop::option::of(0_u64..2000),
        keep: bool,
    ) {
        let faults = Faults { drop, wrong_id, bad_mac, reject, delay_ns: delay_ms * 1_000_000, limit, silent_after, seed };
        let hold = (!keep).then_some(SECOND / 5);
        let (mut enbs, mut mme) = (enbs(40, 40.0, hold, 2), mme(38, faults));
        let mut dice = seed | 1;
        let mut roll = move |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % sides
        };
        let mut spoil = |mut octets: Vec<u8>| {
            if roll(100) < damage {
                let at = usize::try_from(roll(octets.len() as u64)).unwrap();
                match roll(3) {
                    0 => return None,
                    1 => octets.truncate(at),
                    _ => octets[at] ^= 1 << roll(8),
                }
            }
            Some(octets)
        };
        run(&mut enbs, &mut mme, &mut spoil, lose_ms.map(|ms| (START + ms * 1_000_000, 0)));
        closes(&enbs.ledger, 40);
    }
}
