//! The reference MME with an HSS and an SGW behind it, without sockets or clock: all books close, whatever comes over S6a and S11.

#![allow(clippy::unwrap_used, missing_docs)]

use nodrop_attach::core::Core;
use nodrop_attach::enb::{Enbs, PPID, Plan};
use nodrop_attach::mme::{Faults, Home, Mme};
use nodrop_attach::stubs::{Hss, Sgw};
use nodrop_attach::subscribers::Subscribers;
use nodrop_attach::wire::aka::{Network, Subscriber};
use nodrop_attach::wire::diameter;
use nodrop_attach::wire::nas::ALL;
use nodrop_attach::wire::s1ap::Cell;
use nodrop_attach::wire::s6a::Request;
use proptest::prelude::*;

#[path = "../../../fuzz/properties/diameter.rs"]
mod over_s6a;

#[path = "../../../fuzz/properties/gtp.rs"]
mod over_s11;

const SECOND: u64 = 1_000_000_000;
const FIRST: u64 = 1_010_000_000_001;
const FLIGHT: u64 = 50_000;

struct World {
    enbs: Enbs,
    mme: Mme,
    hss: Hss,
    sgw: Sgw,
}

fn subscribers(count: u64) -> Subscribers {
    Subscribers::Range {
        first: FIRST,
        count,
        keys: Subscriber::new(&[1; 16], &[2; 16]),
    }
}

fn network() -> Network {
    Network::new("001", "01").unwrap()
}

fn home(count: u64) -> Home {
    Home {
        subscribers: subscribers(count),
        network: network(),
    }
}

fn world(ues: u32, at_home: u64, faults: Faults) -> World {
    let plan = Plan {
        count: ues,
        rate: 1000.0,
        subscribers: subscribers(ues.into()),
        network: network(),
        capability: ALL,
        hold_ns: Some(SECOND),
        timeout_ns: 15 * SECOND,
        release_ns: 5 * SECOND,
        cells: vec![Cell {
            mcc: "001".into(),
            mnc: "01".into(),
            tac: 1,
            enb_id: 1,
        }],
    };
    World {
        enbs: Enbs::new(plan, SECOND),
        // The MME has no subscribers of its own: each vector is the HSS's.
        mme: Mme::new(home(0), faults, 2, 2).with_core(),
        hss: Hss::new(home(at_home)),
        sgw: Sgw::default(),
    }
}

/// What becomes of a message between MME and HSS or SGW; `None` = lost.
type Spoil<'a> = &'a mut dyn FnMut(Vec<u8>) -> Option<Vec<u8>>;

impl World {
    fn run(&mut self, spoil: Spoil<'_>) {
        let (mut now, mut up, mut down) = (SECOND, Vec::new(), Vec::new());
        for _ in 0..1_000_000 {
            if self.enbs.is_over() {
                return;
            }
            self.enbs.advance(now, &mut up);
            self.mme.advance(now, &mut down);
            let said = std::mem::take(&mut up);
            for message in &said {
                self.mme.receive(0, PPID, &message.pdu, now, &mut down);
            }
            let core = self.mme.core().unwrap();
            let asked = (
                std::mem::take(&mut core.to_hss),
                std::mem::take(&mut core.to_sgw),
            );
            let moved = !(said.is_empty() && asked.0.is_empty() && asked.1.is_empty());
            for octets in asked.0 {
                let answer = spoil(octets).and_then(|octets| self.hss.answer(&octets));
                if let Some(octets) = answer.and_then(&mut *spoil) {
                    self.mme.from_hss(&octets, now + FLIGHT, &mut down);
                }
            }
            for octets in asked.1 {
                let answer = spoil(octets).and_then(|octets| self.sgw.answer(&octets));
                if let Some(octets) = answer.and_then(&mut *spoil) {
                    self.mme.from_sgw(&octets, now + FLIGHT, &mut down);
                }
            }
            let told = std::mem::take(&mut down);
            for message in &told {
                self.enbs.receive(0, PPID, &message.pdu, now, &mut up);
            }
            now = if moved || !told.is_empty() {
                now + FLIGHT
            } else {
                let due = self.enbs.next_due().into_iter().chain(self.mme.next_due());
                due.min().unwrap_or(now).max(now + 1)
            };
        }
        panic!("it does not end");
    }

    fn closes(&self, ues: u64) {
        assert_eq!(
            (self.enbs.ledger.started, self.enbs.ledger.ended()),
            (ues, ues)
        );
    }
}

#[test]
fn each_attach_asks_the_hss_twice_and_has_one_session() {
    let mut world = world(200, 200, Faults::default());
    world.run(&mut Some);
    world.closes(200);
    let ledger = &world.enbs.ledger;
    assert_eq!(
        (ledger.attached, ledger.detached, ledger.unreleased),
        (200, 200, 0)
    );
    let asked = |of: &nodrop_attach::stubs::Counts, name| of.requests.get(name).copied();
    let hss = &world.hss.counts;
    assert_eq!(asked(hss, "link"), Some(1));
    assert_eq!(asked(hss, "authentication_information"), Some(200));
    assert_eq!(asked(hss, "update_location"), Some(200));
    let sgw = &world.sgw.counts;
    for name in ["create_session", "modify_bearer", "delete_session"] {
        assert_eq!(asked(sgw, name), Some(200), "{name}");
    }
    assert_eq!((hss.refused, hss.undecodable), (0, 0));
    assert_eq!(
        (sgw.refused, sgw.undecodable, sgw.peak_sessions),
        (0, 0, 200)
    );
    let core = world.mme.core().unwrap();
    assert_eq!(
        (core.undecodable, core.hss_us.len(), core.sgw_us.len()),
        (0, 400, 600)
    );
    assert_eq!(core.hss_us.max(), FLIGHT / 1000);
    assert_eq!(world.mme.ues(), 0);
}

#[test]
fn an_imsi_that_the_hss_does_not_have_is_turned_away_by_its_cause() {
    let mut world = world(10, 7, Faults::default());
    world.run(&mut Some);
    world.closes(10);
    assert_eq!(world.enbs.ledger.rejected, [(2, 3)].into());
    assert_eq!(
        (world.enbs.ledger.attached, world.hss.counts.refused),
        (7, 3)
    );
}

/// A Diameter answer that says something else than success.
#[test]
fn an_hss_that_fails_is_a_network_failure() {
    let mut world = world(4, 4, Faults::default());
    world.run(&mut |octets| {
        let message = diameter::Message::decode(&octets).ok();
        let Some(mut message) = message.filter(|message| !message.request) else {
            return Some(octets);
        };
        let result = message.avps.iter_mut().find(|avp| avp.code == 268);
        result.unwrap().data = 5012_u32.to_be_bytes().into();
        Some(message.encode())
    });
    world.closes(4);
    assert_eq!(world.enbs.ledger.rejected, [(17, 4)].into());
}

#[test]
fn a_silent_hss_lets_ues_time_out_and_a_session_that_comes_late_is_ended() {
    let mut silent = world(5, 5, Faults::default());
    silent.run(&mut |_| None);
    silent.closes(5);
    assert_eq!(silent.enbs.ledger.timed_out, 5);
    // A UE that is turned away after its session stands leaves none behind.
    let faults = Faults {
        bad_mac: 0.5,
        seed: 3,
        ..Faults::default()
    };
    let mut spoiled = world(40, 40, faults);
    spoiled.run(&mut Some);
    spoiled.closes(40);
    let (created, deleted) = (
        spoiled.sgw.counts.requests.get("create_session").copied(),
        spoiled.sgw.counts.requests.get("delete_session").copied(),
    );
    assert!(spoiled.enbs.ledger.attached < 40);
    assert!(deleted.unwrap_or(0) <= created.unwrap_or(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lost_and_damaged_messages_leave_the_books_whole(
        lost in 0.0..0.5_f64, damaged in 0.0..0.5_f64, seed: u64,
    ) {
        let mut dice = seed;
        let mut throw = move || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) as f64 / f64::from(1_u32 << 31)
        };
        let mut world = world(20, 20, Faults::default());
        world.run(&mut |mut octets| {
            if throw() < lost {
                return None;
            }
            if throw() < damaged {
                let back = usize::try_from(seed % 64 + 1).unwrap();
                let at = octets.len() - 1 - octets.len().min(back) / 2;
                octets[at] ^= 0x55;
            }
            Some(octets)
        });
        world.closes(20);
    }

    #[test]
    fn any_octets_over_s6a_and_s11_leave_the_books_whole(octets in prop::collection::vec(any::<u8>(), 0..400)) {
        over_s6a::holds(&octets);
        over_s11::holds(&octets);
    }
}

#[test]
fn the_corpus_of_s6a_and_s11_leaves_the_books_whole() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, holds) in [
        ("diameter", over_s6a::holds as fn(&[u8])),
        ("gtp", over_s11::holds),
    ] {
        let mut read = 0;
        for file in std::fs::read_dir(corpus.join(name)).unwrap() {
            holds(&std::fs::read(file.unwrap().path()).unwrap());
            read += 1;
        }
        assert!(read >= 3);
    }
}

/// fuzz/corpus has what both ends say. pycrate 0.8.1 (see vectors.rs) read each of these files by its own schema of S6a and
/// GTPv2-C, and wrote the same octets again.
#[test]
fn s6a_and_s11_are_as_pycrate_read_them() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let read = |name: String| std::fs::read(corpus.join(name)).unwrap();
    let (mut core, mut hss, mut sgw) = (Core::new("001", "01"), Hss::new(home(10)), Sgw::default());
    let imsi = || "001010000000001".to_owned();
    let unknown = "9".to_owned();
    for request in [
        Request::Vector {
            imsi: imsi(),
            ahead: None,
        },
        Request::Vector {
            imsi: imsi(),
            ahead: Some(([1; 16], [2; 14])),
        },
        Request::Location { imsi: imsi() },
        Request::Location { imsi: unknown },
    ] {
        core.ask(1, &request, 1);
    }
    let names = ["hello", "vector", "ahead", "location", "unknown"];
    for (name, octets) in names.iter().zip(&core.to_hss) {
        assert_eq!(octets, &read(format!("diameter/{name}_request")), "{name}");
        let answer = hss.answer(octets).unwrap();
        assert_eq!(answer, read(format!("diameter/{name}_answer")), "{name}");
    }
    core.create(1, &imsi(), 1);
    core.modify(1, 1, 7, 1);
    core.delete(1, 1, 1);
    for (name, octets) in ["create", "modify", "delete"].iter().zip(&core.to_sgw) {
        assert_eq!(octets, &read(format!("gtp/{name}_request")), "{name}");
        let response = sgw.answer(octets).unwrap();
        assert_eq!(response, read(format!("gtp/{name}_response")), "{name}");
    }
}
