"""The program (long: every command is here): exit codes, one line per mistake on stderr, results
alone on stdout."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from nodrop import plugins
from nodrop.cli import lab, main, saying
from nodrop.cli.arguments import all_settings
from nodrop.cli.inspect import ReportPart
from nodrop.cli.reporting import reporting
from nodrop.cli.tables import console
from nodrop.errors import REMEDIES, LabProblem
from nodrop.hosts import privileges
from nodrop.hosts.journal import UndoReport
from nodrop.hosts.processes import boot_id, pid_namespace, user_namespace
from nodrop.load.seam import TraceFacts
from nodrop.measure.manager import RunOutcome
from nodrop.report.write import Part
from nodrop.results.writer import RunWriter
from nodrop.testing.fake_hosts import World
from nodrop.testing.fakes import FakeLoad
from nodrop.testing.records import trial
from nodrop.testing.rundirs import Fake, make_run
from nodrop.watch import serve

ROOT = Path(__file__).parents[2]

EXPERIMENT = """\
name = "x"
question = "Does it [hold]?"
[matrix]
"load.multiplier" = [1, 4]
[sut]
kind = "any"
[load]
kind = "any"
[measure]
repetitions = 2
"""


class AnyPlugin:
    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        pass

    holds_packets = rest_seen_s = cpus = None
    heeds_cpus = True
    senders = 0

    def duration_s(self) -> float:
        return 9.0

    def trace_facts(self) -> TraceFacts:
        return FakeLoad(World()).trace_facts()

    def mean_pps(self) -> float:
        return 1000.0


class Entry:
    value = "tests:Any"

    def load(self) -> type:
        return AnyPlugin


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = [("setup", "bare"), ("sut", "any"), ("load", "any")]
    made = tuple(
        plugins.Plugin(table=table, kind=kind, origin="tests 1", entry=Entry())  # type: ignore[arg-type]
        for table, kind in found
    )
    controllers = tuple(p for p in plugins.plugins() if p.table == "controller")
    monkeypatch.setattr(plugins, "plugins", lambda: made + controllers)
    path = tmp_path / "x.toml"
    path.write_text(EXPERIMENT)
    return path


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
        "2 cells x 2 repetitions = 4 trials, order of seed 1, about 1 min 0 s",
        "load.multiplier=1: 1,000 packets of 1 flow",
        "load.multiplier=4: 1,000 packets of 1 flow",
        "the sender holds its trace in memory: at most about 1 MiB",
        "in 2 of 2 cells the generator and the SUT may share a CPU, the usual cause of a late "
        "sender on a small host: set load.cpu, and limits.cpus to others",
    ]


def test_plan_for_machines(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(experiment), "--set", "load.multiplier=4", "--json"]
    assert main.exit_code(argv) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [trial["run"] for trial in plan["trials"]] == ["0001-r01", "0002-r02"]
    assert plan["trials"][0]["load"] == {"kind": "any", "multiplier": 4}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["plan", "missing.toml"], "nodrop: missing.toml: no such file\n"),
        (
            ["plan", "F", "--set", "measure.sed=1"],
            "nodrop: --set measure.sed=1: measure.sed: no such key; did you mean measure.seed?\n",
        ),
        (
            ["plan", "F", "--set", f"matrix.load.multiplier={list(range(501))}"],
            "nodrop: F: 501 cells x 2 repetitions are 1,002 trials, more than 1,000; "
            "add --yes if you mean it\n",
        ),
        (
            ["plan", "F", "--set", "sut.kind=ay"],
            'nodrop: --set sut.kind=ay: sut.kind = "ay": allowed are any; did you mean any?\n',
        ),
        (["plan"], "nodrop: Missing argument 'EXPERIMENT'; see nodrop plan --help\n"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    experiment: Path, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert main.exit_code([str(experiment) if word == "F" else word for word in argv]) == 2
    captured = capsys.readouterr()
    assert captured.err.replace(str(experiment), "F") == said
    assert captured.out == ""


@pytest.mark.parametrize("argv", [["--nix"], ["nix"], ["plan", "a", "b"], ["plan", "--nix"]])
def test_usage_errors_are_one_line_and_exit_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("nodrop: ")
    assert err.count("\n") == 1


def test_tolerate_truncated_is_a_flag_of_its_own() -> None:
    assert all_settings(None, tolerate_truncated=False) == []
    assert all_settings(["a=1"], tolerate_truncated=True) == ["a=1", "load.tolerate_truncated=true"]
    for command in ("run", "plan", "doctor"):
        assert "--tolerate-truncated" in nodrop(command, "--help").stdout


def test_yes_allows_many_trials(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = f"matrix.load.multiplier={list(range(501))}"
    assert main.exit_code(["plan", str(experiment), "--yes", "--set", many]) == 0
    assert "962 more" in capsys.readouterr().out


def test_a_lab_problem_is_exit_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise LabProblem("no node", hint="build it")

    monkeypatch.setattr(plugins, "plugins", broken)
    assert main.exit_code(["plugins"]) == 3
    assert capsys.readouterr().err == "nodrop: no node; build it\n"
    assert main.exit_code(["--debug", "plugins"]) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        KeyError("packets"),
        RecursionError("too deep"),
        AssertionError(),
        OverflowError("int too large to convert to float"),
        MemoryError(),
    ],
)
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_what_nobody_expected_is_exit_4_and_a_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    debug: list[str],
) -> None:
    def broken() -> None:
        raise error

    monkeypatch.setattr(plugins, "plugins", broken)
    assert main.exit_code([*debug, "plugins"]) == 4
    *before, line = capsys.readouterr().err.splitlines()
    assert type(error).__name__ in line and "nodrop --debug" in line
    assert ("Traceback (most recent call last):" in before) is bool(debug)


ESCAPES = ["\x1b]0;owned\x07", "\x1b[2J\x1b[31m", "a\rb\x9b2J", "\u202egnp.exe"]


@pytest.mark.parametrize("words", ESCAPES)
def test_no_error_commands_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    def broken() -> None:
        raise LabProblem(f"the node says: {words}\n and more", hint=words)

    monkeypatch.setattr(plugins, "plugins", broken)
    assert main.exit_code(["plugins"]) == 3
    said = capsys.readouterr().err
    assert said.removesuffix("\n").isprintable()


@pytest.mark.parametrize("words", ESCAPES)
def test_no_name_in_a_table_commands_the_terminal(
    capsys: pytest.CaptureFixture[str], words: str
) -> None:
    table = Table("name")
    table.add_row(words)
    console().print(table)
    console().print(words, markup=False)
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_what_is_missing_before_anything_is_touched_is_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_unshare() -> None:
        monkeypatch.setattr(privileges, "may_make_namespaces", lambda: False)
        monkeypatch.setattr(privileges.shutil, "which", lambda _: None)
        privileges.ensure_privileges()

    monkeypatch.delenv(privileges.USERNS_VARIABLE, raising=False)
    monkeypatch.setattr(plugins, "plugins", without_unshare)
    assert main.exit_code(["plugins"]) == 2
    assert capsys.readouterr().err == (
        "nodrop: program unshare is missing; install util-linux, or run as root\n"
    )


def test_a_user_namespace_gets_one_run_folder_and_its_children_keep_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    monkeypatch.setattr(privileges, "_own_run_folder", lambda: made.append("/run"))
    monkeypatch.setenv(privileges.USERNS_VARIABLE, "new")
    privileges.ensure_privileges()
    privileges.ensure_privileges()
    assert made == ["/run"]
    assert privileges.in_user_namespace()


def test_a_full_disk_is_a_line_and_exit_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(plugins, "plugins", full)
    assert main.exit_code(["plugins"]) == 3
    assert capsys.readouterr().err == ("nodrop: No space left on device\n")


@pytest.mark.parametrize("name", ["manifest.json", "trials.jsonl"])
def test_a_folder_in_place_of_a_file_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    directory = make_run(tmp_path, Fake(repetitions=1, samples=False))
    (directory / name).unlink()
    (directory / name).mkdir()
    assert main.exit_code(["watch", str(directory)]) == 2
    said = capsys.readouterr().err
    assert name in said and said.count("\n") == 1


def test_ctrl_c_is_exit_130_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plugins, "plugins", interrupted)
    assert main.exit_code(["plugins"]) == 130
    assert capsys.readouterr().err == "nodrop: interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_last_trial_loses_nothing_and_says_so(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended() -> None:
        with reporting(Path("results/a run")):
            signal.raise_signal(number)

    monkeypatch.setattr(plugins, "plugins", ended)
    assert main.exit_code(["plugins"]) == 128 + number
    words = "every trial has ended, but the report may be missing; nodrop report 'results/a run'"
    assert capsys.readouterr().err == f"nodrop: ended by {number.name}; {words}\n"


@pytest.mark.parametrize("argv", ["plugins", "plugins --json", "plan experiments/affinity.toml"])
@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        (">&-", 0, ""),
        (">/dev/full", 3, "nodrop: stdout: No space left on device\n"),
    ],
)
def test_where_nothing_can_be_written(place: str, code: int, said: str, argv: str) -> None:
    done = in_a_shell(f"{argv} {place}")
    assert (done.returncode, done.stderr) == (code, said)


def test_a_terminal_without_utf_8_gets_what_it_can_show() -> None:
    done = in_a_shell("plan experiments/affinity.toml", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() and "trials" in done.stdout


def in_a_shell(words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m nodrop.cli.main {words}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=_env() | env,
        timeout=60,
    )


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


def test_a_job_of_the_node_is_passed_on_word_for_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "nodrop-node"
    node.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    node.chmod(0o755)
    for command, job in [("replay", "replay"), ("monitor", "sample"), ("trace", "trace")]:
        words = ["--help", "-h", "make", "--pps=5", "a b"]
        done = nodrop(command, *words, NODROP_NODE=str(node))
        assert done.stdout.splitlines() == [job, *words]
        assert done.returncode == 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_what_this_user_may_not_touch_is_exit_2_with_what_to_do(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed() -> None:
        raise OSError(number, os.strerror(number), "/root/x")

    monkeypatch.setattr(plugins, "plugins", closed)
    assert main.exit_code(["plugins"]) == 2
    words = f"nodrop: /root/x: {os.strerror(number)}; {REMEDIES[number]}\n"
    assert capsys.readouterr().err == words


def test_the_address_of_a_page_is_json_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "FAREWELL_S", 0.0)
    (tmp_path / "manifest.json").write_text("{}")
    assert main.exit_code(["watch", str(tmp_path), "--serve", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["address"].startswith("http://127.0.0.1:")
    assert main.exit_code(["watch", str(tmp_path), "--serve"]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://a/b", "is gone when this command ends"),
        ("http://127.0.0.1:9/x", "takes no files, being a web server"),
        ("https://127.0.0.1:9/x/y", "takes no files, being a web server"),
    ],
)
@pytest.mark.parametrize("command", ["put here", "report", "run experiments/demo.toml --out"])
def test_a_place_that_can_keep_no_run_is_no_store(
    command: str, url: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code([*command.split(), url]) == 2
    said = f"nodrop: {url}: {words}; s3://bucket/folder can keep a run\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("port", ["99999", "65536", "-1"])
def test_a_port_that_is_none_is_exit_2_with_the_range(
    port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code(["watch", str(tmp_path), "--serve", "--port", port]) == 2
    assert capsys.readouterr().err == f"nodrop: --port {port}: must be from 0 to 65535\n"


@pytest.mark.parametrize("lab", ["", " ", "\t"])
@pytest.mark.parametrize("command", ["run", "doctor"])
def test_a_lab_without_a_name_is_no_default(
    lab: str, command: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code([command, str(experiment), "--lab", lab]) == 2
    assert capsys.readouterr().err.startswith("nodrop: --lab: must name a lab or a lab file;")


@pytest.mark.parametrize("lines", [21, 50, 50_000])
def test_a_journal_of_bad_lines_is_a_screen_of_words(lines: int, tmp_path: Path) -> None:
    folder = tmp_path / "nodrop" / "undo"
    folder.mkdir(parents=True, mode=0o700)
    head = {
        "controller": {"pid": 4_000_000, "start_ticks": 1},
        "boot_id": boot_id(),
        "user_namespace": user_namespace(),
        "pid_namespace": pid_namespace(),
    }
    (folder / "abcd1234.jsonl").write_text(json.dumps(head) + "\n" + "{}\n" * lines)
    for path in (folder, folder / "abcd1234.jsonl"):
        path.chmod(0o700)
    done = nodrop("undo", XDG_STATE_HOME=str(tmp_path))
    said = done.stderr.splitlines()
    assert len(said) == 21
    assert said[-1].startswith(f"nodrop: and {lines - 20} more that could not be undone")


def test_undo_says_that_there_is_nothing(tmp_path: Path) -> None:
    done = nodrop("undo", XDG_STATE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing to undo\n", "")


def test_help_needs_no_heavy_import() -> None:
    program = (
        "import sys; from nodrop.cli.main import exit_code; exit_code(['--help']);"
        "heavy = {'pydantic', 'scipy', 'jinja2', 'yaml'} & set(sys.modules); sys.exit(str(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_env(), timeout=60
    )
    assert done.stderr == "set()\n"
    assert "plan" in done.stdout


def test_dask_is_imported_only_when_a_fleet_is_connected() -> None:
    program = (
        "import sys, nodrop.cli.measure, nodrop.measure.manager, nodrop.measure.fleet.run;"
        "sys.exit(str({'dask', 'distributed'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_env(), timeout=60
    )
    assert done.stderr == "set()\n"


def test_a_fleet_has_labs_of_its_own() -> None:
    done = nodrop("run", "experiments/fixed-loads.toml", "--fleet", "f.toml", "--lab", "netns")
    assert done.returncode == 2
    assert "--lab: not with --fleet, whose file names its labs" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    words = {"bash": "complete_bash", "zsh": "complete_zsh", "fish": "complete_fish"}[shell]
    done = nodrop(
        _NODROP_COMPLETE=words,
        COMP_WORDS="nodrop pl",
        COMP_CWORD="1",
        _TYPER_COMPLETE_ARGS="nodrop pl",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert "plan" in done.stdout
    assert "replay" not in done.stdout


@pytest.mark.parametrize("words", [["plan", "FIXED"], ["--help"], ["plan", "FIXED", "--json"]])
def test_a_reader_that_left_is_no_defect(words: list[str]) -> None:
    """Seen: `nodrop plan … | head -4` ended with "that is a defect of nodrop"."""
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb") as closed:
        fixed = str(ROOT / "experiments/fixed-loads.toml")
        words = [fixed if word == "FIXED" else word for word in words]
        command = [sys.executable, "-m", "nodrop.cli.main", *words]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (128 + 13, b"")


def nodrop(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nodrop.cli.main", *argv],
        capture_output=True,
        text=True,
        env=_env() | env,
        timeout=60,
    )


def _env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}


def test_report_writes_a_page_and_prints_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = RunWriter.create(
        tmp_path, "x", experiment=EXPERIMENT, lab="", plan_sha256="0", manifest={}
    )
    record = {"cell": {}, "repetition": 1, "index": 1, "run": "0001-r01"}
    lossless = {"valid": True, "verdict": "no loss", "loss_ratio": 0.0, "offered_packets": 9}
    with writer:
        writer.trial("0001-r01")
        writer.finish(trial(**record | lossless))
    assert main.exit_code(["report", str(writer.path)]) == 0
    page = capsys.readouterr().out.splitlines()[-1]
    assert page == str(writer.path / "report" / "index.html")
    assert "<html" in Path(page).read_text(encoding="utf-8")
    argv = ["report", str(writer.path), "--json", "--out", str(tmp_path / "other")]
    assert main.exit_code(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == str(tmp_path / "other" / "index.html")
    assert found["answer"]["sentences"]
    assert [cell["run_directory"] for cell in found["cells"]] == [writer.path.name]


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "\u202eb", "\x9b2J"])
def test_no_folder_of_a_report_commands_the_terminal(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", Fake(repetitions=1, samples=False))
    assert main.exit_code(["report", str(run), "--only", "csv", "--out", str(tmp_path / name)]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out[:-1].isprintable()


def test_a_report_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, Fake(repetitions=1, samples=False))
    out = tmp_path / "parts"
    argv = ["report", str(run), "--out", str(out), "--only", "csv", "--only", "markdown"]
    assert main.exit_code(argv) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert sorted(p.name for p in out.iterdir()) == [
        "cells.csv",
        "ledger.csv",
        "report.md",
        "trials.csv",
    ]
    assert main.exit_code(["report", str(run), "--only", "pdf"]) == 2
    assert "--only" in capsys.readouterr().err


def test_a_place_that_is_taken_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", Fake(repetitions=1, samples=False))
    file, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    file.write_text("mine")
    assert main.exit_code(["report", str(run), "--out", str(file)]) == 2
    assert capsys.readouterr().err == f"nodrop: {file}: File exists; give another --out\n"
    elsewhere.mkdir()
    (run / "report").symlink_to(elsewhere)
    assert main.exit_code(["report", str(run)]) == 2
    words = f"nodrop: {run / 'report'}: is a link, which is not followed; give --out\n"
    assert capsys.readouterr().err == words
    assert (file.read_text(), [*elsewhere.iterdir()]) == ("mine", [])


def test_a_baseline_takes_the_place_of_a_baseline_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", Fake(repetitions=1, samples=False))
    file = tmp_path / "file"
    for mine in ("mine", "{}", "[measure]\nseed = 1\n"):
        file.write_text(mine)
        assert main.exit_code(["baseline", str(run), str(file)]) == 2
        assert f"{file}: is there, and no baseline" in capsys.readouterr().err
        assert file.read_text() == mine
    file.write_text("")
    for _ in ("anew", "again"):
        assert main.exit_code(["baseline", str(run), str(file)]) == 0
        assert json.loads(file.read_text())["name"]


def test_the_parts_are_those_of_the_report() -> None:
    assert [part.value for part in ReportPart] == [part.value for part in Part]


def test_a_report_of_no_run_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.exit_code(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"nodrop: {tmp_path}: not a run directory")
    assert list(tmp_path.iterdir()) == []


def test_images_are_listed_and_shown(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    assert nodrop("image", "list", **cache).stdout.startswith("no image yet")
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
    shown = {**made, "rootfs": str(folder / "rootfs")}
    assert made["sha256"] in nodrop("image", "list", **cache).stdout
    assert json.loads(nodrop("image", "list", "--json", **cache).stdout) == [shown]
    assert json.loads(nodrop("image", "show", "abab", "--json", **cache).stdout) == shown
    missing = nodrop("image", "show", "nix", **cache)
    assert (missing.returncode, missing.stderr) == (
        2,
        "nodrop: no image nix; run `nodrop image list`\n",
    )


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
    monkeypatch.setattr("nodrop.hosts.privileges.ensure_privileges", lambda: None)
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
            assert lines[0].split()[:2] == ["cell", "measured"]
            assert lines[-2:] == [f"report: {directory}/report/index.html", str(directory)]


def test_doctor_lists_every_problem(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = ["no node", "no trace"]
    shared = "in 2 of 2 cells the generator and the SUT may share a CPU"
    monkeypatch.setattr("nodrop.measure.preflight.doctor", lambda *_: ([*problems], [shared]))
    monkeypatch.setattr("nodrop.hosts.privileges.ensure_privileges", lambda: None)
    assert main.exit_code(["doctor", str(experiment)]) == 3
    listed = capsys.readouterr().out.splitlines()
    assert listed == ["- no node", "- no trace", shared, "2 to mend"]
    problems.clear()
    standing = {"setup": "bare", "certificate": None, "not_calibrated": "run `nodrop calibrate`"}
    monkeypatch.setattr("nodrop.measure.calibrated.standing_here", lambda *_: [standing])
    assert main.exit_code(["doctor", str(experiment), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.pop("notes") == [shared]
    assert said == {"problems": [], "calibration": [standing]}
    assert main.exit_code(["doctor", str(experiment)]) == 0
    words = "bare: not calibrated (run `nodrop calibrate`)\nnothing stands in the way\n"
    assert capsys.readouterr().out.endswith(words)


@pytest.mark.parametrize(
    "foreign", ["\x1b[2J", "\x9b31m", "\u202egnp", "a\nb", "\x1b]0;title\x07", "\u2028"]
)
def test_foreign_words_leave_as_one_line_without_controls(
    foreign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saying.say(f"name {foreign} end")
    saying.say_json({"name": foreign, "path": Path(foreign)})
    saying.complain(foreign)
    said = capsys.readouterr()
    plain, found = said.out.splitlines()
    assert json.loads(found) == {"name": foreign, "path": foreign}
    assert plain.isprintable() and found.isascii() and said.err.rstrip("\n").isprintable()


def test_a_host_that_could_not_be_asked_twice_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = "receiver sensor1: not reached: no ssh server listens there"
    reports = [UndoReport(label="", failed=[words]), UndoReport(label="pair", failed=[words])]
    monkeypatch.setattr(lab, "_undone_elsewhere", lambda *_: reports)
    assert main.exit_code(["undo", "pair.toml"]) == LabProblem.exit_code
    assert capsys.readouterr().err == f"nodrop: could not undo {words}\n"
