"""Loads with other workers or without a flow, against queues that were made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from nodrop.ledger.flow_work import FlowWork
from nodrop.ledger.level import QueueLevel
from nodrop.ledger.sent_flows import Flow, SentFlows
from nodrop.ledger.twin import Queue, RingObservation, fill, limit_times
from nodrop.ledger.what_if import with_workers, without_flow
from nodrop.measure.queues import flow_work, forecast
from tests.made import queues as made

SLOTS = 250
Packet = tuple[float, int]
"""(second, flow)"""


def traffic(flow_of: Callable[[int], int], bursts: Sequence[float] = (0.8, 1.6)) -> list[Packet]:
    """Two seconds of 500 packets/s, with bursts of 0.2 s at 3,000/s."""
    found, at = [], 0.0
    while at < 2.4:
        found.append((at, flow_of(len(found))))
        at += 1 / 3000 if any(begin <= at < begin + 0.2 for begin in bursts) else 1 / 500
    return found


def by_chance(flows: int) -> Callable[[int], int]:
    dice = Random(5)
    found = [dice.randrange(flows) for _ in range(5000)]
    return found.__getitem__


def observed(
    packets: Sequence[Packet],
    cost_s: Sequence[float],
    *,
    replicas: int = 1,
    faster: bool = False,
    unseen: int = 0,
) -> FlowWork:
    """A trial whose replicas begin a little apart; `unseen`: packets that came and were not
    sent."""
    apart = Random(1)
    starts = [apart.uniform(0, 0.02) for _ in range(replicas)]
    sent = sorted((at + start, flow, n) for n, start in enumerate(starts) for at, flow in packets)
    came = [(at, cost_s[flow]) for at, flow, _ in sent]
    flows = [
        Flow(name=f"tcp 10.0.0.1:{80 + n} 10.0.0.2:4000", protocol=6, port=80 + n)
        for n in range(len(cost_s))
    ]
    told = sent[unseen:]
    of = SentFlows(
        flows=flows,
        of_packet=[flow for _, flow, _ in told],
        copy_of_packet=[n for *_, n in told],
    )
    queue = made.queue(came, SLOTS)
    return FlowWork(RingObservation(load=1.0, queues=[queue], faster=faster), of)


def now(work: FlowWork) -> float:
    found = limit_times(RingObservation(load=1.0, queues=[work.queue], faster=work.faster))
    assert found is not None
    return found


def held(packets: Sequence[Packet], cost_s: Sequence[float], slots: int = SLOTS) -> float:
    """The multiple that a ring just holds, packet by packet: each stands for so many."""
    low, high = 0.1, 20.0
    while high / low > 1.002:
        times = (low * high) ** 0.5
        came = [(at, cost_s[flow] * times) for at, flow in packets]
        full = made.serve(came, 1 << 40).highest * times > slots
        low, high = (low, times) if full else (times, high)
    return low


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_limit_without_a_costly_flow_is_that_of_the_others(replicas: int) -> None:
    """A tenth of the packets is of a flow that costs ten times as much: half of the work."""
    cost_s = [0.0021] + [0.00021] * 9
    packets = traffic(by_chance(10))
    work = observed(packets, [cost / replicas for cost in cost_s], replicas=replicas)
    rest = [one for one in packets if one[1]]
    exact = held(rest, cost_s, SLOTS // replicas)
    alone = held(packets, cost_s, SLOTS // replicas)
    assert now(work) == pytest.approx(alone, rel=0.05)
    found = without_flow(work, now(work))
    assert found is not None
    assert (found.flow, found.kind) == ("tcp 10.0.0.1:80 10.0.0.2:4000", "TCP port 80")
    assert found.packets_ratio == pytest.approx(0.1, abs=0.02)
    assert found.work_ratio == pytest.approx(2.1 / 3.99, abs=0.07)
    assert found.fits_times == pytest.approx(exact, rel=0.07)
    assert found.fits_times > 1.5 * alone


def test_one_of_many_equal_flows_is_hardly_missed() -> None:
    work = observed(traffic(lambda n: n * 7 % 50), [0.0004] * 50)
    found = without_flow(work, now(work))
    assert found is not None and found.fits_times < 1.05 * now(work)


def test_what_is_no_ip_has_no_name() -> None:
    work = observed(traffic(by_chance(10)), [0.0021] + [0.00021] * 9)
    nameless = SentFlows(
        flows=work.sent.flows[1:],
        of_packet=[n - 1 if n else 9 for n in work.sent.of_packet],
        copy_of_packet=work.sent.copy_of_packet,
    )
    again = flow_work([work.queue], faster=False, sent=nameless)
    assert again is not None and without_flow(again, now(again)) is None


def test_two_workers_share_many_equal_flows_and_four_more() -> None:
    work = observed(traffic(lambda n: n * 7 % 400), [0.0004] * 400)
    two, four = with_workers(work, 2), with_workers(work, 4)
    assert two is not None and four is not None
    assert 1.75 < two.fits_times / now(work) < 2.05
    assert 3.0 < four.fits_times / now(work) < 4.1
    assert two.low_times <= two.fits_times <= two.high_times < 1.3 * two.low_times


def test_an_elephant_gains_nothing_by_workers() -> None:
    """Sent faster, it stays one flow; so much of it that no other worker helps."""
    even = [(n / 2000, 0 if n % 10 else 1 + n // 10 % 20) for n in range(4000)]
    work = observed(even, [0.00045] * 21, faster=True)
    found = with_workers(work, 2)
    assert found is not None
    assert 0.98 < found.fits_times / now(work) < 1.15


def test_replicas_of_an_elephant_may_part() -> None:
    """Two replicas bring two elephants, which fall to one worker or to two."""
    work = observed(traffic(lambda n: 0 if n % 10 else 1 + n // 10 % 20), [0.0004] * 21)
    found = with_workers(work, 2)
    assert found is not None
    assert found.low_times / now(work) < 1.25 and found.high_times / now(work) > 1.7


@pytest.mark.parametrize("times", [0.5, 1.0, 1.7])
def test_it_is_the_queue_of_the_twin(times: float) -> None:
    work = observed(traffic(lambda n: n % 10), [0.0004] * 10)
    twin = fill(work.queue.steps, float("inf"), times=times).highest_packets
    assert work.arrivals.levels(times).max() == pytest.approx(twin, abs=0.01)
    assert work.arrivals.repeated(1.0)[0].levels().max() == pytest.approx(
        fill(work.queue.steps, float("inf")).highest_packets, abs=0.01
    )


def test_the_flows_of_a_costly_moment_are_those_that_its_time_went_to() -> None:
    """Flow 3 costs twenty times as much, and comes in one burst alone."""
    packets = traffic(lambda n: 3 if 600 <= n < 900 and n % 5 == 0 else n % 3, bursts=[0.8])
    work = observed(packets, [0.0002, 0.0002, 0.0002, 0.004])
    found = work.within(600, 900)
    assert found is not None
    assert (found.flows, found.packets, found.kind) == (1, 60, "TCP port 83")
    before = work.within(0, 600)
    assert before is not None and before.port in {80, 81, 82}


def test_a_ring_to_which_others_came_as_well_is_not_told_apart() -> None:
    packets, cost_s = traffic(lambda n: n % 10), [0.0004] * 10
    for unseen, known in ((0, True), (20, True), (200, False)):
        work = observed(packets, cost_s, unseen=unseen)
        again = flow_work([work.queue], faster=False, sent=work.sent)
        assert (again is not None) == known
    assert flow_work([work.queue] * 2, faster=False, sent=work.sent) is None
    assert flow_work([work.queue], faster=False, sent=None) is None


def level(queue: Queue, rings: int = 1) -> QueueLevel:
    whole = queue.highest + queue.lost
    return QueueLevel(
        rings=rings, slots=queue.slots, highest_packets=queue.highest,
        highest_ratio=queue.highest / queue.slots, at_s=1.0, above_half_s=0.1, above_ninety_s=0.0,
        lost_packets=queue.lost, excess=whole / queue.slots, looks=len(queue.looks),
        longest_gap_s=0.001,
    )  # fmt: skip


def test_a_trial_near_its_limit_says_both() -> None:
    work = observed(traffic(by_chance(10)), [0.0021] + [0.00021] * 9)
    queues = [work.queue]
    asked = 0

    def sent() -> SentFlows:
        nonlocal asked
        asked += 1
        return work.sent

    seen = level(work.queue)
    told = forecast(seen, queues, faster=False, sent_flows=sent)
    assert [fit.workers for fit in told.workers_fit] == [2, 4] and told.without is not None
    behind = forecast(seen, queues, faster=False, sent_flows=sent, hands_on=True)
    assert behind.workers_fit == () and behind.without == told.without
    assert asked == 2
    unknown = forecast(seen, queues, faster=False, sent_flows=lambda: None)
    assert unknown == replace(told, workers_fit=(), without=None)
    several = forecast(level(work.queue, rings=2), queues, faster=False, sent_flows=sent)
    assert several.fits_times == told.fits_times and several.without is None and asked == 2


def test_far_from_the_limit_nobody_is_asked_for_flows() -> None:
    work = observed(traffic(by_chance(10)), [0.0005] + [0.00018] * 9)

    def sent() -> SentFlows:
        raise AssertionError("asked")

    told = forecast(level(work.queue), [work.queue], faster=False, sent_flows=sent)
    assert told.fits_times is None or told.fits_times > 1.6
