"""The manual page and the completions that a wheel brings."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from nodrop.cli import main
from nodrop.cli.lab import NODE_JOBS
from tools import manual


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("share")
    manual.write(folder)
    return folder


def test_the_manual_has_each_command_and_no_fault(share: Path) -> None:
    page = share / "man/man1/nodrop.1"
    program: Any = typer.main.get_command(main.app)
    for name in program.commands:
        if name not in NODE_JOBS:
            assert f'\n.SH "nodrop {name}"\n' in page.read_text()
    if not shutil.which("groff"):
        pytest.skip("needs groff")
    argv = ["groff", "-Kutf8", "-man", "-ww", "-Tutf8", str(page)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "nodrop capacity my.pcap --rules my.rules" in done.stdout


@pytest.mark.parametrize("shell", manual.COMPLETIONS)
def test_a_completion_calls_nodrop(share: Path, shell: str) -> None:
    text = (share / manual.COMPLETIONS[shell]).read_text()
    assert f"_NODROP_COMPLETE=complete_{shell}" in text
    if shell == "bash":
        script = f"{text}\n[ $(complete -p nodrop | wc -l) = 1 ]"
        subprocess.run(["bash", "-ec", script], check=True, env={"PATH": os.environ["PATH"]})
