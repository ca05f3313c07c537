"""Keeps a run: its directory, journal and progress. It asks the controller, measures, appends.

A run is resumed by feeding its records back to the controller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from nodrop.config.experiment import Experiment, Measure
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput, LabProblem, LoadFailed, NodropError, SystemRefused, TrialFailed
from nodrop.hosts.interrupts import Interrupted, interrupts
from nodrop.hosts.journal import DiskJournal
from nodrop.hosts.seam import Json, UndoJournal
from nodrop.ledger.reasons import Problem, Reason
from nodrop.ledger.sender import Bounds
from nodrop.ledger.verdict import judge
from nodrop.load.seam import LoadGenerator
from nodrop.measure.controllers.seam import TrialInput
from nodrop.measure.manifest import manifest
from nodrop.measure.plan import Plan, make_plan
from nodrop.measure.preflight import Parts, preflight
from nodrop.measure.progress import Live, Progress
from nodrop.measure.record import details, trial_record, write_details
from nodrop.measure.trial import Ingredients, Measured, out_of_memory, run_trial
from nodrop.results.rundir import RunWriter, find_run, open_run, plan_sha256
from nodrop.results.trial import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    directory: Path
    records: tuple[TrialRecord, ...]

    @property
    def exit_code(self) -> int:
        return 0 if all(record.valid for record in self.records) else 1


def run_experiment(
    experiment: Experiment, lab: LabSource, *, out: Path, resume: bool, progress: Progress
) -> RunOutcome:
    """Measures what the run lacks. BadInput and LabProblem come before anything is touched."""
    plan = make_plan(experiment)
    parts = preflight(experiment, lab, plan)
    fingerprint = plan_sha256(_plain(experiment, lab, plan, parts))
    with interrupts() as gate, _writer(experiment, lab, out, fingerprint, resume) as writer:
        # A failure of the SUT is a result: to repeat it until it passes would hide it.
        done = [record for record in writer.records() if record.outcome != "void"]
        progress.plan_started(plan, directory=writer.path, earlier=tuple(done))
        for note in plan.notes():
            progress.note(note)
        try:
            with _journal(writer) as journal:
                if "self_test" not in writer.manifest:
                    progress.note("self-test: what does this kernel count?")
                    found = _look(parts, journal)
                    writer.update_manifest(manifest(experiment, lab, plan, parts, **found))
                run = _Run(plan, parts, experiment.measure, writer, journal, progress)
                while (trial := plan.controller.next(done)) is not None:
                    gate.check()
                    done.append(run.measure(trial, done))
        except Interrupted as ended:
            ended.hint = f"go on with --resume --out {writer.path}"
            raise
        except BrokenPipeError:
            raise  # whoever read our output has gone
        except OSError as lost:
            refused = SystemRefused(lost, during="keeping the results")
            refused.hint = f"{refused.hint}, then go on with --resume --out {writer.path}"
            raise refused from lost
        finally:
            progress.finished(writer.path, writer.records())
        writer.update_manifest({"finished_utc": datetime.now(UTC).isoformat(timespec="seconds")})
        return RunOutcome(directory=writer.path, records=writer.records())


@contextmanager
def _journal(writer: RunWriter) -> Iterator[DiskJournal]:
    """The undo journal of this sitting; the manifest tells of all sittings what became of it."""
    journal = DiskJournal.create()
    try:
        with journal:
            yield journal
    finally:
        before = writer.manifest.get("undo") or {"changed": []}
        changed = dict.fromkeys([*before["changed"], *journal.changed])
        writer.update_manifest({"undo": {"changed": [*changed], "left": [*journal.left]}})


@dataclass(frozen=True, slots=True)
class _Run:
    """What every trial of a run needs."""

    plan: Plan
    parts: Parts
    settings: Measure
    writer: RunWriter
    journal: UndoJournal
    progress: Progress

    def measure(self, trial: TrialInput, done: Sequence[TrialRecord]) -> TrialRecord:
        self.progress.trial_started(trial)
        folder = self.writer.trial(trial.run_name)
        started_utc = datetime.now(UTC).isoformat(timespec="milliseconds")
        began, seen, reached = time.monotonic(), Measured(), "begin"

        def begin(phase: str) -> None:
            nonlocal reached
            reached = phase or reached
            folder.append_live({"mono_ns": time.monotonic_ns(), "phase": phase})
            self.progress.phase(phase)

        def tell(reading: Live) -> None:
            folder.append_live(asdict(reading))
            self.progress.live(reading)

        error: NodropError | None = None
        try:
            if other := self.parts.other_trace(trial.load):
                seen.problems.append(other)
            run_trial(
                self._ingredients(trial, done),
                folder=folder,
                journal=self.journal,
                watch=lambda name, _: begin(name),
                tell=tell,
                seen=seen,
            )
        except BrokenPipeError:
            raise
        except (TrialFailed, LabProblem, OSError) as failed:
            error = SystemRefused(failed, during=reached) if isinstance(failed, OSError) else failed
            seen.verdict = judge(None, None, problems=[*seen.problems, _failure(error, seen)])
        record = trial_record(
            trial,
            seen,
            started_utc=started_utc,
            took_s=round(time.monotonic() - began, 3),
            error=None if error is None else str(error),
            cpus_parted=self.plan.cell(trial.cell).limits.cpus_left,
        )
        write_details(folder, seen)
        self.writer.finish(record, details(seen))
        self.progress.trial_ended(trial, record)
        return record

    def _ingredients(self, trial: TrialInput, done: Sequence[TrialRecord]) -> Ingredients:
        cell, measure = self.plan.cell(trial.cell), self.settings
        load, parts = self.parts.load(trial.load), self.parts
        facts = load.trace_facts()
        seen = {repr(self.plan.cell(record.cell).setup) for record in done}
        return Ingredients(
            lab=parts.lab,
            setup=parts.setup(cell),
            sut=parts.sut(cell),
            load=load,
            bits=parts.bits(cell),
            limits=cell.limits,
            instances=cell.instances,
            asks_tsc=repr(cell.setup) not in seen,
            splitter=cell.splitter,
            files_sha256=parts.files_sha256(cell),
            fragments=facts.fragments,
            never_at_tap_packets=facts.never_at_tap_packets,
            longest_frame_bytes=facts.longest_frame_bytes,
            warmup_s=measure.warmup_s,
            ready_timeout_s=measure.ready_timeout_s,
            drain_timeout_s=measure.drain_timeout_s,
            sample_interval_ms=measure.sample_interval_ms,
            bounds=_bounds(measure, load),
        )


def _bounds(measure: Measure, load: LoadGenerator) -> Bounds:
    return Bounds(
        schedule_error_p99_us=measure.late_p99_us,
        late_burst_ratio=measure.late_burst_max_ratio,
        steal_ratio=measure.steal_max_ratio,
        late_ratio=load.late_ratio,
        unsent_ratio=measure.unsent_max_ratio,
    )


def _failure(error: NodropError, seen: Measured) -> Problem:
    if isinstance(error, LabProblem):
        return Problem(code=Reason.LAB_PROBLEM, words=str(error))
    if isinstance(error, LoadFailed):
        return Problem(code=Reason.LOAD_FAILED, words=str(error))
    code: str = Reason.SUT_NOT_READY if seen.readiness is None else Reason.SUT_DIED
    if isinstance(error, TrialFailed) and error.reason:
        code = error.reason  # a plugin may have one of its own
    killed = out_of_memory(seen)
    return Problem(code=code, words=f"{killed}; {error}" if killed else str(error))


def _look(parts: Parts, journal: UndoJournal) -> dict[str, Json]:
    """Once per run, in the lab itself: the host, and what its AF_PACKET counters mean."""
    with parts.lab.up(journal) as link:
        said = link.rx.host.probe("host", "af_packet", timeout_s=60)
    test: Json = said["af_packet"]
    if not test["ring"]["tp_packets_includes_drops"]:
        raise LabProblem(
            f"self-test: tp_packets does not include tp_drops on this kernel: {test}",
            hint="the packet books of nodrop rest on it; please report this kernel",
        )
    return {"host": said["host"], "self_test": test}


@contextmanager
def _writer(
    experiment: Experiment, lab: LabSource, out: Path, fingerprint: str, resume: bool
) -> Iterator[RunWriter]:
    if resume:
        found = find_run(out, experiment.name)
        _must_have_a_controller(found)
        writer = RunWriter.resume(found, plan_sha256=fingerprint)
    else:
        writer = RunWriter.create(
            out,
            experiment.name,
            experiment=experiment.text,
            lab=lab.text,
            plan_sha256=fingerprint,
            manifest={"controller": experiment.measure.mode},
        )
    with writer:
        yield writer


def _must_have_a_controller(found: Path) -> None:
    if "controller" not in open_run(found).manifest:
        raise BadInput(
            f"{found}: begun by an older nodrop, whose plan was a list of trials",
            hint="it can be read and reported, but not gone on with: start a new run",
        )


def _plain(experiment: Experiment, lab: LabSource, plan: Plan, parts: Parts) -> Json:
    """Everything a trial depends on and a resumed run must have in common with its beginning."""
    return {
        "experiment": experiment.name,
        "lab": lab.file.model_dump(),
        "measure": experiment.measure.model_dump(),
        "cells": [{**asdict(cell), "inputs": parts.inputs(cell)} for cell in plan.cells],
    }
