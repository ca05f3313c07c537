"""The clock of a sender elsewhere: two that run drift apart, and more makes a trial void."""

from __future__ import annotations

import pytest

from nodrop.ledger.outcome import Reason
from nodrop.measure.sampling import Fix, facts, fix, moved
from nodrop.testbed.hosts.node import ClockFix
from nodrop.testing.fakes import FakeHost, FakeWorld

MS, S = 1_000_000, 1_000_000_000
HOST = FakeHost(FakeWorld(), "sender gen1")


def at(seconds: int, offset_ns: int, bound_ns: int = 100_000) -> Fix:
    clock = ClockFix(offset_ns=offset_ns, bound_ns=bound_ns, real_offset_ns=0)
    return Fix(at_ns=seconds * S, clock=clock)


@pytest.mark.parametrize(
    ("seconds", "drift_ns", "bound_ns", "void"),
    [
        (10, 0, 100_000, False),
        (10, 4 * MS, 100_000, False),  # 400 ppm: a clock that is being slewed
        (10, 6 * MS, 100_000, True),
        (10, -6 * MS, 100_000, True),
        (60, 6 * MS, 100_000, False),
        (1, 20 * MS, 100_000, True),
        (1, 20 * MS, 15 * MS, False),  # a slow line: not known any better
    ],
)
def test_a_clock_that_moved(seconds: int, drift_ns: int, bound_ns: int, void: bool) -> None:
    before, after = at(5, 7 * S, bound_ns), at(5 + seconds, 7 * S + drift_ns, bound_ns)
    found = moved(HOST, before, after)
    assert [one.code for one in found] == ([Reason.CLOCK_MOVED] if void else [])
    assert facts(HOST, before, after)["drift_ns"] == drift_ns
    if found:
        assert found[0].words.startswith("sender gen1: its clock moved by ")


def test_a_host_with_our_clock_is_not_asked() -> None:
    assert fix(HOST) is None
