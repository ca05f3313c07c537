"""An experiment that plugins of the tests' own can plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest

from nodrop import plugins
from nodrop.testbed.load.api import TraceFacts
from nodrop.testing.fakes import FakeLoad, FakeWorld
from tests.unit.cli.program import EXPERIMENT


class AnyPlugin:
    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        pass

    name = "any"
    holds_packets = rest_seen_s = None
    cpus: Any = None
    heeds_cpus = True
    senders, unit = 0, "packets"

    def duration_s(self) -> float:
        return 9.0

    def trace_facts(self) -> TraceFacts:
        return FakeLoad(FakeWorld()).trace_facts()

    def mean_pps(self) -> float:
        return 1000.0

    def needs_bits(self) -> None:
        return None

    def problems(self, *_: Any) -> list[str]:
        return []


class AnySetup(AnyPlugin):
    def cpus(self, _: Any) -> AbstractSet[int]:
        return os.sched_getaffinity(0)


class Entry:
    value = "tests:Any"

    def __init__(self, table: str) -> None:
        self._kind = AnySetup if table == "setup" else AnyPlugin

    def load(self) -> type:
        return self._kind


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = [("setup", "bare"), ("sut", "any"), ("load", "any")]
    made = tuple(
        plugins.Plugin(table=table, kind=kind, origin="tests 1", entry=Entry(table))  # type: ignore[arg-type]
        for table, kind in found
    )
    others = tuple(p for p in plugins.plugins() if p.table in ("controller", "lab"))
    monkeypatch.setattr(plugins, "plugins", lambda: made + others)
    path = tmp_path / "x.toml"
    path.write_text(EXPERIMENT)
    return path
