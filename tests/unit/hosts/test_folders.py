"""Folders in /tmp are named by who we are outside of a user namespace."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nodrop.testbed.hosts.folders import traces_folder, uid_of_host


@pytest.mark.parametrize(
    ("uid", "text", "outside"),
    [
        (0, "         0          0 4294967295\n", 0),
        (1001, "         0          0 4294967295\n", 1001),
        (0, "         0       1001          1\n", 1001),
        (7, "0 1001 1\n1 100000 65536\n", 100006),
        (70000, "0 1001 1\n1 100000 65536\n", 70000),
    ],
)
def test_the_users_own_uid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, text: str, outside: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    file = tmp_path / "uid_map"
    file.write_text(text)
    assert uid_of_host(file) == outside
    assert uid_of_host(tmp_path / "none") == uid


@pytest.mark.parametrize("unused_days", [29, 31, 400])
def test_captures_that_nobody_reads_any_more_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_days: int
) -> None:
    """They were kept for ever: 1,360 files on one machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old, read = (tmp_path / "nodrop" / "traces" / name for name in ("old.pcap", "read.pcap"))
    old.parent.mkdir(parents=True)
    since_s = time.time() - unused_days * 86_400
    for path, read_s in ((old, since_s), (read, time.time())):
        path.write_bytes(b"x")
        os.utime(path, (read_s, since_s))
    assert traces_folder() == old.parent
    assert old.exists() == (unused_days < 30) and read.exists()
