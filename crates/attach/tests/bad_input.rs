//! Input of an MME that no attach has, and two MMEs or subscribers at odds: counted or refused by name, never a panic or a hang.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use nodrop_attach::address::Address;
use nodrop_attach::association::{Association, Frame, Gone};
use nodrop_attach::enb::{Enbs, PPID, Plan};
use nodrop_attach::framed::Framed;
use nodrop_attach::ledger::Anomalies;
use nodrop_attach::mme::{Faults, Home, Mme};
use nodrop_attach::offer::{NoAssociation, associate, offer};
use nodrop_attach::subscribers::Subscribers;
use nodrop_attach::wire::aka::{Kasme, Network, Subscriber};
use nodrop_attach::wire::nas::{self, ALL, Capability, Nas, Way};
use nodrop_attach::wire::s1ap::{self, Cell, Ids, S1};
use nodrop_sys::clock::mono_ns;
use proptest::prelude::*;

#[path = "../../../fuzz/properties/attach.rs"]
mod property;

#[path = "../../../fuzz/properties/nas.rs"]
mod in_any_order;

const START: u64 = 1_000_000_000;
const LONGEST: Duration = Duration::from_secs(20);

fn cell() -> Cell {
    Cell {
        mcc: "001".into(),
        mnc: "01".into(),
        tac: 1,
        enb_id: 1,
    }
}

fn network() -> Network {
    Network::new("001", "01").unwrap()
}

fn one_subscriber() -> Subscribers {
    Subscribers::Range {
        first: 1_010_000_000_001,
        count: 1,
        keys: Subscriber::new(&[1; 16], &[2; 16]),
    }
}

fn enb_with_one_ue() -> Enbs {
    enb_with(ALL)
}

fn enb_with(capability: Capability) -> Enbs {
    Enbs::new(one_ue(capability), START)
}

fn one_ue(capability: Capability) -> Plan {
    Plan {
        count: 1,
        rate: 1.0,
        subscribers: one_subscriber(),
        network: network(),
        capability,
        hold_ns: None,
        timeout_ns: 15 * START,
        release_ns: START,
        cells: vec![cell()],
    }
}

/// What an eNodeB makes of one message after the Attach Request of its UE.
fn after(message: &S1) -> Enbs {
    let (mut enbs, mut out) = (enb_with_one_ue(), Vec::new());
    enbs.advance(START, &mut out);
    let octets = s1ap::encode(message, &cell()).unwrap();
    enbs.receive(0, PPID, &octets, START, &mut out);
    enbs
}

#[test]
fn each_way_to_say_no_is_a_class_by_its_cause() {
    let ids = Ids { mme: 1, enb: 0 };
    for (nas, cause) in [
        (nas::encode(&Nas::AuthenticationReject).unwrap(), 0),
        (nas::encode(&Nas::AttachReject { cause: 11 }).unwrap(), 11),
        (vec![0x07, 0x4e, 9], 9), // Service Reject
    ] {
        let enbs = after(&S1::DownlinkNas { ids, nas });
        assert_eq!(enbs.ledger.rejected, [(cause, 1)].into());
    }
}

#[test]
fn a_context_without_a_bearer_and_ids_of_zero_are_counted() {
    let ids = Ids { mme: 1, enb: 0 };
    let whole = S1::ContextSetupRequest {
        ids,
        nas: Some(nas::encode(&Nas::IdentityRequest).unwrap()),
    };
    let mut octets = s1ap::encode(&whole, &cell()).unwrap();
    assert_eq!(octets[3] & 0x80, 0, "its length has one octet");
    // Without id-E-RABToBeSetupListCtxtSUReq: id, criticality, length, value.
    let at = octets.windows(2).position(|two| two == [0, 0x18]).unwrap();
    let field = 4 + octets[at + 3];
    octets.drain(at..at + usize::from(field));
    octets[3] -= field;
    octets[6] -= 1;
    let (mut enbs, mut out) = (enb_with_one_ue(), Vec::new());
    enbs.advance(START, &mut out);
    enbs.receive(0, PPID, &octets, START, &mut out);
    let odd = enbs.ledger.anomalies;
    assert_eq!(odd.empty_contexts, 1, "{odd:?}");
    assert_eq!(enbs.ledger.in_progress(), 1, "the UE goes on");
    let zero = Ids { mme: 0, enb: 0 };
    let nas = nas::encode(&Nas::IdentityRequest).unwrap();
    let first = after(&S1::DownlinkNas {
        ids,
        nas: nas.clone(),
    });
    assert_eq!(first.ledger.anomalies.unknown_ue_ids, 0);
    let (mut enbs, mut out) = (first, Vec::new());
    let octets = s1ap::encode(&S1::DownlinkNas { ids: zero, nas }, &cell()).unwrap();
    enbs.receive(0, PPID, &octets, START, &mut out);
    assert_eq!(enbs.ledger.anomalies.unknown_ue_ids, 1, "another MME UE id");
}

/// A downlink NAS message from the MME, to the one UE.
fn tell(enbs: &mut Enbs, nas: Vec<u8>) -> Vec<nodrop_attach::Outgoing> {
    let ids = Ids { mme: 1, enb: 0 };
    let (mut out, message) = (Vec::new(), S1::DownlinkNas { ids, nas });
    let octets = s1ap::encode(&message, &cell()).unwrap();
    enbs.receive(0, PPID, &octets, START, &mut out);
    out
}

/// NAS of its answers.
fn answered(enbs: &mut Enbs, nas: Vec<u8>) -> Vec<Vec<u8>> {
    let said = tell(enbs, nas);
    let uplink = said
        .iter()
        .map(|message| match s1ap::decode(&message.pdu).unwrap() {
            S1::UplinkNas { nas, .. } => nas,
            other => panic!("{other:?}"),
        });
    uplink.collect()
}

fn challenge(keys: &Subscriber, sqn: u64) -> (Vec<u8>, Kasme) {
    let vector = keys.vector([5; 16], sqn, network());
    let (rand, autn) = (vector.rand, vector.autn);
    let request = nas::encode(&Nas::AuthenticationRequest { rand, autn });
    (request.unwrap(), vector.kasme)
}

/// The UE, challenged, and what the keys of the network come from then.
fn challenged(capability: Capability) -> (Enbs, Kasme) {
    let (mut enbs, mut out) = (enb_with(capability), Vec::new());
    enbs.advance(START, &mut out);
    let (request, kasme) = challenge(&Subscriber::new(&[1; 16], &[2; 16]), 64);
    assert_eq!(tell(&mut enbs, request).len(), 1);
    (enbs, kasme)
}

fn command() -> Nas {
    Nas::SecurityModeCommand {
        eea: 2,
        eia: 2,
        replayed: ALL,
        imeisv: false,
        hash: None,
    }
}

#[test]
fn a_count_that_was_used_is_not_taken_again() {
    let (mut enbs, mut keys) = secured();
    let asks = keys
        .protect(&Nas::IdentityRequest, Way::Down, false)
        .unwrap();
    assert_eq!(tell(&mut enbs, asks.clone()).len(), 1);
    assert_eq!(enbs.ledger.anomalies.mac_failures, 0);
    assert!(tell(&mut enbs, asks).is_empty());
    assert_eq!(enbs.ledger.anomalies.mac_failures, 1);
    assert_eq!(enbs.ledger.in_progress(), 1, "the UE goes on");
}

#[test]
fn an_algorithm_that_does_not_exist_is_refused() {
    let (mut enbs, kasme) = challenged(ALL);
    let mut keys = nas::Context::new(&kasme, 2, 2).unwrap();
    // EEA7 with EIA2, in the place of EEA2 and EIA2; its MAC is not looked at.
    let mut octets = keys.protect(&command(), Way::Down, true).unwrap();
    assert_eq!(octets[8], 0x22);
    octets[8] = 0x72;
    let answers = tell(&mut enbs, octets);
    assert_eq!(answers.len(), 1, "Security Mode Reject");
    assert_eq!(enbs.ledger.anomalies.refused_algorithms, 1);
    assert_eq!(enbs.ledger.aborted, [("security_mode_refused", 1)].into());
}

/// The UE after its Security Mode Complete, and the keys that the network has then.
fn secured() -> (Enbs, nas::Context) {
    let (mut enbs, kasme) = challenged(ALL);
    let mut keys = nas::Context::new(&kasme, 2, 2).unwrap();
    let begins = keys.protect(&command(), Way::Down, true).unwrap();
    assert_eq!(tell(&mut enbs, begins).len(), 1);
    (enbs, keys)
}

fn attached() -> (Enbs, nas::Context) {
    let (mut enbs, mut keys) = secured();
    let accept = Nas::AttachAccept { bearer: 5, pti: 1 };
    let octets = keys.protect(&accept, Way::Down, false).unwrap();
    assert_eq!(tell(&mut enbs, octets).len(), 1, "Attach Complete");
    assert_eq!(enbs.ledger.attached, 1);
    (enbs, keys)
}

#[test]
fn a_security_mode_command_with_a_wrong_mac_is_not_obeyed() {
    let (mut enbs, kasme) = challenged(ALL);
    let mut keys = nas::Context::new(&kasme, 2, 2).unwrap();
    let octets = keys.protect(&command(), Way::Down, true).unwrap();
    let mut spoiled = octets.clone();
    spoiled[1] ^= 1;
    assert!(tell(&mut enbs, spoiled).is_empty());
    assert_eq!(enbs.ledger.anomalies.mac_failures, 1);
    assert_eq!(tell(&mut enbs, octets).len(), 1, "the right one is");
}

/// A message that is late, or comes again: the state that it finds the UE in, its count and the number of its answers.
#[test]
fn what_comes_late_or_again_is_counted_and_changes_no_class() {
    type Count = fn(&mut Anomalies);
    let unexpected: Count = |odd| odd.unexpected += 1;
    let repeats: Count = |odd| odd.repeats += 1;
    let undecodable: Count = |odd| odd.undecodable_nas += 1;
    let accept = Nas::AttachAccept { bearer: 5, pti: 1 };
    let begins = |state: fn() -> (Enbs, nas::Context), message: &Nas| {
        let (enbs, mut keys) = state();
        let octets = keys.protect(message, Way::Down, true).unwrap();
        (enbs, octets)
    };
    let goes_on = |message: &Nas| {
        let (enbs, mut keys) = attached();
        let octets = keys.protect(message, Way::Down, false).unwrap();
        (enbs, octets)
    };
    let plain = nas::encode(&Nas::AttachReject { cause: 11 }).unwrap();
    let identity_with_new_keys = vec![0x37, 0, 0, 0, 0, 0, 0x07, 0x55, 0x01];
    for ((mut enbs, octets), count, answers) in [
        (begins(secured, &command()), repeats, 1),
        ((secured().0, identity_with_new_keys), undecodable, 0),
        (begins(attached, &command()), unexpected, 0),
        (goes_on(&accept), repeats, 1),
        (goes_on(&Nas::AuthenticationReject), unexpected, 0),
        (goes_on(&Nas::AttachReject { cause: 11 }), unexpected, 0),
        ((attached().0, plain), unexpected, 0),
    ] {
        let before = enbs.ledger.ended();
        assert_eq!(tell(&mut enbs, octets).len(), answers);
        let mut expected = Anomalies::default();
        count(&mut expected);
        assert_eq!(enbs.ledger.anomalies, expected);
        assert_eq!(enbs.ledger.ended(), before);
    }
}

/// Whatever else is right: the MAC, and the capabilities that it repeats.
#[test]
fn an_algorithm_that_was_not_offered_is_refused() {
    let offered = Capability::new(&[0, 2], &[2, 3]);
    for (eea, eia) in [(1, 2), (3, 2), (2, 1), (0, 1), (0, 0)] {
        let (mut enbs, kasme) = challenged(offered);
        let mut keys = nas::Context::new(&kasme, eea, eia).unwrap();
        let command = Nas::SecurityModeCommand {
            eea,
            eia,
            replayed: offered,
            imeisv: false,
            hash: None,
        };
        let octets = keys.protect(&command, Way::Down, true).unwrap();
        let reject = nas::encode(&Nas::SecurityModeReject { cause: 23 }).unwrap();
        assert_eq!(answered(&mut enbs, octets), [reject], "EEA{eea}, EIA{eia}");
        assert_eq!(enbs.ledger.anomalies.refused_algorithms, 1);
        assert_eq!(enbs.ledger.aborted, [("security_mode_refused", 1)].into());
    }
}

/// TS 24.301, 5.4.3.3: not refused. The MME gets the request as it was sent.
#[test]
fn a_hash_of_another_attach_request_is_answered_with_the_request() {
    let (first, request) = {
        let (mut enbs, mut out) = (enb_with_one_ue(), Vec::new());
        enbs.advance(START, &mut out);
        let S1::InitialUe { nas, .. } = s1ap::decode(&out[0].pdu).unwrap() else {
            panic!("no Attach Request");
        };
        (nas::hash(&nas), nas)
    };
    for (hash, imeisv, wrong) in [
        (None, true, 0),
        (Some(first), false, 0),
        (Some([7; 8]), true, 1),
    ] {
        let (mut enbs, kasme) = challenged(ALL);
        let mut keys = nas::Context::new(&kasme, 2, 2).unwrap();
        let command = Nas::SecurityModeCommand {
            eea: 2,
            eia: 2,
            replayed: ALL,
            imeisv,
            hash,
        };
        let octets = keys.protect(&command, Way::Down, true).unwrap();
        let said = answered(&mut enbs, octets);
        let complete = Nas::SecurityModeComplete {
            imeisv,
            request: (wrong > 0).then(|| request.clone()),
        };
        assert_eq!(keys.open(&said[0], Way::Up), Ok(complete));
        assert_eq!(enbs.ledger.anomalies.wrong_hashes, wrong);
        assert_eq!(enbs.ledger.in_progress(), 1, "the UE goes on");
    }
}

#[test]
fn a_challenge_that_is_not_the_home_networks_is_answered_by_its_cause() {
    let keys = Subscriber::new(&[1; 16], &[2; 16]);
    let other = Subscriber::new(&[1; 16], &[3; 16]);
    for (by, sqn, cause, ahead) in [(&other, 64, 20, None), (&keys, 0, 21, Some(0))] {
        let (mut enbs, mut out) = (enb_with_one_ue(), Vec::new());
        enbs.advance(START, &mut out);
        let said = answered(&mut enbs, challenge(by, sqn).0);
        let Ok(Nas::AuthenticationFailure { cause: said, auts }) = nas::decode(&said[0], Way::Up)
        else {
            panic!("no Authentication Failure");
        };
        assert_eq!(said, cause);
        let highest = auts.and_then(|auts| keys.resynchronised(&[5; 16], &auts));
        assert_eq!(highest, ahead, "the highest number that the USIM took");
        assert_eq!(enbs.ledger.in_progress(), 1, "the UE goes on");
    }
}

/// Tells of a beginning anew when it is read for the second time.
struct Restarting {
    socket: TcpStream,
    read: u32,
}

impl Association for Restarting {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn is_behind(&self) -> bool {
        false
    }

    fn push(&mut self, _: u32, _: u16, _: &[u8]) {}

    fn flush(&mut self) -> Result<(), Gone> {
        Ok(())
    }

    fn receive(&mut self, _: &mut dyn FnMut(Frame)) -> Result<(), Gone> {
        self.read += 1;
        match self.read {
            1 => Ok(()),
            _ => Err(Gone::Restarted),
        }
    }

    fn finish(&self) {}
}

#[test]
fn an_association_that_begins_anew_takes_its_ues() {
    let mut enbs = Enbs::new(one_ue(ALL), mono_ns());
    let (near, _far) = pair();
    let link = Restarting {
        socket: near,
        read: 0,
    };
    offer(&mut enbs, vec![Box::new(link)], &|| false, &mut |_, _| {});
    assert_eq!((enbs.ledger.started, enbs.ledger.ended()), (1, 1));
    assert_eq!(enbs.ledger.aborted, [("association_lost", 1)].into());
}

#[test]
fn a_procedure_that_no_attach_has_or_that_nobody_knows_is_counted() {
    // Overload Start of TS 36.413, and procedure 250, which it does not have; both without a field.
    for procedure in [34, 250] {
        let (mut enbs, mut out) = (enb_with_one_ue(), Vec::new());
        enbs.advance(START, &mut out);
        enbs.receive(0, PPID, &[0, procedure, 0x40, 3, 0, 0, 0], START, &mut out);
        let odd = enbs.ledger.anomalies;
        assert_eq!(odd.unexpected + odd.undecodable_pdus, 1, "{odd:?}");
        assert_eq!(enbs.ledger.in_progress(), 1, "the UE goes on");
    }
}

#[test]
fn one_imsi_at_two_enodebs_is_one_subscriber_and_both_books_close() {
    let home = Home {
        subscribers: one_subscriber(),
        network: network(),
    };
    let mut mme = Mme::new(home, Faults::default(), 2, 2);
    let mut both = [enb_with_one_ue(), enb_with_one_ue()];
    let mut now = START;
    for _ in 0..100_000 {
        if both.iter().all(Enbs::is_over) {
            break;
        }
        let mut down = Vec::new();
        mme.advance(now, &mut down);
        for (link, enbs) in both.iter_mut().enumerate() {
            let mut up = Vec::new();
            enbs.advance(now, &mut up);
            for message in up {
                mme.receive(link, PPID, &message.pdu, now, &mut down);
            }
        }
        while let Some(message) = down.pop() {
            let mut up = Vec::new();
            let link = message.link;
            both[link].receive(0, PPID, &message.pdu, now, &mut up);
            for message in up {
                mme.receive(link, PPID, &message.pdu, now, &mut down);
            }
        }
        now += 10_000_000;
    }
    for enbs in &both {
        assert!(enbs.is_over());
        assert_eq!((enbs.ledger.started, enbs.ledger.ended()), (1, 1));
    }
    assert!(
        mme.ues() <= 1,
        "the later attach takes the earlier one's place"
    );
}

fn pair() -> (TcpStream, Framed) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, Framed::new(far).unwrap())
}

fn read_until_gone(mut framed: Framed) -> (usize, Gone) {
    let mut frames = 0;
    loop {
        if let Err(gone) = framed.receive(&mut |_| frames += 1) {
            return (frames, gone);
        }
    }
}

#[test]
fn a_message_that_is_too_long_or_cut_off_ends_the_association() {
    let frame = |octets: u32, body: &[u8]| {
        let mut all = octets.to_be_bytes().to_vec();
        all.extend(PPID.to_be_bytes());
        all.extend(0_u16.to_be_bytes());
        all.extend(body);
        all
    };
    for (octets, whole) in [
        (frame(u32::MAX, &[]), 0),
        (frame(65_537, &[0; 100]), 0),
        ([frame(3, &[1, 2, 3]), frame(9, &[1, 2])].concat(), 1),
        (vec![0, 0, 0], 0),
    ] {
        let (mut near, framed) = pair();
        near.write_all(&octets).unwrap();
        drop(near);
        let (frames, gone) = read_until_gone(framed);
        assert_eq!(frames, whole);
        assert!(matches!(gone, Gone::Broken), "{gone}");
    }
    let (near, framed) = pair();
    drop(near);
    assert!(matches!(read_until_gone(framed), (0, Gone::Closed)));
}

/// An MME that answers S1 Setup Requests with these, in their order; how many came.
fn answering(answers: Vec<Vec<u8>>) -> (Address, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Framed(listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = 0;
        for octets in answers {
            let mut header = [0; 10];
            if stream.read_exact(&mut header).is_err() {
                break;
            }
            let length = u32::from_be_bytes(header[..4].try_into().unwrap());
            let mut pdu = vec![0; usize::try_from(length).unwrap()];
            stream.read_exact(&mut pdu).unwrap();
            assert_eq!(s1ap::decode(&pdu).unwrap(), S1::SetupRequest);
            asked += 1;
            let mut out = u32::try_from(octets.len()).unwrap().to_be_bytes().to_vec();
            out.extend(PPID.to_be_bytes());
            out.extend(0_u16.to_be_bytes());
            out.extend(octets);
            stream.write_all(&out).unwrap();
        }
        asked
    });
    (address, served)
}

#[test]
fn a_setup_failure_with_a_time_to_wait_is_asked_again_and_one_without_is_final() {
    let octets = |message: S1| s1ap::encode(&message, &cell()).unwrap();
    let wait = octets(S1::SetupFailure { wait_s: Some(1) });
    let mut no_wait = wait.clone();
    no_wait.truncate(wait.len() - 5); // the last of its two fields
    no_wait[3] -= 5;
    no_wait[6] -= 1;
    let read = s1ap::decode(&no_wait).unwrap();
    assert_eq!(read, S1::SetupFailure { wait_s: None });
    let (mme, served) = answering(vec![wait, octets(S1::SetupResponse)]);
    associate(mme, &cell(), LONGEST, &|| false).unwrap();
    assert_eq!(served.join().unwrap(), 2);
    let (mme, served) = answering(vec![no_wait]);
    let refused = associate(mme, &cell(), LONGEST, &|| false).err().unwrap();
    assert!(matches!(refused, NoAssociation::Failure(_)), "{refused}");
    assert_eq!(served.join().unwrap(), 1);
}

#[test]
fn an_mme_that_closes_during_setup_is_named() {
    let (mme, served) = answering(vec![]);
    let refused = associate(mme, &cell(), LONGEST, &|| false).err().unwrap();
    assert!(matches!(refused, NoAssociation::Gone(..)), "{refused}");
    assert_eq!(served.join().unwrap(), 0);
}

/// Messages that an MME may send, to be damaged.
fn said(which: usize) -> Vec<u8> {
    let ids = Ids { mme: 1, enb: 0 };
    let nas = |message: Nas| nas::encode(&message).unwrap();
    let vector = Subscriber::new(&[1; 16], &[2; 16]).vector([5; 16], 64, network());
    let (rand, autn) = (vector.rand, vector.autn);
    let message = match which % 6 {
        0 => S1::DownlinkNas {
            ids,
            nas: nas(Nas::AuthenticationRequest { rand, autn }),
        },
        1 => S1::DownlinkNas {
            ids,
            nas: nas(Nas::IdentityRequest),
        },
        2 => S1::ContextSetupRequest {
            ids,
            nas: Some(nas(Nas::AttachAccept { bearer: 5, pti: 1 })),
        },
        3 => S1::ReleaseCommand {
            mme: 1,
            enb: Some(0),
        },
        4 => S1::Reset,
        _ => S1::SetupFailure { wait_s: Some(60) },
    };
    s1ap::encode(&message, &cell()).unwrap()
}

/// What the reference MME said to one UE over its life, as it came (fuzz/corpus/attach), and orders of it (fuzz/corpus/nas).
#[test]
fn the_corpus_leaves_the_books_whole() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, holds) in [
        ("attach", property::holds as fn(&[u8])),
        ("nas", in_any_order::holds),
    ] {
        let mut read = 0;
        for file in std::fs::read_dir(corpus.join(name)).unwrap() {
            holds(&std::fs::read(file.unwrap().path()).unwrap());
            read += 1;
        }
        assert!(read >= 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_octets_leave_the_books_whole(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        property::holds(&octets);
        in_any_order::holds(&octets);
    }

    /// Real messages, with some octets of another value and cut off somewhere.
    #[test]
    fn damaged_messages_leave_the_books_whole(
        which: usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
        cut: bool,
    ) {
        let mut octets = said(which);
        for (at, value) in changes {
            let at = at.index(octets.len());
            octets[at] = value;
        }
        if cut {
            octets.truncate(keep.index(octets.len()));
        }
        property::holds(&octets);
    }
}
