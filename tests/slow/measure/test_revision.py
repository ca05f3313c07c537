"""The revision of the checkout that nodrop runs from, for the manifest: git is asked, and writes
nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import nodrop
from nodrop.measure import manager

FILE = "src/nodrop/__init__.py"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text("")
    monkeypatch.setattr(nodrop, "__file__", str(tmp_path / FILE))
    who = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "First"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def index(checkout: Path) -> tuple[int, int]:
    found = (checkout / ".git/index").stat()
    return found.st_ino, found.st_mtime_ns


def test_the_index_stays_as_it_is(checkout: Path) -> None:
    os.utime(checkout / FILE, (1, 1))  # git would note that it is as before
    before = index(checkout)
    assert len(manager._revision() or "") >= 7
    assert index(checkout) == before


def test_what_was_changed_is_not_the_commit(checkout: Path) -> None:
    clean = manager._revision()
    (checkout / "untracked").touch()
    assert manager._revision() == clean
    (checkout / FILE).write_text("changed")
    assert manager._revision() == f"{clean}-dirty"


def test_a_folder_without_git_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodrop, "__file__", str(tmp_path / FILE))
    assert manager._revision() is None
    (tmp_path / ".git").mkdir()
    assert manager._revision() is None
