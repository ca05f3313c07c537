"""Lost detections beside lost packets: table, words, comparison, and where no packet was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.compare.sides import read_side
from nodrop.findings.observations import observations_of
from nodrop.findings.rules import find
from nodrop.report.detections import detection_tables
from nodrop.report.story import read_story
from nodrop.report.write import markdown_report
from nodrop.results.rundir import open_run
from nodrop.results.summary import record_words, summarize_cells
from nodrop.terminal.tables import cells_table
from tests.made.outcome_runs import Load, outcome_run


def detected(missed: int, expected: int = 200, *, ratio: bool = True) -> dict[str, Any]:
    classes = [{"name": "Trojan", "expected": expected // 2, "missed": missed}]
    return {
        "detections": {
            "detection_loss_ratio": missed / expected if ratio else None,
            "no_ratio": "" if ratio else "5 expected units are fewer than 20",
            "baseline": "live",
            "expected": expected,
            "seen": expected - missed,
            "missed": missed,
            "surplus": 1,
            "uncertain": 0,
            "alerts": 900,
            "classes": classes,
        }
    }


def run(out: Path, *each: dict[str, Any], lost: float = 0.0) -> Path:
    load = Load(
        cell={"load.pps": 10_000}, trials=[lost] * len(each), each=dict(enumerate(each, start=1))
    )
    return outcome_run(out, [load])


def values(table: Any) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, [v.raw for v in row.values], strict=True)) for row in table.rows]


@pytest.mark.parametrize(("missed", "median"), [((2, 4, 6), 4), ((0, 0, 50), 0)])
def test_each_cell_has_both_losses(tmp_path: Path, missed: tuple[int, ...], median: int) -> None:
    story = read_story([run(tmp_path, *map(detected, missed), lost=0.1)])
    first, classes = detection_tables(story)
    (row,) = values(first)
    assert (row["expected"], row["missed_median"], row["surplus_largest"]) == (200, median, 1)
    assert row["detection_loss_pct_median"] == pytest.approx(median / 2)
    assert row["detection_loss_pct_largest"] == pytest.approx(max(missed) / 2)
    assert row["loss_pct_median"] == pytest.approx(10, abs=0.1)
    (of_class,) = values(classes)
    assert (of_class["expected"], of_class["missed_largest"]) == (100, max(missed))
    assert "## Lost detections" in markdown_report(story)


def test_without_a_ratio_there_is_a_count_and_why(tmp_path: Path) -> None:
    story = read_story([run(tmp_path, detected(2, 5, ratio=False))])
    (row,) = values(detection_tables(story)[0])
    assert (row["expected"], row["missed_median"]) == (5, 2)
    assert row["detection_loss_pct_median"] is None
    assert row["no_ratio"] == "5 expected units are fewer than 20"


def test_a_run_that_did_not_ask_says_nothing_of_detections(tmp_path: Path) -> None:
    asked_not = run(tmp_path, {}, {})
    assert detection_tables(read_story([asked_not])) == ()
    (row,) = summarize_cells(open_run(asked_not).trials.records)
    assert row.detections is None
    assert "detections missed" not in [str(c.header) for c in cells_table([row]).columns]


@pytest.mark.parametrize(
    ("lost", "missed", "said"), [(0.0, 3, True), (0.0, 0, False), (0.2, 3, False)]
)
def test_detections_missed_without_loss_are_a_finding(
    tmp_path: Path, lost: float, missed: int, said: bool
) -> None:
    records = open_run(run(tmp_path, detected(missed), detected(0), lost=lost)).trials.records
    found = [one for one in find(observations_of(records)) if one.code == "detections-without-loss"]
    assert len(found) == said
    if found:
        assert "1 of 2 trials without loss, up to 3 of 200 detections" in found[0].evidence


@pytest.mark.parametrize(
    ("missed", "words"),
    [(0, "all 200 expected detections seen"), (3, "1.50 % of detections missed (3 of 200)")],
)
def test_a_trials_line_says_it(tmp_path: Path, missed: int, words: str) -> None:
    records = open_run(run(tmp_path, detected(missed))).trials.records
    assert f", {words}, 1 not expected" in record_words(records[0])
    (row,) = summarize_cells(records)
    assert row.detections is not None and row.detections.median == missed / 200


def test_a_comparison_knows_the_figure(tmp_path: Path) -> None:
    side = read_side(str(run(tmp_path, detected(4), detected(2))))
    assert sorted(side.cells[0].figures["detection_loss_pct"].values) == [1.0, 2.0]
