"""Every controller, driven by the manager over a SUT of a known capacity: no lab at all."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from nodrop import plugins
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import TrialFailed
from nodrop.measure import manager, pair
from nodrop.measure.manager import RunOutcome, run_experiment
from nodrop.measure.pair import Pair
from nodrop.measure.plan import Progress
from nodrop.testing.fakes import FakeJournal, FakeWorld
from tests.made.measuring import FakeMeasurer
from tests.unit.measure.test_manager import FakeParts

PACES = """
name = "paces"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
[matrix]
"load.pps" = [100, 200, 400]
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(manager, "_journal", lambda _: nullcontext(FakeJournal(FakeWorld())))
    monkeypatch.setattr(Pair, "look", lambda _: ({}, {}))
    monkeypatch.setattr(manager, "manifest", lambda *_, **found: found)
    monkeypatch.setattr(manager, "preflight", FakeParts([FakeWorld()] * 100).preflight)
    file = tmp_path / "paces.toml"
    file.write_text(PACES)

    class Noting(Progress):
        def note(self, words: str) -> None:
            notes.append(words)

    notes: list[str] = []

    def go(measurer: FakeMeasurer, *settings: str, resume: bool = False) -> RunOutcome:
        monkeypatch.setattr(pair, "LabMeasurer", lambda *_: measurer)
        experiment = load_experiment(file, settings)
        return run_experiment(
            experiment, load_lab(None), out=tmp_path, resume=resume, progress=Noting()
        )

    go.notes = notes  # type: ignore[attr-defined]
    return go


SEARCHES = {"capacity"}
"""Controllers that choose their loads themselves."""
OF_FIXED_LOADS = {p.kind for p in plugins.plugins() if p.table == "controller"} - SEARCHES


@pytest.mark.parametrize("mode", sorted(OF_FIXED_LOADS))
@pytest.mark.parametrize("sut", ["fresh", "standing"])
@pytest.mark.parametrize(("capacity_pps", "lossy"), [(50, 3), (150, 2), (399, 1), (400, 0)])
def test_every_controller_finds_what_is_there(
    run: Any, mode: str, sut: str, capacity_pps: int, lossy: int
) -> None:
    outcome = run(FakeMeasurer(capacity_pps), f"measure.mode={mode}", f"measure.sut={sut}")
    found = {record.cell["load.pps"] for record in outcome.records if record.packets.lost_packets}
    assert len(found) == lossy
    assert all(record.valid for record in outcome.records)


def test_a_fresh_sut_for_every_trial(run: Any) -> None:
    measurer = FakeMeasurer(1000)
    outcome = run(measurer, "measure.repetitions=2")
    assert [word.split()[0] for word in measurer.said] == ["stand", "offer", "leave"] * 6
    assert [record.world for record in outcome.records] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("repetitions", "worlds"), [(1, [1]), (3, [1, 2, 3]), (7, [1, 1, 3, 3, 5, 5, 5])]
)
def test_a_standing_sut_carries_a_third_of_a_cells_trials(
    run: Any, repetitions: int, worlds: list[int]
) -> None:
    outcome = run(
        FakeMeasurer(1000),
        "load.pps=100",
        "measure.sut=standing",
        f"measure.repetitions={repetitions}",
    )
    assert [record.world for record in outcome.records] == worlds


def test_no_two_cells_share_a_standing_sut(run: Any) -> None:
    outcome = run(FakeMeasurer(1000), "measure.sut=standing", "measure.repetitions=6")
    cells: dict[int, set[object]] = {}
    for record in outcome.records:
        cells.setdefault(record.world, set()).add(record.cell["load.pps"])
    assert len(cells) == 9 and all(len(of) == 1 for of in cells.values())


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_worn_world_and_a_failed_trial_end_the_standing_sut(run: Any, index: int) -> None:
    settings = ("load.pps=100", "measure.sut=standing", "measure.repetitions=12")
    worn = run(FakeMeasurer(1000, wears_at={index: "its books do not close"}), *settings)
    failed = run(FakeMeasurer(1000, fails_at={index: TrialFailed("it died")}), *settings)
    for outcome in (worn, failed):
        worlds = [record.world for record in outcome.records[:4]]
        assert worlds == [1] * index + [index + 1] * (4 - index)
    assert [record.outcome for record in failed.records].count("failed") == 1


def test_addresses_that_run_out_are_said_and_begin_a_new_start(run: Any) -> None:
    settings = ("load.pps=100", "measure.sut=standing", "measure.repetitions=12")
    measurer = FakeMeasurer(1000, spent_at={3: "its flows would repeat"})
    outcome = run(measurer, *settings)
    assert [record.world for record in outcome.records[:4]] == [1, 1, 3, 3]
    words = "trial 3 begins with a new start of the SUT: its flows would repeat"
    assert words in run.notes


def test_a_resumed_run_goes_on_where_it_was(run: Any) -> None:
    settings = ("load.pps=100", "measure.sut=standing", "measure.repetitions=6")
    stop = FakeMeasurer(1000, fails_at={4: KeyboardInterrupt()})  # type: ignore[dict-item]
    with pytest.raises(KeyboardInterrupt):
        run(stop, *settings)
    assert stop.said[-1] == "leave"
    again = FakeMeasurer(1000)
    outcome = run(again, *settings, resume=True)
    assert again.said[0] == "stand 4", "of a new SUT"
    assert [record.world for record in outcome.records] == [1, 1, 3, 4, 5, 5]
