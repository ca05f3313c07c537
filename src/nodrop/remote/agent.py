"""The half of a run that measures, on the receiver: `python3 -m nodrop.remote.agent`, over ssh.

It is told by stdin and answers by stdout, in frames. The end of stdin ends it, and it undoes.
"""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import site
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import nodrop
from nodrop.config.options import INPUTS
from nodrop.errors import ENDING, Interrupted, LabProblem, NodropError, SystemRefused, interrupts
from nodrop.measure.baselines import standing_here
from nodrop.measure.busy import host_notes
from nodrop.measure.controllers.blocks import NO_OUTLOOK, May, Outlook, TrialInput, any_trial
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Plan, Progress
from nodrop.measure.preflight import doctor
from nodrop.remote.inputs import Copies
from nodrop.remote.messages import (
    ALIVE,
    ALIVE_INTERVAL_S,
    LEASE_S,
    OURS,
    CurrentManifest,
    DoctorAnswer,
    EarlierTrials,
    Ended,
    EndOrder,
    ErrorKind,
    FarError,
    FileHead,
    Greeting,
    Heard,
    LiveReading,
    Next,
    Note,
    Order,
    Phase,
    Report,
    Request,
    RunFolder,
    Task,
    TrialEnded,
    TrialStarted,
    order_of,
    send,
    send_file,
)
from nodrop.remote.outbox import Begun, Untaken, arrived, begun_of, fingerprint, run_folder
from nodrop.remote.upload import CONTROL_FOLDER
from nodrop.results.rundir import read_manifest
from nodrop.results.trial import Live, TrialRecord
from nodrop.results.writer import RunWriter
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.journal import living
from nodrop.testbed.hosts.processes import this_host
from nodrop.testbed.hosts.relay import RELAY_VARIABLE, Frames, RelayDoor
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.images.image_cache import take_image
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson

WAIT_S = 10.0
"""A run whose line was cut may still be at its undoing."""
LOOK_S = 0.1


@contextmanager
def sole_run() -> Iterator[None]:
    """LabProblem if another run has this host. The kernel lets go of it if we die."""
    held = os.open(CONTROL_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _hold(held)
        yield
    finally:
        os.close(held)


def _hold(file: int) -> None:
    for _ in looks(WAIT_S, every_s=LOOK_S):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    whose = " and ".join(living().values()) or "another run"
    raise LabProblem(
        f"{this_host()}: {whose} has this host",
        hint="wait for its end, or end it from there (`nodrop undo LAB --all`)",
    )


OrderT = TypeVar("OrderT", Task, Next)


class Told:
    """The other half's words: orders for us, the rest for the relay. Its end is our end."""

    def __init__(self, frames: Frames, door: RelayDoor) -> None:
        self._frames, self._door = frames, door
        self._orders: queue.Queue[Order | NotJson | None] = queue.Queue()
        self._heard_s = time.monotonic()
        self.lost = False
        """No one hears us."""
        for run in (self._read, self._watch):
            threading.Thread(target=run, daemon=True).start()

    def next(self, kind: type[OrderT]) -> OrderT:
        """The next order. LabProblem if it is no order of this kind, or none will come."""
        order = self._orders.get()
        if order is None:
            raise LabProblem("the controller has ended")
        if not isinstance(order, kind):
            words = order if isinstance(order, NotJson) else f"{order.order}, out of turn"
            raise LabProblem(f"{this_host()}: an order that makes no sense: {words}")
        return order

    def _read(self) -> None:
        heard = Heard()
        with suppress(OSError, ValueError):
            while (frame := self._frames.receive()) is not None:
                self._heard_s = time.monotonic()
                if frame.channel != OURS:
                    self._door.hear(frame)
                elif frame.kind == ALIVE:
                    continue
                elif (content := heard.whole(frame)) is not None:
                    self._take(content)
        self._lost()

    def _take(self, content: bytes) -> None:
        try:
            order = order_of(content)
        except NotJson as error:
            self._orders.put(error)
            return
        if isinstance(order, EndOrder):
            os.kill(os.getpid(), order.signal)
        else:
            self._orders.put(order)

    def _watch(self) -> None:
        while (left_s := self._heard_s + LEASE_S - time.monotonic()) > 0:
            time.sleep(left_s)
        self._lost()

    def _lost(self) -> None:
        self.lost = True
        self._door.broken()
        self._orders.put(None)
        os.kill(os.getpid(), signal.SIGTERM)


class Reported(Progress):
    """The other half as this run's `Progress` (measure/plan.py), and as its `Controller`
    (measure/controllers/blocks.py)."""

    def __init__(self, frames: Frames, told: Told, task: Task, untaken: Untaken) -> None:
        self._frames, self._told, self._task = frames, told, task
        self._untaken = untaken
        self._sent = False
        """A trial, whole; the next order shows that it was taken."""
        self.heeds_void = task.heeds_void
        self.directory: Path | None = None
        self._manifest: Json = {}

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        del done, may  # it has them, and their files: nothing is on its way while the next one runs
        self.manifest()
        while True:
            kept = self._untaken.kept
            self._send(Request(kept=None if kept is None else kept.asked))
            order = self._told.next(Next)
            if self._sent:
                self._untaken.taken()
                self._sent = False
            trial, kept = order.trial, self._untaken.kept
            if trial is None or kept is None or kept.asked != self._fingerprint(trial):
                return trial
            # Measured in an earlier sitting, which did not bring it over.
            self._send_files(self._untaken.directory, kept.files, have=order.have)
            self._ended(kept.line, fetched=True)

    def _fingerprint(self, trial: TrialInput) -> str:
        return fingerprint(trial, str(self._manifest["plan_sha256"]))

    def beforehand(self) -> Sequence[TrialInput]:
        return self._task.beforehand

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        del done
        return NO_OUTLOOK

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        del plan, earlier
        self.directory = directory
        self.runs_in(directory)
        self.manifest()

    def goes_on(self, earlier: EarlierTrials) -> None:
        """A run that has trials already; one more may lie here."""
        known = [TrialRecord.from_line(line).run for line in earlier.lines]
        if words := self._untaken.take_up(earlier.manifest.get("run_id"), known):
            self.note(words)

    def runs_in(self, directory: Path) -> None:
        self._send(RunFolder(path=str(directory)))

    def note(self, words: str) -> None:
        self._send(Note(words=words))

    def trial_started(self, trial: TrialInput) -> None:
        del trial
        self._send(TrialStarted())

    def phase(self, name: str) -> None:
        self._send(Phase(name=name))

    def live(self, reading: Live) -> None:
        self._send(LiveReading(live=reading))

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        assert self.directory is not None
        files = begun_of(self.directory, record.run)
        if self.heeds_void or record.outcome != "void":
            self._untaken.mark(self.directory, self._manifest, trial, record, files)
        self._send_files(self.directory, files, have={})
        self.manifest()
        self._ended(record.to_line())

    def _send_files(self, directory: Path, files: Begun, *, have: Begun) -> None:
        """Sends the files of a trial, or parts of them, that the other half lacks."""
        for path, (size, sha256) in files.items():
            *above, name = path.split("/")
            if have.get(path) == (size, sha256):
                continue
            with suppress(OSError), Folder(directory, tuple(above)).open(name) as file:
                begun = arrived(file, size, have.get(f"{path}.part"))
                file.seek(begun)
                head = FileHead(path=(*above, name), size=size, sha256=sha256, begun=begun)
                send_file(self._frames, head, file)

    def _ended(self, line: str, *, fetched: bool = False) -> None:
        self._send(TrialEnded(line=line, fetched=fetched))
        self._sent = True

    def manifest(self) -> None:
        """Sends the manifest as it is now, if it has changed."""
        if self.directory is not None and (now := read_manifest(self.directory)) != self._manifest:
            self._manifest = now
            self._send(CurrentManifest(manifest=now))

    def _send(self, report: Report) -> None:
        # Who does not listen has ended, and what reads from it sees that and ends us. If the line
        # is cut, no one reads what we write, and to write would wait for ever.
        with suppress(OSError):
            if not self._told.lost:
                send(self._frames, report)


def measured(frames: Frames, told: Told, folder: Path) -> Ended:
    """Does what is asked; how it ended."""
    try:
        with interrupts():
            task = told.next(Task)
            for copied in task.images:
                take_image(copied.image, Path(copied.tar))
            sys.argv = [*task.argv]
            reported = Reported(frames, told, task, Untaken(folder))
            plan = task.plan.with_controller(reported)
            if task.only_look:
                with _inputs(task):
                    return Ended(findings=_seen(task, plan))
            try:
                with sole_run():
                    _measure(task, plan, reported, folder)
            finally:
                reported.manifest()
    except Interrupted:
        return Ended(interrupted=True)
    except NodropError as error:
        return Ended(error=FarError.of(error))
    except OSError as error:
        during, host = "the run there", this_host()
        refused = SystemRefused(error, during=during, host=host, files=str(folder))
        return Ended(error=FarError.of(refused))
    except Exception as error:
        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__}: {error} (at {Path(place.filename).name}:{place.lineno})"
        return Ended(error=FarError(kind=ErrorKind.UNEXPECTED, message=words))
    return Ended()


def _seen(task: Task, plan: Plan) -> DoctorAnswer:
    problems, notes = doctor(task.experiment, task.lab, plan)
    setups = {cell.setup["kind"] for cell in plan.cells}
    standing = [] if problems else standing_here(task.lab, setups)
    return DoctorAnswer(
        problems=tuple(problems),
        notes=tuple(notes),
        disturbing=tuple(host_notes()),
        calibration=tuple(standing),
    )


def _measure(task: Task, plan: Plan, reported: Reported, folder: Path) -> None:
    with _inputs(task):
        out = folder
        if task.earlier is not None:
            out = folder / "run"
            _begun(out, task)
            reported.runs_in(out)
            reported.goes_on(task.earlier)
        run_experiment(
            task.experiment,
            task.lab,
            out=out,
            resume=task.earlier is not None,
            progress=reported,
            yes=task.yes,
            plan=plan,
        )
        reported.manifest()


@contextmanager
def _inputs(task: Task) -> Iterator[None]:
    before = INPUTS.set(Copies(task.copies, task.image_names))
    try:
        yield
    finally:
        INPUTS.reset(before)


def _begun(out: Path, task: Task) -> None:
    """A run directory that knows its earlier trials; their files stay with the other half."""
    assert task.earlier is not None
    text, manifest = task.experiment.text, task.earlier.manifest
    records = map(TrialRecord.from_line, task.earlier.lines)
    with RunWriter.create_at(
        out, task.experiment.name, experiment=text, manifest=manifest
    ) as writer:
        writer.finish_all((record, {}) for record in records)


def _live(frames: Frames) -> None:
    """Says now and then that we are, to the end."""
    with suppress(OSError):
        while True:
            frames.send(OURS, ALIVE)
            time.sleep(ALIVE_INTERVAL_S)


def _own_pipes() -> Frames:
    """Ours alone: what we start has neither, and what prints goes to stderr."""
    source, sink = (os.fdopen(os.dup(n), mode) for n, mode in ((0, "rb"), (1, "wb")))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return Frames(source, sink)


def main() -> None:
    sys.path += site.getsitepackages()  # the last: a module that is of the host, as libvirt's
    os.umask(0o022)
    for number in ENDING:  # while nothing is measured: then it ends the run, which undoes
        signal.signal(number, signal.SIG_IGN)
    frames = _own_pipes()
    threading.Thread(target=_live, args=(frames,), daemon=True).start()
    with run_folder() as folder, RelayDoor(frames, folder=folder) as door:
        os.environ[RELAY_VARIABLE] = str(door.path)
        send(frames, Greeting(version=nodrop.__version__))
        told = Told(frames, door)
        end = measured(frames, told, folder)
        with suppress(OSError):
            if not told.lost:
                send(frames, end)


if __name__ == "__main__":
    main()
