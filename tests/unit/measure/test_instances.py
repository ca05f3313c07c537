"""The sums over instances, and what no sum may hide."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from nodrop.errors import TrialFailed
from nodrop.ledger.balance import balance
from nodrop.ledger.hops import Account, Class, Hop
from nodrop.ledger.outcome import Reason
from nodrop.ledger.sender import Sending
from nodrop.ledger.verdict import judge
from nodrop.measure.packets import instances
from nodrop.measure.packets.instances import Instance, _summed, imbalance_ratio
from nodrop.testbed.suts.api import Drained, RunningSut, SutCounters


def counters(captured: int, dropped: int | None = 0) -> SutCounters:
    return SutCounters(
        captured_packets=captured,
        dropped_ring_full_packets=dropped,
        decoded_packets=captured - (dropped or 0),
        results={"decoder.ipv4": captured},
        per_thread={"W#01": {"packets": captured}},
        sources={"captured_packets": "engine.json"},
    )


def test_counters_of_all_instances_are_added() -> None:
    assert instances.total([counters(10, 2), counters(5)]) == SutCounters(
        captured_packets=15,
        dropped_ring_full_packets=2,
        decoded_packets=13,
        results={"decoder.ipv4": 15},
        per_thread={"0:W#01": {"packets": 10}, "1:W#01": {"packets": 5}},
        sources={"captured_packets": "engine.json, all instances"},
    )


def test_what_one_instance_does_not_say_is_not_known_of_all() -> None:
    assert instances.total([counters(10), counters(5, None)]).dropped_ring_full_packets is None
    wire = replace(counters(10), counts_wire_bytes=True)
    assert instances.total([wire, wire]).counts_wire_bytes
    assert not instances.total([wire, counters(5)]).counts_wire_bytes


def test_one_account_per_class_whichever_instance_counted() -> None:
    def merged(packets: int) -> Account:
        return Account(
            into="socket", kind=Class.MERGED, name="m", packets=packets, counter="Ip Reasm"
        )

    other = Account(into="socket", kind=Class.LOST, name="x", packets=1, counter="xdp")
    assert _summed(iter([merged(3), other, merged(4)])) == [merged(7), other]


def part(received: int) -> Instance:
    return Instance(
        received_packets=received,
        captured_packets=None,
        decoded_packets=None,
        lost_packets=0,
        residual_packets=None,
        closed=True,
    )


def test_imbalance_is_the_busiest_ones_surplus() -> None:
    assert imbalance_ratio([part(n) for n in (50, 50)]) == 0
    assert imbalance_ratio([part(n) for n in (75, 25)]) == 0.5
    assert imbalance_ratio([]) is None
    assert imbalance_ratio([part(0)]) is None


def test_instances_that_all_capture_everything_are_caught() -> None:
    """Two Suricatas in one fanout group: the second falls back, and each captures everything."""
    hops = [
        Hop(name=name, packets=packets, counter=name)
        for name, packets in (
            *(("intended", 100), ("sent", 100), ("tx_nic", 100), ("rx_nic", 100)),
            *(("split", 100), ("instance_nic", 100), ("socket", 200), ("decoded", 200)),
        )
    ]
    verdict = judge(balance(hops, []), Sending(intended_packets=100, sent_packets=100))
    assert not verdict.valid
    assert Reason.RECEIVED_MORE_THAN_SENT in {p.code for p in verdict.invalid_reasons}


class Housekeeping:
    """A RunningSut whose packets rest while its other figures go on."""

    def __init__(self) -> None:
        self.asked = 0
        self.process = self

    pid, work, stdout, stderr, launched_mono_ns = 1, None, None, None, 0
    phases_s: dict[str, float] = {}  # noqa: RUF012  a stand-in
    quiet = False

    def poll(self) -> int | None:
        return None

    def live(self) -> SutCounters:
        self.asked += 1
        return replace(counters(90), results={"flow.mgr.rows_checked": self.asked})


def test_a_drain_ends_when_packets_rest_though_other_figures_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More was expected than is there: only rest can end it."""
    now = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    each = [cast("RunningSut", Housekeeping()) for _ in range(2)]
    assert instances.drain(each, expected_packets=200, timeout_s=30).rested_mono_ns < 10e9


def test_guests_that_must_not_be_asked_drain_each_by_themselves() -> None:
    class Quiet(Housekeeping):
        quiet = True

        def __init__(self, drained: Drained) -> None:
            super().__init__()
            self.drained = drained

        def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
            assert (expected_packets, timeout_s) == (None, 30), "nobody knows its share"
            self.asked += 1
            return self.drained

        def live(self) -> SutCounters:
            raise AssertionError("it takes time from what is measured")

    parts = [
        Quiet(Drained(rested_mono_ns=7, busy_mono_ns=5, left_packets=3)),
        Quiet(Drained(rested_mono_ns=9, left_packets=4)),
    ]
    each = [cast("RunningSut", part) for part in parts]
    last = Drained(rested_mono_ns=9, busy_mono_ns=5, left_packets=7)
    assert instances.drain(each, expected_packets=200, timeout_s=30) == last
    assert [part.asked for part in parts] == [1, 1]


def _press_ctrl_c() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def _fail() -> None:
    raise TrialFailed("Suricata ended before it was stopped")


@pytest.mark.parametrize(
    ("happens", "ends"), [(_press_ctrl_c, KeyboardInterrupt), (_fail, TrialFailed)]
)
def test_nobody_waits_for_guests_that_drain_when_the_trial_is_over(
    happens: Callable[[], None], ends: type[BaseException]
) -> None:
    class Waits(Housekeeping):
        quiet = True

        def __init__(self, first: Callable[[], None]) -> None:
            super().__init__()
            self.first = first
            self.killed = threading.Event()

        def drain(self, *, expected_packets: int | None, timeout_s: float) -> Drained:
            self.first()
            self.killed.wait(10)
            raise TrialFailed("killed")

        def signal(self, number: int) -> None:
            assert number == signal.SIGKILL
            self.killed.set()

    parts = [Waits(happens), Waits(lambda: None)]
    each = [cast("RunningSut", part) for part in parts]
    with pytest.raises(ends):
        instances.drain(each, expected_packets=200, timeout_s=30)
    assert all(part.killed.is_set() for part in parts)
