"""Lines of a run while it goes on, and the table it ends with."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from nodrop.config.units import format_seconds
from nodrop.ledger.imbalance import BusyThread
from nodrop.measure.cells import Cell
from nodrop.measure.controllers.blocks import (
    Asked,
    AskedCell,
    Blocks,
    Outlook,
    TrialInput,
    UntilTold,
)
from nodrop.measure.plan import Plan, Progress
from nodrop.results.detection_books import Detections
from nodrop.results.summary import Eta, Remaining, record_words, summarize_cells
from nodrop.results.trial import Live, TrialRecord
from nodrop.terminal.console import cells_table, console, plan_words
from nodrop.terminal.progress import JsonLines, OnTerminal, PlainLines, missed_words
from nodrop.testbed.setups.api import Limits
from tests.made import outcome_runs


def trial(index: int, multiplier: int, repetition: int) -> TrialInput:
    return TrialInput(
        index=index,
        cell={"load.multiplier": multiplier},
        repetition=repetition,
        load={},
    )


def record(of: TrialInput, **fields: Any) -> TrialRecord:
    start = {
        "cell": of.cell,
        "repetition": of.repetition,
        "index": of.index,
        "run": of.run_name,
        "valid": True,
        "verdict": "no loss",
        "offered_packets": 1000,
        "lost_packets": 0,
        "loss_ratio": 0.0,
    }
    return outcome_runs.trial(**start | fields)


TRIALS = (trial(1, 4, 1), trial(2, 1, 1), trial(3, 1, 2), trial(4, 4, 2))
FACTORS = ({"load.multiplier": 1}, {"load.multiplier": 4})


class InThisOrder(Blocks):
    """Whatever the seed would make of it."""

    def __init__(self) -> None:
        cells = [AskedCell(factors=factors, load={}) for factors in FACTORS]
        super().__init__(Asked(cells=cells, repetitions=2, seed=1, sut="fresh", guess_s=15.0))
        self._order = tuple(
            replace(self._order[0], trial=t, cell=json.dumps(dict(t.cell))) for t in TRIALS
        )


PLAN = Plan(
    seed=1,
    cells=tuple(Cell(factors=f, setup={}, sut={}, load={}, limits=Limits()) for f in FACTORS),
    repetitions=2,
    controller=InThisOrder(),
    load_s=40.0,
    around_s=20.0,
)
LOSSY = record(TRIALS[0], took_s=10.0, lost_packets=25, loss_ratio=0.025, loss_place="socket ring")
INVALID = record(
    TRIALS[1],
    took_s=20.0,
    valid=False,
    invalid_reasons=["sender_late"],
    verdict="void: the sender was late: schedule error p99 40.0 ms",
)

READING = Live(
    mono_ns=7,
    phase="offer",
    offering_s=2.04,
    intended_s=4.0,
    intended_packets=1000,
    sent_packets=510,
    dropped_packets=3,
    sent_pps=250.0,
    decoded_pps=12_345.6,
    busiest_thread=BusyThread(name="W#01-ndrx0", cpu_ratio=0.97),
)


def played(progress: Progress) -> None:
    """The first two trials of the plan."""
    progress.plan_started(PLAN, directory=Path("results/x"), earlier=[])
    for planned, ended in [(TRIALS[0], LOSSY), (TRIALS[1], INVALID)]:
        progress.trial_started(planned)
        progress.phase("offer")
        progress.live(READING)
        progress.trial_ended(planned, ended)
    progress.finished(Path("results/x"), [LOSSY, INVALID])


def test_plain_lines_tell_each_trial_as_it_ends() -> None:
    out = io.StringIO()
    played(PlainLines(Console(file=out, width=200)))
    assert out.getvalue().splitlines() == [
        "results/x: 2 cells x 2 repetitions = 4 trials, order of seed 1, about 1 min 0 s",
        "trial 1 of 4, 0001-4x-r01: 2.50 % lost (25 of 1,000), socket ring, 30 s left",
        "trial 2 of 4, 0002-1x-r01: void: the sender was late: schedule error p99 40.0 ms, "
        "30 s left",
    ]


@pytest.mark.parametrize(
    ("most_s", "said"),
    [(60.0, "about 1 min 0 s"), (600.0, "1 min 0 s to 10 min 0 s"),
     (28.0, "1 min 0 s, of which the budget allows 28 s")],
)  # fmt: skip
def test_a_budget_below_the_least_trials_is_said(most_s: float, said: str) -> None:
    outlook = Outlook(
        at_least=Remaining(trials=4, seconds=60.0, spread_s=None),
        at_most=Remaining(trials=90, seconds=most_s, spread_s=None),
    )
    plan = replace(PLAN, controller=SimpleNamespace(outlook=lambda _: outlook))
    assert plan_words(plan) == f"2 cells, at least 4 trials, order of seed 1, {said}"


@pytest.mark.parametrize(("likely", "said"), [((9, 71.0), "9 trials"), ((30, 300.0), "30 trials")])
def test_a_search_without_a_budget_has_a_likely_time(likely: tuple[int, float], said: str) -> None:
    """Seen: "at least 1 trial", of a search that took a quarter of an hour."""
    outlook = Outlook(at_least=Remaining(trials=4, seconds=60.0, spread_s=None), at_most=None)
    plan = replace(PLAN, controller=SimpleNamespace(outlook=lambda _: outlook), likely=likely)
    words = plan_words(plan)
    assert words.startswith(f"2 cells, likely about {said}, order of seed 1, ")
    assert words.endswith(f"at least, likely about {format_seconds(likely[1])}")


def test_the_plan_of_a_proof_has_no_more_trials_than_its_budget() -> None:
    """Seen: "2 cells x 50 repetitions = 15 trials, about 8 min 21 s", of a budget of 75 s."""
    cells = [AskedCell(factors={"cell": name}, load={}) for name in "ab"]
    asked = Asked(cells=cells, repetitions=50, seed=1, sut="fresh", guess_s=5.0)
    until = UntilTold(Blocks(asked), most=50, told=lambda *_: False, budget_s=75.0)
    words = plan_words(replace(PLAN, controller=until, repetitions=50, load_s=400.0))
    assert words == (
        "2 cells, as many trials as 1 min 15 s hold (about 15 trials are foreseen), order of seed 1"
    )


def test_the_terminal_shows_the_trial_under_way() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, highlight=False)
    with OnTerminal(console) as display:
        played(display)
    text = out.getvalue()
    rates = " · offered 250 · captured – · decoded 12,346 packets/s · "
    dropped = "▼ 3 dropped (–/s)"
    busiest = "W#01-ndrx0 97 % of a CPU"
    for words in (
        "1/4",
        " left · offer 2.0 of 4.0 s · 0002-1x-r01",
        rates,
        dropped,
        busiest,
        "        4X          – packets/s  2.50 % lost",
        "◇",
        "4X, 2.50 % lost in 1 of 1 trial",
    ):
        assert words in text
    assert text.endswith("\x1b[2K") or "\x1b[?25h" in text, "the cursor is shown again"


@pytest.mark.parametrize("notes", [1, 3, 4, 12])
def test_a_few_rows_of_notes_stand_before_the_first_trial(notes: int) -> None:
    """Seen: 16 rows before anything moves."""
    out = io.StringIO()
    with OnTerminal(Console(file=out, force_terminal=True, width=80)) as display:
        display.plan_started(PLAN, directory=Path("d"), earlier=())
        for n in range(notes):
            display.note(f"note {n} {'long ' * 30}")
        display.trial_started(TRIALS[0])
        begun = out.getvalue()
        display.note("a later one is whole " + "long " * 30)
    rows = [line for line in begun.splitlines() if "  · " in line]
    assert len(rows) == min(notes, 3)
    assert ("10 more notes: see the report" in begun) == (notes == 12)
    assert out.getvalue().count("long") - begun.count("long") == 30


def test_json_lines_are_events_and_end_with_the_cells() -> None:
    out = io.StringIO()
    played(JsonLines(out))
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    one_trial = ["trial_started", "phase", "live", "trial_ended"]
    assert [e["event"] for e in events] == ["plan_started", *one_trial, *one_trial, "finished"]
    assert events[4]["trial"]["body"]["loss_ratio"] == 0.025
    assert events[-1]["directory"] == "results/x"
    assert [events[-1][k] for k in ("measured", "failed", "void")] == [1, 0, 1]
    assert [cell["cell"] for cell in events[-1]["cells"]] == [
        {"load.multiplier": 1},
        {"load.multiplier": 4},
    ]


def test_a_resumed_run_counts_from_where_it_was() -> None:
    out = io.StringIO()
    lines = PlainLines(Console(file=out, width=200))
    lines.plan_started(PLAN, directory=Path("d"), earlier=[LOSSY])
    assert "resumed: 1 trial is there, 3 to go" in out.getvalue()
    assert lines.outlook is not None and lines.outlook.at_least.trials == 3


def test_the_table_of_cells() -> None:
    out = io.StringIO()
    records = [LOSSY, INVALID, *[record(trial(i, 1, i)) for i in range(3, 9)]]
    Console(file=out, width=200).print(cells_table(summarize_cells(records)))
    rows = [line.split("  ") for line in out.getvalue().splitlines()]
    found = [[word.strip() for word in row if word.strip()] for row in rows]
    assert found == [
        [
            "cell",
            "measured",
            "lossy",
            "loss, median",
            "95 % interval",
            "all runs",
            "where and why",
        ],
        [
            "1X",
            "6 of 7",
            "0 of 6",
            "0 %",
            "0 % to 0 %",
            "0 %",
            "nothing lost; 1 void: sender_late",
        ],
        [
            "4X",
            "1 of 1",
            "1 of 1",
            "2.50 %",
            "needs n ≥ 6",
            "2.50 %",
            "socket ring",
        ],
    ]


def test_record_words() -> None:
    assert record_words(record(TRIALS[0])) == "no loss in 1,000 packets"
    for second, words in [(0, ", b received nothing"), (1, "")]:
        found = record(TRIALS[0]).model_dump()
        ports = [{"port": "a", "received_packets": 9}, {"port": "b", "received_packets": second}]
        found["body"]["ports"] = ports
        told = record_words(TrialRecord.model_validate(found))
        assert told == f"no loss in 1,000 packets{words}"
    assert record_words(INVALID).startswith("void: the sender was late")


def test_the_rest_takes_what_trials_of_the_same_cell_took() -> None:
    eta = Eta(guess_s=5.0)
    assert eta.remaining({"a": 1, "b": 1}) == Remaining(trials=2, seconds=10.0, spread_s=None)
    eta.ended("a", 10.0)
    assert eta.remaining({"a": 1, "b": 1}) == Remaining(trials=2, seconds=20.0, spread_s=None)
    eta.ended("b", 30.0)
    eta.ended("a", 12.0)
    assert eta.remaining({"a": 1, "b": 3}) == Remaining(trials=4, seconds=101.0, spread_s=2.0)
    begun = eta.remaining({"a": 1, "b": 3}, begun="a", begun_s=4.0)
    assert begun == Remaining(trials=4, seconds=97.0, spread_s=2.0)
    assert eta.remaining({"a": 1}, begun="a", begun_s=99.0).seconds == 0.0
    assert eta.remaining({}) == Remaining(trials=0, seconds=0.0, spread_s=0.0)


def test_a_long_sentence_stays_one_line_if_it_is_piped(capsys: pytest.CaptureFixture[str]) -> None:
    words = "the sender fell behind " * 20
    out = console()
    out.print(words, markup=False)
    out.print(cells_table(summarize_cells([record(TRIALS[0])], None)))
    first, *table = capsys.readouterr().out.splitlines()
    assert first == words
    assert len(table) == 2 and all(len(line) < 200 for line in table)


@pytest.mark.parametrize(
    ("expected", "missed", "no_ratio", "words"),
    [
        (120, 36, "", "8X: 72 of 240 expected detections, 30.00 %, in 2 trials"),
        (5, 3, "5 are few", "8X: 6 of 10 expected detections in 2 trials (5 are few)"),
        (0, 0, "", None),
    ],
)
def test_a_run_of_detections_ends_with_those_that_were_missed(
    expected: int, missed: int, no_ratio: str, words: str | None
) -> None:
    """Seen: a run that asks which detections a ring costs ended without a word of them."""
    seen = Detections(expected=expected, missed=missed, no_ratio=no_ratio, seen=1, alerts=1)
    records = [record(trial(n, 8, n)).model_copy(update={"detections": seen}) for n in (1, 2)]
    assert [*missed_words(records)] == ([words] if words else [])
