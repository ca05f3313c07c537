"""A/A: repetitions of the same cell, and what difference they leave visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.report.charts import runs_plot
from nodrop.report.costs import FIGURES
from nodrop.report.repeats import repeats, repeats_words
from nodrop.report.story import read_story
from tests.made.rundirs import Fake, make_run
from tests.made.told import told


def test_what_cannot_be_seen_is_said_and_is_never_nothing(tmp_path: Path) -> None:
    """Losses of the two lighter loads are all zero: their runs show no spread."""
    run = make_run(tmp_path, Fake(repetitions=22, samples=False))
    found = {(r.figure.name, r.cell.label): r for r in repeats(read_story([run]))}
    light, heavy = found["loss_pct", "1X"], found["loss_pct", "8X"]
    assert light.sees is None
    assert light.sees_words.startswith("so many runs are alike that it is not known")
    assert heavy.sees is not None and heavy.sees > 0
    assert heavy.sees_words.startswith("a difference is seen with a probability of 80 % from about")
    assert not any("about 0 " in words for words in repeats_words(list(found.values())))


@pytest.mark.parametrize("repetitions", [2, 6, 15])
def test_few_runs_do_not_know_what_they_could_see(repetitions: int, tmp_path: Path) -> None:
    found = repeats(read_story([make_run(tmp_path, Fake(repetitions=repetitions, samples=False))]))
    assert {r.sees for r in found} == {None}
    assert all("not known from fewer than" in r.sees_words for r in found)
    assert repeats_words(found) == []


def test_runs_stand_about_their_median_(demo: Path) -> None:
    found = repeats(read_story([demo]))
    compared = {"loss_pct", "sut_cpu_s", "memory_mib", "activation_s"}
    assert {r.figure.name for r in found} == compared
    assert all(min(r.deviations) <= 0 <= max(r.deviations) for r in found)
    assert len(found) == 12
    assert len(told(runs_plot(found))) == 12


def test_one_run_of_each_cell_has_nothing_to_compare(tmp_path: Path) -> None:
    found = repeats(read_story([make_run(tmp_path, Fake(repetitions=1, samples=False))]))
    assert not found and not runs_plot(found)


@pytest.mark.parametrize(
    ("value", "said"), [(1e-9, "0.01"), (0.004, "0.01"), (0.3, "0.30"), (2.001, "2.01")]
)
def test_what_can_be_seen_is_rounded_up(value: float, said: str) -> None:
    assert FIGURES[0].at_least(value) == said
