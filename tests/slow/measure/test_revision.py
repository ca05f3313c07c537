"""The revision of the checkout that nodrop runs from, for the manifest: git is asked, and writes
nothing. A wheel brings its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import installation

FILE = "src/nodrop/__init__.py"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / FILE).parent.mkdir(parents=True)
    for name in (FILE, "Makefile", "Cargo.toml"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(installation, "PACKAGE", (tmp_path / FILE).parent)
    installation.revision.cache_clear()
    yield (tmp_path / FILE).parent
    installation.revision.cache_clear()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    who = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "First"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def revision() -> str | None:
    installation.revision.cache_clear()
    return installation.revision()


def index(checkout: Path) -> tuple[int, int]:
    found = (checkout / ".git/index").stat()
    return found.st_ino, found.st_mtime_ns


def test_the_index_stays_as_it_is(checkout: Path) -> None:
    os.utime(checkout / FILE, (1, 1))  # git would note that it is as before
    before = index(checkout)
    assert len(revision() or "") >= 7
    assert index(checkout) == before


def test_what_was_changed_is_not_the_commit(checkout: Path) -> None:
    clean = revision()
    (checkout / "untracked").touch()
    assert revision() == clean
    (checkout / FILE).write_text("changed")
    assert revision() == f"{clean}-dirty"


def test_a_folder_without_git_has_none(tmp_path: Path) -> None:
    assert revision() is None
    (tmp_path / ".git").mkdir()
    assert revision() is None


def test_a_wheel_has_the_commit_that_it_was_built_from(package: Path) -> None:
    (package / installation.REVISION).write_text("0123456789ab\n")
    assert revision() == "0123456789ab"
