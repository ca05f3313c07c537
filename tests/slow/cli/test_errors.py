"""The program in a shell: an output that is closed or full, and its set-up there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nodrop.cli import main
from tests.depth import depth
from tests.unit.cli.program import ROOT, in_a_shell, started


@pytest.mark.parametrize("argv", ["plugins --json", depth("plan experiments/affinity.toml")])
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


@pytest.mark.parametrize("words", [["--help"], ["plan", "FIXED", "--json"]])
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


@pytest.mark.parametrize(
    ("shell", "option"),
    [
        *((shell, main.COMPLETION[0]) for shell in ("bash", "zsh", "fish", "xonsh")),
        *((shell, main.COMPLETION[1]) for shell in ("fish", "dash")),
        *(depth(shell, main.COMPLETION[1]) for shell in ("bash", "zsh", "xonsh")),
        depth("dash", main.COMPLETION[0]),
    ],
)
def test_completion_is_set_up_for_the_shell_that_asks(
    tmp_path: Path, shell: str, option: str
) -> None:
    """The shell is found by the name of a process above; any program may bear it."""
    shutil.copy("/bin/sh", tmp_path / shell)
    asked = f"{sys.executable} -m nodrop.cli.main {option}; exit $?"
    said = started(str(tmp_path / shell), "-c", asked, HOME=str(tmp_path / "home"), SHELL="")
    if shell not in main.SHELLS:
        assert (said.returncode, said.stdout) == (2, "")
        expected = f"nodrop: {option}: for bash, zsh and fish only; the shell that runs this: "
        assert said.stderr.startswith(expected) and said.stderr.count("\n") == 1
        assert not (tmp_path / "home").exists()
        return
    assert (said.returncode, said.stderr) == (0, "")
    installed = option == "--install-completion"
    assert (
        f"{shell} completion installed in" in said.stdout if installed else "nodrop" in said.stdout
    )
    assert (tmp_path / "home").exists() == installed
