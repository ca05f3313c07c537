"""Comparisons against hand-counted examples and scipy's exact Mann-Whitney test."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from nodrop.stats.comparison import Answer, _critical_rank, _mann_whitney_counts, compare

# Critical values of U, two-sided 5 % (Mann and Whitney 1947, table I): reject at U <= value.
CRITICAL_U = {(4, 4): 0, (5, 5): 2, (6, 6): 5, (7, 7): 8, (8, 8): 13, (10, 10): 23, (5, 10): 8}


@pytest.mark.parametrize(("sizes", "critical"), CRITICAL_U.items())
def test_against_the_published_table(sizes: tuple[int, int], critical: int) -> None:
    assert _critical_rank(*sizes, 0.95)[0] == critical + 1


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 3), (3, 4), (4, 6), (6, 6)])
def test_the_null_distribution_is_scipys(m: int, n: int) -> None:
    counts = _mann_whitney_counts(m, n)
    assert sum(counts) == math.comb(m + n, m)
    for u, below in enumerate(accumulate(counts)):
        # a sample whose U is exactly u: shift one value past u of the others
        base = [float(10 * i) for i in range(1, n + 1)]
        other = _sample_with_u(base, m, u)
        theirs = mannwhitneyu(other, base, alternative="less", method="exact")
        assert theirs.statistic == u
        assert below / sum(counts) == pytest.approx(theirs.pvalue)


def _sample_with_u(base: list[float], m: int, u: int) -> list[float]:
    sample = []
    for i in range(m):
        passed = min(len(base), u)
        u -= passed
        sample.append(10.0 * passed + 5 + 0.1 * i)
    return sample


def test_hodges_lehmann_by_hand() -> None:
    """Differences of {1,2,3,4} and {11,13,15,17}: 7 … 16, sixteen of them, median 11.5."""
    found = compare([1, 2, 3, 4], [11, 13, 15, 17], margin=0.5)
    assert found is not None
    assert found.shift == 11.5
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (7, 16)
    assert found.interval.coverage == pytest.approx(1 - 2 / 70)
    assert found.answer is Answer.DIFFERENT


def test_three_runs_cannot_tell_anything() -> None:
    found = compare([1, 1, 1], [9, 9, 9], margin=0)
    assert found is not None
    assert (found.answer, found.interval, found.more_runs) == (Answer.CANNOT_TELL, None, 1)


def test_same_needs_an_interval_inside_the_margin() -> None:
    base = [100.0, 101, 99, 100.5, 99.5, 100]
    close = compare(base, [v + 0.2 for v in base], margin=3)
    assert close is not None and close.answer is Answer.SAME
    tight = compare(base, [v + 0.2 for v in base], margin=0.1)
    assert tight is not None and tight.answer is Answer.CANNOT_TELL
    assert tight.more_runs is not None and tight.more_runs > 10


def test_equal_constants_are_the_same_even_without_a_margin() -> None:
    found = compare([0.0] * 4, [0.0] * 4, margin=0)
    assert found is not None and found.answer is Answer.SAME


def test_a_hopeless_spread_names_no_number_of_runs() -> None:
    found = compare([-5, -1, 1, 5], [-5, -1, 1, 5], margin=0)
    assert found is not None
    assert (found.answer, found.more_runs) == (Answer.CANNOT_TELL, None)


def test_nothing_to_compare() -> None:
    assert compare([], [1.0], margin=0) is None


runs = st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=12)


@given(runs, runs)
def test_swapping_the_cells_mirrors_the_answer(base: list[float], other: list[float]) -> None:
    one, two = compare(base, other, margin=1), compare(other, base, margin=1)
    assert one is not None and two is not None and one.interval and two.interval
    assert one.answer is two.answer
    assert (one.interval.low, one.interval.high) == (-two.interval.high, -two.interval.low)


def test_the_normal_approximation_takes_over_smoothly() -> None:
    exact, _ = _critical_rank(50, 50, 0.95)
    approximate, _ = _critical_rank(50, 51, 0.95)
    assert 0 <= approximate - exact <= 30
