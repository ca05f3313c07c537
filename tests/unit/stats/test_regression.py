"""Where a change is placed once it is shown: steps at the end are the usual case."""

from __future__ import annotations

import numpy as np
import pytest

from nodrop.stats.regression import RegressionVerdict, judge

MARGIN = 0.05


def steps(seed: int, runs: int, last: int, spread: float) -> list[float]:
    """A level of 100 that rises by two margins for the last runs."""
    noise = np.random.default_rng([seed, runs, last]).normal(0, spread, runs)
    rise = np.where(np.arange(runs) >= runs - last, 2.0, 0.0)
    found: list[float] = (100 * (1 + MARGIN * (rise + noise))).tolist()
    return found


@pytest.mark.parametrize("runs", [8, 9, 12, 20, 30])
@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_a_step_in_the_last_three_runs_is_placed_where_it_was(runs: int, spread: float) -> None:
    right = 0
    for seed in range(20):
        found = judge(steps(seed, runs, 3, spread), lambda level: MARGIN * level, error=0.05)
        right += bool(found.places) and abs(found.places[-1] - (runs - 3)) <= 1
    assert right >= 18


@pytest.mark.parametrize(("runs", "last"), [(12, 4), (12, 5), (14, 3)])
def test_what_is_worse_has_a_place(runs: int, last: int) -> None:
    """Seen: 25 % more from run 9 of 12, "no change seen" beside *worse*."""
    for seed in range(12):
        values = [v + 12.5 * (i >= runs - last) for i, v in enumerate(steps(seed, runs, last, 0.3))]
        found = judge(values, lambda level: MARGIN * level, error=0.05)
        assert found.verdict is RegressionVerdict.WORSE
        assert abs(found.places[-1] - (runs - last)) <= 1


def test_nothing_changed_has_no_place_in_nineteen_of_twenty() -> None:
    shown = sum(
        bool(judge(steps(seed, 12, 0, 0.5), lambda level: MARGIN * level, error=0.05).places)
        for seed in range(60)
    )
    assert shown <= 6
