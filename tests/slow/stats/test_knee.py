"""Coverage of the fitted limit's bounds, by simulation."""

from __future__ import annotations

from random import Random

import pytest

from nodrop.stats.interval import Limit, knee


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
