"""Work of a worker of dask: the trials of one pair. It undoes by itself if no more trials come.

A worker is asked in its one thread of tasks (`begin`, `measure`, `leave`), and to stop from beside.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import LabProblem, NotReady
from nodrop.hosts.folders import scratch, sweep
from nodrop.hosts.journal import DiskJournal, undo_abandoned
from nodrop.hosts.seam import Json
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.manager import manifest
from nodrop.measure.pair import Pair, at_work
from nodrop.measure.plan import make_plan
from nodrop.measure.preflight import preflight
from nodrop.results.layout import TrialFolder
from nodrop.results.trial import TrialRecord

OTHER_FILES = "its trace, files or image are others than those of the other pairs"
IDLE_S = 60.0
"""So long after its last trial a pair leaves what stands and undoes: whoever asked may be gone."""


class Stopped(BaseException):
    """The run ends before its trial did; not an Exception: no broad `except` may eat it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A pair of a run."""

    run: str
    pair: str
    experiment: Experiment
    lab: LabSource
    own_process_group: bool = False
    """The run itself started the worker: Ctrl-C is then for the run alone."""
    inputs: Sequence[Json] | None = None
    """Inputs of each cell, by content, as the pairs before this one had them."""
    sits: Sits | None = None
    """Where its receiver is; None: on the worker's host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A pair that is ready."""

    inputs: Sequence[Json]
    manifest: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A trial that was measured, with all its files."""

    record: TrialRecord
    details: Json
    files: Mapping[str, bytes]
    begun: Begun | None
    """If the pair began with it."""
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Changes that a run made on the pair's hosts, and those of them that could not be put back."""

    changed: Sequence[str] = ()
    left: Sequence[str] = ()


class Sitting(Protocol):
    """A pair at work, trial after trial."""

    begun: Begun
    notes: list[str]

    def measure(
        self, asked: TrialInput, *, asks_tsc: bool
    ) -> tuple[TrialRecord, Json, Mapping[str, bytes]]:
        """Its record, the details for trial.json, and its files by their paths."""
        ...

    def left(self) -> Left:
        """Once it is over."""
        ...


Sits = Callable[[Job], AbstractContextManager[Sitting]]


@dataclass(slots=True, kw_only=True)
class _AtWork:
    sitting: Sitting
    stack: ExitStack
    idle: threading.Timer | None = None


@dataclass(slots=True)
class _Worker:
    """State of this worker process."""

    at_work: dict[tuple[str, str], _AtWork] = field(default_factory=dict)
    left: dict[tuple[str, str], Left] = field(default_factory=dict)
    held: threading.RLock = field(default_factory=threading.RLock)
    """While a pair begins, measures or leaves."""
    looked_at: threading.Lock = field(default_factory=threading.Lock)
    measures: int | None = None
    """The thread that a trial runs in."""
    stopped: str = ""
    """The run that has ended."""
    ends: bool = False
    """The process does."""


_WORKER = _Worker()


def begin(job: Job) -> Begun:
    """LabProblem or BadInput if this pair cannot measure what is asked."""
    with _WORKER.held:
        found = _begun(job)[0].sitting.begun
        _leave_if_idle(job)
        return found


def measure(job: Job, asked: TrialInput, *, asks_tsc: bool) -> Sent | None:
    """None if it was stopped; then nothing is left of it."""
    with _WORKER.held:
        try:
            return _measured(job, asked, asks_tsc=asks_tsc)
        except Stopped:
            _leave((job.run, job.pair))
            return None


def leave(job: Job) -> Left:
    """Ends the pair; returns what became of all that was changed for this run, also if the pair
    left earlier."""
    with _WORKER.held:
        _leave((job.run, job.pair))
        return _WORKER.left.pop((job.run, job.pair), Left())


def undo_dead() -> Sequence[str]:
    """A worker that was killed here cannot put back what it changed, and its user is elsewhere."""
    with _WORKER.held:
        found = undo_abandoned()
        sweep()
    return [f"undone after a dead run: {words}" for one in found for words in one.failed]


def will_end() -> None:
    """Discards the trial under way: its processes were told to end as well."""
    _WORKER.ends = True


def leave_all() -> None:
    """The worker ends: the trial under way does, and all that was changed is put back."""
    will_end()
    for run in {run for run, _ in _WORKER.at_work}:
        stop(run)
    with _WORKER.held:
        for key in [*_WORKER.at_work]:
            _leave(key)


def stop(run: str) -> None:
    """Ends the trial under way, from another thread; it undoes as it unwinds. One that is still on
    its way to this worker does not begin."""
    with _WORKER.looked_at:
        _WORKER.stopped = run
        if _WORKER.measures is not None:
            thread = ctypes.c_ulong(_WORKER.measures)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Stopped))


def _measured(job: Job, asked: TrialInput, *, asks_tsc: bool) -> Sent:
    with _WORKER.looked_at:
        if _WORKER.stopped == job.run:
            raise Stopped
        _WORKER.measures = threading.get_ident()
    try:
        at, new = _begun(job)
        sitting = at.sitting
        record, details, files = sitting.measure(asked, asks_tsc=asks_tsc or new)
        if _WORKER.ends:
            raise Stopped
        notes = [*sitting.notes]
        sitting.notes.clear()
        return Sent(
            record=record.model_copy(update={"pair": job.pair}),
            details=details,
            files=files,
            begun=sitting.begun if new else None,
            notes=notes,
        )
    except LabProblem:
        _leave((job.run, job.pair))  # what stands there does so no more
        raise
    finally:
        with _WORKER.looked_at:
            _WORKER.measures = None
        _leave_if_idle(job)


@dataclass(slots=True)
class Here:
    """A `Sitting` on the worker's host."""

    begun: Begun
    notes: list[str]
    pair: Pair
    journal: DiskJournal

    def measure(
        self, asked: TrialInput, *, asks_tsc: bool
    ) -> tuple[TrialRecord, Json, Mapping[str, bytes]]:
        with scratch() as made:
            made.chmod(0o755)  # the SUT has another user
            folder = TrialFolder.within(made, asked.run_name)
            record, details = self.pair.measure(asked, folder, asks_tsc=asks_tsc)
            return record, details, folder.packed()

    def left(self) -> Left:
        return Left(changed=[*self.journal.changed], left=[*self.journal.left])


@contextmanager
def here(job: Job) -> Iterator[Here]:
    plan = make_plan(job.experiment)
    parts = preflight(job.experiment, job.lab, plan)
    plan = parts.plan
    inputs = [parts.inputs(cell) for cell in plan.cells]
    must_be_as_others(job, inputs)
    notes: list[str] = []
    with (
        DiskJournal.create() as journal,
        at_work(parts, plan, job.experiment.measure, journal, notes.append) as pair,
    ):
        host, test = pair.look()
        found = manifest(job.experiment, job.lab, plan, parts, host=host, self_test=test)
        yield Here(Begun(inputs=inputs, manifest=found), notes, pair, journal)


def must_be_as_others(job: Job, inputs: Sequence[Json]) -> None:
    if job.inputs is not None and list(inputs) != list(job.inputs):
        raise NotReady(OTHER_FILES, hint="give all pairs the same files")


def _begun(job: Job) -> tuple[_AtWork, bool]:
    """And whether it is new."""
    key = job.run, job.pair
    at = _WORKER.at_work.get(key)
    if at is not None:
        return at, False
    if job.own_process_group:
        with suppress(OSError):
            os.setpgid(0, 0)
    undone = undo_dead()
    sits: Sits = job.sits or here
    with ExitStack() as stack:
        sitting = stack.enter_context(sits(job))
        sitting.notes[:0] = undone
        at = _AtWork(sitting=sitting, stack=stack.pop_all())
    _WORKER.at_work[key] = at
    return at, True


def _leave(key: tuple[str, str]) -> None:
    at = _WORKER.at_work.pop(key, None)
    if at is None:
        return
    if at.idle is not None:
        at.idle.cancel()
    try:
        at.stack.close()
    finally:
        before, now = _WORKER.left.get(key, Left()), at.sitting.left()
        _WORKER.left[key] = Left(
            changed=[*before.changed, *now.changed], left=[*before.left, *now.left]
        )


def _leave_if_idle(job: Job) -> None:
    at = _WORKER.at_work.get((job.run, job.pair))
    if at is None:
        return
    if at.idle is not None:
        at.idle.cancel()
    at.idle = threading.Timer(IDLE_S, _leave_idle, (job, at))
    at.idle.daemon = True
    at.idle.start()


def _leave_idle(job: Job, at: _AtWork) -> None:
    with _WORKER.held:
        if _WORKER.at_work.get((job.run, job.pair)) is at:
            _leave((job.run, job.pair))
