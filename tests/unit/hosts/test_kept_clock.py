"""Clocks that are kept by another are held against each other by TAI, if that is closer."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pytest

from nodrop.protocol import TaiAnswer
from nodrop.testbed.hosts.node import ClockFix, closer, own_tai

TRIP = ClockFix(offset_ns=5_000_200_000, bound_ns=400_000, real_offset_ns=-150_000)


def kept(ahead_ns: int, error_ns: int) -> TaiAnswer:
    return {"ahead_ns": 10**18 + ahead_ns, "max_error_ns": error_ns}


@pytest.mark.parametrize(("error_ns", "bound_ns"), [(900, 1_900), (90_000, 91_000)])
def test_two_clocks_that_are_kept_are_known_as_well_as_they_are_kept(
    error_ns: int, bound_ns: int
) -> None:
    found = closer(TRIP, kept(5_000_050_000, error_ns), kept(0, 1_000))
    assert (found.offset_ns, found.bound_ns, found.by) == (5_000_050_000, bound_ns, "TAI")
    assert found.real_offset_ns == 0, "the wall clock is read at the moment that the offset says"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (None, kept(0, 1_000)),
        (kept(5_000_050_000, 1_000), None),
        (kept(5_000_050_000, 300_000), kept(0, 200_000)),  # a round trip is closer
        (kept(5_001_000_000, 1_000), kept(0, 1_000)),  # one says that it is kept, and is not
        (kept(37_000_000_000, 1_000), kept(0, 1_000)),  # other leap seconds
    ],
)
def test_what_says_no_more_than_the_round_trip_changes_nothing(
    theirs: TaiAnswer | None, ours: TaiAnswer | None
) -> None:
    assert closer(TRIP, theirs, ours) is TRIP


@pytest.mark.parametrize(
    ("answer", "status", "leap_s", "is_kept"),
    [(0, 0x2001, 37, True), (5, 0x40, 37, False), (0, 0x2001, 0, False), (-1, 0, 37, False)],
)
def test_a_clock_counts_as_kept_if_the_kernel_says_so(
    answer: int, status: int, leap_s: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kernel:
        def __init__(self, _name: None) -> None: ...

        def adjtimex(self, kept: Any) -> int:
            assert kept._obj.modes == 0, "it is asked, and not set"
            kept._obj.status, kept._obj.tai, kept._obj.maxerror = status, leap_s, 250
            return answer

    monkeypatch.setattr(ctypes, "CDLL", Kernel)
    found = own_tai()
    assert (found is not None) == is_kept
    if found is not None:
        now = time.monotonic_ns() + found["ahead_ns"]
        assert abs(now - time.clock_gettime_ns(time.CLOCK_TAI)) < 1_000_000_000
        assert found["max_error_ns"] >= 250_000
