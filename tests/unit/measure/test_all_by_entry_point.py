"""A lab, a setup, a SUT, a generator and a controller from a plugin: entry points alone add
them, and a run uses nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nodrop import plugins
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.config.options import Options, check
from nodrop.errors import BadInput
from nodrop.measure import manager
from nodrop.measure.controllers.blocks import Asked, Outlook, TrialInput
from nodrop.measure.manager import run_experiment
from nodrop.measure.pair import Pair
from nodrop.measure.plan import Progress
from nodrop.results.summary import Remaining
from nodrop.results.trial import TrialRecord
from nodrop.testbed.hosts.api import Link, UndoJournal
from nodrop.testing.fakes import FakeJournal, FakeLab, FakeLoad, FakeSetup, FakeSut, FakeWorld

WORLD = FakeWorld(ring_full_packets=7)
EXPERIMENT = """
name = "toys"
[setup]
kind = "shed"
[sut]
kind = "toy-ids"
[load]
kind = "toy-load"
[measure]
mode = "twice"
"""
LAB = 'name = "my-rack"\nkind = "toy-rack"\ncables = 3\n'


class RackFile(Options):
    name: str
    kind: str
    cables: int


class Rack(FakeLab):
    def __init__(self, table: Mapping[str, Any], *, base: Path) -> None:
        super().__init__(WORLD)
        self.name = check(RackFile, table, table="", base=base).name

    @contextmanager
    def up(self, journal: UndoJournal) -> Iterator[Link]:
        WORLD.offers = 0  # new ports count from zero
        with super().up(journal) as link:
            yield link


def _of_the_world(fake: Any) -> Any:
    return lambda _table, *, base: fake(WORLD)


class Twice:
    heeds_void = False

    def __init__(self, asked: Asked) -> None:
        (self._cell,) = asked.cells

    def next(self, done: Sequence[TrialRecord]) -> TrialInput | None:
        if len(done) == 2:
            return None
        return TrialInput(
            index=len(done) + 1,
            cell=self._cell.factors,
            repetition=len(done) + 1,
            load=self._cell.load,
        )

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        left = Remaining(trials=2 - len(done), seconds=1, spread_s=None)
        return Outlook(at_least=left, at_most=left)

    def beforehand(self) -> Sequence[TrialInput]:
        return ()


TOYS = {
    "nodrop.labs": ("toy-rack", Rack),
    "nodrop.setups": ("shed", _of_the_world(FakeSetup)),
    "nodrop.suts": ("toy-ids", _of_the_world(FakeSut)),
    "nodrop.loads": ("toy-load", _of_the_world(FakeLoad)),
    "nodrop.controllers": ("twice", Twice),
}


@pytest.fixture(autouse=True)
def _entry_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("toy_package")
    entries = []
    for group, (name, made) in TOYS.items():
        attribute = name.replace("-", "_")
        setattr(module, attribute, made)
        entries.append(
            metadata.EntryPoint(name=name, value=f"toy_package:{attribute}", group=group)
        )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    theirs = SimpleNamespace(name="toy-package", version="1.0", entry_points=entries)
    monkeypatch.setattr(metadata, "distributions", lambda: [theirs])
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    file = tmp_path / "rack.toml"
    file.write_text(LAB)
    return file


def test_a_run_of_nothing_else(tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not the real journal: the fakes' process is the test's own, and an undo would end it.
    monkeypatch.setattr(manager, "_journal", lambda _: nullcontext(FakeJournal(FakeWorld())))
    monkeypatch.setattr(Pair, "look", lambda _: ({}, {}))
    monkeypatch.setattr(manager, "manifest", lambda *_, **found: found)
    file = tmp_path / "toys.toml"
    file.write_text(EXPERIMENT)
    outcome = run_experiment(
        load_experiment(file), load_lab(str(lab)), out=tmp_path, resume=False, progress=Progress()
    )
    assert [record.packets.lost_packets for record in outcome.records] == [7, 7]
    assert all(record.valid for record in outcome.records)
    assert WORLD.words.count("lab up") == 2


def test_a_lab_says_what_is_wrong_with_its_own_keys(lab: Path) -> None:
    lab.write_text(LAB.replace("cables", "cabels"))
    with pytest.raises(BadInput, match=r"rack.toml: cabels: no such key; did you mean cables\?"):
        plugins.build_lab(load_lab(str(lab)))
