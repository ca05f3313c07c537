"""`nodrop compare`: false alarms of A against A, and what it imports."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from nodrop.compare.records import Side
from nodrop.compare.versus import versus
from nodrop.report import comparison
from nodrop.stats.comparison import Advice
from tests.unit.report.test_versus import side


@pytest.mark.parametrize("shape", ["normal", "heavy", "humps", "mostly zero", "ties"])
def test_a_against_a_raises_a_false_alarm_at_most_once_in_twenty(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All metrics of three cells at once: any of them "different" is one false alarm."""
    # Advice on further runs is most of the time, and changes no answer.
    monkeypatch.setattr(comparison, "more_runs", lambda *_: Advice(more_runs=None))
    rng = random.Random(shape)

    def draw() -> float:
        match shape:
            case "normal":
                return rng.gauss(10, 1)
            case "heavy":
                return rng.paretovariate(1.1)
            case "humps":
                return rng.choice((1.0, 5.0)) + rng.random()
            case "mostly zero":
                return rng.random() if rng.random() < 0.3 else 0.0
        return float(rng.randrange(3))

    def one(name: str, n: int) -> Side:
        names = ("loss_pct", "cpu_us_per_packet", "memory_mib", "activation_s")
        made = [side(name, {m: [draw() for _ in range(n)] for m in names}) for _ in range(3)]
        cells = [s.cells[0].model_copy(update={"factors": {"k": i}}) for i, s in enumerate(made)]
        return made[0].model_copy(update={"cells": cells})

    alarms = 0
    for trial in range(60):
        n = (12, 20, 40)[trial % 3]
        rows = versus(one("a", n), one("b", n)).rows
        alarms += any(row.answer == "different" for row in rows)
    assert alarms <= 6, f"{alarms} of 60"  # more than 6 has a probability of 3 % at most at 5 %


def test_comparing_imports_nothing_that_measures_or_takes_long() -> None:
    words = (
        "import sys, nodrop.compare.sides, nodrop.compare.versus, nodrop.terminal.console; "
        "import nodrop.compare.history, nodrop.profile.section, nodrop.report.write; "
        "not_here = ('nodrop.measure', 'scipy'); "
        "sys.exit([m for m in sys.modules if m.startswith(not_here)] or 0)"
    )
    subprocess.run([sys.executable, "-c", words], check=True, timeout=60)
