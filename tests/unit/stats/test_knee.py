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


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("n", [15, 30])
def test_the_bounds_cover_as_often_as_they_say(ratio: float, n: int) -> None:
    """Half of the trials are offered so little that some carry all of it."""
    random, misses = Random(7), 0
    for _ in range(600):
        limits = []
        for i in range(n):
            at, offered = random.random(), 1.0 if i % 2 else 0.9
            limits.append(Limit(offered=offered, at=at if at < offered else None))
        found = knee(limits, ratio)
        assert found
        misses += found.low is not None and found.low > ratio
        misses += found.high is not None and found.high < ratio
    assert misses / 600 <= 0.06
