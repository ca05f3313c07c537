"""Queues whose sockets nobody could count beside their owner."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from nodrop.ledger.level import RingLook, RingLooks
from nodrop.ledger.thread_times import ThreadTimeline
from nodrop.ledger.twin import Sends
from nodrop.measure.queues import by_sends, queues
from nodrop.protocol import SentProfile
from nodrop.testbed.suts.api import SutCounters


def _ring(levels: dict[int, int]) -> RingLooks:
    looks = tuple(RingLook(at_ns, n, n, n, 0) for at_ns, n in levels.items())
    return RingLooks(slots=100, blocks=10, block_bytes=4096, looks=looks, counted=False)


def test_arrivals_are_those_of_the_sender() -> None:
    sends = Sends(first_ns=1_000, bin_ns=100, packets=(10, 0, 40, 50))
    ring = _ring({900: 0, 1_050: 5, 1_300: 20, 1_350: 40, 2_000: 0})
    found = by_sends(ring, ring.looks, sends, 0)
    assert [look.arrived for look in found] == [0, 5, 50, 75, 100]
    assert not any(look.dropped for look in found)
    assert [look.packets for look in found] == [look.packets for look in ring.looks]


def test_losses_fall_into_the_times_in_which_the_ring_was_full() -> None:
    sends = Sends(first_ns=0, bin_ns=100, packets=(100, 100, 300, 100))
    ring = _ring({0: 0, 100: 60, 200: 99, 300: 100, 400: 30})
    found = by_sends(ring, ring.looks, sends, 50)
    lost = [b.dropped - a.dropped for a, b in pairwise(found)]
    assert lost == [0, 10, 30, 10]


def test_without_the_times_of_the_sender_nothing_is_known() -> None:
    ring = _ring({0: 0, 100: 60})
    assert by_sends(ring, ring.looks, None, 0) == []


@pytest.mark.parametrize(("came", "of_the_sender"), [(60, False), (80, False), (81, True)])
def test_arrivals_that_the_looks_lack_are_those_of_the_sender(
    came: int, of_the_sender: bool
) -> None:
    """The owner's own reading of its socket set the counters back."""
    ring = replace(_ring({0: 0, 100: 60}), counted=True)
    found = queues(
        [ring],
        span_ns=(0, 100),
        slots=100,
        mean_frame_bytes=100,
        seen=ThreadTimeline(),
        counters=SutCounters(
            captured_packets=came, dropped_ring_full_packets=0, decoded_packets=came
        ),
        sent=SentProfile(first_mono_ns=0, bin_ns=100, packets=[came]),
        clock_offset_ns=0,
        throttled_ns=lambda _: 0.0,
    )
    assert [queue.looks[-1].arrived for queue in found] == [came if of_the_sender else 60]
