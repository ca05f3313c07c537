"""Host as a random effect, against published analyses and simulated truth."""

from __future__ import annotations

import math
import random

import pytest

from nodrop.stats.comparison import host_spread

DYESTUFF = [
    [1545, 1440, 1440, 1520, 1580],
    [1540, 1555, 1490, 1560, 1495],
    [1595, 1550, 1605, 1510, 1560],
    [1445, 1440, 1595, 1465, 1545],
    [1595, 1630, 1515, 1635, 1625],
    [1520, 1455, 1450, 1480, 1445],
]
"""Davies and Goldsmith 1972, as in lme4 (Bates 2015): yields of six batches. Its REML fit, which of
as many values in each batch is this analysis: 42.00 between, 49.51 within, mean 1527.5, its
standard error 19.38; the F test has 4.598 on 5 and 24 degrees of freedom, p = 0.0044."""
RAIL = [[55, 53, 54], [26, 37, 32], [78, 91, 85], [92, 100, 96], [49, 51, 50], [80, 85, 83]]
"""Devore 2000, as in nlme (Pinheiro and Bates 2000, section 1.1): travel times of six rails; 24.805
between, 4.0208 within, mean 66.5, its standard error 10.17."""
T_OF_5 = 2.5706


@pytest.mark.parametrize(
    ("samples", "between", "within", "mean", "error", "p", "apart"),
    [
        (DYESTUFF, 42.00, 49.51, 1527.5, 19.38, 0.0044, False),
        (RAIL, 24.805, 4.0208, 66.5, 10.17, 1e-9, True),
    ],
    ids=["dyestuff", "rail"],
)
def test_published_analyses(
    samples: list[list[float]],
    between: float,
    within: float,
    mean: float,
    error: float,
    p: float,
    apart: bool,
) -> None:
    found = host_spread(samples)
    assert found is not None and found.interval is not None
    assert found.between == pytest.approx(between, rel=2e-4)
    assert found.within == pytest.approx(within, rel=2e-4)
    assert found.mean == pytest.approx(mean)
    assert (found.interval.high - mean) / T_OF_5 == pytest.approx(error, rel=1e-3)
    assert found.p == pytest.approx(p, abs=5e-5)
    assert found.apart() is apart


def test_unequal_samples_by_hand() -> None:
    """Means 2, 5 and 9 of 3, 2 and 1 values; squares 38.833 between, 2.5 within; n0 = 11/6."""
    found = host_spread([[1, 2, 3], [4.5, 5.5], [9]])
    assert found is not None
    assert found.within == pytest.approx(math.sqrt(2.5 / 3))
    mean_between = (3 * (2 - 25 / 6) ** 2 + 2 * (5 - 25 / 6) ** 2 + (9 - 25 / 6) ** 2) / 2
    assert found.between == pytest.approx(math.sqrt((mean_between - 2.5 / 3) / (11 / 6)))
    assert found.mean == pytest.approx(16 / 3)


def test_hosts_that_differ_less_than_chance_have_no_spread_of_their_own() -> None:
    found = host_spread([[1, 2, 3], [1, 2, 3], [3, 2, 1]])
    assert found is not None and found.between == 0 and not found.apart()


@pytest.mark.parametrize("samples", [[], [[1, 2, 3]], [[1], [2], [3]], [[1, 2], []]])
def test_what_cannot_be_told_apart(samples: list[list[float]]) -> None:
    assert host_spread(samples) is None


def test_values_without_any_spread() -> None:
    same, other = host_spread([[1, 1], [1, 1]]), host_spread([[1, 1], [2, 2]])
    assert same is not None and (same.between, same.within, same.p) == (0, 0, 1)
    assert same.interval is None, "that two hosts lost nothing proves it of no other"
    assert other is not None and other.apart() and other.within == 0


def test_the_interval_covers_the_mean_of_all_hosts_and_a_pooled_one_would_not() -> None:
    """600 fleets of 4 hosts x 8 trials, whose hosts differ twice as much as trials do."""
    rng, within, covered, pooled = random.Random(5), 1.0, 0, 0
    for _ in range(600):
        hosts = [rng.gauss(0, 2) for _ in range(4)]
        samples = [[rng.gauss(host, within) for _ in range(8)] for host in hosts]
        found = host_spread(samples)
        assert found is not None and found.interval is not None
        covered += found.interval.low <= 0 <= found.interval.high
        values = [value for sample in samples for value in sample]
        mean = sum(values) / 32
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / 31 / 32)
        pooled += abs(mean) <= 2.04 * deviation
    assert 0.93 <= covered / 600 <= 0.97
    assert pooled / 600 < 0.6


def test_hosts_that_do_not_differ_are_seldom_found_apart() -> None:
    rng = random.Random(6)
    found = [
        host_spread([[rng.gauss(0, 1) for _ in range(6)] for _ in range(4)]) for _ in range(1000)
    ]
    assert 0.03 <= sum(one is not None and one.p < 0.05 for one in found) / 1000 <= 0.07
    assert sum(one is not None and one.apart() for one in found) <= 10
