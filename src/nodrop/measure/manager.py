"""Keeps a run: its directory, journal and progress. It asks the controller, measures, appends.

A run is resumed by feeding its records back to the controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput, LabProblem, LoadFailed, NodropError, SystemRefused, TrialFailed
from nodrop.hosts.interrupts import Interrupted, interrupts
from nodrop.hosts.journal import DiskJournal
from nodrop.hosts.seam import Json, UndoJournal
from nodrop.labs.seam import Connected, Lab
from nodrop.ledger.reasons import Problem, Reason
from nodrop.ledger.verdict import judge
from nodrop.measure.controllers.seam import TrialInput
from nodrop.measure.manifest import manifest
from nodrop.measure.measurer import LabMeasurer, out_of_memory
from nodrop.measure.plan import Cell, Plan, make_plan
from nodrop.measure.preflight import Parts, preflight
from nodrop.measure.progress import Progress
from nodrop.measure.record import details, trial_record, write_details
from nodrop.measure.seam import Measured, Measurer, Standing, Trial
from nodrop.protocol.events import AfPacketProof
from nodrop.protocol.events import Host as HostFacts
from nodrop.results.live import Live
from nodrop.results.rundir import find_run, open_run
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter, plan_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    directory: Path
    records: tuple[TrialRecord, ...]

    @property
    def exit_code(self) -> int:
        """A ramp says where to look and no more: it need not be measured."""
        ramps = [r for r in self.records if r.searched and r.searched.ramp]
        return 0 if all(record.valid for record in self.records if record not in ramps) else 1


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
    plan = plan or make_plan(experiment, sender_elsewhere=plugins.sender_elsewhere(lab))
    if plan.implausible and not yes:
        raise BadInput("; ".join(plan.implausible), hint="add --yes if you mean it")
    parts = preflight(experiment, lab, plan)
    fingerprint = plan_sha256(_plain(experiment, lab, plan, parts))
    with interrupts() as gate, _writer(experiment, lab, out, fingerprint, resume) as writer:
        # A failure of the SUT is a result: to repeat it until it passes would hide it.
        heeds_void = plan.controller.heeds_void
        done = [r for r in writer.records() if heeds_void or r.outcome != "void"]
        progress.plan_started(plan, directory=writer.path, earlier=tuple(done))
        for note in plan.notes():
            progress.note(note)
        try:
            with _journal(writer) as journal, _connected(parts.lab, journal):
                if "self_test" not in writer.manifest:
                    progress.note("self-test: what does this kernel count?")
                    host, test = _look(parts, journal)
                    writer.update_manifest(
                        manifest(experiment, lab, plan, parts, host=host, self_test=test)
                    )
                measurer = LabMeasurer(parts, experiment.measure, journal)
                with _Worlds(measurer, progress.note) as worlds:
                    run = _Run(plan, parts, worlds, writer, progress)
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


def _connected(lab: Lab, journal: UndoJournal) -> AbstractContextManager[None]:
    return lab.connected(journal) if isinstance(lab, Connected) else nullcontext()


@contextmanager
def _journal(writer: RunWriter) -> Iterator[DiskJournal]:
    """The undo journal of this sitting; the manifest says for all sittings what became of it."""
    journal = DiskJournal.create()
    try:
        with journal:
            yield journal
    finally:
        before = writer.manifest.get("undo") or {"changed": []}
        changed = dict.fromkeys([*before["changed"], *journal.changed])
        writer.update_manifest({"undo": {"changed": [*changed], "left": [*journal.left]}})


class _Worlds:
    """At most one world stands. It is left if the next trial wants a new one, when it is worn, and
    when a trial fails."""

    def __init__(self, measurer: Measurer, note: Callable[[str], None]) -> None:
        self._measurer, self._note, self._stack = measurer, note, ExitStack()
        self._said: set[str] = set()
        self._cell: Cell | None = None
        self._standing: Standing | None = None

    @contextmanager
    def standing(self, cell: Cell, trial: Trial, *, new: bool) -> Iterator[Standing]:
        self._leave_for(cell, new=new)
        try:
            if self._standing is None:
                standing = self._stack.enter_context(self._measurer.stand(cell, trial))
                self._standing, self._cell = standing, cell
            yield self._standing
        except Exception:
            self._leave()
            raise
        if worn := self._standing.worn:
            if not new:
                self._say_worn(worn)
            self._leave()

    def _leave_for(self, cell: Cell, *, new: bool) -> None:
        """Its trials are in the books already: what goes wrong now is no part of any."""
        if self._standing is None:
            return
        worn = self._standing.worn
        if worn:
            self._say_worn(worn)
        if new or worn or self._cell != cell:
            self._leave_quietly()

    def _say_worn(self, worn: str) -> None:
        if worn not in self._said:
            self._said.add(worn)
            self._note(f"the SUT does not stand for another trial: {worn}")

    def _leave_quietly(self) -> None:
        try:
            self._leave()
        except (TrialFailed, LabProblem, OSError) as failed:
            self._note(f"after the last trial of a standing SUT: {failed}")

    def _leave(self) -> None:
        self._standing = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is None:
            self._leave_quietly()
        else:
            self._stack.__exit__(kind, *error)


@dataclass(frozen=True, slots=True)
class _Run:
    """What every trial of a run needs."""

    plan: Plan
    parts: Parts
    worlds: _Worlds
    writer: RunWriter
    progress: Progress

    def measure(self, asked: TrialInput, done: Sequence[TrialRecord]) -> TrialRecord:
        self.progress.trial_started(asked)
        started_utc, began = datetime.now(UTC), time.monotonic()
        trial = self._trial(asked, done)
        error = self._attempt(asked, trial)
        record = trial_record(
            asked,
            trial.seen,
            started_utc=started_utc.isoformat(timespec="milliseconds"),
            took_s=round(time.monotonic() - began, 3),
            error=None if error is None else str(error),
            cpus_parted=self.plan.cell(asked.cell).limits.cpus_left,
        )
        write_details(trial.folder, trial.seen)
        self.writer.finish(record, details(trial.seen))
        self.progress.trial_ended(asked, record)
        return record

    def _trial(self, asked: TrialInput, done: Sequence[TrialRecord]) -> Trial:
        folder, cell = self.writer.trial(asked.run_name), self.plan.cell(asked.cell)

        def watch(phase: str) -> None:
            folder.append_live({"mono_ns": time.monotonic_ns(), "phase": phase})
            self.progress.phase(phase)

        def tell(reading: Live) -> None:
            folder.append_live(asdict(reading))
            self.progress.live(reading)

        earlier = (self.plan.cell(record.cell).setup for record in done)
        return Trial(
            index=asked.index,
            folder=folder,
            watch=watch,
            tell=tell,
            asks_tsc=cell.setup not in earlier,
        )

    def _attempt(self, asked: TrialInput, trial: Trial) -> NodropError | None:
        """Why it failed; what it saw until then is in the trial."""
        seen, cell = trial.seen, self.plan.cell(asked.cell)
        try:
            if other := self.parts.other_trace(asked.load):
                seen.problems.append(other)
            with self.worlds.standing(cell, trial, new=asked.new_world) as standing:
                standing.measure(asked.load, trial)
        except BrokenPipeError:
            raise
        except BadInput as changed:
            # All input was good before the first trial: the trace, or a file beside it, is another.
            problem = Problem(code=Reason.OTHER_FILES, words=str(changed))
            seen.verdict = judge(None, None, problems=[*seen.problems, problem])
            return changed
        except (TrialFailed, LabProblem, OSError) as failed:
            reached = trial.reached or "begin"
            error = SystemRefused(failed, during=reached) if isinstance(failed, OSError) else failed
            seen.verdict = judge(None, None, problems=[*seen.problems, _failure(error, seen)])
            return error
        return None


def _failure(error: NodropError, seen: Measured) -> Problem:
    if isinstance(error, LabProblem):
        return Problem(code=Reason.LAB_PROBLEM, words=str(error))
    if isinstance(error, LoadFailed):
        return Problem(code=Reason.LOAD_FAILED, words=str(error))
    code: str = Reason.SUT_NOT_READY if seen.world.first_trial is None else Reason.SUT_DIED
    if isinstance(error, TrialFailed) and error.reason:
        code = error.reason  # a plugin may have one of its own
    killed = out_of_memory(seen)
    return Problem(code=code, words=f"{killed}; {error}" if killed else str(error))


def _look(parts: Parts, journal: UndoJournal) -> tuple[HostFacts, AfPacketProof]:
    """Once per run, in the lab itself: the host, and what its AF_PACKET counters mean."""
    with parts.lab.up(journal) as link:
        said = link.rx.host.probe("host", "af_packet", timeout_s=60)
    test = said["af_packet"]
    if not test["ring"]["tp_packets_includes_drops"]:
        raise LabProblem(
            f"self-test: tp_packets does not include tp_drops on this kernel: {test}",
            hint="the packet books of nodrop rest on it; please report this kernel",
        )
    return said["host"], test


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
    search = {} if experiment.search is None else {"search": experiment.search.model_dump()}
    return {
        **search,
        "experiment": experiment.name,
        "lab": dict(lab.table),
        "measure": experiment.measure.model_dump(),
        "cells": [{**asdict(cell), "inputs": parts.inputs(cell)} for cell in plan.cells],
    }
