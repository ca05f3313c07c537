"""Losses that the hypervisor does not explain."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nodrop.ledger.imbalance import Arrivals, Running, lost_beyond_steal
from nodrop.ledger.over_time import Losses, Served
from nodrop.ledger.thread_times import CpuTime, ThreadInterval, ThreadTimeline

MS = 1_000_000
STEP_NS = 100 * MS
PPS = 50_000


def host(stolen_ms: Sequence[float], cpu: int = 1) -> ThreadTimeline:
    """A tenth of a second each; CPU 7 is nobody's and loses everything."""
    return ThreadTimeline(
        intervals=[
            ThreadInterval(
                begin_ns=n * STEP_NS,
                end_ns=(n + 1) * STEP_NS,
                threads={},
                sender={},
                cpus={
                    cpu: CpuTime(threads_ns=0, softirq_ns=0, stolen_ns=ms * MS),
                    7: CpuTime(threads_ns=0, softirq_ns=0, stolen_ns=STEP_NS),
                },
            )
            for n, ms in enumerate(stolen_ms)
        ]
    )


def beyond(stolen_ms: Sequence[float], lost: Sequence[int], *, closely: bool = True) -> int | None:
    """`lost` within each tenth of a second, as the SUT reads them, or as one window."""
    whole = Losses(
        thread="sink-0", begin_mono_ns=0, end_mono_ns=len(lost) * STEP_NS, packets=sum(lost)
    )
    readings = [
        Served(mono_ns=(n + 1) * STEP_NS, served=0, lost=sum(lost[: n + 1]), waiting=0)
        for n in range(len(lost))
    ]
    running = Running(
        offered_ns=(0, len(lost) * STEP_NS),
        timeline=ThreadTimeline(),
        losses=(whole,) if sum(lost) else (),
        over_time={"sink-0": readings} if closely else {},
        arrivals=Arrivals(
            first_ns=0, interval_ns=STEP_NS, packets=[PPS // 10 for _ in lost], steady=True
        ),
    )
    return lost_beyond_steal(running, host(stolen_ms), frozenset({1}), len(lost) * STEP_NS)


QUIET = [0.0] * 15


@pytest.mark.parametrize("at", [3, 7, 14])
@pytest.mark.parametrize("late", [0, 1])
def test_what_went_while_a_cpu_was_taken_is_explained(at: int, late: int) -> None:
    stolen = [10.0 if n == at else 0.0 for n in range(15)]
    lost = [240 if n == min(14, at + late) else 0 for n in range(15)]
    assert beyond(stolen, lost) == 0
    assert beyond(stolen, lost, closely=False) == 0


@pytest.mark.parametrize("thefts", [1, 2, 3])
def test_a_load_that_is_too_much_loses_all_the_time(thefts: int) -> None:
    stolen = [10.0 if n < thefts else 0.0 for n in range(15)]
    assert beyond(stolen, [100] * 15) == 100 * (15 - thefts - 2), "a late reading, and aftermath"


def test_more_than_came_is_not_explained() -> None:
    lost = [0, 0, 0, 1400, *[0] * 11]
    stolen = [0.0, 0.0, 0.0, 10.0, *[0.0] * 11]
    assert beyond(stolen, lost) == 1400 - 2 * PPS // 100
    assert beyond(QUIET, lost) == 1400
    assert beyond(QUIET, QUIET_LOSSES) == 0


QUIET_LOSSES = [0] * 15


def test_what_was_lost_after_the_last_reading_is_not_forgotten() -> None:
    lost = [0] * 14 + [300]
    running = Running(
        offered_ns=(0, 15 * STEP_NS),
        timeline=ThreadTimeline(),
        losses=(Losses(thread="sink-0", begin_mono_ns=0, end_mono_ns=15 * STEP_NS, packets=300),),
        over_time={
            "sink-0": [
                Served(mono_ns=(n + 1) * STEP_NS, served=0, lost=0, waiting=0) for n in range(14)
            ]
        },
        arrivals=Arrivals(first_ns=0, interval_ns=STEP_NS, packets=[PPS // 10] * 15),
    )
    early, cpus = host([10.0, *QUIET[1:]]), frozenset({1})
    assert lost_beyond_steal(running, early, cpus, len(lost) * STEP_NS) == 300
    at_the_end = host([*QUIET[1:], 10.0])
    assert lost_beyond_steal(running, at_the_end, cpus, len(lost) * STEP_NS) == 0


def test_what_is_not_known_is_not_said() -> None:
    running = Running(offered_ns=(0, STEP_NS), timeline=ThreadTimeline())
    assert lost_beyond_steal(running, host(QUIET), frozenset({1}), STEP_NS) is None
