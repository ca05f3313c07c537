"""Level of capture rings over a trial, from looks whose truth is known."""

from collections.abc import Sequence

import pytest

from nodrop.ledger.level import QueueLevel, RingLook, RingLooks, level

MS = 1_000_000


def frames(*levels: int, slots: int = 100, dropped: Sequence[int] = ()) -> RingLooks:
    """A ring of frames, looked at once a millisecond; `dropped` are the last looks' sums."""
    sums = [*[0] * (len(levels) - len(dropped)), *dropped]
    looks = [
        RingLook(n * MS, packets, packets, 10 * n, lost)
        for n, (packets, lost) in enumerate(zip(levels, sums, strict=True))
    ]
    return RingLooks(slots=slots, blocks=10, block_bytes=4096, looks=looks)


def found(
    *rings: RingLooks, dropped: int = 0, span_ns: tuple[int, int] = (0, 1000 * MS)
) -> QueueLevel:
    seen = level(rings, span_ns=span_ns, dropped=dropped, mean_frame_bytes=500)
    assert seen is not None
    return seen


def test_the_fullest_moment_and_how_long_it_was_full() -> None:
    seen = found(frames(0, 51, 60, 95, 97, 49, 3))
    assert (seen.highest_packets, seen.highest_ratio, seen.excess) == (97, 0.97, 0.97)
    assert seen.at_s == pytest.approx(0.004)
    assert seen.above_half_s == pytest.approx(0.004)
    assert seen.above_ninety_s == pytest.approx(0.002)
    assert (seen.rings, seen.slots, seen.looks, seen.lost_packets) == (1, 100, 7, 0)


@pytest.mark.parametrize(("lost", "excess"), [(0, 1.0), (7, 1.07), (250, 3.5)])
def test_what_found_no_room_goes_on_top_of_a_full_ring(lost: int, excess: float) -> None:
    assert found(frames(0, 100, 4, dropped=(lost, lost)), dropped=lost).excess == excess


def test_the_sut_counts_what_the_looks_missed() -> None:
    """The owner's reading of its counters sets them to zero between two looks."""
    seen = found(frames(0, 100, 4, dropped=(3, 3)), dropped=8)
    assert (seen.lost_packets, seen.excess) == (8, 1.08)


def test_two_rings_share_a_loss_as_the_looks_saw_it() -> None:
    one, other = frames(0, 100, dropped=(30,)), frames(0, 100, slots=200, dropped=(10,))
    seen = found(one, other, dropped=80)
    assert (seen.rings, seen.slots, seen.lost_packets, seen.excess) == (2, 100, 60, 1.6)


def test_a_loss_that_no_look_placed_is_the_fullest_rings() -> None:
    seen = found(frames(0, 40), frames(0, 90), dropped=5)
    assert (seen.highest_packets, seen.lost_packets) == (90, 5)


def test_looks_before_and_after_the_load_say_nothing() -> None:
    seen = found(frames(80, 5, 6, 70), span_ns=(MS, 2 * MS))
    assert (seen.highest_packets, seen.looks) == (6, 2)
    late = (50 * MS, 60 * MS)
    assert level([frames(80, 5)], span_ns=late, dropped=0, mean_frame_bytes=500) is None
    assert level([], span_ns=(0, MS), dropped=0, mean_frame_bytes=500) is None


@pytest.mark.parametrize(
    ("packets", "full", "slots"), [(900, 9, 1000), (450, 9, 500), (40, 0, 703)]
)
def test_shared_blocks_hold_as_many_packets_as_their_full_ones(
    packets: int, full: int, slots: int
) -> None:
    """A block closes before it is full if packets come slowly; an empty ring is told by sizes."""
    looks = [RingLook(0, 0, 0, 0, 0), RingLook(MS, packets, full, 0, 0)]
    ring = RingLooks(slots=None, blocks=10, block_bytes=40_960, looks=looks)
    seen = found(ring)
    assert (seen.slots, seen.highest_ratio) == (slots, full / 10)
