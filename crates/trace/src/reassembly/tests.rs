//! Datagrams that come too late, too far apart or into too little memory.
use super::*;

fn piece(id: u16, offset: u32, end: u32, more: bool) -> Fragment {
    let key = Key {
        source: 1,
        destination: 2,
        id,
        protocol: 17,
    };
    let frame_bytes = 34 + end - offset;
    Fragment {
        key,
        offset,
        end,
        more,
        header_bytes: 20,
        ecn_bit: 1,
        frame_bytes,
        tap_bytes: frame_bytes,
    }
}

fn after(limits: Limits, arrivals: &[(u64, Fragment)]) -> Counts {
    let mut queues = Reassembly::new(limits);
    for (now_ns, fragment) in arrivals {
        queues.offer(*now_ns, fragment);
    }
    Counts {
        memory_peak_bytes: 0,
        ..queues.counts()
    }
}

#[test]
fn a_datagram_that_takes_too_long_is_thrown_away() {
    let halves = |later| [(0, piece(1, 0, 8, true)), (later, piece(1, 8, 16, false))];
    let complete = Counts {
        offered_packets: 2,
        absorbed_packets: 2,
        absorbed_bytes: 84,
        datagrams: 1,
        datagram_bytes: 36,
        ..Counts::default()
    };
    assert_eq!(after(Limits::default(), &halves(29_999_999_999)), complete);
    let late = Counts {
        offered_packets: 2,
        timed_out_packets: 1,
        held_packets: 2,
        held_bytes: 84,
        incomplete_packets: 1,
        incomplete_datagrams: 1,
        reasm_fails: 1,
        reasm_timeouts: 1,
        ..Counts::default()
    };
    assert_eq!(after(Limits::default(), &halves(30_000_000_000)), late);
}

/// Found by fuzzing: a capture file may hold any time.
#[test]
fn the_end_of_time_is_no_overflow() {
    let seen = after(Limits::default(), &[(u64::MAX, piece(1, 0, 8, true))]);
    assert_eq!((seen.offered_packets, seen.incomplete_packets), (1, 1));
}

#[test]
fn a_restarted_datagram_has_a_timer_of_its_own() {
    let limits = Limits {
        max_distance: 1,
        ..Limits::default()
    };
    let arrivals = [
        (0, piece(1, 0, 8, true)),
        (1, piece(2, 0, 8, true)),
        (20_000_000_000, piece(1, 0, 8, true)),
        (40_000_000_000, piece(1, 8, 16, false)),
    ];
    let expected = Counts {
        offered_packets: 4,
        held_packets: 2,
        held_bytes: 84,
        too_far_packets: 1,
        timed_out_packets: 1,
        absorbed_packets: 2,
        absorbed_bytes: 84,
        datagrams: 1,
        datagram_bytes: 36,
        reasm_fails: 2,
        reasm_timeouts: 1,
        ..Counts::default()
    };
    assert_eq!(after(limits, &arrivals), expected);
}

#[test]
fn memory_over_the_threshold_refuses() {
    let limits = Limits {
        high_threshold_bytes: 1_000,
        ..Limits::default()
    };
    let arrivals = [(0, piece(1, 0, 8, true)), (0, piece(1, 8, 16, false))];
    let expected = Counts {
        offered_packets: 2,
        held_packets: 2,
        held_bytes: 84,
        incomplete_packets: 1,
        incomplete_datagrams: 1,
        refused_packets: 1,
        reasm_fails: 1,
        ..Counts::default()
    };
    assert_eq!(after(limits, &arrivals), expected);
}

proptest::proptest! {
    /// Every fragment is in one class, and what is freed was taken.
    #[test]
    fn the_classes_add_up(
        fragments in proptest::collection::vec((0u16..4, 0u32..6, 0u32..40, proptest::bool::ANY, 0u64..12), 0..200),
        max_distance in 0u32..8,
        high_threshold_bytes in 2_000u64..20_000,
    ) {
        let limits = Limits { max_distance, high_threshold_bytes, ..Limits::default() };
        let mut queues = Reassembly::new(limits);
        let (mut now_ns, mut bytes) = (0, 0);
        for (id, offset, length, more, seconds) in fragments {
            now_ns += seconds * 1_000_000_000;
            bytes += u64::from(34 + length);
            queues.offer(now_ns, &piece(id, offset * 8, offset * 8 + length, more));
        }
        let counts = queues.counts();
        let classes = counts.absorbed_packets + counts.incomplete_packets + counts.timed_out_packets
            + counts.duplicate_packets + counts.overlapping_packets + counts.contradicting_packets
            + counts.oversize_packets + counts.ecn_mixed_packets + counts.too_far_packets
            + counts.refused_packets;
        proptest::prop_assert_eq!(classes, counts.offered_packets);
        proptest::prop_assert_eq!(counts.absorbed_bytes + counts.held_bytes, bytes);
        let whole = queues.datagrams().iter().fold((0, 0), |(n, sum), (length, of)| (n + of, sum + of * u64::from(*length)));
        proptest::prop_assert_eq!(whole, (counts.datagrams, counts.datagram_bytes));
        queues.expire(u64::MAX);
        proptest::prop_assert_eq!(queues.memory_bytes, 0);
    }
}
