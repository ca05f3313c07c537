"""A pair whose receiver is another machine than its worker's.

The worker is the front of a run there (nodrop/remote/client.py): whoever gives the pair its trials
is the controller of that run, and each trial goes on to him with its files.
"""

from __future__ import annotations

import queue
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from nodrop.errors import Interrupted, LabProblem, NodropError
from nodrop.measure.controllers.blocks import NO_OUTLOOK, May, Outlook, TrialInput, any_trial
from nodrop.measure.plan import Plan, Progress, make_plan
from nodrop.remote.client import run_elsewhere
from nodrop.results.layout import RUNS, TRIAL, TrialFolder
from nodrop.results.rundir import read_manifest
from nodrop.results.trial import Live, TrialRecord
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.folders import scratch
from nodrop.untrusted.json_text import SMALL_FILE_BYTES, decode_object, member
from nodrop_fleet.worker import Job, Left, ReadyPair, must_be_as_others

LOOK_S = 0.2
"""A thread that waits longer is not ended while it waits."""
OF_A_RUN = (
    "format", "name", "run_id", "started_utc", "finished_utc", "plan_sha256", "controller", "undo",
    "sittings",
)  # fmt: skip
"""Keys of a manifest that belong to a run: the fleet's run has its own."""


@contextmanager
def there(job: Job) -> Iterator[FarPair]:
    with scratch() as folder:
        pair = FarPair(job, folder)
        try:
            pair.begin()
            yield pair
        finally:
            pair.end()


class FarPair(Progress):
    """A `Sitting` (fleet/worker.py); Controller and Progress of the run there, which has a
    thread of its own."""

    heeds_void = True
    begun: ReadyPair

    def __init__(self, job: Job, folder: Path) -> None:
        self._job, self._folder = job, folder
        self.notes: list[str] = []
        self._directory = folder
        self._asked: queue.SimpleQueue[TrialInput | None] = queue.SimpleQueue()
        self._came: queue.SimpleQueue[TrialRecord | BaseException | None] = queue.SimpleQueue()
        """News of the run: a trial's record, or the exception with which the run has ended; None:
        it wants the next trial."""
        self._trial: TrialInput | None = None
        self._stops = False
        self._undone: Json = {}
        self._of_plan: Sequence[str] = ()
        """Notes that whoever keeps the fleet's run has said."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    # --- of the worker ---------------------------------------------------------------------------

    def begin(self) -> None:
        self._thread.start()
        self._heard()
        manifest = read_manifest(self._directory)
        inputs = member(manifest, "inputs", list)
        must_be_as_others(self._job, inputs)
        ours = {key: value for key, value in manifest.items() if key not in OF_A_RUN}
        self.begun = ReadyPair(inputs=inputs, manifest=ours)

    def measure(
        self, asked: TrialInput, *, asks_tsc: bool
    ) -> tuple[TrialRecord, Json, Mapping[str, bytes]]:
        del asks_tsc  # it is seen there
        self._asked.put(asked)
        record = self._heard()
        assert record is not None
        self._heard()
        folder = TrialFolder(run=record.run, path=self._directory / RUNS / record.run)
        files = folder.packed()
        shutil.rmtree(folder.path)
        whole = decode_object(files[TRIAL], most_bytes=SMALL_FILE_BYTES)
        return record, member(whole, "details", dict), files

    def left(self) -> Left:
        undone = self._undone
        return Left(changed=undone.get("changed", ()), left=undone.get("left", ()))

    def end(self) -> None:
        self._stops = True
        self._asked.put(None)
        self._thread.join()
        with suppress(NodropError):
            self._undone = read_manifest(self._directory).get("undo") or {}

    def _heard(self) -> TrialRecord | None:
        while True:
            with suppress(queue.Empty):
                came = self._came.get(timeout=LOOK_S)
                if isinstance(came, NodropError):
                    came.ended_run = None  # the fleet's is gone on with
                    raise came
                if isinstance(came, BaseException):
                    raise LabProblem(f"the run there has ended: {came}") from came
                return came

    # --- of the run ------------------------------------------------------------------------------

    def _run(self) -> None:
        job = self._job
        table = {key: value for key, value in job.lab.table.items() if key != "storage"}
        try:
            plan = make_plan(job.experiment)
            self._of_plan = plan.notes()
            run_elsewhere(
                job.experiment,
                replace(job.lab, table=table),
                out=self._folder,
                resume=False,
                progress=self,
                yes=True,
                plan=replace(plan, controller=self),
            )
            self._came.put(LabProblem("it has ended"))
        except BaseException as ended:
            self._came.put(ended)

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        """The next trial, again and again until it has been measured: a host that boots in between
        asks twice."""
        del done, may
        if self._trial is None:
            self._came.put(None)
            self._trial = self._asked.get()
        return self._trial

    def beforehand(self) -> Sequence[TrialInput]:
        return ()

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        del done
        return NO_OUTLOOK

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        del plan, earlier
        self._directory = directory

    def note(self, words: str) -> None:
        if words not in self._of_plan:
            self.notes.append(words)

    def phase(self, name: str) -> None:
        del name
        self._go_on()

    def live(self, reading: Live) -> None:
        del reading
        self._go_on()

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        del trial
        self._trial = None
        self._came.put(record)

    def _go_on(self) -> None:
        """Unless the trial is to end: as a signal would, in the midst of it."""
        if self._stops:
            self._stops = False
            raise Interrupted(signal.SIGTERM)
