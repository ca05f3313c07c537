"""Intervals of medians are scipy's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import quantile_test

from nodrop.stats.interval import median_interval


@given(st.lists(st.floats(-1e9, 1e9), min_size=6, max_size=40))
def test_it_agrees_with_scipy(values: list[float]) -> None:
    interval = median_interval(values)
    theirs = quantile_test(values).confidence_interval(confidence_level=0.95)
    assert interval is not None
    assert (interval.low, interval.high) == (theirs.low, theirs.high)
