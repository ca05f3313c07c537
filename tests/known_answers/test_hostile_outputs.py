"""Output of a SUT or a guest is read as a stranger's: no link, no FIFO, no end of memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop.errors import TrialFailed
from nodrop.testbed.hosts.guest import _File, _Output
from nodrop.testbed.suts.suricata.log import EngineLog
from nodrop.testbed.suts.suricata.running import _tail
from nodrop.untrusted import json_text
from nodrop.untrusted.folder import Folder, read_end
from nodrop.untrusted.json_text import NotJson

LINE = b'{"log_level":"Info","engine":{"message":"Engine started"}}\n'
GIB = 1 << 30


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * GIB)


HOSTILE = {
    "shadow": link_to("/etc/shadow"),
    "zero": link_to("/dev/zero"),
    "itself": lambda path: path.symlink_to(path),
    "fifo": os.mkfifo,
    "sparse": sparse,
}


@pytest.fixture(autouse=True)
def little_memory() -> object:
    """A read of everything fails here, and does not take the machine with it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + GIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_engine_log_that_is_something_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "engine.json"
    HOSTILE[kind](path)
    with pytest.raises(TrialFailed, match="engine log"):
        EngineLog(path).lines()


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_engine_log_that_becomes_something_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "engine.json"
    path.write_bytes(LINE)
    log = EngineLog(path)
    assert len(log.lines()) == 1
    path.unlink()
    HOSTILE[kind](path)
    with pytest.raises(TrialFailed, match="engine log"):
        log.lines()


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_end_of_an_output_that_is_something_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "suricata.stderr"
    HOSTILE[kind](path)
    assert len(read_end(path, bytes_from_end=4096)) <= 4096
    assert all("root:" not in line for line in _tail(path))


@pytest.mark.parametrize("lines", [0, 1, 3000])
def test_an_engine_log_that_grows_is_read_on(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "engine.json"
    log = EngineLog(path)
    assert len(log.lines()) == 0
    path.write_bytes(LINE * lines + LINE[:9])
    assert len(log.lines()) == lines
    with path.open("ab") as file:
        file.write(LINE[9:])
    assert len(log.lines()) == lines + 1


@pytest.mark.parametrize("piece", [1, 5 << 20])
def test_a_guest_cannot_fill_our_memory(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(json_text, "GUEST_FILE_BYTES", 3 * piece)
    got = _Output()
    for _ in range(3):
        got.extend(bytes(piece))
    with pytest.raises(NotJson, match="allows more"):
        got.extend(b"x")
    assert not got


@pytest.mark.parametrize("piece", [1, 1 << 16])
def test_a_guest_cannot_fill_our_disk_by_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(json_text, "GUEST_FILE_BYTES", 2 * piece + 1)
    taken = _File(tmp_path / "stdout")
    for _ in range(5):
        taken.extend(b"x" * piece)
    taken.extend(b"")
    assert (tmp_path / "stdout").read_bytes() == b"x" * (2 * piece + 1)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", ".", "a//x", "a/\0", "link/x"])
def test_a_name_out_of_the_work_folder_is_refused(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(tmp_path)
    *above, last = name.split("/")
    folder = Folder(work, tuple(above))
    with pytest.raises(OSError):
        folder.size(last)
        folder.make_all()
        folder.changing(last, append=True)
    assert not (tmp_path / "x").exists()
