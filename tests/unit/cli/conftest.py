"""An experiment that plugins of the tests' own can plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest

from nodrop import plugins
from nodrop.testing.fakes import FakeLoad, FakeSetup, FakeSut, FakeWorld
from tests.unit.cli.program import EXPERIMENT


class AnySut(FakeSut):
    name = "any"

    def __init__(self, _options: Mapping[str, Any], *, base: Path) -> None:
        del base
        super().__init__(FakeWorld())


class AnyLoad(FakeLoad):
    name = "any"

    def __init__(self, _options: Mapping[str, Any], *, base: Path) -> None:
        del base
        super().__init__(FakeWorld())

    def duration_s(self) -> float:
        return 9.0

    def mean_pps(self) -> float:
        return 1000.0


class AnySetup(FakeSetup):
    name = "any"

    def __init__(self, _options: Mapping[str, Any], *, base: Path) -> None:
        del base
        super().__init__(FakeWorld())

    def cpus(self, _: Any) -> AbstractSet[int]:
        return os.sched_getaffinity(0)


ANY: Mapping[str, type] = {"setup": AnySetup, "sut": AnySut, "load": AnyLoad}


class Entry:
    value = "tests:Any"

    def __init__(self, table: str) -> None:
        self._kind = ANY[table]

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
