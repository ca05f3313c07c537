"""The program as a user starts it: what it prints, imports and completes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.cli.program import in_a_shell, nodrop, started


def test_a_terminal_without_utf_8_gets_what_it_can_show() -> None:
    done = in_a_shell("plan experiments/affinity.toml", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() and "trials" in done.stdout


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


def test_help_needs_no_heavy_import() -> None:
    program = (
        "import sys; from nodrop.cli.main import exit_code; exit_code(['--help']);"
        "heavy = {'pydantic', 'scipy', 'jinja2', 'yaml'} & set(sys.modules); sys.exit(str(heavy))"
    )
    done = started(sys.executable, "-c", program)
    assert done.stderr == "set()\n"
    assert "plan" in done.stdout


def test_dask_is_imported_only_when_a_fleet_is_connected() -> None:
    program = (
        "import sys, nodrop.cli.measure, nodrop.measure.manager, nodrop_fleet.run;"
        "sys.exit(str({'dask', 'distributed'} & set(sys.modules)))"
    )
    done = started(sys.executable, "-c", program)
    assert done.stderr == "set()\n"


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
