"""A SUT's backlog while the load runs is seen by its threads' sleep, and by its counters."""

from __future__ import annotations

import pytest

from nodrop.ledger.imbalance import Arrivals, Running, ThreadRole
from nodrop.ledger.over_time import Losses, Served
from nodrop.ledger.thread_times import ThreadInterval, ThreadTime, ThreadTimeline

STEP = 100_000_000


POLL, NAP, LOCK = "do_poll.constprop.0", "hrtimer_nanosleep", "futex_wait_queue"


def running(
    looks: list[list[str]],
    *,
    state: str = "S",
    role: ThreadRole = ThreadRole.WORKER,
    losses: tuple[Losses, ...] = (),
) -> Running:
    """A load of 1,000 packets an interval; `looks`: each thread's sleep at an interval's end."""
    steps = len(looks[0])
    intervals = [
        ThreadInterval(
            begin_ns=n * STEP,
            end_ns=(n + 1) * STEP,
            threads={
                tid: ThreadTime(
                    ran_ns=0.5 * STEP,
                    waited_ns=0.0,
                    came_on=True,
                    states=("R", state if of[n] else "R"),
                    cpu=0,
                    sleeps_in=of[n],
                )
                for tid, of in enumerate(looks, start=1)
            },
            sender={},
            cpus={},
        )
        for n in range(steps)
    ]
    return Running(
        offered_ns=(0, steps * STEP),
        timeline=ThreadTimeline(intervals=intervals, names={1: "W#01"}),
        arrivals=Arrivals(first_ns=0, interval_ns=STEP, packets=(1_000,) * steps),
        roles=dict.fromkeys(range(1, len(looks) + 1), role),
        losses=losses,
    )


@pytest.mark.parametrize(
    ("looks", "rest"),
    [
        ([[POLL] * 10], (1.0, 9_000)),
        ([[POLL] * 6 + [""] * 4], (0.6, 5_000)),
        ([[POLL] * 6 + [""] * 4, [POLL] * 10], (0.6, 5_000)),
        ([[""] * 10, [POLL] * 10], None),
        ([[NAP] * 10], None),
        ([[LOCK] * 10], None),
        ([[POLL] * 3 + [NAP] * 7], (0.3, 2_000)),
    ],
)
def test_all_threads_that_packets_wait_for_must_sleep_in_poll(
    looks: list[list[str]], rest: tuple[float, int] | None
) -> None:
    """A sink that naps at its own pace sleeps while its ring fills."""
    assert running(looks).last_rest() == (None if rest is None else pytest.approx(rest))


@pytest.mark.parametrize("state", ["D", "T", "t"])
def test_a_thread_that_was_stopped_or_blocked_is_not_at_rest(state: str) -> None:
    assert running([[POLL] * 10], state=state).last_rest() is None


def test_what_lost_packets_or_what_no_packet_waits_for_says_nothing() -> None:
    lost = Losses(thread="", begin_mono_ns=0, end_mono_ns=STEP, packets=5)
    assert running([[POLL] * 10], losses=(lost,)).last_rest() is None
    assert running([[POLL] * 10], role=ThreadRole.FLOW_MANAGER).last_rest() is None


def served(pps: list[float], until_ns: int) -> Running:
    """Counters of two threads that share the work, each 0.1 s."""
    totals, readings = 0.0, []
    for n, rate in enumerate(pps):
        readings.append(Served(mono_ns=n * STEP, served=round(totals / 2), lost=0, waiting=0))
        totals += rate * STEP / 1e9
    return Running(
        offered_ns=(0, until_ns),
        timeline=ThreadTimeline(),
        over_time={"a": readings, "b": readings},
    )


def test_the_fastest_second_counts_from_the_middle_of_the_load_on() -> None:
    early = served([20_000.0] * 20 + [5_000.0] * 30, 50 * STEP)
    assert early.fastest_pps() == pytest.approx(5_000)
    late = served([5_000.0] * 40 + [17_300.0] * 12, 50 * STEP)
    assert late.fastest_pps() == pytest.approx(17_300)
    assert served([5_000.0] * 9, 18 * STEP).fastest_pps() is None


@pytest.mark.parametrize(("serves_pps", "stall"), [(6_000.0, 1), (9_000.0, 1), (4_000.0, 2)])
def test_what_is_made_up_after_a_stall_is_no_pace(serves_pps: float, stall: int) -> None:
    """A sink of 6,000 packets/s was said to serve 7,152: half a second with a tenth made up."""
    stalled = [serves_pps] * 30 + [0.0] * stall + [serves_pps * (1 + stall)] + [serves_pps] * 20
    found = served(stalled, 50 * STEP).fastest_pps()
    assert found is not None and found <= (1 + 0.1001 * stall) * serves_pps
