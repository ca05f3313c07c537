"""`nodrop history`: where a metric changed, what else did, what is refused, its exit codes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from nodrop.cli import main
from nodrop.errors import BadInput
from nodrop.report.history import Run, history
from nodrop.results.side import Repeats, Side, SideCell
from nodrop.schemas import schemas
from nodrop.testing.rundirs import DEMO, make_run


def runs(
    values: Sequence[Sequence[float]], *, metric: str = "activation_s", **facts: Sequence[str]
) -> list[Run]:
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
        made.append(Run(side=side, started_utc=f"2026-11-{i + 1:02}T00:00:00+00:00"))
    return made


def levels(*stretches: tuple[int, float]) -> list[list[float]]:
    rng = random.Random(3)
    return [[v + 0.01 * rng.random() for _ in range(3)] for n, v in stretches for _ in range(n)]


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
def test_the_last_change_decides(
    stretches: list[tuple[int, float]], at: list[int], verdict: str, code: int
) -> None:
    found = history(runs(levels(*stretches)))
    assert [change.run for change in found.lines[0].changes] == at
    assert (found.verdict, found.exit_code) == (verdict, code)


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


@pytest.mark.parametrize("lines", [1, 4, 10])
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
    jsonschema.validate(found, schemas()["history"])
    assert [line["metric"] for line in found["lines"]] == ["loss_pct"]
    change = found["lines"][0]["changes"][0]
    assert change["run"] == 8 and change["beside"] == ["sut.version: 7.0.10 → 8.0.1"]
    assert main.exit_code(args) == 5
    said = capsys.readouterr().out
    assert re.search(r"\d{8}\|\d{8}", said) and "16 runs: worse" in said
    html = page.read_text()
    assert 'name="viewport"' in html and '<div class="scroll" tabindex="0" role="region"' in html
    assert html.count("<svg") == 1 and "sut.version: 7.0.10 → 8.0.1" in html


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{run}"], "give at least two"),
        (["{run}", "{run}"], "are one run"),
        (["{run}", "no-such"], "no-such"),
        (["{run}", "{other}", "--metric", "beauty"], "no metric"),
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
