"""Comparisons of two cells, by hand; how often they err is simulated in tests/known_answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from nodrop.stats.comparison import Comparison, ComparisonRule, Relation, compare
from nodrop.stats.interval import Family, lower_bound, upper_bound

ALONE = Family(parts=2)
NO_MARGIN = ComparisonRule(family=ALONE)


def found(base: list[float], other: list[float], asked: ComparisonRule = NO_MARGIN) -> Comparison:
    comparison = compare(base, other, asked)
    assert comparison is not None
    return comparison


def test_the_interval_is_made_of_those_of_the_medians() -> None:
    """Ten runs leave out none at either end; at 2 parts 1.25 % for each median."""
    base, other = [float(k) for k in range(1, 11)], [float(k) for k in range(101, 111)]
    comparison = found(base, other)
    assert comparison.answer is Relation.DIFFERENT
    assert comparison.shift == 100
    assert comparison.interval is not None and comparison.relative is not None
    assert (comparison.interval.low, comparison.interval.high) == (101 - 10, 110 - 1)
    assert comparison.interval.coverage == pytest.approx(1 - 2 * 2 * 2**-10)
    assert comparison.relative.low == pytest.approx(101 / 10 - 1)
    assert comparison.relative.high == pytest.approx(110 / 1 - 1)


@pytest.mark.parametrize(("parts", "needed"), [(2, 8), (9, 10), (35, 12), (96, 13), (300, 15)])
def test_the_more_is_compared_the_more_runs_it_takes(parts: int, needed: int) -> None:
    """2 · 2^-n must not exceed 0.025 / parts."""
    family = Family(parts=parts)
    assert family.runs_needed() == needed
    assert 2 * 2.0**-needed <= family.error(needed) < 2 * 2.0 ** (1 - needed)
    asked = ComparisonRule(family=family)
    few = found([0.0] * needed, [9.0] * (needed - 1), asked)
    assert (few.answer, few.interval) == (Relation.CANNOT_TELL, None)
    assert found([0.0] * needed, [9.0] * needed, asked).answer is Relation.DIFFERENT


@pytest.mark.parametrize("parts", [1, 7, 200])
def test_however_often_the_runs_double_all_looks_together_err_as_one_may(parts: int) -> None:
    family = Family(parts=parts)
    spent = sum(family.error(n) for n in [19, *(20 * 2**k for k in range(40))])
    assert spent * parts == pytest.approx(0.05)
    assert family.error(39) == family.error(20) > family.error(40)


def test_same_needs_an_interval_inside_the_margin_and_runs_that_do_not_stray() -> None:
    base = [100.0 + k % 5 / 10 for k in range(20)]
    asked = ComparisonRule(absolute=3, family=ALONE)
    assert found(base, [v + 0.2 for v in base], asked).answer is Relation.SAME
    tight = ComparisonRule(absolute=0.1, family=ALONE)
    assert found(base, [v + 0.2 for v in base], tight).answer is Relation.CANNOT_TELL
    strayed = [v + (40 if k < 5 else 0) for k, v in enumerate(base)]
    assert found(base, strayed, asked).answer is Relation.CANNOT_TELL
    assert found(strayed, base, asked).answer is Relation.CANNOT_TELL


def test_what_may_lie_apart_is_bounded_exactly() -> None:
    """3 of 20 runs are apart, of the others none: both bounds hold at once."""
    comparison = found(
        [0.0] * 20, [7.0] * 3 + [0.0] * 17, ComparisonRule(absolute=0.1, family=ALONE)
    )
    each = 0.95**0.5
    assert comparison.apart == pytest.approx(
        upper_bound(3, 20, confidence=each) - lower_bound(0, 20, confidence=each)
    )


@pytest.mark.parametrize(
    ("lossy", "answer"), [(11, Relation.CANNOT_TELL), (14, Relation.DIFFERENT)]
)
def test_shares_of_lossy_runs_differ_by_fishers_test(lossy: int, answer: Relation) -> None:
    base, other = [0.0] * 40, [30.0] * lossy + [0.0] * (40 - lossy)
    family = Family(parts=100)
    p = fisher_exact([[0, 40], [lossy, 40 - lossy]]).pvalue
    assert (p <= family.error(40)) == (answer is Relation.DIFFERENT)
    comparison = found(base, other, ComparisonRule(absolute=0.1, losses=True, family=family))
    assert (comparison.answer, comparison.shift) == (answer, 0)
    assert comparison.by_share == (answer is Relation.DIFFERENT)
    assert found(base, other, ComparisonRule(absolute=0.1, family=family)).by_share is False


def test_a_relative_margin_is_of_a_median_that_is_not_known_either() -> None:
    base = [100.0 + k / 100 for k in range(20)]
    asked = ComparisonRule(relative=0.05, family=ALONE)
    assert found(base, [v * 1.04 for v in base], asked).answer is Relation.SAME
    assert found(base, [v * 1.05 for v in base], asked).answer is Relation.DIFFERENT


def test_a_base_that_may_be_zero_has_no_relative_difference() -> None:
    assert found([0.0] * 5 + [3.0] * 15, [5.0] * 20).relative is None


def test_nothing_to_compare() -> None:
    assert compare([], [1.0], NO_MARGIN) is None
    assert compare([1.0], [], NO_MARGIN) is None


runs = st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=24)


@given(runs, runs)
def test_swapping_the_cells_mirrors_the_answer(base: list[float], other: list[float]) -> None:
    asked = ComparisonRule(absolute=1, losses=True, family=ALONE)
    one, two = found(base, other, asked), found(other, base, asked)
    assert one.interval is not None and two.interval is not None
    assert (one.interval.low, one.interval.high) == (-two.interval.high, -two.interval.low)
    assert (one.answer is Relation.DIFFERENT) == (two.answer is Relation.DIFFERENT)
