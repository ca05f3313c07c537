"""A fleet's temporary folder goes with it, or, if it was killed, with an undo."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodrop.cli.main import exit_code
from nodrop.testbed.hosts import folders
from nodrop.testbed.hosts.folders import PREFIX, scratch, sweep

HOLDS = """
from nodrop.testbed.hosts.folders import scratch
with scratch() as folder:
    (folder / "eve.json").write_text("x")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@contextmanager
def another() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    argv = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_it_is_this_users_alone_and_goes(folder: Path) -> None:
    with scratch() as found:
        assert found.parent == folder and found.stat().st_mode & 0o777 == 0o700
        assert sweep() == []
        (found / "file").touch()
    assert not found.exists()


def test_what_a_killed_process_left_goes_with_an_undo(capsys: pytest.CaptureFixture[str]) -> None:
    with another() as (process, left):
        assert exit_code(["undo"]) == 0
        assert capsys.readouterr().out == "nothing to undo\n"
        process.kill()
        process.wait()
        assert (left / "eve.json").exists()
        assert exit_code(["undo"]) == 0
    assert capsys.readouterr().out == f"undone: folder {left}\n"
    assert not left.exists()


def test_a_link_is_not_followed_and_others_folders_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = folder / "ours"
    ours.mkdir()
    (folder / f"{PREFIX}link").symlink_to(ours)
    (folder / f"{PREFIX}file").touch()
    assert sweep() == [] and ours.is_dir()
    (folder / f"{PREFIX}other").mkdir()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: 4711)
        assert sweep() == []


def test_one_that_is_swept_before_it_has_its_lock_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, swept = folders._locked, []

    def sweeps_once(folder: Path) -> int:
        held = lock(folder)
        if not swept:
            folder.rmdir()
            swept.append(folder)
        return held

    monkeypatch.setattr(folders, "_locked", sweeps_once)
    with scratch() as found:
        assert found.is_dir() and swept and found != swept[0]
