"""False alarms of change points, by simulation."""

from __future__ import annotations

import os

import numpy as np
import pytest

from nodrop.stats.changes import changes
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
