#![allow(clippy::unwrap_used)]
use super::*;
use crate::load::Profile;
use crate::trace::tests::trace;
use proptest::prelude::*;

fn request(load: Load) -> Request {
    Request {
        load,
        loops: 1,
        replicas: Replicas::whole(1),
        duration_ns: None,
        pass_ns: None,
        offsets_from: None,
        distinct_loops: false,
    }
}

fn slots(trace: &Trace, request: &Request) -> Vec<(u64, usize, u32)> {
    let plan = Plan::new(trace, request).unwrap();
    plan.slots(trace)
        .map(|slot| (slot.due_ns, slot.packet, slot.replica))
        .collect()
}

#[test]
fn passes_follow_one_mean_gap_apart() {
    let trace = trace(&[1000, 1010, 1040]);
    let request = Request {
        loops: 2,
        ..request(Load::Timing { speed: 2.0 })
    };
    assert_eq!(
        slots(&trace, &request),
        [
            (0, 0, 0),
            (5, 1, 0),
            (20, 2, 0),
            (30, 0, 0),
            (35, 1, 0),
            (50, 2, 0)
        ]
    );
    assert_eq!(
        Plan::new(&trace, &request)
            .unwrap()
            .intended_duration_ns(&trace),
        Some(50)
    );
}

#[test]
fn a_pass_lasts_as_long_as_is_asked_if_its_packets_take_less() {
    let trace = trace(&[1000, 1010, 1040]);
    for (pass_ns, second_ns) in [(200, 100), (61, 31), (60, 30), (7, 30)] {
        let request = Request {
            loops: 2,
            pass_ns: Some(pass_ns),
            ..request(Load::Timing { speed: 2.0 })
        };
        assert_eq!(slots(&trace, &request)[3], (second_ns, 0, 0), "{pass_ns}");
    }
}

#[test]
fn a_constant_rate_goes_round_the_replicas() {
    let request = Request {
        replicas: Replicas::whole(2),
        ..request(Load::Rate { pps: 1e6, burst: 1 })
    };
    assert_eq!(
        slots(&trace(&[0, 7]), &request),
        [(0, 0, 0), (1000, 0, 1), (2000, 1, 0), (3000, 1, 1)]
    );
}

#[test]
fn replicas_in_step_send_each_packet_one_after_the_other() {
    let request = Request {
        replicas: Replicas::whole(2),
        ..request(Load::Timing { speed: 1.0 })
    };
    assert_eq!(
        slots(&trace(&[0, 7]), &request),
        [(0, 0, 0), (0, 0, 1), (7, 1, 0), (7, 1, 1)]
    );
}

#[test]
fn a_duration_ends_passes_and_replicas() {
    let trace = trace(&[0, 10, 20]);
    let timing = Request {
        loops: 0,
        replicas: Replicas::whole(2),
        duration_ns: Some(31),
        ..request(Load::Timing { speed: 1.0 })
    };
    assert_eq!(slots(&trace, &timing).len(), 8, "0, 10, 20, 30 of both");
    let rate = Request {
        load: Load::Rate { pps: 1e8, burst: 1 },
        ..timing
    };
    assert_eq!(slots(&trace, &rate).len(), 4);
}

#[test]
fn offsets_are_small_and_from_the_seed() {
    let trace = trace(&[0, 10_000_000_000]);
    let plan = |seed| {
        let timing = request(Load::Timing { speed: 2.0 });
        Plan::new(
            &trace,
            &Request {
                replicas: Replicas::whole(8),
                offsets_from: Some(seed),
                distinct_loops: false,
                ..timing
            },
        )
        .unwrap()
    };
    let offsets = plan(1).replica_offsets_ns().to_vec();
    assert_eq!(offsets[0], 0);
    assert!(
        offsets.iter().all(|offset| *offset <= 100_000_000),
        "{offsets:?}"
    );
    assert!(
        offsets.iter().any(|offset| *offset > 10_000_000),
        "{offsets:?}"
    );
    assert_eq!(plan(1).replica_offsets_ns(), offsets);
    assert_ne!(plan(2).replica_offsets_ns(), offsets);
}

proptest! {
    /// As many slots as intended, in order of time, the last at the intended duration.
    #[test]
    fn a_plan_is_what_it_says(
        mut times in proptest::collection::vec(0u64..1_000_000, 1..30),
        loops in 1u32..4, replicas in 1u32..5, kind in 0usize..5, limit in proptest::option::of(1u64..2_000_000),
    ) {
        times.sort_unstable();
        let trace = trace(&times);
        let profile = Profile::from_csv("0,10\n1,900\n1.5,30\n2.5,1", true).unwrap();
        let load = [
            Load::TopSpeed,
            Load::Timing { speed: 1.7 },
            Load::Rate { pps: 12_345.6, burst: 3 },
            Load::Bits { bps: 1e6 },
            Load::Profile(profile),
        ][kind].clone();
        let limit = limit.filter(|_| kind > 0);
        let request = Request { load, loops, replicas: Replicas::whole(replicas), duration_ns: limit, pass_ns: None, offsets_from: Some(7), distinct_loops: false };
        let plan = Plan::new(&trace, &request).unwrap();
        let slots: Vec<Slot> = plan.slots(&trace).collect();
        prop_assert_eq!(slots.len() as u64, plan.intended_packets());
        prop_assert!(slots.is_sorted_by_key(|slot| slot.due_ns));
        prop_assert!(slots.iter().all(|slot| limit.is_none_or(|limit| slot.due_ns < limit)));
        if limit.is_none() && kind < 4 {
            let all = times.len() as u64 * u64::from(loops) * u64::from(replicas);
            prop_assert_eq!(slots.len() as u64, all);
        }
        if let (Some(duration), Some(last)) = (plan.intended_duration_ns(&trace), slots.last()) {
            prop_assert_eq!(last.due_ns, duration);
        }
    }
}

#[test]
fn a_time_past_all_clocks_is_left_out() {
    let trace = trace(&[0, 5_000_000, 9_000_000_000]);
    for speed in [1e-9, 1e-12, 1e-300] {
        let request = Request {
            loops: 3,
            replicas: Replicas::whole(4),
            offsets_from: Some(7),
            distinct_loops: false,
            ..request(Load::Timing { speed })
        };
        let slots = slots(&trace, &request);
        assert!(slots.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        let plan = Plan::new(&trace, &request).unwrap();
        // What would be due at the end of all clocks is left out.
        assert_eq!(plan.intended_packets(), slots.len() as u64, "{speed}");
        assert!((4..36).contains(&slots.len()), "{speed}: {}", slots.len());
        let lasts_ns = plan.intended_duration_ns(&trace).unwrap();
        assert_eq!(lasts_ns, slots.last().unwrap().0, "{speed}");
    }
}

proptest! {
    /// What is asked of some packets is what a walk over all slots says of them, in its order.
    #[test]
    fn the_slots_of_some_packets_are_those_of_all_without_the_others(
        times in proptest::collection::vec(0u64..50, 1..20), chosen in proptest::collection::vec(any::<bool>(), 20),
        loops in 1u32..4, multiplier in 0.2f64..4.0, kind in 0usize..4, limit in proptest::option::of(1u64..200), spread: bool,
    ) {
        let mut times = times;
        times.sort_unstable();
        let trace = trace(&times);
        let load = [
            Load::Timing { speed: 0.7 }, Load::Rate { pps: 1e8, burst: 2 }, Load::Bits { bps: 3e9 }, Load::TopSpeed,
        ][kind].clone();
        let request = Request {
            load, loops, replicas: Replicas::of(multiplier, 3).unwrap(), duration_ns: limit.filter(|_| kind < 3), pass_ns: None,
            offsets_from: spread.then_some(5),
            distinct_loops: false,
        };
        let Ok(plan) = Plan::new(&trace, &request) else {
            return Ok(()); // a part with no flow
        };
        let packets: Vec<usize> = (0..times.len()).filter(|packet| chosen[*packet]).collect();
        let expected: Vec<Slot> = plan.slots(&trace).filter(|slot| packets.contains(&slot.packet)).collect();
        let found: Vec<Slot> = plan.slots_of_packets(&trace, &packets).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn each_pass_has_copies_of_its_own_if_it_is_to() {
    let trace = trace(&[0, 10, 20]);
    let of = |load: Load, distinct_loops| -> Vec<(usize, u32, u32)> {
        let request = Request {
            loops: 3,
            replicas: Replicas::whole(2),
            distinct_loops,
            ..request(load)
        };
        let plan = Plan::new(&trace, &request).unwrap();
        let chosen: Vec<Slot> = plan.slots_of_packets(&trace, &[0, 1, 2]).collect();
        let slots: Vec<Slot> = plan.slots(&trace).collect();
        assert_eq!(chosen, slots);
        slots
            .iter()
            .map(|s| (s.packet, s.replica, s.copy))
            .collect()
    };
    for load in [
        Load::Rate { pps: 5.0, burst: 1 },
        Load::Timing { speed: 2.0 },
        Load::TopSpeed,
    ] {
        let expected = |step: u32| -> Vec<(usize, u32, u32)> {
            let passes = (0..3).flat_map(|pass| (0..3).map(move |packet| (pass, packet)));
            let both = passes.flat_map(|(pass, packet)| {
                (0..2).map(move |replica| (packet, replica, replica + pass * step))
            });
            both.collect()
        };
        assert_eq!(of(load.clone(), true), expected(2));
        assert_eq!(of(load, false), expected(0));
    }
}

#[test]
fn copies_without_end_or_number_are_refused() {
    let of = |loops, replicas| {
        let request = Request {
            loops,
            replicas: Replicas::whole(replicas),
            distinct_loops: true,
            duration_ns: Some(1),
            ..request(Load::Rate { pps: 5.0, burst: 1 })
        };
        request.copies()
    };
    assert_eq!(of(3, 5), Ok(15));
    assert_eq!(of(0, 5), Err(PlanError::EndlessCopies));
    let (loops, replicas) = (1 << 20, 1 << 12);
    assert_eq!(
        of(loops, replicas),
        Err(PlanError::TooManyCopies { loops, replicas })
    );
}
