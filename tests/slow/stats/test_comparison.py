"""Tests of two cells, held against scipy's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from nodrop.stats.comparison import fisher

RUNS = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(RUNS, RUNS)
def test_fishers_test_is_scipy_s(one: tuple[int, int], other: tuple[int, int]) -> None:
    (b, m), (o, n) = one, other
    theirs = fisher_exact([[b, m - b], [o, n - o]]).pvalue
    assert fisher(b, m, o, n) == pytest.approx(theirs, rel=1e-9)
