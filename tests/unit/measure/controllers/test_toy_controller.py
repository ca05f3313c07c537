"""A controller from a plugin: an entry point alone adds it to a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from nodrop import plugins
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import BadInput
from nodrop.measure import manager
from nodrop.measure.controllers.blocks import Asked, May, Outlook, TrialInput, any_trial
from nodrop.measure.manager import run_experiment
from nodrop.measure.pair import Pair
from nodrop.measure.plan import Progress, make_plan
from nodrop.results.summary import Remaining
from nodrop.results.trial import TrialRecord
from nodrop.testing.fakes import FakeJournal, FakeWorld
from tests.unit.measure.test_manager import FakeParts

TOY = """
name = "toy"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
pps = 100
[measure]
mode = "doubling"
repetitions = 5
"""


class Doubling:
    """Doubles the pace until as many trials are measured as were asked for, or packets are lost."""

    heeds_void = False

    def __init__(self, asked: Asked) -> None:
        (self._cell,) = asked.cells
        self._most = asked.repetitions

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        if len(done) == self._most or any(record.packets.lost_packets for record in done):
            return None
        pps = self._cell.load["pps"] * 2 ** len(done)
        return TrialInput(
            index=len(done) + 1,
            cell=self._cell.factors,
            repetition=len(done) + 1,
            load={**self._cell.load, "pps": pps},
        )

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        at_least = Remaining(trials=int(self.next(done) is not None), seconds=1, spread_s=None)
        left = self._most - len(done)
        return Outlook(
            at_least=at_least, at_most=Remaining(trials=left, seconds=left, spread_s=None)
        )

    def beforehand(self) -> Sequence[TrialInput]:
        return ()


@pytest.fixture(autouse=True)
def _entry_point(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("somebodys_package")
    module.Doubling = Doubling  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = metadata.EntryPoint(
        name="doubling", value="somebodys_package:Doubling", group="nodrop.controllers"
    )
    theirs = SimpleNamespace(name="somebodys-package", version="1.0", entry_points=[entry])
    monkeypatch.setattr(metadata, "distributions", lambda: [theirs])
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


def test_it_decides_what_is_measured_from_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third trial loses packets, so there is no fourth."""
    worlds = [FakeWorld(), FakeWorld(), FakeWorld(ring_full_packets=5), FakeWorld()]
    parts = FakeParts(worlds)
    monkeypatch.setattr(manager, "_journal", lambda _: nullcontext(FakeJournal(FakeWorld())))
    monkeypatch.setattr(Pair, "look", lambda _: ({}, {}))
    monkeypatch.setattr(manager, "manifest", lambda *_, **found: found)
    monkeypatch.setattr(manager, "preflight", parts.preflight)
    file = tmp_path / "toy.toml"
    file.write_text(TOY)
    outcome = run_experiment(
        load_experiment(file), load_lab(None), out=tmp_path, resume=False, progress=Progress()
    )
    assert [record.packets.lost_packets for record in outcome.records] == [0, 0, 5]
    assert [load["pps"] for load in parts.loads] == [100, 200, 400]


def test_it_is_chosen_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "toy.toml"
    file.write_text(TOY)
    assert make_plan(load_experiment(file)).controller.outlook([]).at_least.trials == 1
    with pytest.raises(
        BadInput, match=r'measure.mode = "dubling": allowed are blocks, capacity, doubling'
    ):
        make_plan(load_experiment(file, ['measure.mode="dubling"']))
