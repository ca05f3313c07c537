"""A thread's counters stand beside what the sampler saw of the same thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.ledger.imbalance import ThreadRole
from nodrop.ledger.thread_times import ThreadTimeline, timeline
from nodrop.measure.offering import thread_books
from nodrop.testbed.suts.api import SutCounters
from nodrop.testbed.suts.sink import Sink
from nodrop.testbed.suts.suricata import Suricata
from tests.made.threads import BEGIN_NS, Made, World

SPAN = BEGIN_NS, BEGIN_NS + 3 * 10**9
SURICATA = Suricata({}, base=Path("/"))


def counters(**per_thread: dict[str, int]) -> SutCounters:
    return SutCounters(
        captured_packets=None,
        dropped_ring_full_packets=None,
        decoded_packets=None,
        per_thread={name.replace("_", "#"): counted for name, counted in per_thread.items()},
    )


def seen(**threads: float) -> ThreadTimeline:
    made = {name.replace("_", "#"): [Made(ran=ran)] for name, ran in threads.items()}
    return timeline(World(threads=made).rows())


def test_counters_and_time_of_each_thread() -> None:
    receive = {"captured_packets": 9, "dropped_ring_full_packets": 2, "decoded_packets": 7}
    found = thread_books(
        SURICATA,
        counters(RX_01=receive, W_01={"decoded_packets": 0, "flows": 3}),
        seen(RX_01=0.5, W_01=0.25, FM_01=0.125, kworker=0.9),
        SPAN,
    )
    assert [(t.name, t.role, t.captured_packets, t.dropped_packets, t.flows) for t in found] == [
        ("RX#01", ThreadRole.RECEIVE, 9, 2, None),
        ("W#01", ThreadRole.WORKER, None, None, 3),
        ("FM#01", ThreadRole.FLOW_MANAGER, None, None, None),
    ], "what is none of Suricata's threads is not listed"
    assert [t.cpu_ratio for t in found] == pytest.approx([0.5, 0.25, 0.125], abs=0.01)


def test_a_thread_that_was_not_watched_has_no_time() -> None:
    (one,) = thread_books(SURICATA, counters(W_01={"decoded_packets": 5}), ThreadTimeline(), SPAN)
    assert (one.decoded_packets, one.cpu_ratio, one.wait_ratio) == (5, None, None)


@pytest.mark.parametrize("instance", [0, 1, 12])
def test_a_thread_of_an_instance_has_the_role_of_its_own_name(instance: int) -> None:
    told = {f"{instance}:RX#01-eth0": {"decoded_packets": 1}}
    given = SutCounters(
        captured_packets=1, dropped_ring_full_packets=0, decoded_packets=1, per_thread=told
    )
    (one,) = thread_books(SURICATA, given, ThreadTimeline(), SPAN)
    assert one.role is ThreadRole.RECEIVE


@pytest.mark.parametrize(
    ("thread", "role"),
    [
        ("RX#01-ndrx0", ThreadRole.RECEIVE),
        ("W#12", ThreadRole.WORKER),
        ("W#01-ndrx0", ThreadRole.WORKER),
        ("FM#01", ThreadRole.FLOW_MANAGER),
        ("FR#02", ThreadRole.FLOW_MANAGER),
        ("Suricata-Main", ThreadRole.OTHER),
        ("US", ThreadRole.OTHER),
        ("sink-0", None),
        ("CPU 0/KVM", None),
    ],
)
def test_roles_of_suricata(thread: str, role: ThreadRole | None) -> None:
    assert SURICATA.role(thread) is role


def test_roles_of_the_sink() -> None:
    sink = Sink({}, base=Path("/"))
    assert (sink.role("sink-3"), sink.role("nodrop-node")) == (ThreadRole.WORKER, None)
