"""Rates of counters that are renewed in steps."""

from __future__ import annotations

import pytest

from nodrop.measure.busy import STALE_S, SteppedRate


def played(*looks: tuple[float, int | None]) -> list[float | None]:
    rate = SteppedRate()
    return [rate.at(now_s, count) for now_s, count in looks]


def test_a_rate_is_over_the_time_between_changes() -> None:
    """Looked at twice a second, a counter that moves every 3 s shows no spikes and no zeros."""
    looks = [(0.5 * n, 300 * (n // 6)) for n in range(19)]
    assert played(*looks) == [None] * 6 + [100.0] * 13


def test_a_counter_that_moves_at_every_look_is_smoothed() -> None:
    jitter = [0, 40, 100, 160, 200, 240, 300]
    found = played(*[(0.5 * n, count) for n, count in enumerate(jitter)])
    assert found[0] is None
    assert found[5:] == [pytest.approx(100.0), pytest.approx(100.0)]


def test_a_counter_that_stands_still_for_long_enough_has_rate_0() -> None:
    assert played((0.0, 5), (1.0, 5), (STALE_S, 5)) == [None, None, 0.0]
    assert played((0.0, 0), (1.0, 9), (2.0, 9), (1.0 + STALE_S, 9)) == [None, 9.0, 9.0, 0.0]


def test_what_is_not_known_has_no_rate() -> None:
    assert played((0.0, None), (1.0, 10), (2.0, 20)) == [None, None, 10.0]
