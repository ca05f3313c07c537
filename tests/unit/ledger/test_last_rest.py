"""What is seen of a SUT's backlog while the load runs: by its threads' sleep, and its counters."""

from __future__ import annotations

import pytest

from nodrop.ledger.over_time import Served
from nodrop.ledger.running import Arrivals, Running
from nodrop.ledger.threads import Role
from nodrop.ledger.timeline import Interval, ThreadTime, Timeline

STEP = 100_000_000


def running(slept: list[list[float]], *, states: str = "SS", role: Role = Role.WORKER) -> Running:
    """Of each thread, the part of each interval that it slept; 1,000 packets come in each."""
    intervals = [
        Interval(
            begin_ns=n * STEP,
            end_ns=(n + 1) * STEP,
            threads={
                tid: ThreadTime(
                    ran_ns=(1 - of[n]) * STEP,
                    waited_ns=0.0,
                    came_on=True,
                    states=(states[0], states[1]),
                    cpu=0,
                )
                for tid, of in enumerate(slept, start=1)
            },
            sender={},
            cpus={},
        )
        for n in range(len(slept[0]))
    ]
    steps = len(slept[0])
    return Running(
        offered_ns=(0, steps * STEP),
        timeline=Timeline(intervals=intervals, names={1: "W#01"}),
        arrivals=Arrivals(first_ns=0, interval_ns=STEP, packets=(1_000,) * steps),
        roles=dict.fromkeys(range(1, len(slept) + 1), role),
    )


@pytest.mark.parametrize(
    ("slept", "rest"),
    [
        ([[0.5] * 10], (0.9, 9_000)),
        ([[0.5] * 6 + [0.0] * 4], (0.5, 5_000)),
        ([[0.5] * 6 + [0.0] * 4, [0.5] * 10], (0.5, 5_000)),
        ([[0.0] * 10, [0.9] * 10], None),
        ([[0.1] * 10], None),
    ],
)
def test_all_threads_that_packets_wait_for_must_sleep(
    slept: list[list[float]], rest: tuple[float, int] | None
) -> None:
    assert running(slept).last_rest() == (None if rest is None else pytest.approx(rest))


@pytest.mark.parametrize("states", ["DS", "ST", "tS"])
def test_a_thread_that_was_stopped_or_blocked_is_not_at_rest(states: str) -> None:
    assert running([[0.9] * 10], states=states).last_rest() is None


def test_a_thread_that_no_packet_waits_for_says_nothing() -> None:
    assert running([[0.9] * 10], role=Role.FLOW_MANAGER).last_rest() is None


def served(pps: list[float], until_ns: int) -> Running:
    """Counters of two threads that share the work, each 0.1 s."""
    totals, readings = 0.0, []
    for n, rate in enumerate(pps):
        readings.append(Served(mono_ns=n * STEP, served=round(totals / 2), lost=0, waiting=0))
        totals += rate * STEP / 1e9
    return Running(
        offered_ns=(0, until_ns),
        timeline=Timeline(),
        over_time={"a": readings, "b": readings},
    )


def test_the_fastest_half_second_counts_from_the_middle_of_the_load_on() -> None:
    early = served([20_000.0] * 20 + [5_000.0] * 30, 50 * STEP)
    assert early.fastest_pps() == pytest.approx(5_000)
    late = served([5_000.0] * 40 + [17_300.0] * 12, 50 * STEP)
    assert late.fastest_pps() == pytest.approx(17_300)
    assert served([5_000.0] * 3, 50 * STEP).fastest_pps() is None
