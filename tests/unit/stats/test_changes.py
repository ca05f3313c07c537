"""Change points: seen where they are."""

from __future__ import annotations

import numpy as np
import pytest

from nodrop.stats.changes import changes, values_needed


@pytest.mark.parametrize(
    ("levels", "at"),
    [
        ([(8, 1.0), (8, 2.0)], [8]),
        ([(5, 10.0), (15, 9.0)], [5]),
        ([(20, 0.0), (20, 5.0), (20, 0.0)], [20, 40]),
        ([(30, 7.0), (4, 8.0)], [30]),
        ([(12, 3.0), (12, 2.0), (12, 1.0)], [12, 24]),
    ],
)
def test_a_clear_change_is_found_where_it_is(
    levels: list[tuple[int, float]], at: list[int]
) -> None:
    rng = np.random.default_rng(5)
    values = [level + 0.05 * rng.random() for n, level in levels for _ in range(n)]
    assert changes(values, error=0.01) == at


@pytest.mark.parametrize("values", [[], [1.0], [4.0] * 60, [1.0, 2.0] * 20, [0.0] * 30 + [9.0]])
def test_no_change_in_what_has_none(values: list[float]) -> None:
    """Nothing, all alike, to and fro, and one outlier."""
    assert changes(values, error=0.05) == []


@pytest.mark.parametrize(("error", "needed"), [(0.05, 8), (0.025, 9), (0.0125, 10), (0.001, 14)])
def test_too_few_values_show_no_change_however_clear(error: float, needed: int) -> None:
    assert values_needed(error) == needed
    steps = [[0.0] * (n - n // 2) + [1e9] * (n // 2) for n in (needed - 1, needed + 1)]
    assert [bool(changes(values, error=error)) for values in steps] == [False, True]


def test_the_same_values_give_the_same_answer() -> None:
    values = np.random.default_rng(1).normal(size=40).tolist()
    assert changes(values, error=0.5) == changes(values, error=0.5)
