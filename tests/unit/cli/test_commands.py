"""The commands: what each prints, results alone on stdout."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from nodrop.cli import main
from nodrop.cli.lab import NODE_JOBS
from nodrop.measure.manager import RunOutcome
from nodrop.remote import dispatch
from nodrop.results.writer import RunWriter
from nodrop.terminal.arguments import all_settings
from nodrop.testbed.hosts import rights
from nodrop.watch import serve
from tests.made.outcome_runs import trial


@pytest.fixture
def in_the_way(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Problems of this host for a run, in place of its real ones."""
    found: list[str] = []
    monkeypatch.setattr(dispatch, "in_the_way", lambda *_: found)
    return found


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(("problems", "code"), [([], 0), (["no suricata"], 3), (["a", "b"], 3)])
def test_a_plan_ends_with_3_if_something_stands_in_the_way(
    experiment: Path,
    in_the_way: list[str],
    capsys: pytest.CaptureFixture[str],
    problems: list[str],
    as_json: list[str],
    code: int,
) -> None:
    in_the_way += problems
    assert main.exit_code(["plan", str(experiment), *as_json]) == code
    said = capsys.readouterr().out
    assert all(one in said for one in problems)


@pytest.mark.usefixtures("in_the_way")
def test_plan_shows_order_count_and_time(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code(["plan", str(experiment)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Does it [hold]?"
    assert out[1].split() == ["order", "run", "repetition", "load", "cell"]
    assert sorted(line.split()[5] for line in out[2:6]) == 2 * ["load.multiplier=1"] + 2 * [
        "load.multiplier=4"
    ]
    assert out[6:] == [
        "2 cells x 2 repetitions = 4 trials, order of seed 1, about 46 s",
        "load.multiplier=1: 1,000 packets of 1 flow",
        "load.multiplier=4: 1,000 packets of 1 flow",
        "the sender holds its trace in memory: at most about 1 MiB",
        "in 2 of 2 cells the generator and the SUT may share a CPU, the usual cause of a late "
        "sender on a small host: set load.cpu, and limits.cpus to others",
    ]


@pytest.mark.usefixtures("in_the_way")
def test_plan_for_machines(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(experiment), "--set", "load.multiplier=4", "--json"]
    assert main.exit_code(argv) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [trial["run"] for trial in plan["trials"]] == ["0001-r01", "0002-r02"]
    assert plan["trials"][0]["load"] == {"kind": "any", "multiplier": 4}


def test_tolerate_truncated_is_a_flag_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert all_settings(None, tolerate_truncated=False) == []
    assert all_settings(["a=1"], tolerate_truncated=True) == ["a=1", "load.tolerate_truncated=true"]
    for command in ("run", "plan", "doctor"):
        assert main.exit_code([command, "--help"]) == 0
        assert "--tolerate-truncated" in capsys.readouterr().out


@pytest.mark.usefixtures("in_the_way")
def test_yes_allows_many_trials(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = ["--set", "matrix.load.multiplier=[1, 2]", "--set", "measure.repetitions=501"]
    assert main.exit_code(["plan", str(experiment), *many]) == 2
    assert main.exit_code(["plan", str(experiment), "--yes", *many]) == 0
    assert "962 more" in capsys.readouterr().out


def test_a_user_namespace_gets_one_run_folder_and_its_children_keep_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    monkeypatch.setattr(rights, "_own_run_folder", lambda: made.append("/run"))
    monkeypatch.setenv(rights.USERNS_VARIABLE, "new")
    rights.ensure_privileges()
    rights.ensure_privileges()
    assert made == ["/run"]
    assert rights.in_user_namespace()


def test_plugins_lists_the_built_in_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.exit_code(["plugins", "--json"]) == 0
    rows = {(row["table"], row["kind"]) for row in json.loads(capsys.readouterr().out)}
    assert rows >= {
        ("setup", "bare"),
        ("sut", "sink"),
        ("sut", "suricata"),
        ("load", "replay"),
        ("load", "tcpreplay"),
        ("controller", "blocks"),
    }


def test_the_address_of_a_page_is_json_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "FAREWELL_S", 0.0)
    (tmp_path / "manifest.json").write_text("{}")
    assert main.exit_code(["watch", str(tmp_path), "--serve", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["address"].startswith("http://127.0.0.1:")
    assert main.exit_code(["watch", str(tmp_path), "--serve"]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_the_help_lists_each_command_once_in_lines_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = [name for commands in main.HELP.values() for name in commands]
    commands: Any = typer.main.get_command(main.app)
    assert sorted(listed) == sorted(commands.commands)
    assert main.exit_code(["--help"]) == 0
    said = capsys.readouterr().out
    assert listed[0] == "capacity"
    for words in (words for group in main.HELP.values() for words in group.values()):
        assert f"  {words}\n" in said, "it is cut, or wrapped"


def commands_of(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and click's command of each, also of groups in groups."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *path, name)
        else:
            yield (*path, name), command


def test_the_help_of_each_command_shows_examples_that_parse(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in commands_of(typer.main.get_command(main.app)):
        if path[0] in NODE_JOBS:
            continue
        assert main.exit_code([*path, "--help"]) == 0
        said = capsys.readouterr().out.splitlines()
        examples = [line for line in said if line.startswith("  nodrop ")]
        assert len(examples) >= 2, f"nodrop {' '.join(path)}: its help has fewer than two examples"
        for example in examples:
            words = shlex.split(example)[1:]
            assert tuple(words[: len(path)]) == path, f"{example}: another command"
            context = command.context_class(command, info_name=path[-1])
            # Nothing is converted, as that may ask a store or look for files.
            given, rest, _ = command.make_parser(context).parse_args(words[len(path) :])
            assert not rest, f"{example}: {rest} is too much"
            needed = {one.name for one in command.params if one.required}
            assert not (lacks := {name for name in needed if not given.get(name)}), (
                f"{example}: without {lacks}"
            )


def test_images_are_listed_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*argv: str) -> str:
        assert main.exit_code(["image", *argv]) == 0
        return capsys.readouterr().out

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert shown("list").startswith("no image yet")
    made = {
        "name": "suricata",
        "sha256": "ab" * 32,
        "release": "bookworm",
        "program": "/usr/bin/suricata",
        "version": "7.0.10",
        "built_utc": "2026-01-01T00:00:00+00:00",
        "suites": ["bookworm"],
        "packages": {"suricata": "1:7.0.10-1"},
        "mmdebstrap": "1.3.5",
    }
    folder = tmp_path / "nodrop" / "images" / "suricata" / made["sha256"]
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(made))
    described = {**made, "rootfs": str(folder / "rootfs")}
    assert made["sha256"] in shown("list")
    assert json.loads(shown("list", "--json")) == [described]
    assert json.loads(shown("show", "abab", "--json")) == described
    assert main.exit_code(["image", "show", "nix"]) == 2
    assert capsys.readouterr().err == "nodrop: no image nix; run `nodrop image list`\n"


@pytest.mark.parametrize(
    ("flags", "code", "valid"), [([], 0, True), (["-q"], 1, False), (["--json"], 0, True)]
)
def test_run_ends_with_the_directory_on_stdout(
    experiment: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    code: int,
    valid: bool,
) -> None:
    def measured(
        asked: Any, lab: Any, *, out: Path, resume: bool, progress: Any, yes: bool
    ) -> RunOutcome:
        assert not yes
        assert (asked.name, lab.kind, resume) == ("x", "netns", True)
        writer = RunWriter.create(
            out, "x", experiment=asked.text, lab=lab.text, plan_sha256="0", manifest={}
        )
        fields = {"cell": {}, "repetition": 1, "index": 1, "run": "0001-r01", "verdict": "v"}
        reasons = [] if valid else ["residual"]
        record = trial(**fields, valid=valid, invalid_reasons=reasons, loss_ratio=0.5)
        with writer:
            writer.trial("0001-r01")
            writer.finish(record)
        progress.finished(writer.path, [record])
        return RunOutcome(directory=writer.path, records=(record,))

    monkeypatch.setattr("nodrop.measure.manager.run_experiment", measured)
    monkeypatch.setattr("nodrop.testbed.hosts.rights.ensure_privileges", lambda: None)
    argv = ["run", str(experiment), "--out", str(tmp_path / "out"), "--resume", *flags]
    assert main.exit_code(argv) == code
    [directory] = (tmp_path / "out").iterdir()
    assert (directory / "report" / "index.html").is_file()
    lines = capsys.readouterr().out.splitlines()
    match flags:
        case ["-q"]:
            assert lines == [str(directory)]
        case ["--json"]:
            assert json.loads(lines[-1])["directory"] == str(directory)
        case _:
            table = lines.index("") + 1
            assert table > 1 and lines[table].split()[:2] == ["cell", "measured"]
            assert lines[-2:] == [f"report: {directory}/report/index.html", str(directory)]


def test_doctor_lists_every_problem(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = ["no node", "no trace"]
    shared = "in 2 of 2 cells the generator and the SUT may share a CPU"
    monkeypatch.setattr("nodrop.measure.preflight.doctor", lambda *_: ([*problems], [shared]))
    disturbing: list[str] = []
    monkeypatch.setattr("nodrop.measure.busy.host_notes", lambda: [*disturbing])
    monkeypatch.setattr("nodrop.testbed.hosts.rights.ensure_privileges", lambda: None)
    assert main.exit_code(["doctor", str(experiment)]) == 3
    listed = capsys.readouterr().out.splitlines()
    assert listed == ["- no node", "- no trace", shared, "2 problems to fix."]
    problems.clear()
    standing = {"setup": "bare", "certificate": None, "not_calibrated": "run `nodrop calibrate`"}
    monkeypatch.setattr("nodrop.measure.baselines.standing_here", lambda *_: [standing])
    assert main.exit_code(["doctor", str(experiment), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.pop("notes") == [shared]
    assert said == {"problems": [], "calibration": [standing], "install": None}
    assert main.exit_code(["doctor", str(experiment)]) == 0
    words = "bare: not calibrated (run `nodrop calibrate`)\nReady.\n"
    assert capsys.readouterr().out.endswith(words)
    disturbing.append("will disturb: a quota")
    assert main.exit_code(["doctor", str(experiment)]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[:2] == [shared, "will disturb: a quota"]
    assert listed[-1] == "Ready. 1 of the notes above will disturb a run."
