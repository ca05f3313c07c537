"""No socket stays in a run directory when its SUT is gone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from nodrop.measure.measurer import _remove_sockets


def test_sockets_go_and_nothing_else(tmp_path: Path) -> None:
    inside = tmp_path / "sut" / "run"
    inside.mkdir(parents=True)
    here = os.open(inside, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.bind(f"/proc/self/fd/{here}/control.socket")
        second.bind(f"/proc/self/fd/{here}/other")
    os.close(here)
    (inside / "eve.json").write_text("{}")
    (inside / "link").symlink_to(inside / "other")
    assert (inside / "other").is_socket()
    _remove_sockets(tmp_path / "sut")
    assert sorted(path.name for path in inside.iterdir()) == ["eve.json", "link"]
    _remove_sockets(tmp_path / "not-there")
