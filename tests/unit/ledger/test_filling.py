"""Fillings of made queues, packet by packet: what filled them is the part that is named."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from nodrop.ledger.cause import causes_of
from nodrop.ledger.filling import Filler, Filling, filling
from nodrop.ledger.twin import Queue
from nodrop.testbed.suts.suricata.sut import RING
from tests.made import queues
from tests.made.queues import Cost
from tests.made.threads import BEGIN_NS, Made, World

RANDOM = Random(1)
EVEN = sorted(RANDOM.random() for _ in range(2000))
"""Half of what is served at 5X."""
BURST = sorted([*EVEN, *(0.6 + n * 1e-5 for n in range(400))])


def usual(at: float) -> float:
    return 50e-6


def costly(at: float) -> float:
    return 6e-4 if 0.6 <= at < 0.63 else 50e-6


def filled(
    packets: list[float], cost: Cost, times: int, away: tuple[float, float] | None = None
) -> Filling:
    came = queues.arrivals(packets, cost, times)
    found = filling(queues.queue(came, 600, away=[away] if away else []))
    assert found is not None
    assert found.lost == len(queues.serve(came, 600, [away] if away else []).lost)
    assert sum(found.parts.values()) == pytest.approx(1.0)
    return found


@pytest.mark.parametrize(
    ("packets", "cost", "times", "away", "filler"),
    [
        (EVEN, costly, 5, None, Filler.COST),
        (BURST, usual, 5, None, Filler.BURST),
        (EVEN, usual, 5, (0.6, 0.7), Filler.ABSENCE),
        (EVEN, usual, 13, None, Filler.OVERLOAD),
    ],
    ids=["cost", "burst", "absence", "overload"],
)
def test_one_filler_alone(
    packets: list[float],
    cost: Cost,
    times: int,
    away: tuple[float, float] | None,
    filler: Filler,
) -> None:
    found = filled(packets, cost, times, away)
    assert found.parts[filler] > 0.9
    ((begin_ns, end_ns),) = found.spans
    if filler is not Filler.OVERLOAD:
        assert 0.58e9 <= begin_ns <= 0.61e9 and end_ns <= 0.8e9
    assert found.asleep_ratio < 0.05


@pytest.mark.parametrize(
    ("every_s", "away_s", "filler"),
    [
        (0.025, 0.001, Filler.OVERLOAD),
        (0.01, 0.0006, Filler.OVERLOAD),
        (0.03, 0.006, Filler.ABSENCE),
        (0.01, 0.002, Filler.ABSENCE),
    ],
    ids=["4 %", "6 %", "20 %", "20 %, more often"],
)
def test_a_few_per_cent_that_a_host_always_takes_are_no_absence(
    every_s: float, away_s: float, filler: Filler
) -> None:
    """The load is just what the reader serves with all of its CPU; the ring holds 30 ms of its
    work."""
    came = queues.arrivals(EVEN, usual, 10)
    away = [(n * every_s, n * every_s + away_s) for n in range(int(1 / every_s))]
    found = filling(queues.queue(came, 600, away=away))
    assert found is not None
    assert max(found.parts, key=found.parts.__getitem__) is filler
    assert found.served_pps == pytest.approx((1 - away_s / every_s) / 50e-6, rel=0.02)


def test_half_of_it_kept_off_and_half_of_it_a_burst() -> None:
    packets = sorted([*EVEN, *(0.6 + n * 1e-5 for n in range(160))])
    found = filled(packets, usual, 5, (0.6, 0.64))
    assert found.parts[Filler.ABSENCE] == pytest.approx(0.5, abs=0.1)
    assert found.parts[Filler.BURST] == pytest.approx(0.5, abs=0.1)


def test_the_packets_that_cost_so_much_are_those_of_their_moment() -> None:
    """... by when they came, not by when they were served."""
    moment = filled(EVEN, costly, 4).costliest
    assert moment is not None
    assert moment.begin_s == pytest.approx(0.6, abs=0.003)
    assert moment.end_s <= 0.631
    assert moment.each_us > 8 * moment.usual_us


def test_a_reader_that_sleeps_while_packets_wait_is_seen_to_sleep() -> None:
    """A pace of its own: it runs 2 us of the 150 that it takes for a packet."""
    came = queues.arrivals(EVEN, lambda at: 150e-6, 4)
    ring = queues.queue(came, 600)
    reader = [
        type(row)(begin_ns=row.begin_ns, end_ns=row.end_ns, ran_ns=row.ran_ns / 75, kept_off_ns=0.0)
        for row in ring.reader
    ]
    found = filling(Queue(slots=600, looks=ring.looks, reader=reader, lost=ring.lost))
    assert found is not None
    assert found.asleep_ratio > 0.9
    assert found.parts[Filler.OVERLOAD] > 0.9
    assert found.serves_pps == pytest.approx(1 / 150e-6, rel=0.05)


def test_a_ring_that_lost_nothing_has_no_filling() -> None:
    assert filling(queues.queue(queues.arrivals(EVEN, usual, 3), 600)) is None


# The cause that is named of it.


@pytest.mark.parametrize(
    ("packets", "cost", "times", "away", "rule"),
    [
        (EVEN, costly, 5, None, "costly"),
        (BURST, usual, 5, None, "burst"),
        (EVEN, usual, 5, (0.6, 0.7), "other_programs"),
        (EVEN, usual, 13, None, "saturated"),
    ],
    ids=["cost", "burst", "absence", "overload"],
)
def test_a_filling_names_the_cause(
    packets: list[float], cost: Cost, times: int, away: tuple[float, float] | None, rule: str
) -> None:
    """No reading of the SUT's counters is needed for it."""
    came = queues.arrivals(packets, cost, times)
    queue = replace(queues.queue(came, 600, away=[away] if away else []), thread="W#01")
    busy = 0.2 if away else 0.97
    world = World(threads={"W#01": [Made(ran=busy, waited=0.98 - busy)]}, others={0: 0.98 - busy})
    found = filling(queue)
    assert found is not None
    shifted = [(BEGIN_NS + begin, BEGIN_NS + end) for begin, end in found.spans]
    running = replace(world.running(), losses=(), filling=replace(found, spans=shifted))
    first, *_ = causes_of(RING, running)
    assert (first.rule, first.thread) == (rule, "W#01")
    assert first.evidence["filled_by_" + str(FILLERS[rule]) + "_ratio"] > 0.8
    assert "time left" not in first.knob, "it ran 97 % of the time, by its own evidence"


@pytest.mark.parametrize(
    ("throttled", "rules"),
    [
        (0.0, ["other_programs"]),
        (0.2, ["other_programs"]),
        (0.42, ["other_programs", "throttled"]),
        (0.56, ["throttled", "other_programs"]),
        (0.8, ["throttled"]),
    ],
)
def test_all_that_kept_it_off_its_cpu_for_about_as_long_are_named(
    throttled: float, rules: list[str]
) -> None:
    came = queues.arrivals(EVEN, usual, 5)
    found = filling(replace(queues.queue(came, 600, away=[(0.6, 0.7)]), thread="W#01"))
    assert found is not None
    world = World(threads={"W#01": [Made(ran=0.02, waited=0.96)]}, others={0: 0.9})
    shifted = [(BEGIN_NS + begin, BEGIN_NS + end) for begin, end in found.spans]
    running = world.running(throttled=[(0.0, 0.0), (3.0, 3 * throttled)])
    running = replace(running, losses=(), filling=replace(found, spans=shifted))
    assert [cause.rule for cause in causes_of(RING, running)] == rules


FILLERS = {
    "costly": Filler.COST,
    "burst": Filler.BURST,
    "other_programs": Filler.ABSENCE,
    "saturated": Filler.OVERLOAD,
}


def test_packets_that_wait_for_a_reader_that_sleeps_wait_for_its_own_pace() -> None:
    came = queues.arrivals(EVEN, lambda at: 150e-6, 4)
    found = filling(replace(queues.queue(came, 600), thread="sink-0"))
    assert found is not None
    asleep = replace(
        found,
        asleep_ratio=0.9,
        spans=[(BEGIN_NS + begin, BEGIN_NS + end) for begin, end in found.spans],
    )
    world = World(threads={"sink-0": [Made(ran=0.02)]})
    (cause,) = causes_of(RING, replace(world.running(), losses=(), filling=asleep))
    assert cause.rule == "own_pace"
    assert "ring is large enough" in cause.knob
