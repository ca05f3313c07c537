"""`nodrop ab`: what a build may be, and what is told early."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli import main
from nodrop.compare.commands import going_on
from nodrop.compare.records import Repeats, Side, SideCell
from nodrop.compare.versus import versus
from nodrop.config.asked import AbQuestion
from nodrop.errors import BadInput
from nodrop.measure.controllers.blocks import LOOKS
from nodrop.report import comparison
from nodrop.stats.comparison import Advice

MOST = 80


def question(a: list[str], b: list[str]) -> AbQuestion:
    return AbQuestion(a=a, b=b, trace="make:demo", most=20)


@pytest.mark.parametrize(
    ("said", "cell"),
    [
        (["suricata"], {"sut.image": "suricata"}),
        (["f8afed73"], {"sut.image": "f8afed73"}),
        (["./built"], {"sut.binary": "{folder}/built"}),
        (["built"], {"sut.binary": "{folder}/built"}),
        (["sut.threads=2"], {"sut.threads": 2}),
        (
            ["built", "sut.runmode=autofp"],
            {"sut.binary": "{folder}/built", "sut.runmode": "autofp"},
        ),
    ],
)
def test_a_build_is_a_binary_an_image_or_a_setting(
    said: list[str], cell: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "built").write_text("#!/bin/sh\n")
    expected = {k: v.format(folder=tmp_path) if isinstance(v, str) else v for k, v in cell.items()}
    found = question(said, said).cells(tmp_path)
    assert found.named == {"a": expected, "b": expected}  # A against A is a fair question


@pytest.mark.parametrize("said", [["./gone"], ["/no/such/suricata"], []])
def test_a_build_that_is_not_there_is_refused(said: list[str], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--b"):
        question(["suricata"], said).cells(tmp_path)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--most", "5"], "--most 5"),
        (["--most", "99999999999999999999"], "more than 10,000 trials of each"),
        (["--a", ""], '--a "": names no build'),
        (["--b", "=2"], "--b =2: names no build"),
        (["--a", "measure.seed=1"], "--a measure.seed=1: no such key in which two builds may"),
        (["--b", "stu.threads=2"], "--b stu.threads=2: no such key in which two builds may"),
        (["--metric", "beauty"], "--metric beauty: allowed are loss_pct, "),
        (["--metric", "loss_pct", "--metric", ""], "--metric : allowed are loss_pct, "),
        (["--budget", "soon"], "--budget soon"),
        (["--budget", "1s"], "--budget: 1 s are less than one trial of each build, about "),
        (["--json", "--markdown"], "--json and --markdown"),
        (["--set", "sut.beauty=1"], "sut.beauty"),
        (["--set", "measure.repetitions=3"], "--most"),
        (["--set", "measure.mode=capacity"], "its own"),
    ],
)
def test_bad_input_is_one_line(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    builds = ["--sut", "sink", "--a", "sut.threads=1", "--b", "sut.threads=2"]
    assert main.exit_code(["ab", "make:demo", *builds, *args]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error


def side(name: str, values: dict[str, list[float]], n: int) -> Side:
    figures = {k: Repeats(values=v[:n], starts=[*range(n)]) for k, v in values.items()}
    cell = SideCell(factors={"cell": name}, label=name, figures=figures, failed=0, void=0)
    return Side(name=name, identity=name, facts={}, cells=[cell])


def answer(a: dict[str, list[float]], b: dict[str, list[float]]) -> tuple[list[str], int]:
    """Answers of the command: it ends as each metric is different or the same, or one worse."""
    found, n = [""], 0
    for look, n in enumerate((*LOOKS, MOST)):
        told = versus(side("a", a, n), side("b", b, n), differs=["cell"], look=look)
        found = [row.answer for row in told.rows]
        if told.verdict != "cannot tell":
            break
    return found, n


@pytest.mark.parametrize(
    ("shift", "expected"), [(1.3, "different"), (0.5, "different"), (1.0, "same")]
)
def test_what_is_clear_is_told_early(
    shift: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "more_runs", lambda *_: Advice(more_runs=None))
    rng = random.Random(shift)
    a = {"activation_s": [rng.gauss(10, 0.05) for _ in range(MOST)]}
    b = {"activation_s": [shift * rng.gauss(10, 0.05) for _ in range(MOST)]}
    found, n = answer(a, b)
    assert found == [expected] and n <= LOOKS[2]


@pytest.mark.parametrize(("disturbed", "looks"), [(0, 1), (6, 1), (8, 2), (15, 3), (MOST, 5)])
def test_it_goes_on_while_other_programs_disturb_most_trials(disturbed: int, looks: int) -> None:
    """Seen: "worse" and exit code 5 after trials of which others had the CPUs."""
    a, b = ({"activation_s": [at, at + 0.01] * MOST} for at in (1.0, 2.0))
    told = []
    for look, n in enumerate((*LOOKS, MOST)):
        crowded = {"crowded": min(disturbed, n), "watched": n}
        first, second = (
            one.model_copy(update={"cells": [one.cells[0].model_copy(update=crowded)]})
            for one in (side("a", a, n), side("b", b, n))
        )
        told.append(versus(first, second, differs=["cell"], look=look).verdict)
        if told[-1] != "cannot tell":
            break
    assert len(told) == looks
    assert told[-1] == ("worse" if disturbed < MOST else "cannot tell")


@pytest.mark.parametrize("given", [["--budget", "90s"], ["--budget=90s", "--resume", "--out", "x"]])
def test_an_ab_that_its_budget_ended_has_a_command_that_goes_on(given: list[str]) -> None:
    argv = ["ab", "a b.pcap", "--a", "sut.threads=1", *given, "--b", "sut.threads=2"]
    assert going_on(argv, Path("results/ab-x"), 90) == (
        "Go on: nodrop ab 'a b.pcap' --a sut.threads=1 --b sut.threads=2 --resume --out "
        "results/ab-x --budget 180s"
    )
