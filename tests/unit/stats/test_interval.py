"""Intervals against published tables."""

from __future__ import annotations

import pytest

from nodrop.stats.interval import by_start, median_interval, runs_needed, summarize

# Ranks of the order statistics enclosing the median with at least 95 % (two-sided sign test; e.g.
# Conover, Practical Nonparametric Statistics, table A3) and the exact coverage.
TABLE = [
    (6, 1, 0.96875),
    (8, 1, 0.9921875),
    (9, 2, 0.9609375),
    (10, 2, 0.978515625),
    (12, 3, 0.96142578125),
    (15, 4, 0.96484375),
    (20, 6, 0.95861053466796875),
]


@pytest.mark.parametrize(("n", "rank", "coverage"), TABLE)
def test_against_the_sign_test_table(n: int, rank: int, coverage: float) -> None:
    interval = median_interval([float(i) for i in range(1, n + 1)])
    assert interval is not None
    assert (interval.low, interval.high) == (rank, n + 1 - rank)
    assert interval.coverage == pytest.approx(coverage, abs=1e-12)


@pytest.mark.parametrize("n", range(1, 6))
def test_below_six_runs_there_is_no_interval_and_none_is_faked(n: int) -> None:
    summary = summarize([1.0] * n)
    assert summary is not None
    assert summary.interval is None
    assert summary.why_no_interval == "needs n ≥ 6"


@pytest.mark.parametrize(
    ("starts", "medians"),
    [
        ([1, 1, 3, 3, 3], [2.0, 4.0]),
        ([1, 2, 3, 4, 5], [1.0, 3.0, 9.0, 4.0, 2.0]),
        ([1, 1, 1, 1, 1], [3.0]),
        ([7, "a", 7, "a", 7], [2.0, 3.5]),
    ],
)
def test_each_start_of_the_sut_counts_once(starts: list[int | str], medians: list[float]) -> None:
    values = [1.0, 3.0, 9.0, 4.0, 2.0]
    assert by_start(values, starts) == medians
    summary = summarize(values, starts=starts)
    assert summary is not None
    assert (summary.n, summary.low, summary.high) == (5, 1.0, 9.0)  # trials are still shown


@pytest.mark.parametrize(("starts", "trials"), [(3, 7), (1, 20), (5, 4)])
def test_few_starts_have_no_interval_however_many_trials(starts: int, trials: int) -> None:
    found = [start for start in range(starts) for _ in range(trials)]
    summary = summarize([float(n) for n in range(len(found))], starts=found)
    assert summary is not None
    assert summary.interval is None
    assert summary.why_no_interval == f"needs 6 starts of the SUT, has {starts}"


def test_runs_needed() -> None:
    assert [runs_needed(c) for c in (0.5, 0.9, 0.95, 0.99)] == [2, 5, 6, 8]


def test_summary_by_hand() -> None:
    summary = summarize([5.0, 1.0, 4.0, 2.0, 3.0, 9.0])
    assert summary is not None
    assert (summary.n, summary.median) == (6, 3.5)
    assert (summary.low, summary.high) == (1.0, 9.0)
    assert summarize([]) is None
