"""Exact bounds for a share of runs, against the binomial itself and published values."""

from __future__ import annotations

import math

import pytest

from nodrop.stats.interval import lower_bound, share_interval, upper_bound


@pytest.mark.parametrize(
    ("hits", "n", "bound"),
    # Without a hit: 1 - 0.05^(1/n); the others are tables of Clopper and Pearson's bounds.
    [(0, 6, 0.3930), (0, 3, 0.6316), (0, 10, 0.2589), (0, 20, 0.1391), (1, 10, 0.3942),
     (6, 20, 0.5078), (1, 1, 1.0)],
)  # fmt: skip
def test_known_bounds(hits: int, n: int, bound: float) -> None:
    assert upper_bound(hits, n) == pytest.approx(bound, abs=5e-5)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (1, 4), (3, 7), (6, 20), (39, 40)])
def test_at_the_bound_so_few_hits_have_the_probability_that_was_allowed(hits: int, n: int) -> None:
    share = upper_bound(hits, n)
    few = sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(hits + 1))
    assert few == pytest.approx(0.05)


def test_an_interval_is_two_bounds_and_mirrors() -> None:
    found = share_interval(3, 10)
    assert (found.low, found.high) == (
        pytest.approx(0.0667, abs=5e-5),
        pytest.approx(0.6525, abs=5e-5),
    )
    mirrored = share_interval(7, 10)
    assert mirrored.low == pytest.approx(1 - found.high)
    assert (share_interval(0, 6).low, share_interval(6, 6).high) == (0, 1)
    assert lower_bound(6, 6) == pytest.approx(1 - upper_bound(0, 6))


@pytest.mark.parametrize(("hits", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_no_share_without_runs(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match="a share needs"):
        upper_bound(hits, n)
