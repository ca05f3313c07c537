"""`nodrop ab`: the share of comparisons of A with A that call it different."""

from __future__ import annotations

import os
import random

import pytest

from nodrop.report import comparison
from nodrop.stats.comparison import Advice
from tests.unit.report.test_ab import MOST, answer

RUNS = int(os.environ.get("NODROP_SIMULATIONS", "30"))
"""Per shape; 1,000 is the larger version (docs/methodology.md has its figures)."""
METRICS = ("loss_pct", "cpu_us_per_packet", "memory_mib", "activation_s")
SHAPES = {
    "narrow": lambda rng: rng.gauss(10, 0.1),
    "wide": lambda rng: rng.gauss(10, 2),
    "heavy": lambda rng: rng.paretovariate(1.1),
    "mostly zero": lambda rng: rng.random() if rng.random() < 0.3 else 0.0,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_against_a_until_it_can_tell_is_called_different_at_most_once_in_twenty(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All metrics and all looks together: any of them "different" is one false alarm."""
    monkeypatch.setattr(comparison, "more_runs", lambda *_: Advice(more_runs=None))
    rng = random.Random(shape)
    alarms = 0
    for _ in range(RUNS):
        a, b = ({m: [SHAPES[shape](rng) for _ in range(MOST)] for m in METRICS} for _ in "ab")
        found, _ = answer(a, b)
        alarms += "different" in found
    assert alarms <= 0.05 * RUNS + 3 * (RUNS * 0.05 * 0.95) ** 0.5, f"{alarms} of {RUNS}"
