"""The command on a page that writes the page again names the folder that the run lies in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodrop.report.write import commands


@pytest.mark.parametrize(
    ("command", "name", "run"),
    [
        (["nodrop", "drops", "--record", "rec"], "rec", "rec"),
        (["nodrop", "drops", "--record", "/srv/monday", "--for", "10m"], "monday", "/srv/monday"),
        (["nodrop", "run", "a.toml"], "a-1", "results/a-1"),
        (["nodrop", "run", "a.toml", "--out", "other"], "a-1", "other/a-1"),
        (["nodrop", "run", "a.toml", "--resume", "--out", "other/a-1"], "a-1", "other/a-1"),
        (["nodrop", "run", "a.toml", "--out", "s3://bucket/x"], "a-1", "results/a-1"),
    ],
)
def test_it_names_its_folder(command: list[str], name: str, run: str) -> None:
    """Seen: `nodrop report results/rec` of a watch that was recorded in `rec`."""
    source: Any = SimpleNamespace(command=command, name=name)
    assert commands(source).splitlines()[1] == f"nodrop report {run}"
