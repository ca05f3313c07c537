"""The card of a run that goes on, by the trials so far."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console, Group

from nodrop.capacity.answer_cards import cards
from nodrop.capacity.answering import search_of
from nodrop.capacity.card import card_lines
from nodrop.capacity.searched_cells import searches
from nodrop.ledger.level import QueueLevel
from nodrop.report.story import read_story
from nodrop.results.rundir import open_run
from nodrop.results.trial import Ramp, TrialRecord
from nodrop.terminal.progress import print_trial, so_far_lines
from nodrop.watch.follow import RunFollower
from nodrop.watch.so_far import CellsSoFar, SoFar, SoFarRow, cell_name
from tests.made.outcome_runs import Load, outcome_run, outcome_search, tried


def records_of(run: Path) -> list[TrialRecord]:
    return [*open_run(run).trials.records]


def after(run: Path, trials: int) -> SoFar | None:
    gathered = CellsSoFar(search_of(open_run(run).manifest))
    for record in records_of(run)[:trials]:
        gathered.add(record)
    return gathered.look()


@pytest.mark.parametrize("capacity", [8.0, 61.25])
def test_a_search_narrows_and_ends_with_the_loads_of_the_report(
    tmp_path: Path, capacity: float
) -> None:
    loads = [tried(capacity, [0.0] * 3), tried(capacity * 1.02, [0.02, 0.01, 0.03])]
    run = outcome_search(tmp_path, loads)
    first = after(run, 1)
    assert first is not None and first.carried and not first.too_much
    assert (first.carried_pps, first.too_much_pps) == (pytest.approx(capacity * 1000), None)
    last, (card,) = after(run, 6), cards(read_story([run]))
    assert last is not None and card.carried and card.too_much
    assert (last.carried_pps, last.too_much_pps) == (card.carried.pps, card.too_much.pps)
    assert card.carried.shown_pps in last.carried and card.too_much.shown_pps in last.too_much
    assert last.breaks == card.breaks.verdict == "The socket ring overflows."
    said = dict(card_lines(card))
    assert said["too much"] == last.too_much
    assert len(searches(read_story([run]))) == 1


@pytest.mark.parametrize("limit", [6.0, 17.0])
def test_the_limit_stands_there_before_its_bounds_are_proved(tmp_path: Path, limit: float) -> None:
    ramp = tried(64.0, [0.5])
    searched = {**ramp.each[1]["searched"], "ramp": {"start": 1.0, "expects": 1.3 * limit}}
    ramp = replace(ramp, each={1: {"searched": searched}})
    run = outcome_search(tmp_path, [ramp, tried(limit * 1.1, [0.1])])
    first, second = after(run, 1), after(run, 2)
    assert first is not None and second is not None
    assert dict(first.lines())["limit"] == f"near {1.3 * limit:.3g}X at even gaps, by the ramp"
    assert second.limit == f"near {limit * 0.99:.3g}X, by what 1 trial served"


@pytest.mark.parametrize("budget_s", [60.0, 300.0])
def test_a_search_under_way_is_not_told_that_its_budget_ran_out(
    tmp_path: Path, budget_s: float
) -> None:
    """Seen in nodrop watch after the third trial of twenty."""
    loads = [tried(20.0, [0.4])]
    run = outcome_search(tmp_path, loads, search={"budget_s": budget_s})
    found = after(run, 2)
    assert found is not None and found.too_much and not found.breaks


@pytest.mark.parametrize(("sustained", "key"), [(True, "carried"), (None, "no loss")])
def test_given_loads_fill_the_same_card(tmp_path: Path, sustained: bool | None, key: str) -> None:
    loads = [
        Load(cell={"load.multiplier": x}, pps=x * 1000, trials=[loss] * 3,
             fields={"sustained": sustained})
        for x, loss in ((4, 0.0), (9, 0.1))
    ]  # fmt: skip
    found = after(outcome_run(tmp_path, loads), 6)
    assert found is not None
    said = dict(found.lines())
    assert said[key] == "4,000 packets/s, 4X"
    assert said["too much"] == "9,000 packets/s, 9X, 10.00 % lost in 3 of 3 trials"
    assert said["breaks"] == "The socket ring overflows."
    assert ("carried" in said) == (key == "carried")


def test_void_trials_say_nothing_and_failed_ones_are_too_much(tmp_path: Path) -> None:
    loads = [Load(cell={"load.pps": pps}, pps=pps, trials=[how] * 2)
             for pps, how in ((5_000, "late"), (9_000, "died"))]  # fmt: skip
    run = outcome_run(tmp_path, loads)
    assert after(run, 1) is None
    found = after(run, 4)
    assert found is not None and not found.carried and found.breaks == "The SUT fails."


def test_a_trial_that_was_repeated_counts_once(tmp_path: Path) -> None:
    run = outcome_run(tmp_path, [Load(cell={"load.pps": 5_000}, pps=5_000, trials=[0.1])])
    (record,) = records_of(run)
    gathered = CellsSoFar(None)
    for _ in range(3):
        gathered.add(record)
    found = gathered.look()
    assert found is not None and "in 1 of 1 trial" in found.too_much


@pytest.mark.parametrize("several", [True, False])
def test_the_cell_is_named_if_there_are_several(tmp_path: Path, several: bool) -> None:
    kinds = ("bare", "vm") if several else ("vm",)
    cells = [Load(cell={"setup.kind": kind, "load.pps": 5_000}, pps=5_000, trials=[0.0])
             for kind in kinds]  # fmt: skip
    found = after(outcome_run(tmp_path, cells), 2)
    assert found is not None and found.cell == ("vm" if several else "")
    assert dict(found.lines()).get("cell") == ("vm" if several else None)


def test_a_follower_has_the_card_and_json_takes_it(tmp_path: Path) -> None:
    run = outcome_search(tmp_path, [tried(7, [0.0] * 3), tried(8, [0.1] * 3)])
    view = RunFollower.of(run).look()
    assert view.so_far is not None and view.so_far.too_much
    assert json.loads(json.dumps(asdict(view)))["so_far"]["carried_pps"] == 7000.0
    assert [trial.row.said for trial in view.ended] == ["no loss", "10.00 % lost"] * 3


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (80, "the sender was late"),
        (120, "the sender was late: schedule error p99 9.0 ms (bound 5 ms)"),
    ],
)
def test_the_reason_of_a_void_trial_is_short_where_the_terminal_is(
    tmp_path: Path, columns: int, why: str
) -> None:
    """Seen at 80 columns: `the sender was late: sched…`."""
    (record, *_) = records_of(outcome_search(tmp_path, [tried(7, [0.1])]))
    late = "the sender was late: schedule error p99 9.0 ms (bound 5 ms)"
    row = replace(SoFarRow.of(record), mark="void", said="void", why=late)
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=True, color_system=None)
    print_trial(console, 2, row)
    assert out.getvalue().rstrip().endswith(f"void          {why}")


@pytest.mark.parametrize(
    ("highest", "ramp", "why"),
    [(2058, None, "its ring was full"), (1900, None, ""), (2058, 64.0, "a ramp: decides nothing")],
)
def test_a_row_says_why_a_trial_without_loss_proves_nothing(
    tmp_path: Path, highest: int, ramp: float | None, why: str
) -> None:
    """Seen: `5.395X no loss` above an answer of 2.3X, for its ring was 100 % full."""
    (record, *_) = records_of(outcome_search(tmp_path, [tried(7, [0.0])]))
    assert record.searched is not None
    queue = QueueLevel(
        rings=1,
        slots=2058,
        highest_packets=highest,
        highest_ratio=highest / 2058,
        at_s=1.0,
        above_half_s=0.1,
        above_ninety_s=0.0,
        lost_packets=0,
        excess=highest / 2058,
        looks=1250,
        longest_gap_s=0.005,
    )
    asked = record.searched.model_copy(update={"ramp": Ramp(start=1.0) if ramp else None})
    body = record.packets.model_copy(update={"queue": queue})
    row = SoFarRow.of(record.model_copy(update={"searched": asked, "body": body}))
    assert (row.said, row.why) == ("no loss", why)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_row_is_one_line_however_narrow_the_terminal_is(tmp_path: Path, columns: int) -> None:
    loads = [tried(7, [0.0, "late"]), tried(8, [0.1] * 2)]
    run = outcome_search(tmp_path, loads)
    records = records_of(run)
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=True, color_system=None)
    for number, record in enumerate(records, 1):
        print_trial(console, number, SoFarRow.of(record))
    card = [*so_far_lines(after(run, 4))]
    console.print(Group(*card))
    lines = out.getvalue().splitlines()
    assert len(lines) == len(records) + len(card) and len(card) > 2
    assert all(len(line) <= columns for line in lines)
    assert lines[0].split()[:3] == ["1", "●", "7X"] and "7,000" in lines[0]
    assert ("CPU s" in lines[0]) == (columns == 120)


def test_a_row_of_a_given_load_is_named_by_its_cell_and_cut_in_its_middle(tmp_path: Path) -> None:
    """Seen: `0003-autofp-1x2-runmode-autofp-threads-1-detect-threa-r01` and no word on its loss."""
    named = {"cell": "autofp-1x2", "sut.runmode": "autofp", "load.multiplier": 8}
    assert cell_name(named) == "autofp-1x2 · 8X"
    assert cell_name({"setup.kind": "docker", "sut.ring_size": 256}) == "docker · ring_size 256"
    assert cell_name({"load.pps": 500.0}) == "500 packets/s" and cell_name({}) == ""
    (record, *_) = records_of(outcome_search(tmp_path, [tried(7, [0.1])]))
    row = replace(SoFarRow.of(record), name="load.flows distinct · ring_size 4096")
    for columns in (60, 80):
        out = io.StringIO()
        console = Console(file=out, width=columns, force_terminal=True, color_system=None)
        print_trial(console, 12, row, longest=len(row.name))
        (line,) = out.getvalue().splitlines()
        assert len(line) <= columns and "load" in line and "4096  " in line
        assert "10.00 % lost" in line


@pytest.mark.parametrize("behind", [True, False])
def test_a_trial_that_fell_behind_has_no_mark_of_what_is_carried(
    tmp_path: Path, behind: bool
) -> None:
    """Seen: a blue mark on the load that is too much."""
    above = tried(8, [0.0] * 2)
    above = replace(above, fields={**above.fields, "sustained": not behind})
    found = after(outcome_search(tmp_path, [tried(7, [0.0] * 3), above]), 5)
    assert found is not None
    marks = [mark for pps, mark in found.tried if pps > 7_500]
    assert marks == ["loss" if behind else "good"] * 2
