"""Work of a worker of dask: the trials of one pair. It undoes by itself if no more trials come.

A worker is asked in its one thread of tasks (`begin`, `measure`, `leave`), and to stop from beside.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import LabProblem, NotReady
from nodrop.installation import adding
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.manager import manifest
from nodrop.measure.pair import Pair, at_work
from nodrop.measure.plan import make_plan
from nodrop.measure.preflight import preflight
from nodrop.results.layout import TrialFolder
from nodrop.results.trial import TrialRecord
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.folders import scratch, sweep
from nodrop.testbed.hosts.journal import DiskJournal, undo_abandoned
from nodrop_fleet.file import FleetFile

# Workers that dask starts for a run: by ssh, or as jobs of SLURM.

PAIR = "pair"
"""The resource that a trial needs, and a worker has once."""
WORKER = ("--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--resources", f"{PAIR}=1")
"""Options in the command of a worker: it measures one trial at a time and shows nothing."""
SCRATCH = "/var/lib/nodrop/dask"
"""Dask imports from the folder that it works in, and opens files there. Its own choice is a name in
/tmp that any user may have made first; what lies here is root's."""
CONFIG: Mapping[str, Any] = {
    "temporary-directory": SCRATCH,
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Ten looks a second at the thread that measures, and workers that are ended for their memory.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.terminate": False,
}
"""Configuration of dask: it shows nothing, and does nothing beside the measurement."""
QUIET: Mapping[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Options of a scheduler: no dashboard."""
CLASSES: Mapping[str, tuple[str, str, str]] = {
    "ssh": ("distributed", "SSHCluster", "asyncssh"),
    "slurm": ("dask_jobqueue", "SLURMCluster", "dask-jobqueue"),
}
"""Cluster → module, class, and the package that has to be there."""
ASK_S = 10.0


class Workers:
    """Workers of the user's scheduler, or of one on this machine: they come and go without us."""

    cluster: Any = None
    """Cluster with their scheduler."""
    security: Any = None
    hint = (
        "start one for each pair: dask worker ADDRESS --name PAIR --nthreads 1 "
        f"--resources {PAIR}=1 --local-directory {SCRATCH}"
    )

    def serve(self, client: Any) -> None:
        """Begins to serve a client; most workers need nothing for it."""

    def why_none(self) -> str:
        """The reason that keeps workers from coming; empty if it cannot be known."""
        return ""

    def again(self) -> str:
        """Starts those that ended. Says what went wrong at the last time, once."""
        return ""


class Started(Workers):
    """Workers that a class of dask's starts."""

    hint = "see what they wrote, there"

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self._starts: Future[None] | None = None

    def again(self) -> str:
        if self._starts is not None:
            if not self._starts.done():
                return ""
            error, self._starts = self._starts.exception(), None
            if error is not None:
                return f"no worker could be started: {in_a_line(error)}"
        loop = self.cluster.loop.asyncio_loop
        self._starts = asyncio.run_coroutine_threadsafe(_all_started(self.cluster), loop)
        return ""


class SlurmJobs(Started):
    hint = (
        "squeue and scontrol show job say more, and a job's own words are in its slurm-ID.out; "
        "for a queue that takes longer, set wait_s in the fleet file"
    )

    def why_none(self) -> str:
        jobs = [str(worker.job_id) for worker in self.cluster.workers.values() if worker.job_id]
        form = ("--noheader", "--states", "all", "--format", "job %i is %T (%r)")
        try:
            said = subprocess.run(
                ["squeue", "--jobs", ",".join(jobs), *form],
                capture_output=True,
                text=True,
                timeout=ASK_S,
                check=False,
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"squeue does not answer: {error}"
        return ", ".join(sorted(line.strip() for line in said.splitlines()))


@contextmanager
def started(file: FleetFile) -> Iterator[Started]:
    """Starts workers with the user's settings of dask's class. LabProblem if it cannot."""
    module, name, package = CLASSES[file.cluster]
    if file.cluster == "ssh":
        imported("asyncssh", package)
    make = getattr(imported(module, package), name)
    with ExitStack() as stack:
        try:
            found = START[file.cluster](make, file, stack)
        except Exception as error:  # whatever those classes raise, it is about the user's cluster
            raise LabProblem(f"{name} of {package} cannot start: {in_a_line(error)}") from error
        yield found


def _by_ssh(make: Callable[..., Any], file: FleetFile, stack: ExitStack) -> Started:
    given = dict(file.options or {})
    options = {
        "silence_logs": "error",
        **given,
        "hosts": list(file.hosts or ()),
        "scheduler_options": dict(QUIET) | given.get("scheduler_options", {}),
        "worker_options": {
            "nthreads": 1,
            "memory_limit": 0,
            "dashboard": False,
            "resources": {PAIR: 1},
            **given.get("worker_options", {}),
        },
    }
    return Started(stack.enter_context(make(**options)))


def _by_slurm(make: Callable[..., Any], file: FleetFile, stack: ExitStack) -> Started:
    """A node for each pair, with nothing else on it; between all, certificates of this run."""
    given = dict(file.options or {})

    def yours(key: str) -> Any:
        dask = importlib.import_module("dask")
        return given.get(key) or dask.config.get(f"jobqueue.slurm.{key.replace('_', '-')}", None)

    if given.pop("security", True):
        place = Path(yours("shared_temp_directory") or Path.cwd()).expanduser()
        given["security"] = stack.enter_context(_certificates(place))
    if not yours("memory"):  # dask wants a figure; SLURM's 0 is all that the node has
        given |= {"memory": "1 GiB", "job_mem": yours("job_mem") or "0"}
    exports = [f"export {key}={shlex.quote(text)}" for key, text in environment(CONFIG).items()]
    cluster = make(
        **given
        | {
            "cores": 1,
            "processes": 1,
            "job_extra_directives": yours("job_extra_directives") or ["--exclusive"],
            "scheduler_options": dict(QUIET) | (yours("scheduler_options") or {}),
            "worker_extra_args": [*(yours("worker_extra_args") or ()), *WORKER],
            "job_script_prologue": [*(yours("job_script_prologue") or ()), *exports],
        }
    )
    try:
        for _ in file.pairs:
            cluster.worker_spec.update(cluster.new_worker_spec())
        cluster.sync(_all_started, cluster)
    except BaseException:
        for worker in cluster.workers.values():  # else dask finds that they still run, and waits
            worker.status = importlib.import_module("distributed").core.Status.failed
        cluster.close()
        raise
    return SlurmJobs(stack.enter_context(cluster))


@contextmanager
def _certificates(place: Path) -> Iterator[Any]:
    """Certificates of this run alone, in files that all nodes see and only the user may read."""
    security = importlib.import_module("distributed").Security
    made = security.temporary()
    with tempfile.TemporaryDirectory(prefix=".nodrop-tls-", dir=place) as folder:
        files = {}
        for name, text in made.get_tls_config_for_role("worker").items():
            if text is not None and "\n" in text:
                files[name] = Path(folder) / name
                files[name].touch(mode=0o600)
                files[name].write_text(text)
        roles = {
            f"tls_{role}_{name}": str(files[name])
            for role in ("client", "scheduler", "worker")
            for name in ("cert", "key")
        }
        yield security(require_encryption=True, tls_ca_file=str(files["ca_file"]), **roles)


def environment(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Configuration of dask as the environment variables that dask reads."""
    names = {key: key.upper().replace(".", "__").replace("-", "_") for key in config}
    return {f"DASK_{names[key]}": str(value) for key, value in config.items()}


START: Mapping[str, Callable[[Callable[..., Any], FleetFile, ExitStack], Started]] = {
    "ssh": _by_ssh,
    "slurm": _by_slurm,
}


async def _all_started(cluster: Any) -> None:
    await cluster


def in_a_line(error: BaseException) -> str:
    """The error in one line: what a program that dask-jobqueue called wrote to stderr, if that is
    in it."""
    words = (str(error) or type(error).__name__).partition("stderr:\n")
    return "; ".join(line.strip() for line in (words[2] or words[0]).splitlines() if line.strip())


def imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotReady(
            f"package {package} is missing, which --fleet needs",
            hint=adding(package),
        ) from None


OTHER_FILES = "its trace, files or image are others than those of the other pairs"
IDLE_S = 60.0
"""Time without a trial after which a pair undoes what stands: whoever asked may be gone."""


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
    """The place of its receiver; None: on the worker's host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPair:
    """A pair that is ready."""

    inputs: Sequence[Json]
    manifest: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A trial that was measured, with all its files."""

    record: TrialRecord
    details: Json
    files: Mapping[str, bytes]
    begun: ReadyPair | None
    """The pair, if it began with the trial."""
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Changes that a run made on the pair's hosts, and those of them that could not be put back."""

    changed: Sequence[str] = ()
    left: Sequence[str] = ()


class Sitting(Protocol):
    """A pair at work, trial after trial."""

    begun: ReadyPair
    notes: list[str]

    def measure(
        self, asked: TrialInput, *, asks_tsc: bool
    ) -> tuple[TrialRecord, Json, Mapping[str, bytes]]:
        """The trial's record, the details for trial.json, and its files by their paths."""
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


def begin(job: Job) -> ReadyPair:
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
        reports = undo_abandoned()
        sweep()
    return [f"undone after a dead run: {words}" for report in reports for words in report.failed]


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
class HereSitting:
    """A `Sitting` on the worker's host."""

    begun: ReadyPair
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
def here(job: Job) -> Iterator[HereSitting]:
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
        yield HereSitting(ReadyPair(inputs=inputs, manifest=found), notes, pair, journal)


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
