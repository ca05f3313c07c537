"""Trials that stand apart are marked in tables and drawings, and no figure changes for it."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from nodrop.report.charts import loss_plot, runs_plot
from nodrop.report.figures import cells_table, trials_page_table
from nodrop.report.repeats import outliers_tables, outlying, repeats
from nodrop.report.story import Story, read_story
from nodrop.report.trust import findings
from nodrop.report.write import write_report
from tests.made.outcome_runs import Load, outcome_run
from tests.made.told import told
from tests.pages import page_of

USUAL = [0.010, 0.011, 0.012, 0.010, 0.011, 0.012, 0.011]


def story_of(out: Path, losses: list[Any], **each: dict[str, Any]) -> Story:
    loads = [
        Load(cell={"load.pps": 10_000}, trials=losses, fields={"sut_cpu_s": 2.0},
             each={int(number[1:]): fields for number, fields in each.items()})
    ]  # fmt: skip
    return read_story([outcome_run(out, loads)])


def table_text(table: Any) -> str:
    return "\n".join(" | ".join(v.shown for v in row.values) for row in table.rows)


@pytest.mark.parametrize("wild", [0.3, 0.05, 0.026, 0.999])
def test_a_loss_apart_is_marked_wherever_the_trial_is_seen(tmp_path: Path, wild: float) -> None:
    story = story_of(tmp_path, [*USUAL, wild])
    (one,) = outlying(story)
    assert (one.trial.record.run, one.figure.name) == ("0008-r08", "loss_pct")
    assert one.found.value == pytest.approx(wild * 100)
    assert one.found.median == pytest.approx(median([*USUAL, wild]) * 100)
    drawn = loss_plot(story.cells)
    assert str(drawn).count("#m-halo") == 1
    assert any(said.startswith("0008-r08 stands apart: Loss") for said in told(drawn))
    assert str(runs_plot(repeats(story))).count("#m-halo") == 1
    assert table_text(trials_page_table(story)).count("(median 1.") == 1
    (said,) = [f for f in findings(story) if f.rule == "stands-apart"]
    assert said.text.startswith("1 trial stands apart from the others of its cell (Loss)")
    assert [t.record.run for t in said.trials] == ["0008-r08"]


def test_it_is_in_every_figure(tmp_path: Path) -> None:
    story = story_of(tmp_path, [*USUAL, 0.9])
    (cell,) = story.cells
    assert len(cell.valid) == 8 and cell.loss is not None
    assert (cell.loss.high, cell.loss.median) == (0.9, pytest.approx(0.011))
    (row,) = cells_table(story).rows
    assert row.values[1].raw == 8


@pytest.mark.parametrize(("repetition", "cpu"), [(1, 9.0), (4, 0.1), (8, 30.0)])
def test_each_figure_by_itself(tmp_path: Path, repetition: int, cpu: float) -> None:
    each = {f"r{n}": {"sut_cpu_s": 2 + n / 100} for n in range(1, 9)}
    each[f"r{repetition}"] = {"sut_cpu_s": cpu}
    story = story_of(tmp_path, [*USUAL, 0.011], **each)
    (one,) = outlying(story)
    assert one.figure.name == "sut_cpu_s" and one.trial.record.repetition == repetition
    assert f"SUT CPU {cpu:.2f} s (median " in one.words
    assert "#m-halo" not in str(loss_plot(story.cells))


@pytest.mark.parametrize(
    "losses",
    [
        [0.01, 0.02, 0.03, 0.04, 0.9],
        [0.0] * 8,
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.01, 0.02, 0.03],
        [0.010, 0.011, 0.012, 0.010, 0.011, 0.012, 0.014, "died", "late"],
    ],
)
def test_few_trials_equal_ones_and_honest_scatter_have_no_marks(
    tmp_path: Path, losses: list[Any]
) -> None:
    story = story_of(tmp_path, losses)
    assert outlying(story) == ()
    assert "stands-apart" not in {f.rule for f in findings(story)}


def test_files_and_page_have_the_table_if_there_is_something_in_it(tmp_path: Path) -> None:
    story = story_of(tmp_path / "wild", [*USUAL, 0.9])
    page = write_report(read_story([story.sources[0].run.path])).read_text()
    report = story.sources[0].run.path / "report"
    lines = (report / "outliers.csv").read_text().splitlines()
    assert len(lines) == 2 and "0008-r08" in lines[1]
    assert "Dashed rings" in page and 'id="outliers-table"' in page
    assert "0008-r08" in table_text(next(outliers_tables(story)))
    quiet = story_of(tmp_path / "quiet", [*USUAL, 0.011])
    page = page_of(quiet.sources[0].run.path)
    assert not (quiet.sources[0].run.path / "report" / "outliers.csv").exists()
    assert "Dashed rings" not in page and "Stands apart" not in page
