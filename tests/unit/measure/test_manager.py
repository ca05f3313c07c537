"""A run of several trials, of which some fail: the others go on, and all is kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from nodrop.compare.sides import read_side
from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import REMEDIES, BadInput, NotReady, SystemRefused, TrialFailed
from nodrop.measure import manager
from nodrop.measure.cells import Cell
from nodrop.measure.manager import RunOutcome, run_experiment
from nodrop.measure.pair import Pair
from nodrop.measure.plan import Plan, Progress
from nodrop.report.story import read_story
from nodrop.results.rundir import read_manifest, read_trials
from nodrop.results.summary import summarize_cells
from nodrop.testing.fakes import FakeJournal, FakeLab, FakeLoad, FakeSetup, FakeSut, FakeWorld

THREE = """
name = "three"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
[measure]
repetitions = 3
"""


class FakeParts:
    """Each trial in a world of its own."""

    def __init__(self, worlds: Sequence[FakeWorld]) -> None:
        self._worlds = iter(worlds)
        self.loads: list[Any] = []
        """Offered, in order."""
        self.lab = FakeLab(FakeWorld())
        self.plan: Plan

    def preflight(self, _experiment: object, _lab: object, plan: Plan) -> FakeParts:
        """Stands for the function: all is well."""
        self.plan = plan
        return self

    def notes(self) -> Sequence[str]:
        return ()

    def other_trace(self, load: object) -> None:
        """Asked once, before a trial."""
        self.loads.append(load)
        self._world = next(self._worlds)
        self.lab = FakeLab(self._world)

    def load(self, table: object) -> FakeLoad:
        return FakeLoad(self._world)

    def lab_of(self, cell: Cell) -> FakeLab:
        return self.lab

    def setup(self, cell: Cell) -> FakeSetup:
        return FakeSetup(self._world)

    def sut(self, cell: Cell) -> FakeSut:
        return FakeSut(self._world)

    def bits(self, cell: Cell) -> None:
        return None

    def files_sha256(self, cell: Cell) -> dict[str, str]:
        return {}

    def inputs(self, cell: Cell) -> dict[str, object]:
        return {}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # Not the real one: the fakes' process is the test's own, and its undo would end it.
    monkeypatch.setattr(manager, "_journal", lambda _: nullcontext(FakeJournal(FakeWorld())))
    monkeypatch.setattr(Pair, "look", lambda _: ({}, {}))
    monkeypatch.setattr(manager, "manifest", lambda *_, **found: found)
    file = tmp_path / "three.toml"
    file.write_text(THREE)

    def go(worlds: Sequence[FakeWorld], *, resume: bool = False) -> RunOutcome:
        monkeypatch.setattr(manager, "preflight", FakeParts(worlds).preflight)
        return run_experiment(
            load_experiment(file), load_lab(None), out=tmp_path, resume=resume, progress=Progress()
        )

    return go


@pytest.mark.parametrize(
    ("word", "number", "where", "remedy"),
    [
        ("provision", errno.ENOSPC, "/tmp/sut", REMEDIES[errno.ENOSPC]),
        ("offer", errno.ENOSPC, None, REMEDIES[errno.ENOSPC]),
        ("launch", errno.EMFILE, None, REMEDIES[errno.EMFILE]),
        ("offer", errno.EACCES, "/dev/kvm", REMEDIES[errno.EACCES]),
        ("finish", errno.EIO, "/sys/x", "(dmesg)"),
        ("lab down", errno.ENOMEM, None, REMEDIES[errno.ENOMEM]),
    ],
)
def test_what_the_system_refuses_is_one_failed_trial(
    run: Any, word: str, number: int, where: str | None, remedy: str
) -> None:
    refused = OSError(number, os.strerror(number), where)
    worlds = [FakeWorld(), FakeWorld(fails_at=word, dies_at=refused), FakeWorld()]
    outcome = run(worlds)
    assert outcome.exit_code == 1
    assert [record.valid for record in outcome.records] == [True, False, True]
    failed = outcome.records[1]
    assert failed.invalid_reasons == ["lab_problem"]
    place = f": {where}" if where else ""
    on = f" (on {gethostname()}, during: "
    assert failed.error.startswith(f"{os.strerror(number)}{place}{on}")
    folder = f", files go to {outcome.directory}/runs/{failed.run})"
    assert (folder in failed.error) == (number == errno.ENOSPC and where is None)
    assert failed.error.endswith(remedy)
    assert "\n" not in failed.error
    assert "lab down" in worlds[1].words  # undone in spite of it
    kept = read_trials(outcome.directory).records
    assert [record.run for record in kept] == [record.run for record in outcome.records]


@pytest.mark.parametrize("word", ["prepare load", "launch", "offer", "drain", "finish"])
def test_an_input_that_changes_under_a_trial_makes_it_void(run: Any, word: str) -> None:
    gone = BadInput("load.trace: /tmp/t.pcap does not exist or is no file")
    worlds = [FakeWorld(), FakeWorld(fails_at=word, dies_at=gone), FakeWorld()]
    outcome = run(worlds)
    assert outcome.exit_code == 1
    assert [record.outcome for record in outcome.records] == ["measured", "void", "measured"]
    assert outcome.records[1].invalid_reasons == ["other_files"]
    assert "does not exist" in outcome.records[1].error
    assert len(read_trials(outcome.directory).records) == 3


def test_results_that_cannot_be_kept_end_the_run_with_the_way_on(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "trials.jsonl")

    def finish(*_: Any) -> None:
        raise full

    monkeypatch.setattr("nodrop.results.writer.RunWriter.finish", finish)
    with pytest.raises(
        SystemRefused, match=r"No space left .*keeping the results.*df -h.*--resume"
    ):
        run([FakeWorld(), FakeWorld(), FakeWorld()])


@pytest.mark.parametrize("hint", [None, "mend it"])
def test_whatever_ends_a_run_that_has_begun_says_the_way_on(
    run: Any, monkeypatch: pytest.MonkeyPatch, hint: str | None
) -> None:
    def look(_: object) -> None:
        raise NotReady("no node", hint=hint)

    monkeypatch.setattr("nodrop.measure.pair.Pair.look", look)
    words = rf"^no node; {'mend it, then ' if hint else ''}go on with --resume --out \S+/three-\S+$"
    with pytest.raises(NotReady, match=words):
        run([])


def test_resume_measures_void_trials_again_and_keeps_failures_of_the_sut(run: Any) -> None:
    """To repeat failures until they pass would hide them."""
    dead = FakeWorld(fails_at="launch", dies_at=TrialFailed("the SUT did not get ready"))
    void = FakeWorld(fails_at="provision", dies_at=OSError(errno.ENOSPC, "full"))
    first = run([dead, void, FakeWorld()])
    assert [r.outcome for r in first.records] == ["failed", "void", "measured"]
    again = [FakeWorld(), FakeWorld()]
    outcome = run(again, resume=True)
    assert {r.run[:4]: r.outcome for r in outcome.records} == {
        "0001": "failed",
        "0002": "measured",
        "0003": "measured",
    }
    assert again[0].words and not again[1].words, "the others ran once"
    assert outcome.exit_code == 1


def looks_like(monkeypatch: pytest.MonkeyPatch, machine: str, **host: object) -> None:
    """Makes this machine another by all that nodrop reads of it."""
    found = {"hostname": "alpha", "kernel": "6.1", "cpu": {"model": "EPYC", "cpus": 8}, **host}
    monkeypatch.setattr(Pair, "look", lambda _: (found, {"ring": {"of": machine}}))
    monkeypatch.setattr(manager, "machine_sha256", lambda _: machine)


DEAD = FakeWorld(fails_at="provision", dies_at=OSError(errno.ENOSPC, "full"))


@pytest.mark.parametrize(
    ("machine", "host", "name"),
    [
        ("two", {"hostname": "beta"}, "beta"),
        ("two", {"hostname": "beta", "kernel": "5.4", "cpu": {"model": "Atom", "cpus": 2}}, "beta"),
        ("two", {}, "alpha (2)"),
        ("one", {"kernel": "6.12"}, "alpha (2)"),
    ],
)
def test_a_run_that_goes_on_elsewhere_has_two_hosts(
    run: Any, monkeypatch: pytest.MonkeyPatch, machine: str, host: dict[str, Any], name: str
) -> None:
    """Seen: trials of two machines under one manifest, which named the first one's host."""
    looks_like(monkeypatch, "one")
    run([FakeWorld(), DEAD, DEAD])
    looks_like(monkeypatch, machine, **host)
    outcome = run([FakeWorld(), FakeWorld()], resume=True)
    assert [record.host for record in outcome.records] == [None, name, name]
    manifest = read_manifest(outcome.directory)
    first, second = manifest["sittings"]
    assert (first["name"], second["name"]) == ("alpha", name)
    assert second["host"]["kernel"] == host.get("kernel", "6.1")
    assert second["self_test"] == {"ring": {"of": machine}}
    assert manifest["host"] == first["host"], "what the run began on stays as it was"
    story = read_story([outcome.directory])
    (cell,) = story.cells
    assert cell.pairs == tuple(sorted(("alpha", name))) and cell.starts == 2
    assert cell.independent_name == "hosts"
    (row,) = summarize_cells(outcome.records)
    assert row.pairs == tuple(sorted((name, "first host")))
    facts = read_side(str(outcome.directory)).cells[0].facts
    assert facts["host.kernel"] == sorted({"6.1", second["host"]["kernel"]})


@pytest.mark.parametrize("boots", [1, 2])
def test_sittings_on_one_host_are_one_host(
    run: Any, monkeypatch: pytest.MonkeyPatch, boots: int
) -> None:
    looks_like(monkeypatch, "one", boot_id="1", uid=0)
    run([FakeWorld(), DEAD, FakeWorld()])
    looks_like(monkeypatch, "one", boot_id=str(boots), uid=boots)
    outcome = run([FakeWorld()], resume=True)
    assert {record.host for record in outcome.records} == {None}
    assert [one["name"] for one in read_manifest(outcome.directory)["sittings"]] == ["alpha"] * 2
    (cell,) = read_story([outcome.directory]).cells
    assert cell.pairs == () and cell.starts == 3
    assert read_side(str(outcome.directory)).facts["host.hostname"] == ["alpha"]


def test_back_on_the_first_host_trials_are_its_own_again(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks_like(monkeypatch, "one")
    run([FakeWorld(), DEAD, DEAD])
    looks_like(monkeypatch, "two", hostname="beta")
    run([FakeWorld(), DEAD], resume=True)
    looks_like(monkeypatch, "one")
    outcome = run([FakeWorld()], resume=True)
    assert [record.host for record in outcome.records] == [None, "beta", None]
