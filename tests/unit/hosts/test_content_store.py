"""Content that a host keeps by its hash: the scripts run in a shell of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from nodrop.errors import LabProblem
from nodrop.remote import inputs
from nodrop.testbed.hosts.api import Completed
from nodrop.testbed.hosts.content_store import ContentStore
from nodrop.testbed.hosts.node import file_sha256


@dataclass
class Shell:
    """A host whose stat says that all is root's, with the modes that there are."""

    path: Path
    name: str = "there"
    most_bytes: int = 1 << 20
    """More does not arrive."""
    taken: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True) -> Completed:
        return self._done(argv, b"", check=check)

    def copied(self, argv: Sequence[str], content: IO[bytes], name: str) -> Completed:
        self.taken.append(name)
        return self._done(argv, content.read()[: self.most_bytes], check=False)

    def _done(self, argv: Sequence[str], stdin: bytes, *, check: bool) -> Completed:
        env = {"PATH": f"{self.path}:{os.environ['PATH']}"}
        done = subprocess.run(argv, input=stdin, capture_output=True, check=check, env=env)
        out, err = done.stdout.decode(), done.stderr.decode()
        return Completed(
            argv=tuple(argv), returncode=done.returncode, stdout=out, stderr=err, seconds=0
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    stat = tmp_path / "bin/stat"
    stat.parent.mkdir()
    stat.write_text('#!/bin/sh\nexec /usr/bin/stat -c 0:%a "$3"\n')
    stat.chmod(0o755)
    return Shell(stat.parent)


@pytest.fixture
def store(shell: Shell, tmp_path: Path) -> ContentStore:
    (tmp_path / "lib").mkdir(mode=0o755)
    return ContentStore(shell, str(tmp_path / "lib/files"), mode="700")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def mode(path: str) -> int:
    return Path(path).stat().st_mode & 0o777


def test_a_file_is_copied_once(store: ContentStore, shell: Shell, tmp_path: Path) -> None:
    file = written(tmp_path / "a.rules", "alert")
    placed = store.put_file(file)
    assert placed == (f"{store.folder}/{file_sha256(file)}/a.rules", True)
    assert Path(placed.path).read_text() == "alert"
    assert (mode(store.folder), mode(placed.path)) == (0o700, 0o644)
    assert store.put_file(file) == (placed.path, False) and shell.taken == ["a.rules"]


def test_files_of_one_content_lie_beside_each_other(store: ContentStore, tmp_path: Path) -> None:
    first = store.put_file(written(tmp_path / "a.rules", "alert"))
    named = store.put_file(tmp_path / "a.rules", name="$(b) 'c", mode="755")
    assert named.copied and Path(first.path).parent == Path(named.path).parent
    assert (mode(first.path), mode(named.path)) == (0o644, 0o755)
    assert {path.name for path in Path(first.path).parent.iterdir()} == {"a.rules", "$(b) 'c"}


def test_a_tree_is_copied_once(store: ContentStore, shell: Shell, tmp_path: Path) -> None:
    program = written(tmp_path / "program", "#!/bin/sh")
    program.chmod(0o777)
    files = {"bin/program": program, "about": b"text"}
    placed = store.put_tree(files, shown="nodrop")
    assert placed.copied and not store.put_tree(files, shown="nodrop").copied
    assert mode(placed.path) == mode(f"{placed.path}/bin/program") == 0o755
    assert Path(placed.path, "about").read_text() == "text" and shell.taken == ["nodrop"]
    assert store.put_tree({**files, "about": b"another"}, shown="nodrop").path != placed.path


def test_damaged_content_is_replaced(store: ContentStore, tmp_path: Path) -> None:
    file = store.put_file(written(tmp_path / "a", "whole"))
    tree = store.put_tree({"b": b"whole"}, shown="nodrop")
    for path in (Path(file.path), Path(tree.path, "b")):
        path.write_text("damaged")
    assert store.put_file(tmp_path / "a") == file
    assert store.put_tree({"b": b"whole"}, shown="nodrop") == tree
    assert Path(file.path).read_text() == Path(tree.path, "b").read_text() == "whole"


@pytest.mark.parametrize("most_bytes", [0, 40])
def test_what_does_not_arrive_whole_leaves_nothing(
    store: ContentStore, shell: Shell, tmp_path: Path, most_bytes: int
) -> None:
    shell.most_bytes = most_bytes
    words = f"there: the node cannot be copied to {store.folder}: it did not arrive whole"
    with pytest.raises(LabProblem, match=words):
        store.put_file(written(tmp_path / "a", "x" * 100), shown="the node")
    with pytest.raises(LabProblem, match=f"there: nodrop cannot be copied to {store.folder}: "):
        store.put_tree({"b": b"x" * 100}, shown="nodrop")
    assert not [path for path in Path(store.folder).rglob("*") if path.is_file()]


@pytest.mark.parametrize("whose", ["lib", "lib/files"])
def test_a_folder_that_others_may_write_to_takes_nothing(
    store: ContentStore, tmp_path: Path, whose: str
) -> None:
    (tmp_path / whose).mkdir(exist_ok=True)
    (tmp_path / whose).chmod(0o777)
    with pytest.raises(LabProblem, match=f"{tmp_path / whose} is not root's alone"):
        store.put_file(written(tmp_path / "a", "x"))
    with pytest.raises(LabProblem, match=f"{tmp_path / whose} is not root's alone"):
        store.put_tree({"b": b"x"}, shown="nodrop")


def test_no_one_else_reads_an_experiments_files(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir(mode=0o755)
    monkeypatch.setattr(inputs, "FILES_FOLDER", str(tmp_path / "lib/files"))
    path = inputs.copy_of(shell, written(tmp_path / "trace.pcap", "frames"))
    assert (mode(inputs.FILES_FOLDER), mode(path)) == (0o700, 0o644)
