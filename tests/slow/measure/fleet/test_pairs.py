"""Trials dealt to pairs, and pairs that fail; the client of dask is a fake."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import nodrop
from nodrop.config.experiment import load_experiment
from nodrop.errors import BadInput, Gate, LabProblem, NotReady
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.manager import RunOutcome, keep_run
from nodrop.measure.plan import Progress, make_plan
from nodrop.results.rundir import open_run
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter
from nodrop_fleet import worker
from nodrop_fleet.file import load_fleet
from nodrop_fleet.members import Members, Pairs
from nodrop_fleet.worker import Job, Left, ReadyPair, Sent
from tests.unit.measure.controllers.test_blocks import record

EXPERIMENT = """
name = "shared"
[sut]
kind = "sink"
[load]
kind = "replay"
trace = "make:demo"
duration_s = 5
[matrix]
"load.pps" = [100, 200, 300, 400]
[measure]
repetitions = 3
"""
VOID = {"outcome": "void", "valid": False, "invalid_reasons": ["lab_problem"], "error": "no port"}

MANIFEST: dict[str, Any] = {
    "self_test": {},
    "order": ["0001"],
    "nodrop": {"argv": ["dask", "worker"], "version": nodrop.__version__},
}

Measure = Callable[[str, TrialInput], TrialRecord]


def well(_pair: str, asked: TrialInput) -> TrialRecord:
    return record(asked)


@dataclass
class Task:
    done: Callable[[], Any]

    def add_done_callback(self, tell: Callable[[Task], None]) -> None:
        tell(self)

    def result(self, timeout: float | None = None) -> Any:
        return self.done()

    def cancel(self) -> None:
        pass


@dataclass
class Client:
    """Client of a cluster with a worker for each of these pairs."""

    pairs: list[str]
    measure: Measure = well
    refuses: dict[str, Exception] = field(default_factory=dict)
    """Pair → what it says when it is to begin."""
    inputs: dict[str, list[Any]] = field(default_factory=dict)
    status: str = "running"
    left: list[str] = field(default_factory=list)

    @property
    def scheduler(self) -> Client:
        return self

    def sync(self, ask: Callable[..., Any], **given: Any) -> Any:
        return ask(**given)

    def identity(self, n_workers: int) -> Any:
        assert n_workers == -1, "all of them"
        return {"workers": {f"at-{p}": {"name": p, "resources": {"pair": 1}} for p in self.pairs}}

    def run(self, what: Any, *_given: Any, workers: list[str], **_: Any) -> Any:
        return {address: time.time_ns() for address in workers}

    def submit(self, what: Any, job: Job, *arguments: Any, workers: list[str], **_: Any) -> Task:
        assert workers == [f"at-{job.pair}"]
        if what is worker.begin:
            return Task(lambda: self._begun(job.pair))
        if what is worker.measure:
            return Task(lambda: self._sent(job.pair, arguments[0]))
        self.left.append(job.pair)
        return Task(lambda: Left(changed=[f"port of {job.pair}"]))

    def _begun(self, pair: str) -> ReadyPair:
        if pair in self.refuses:
            raise self.refuses[pair]
        return ReadyPair(inputs=self.inputs.get(pair, [{}]), manifest=MANIFEST | {"host": pair})

    def _sent(self, pair: str, asked: TrialInput) -> Sent:
        found = self.measure(pair, asked).model_copy(update={"pair": pair})
        return Sent(record=found, details={}, files={"sut/log": b"x"}, begun=None, notes=())


@dataclass
class Fleet:
    folder: Path
    settings: tuple[str, ...] = ()
    host_invariant: bool = False

    def run(self, client: Client, *, resume: bool = False) -> RunOutcome:
        file = self.folder / "shared.toml"
        file.write_text(EXPERIMENT)
        for name in client.pairs:
            (self.folder / f"{name}.toml").write_text(f'name = "{name}"\nkind = "netns"\n')
        fleet = self.folder / "fleet.toml"
        fleet.write_text(f'name = "f"\npairs = {[f"{name}.toml" for name in client.pairs]}\n')
        experiment, source = load_experiment(file, self.settings), load_fleet(fleet)
        plan = make_plan(experiment)
        jobs = {
            name: Job(run="r", pair=name, experiment=experiment, lab=lab)
            for name, lab in source.pairs.items()
        }
        members = Members(client, source.file, jobs)
        members.begin()
        with self._writer(resume) as writer:
            pairs = Pairs(members, plan, writer, Progress(), host_invariant=self.host_invariant)
            return keep_run(plan, self._left(pairs), writer, Gate(), Progress())

    @contextmanager
    def _left(self, pairs: Pairs) -> Iterator[Pairs]:
        try:
            yield pairs
        finally:
            pairs.leave()

    def _writer(self, resume: bool) -> RunWriter:
        if resume:
            (found,) = (self.folder / "out").iterdir()
            return RunWriter.resume(found, plan_sha256="")
        return RunWriter.create(
            self.folder / "out", "shared", experiment="", lab="", plan_sha256="", manifest={}
        )


def of_cells(outcome: RunOutcome) -> dict[int, Counter[str]]:
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for one in outcome.records:
        found[one.cell.get("load.pps", 0)][one.pair or ""] += 1
    return found


def test_cells_stay_and_fall_evenly(tmp_path: Path) -> None:
    client = Client(["a", "b"])
    outcome = Fleet(tmp_path).run(client)
    cells = of_cells(outcome)
    assert sorted(pair for pairs in cells.values() for pair in pairs) == ["a", "a", "b", "b"]
    assert all(sum(pairs.values()) == 3 for pairs in cells.values())
    assert [one.index for one in outcome.records] == [*range(1, 13)]
    assert client.left == ["a", "b"]
    manifest = open_run(outcome.directory).manifest
    assert (manifest["host"], manifest["nodrop"]["argv"]) == ("a", sys.argv)
    assert "order" not in manifest
    assert manifest["undo"] == {"changed": ["port of a", "port of b"], "left": []}
    assert (outcome.directory / "runs" / outcome.records[0].run / "sut" / "log").is_file()


def test_any_pair_measures_any_trial_if_hosts_make_no_difference(tmp_path: Path) -> None:
    outcome = Fleet(tmp_path, ("load.pps=100",), host_invariant=True).run(Client(["a", "b", "c"]))
    assert of_cells(outcome) == {0: Counter("abc")}


def test_a_drained_pairs_trials_are_done_again_and_keep_their_numbers(tmp_path: Path) -> None:
    def measure(pair: str, asked: TrialInput) -> TrialRecord:
        return record(asked, **VOID) if pair == "b" else record(asked)

    outcome = Fleet(tmp_path).run(Client(["a", "b"], measure))
    assert {one.pair for one in outcome.records} == {"a"} and outcome.exit_code == 0
    assert sorted(one.index for one in outcome.records) == [*range(1, 13)]
    facts = open_run(outcome.directory).manifest["fleet"]["pairs"]["b"]
    assert facts["failures"] == ["no port"] * 3
    assert facts["drained"] == "3 trials in a row failed there, the last: no port"


def test_now_and_then_a_failure_drains_no_pair(tmp_path: Path) -> None:
    def measure(_pair: str, asked: TrialInput) -> TrialRecord:
        return record(asked, **VOID) if asked.repetition == 2 else record(asked)

    outcome = Fleet(tmp_path).run(Client(["a", "b"], measure))
    pairs = open_run(outcome.directory).manifest["fleet"]["pairs"]
    assert [facts["drained"] for facts in pairs.values()] == [None, None]
    assert sum(one.outcome == "void" for one in outcome.records) == 4


def test_a_pair_that_cannot_begin_is_left_out(tmp_path: Path) -> None:
    refuses = {"b": NotReady("program ip is missing", hint="install the package iproute2")}
    outcome = Fleet(tmp_path).run(Client(["a", "b"], refuses=refuses))
    assert {one.pair for one in outcome.records} == {"a"}
    facts = open_run(outcome.directory).manifest["fleet"]["pairs"]["b"]
    assert facts["drained"] == "program ip is missing; install the package iproute2"


def test_a_pair_with_another_trace_is_left_out(tmp_path: Path) -> None:
    outcome = Fleet(tmp_path).run(Client(["a", "b"], inputs={"b": [{"trace": "other"}]}))
    facts = open_run(outcome.directory).manifest["fleet"]["pairs"]["b"]
    assert facts["drained"] == worker.OTHER_FILES
    assert {one.pair for one in outcome.records} == {"a"}


def test_a_pair_with_another_nodrop_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = nodrop.__version__
    monkeypatch.setitem(MANIFEST, "nodrop", {"version": "0.0.1"})
    words = f"not one pair .*: a: its nodrop is 0.0.1, and here is {re.escape(here)}"
    with pytest.raises(NotReady, match=words):
        Fleet(tmp_path).run(Client(["a"]))


def test_no_pair_can_begin(tmp_path: Path) -> None:
    refuses = {name: NotReady(f"{name} is not root") for name in "ab"}
    with pytest.raises(NotReady, match=r"not one pair .*: a: a is not root; b: b is not root"):
        Fleet(tmp_path).run(Client(["a", "b"], refuses=refuses))
    assert not (tmp_path / "out").exists()


def test_all_pairs_fail(tmp_path: Path) -> None:
    client = Client(["a", "b"], lambda _, asked: record(asked, **VOID))
    with pytest.raises(
        LabProblem, match=r"no pair of the fleet is left: a: 3 trials .*; mend them$"
    ):
        Fleet(tmp_path).run(client)
    resumed = Fleet(tmp_path).run(Client(["a", "b"]), resume=True)
    assert resumed.exit_code == 0 and len(resumed.records) == 12


def test_a_scheduler_that_goes_ends_the_run_and_resuming_goes_on_as_before(tmp_path: Path) -> None:
    client = Client(["a", "b"])

    def measure(_pair: str, asked: TrialInput) -> TrialRecord:
        client.status = "connecting" if asked.index == 6 else "running"
        return record(asked)

    client.measure = measure
    with pytest.raises(LabProblem, match=r"the scheduler of the fleet is gone; what was measured"):
        Fleet(tmp_path).run(client)
    (kept,) = (tmp_path / "out").iterdir()
    before = tuple(open_run(kept).trials.records)
    assert 5 <= len(before) < 12
    outcome = Fleet(tmp_path).run(Client(["a", "b"]), resume=True)
    assert outcome.records[: len(before)] == before
    assert [len(pairs) for pairs in of_cells(outcome).values()] == [1] * 4
    assert sorted(one.index for one in outcome.records) == [*range(1, 13)]


def test_a_pair_whose_lab_changed_is_not_resumed(tmp_path: Path) -> None:
    client = Client(["a", "b"], lambda _, asked: record(asked, **VOID))
    with pytest.raises(LabProblem):
        Fleet(tmp_path).run(client)
    (manifest,) = tmp_path.glob("out/*/manifest.json")
    manifest.write_text(manifest.read_text().replace('kind = \\"netns\\"', 'kind = \\"other\\"'))
    with pytest.raises(BadInput, match=r"a.toml: changed since this run was started"):
        Fleet(tmp_path).run(Client(["a", "b"]), resume=True)


def test_a_pair_whose_line_is_cut_now_and_then_goes_on(tmp_path: Path) -> None:
    cuts = iter([True, True])

    def measure(pair: str, asked: TrialInput) -> TrialRecord:
        if pair == "b" and next(cuts, False):
            raise LabProblem("receiver b: the ssh connection is gone")
        return record(asked)

    outcome = Fleet(tmp_path).run(Client(["a", "b"], measure))
    facts = open_run(outcome.directory).manifest["fleet"]["pairs"]["b"]
    assert facts["failures"] == ["receiver b: the ssh connection is gone"] * 2
    assert facts["drained"] is None and len(outcome.records) == 12
    assert {one.pair for one in outcome.records} == {"a", "b"}


def test_what_breaks_at_a_pair_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    def measure(pair: str, asked: TrialInput) -> TrialRecord:
        if pair == "b":
            raise KeyError("a defect")
        return record(asked)

    outcome = Fleet(tmp_path).run(Client(["a", "b"], measure))
    facts = open_run(outcome.directory).manifest["fleet"]["pairs"]["b"]
    assert facts["drained"] == "KeyError: 'a defect'" and len(outcome.records) == 12
