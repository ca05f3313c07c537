"""The fitted limit and its bounds, against order statistics and by simulation."""

from __future__ import annotations

from random import Random

import pytest

from nodrop.stats.interval import Limit, knee, median_interval


@pytest.mark.parametrize("n", [6, 9, 12, 25])
def test_without_censoring_it_is_the_exact_interval_of_a_median(n: int) -> None:
    values = [Random(n).gauss(100, 3) for _ in range(n)]
    found = knee([Limit(offered=200, at=value) for value in values], 0.5)
    exact = median_interval(values)
    assert found and exact and (found.low, found.high) == (exact.low, exact.high)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_too_few_trials_have_no_bounds(n: int) -> None:
    found = knee([Limit(offered=110, at=100.0)] * n, 0.5)
    assert found and (found.estimate, found.low, found.high) == (100.0, None, None)


def test_trials_that_carried_all_bound_from_below_only() -> None:
    assert knee([Limit(offered=100, at=None)] * 9, 0.5) is None
    limits = [Limit(offered=99, at=None)] * 6 + [Limit(offered=110, at=100.0)] * 3
    found = knee(limits, 0.5)
    assert found and found.estimate == 100.0 and found.high is None
