"""A mistake, or what the host refuses: one line on stderr, with its exit code; no text commands
the terminal."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import cast

import pytest
from rich import box
from rich.table import Table

from nodrop import plugins
from nodrop.cli import lab, main
from nodrop.errors import REMEDIES, Interrupted, LabProblem
from nodrop.terminal import arguments
from nodrop.terminal import console as terminal_console
from nodrop.terminal.arguments import reporting
from nodrop.terminal.console import Plain, console, print_table
from nodrop.testbed.hosts import rights
from nodrop.testbed.hosts.journal import UndoReport
from nodrop.testbed.hosts.processes import boot_id, pid_namespace, user_namespace
from tests.made.rundirs import Fake, make_run
from tests.unit.cli.program import ROOT


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


@pytest.mark.parametrize("seconds", ["", "yesterday", "1e9"])
def test_a_source_date_that_numpy_does_not_read_is_one_line(
    seconds: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
    assert main.exit_code(["plugins"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "SOURCE_DATE_EPOCH" in line and "seconds since 1970" in line


@pytest.mark.parametrize(
    "error",
    [
        KeyError("packets"),
        RecursionError("too deep"),
        AssertionError(),
        OverflowError("int too large to convert to float"),
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
        monkeypatch.setattr(rights, "may_make_namespaces", lambda: False)
        monkeypatch.setattr(shutil, "which", lambda _: None)
        rights.ensure_privileges()

    monkeypatch.delenv(rights.USERNS_VARIABLE, raising=False)
    monkeypatch.setattr(plugins, "plugins", without_unshare)
    assert main.exit_code(["plugins"]) == 2
    assert capsys.readouterr().err == (
        "nodrop: program unshare is missing; install util-linux, or run as root\n"
    )


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


@pytest.mark.parametrize("error", [LabProblem("no node"), Interrupted(signal.SIGTERM)])
def test_a_run_that_ended_early_is_followed_by_the_command_that_goes_on(
    error: LabProblem | Interrupted,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ended() -> None:
        error.ended_run = "results/a run"
        raise error

    monkeypatch.setattr(plugins, "plugins", ended)
    main.exit_code(["plugins"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "do: nodrop plugins --resume --out 'results/a run'"


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
def test_a_journal_of_bad_lines_is_a_screen_of_words(
    lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main.exit_code(["undo"]) == LabProblem.exit_code
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 21
    assert said[-1].startswith(f"nodrop: and {lines - 20} more that could not be undone")


def test_a_fleet_has_labs_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = str(ROOT / "experiments/fixed-loads.toml")
    assert main.exit_code(["run", fixed, "--fleet", "f.toml", "--lab", "netns"]) == 2
    words = "--lab: not with --fleet, whose file names its labs"
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "foreign", ["\x1b[2J", "\x9b31m", "\u202egnp", "a\nb", "\x1b]0;title\x07", "\u2028"]
)
def test_foreign_words_leave_as_one_line_without_controls(
    foreign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments.say(f"name {foreign} end")
    arguments.say_json({"name": foreign, "path": Path(foreign)})
    arguments.complain(foreign)
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


def test_a_plugin_that_ends_the_program_is_still_a_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal_console, "plugins_table", sys.exit)
    assert main.exit_code(["plugins"]) == 4
    assert "SystemExit" in capsys.readouterr().err


@pytest.mark.parametrize(("width", "parts"), [(200, 1), (80, 2), (60, 3)])
def test_a_table_too_wide_is_parted_and_each_part_names_its_rows(width: int, parts: int) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    heads = ["setup", "load", *(f"a long figure {n}" for n in range(6))]
    for head in heads:
        table.add_column(head)
    for row in ("bare", "docker"):
        table.add_row(row, "4X", *(f"{row} has {n}" for n in range(6)))
    out = Plain(width=width, highlight=False, file=io.StringIO(), force_terminal=False)
    print_table(out, table, names=2)
    said = cast(io.StringIO, out.file).getvalue()
    assert said.count("setup") == said.count("load") == parts
    assert said.count("4X") == 2 * parts
    assert all(f"{row} has {n}" in said for row in ("bare", "docker") for n in range(6))


@pytest.mark.parametrize("width", [60, 47, 33])
def test_no_table_in_a_terminal_breaks_a_word(width: int) -> None:
    """Seen at 60 columns: "setup.kind=doc" above "ker", and "interva" above "l"."""
    table = terminal_console.new_table("cell", "loss, median", "95 % interval", "where and why")
    names = ("docker-macvtap · 16X", "autofp-1x2 · ring_size 4096")
    for name in names:
        table.add_row(name, "21.15 %", "needs n ≥ 6", "socket ring, softnet backlog")
    out = Plain(width=width, highlight=False, file=io.StringIO(), force_terminal=True)
    out.print(table)
    said = cast(io.StringIO, out.file).getvalue()
    assert all(len(line) <= width for line in re.sub("\x1b[^m]*m", "", said).splitlines())
    for word in ("docker-macvtap", "autofp-1x2", "ring_size", "interval", "softnet", "backlog"):
        assert word in said


@pytest.mark.parametrize("width", [60, 72, 80, 94, 100])
def test_no_table_in_a_terminal_is_cut_at_its_edge(width: int) -> None:
    """Seen at 80 columns: "nothing lo", for rich made the columns 82 wide."""
    heads = ("measured", "lossy", "loss, median", "95 % interval", "all runs", "where and why")
    table = terminal_console.new_table("cell", *heads)
    cells = ("1 of 1", "0 of 1", "0 %", "needs n ≥ 6", "0 %", "nothing lost")
    for name in ("docker-macvtap · 4X · flows distinct", "vm · 4X · flows distinct tcg (emulated)"):
        table.add_row(name, *cells)
    out = Plain(width=width, highlight=False, file=io.StringIO(), force_terminal=True)
    out.print(table)
    said = re.sub("\x1b[^m]*m", "", cast(io.StringIO, out.file).getvalue())
    assert all(len(line) <= width for line in said.splitlines())
    assert said.count("nothing") == said.count("lost") == 2


COMMAND = "nodrop run my.toml --set 'limits.cpus=\"1-2\"' --cell cell=one,two --out results/here"


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    "words",
    [
        "the load sends seconds 0.0 to 5.0 of the trace: 2,040 packets/s, 8.46 Mbit/s; 51 % of its "
        "packets, 50.7 % of its bytes and 100 % of its 10.0 s",
        f"Cannot tell yet whether it loses more. What to do: `{COMMAND}`.",
        f"bare: not calibrated (run `nodrop calibrate --setup bare`); `{COMMAND}` and then wait.",
    ],
)
def test_a_sentence_in_a_terminal_breaks_between_words(words: str, columns: int) -> None:
    """Seen: "tofp-1x2" at the beginning of a line, and a command that wrapped inside an option."""
    lines = arguments.laid_out(words, columns)
    assert all(len(line) <= columns for line in lines)
    assert not any(line.endswith(" 51") or line.startswith("%") for line in lines)
    assert not re.search(r"--\w+ \\$", "\n".join(lines), re.MULTILINE), (
        "no option without its value"
    )
    shown = shlex.split("\n".join(lines).replace("`", ""))
    given = shlex.split(words.replace("`", ""))
    assert [word.rstrip(".") for word in shown if word != "\n"] == [
        word.rstrip(".") for word in given
    ]
    assert arguments.laid_out(words, None) == [words], "a pipe gets one line"


def test_a_line_keeps_its_indentation(capsys: pytest.CaptureFixture[str]) -> None:
    """Seen: the lines below `since 10:56:47:` stood under it as its equals."""
    arguments.say("  socket ring\n")
    assert capsys.readouterr().out == "  socket ring\n"


@pytest.mark.parametrize("job", [["trace", "info"], ["replay", "--trace"]])
def test_a_trace_that_is_made_is_no_file(
    job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.exit_code([*job, "make:demo"]) == 2
    assert "nodrop trace make demo FILE" in capsys.readouterr().err


@pytest.mark.parametrize("columns", range(20, 34))
def test_a_number_keeps_its_unit(columns: int) -> None:
    """Seen: `9.0 s to 2 min 30` and below it `s`."""
    lines = arguments.laid_out("order of seed 1, 9.0 s to 2 min 30 s, at 5 ms", columns)
    assert len(lines) > 1 and not any(re.search(r"\d$", line) for line in lines[:-1])


def test_lines_below_a_row_keep_to_its_last_column() -> None:
    row = "snort3       not in PATH   sut.config = FILE, sut.daq = afpacket, sut.threads = 1"
    at = row.index("afpacket")
    assert arguments.laid_out(row, 60) == [row[: at - 1], " " * 27 + row[at:]]


def test_a_library_that_the_host_lacks_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """numpy's own words have 20 lines around it."""

    def small(*_: object, **__: object) -> None:
        raise ImportError(
            "IMPORTANT: PLEASE READ THIS\n\nOriginal error was: libstdc++.so.6: cannot open shared "
            "object file: No such file or directory\n"
        )

    monkeypatch.setattr(main, "_program", lambda: small)
    assert main.exit_code(["plugins"]) == 3
    said = capsys.readouterr().err
    assert "this host lacks libstdc++.so.6, which the Python package" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "error", [MemoryError(), ImportError("libx.so: failed to map segment from shared object")]
)
def test_little_memory_is_no_defect(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def small(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main, "_program", lambda: small)
    assert main.exit_code(["plugins"]) == 3
    said = capsys.readouterr().err
    assert "raise its limit (ulimit -v" in said and "defect" not in said
    assert len(said.splitlines()) == 1
