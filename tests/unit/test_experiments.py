"""The experiments that come with nodrop can answer the questions they ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.report.costs import DIFFERENCES, FIGURES
from nodrop.stats.interval import Family

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_has_as_many_runs_as_a_verdict_needs(path: Path) -> None:
    """A standing SUT has three starts per cell, and starts are what an inference counts."""
    asked = load_experiment(path, most_trials=None)
    cells = asked.matrix.cell_count()
    assert asked.question
    if cells < 2 or asked.metric == "books":
        return
    if asked.search is not None:
        assert asked.search.rounds >= Family(parts=cells).runs_needed()
        return
    setups = any(key.startswith("setup.") for key in asked.matrix.dimensions)
    figures = {f.name for f in (FIGURES if setups else DIFFERENCES)} | {asked.metric or "loss_pct"}
    parts = cells * len(figures) + cells * (cells - 1) // 2
    assert asked.measure.sut == "fresh"
    assert asked.measure.most_repetitions >= Family(parts=parts).runs_needed()
