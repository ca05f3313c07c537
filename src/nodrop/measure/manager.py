"""Keeps a run: its directory and progress. It asks the controller, lets measure, appends.

A run is resumed by feeding its records back to the controller. Who measures (`Crew`) is this
process, or the pairs of a fleet. The manifest has versions, hashes and facts that figures need.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import nodrop
from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.config.units import format_seconds
from nodrop.errors import BadInput, Gate, Interrupted, NodropError, SystemRefused, interrupts
from nodrop.exit_codes import ANSWERED, FAULTS_SEEN
from nodrop.installation import revision
from nodrop.measure.baselines import machine_sha256, stands_on
from nodrop.measure.busy import beside_words, budget_words, quota_words
from nodrop.measure.controllers.blocks import Controller, TrialInput
from nodrop.measure.pair import Pair, at_work
from nodrop.measure.plan import Plan, Progress, make_plan
from nodrop.measure.preflight import Parts, preflight
from nodrop.protocol import AfPacketProof
from nodrop.protocol import Host as HostFacts
from nodrop.results.layout import RawFiles
from nodrop.results.rundir import find_run, read_manifest
from nodrop.results.summary import OF_A_HOST, begun_sitting
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import Question, RunWriter, nodrop_words, plan_sha256
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.journal import DiskJournal, must_be_kept
from nodrop.testbed.hosts.node import file_sha256, find_node_binary
from nodrop.testbed.hosts.processes import this_host
from nodrop.testbed.labs.api import Storage

LONG_START = 0.15
"""Part of the budget from which one start of the SUT is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTrial:
    """A trial that was measured; its files are in the run directory."""

    asked: TrialInput
    record: TrialRecord
    details: Json
    """Content of trial.json."""


class Crew(Protocol):
    def begin(self, controller: Controller, done: Sequence[TrialRecord]) -> bool:
        """Begins what can begin now; False when nothing is under way and nothing is to be added."""
        ...

    def ended(self) -> Sequence[MeasuredTrial]:
        """Waits for the next. Nothing, if there is another reason to look again."""
        ...


class Here:
    """A `Crew` of one pair, which this process measures."""

    def __init__(
        self, pair: Pair, writer: RunWriter, progress: Progress, *, host: str | None
    ) -> None:
        self._pair, self._writer, self._progress = pair, writer, progress
        self._host = host
        """Name of the host, if the run began on another."""
        self._next: tuple[TrialInput, bool] | None = None

    def begin(self, controller: Controller, done: Sequence[TrialRecord]) -> bool:
        asked = controller.next(done)
        if asked is None:
            return False
        self._progress.trial_started(asked)
        self._next = asked, self._pair.plan.asks_tsc(asked, done)
        return True

    def ended(self) -> Sequence[MeasuredTrial]:
        assert self._next is not None
        asked, asks_tsc = self._next
        record, details = self._pair.measure(
            asked,
            self._writer.trial(asked.run_name),
            asks_tsc=asks_tsc,
            phase=self._progress.phase,
            live=self._progress.live,
        )
        record = record.model_copy(update={"host": self._host})
        return [MeasuredTrial(asked=asked, record=record, details=details)]


def manifest(
    experiment: Experiment,
    lab: LabSource,
    plan: Plan,
    parts: Parts,
    *,
    self_test: AfPacketProof,
    host: HostFacts,
) -> Json:
    node = find_node_binary()
    return {
        "nodrop": this_nodrop(),
        "node": {"path": str(node), "sha256": file_sha256(node)},
        "question": experiment.question,
        "metric": experiment.metric,
        "settings": [setting.text for setting in experiment.settings],
        "seed": plan.seed,
        "repetitions": plan.repetitions,
        "cells": [dict(cell.factors) for cell in plan.cells],
        "inputs": [parts.inputs(cell) for cell in plan.cells],
        "parting": None if plan.parting is None else asdict(plan.parting),
        "order": [trial.run_name for trial in plan.controller.beforehand()],
        "measure": experiment.measure.model_dump(),
        "search": None if experiment.search is None else experiment.search.model_dump(),
        "forecast": None if plan.forecast is None else plan.forecast.model_dump(),
        "host": host,
        "self_test": self_test,
        "calibration": stands_on(lab, (cell.setup["kind"] for cell in plan.cells), host),
        **parts.facts(),
    }


def this_nodrop() -> Json:
    return {
        "version": nodrop.__version__,
        "revision": revision(),
        "python": platform.python_version(),
        "argv": sys.argv,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    directory: Path
    records: tuple[TrialRecord, ...]

    @property
    def exit_code(self) -> int:
        """A ramp says where to look and no more: it need not be measured."""
        ramps = [r for r in self.records if r.searched and r.searched.ramp]
        valid = all(record.valid for record in self.records if record not in ramps)
        return ANSWERED if valid else FAULTS_SEEN


def run_experiment(
    experiment: Experiment,
    lab: LabSource,
    *,
    out: Path,
    resume: bool,
    progress: Progress,
    yes: bool = False,
    plan: Plan | None = None,
) -> RunOutcome:
    """Measures what the run lacks. BadInput and LabProblem come before anything is touched.

    `yes`: the user means it, however implausible the plan. `plan`: of this experiment, if it was
    made already.
    """
    plan = plan or make_plan(experiment)
    must_be_meant(plan, yes=yes)
    parts = preflight(experiment, lab, plan)
    plan = parts.plan
    must_be_kept()
    inputs = [parts.inputs(cell) for cell in plan.cells]
    # Where raw files lie is no part of what is measured.
    table = {key: value for key, value in lab.table.items() if key != "storage"}
    plain = run_plain(experiment, plan, lab=table, inputs=inputs)
    with (
        interrupts() as gate,
        storage_of(lab) as storage,
        run_writer(experiment, lab.text, out, plan_sha256(plain), resume=resume) as writer,
    ):
        keep_raw_files(writer, storage)
        crew = _here(experiment, lab, plan, parts, writer, progress)
        notes = [*parts.notes(), *quota_words(), *beside_words()]
        return keep_run(plan, crew, writer, gate, progress, notes)


@contextmanager
def storage_of(lab: LabSource) -> Iterator[Storage | None]:
    """Storage for a run, if its lab has one. NotReady, before anything is touched, if it is not
    reached."""
    storage = plugins.build_lab(lab).storage()
    with storage or nullcontext():
        yield storage


def keep_raw_files(writer: RunWriter, storage: Storage | None) -> None:
    if storage is not None:
        raw = RawFiles(writer.path, storage)
        writer.followed_by(raw)
        writer.update_manifest({"storage": raw.facts()})


def must_be_meant(plan: Plan, *, yes: bool) -> None:
    if plan.implausible and not yes:
        raise BadInput("; ".join(plan.implausible), hint="add --yes if you mean it")


def keep_run(
    plan: Plan,
    crew: AbstractContextManager[Crew],
    writer: RunWriter,
    gate: Gate,
    progress: Progress,
    notes: Sequence[str] = (),
) -> RunOutcome:
    """Measures until the controller has nothing to add. Whoever measures, this process alone
    writes."""
    done = to_go_on_with(writer, plan.controller.heeds_void)
    progress.plan_started(plan, directory=writer.path, earlier=tuple(done))
    noted = [*notes, *plan.notes(), *writer.notes()]
    if noted:
        writer.update_manifest({"notes": noted})
    for note in noted:
        progress.note(note)
    began_with, warned = len(done), False
    try:
        with keeping_in(writer.path), crew as at_work:
            while at_work.begin(plan.controller, done):
                gate.check()
                for one in at_work.ended():
                    writer.finish(one.record, one.details)
                    done.append(one.record)
                    progress.trial_ended(one.asked, one.record)
                    first = len(done) == began_with + 1
                    if first and (words := start_words(one.record, plan.budget_s)):
                        progress.note(words)
                    for note in writer.notes():
                        progress.note(note)
                if not warned and (words := budget_words(done[began_with:], plan.budget_s)):
                    progress.note(words)
                    warned = True
    finally:
        progress.finished(writer.path, writer.records())
    writer.update_manifest({"finished_utc": datetime.now(UTC).isoformat(timespec="seconds")})
    return RunOutcome(directory=writer.path, records=writer.records())


def start_words(record: TrialRecord, budget_s: float | None) -> str:
    """Warning of a budget of which one start of the SUT takes much; empty otherwise."""
    start_s = record.activation_s or 0.0
    if budget_s is None or start_s < LONG_START * budget_s:
        return ""
    return (
        f"one start of the SUT took {format_seconds(start_s)} of the budget of "
        f"{format_seconds(budget_s)}: few trials are left, and a longer budget has more"
    )


@contextmanager
def keeping_in(folder: Path) -> Iterator[None]:
    """Raises SystemRefused, with the place of the results, for what this host refuses meanwhile."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has gone
    except OSError as lost:
        raise SystemRefused(
            lost, during="keeping the results", host=this_host(), files=str(folder)
        ) from lost


def to_go_on_with(writer: RunWriter, heeds_void: bool) -> list[TrialRecord]:
    """Records that the controller is asked with. A failure of the SUT is a result: to repeat it
    until it passes would hide it. A search learns from void trials, but not from those of a lab
    that has been mended: the lab was looked at before this."""
    return [
        record
        for record in writer.records()
        if record.outcome != "void" or (heeds_void and not record.failed_with_lab)
    ]


@contextmanager
def _here(
    experiment: Experiment,
    lab: LabSource,
    plan: Plan,
    parts: Parts,
    writer: RunWriter,
    progress: Progress,
) -> Iterator[Crew]:
    with (
        _journal(writer) as journal,
        at_work(parts, plan, experiment.measure, journal, progress.note) as pair,
    ):
        progress.note("self-test: what does this kernel count?")
        host, test = pair.look()
        found = manifest(experiment, lab, plan, parts, host=host, self_test=test)
        yield Here(pair, writer, progress, host=_sit_down(writer, found, progress))


def _sit_down(writer: RunWriter, found: Json, progress: Progress) -> str | None:
    """Adds this sitting to the manifest, which else says what the first one ran on. The name of its
    host, if it is another than the first one's."""
    earlier = "self_test" in writer.manifest
    now = {
        "began_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine_sha256": machine_sha256(found["host"]),
        **{key: found[key] for key in OF_A_HOST if key in found},
    }
    sittings = begun_sitting(writer.manifest, now)
    first, this = sittings[0], sittings[-1]
    writer.update_manifest({**({} if earlier else found), "sittings": sittings})
    if this["name"] == first["name"]:
        return None
    progress.note(
        f"this sitting measures on {this['name']}, the first one on {first['name']}: in all "
        "figures these are two hosts"
    )
    return str(this["name"])


@contextmanager
def _journal(writer: RunWriter) -> Iterator[DiskJournal]:
    """The undo journal of this sitting; the manifest says for all sittings what became of it."""
    journal = DiskJournal.create(results=writer.path)
    try:
        with journal:
            yield journal
    finally:
        before = writer.manifest.get("undo") or {"changed": []}
        changed = dict.fromkeys([*before["changed"], *journal.changed])
        writer.update_manifest({"undo": {"changed": [*changed], "left": [*journal.left]}})


@contextmanager
def run_writer(
    experiment: Experiment,
    lab: str,
    out: Path,
    fingerprint: str,
    *,
    resume: bool,
    fleet: str | None = None,
) -> Iterator[RunWriter]:
    """`lab`: the text of its file. `fleet`: its name."""
    if resume:
        path = find_run(out, experiment.name)
        _must_have_a_controller(path)
        asked = replace(question(experiment), fleet=fleet)
        writer = RunWriter.resume(path, plan_sha256=fingerprint, asked=asked)
    else:
        writer = RunWriter.create(
            out,
            experiment.name,
            experiment=experiment.text,
            lab=lab,
            plan_sha256=fingerprint,
            manifest={"controller": experiment.measure.mode},
        )
    with writer:
        try:
            yield writer
        except (NodropError, Interrupted) as ended:
            ended.ended_run = str(writer.path)
            raise


def question(experiment: Experiment) -> Question:
    given = [setting.text for setting in experiment.settings]
    return Question(experiment.text, given, nodrop=nodrop_words(this_nodrop()))


def _must_have_a_controller(path: Path) -> None:
    if "controller" not in read_manifest(path):
        raise BadInput(
            f"{path}: its manifest names no controller",
            hint="it can be read and reported, but not gone on with: start a new run",
        )


def run_plain(experiment: Experiment, plan: Plan, *, lab: Json, inputs: Sequence[Json]) -> Json:
    """Everything a trial depends on and a resumed run must have in common with its beginning.

    `inputs`: of each cell, by content."""
    search = {} if experiment.search is None else {"search": experiment.search.model_dump()}
    cells = zip(plan.cells, inputs, strict=True)
    return {
        **search,
        "experiment": experiment.name,
        "lab": lab,
        "measure": experiment.measure.model_dump(),
        "cells": [{**asdict(cell), "inputs": given} for cell, given in cells],
    }
