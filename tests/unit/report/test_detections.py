"""Lost detections beside lost packets: table, words, comparison, and where no packet was lost."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop.capacity.answer_cards import cards
from nodrop.capacity.card import card_lines, lost_words
from nodrop.capacity.json_answer import capacity_answer
from nodrop.capacity.searched_cells import searches
from nodrop.capacity.section import capacity_tables
from nodrop.compare.history import ReadRun, history
from nodrop.compare.records import Repeats, Side, SideCell
from nodrop.compare.sides import read_side
from nodrop.compare.versus import versus
from nodrop.findings.observations import observations_of
from nodrop.findings.rules import find
from nodrop.report.figures import detection_tables
from nodrop.report.story import read_story
from nodrop.report.write import markdown_report, page
from nodrop.results.export import write_csv
from nodrop.results.rundir import open_run
from nodrop.results.summary import record_words, summarize_cells
from nodrop.terminal.console import cells_table
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried


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
        assert (
            "1 of 2 trials without loss, up to 3 of 200 detections" in found[0].values["evidence"]
        )


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
    read = read_side(str(run(tmp_path, detected(4), detected(2))))
    assert sorted(read.cells[0].figures["detection_loss_pct"].values) == [1.0, 2.0]
    written = write_csv([run(tmp_path / "other", detected(4))], tmp_path / "x.csv")
    (row,) = csv.DictReader((tmp_path / "x.csv").read_text().splitlines())
    assert written and float(row["detections.detection_loss_ratio"]) == 0.02


def side(name: str, values: Sequence[float]) -> Side:
    figures = {"detection_loss_pct": Repeats(values=[*values], starts=[*range(len(values))])}
    cell = SideCell(factors={}, label="all trials", figures=figures, failed=0, void=0)
    return Side(name=name, identity=name, facts={}, cells=[cell])


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_lossless_trials_raise_no_alarm(share: float) -> None:
    """A against A: 0 of 20, if nothing is missed and if one unit of 200 is now and then; `history`
    of all of them, too."""
    rng = random.Random(7)
    made = [side(f"{n}", [0.5 * (rng.random() < share) for _ in range(8)]) for n in range(40)]
    rows = [row for a, b in zip(made[::2], made[1::2], strict=True) for row in versus(a, b).rows]
    assert len(rows) == 20 and "different" not in {row.answer for row in rows}
    (line,) = history(
        [ReadRun(side=s, started_utc=f"2026-11-{n + 1:02}T00:00:00+00:00") for n, s in
         enumerate(made[:20])]
    ).lines  # fmt: skip
    assert line.metric == "detection_loss_pct" and line.verdict != "worse"


def test_what_costs_detections_is_seen() -> None:
    (row,) = versus(side("a", [0.0] * 8), side("b", [10.0] * 8)).rows
    assert (row.answer, row.worse, row.metric) == ("different", True, "detection_loss_pct")


@pytest.mark.parametrize(("goal", "missed"), [(0.01, (0.0, 0.05)), (0.05, (0.02, 0.2))])
def test_a_search_by_detections_speaks_of_them(
    tmp_path: Path, goal: float, missed: tuple[float, float]
) -> None:
    """Packets are lost at both loads; what the goal tolerates is carried all the same."""
    loads = []
    for value, ratio, lost in ((4.0, missed[0], 0.002), (4.2, missed[1], 0.01)):
        load = tried(value, [lost] * 3, by="speed")
        each = {
            n: {"searched": {**own["searched"], "goals_of": "detections"}}
            for n, own in load.each.items()
        }
        seen = detected(round(ratio * 200))
        loads.append(replace(load, each=each, fields={**load.fields, **seen}))
    asked = {"by": "speed", "goals": [goal], "goals_of": "detections"}
    story = read_story([outcome_search(tmp_path, loads, search=asked)])
    (found,), (card,) = searches(story), cards(story)
    few = f"with at most {100 * goal:.2f} % of detections missed"
    assert any(few in words for _, words in card_lines(card))
    assert lost_words(card) == f"{100 * missed[1]:.2f} % of detections missed in 3 of 3 trials"
    assert card.carried and card.carried.value == 4 and card.too_much and card.too_much.value == 4.2
    assert few in markdown_report(story) and "without loss" not in card.headline
    said = capacity_answer(found, card, run_directory=tmp_path, report=tmp_path, exit_code=0)
    assert [(one.goals_of, one.goal) for one in said.goals] == [("detections", goal)]
    html = page(story)
    assert "Detections missed, %" in html and "missed detections" in html
    (steps,) = [one for one in capacity_tables(story) if one.name == "search"]
    assert {row["missed_pct"] for row in values(steps)} == {100 * ratio for ratio in missed}
