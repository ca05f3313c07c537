"""Who we are outside of a user namespace: what lies in /tmp is named by that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodrop.hosts.folders import uid_of_host


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
