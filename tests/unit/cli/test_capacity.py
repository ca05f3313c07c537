"""`nodrop capacity`: bad input is one line and touches nothing; the answer is on stdout alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodrop.cli import main
from nodrop.config.asked import CapacityQuestion
from nodrop.config.experiment import Experiment, asked_experiment, load_experiment
from nodrop.measure import manager
from nodrop.measure.manager import RunOutcome
from nodrop.results.rundir import open_run
from nodrop.testbed.hosts import rights
from tests.depth import depth
from tests.made.outcome_runs import outcome_search, tried
from tools.schemas import schemas

ROOT = Path(__file__).parents[3]
SINK = ("--sut", "sink")
REAL = ("--sut", "suricata")


@pytest.fixture(autouse=True)
def nothing_is_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rights, "ensure_privileges", lambda: None)


def lab_with(path: Path, port: str) -> Path:
    path.write_text(f'name = "x"\nkind = "netns"\n[sender]\nhost = "tx"\nport = "{port}"\n')
    return path


def test_make_demo_asks_the_same() -> None:
    """So what README and tutorial show of it is true of both."""
    file = load_experiment(ROOT / "experiments/demo.toml")
    asked = CapacityQuestion(
        trace="make:demo", rules=("experiments/demo.rules",), budget="150s", window="first"
    ).table(ROOT)
    same = asked_experiment(asked, (), path=file.path)
    (rules,) = file.sut["rules"]
    sut = {**file.sut, "rules": [str(file.base / rules)]}
    assert replace(file, text=same.text, sut=sut) == same


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["no.pcap"], "no such file"),
        (["make:demo", "--goal", "100%"], "must be the part that may be lost"),
        (["make:demo", "--goal", "-1"], "must be the part that may be lost"),
        (["make:demo", "--goal", "0", "--goal", "0%"], "goals: one is given twice"),
        (["make:demo", "--budget", "soon"], "must be a time"),
        (["make:demo", "--budget", "2s"], "one trial alone takes about"),
        (["make:demo", "--budget", "500ms"], "one trial alone takes about"),
        (["make:demo", "--threads", "many"], "must be a number, such as 2, or auto"),
        (["make:demo", "--threads", "0"], "must be a number, such as 2, or auto"),
        (["make:demo", *REAL, "--config", "none.yaml"], "sut.config"),
        (["make:demo", *REAL, "--config", "my.rules"], "takes it as --rules "),
        (["make:demo", *REAL, "--binary", "none"], "sut.binary"),
        (["make:demo", *REAL, "--binary", "/bin/true", "--image", "x"], "leave one out"),
        (["make:demo", *SINK, "--config", "x"], "--config: sink takes no config; leave it out"),
        (["make:demo", *SINK, "--image", "x"], "--image: sink takes no image; leave it out"),
        (["make:demo", "--by", "bits"], "allowed are multiplier, speed, pps"),
        (["make:demo", "--method", "guess"], "allowed are nodrop, mlrsearch, bisection"),
        (["make:demo", "--method", "bisection"], "needs min and max"),
        (["make:demo", "--set", "search.min=9", "--set", "search.max=2"], "must be below max"),
        (["make:demo", "--window", "busy"], "must be busiest, first, whole"),
        (["make:demo", "--window", "700..800"], "the window begins at 700.000 s, and the trace"),
        (["make:demo", "--soak", "soon"], "--soak soon: must be a time"),
        (["make:demo", "--set", "search.final_trial_s=300"], "must be"),
        (["make:demo", "--set", "load.top_speed=true"], "load.top_speed = true: more replicas"),
        (["make:demo", "--set", "search.initial_trial_s=1"], "a shorter trial shows no pace"),
        (["make:demo", "--set", "search.initial_trial_s=0.2"], "must be at least 1.1"),
        (["make:demo", "--set", "search.min=4", "--set", "search.max=4"], "must be below max"),
        (["make:demo", "--goal", "many"], "must be the part that may be lost"),
        (["make:demo", "--budget", "-5m"], "must be a time"),
        (["make:demo", "--set", "search.rounds=0"], "rounds"),
        (["make:demo", "--set", "search.relative_width=0"], "relative_width"),
        (
            [
                "make:demo",
                *("--by", "speed", "--set", "load.kind=tcpreplay", "--set", "load.multiplier=2.5"),
            ],
            "whole",
        ),
        (["make:demo", "--set", "load.kind=tcpreplay"], "sends whole copies only"),
        (["make:demo", "--set", 'matrix."load.speed"=[1, 2]'], "searches one cell"),
        (["make:demo", "--sut", "sinc"], "sinc"),
        (["make:demo", "--sut", "tcpdump"], "--sut command --set sut.program=tcpdump"),
        (["make:demo", "--sut", "snort"], "--sut command --set sut.program=snort"),
        (["make:demo", "--setup", "bear"], "bear"),
        (["make:demo", "--rules", "no.rules", "--sut", "suricata"], "no such file"),
        (["make:demo", "--rules", "no.rules"], "--rules: sink takes no rules"),
        (["make:demo", "--goal", "150%"], "must be the part that may be lost"),
        (["make:demo", "--goal", ""], '--goal "": must be the part'),
        (["make:demo", "--budget", "0"], "must be a time"),
        (["make:demo", "--budget", "10 parsecs"], "must be a time"),
        (["make:demo", "--budget", ""], '--budget "": must be a time'),
        (["make:demo", "--set", "measure.mode=nope"], 'measure.mode = "nope": '),
        (["make:demo", "--set", "measure.mode=blocks"], 'measure.mode = "blocks": '),
        (["make:demo", "--budget", "5m", "--set", "measure.mode=nope"], "leave out one of them"),
        (["make:demo", "--set", "search.max=inf"], "must be a finite number"),
        (["make:demo", "--set", "search.max=1e-9"], "search.max = 1e-09: a trial of 5 s would"),
        (["make:demo", "--by", "speed", "--set", "search.min=1e-7"], "less than one packet"),
        (["make:demo", "--by", "pps", "--set", "search.max=0.19"], "less than one packet"),
        (["make:demo", "--by", "speed", "--set", "load.pps=5"], "paces the load instead of"),
        (
            [
                "make:demo",
                "--by",
                "pps",
                *("--set", "search.min=1e12"),
                *("--set", "search.max=2e12"),
            ],
            "the search begins at load.pps = 1000000000000.0: must be <= 1e+09",
        ),
        (
            ["make:demo", "--by", "speed", "--set", "search.min=1e20"],
            "the search begins at load.speed = 1e+20: must be <= ",
        ),
        (
            ["make:demo", "--set", "sut.ring_frames=99999999999999999999"],
            "=99999999999999999999: the number is beyond 64 bits",
        ),
        (["make:demo", "--lab", "port.toml"], "must be at most 15 letters"),
        (["make:demo", "--lab", "kernels.toml"], "the kernel has its own use for it"),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = [lab_with(tmp_path / "port.toml", "a b"), lab_with(tmp_path / "kernels.toml", "all")]
    given.append(rules := tmp_path / "my.rules")
    rules.touch()
    assert main.exit_code(["capacity", *SINK, *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and said in captured.err, captured.err
    assert captured.err.startswith("nodrop") and "nodrop: nodrop" not in captured.err
    assert {*tmp_path.iterdir()} == {*given}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Experiment]:
    """Experiments that the command would have run; the run that is found instead carries 4X."""
    found: list[Experiment] = []
    run = outcome_search(tmp_path / "made", [tried(4, [0.0] * 2), tried(5, [0.1] * 2)])

    def measured(experiment: Experiment, *_: Any, **__: Any) -> RunOutcome:
        found.append(experiment)
        return RunOutcome(directory=run, records=())

    monkeypatch.setattr(manager, "run_experiment", measured)
    return found


def test_the_answer_for_machines(
    asked: list[Experiment], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code(["capacity", "make:demo", *SINK, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["capacity"]).validate(said)
    assert (said["goals"][0]["lower"]["value"], said["goals"][0]["lower"]["pps"]) == (4, 4000)
    assert Path(said["report"]).is_file()


def test_the_answer_for_people(asked: list[Experiment], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.exit_code(["capacity", "make:demo", *SINK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["answer", *["4,000", "packets/s", "carried", "without", "loss"]]
    (page,) = (line.split()[1] for line in lines if line.startswith("  report "))
    assert Path(page).is_file() and lines[-2].split()[:2] == ["carried", "4,000"]
    assert Path(lines[-1]).is_dir(), "for a program"


def test_the_experiment_stands_alone(asked: list[Experiment], tmp_path: Path) -> None:
    """Its text is a file that asks the same again, `--set`s included."""
    argv = ["--set", "sut.service_rate_pps=5000", "--goal", "0.5%", "--budget", "10m"]
    assert main.exit_code(["capacity", "make:demo", *SINK, *argv]) == 0
    (tmp_path / "again.toml").write_text(asked[0].text)
    again = load_experiment(tmp_path / "again.toml")
    for name in ("name", "question", "setup", "sut", "load", "limits", "measure", "search"):
        assert getattr(again, name) == getattr(asked[0], name), name
    assert again.sut["service_rate_pps"] == 5000
    assert again.search is not None and again.search.budget_s == 600


ENDS: list[tuple[Any, list[float], int]] = [
    ([(4, [0.0]), (5, [0.1])], [0.0], 0),
    ([(4, [0.0])], [0.0], 0),
    ([(4, [0.0]), (5, [0.1]), (9, ["late"])], [0.0], 0),
    ([(4, [0.0]), (5, [0.1]), (9, ["late", "late"])], [0.0, 0.01], 0),
    # Without a figure: nothing is measured, every load lost, one of two goals has none.
    ([(4, ["late"] * 3)], [0.0], 6),
    ([(2, ["lab"])], [0.0, 0.01], 6),
    ([(4, [0.02]), (5, [0.1])], [0.0], 6),
    ([(1, [0.01]), (2, [0.01]), (4, [0.01])], [0.0, 0.05], 6),
    ([], [0.0], 6),
]
OTHERS = ("capacity", "run", "run --quiet")


@pytest.mark.parametrize(
    ("command", "loads", "goals", "code"),
    [
        *(("capacity --json", *end) for end in ENDS),
        *((command, *end) for command in OTHERS for end in (ENDS[0], ENDS[4])),
        *(depth(command, *end) for command in OTHERS for end in (*ENDS[1:4], *ENDS[5:])),
    ],
)
def test_a_search_without_a_figure_is_not_a_success(
    command: str,
    loads: list[tuple[float, list[float | str]]],
    goals: list[float],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A ramp alone, void for rules that do not load, ended with 0."""
    ramp = tried(64.0, ["late"])
    ramp.each[1]["searched"]["ramp"] = {"start": 1.0}
    tries = [ramp, *(tried(value, trials) for value, trials in loads)]
    search = {"goals": goals, "budget_s": 60.0}
    directory = outcome_search(tmp_path / "made", tries, search=search)
    kept = RunOutcome(directory=directory, records=open_run(directory).trials.records)
    monkeypatch.setattr(manager, "run_experiment", lambda *_, **__: kept)
    argv = [*command.split()]
    file = tmp_path / "again.toml"
    table = CapacityQuestion(trace="make:demo", sut="sink").table(tmp_path)
    file.write_text(asked_experiment(table, (), path=file).text)
    argv += [str(file)] if argv[0] == "run" else ["make:demo", *SINK]
    assert main.exit_code(argv) == code
    said = capsys.readouterr().out
    if "--json" in argv:
        assert json.loads(said)["exit_code"] == code
