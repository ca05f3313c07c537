"""Outliers: what is marked, what is not, and how often by chance."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.stats.interval import BOUNDS, FEWEST, outliers


@pytest.mark.parametrize(
    ("values", "marked"),
    [
        ([10, 11, 12, 10, 11, 12, 11, 99], [7]),
        ([10, 11, 12, 10, 11, 12, 11, -80], [7]),
        ([99, 10, 11, 12, 10, 11, 12, 11, 10, 12, -99], [0, 10]),
        ([10, 11, 12, 10, 11, 12, 11, 14], []),
        ([10, 11, 12, 10, 11], []),
        ([10, 11, 12, 10, 99], []),
    ],
)
def test_what_is_marked(values: list[float], marked: list[int]) -> None:
    assert [found.index for found in outliers(values)] == marked


@pytest.mark.parametrize(("n", "most"), [(6, 1), (8, 1), (10, 2), (20, 4)])
def test_if_most_are_the_same_only_few_that_differ_are_marked(n: int, most: int) -> None:
    """One lossy trial among those without loss stands out; every third one does not."""
    for differ in range(1, n // 2):
        values = [0.0] * (n - differ) + [0.02] * differ
        assert len(outliers(values)) == (differ if differ <= most else 0)
    assert outliers([0.0] * n) == ()


def test_it_says_how_far_and_from_what() -> None:
    (found,) = outliers([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 50.0])
    assert (found.index, found.value, found.median) == (7, 50.0, 4.5)
    assert found.deviations == pytest.approx(45.5 / (2.0 * 1.4826))


@pytest.mark.parametrize("n", [6, 7, 9, 12, 25, 80])
def test_chance_marks_one_in_a_hundred_normal_samples(n: int) -> None:
    random, samples = Random(n), 3000
    marked = sum(bool(outliers([random.gauss(5, 2) for _ in range(n)])) for _ in range(samples))
    assert marked / samples <= 0.017


@pytest.mark.parametrize("n", [8, 12, 30])
def test_twenty_deviations_are_found(n: int) -> None:
    random, samples = Random(n), 300
    found = 0
    for _ in range(samples):
        values = [20.0, *(random.gauss(0, 1) for _ in range(n - 1))]
        found += any(one.index == 0 for one in outliers(values))
    assert found / samples >= 0.9


def test_more_values_allow_less() -> None:
    assert BOUNDS[0][0] == FEWEST
    assert [n for n, _ in BOUNDS] == sorted(n for n, _ in BOUNDS)
    assert [b for _, b in BOUNDS] == sorted((b for _, b in BOUNDS), reverse=True)


@given(st.lists(st.integers(-1000, 1000), max_size=30), st.sampled_from([-8.0, 0.25, 4.0]))
def test_units_do_not_matter(values: list[int], unit: float) -> None:
    plain = [found.index for found in outliers([float(v) for v in values])]
    assert plain == [found.index for found in outliers([v * unit + 512 for v in values])]
