"""Constructed thread models: which role is the limit, and what does not help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from nodrop.ledger.cause import ThreadCause, causes_of
from nodrop.ledger.imbalance import FlowShares, Running, ThreadRole
from nodrop.ledger.worker_threads import Peers, PeerThread
from nodrop.testbed.suts.suricata.sut import RING
from tests.made.threads import Made, World

RX = "RX#01-ndrx0"


def autofp(
    receive: Made, *workers: Made, seconds: float = 3.0, lost: int = 900
) -> tuple[ThreadCause, ...]:
    threads = {RX: [receive], **{f"W#{n:02}": [made] for n, made in enumerate(workers, 1)}}
    world = World(seconds=seconds, threads=threads, cpus=16)
    return causes_of(RING, running(world, lost, {RX: 20_000}))


def running(world: World, lost: int, served: Mapping[str, int]) -> Running:
    roles = {
        name: ThreadRole.RECEIVE if name[0] == "R" else ThreadRole.WORKER for name in world.threads
    }
    thread = next(iter(world.threads))
    return world.running((thread, 0.5, world.seconds - 0.5, lost), served=dict(served), roles=roles)


@pytest.mark.parametrize(("waits", "works"), [(0.61, 0.99), (0.3, 0.92), (0.95, 1.0)])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_full_workers_are_blamed_and_not_the_ring(waits: float, works: float, workers: int) -> None:
    found = autofp(Made(ran=1 - waits), *[Made(ran=works, cpu=n + 1) for n in range(workers)])
    first = found[0]
    assert (first.rule, first.thread) == ("workers_full", RX)
    assert f"used {works * 100:.0f} %" in first.words
    assert f"slept {waits * 100:.0f} %" in first.words
    assert "sut.detect_threads" in first.knob
    assert first.evidence["workers"] == workers


@pytest.mark.parametrize("idle", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_one_worker_alone_may_have_one_flow_or_several(idle: float, workers: int) -> None:
    others = [Made(ran=idle, cpu=n + 2) for n in range(workers - 1)]
    first, *_ = autofp(Made(ran=0.4), *others, Made(ran=0.98, cpu=1))
    assert first.rule == "workers_full"
    rest = "the other one was" if workers == 2 else f"the other {workers - 1} were"
    assert f"; {rest} at most {idle * 100:.0f} % busy" in first.words
    assert "several flows" in first.knob and "sut.detect_threads" not in first.knob


@pytest.mark.parametrize("ran", [0.91, 0.97, 1.0])
@pytest.mark.parametrize("idle", [0.05, 0.3, 0.6])
def test_a_full_receive_thread_before_idle_workers(ran: float, idle: float) -> None:
    first, *_ = autofp(Made(ran=ran), Made(ran=idle, cpu=1), Made(ran=idle / 2, cpu=2))
    assert (first.rule, first.thread) == ("saturated", RX)
    assert f"used {ran * 100:.0f} %" in first.words
    assert f"at most {idle * 100:.0f} %" in first.words
    assert "sut.threads" in first.knob and "sut.detect_threads" not in first.knob


@pytest.mark.parametrize("works", [0.2, 0.6, 0.85])
def test_a_receive_thread_that_sleeps_before_workers_with_time_left_blames_none(
    works: float,
) -> None:
    found = autofp(Made(ran=0.3), Made(ran=works, cpu=1))
    assert "workers_full" not in [cause.rule for cause in found]


@pytest.mark.parametrize(("works", "said"), [(0.86, True), (0.6, True), (0.2, False)])
def test_one_worker_that_is_busy_and_not_full_is_named_beside_own_pace(
    works: float, said: bool
) -> None:
    """A worker of 90 us a packet was seen at 77 %: to be woken takes time as well."""
    found = peers_of(PeerThread(name="w", ran=works, taken=0.0)).asleep_as_well
    assert bool(found) == said == (f"worker w used {works * 100:.0f} %" in found)


def peers_of(*workers: PeerThread) -> Peers:
    return Peers(role=ThreadRole.RECEIVE, workers=workers)


@pytest.mark.parametrize("waits", [0.3, 0.5])
def test_workers_that_wait_for_their_cpu_have_no_time_left_either(waits: float) -> None:
    first, *_ = autofp(Made(ran=0.2), Made(ran=0.98 - waits, waited=waits, cpu=1))
    assert first.rule == "workers_full"
    assert f"kept off it {waits * 100:.0f} %" in first.words


@pytest.mark.parametrize("busy", [0.93, 0.99])
@pytest.mark.parametrize("others", [1, 3])
def test_a_worker_with_its_own_socket_waits_for_no_other(busy: float, others: int) -> None:
    threads = {"W#01-a": [Made(ran=0.5)]}
    threads |= {f"W#{n + 2:02}-a": [Made(ran=busy, cpu=n + 1)] for n in range(others)}
    found = causes_of(RING, running(World(threads=threads, cpus=8), 900, {"W#01-a": 9000}))
    assert found[0].rule != "workers_full"


@pytest.mark.parametrize("idle", [0.1, 0.45])
def test_a_full_worker_beside_idle_ones(idle: float) -> None:
    threads = {"W#01-a": [Made(ran=0.97)], "W#02-a": [Made(ran=idle, cpu=1)]}
    found = causes_of(RING, running(World(threads=threads), 900, {"W#01-a": 9000}))
    assert found[0].rule == "saturated"
    assert f"at most {idle * 100:.0f} %" in found[0].words


def with_flows(world: World, lost: int, sizes: FlowShares) -> tuple[ThreadCause, ...]:
    return causes_of(RING, replace(running(world, lost, {}), flow_sizes=sizes))


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_one_elephant_flow_is_why_one_worker_has_it_all(share: float, workers: int) -> None:
    sizes = FlowShares(flows=900, effective_flows=1 / (share**2 + 0.001), largest_ratio=share)
    others = [Made(ran=0.1, cpu=n + 2) for n in range(workers - 1)]
    threads = {f"W#{n:02}": [made] for n, made in enumerate([Made(ran=0.98, cpu=1), *others])}
    behind = World(threads={RX: [Made(ran=0.3)], **threads}, cpus=16)
    alone = World(threads=threads, cpus=16)
    for world, rule in [(behind, "workers_full"), (alone, "saturated")]:
        first = with_flows(world, 900, sizes)[0]
        assert first.rule == rule
        assert f"one flow has {share * 100:.0f} %" in first.words
        assert "nor do more workers" in first.knob and "sut.threads" not in first.knob


@pytest.mark.parametrize("idle", [0.03, 0.4])
@pytest.mark.parametrize("workers", [3, 4, 8])
def test_two_elephant_flows_on_two_workers(idle: float, workers: int) -> None:
    """More workers would stand idle as the others do."""
    sizes = FlowShares(flows=34, effective_flows=2.4, largest_ratio=0.45)
    others = [Made(ran=idle, cpu=n + 3) for n in range(workers - 2)]
    made = [Made(ran=0.98, cpu=1), Made(ran=0.9, cpu=2), *others]
    threads = {f"W#{n:02}": [one] for n, one in enumerate(made)}
    world = World(threads={RX: [Made(ran=0.3)], **threads}, cpus=16)
    first = with_flows(world, 900, sizes)[0]
    assert first.rule == "workers_full"
    rest = "the other one was" if workers == 3 else f"the other {workers - 2} were"
    assert f"have the work, {rest} at most {idle * 100:.0f} %" in first.words
    assert "2 workers" in first.words and "2 workers" in first.knob
    assert "sut.detect_threads" not in first.knob
    # Of many small flows it is not known why: more workers may help.
    many = with_flows(world, 900, FlowShares(flows=9000, effective_flows=8000, largest_ratio=0.001))
    assert "have the work" not in many[0].words and "sut.detect_threads" in many[0].knob


@pytest.mark.parametrize("flows", [3, 5, 9])
def test_few_flows_are_said_and_more_workers_may_help(flows: int) -> None:
    sizes = FlowShares(flows=flows, effective_flows=flows, largest_ratio=1 / flows)
    world = World(threads={RX: [Made(ran=0.3)], "W#01": [Made(ran=0.97, cpu=1)],
                           "W#02": [Made(ran=0.2, cpu=2)]}, cpus=4)  # fmt: skip
    first = with_flows(world, 900, sizes)[0]
    assert f"{flows} flows" in first.words and "several flows" in first.knob


@pytest.mark.parametrize("busy", [(0.5, 0.5), (0.35, 0.3, 0.3), (0.8, 0.15)])
@pytest.mark.parametrize("slept", [0.5, 0.98])
def test_workers_that_sleep_behind_a_receive_thread_that_sleeps(
    busy: Sequence[float], slept: float
) -> None:
    workers = {f"W#{n:02}": [Made(ran=ran, cpu=n)] for n, ran in enumerate(busy, 1)}
    world = World(threads={RX: [Made(ran=1 - slept)], **workers}, cpus=8)
    roles = {
        name: ThreadRole.RECEIVE if name == RX else ThreadRole.WORKER for name in world.threads
    }
    ran = world.running((RX, 0.5, 2.5, 9000), steady=True, served={RX: 20_000}, roles=roles)
    first = causes_of(RING, ran)[0]
    assert (first.rule, first.thread) == ("own_pace", RX)
    assert f"W#01 used {busy[0] * 100:.0f} %" in first.words
    assert "nodrop profile" in first.knob


FUTEX, POLL = "futex_wait_queue", "do_poll.constprop.0"


@pytest.mark.parametrize("busy", [(0.5, 0.5), (0.35, 0.3, 0.3), (0.85, 0.15)])
@pytest.mark.parametrize("slept", [0.5, 0.98])
def test_a_lock_that_workers_share(busy: Sequence[float], slept: float) -> None:
    found = autofp(
        Made(ran=1 - slept, sleeps_in=FUTEX),
        *[Made(ran=ran, cpu=n, sleeps_in=FUTEX) for n, ran in enumerate(busy, 1)],
    )
    assert (found[0].rule, found[0].thread) == ("lock", RX)
    assert f"W#01 used {busy[0] * 100:.0f} %" in found[0].words
    assert found[0].evidence["in_futex_ratio"] == 1.0
    assert "more workers" in found[0].knob


@pytest.mark.parametrize(
    ("receive", "workers"),
    [
        (POLL, (FUTEX, FUTEX)),
        (FUTEX, (FUTEX, POLL)),
        (FUTEX, (FUTEX,)),
        (None, (FUTEX, FUTEX)),
        (FUTEX, (None, None)),
    ],
    ids=["for packets", "one for time", "one worker", "not seen", "workers not seen"],
)
def test_what_is_no_lock_is_not_called_one(
    receive: str | None, workers: Sequence[str | None]
) -> None:
    found = autofp(
        Made(ran=0.4, sleeps_in=receive),
        *[Made(ran=0.4, cpu=n, sleeps_in=channel) for n, channel in enumerate(workers, 1)],
    )
    assert "lock" not in [cause.rule for cause in found]


@pytest.mark.parametrize("ran", [0.1, 0.5, 0.7])
@pytest.mark.parametrize(("channel", "lock"), [(FUTEX, True), (POLL, False)])
def test_a_worker_with_a_socket_waits_in_a_futex_for_a_lock_alone(
    ran: float, channel: str, lock: bool
) -> None:
    threads = {f"W#{n:02}-a": [Made(ran=ran, cpu=n, sleeps_in=channel)] for n in (1, 2)}
    found = causes_of(RING, running(World(threads=threads, cpus=8), 9000, {"W#01-a": 9000}))
    assert ("lock" in [cause.rule for cause in found]) == lock


def test_a_full_worker_comes_before_any_lock() -> None:
    found = autofp(
        Made(ran=0.2, sleeps_in=FUTEX),
        Made(ran=0.97, cpu=1, sleeps_in=FUTEX),
        Made(ran=0.2, cpu=2, sleeps_in=FUTEX),
    )
    assert found[0].rule == "workers_full"
