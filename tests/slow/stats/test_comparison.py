"""Comparisons of cells with thousands of runs."""

from __future__ import annotations

from nodrop.stats.comparison import ComparisonRule, Relation, compare
from nodrop.stats.interval import Family


def test_thousands_of_runs_are_compared_at_once() -> None:
    """All pairs of them would be 25 million."""
    values = [float(k % 4999) for k in range(5000)]
    comparison = compare(values, [v + 400 for v in values], ComparisonRule(family=Family(parts=2)))
    assert comparison is not None and comparison.answer is Relation.DIFFERENT
