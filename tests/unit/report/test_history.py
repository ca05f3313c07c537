"""`nodrop history`: where a metric changed, what else did, what is refused, its exit codes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nodrop.cli import main
from nodrop.compare.commands import drawn
from nodrop.compare.history import ReadRun, change_words, history
from nodrop.compare.page import history_page
from nodrop.compare.records import Repeats, Side, SideCell
from nodrop.errors import BadInput
from nodrop.report.escape import THIN
from tests.depth import depth
from tests.made.rundirs import DEMO, make_run
from tools.schemas import schemas


def runs(
    values: Sequence[Sequence[float]], *, metric: str = "activation_s", **facts: Sequence[str]
) -> list[ReadRun]:
    """A run for each row of values; a fact may have another value in each."""
    made = []
    for i, row in enumerate(values):
        figures = {metric: Repeats(values=[*row], starts=[*range(len(row))])} if row else {}
        cell = SideCell(
            factors={}, label="all trials", figures=figures, failed=0, void=0 if row else 3
        )
        side = Side(
            name=f"run-{i}", identity=str(i), facts={k.replace("__", "."): [v[i]] for k, v in
            facts.items()}, cells=[cell],
        )  # fmt: skip
        made.append(ReadRun(side=side, started_utc=f"2026-11-{i + 1:02}T00:00:00+00:00"))
    return made


def levels(*stretches: tuple[int, float]) -> list[list[float]]:
    rng = random.Random(3)
    return [[v + 0.01 * rng.random() for _ in range(3)] for n, v in stretches for _ in range(n)]


@pytest.mark.parametrize("metrics", [["activation"], ["activation_s", "x"]])
def test_a_metric_that_no_run_has_is_refused_by_name(metrics: list[str]) -> None:
    with pytest.raises(BadInput, match=f"--metric {metrics[-1]}: none of the runs") as said:
        history(runs([[1.0, 1.1], [1.0, 1.2]]), metrics=metrics)
    assert said.value.hint == "metrics there: activation_s"


@pytest.mark.parametrize(
    ("metrics", "words"),
    [([], ""), (["loss_pct"], " of loss_pct"), (["loss_pct", "x"], " of loss_pct, x")],
)
def test_runs_without_a_figure_say_which_was_looked_for(metrics: list[str], words: str) -> None:
    """Two searches that ended with their budget "have no metric that was asked for": none was."""
    with pytest.raises(BadInput) as said:
        history(runs([[], []]), metrics=metrics)
    assert str(said.value).startswith(f"no metric{words} has a figure")
    assert "found no limit" in str(said.value.hint)


@pytest.mark.parametrize("key", ["sut__rules", "sut__rules_errors", "load__speed"])
def test_what_only_one_run_has_is_not_called_unrecorded(key: str) -> None:
    """A run without rules has recorded that it has none; an option that was not set likewise."""
    one, other = runs([[1.0], [1.0]], **{key: ["x", "warn"]})
    del one.side.facts[key.replace("__", ".")]
    with pytest.raises(BadInput, match=r"none recorded and warn|warn and none recorded"):
        history([one, other])


@pytest.mark.parametrize(
    ("stretches", "at", "verdict", "code"),
    [
        ([(10, 1.0), (10, 2.0)], [10], "worse", 5),
        ([(10, 2.0), (10, 1.0)], [10], "no worse", 0),
        ([(12, 1.0), (12, 2.0), (12, 1.0)], [12, 24], "no worse", 0),
        ([(10, 100.0), (10, 101.0)], [10], "no worse", 0),  # within 5 %
        ([(24, 1.0)], [], "no worse", 0),
        ([(3, 1.0), (3, 2.0)], [], "cannot tell", 6),
    ],
)
def test_the_newest_runs_are_held_against_the_best_stretch(
    stretches: list[tuple[int, float]], at: list[int], verdict: str, code: int
) -> None:
    found = history(runs(levels(*stretches)))
    assert [change.run for change in found.lines[0].changes] == at
    assert (found.verdict, found.exit_code) == (verdict, code)


@pytest.mark.parametrize(
    ("metric", "stretches", "words"),
    [
        ("loss_pct", [(8, 10.0), (8, 50.0), (8, 49.0)],
         r"worse: 49.0\d % in the newest \d+ runs, 10.0\d % in the best stretch \(run-0 to run-7\) "
         r"\(\+39.00 points\)"),
        ("capacity_pps_at_0", [(12, 70e3), (9, 90e3), (10, 60e3), (9, 61e3)],
         r"worse: 61.000 packets/s .* 90.000 packets/s .*\(run-1[12] to run-20\)"),
        ("activation_s", [(n, 1 + 0.02 * i) for i, n in enumerate([3] * 9)], r"worse: 1.1\d s"),
        ("memory_mib", [(1, 200 + i) for i in range(30)], r"worse: 22\d.\d MiB"),
    ],
)  # fmt: skip
def test_a_small_step_down_or_many_small_ones_up_hide_no_regression(
    metric: str, stretches: list[tuple[int, float]], words: str
) -> None:
    """Seen: 8 runs at 10 %, 8 at 50 %, 8 at 49 %, and a creep: "no worse", exit code 0."""
    found = history(runs(levels(*stretches), metric=metric))
    assert found.exit_code == 5
    assert re.match(words, found.lines[0].words.replace(THIN, ".")), found.lines[0].words


@pytest.mark.parametrize(("before", "after"), [(1.0, 1.1), (40.0, 60.0)])
@pytest.mark.parametrize("newest", [1, 2, 3])
def test_the_newest_runs_after_a_regression_are_never_no_worse(
    before: float, after: float, newest: int
) -> None:
    found = history(runs(levels((14, before), (newest, after))))
    assert found.exit_code == (5 if newest > 1 else 6)
    if newest == 1:
        assert "in the newest run, " in found.lines[0].words


def test_no_worse_is_not_said_of_runs_that_spread_too_widely() -> None:
    rng = random.Random(1)
    found = history(runs([[rng.gauss(10, 3)] for _ in range(20)]))
    assert found.exit_code == 6
    assert re.search(
        r"a regression of 10 % would be found within 3 runs in \d+ %", found.lines[0].words
    )


@pytest.mark.parametrize("empty", [1, 3])
def test_newest_runs_without_a_value_may_be_worse(empty: int) -> None:
    values = levels((14, 1.0))
    found = history(runs([*values[:-empty], *[[]] * empty]))
    assert found.exit_code == 6 and "no value, and may be worse" in found.lines[0].words
    assert "void hollow" in history_page(found), "a cross without a hollow is not drawn"
    values[5] = []
    assert history(runs(values)).exit_code == 0


@pytest.mark.parametrize(("behind", "code"), [(0, 0), (1, 0), (2, 6), (3, 6)])
@pytest.mark.parametrize("loss_pct", [0.0, 0.02])
def test_no_loss_of_a_newest_run_that_fell_behind_is_not_no_worse(
    behind: int, code: int, loss_pct: float
) -> None:
    given = runs(levels((14, loss_pct)), metric="loss_pct")
    newest = given[-1].side
    cell = newest.cells[0].model_copy(update={"behind": behind})
    given[-1] = replace(given[-1], side=newest.model_copy(update={"cells": [cell]}))
    found = history(given)
    assert found.exit_code == code
    said = f"run-13 did not keep the pace of its load in {behind} of 3 trials"
    assert (said in found.lines[0].words) == (code == 6)


@pytest.mark.parametrize(("failing", "code"), [([0] * 11 + [1], 6), ([0] * 9 + [2, 2, 3], 5),
                                               ([1] + [0] * 19, 0)])  # fmt: skip
def test_one_failure_more_in_each_run_is_a_regression(failing: list[int], code: int) -> None:
    rows = [[100.0] * n + [0.0] * (6 - n) for n in failing]
    made = runs(rows, metric="failed_pct")
    for run, n in zip(made, failing, strict=True):
        run.side.cells[0] = run.side.cells[0].model_copy(update={"failed": n})
    assert history(made).exit_code == code


@pytest.mark.parametrize("start", [3.0, 50.0, 800.0])
def test_less_capacity_is_worse(start: float) -> None:
    found = history(runs(levels((10, start), (10, start / 2)), metric="capacity_multiplier_at_0"))
    assert found.verdict == "worse"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_runs_stand_in_the_order_of_their_own_time(order: tuple[int, ...]) -> None:
    made = runs([[1.0], [2.0], [3.0]])
    found = history([made[i] for i in order])
    assert [run.name for run in found.runs] == ["run-0", "run-1", "run-2"]


@pytest.mark.parametrize("empty", [[4], [4, 9], [9, 10, 11]])
def test_runs_without_a_value_are_shown_and_not_counted(empty: list[int]) -> None:
    values = levels((10, 1.0), (10, 2.0))
    for i in empty:
        values[i] = []
    bits = ["old"] * 10 + ["new"] * 10
    found = history(runs(values, sut__bits=bits))
    line = found.lines[0]
    assert [i for i, point in enumerate(line.points) if point.median is None] == empty
    assert any(f"{len(empty)} run" in words and "without a value" in words for words in found.notes)
    # What changed in a run without a value lies between the runs that have one.
    assert line.changes[0].beside == ["sut.bits: old → new"]


def test_what_changed_beside_is_named() -> None:
    kernels = ["6.1"] * 7 + ["6.12"] * 13
    bits = ["a" * 64] * 10 + ["b" * 64] * 10
    found = history(runs(levels((10, 1.0), (10, 2.0)), host__kernel=kernels, sut__bits=bits))
    assert found.runs[7].changed == ["host.kernel: 6.1 → 6.12"]
    assert found.lines[0].changes[0].beside == ["sut.bits: aaaaaaaaaaaa → bbbbbbbbbbbb"]


@pytest.mark.parametrize(
    "key", ["load.trace_sha256", "sut.rules", "host.hostname", "limits.cpus", "setup.kind"]
)
def test_runs_of_two_kinds_are_refused_by_name(key: str) -> None:
    made = runs([[1.0]] * 3, **{key.replace(".", "__"): ["x", "x", "y"]})
    with pytest.raises(BadInput, match=rf"run-0 and run-2 .*{key}: x and y.*--differs {key}"):
        history(made)
    assert history(made, differs=[key]).runs[2].changed == [f"{key}: x → y"]


@pytest.mark.parametrize("lines", [1, 4, depth(10)])
def test_lines_share_one_rate_of_false_alarms(lines: int) -> None:
    rng = random.Random(lines)
    alarms = 0
    for _ in range(60):
        made = runs([[rng.gauss(10, 1)] for _ in range(16)])
        for run in made:
            cell = run.side.cells[0]
            run.side.cells[:] = [
                cell.model_copy(
                    update={
                        "factors": {"k": k},
                        "figures": {"memory_mib": Repeats(values=[rng.random()], starts=[0])},
                    }
                )
                for k in range(lines)
            ]
        alarms += any(line.changes for line in history(made).lines)
    assert alarms <= 8, f"{alarms} of 60"  # more than 8 has a probability of 0.3 % at 5 %


def test_a_line_of_which_no_run_has_a_value_is_drawn() -> None:
    """Other programs had the CPUs in all trials of three runs: the lowest of nothing was asked."""
    given = runs([[1.0, 1.1], [1.0, 1.2], [1.0, 1.1]])
    for n, run in enumerate(given):
        cells = [run.side.cells[0].model_copy(update={"crowded": 2, "watched": 2})]
        given[n] = replace(run, side=run.side.model_copy(update={"cells": cells}))
    found = history(given)
    assert found.exit_code == 6 and "<svg" in history_page(found)
    assert drawn(found.lines[0])[3:] == "  no run has a value"


def test_of_run_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = []
    for i in range(16):
        out = tmp_path / str(i)
        out.mkdir()
        fake = replace(
            DEMO,
            cells=({"load.multiplier": 8},),
            repetitions=3,
            seed=i,
            samples=False,
            capacity_pps=190_000 if i < 8 else 90_000,
            manifest={"bits": [{"version": "7.0.10" if i < 8 else "8.0.1"}]},
        )
        path = make_run(out, replace(fake, name=f"night-{i}"))
        said = json.loads((path / "manifest.json").read_text())
        said["started_utc"] = f"2026-11-{i + 1:02}T02:00:00+00:00"
        (path / "manifest.json").write_text(json.dumps(said))
        made.append(str(path))
    page = tmp_path / "history.html"
    args = ["history", *reversed(made), "--metric", "loss_pct", "--page", str(page)]
    assert main.exit_code([*args, "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["history"]).validate(found)
    assert [line["metric"] for line in found["lines"]] == ["loss_pct"]
    change = found["lines"][0]["changes"][0]
    assert change["run"] == 8 and change["beside"] == ["sut.version: 7.0.10 → 8.0.1"]
    assert main.exit_code(args) == 5
    said = capsys.readouterr().out
    assert re.search(r"\d{8}\|\d{8}", said) and "16 runs: worse" in said
    html = page.read_text()
    assert 'name="viewport"' in html and html.count('role="img" class="plot"') == 1
    assert "sut.version: 7.0.10 → 8.0.1" in html
    assert '<header class="rail">' in html, "main has the second column of a wide window"
    assert 'class="verdict head">Worse.<' in html
    assert all(f">11-{day:02}</text>" in html for day in (1, 3, 15)), "dates below the plot"
    assert 'class="marks lost"' in html, "newest runs that are worse"
    assert "Loss<span>, %</span>" in html, "the unit of the axis"
    assert html.index(">Worse.<") < html.index('<li class="different">') < html.index("<figure>")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{run}"], "give at least two"),
        (["{run}", "{run}"], "are one run"),
        (["{run}", "no-such"], "no-such"),
        (["{run}", "{other}", "--metric", "beauty"], "none of the runs has it"),
    ],
)
def test_bad_input_is_one_line(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {
        name: make_run(tmp_path, replace(DEMO, name=name, samples=False, repetitions=1))
        for name in ("run", "other")
    }
    assert main.exit_code(["history", *(arg.format(**names) for arg in args)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error


@pytest.mark.parametrize(("weak", "told"), [((), 0), ((2,), 1), ((0, 5), 2), (tuple(range(7)), 5)])
def test_runs_that_others_disturbed_are_named(weak: tuple[int, ...], told: int) -> None:
    """Four of ten runs had lost their CPUs to others, and history advised more trials."""
    given = runs(levels((8, 1.0)))
    for n in weak:
        words = "others had much of the host in 3 of 3 trials"
        given[n] = replace(given[n], side=given[n].side.model_copy(update={"weak": [words]}))
    notes = [
        note for note in history(given).notes if "others had" in note or "believed less" in note
    ]
    assert len(notes) == told
    assert all(f"run-{n}: " in " ".join(notes) for n in sorted(weak)[-4:])
    assert len(weak) <= 4 or notes[-1].startswith(f"{len(weak) - 4} older runs")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((4, 2.0), (2, 26.0), "the last 2 lie above all 4 before; a further run decides"),
        ((3, 9.0), (3, 4.0), "the last 3 lie below all 3 before; a further run decides"),
    ],
)
def test_newest_runs_beyond_all_before_are_said_while_too_few_show_a_change(
    before: tuple[int, float], after: tuple[int, float], said: str
) -> None:
    """Seen: losses of 4 % in ten runs and 53 % in two, and "no change seen" below the plot."""
    found = history(runs(levels(before, after)))
    (line,) = found.lines
    assert not line.changes
    (words,) = change_words(found, line)
    assert words == f"no change shown: {said}"


def test_one_run_far_beyond_all_before_is_a_change_to_be_measured_again() -> None:
    found = history(runs(levels((8, 2.0), (1, 26.0))))
    (line,) = found.lines
    assert [change.run for change in line.changes] == [8]
    (words,) = change_words(found, line)
    assert "one run alone: measure it again" in words
    (line,) = history(runs(levels((8, 2.0), (1, 2.08)))).lines
    assert not line.changes
