"""Change points: seen where they are, and hardly ever where there are none."""

from __future__ import annotations

import os

import numpy as np
import pytest

from nodrop.stats.regression import changes, values_needed
from tests.depth import depth

SERIES = int(os.environ.get("NODROP_SERIES", "150"))
"""Per case; `NODROP_SERIES=4000` is the larger version (docs/methodology.md has its figures)."""


@pytest.mark.parametrize("n", [5, 8, 20, *map(depth, (13, 35, 60))])
@pytest.mark.parametrize("shape", ["normal", "heavy", "ties", "mostly zero"])
def test_a_level_that_never_changes_is_called_changed_at_most_once_in_twenty(
    shape: str, n: int
) -> None:
    rng = np.random.default_rng([n, *shape.encode()])
    draws = {
        "normal": lambda: rng.normal(10, 1, n),
        "heavy": lambda: rng.pareto(1.1, n),
        "ties": lambda: rng.integers(0, 3, n).astype(float),
        "mostly zero": lambda: np.where(rng.random(n) < 0.3, rng.random(n), 0.0),
    }
    alarms = sum(bool(changes(draws[shape]().tolist(), error=0.05)) for _ in range(SERIES))
    # Of 24 such cases at exactly 5 %, all stay below with a probability of 98 %.
    assert alarms <= 0.05 * SERIES + 3.3 * (SERIES * 0.05 * 0.95) ** 0.5, f"{alarms} of {SERIES}"


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
