"""Messages to and from the far half of a run (agent.py), and the relay that shares its pipes."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO, Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from nodrop.config.experiment import Experiment
from nodrop.config.lab_file import LabSource
from nodrop.errors import BadInput, LabProblem, NodropError, NotReady, SystemRefused, TrialFailed
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.plan import PlanFacts
from nodrop.results.trial import Live
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.processes import HOLDER_VARIABLE, HOST_VARIABLE, holder
from nodrop.testbed.hosts.relay import LONGEST_BYTES, Frame, Frames, Held, RelayEnd
from nodrop.testbed.hosts.ssh import SshHost
from nodrop.testbed.images.image_cache import Image
from nodrop.untrusted import json_text
from nodrop.untrusted.json_text import NotJson, decode_object, first_fault, one_line

OURS = 0
"""The channel of these messages; others are the relay's."""
PART, LAST, FILE, ALIVE = "p", "l", "f", "a"
"""Kinds of frames: two for parts of one message, which may be longer than a frame; one for parts of
a file; one that says nothing, sent now and then."""
ALIVE_INTERVAL_S, LEASE_S = 5.0, 20.0
"""The half that measures ends if it hears nothing of the other for so long: the line may be cut,
and no one told it. ssh says it to the other half after 15 s."""
MOST_BYTES = 256 << 20
"""Limit on one message: what comes from elsewhere is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedImage:
    """An image that the receiver lacked."""

    image: Image
    tar: str
    """Path there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTrials:
    """A run that is gone on with, as far as it was measured."""

    manifest: Json
    lines: tuple[str, ...]
    """Trials so far, as lines of trials.jsonl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The measuring task, as it was checked on the user's machine."""

    order: Literal["task"] = "task"
    experiment: Experiment
    lab: LabSource
    plan: PlanFacts
    heeds_void: bool
    beforehand: tuple[TrialInput, ...]
    copies: dict[str, str]
    """Input file as written → the path here."""
    images: tuple[CopiedImage, ...]
    image_names: dict[str, str]
    """Name of an image as written → its hash: this host may have another release that it takes by
    default."""
    earlier: EarlierTrials | None
    """The run that is gone on with; None if one begins."""
    argv: tuple[str, ...]
    yes: bool
    only_look: bool
    """`nodrop doctor`: nothing is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The answer to a `Request`, and the receipt for what was sent before."""

    order: Literal["next"] = "next"
    trial: TrialInput | None
    have: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Files of a trial that was measured and did not come over whole: path → bytes and hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOrder:
    """The user ends the run: what was begun is to be undone."""

    order: Literal["end"] = "end"
    signal: int


Order = Task | Next | EndOrder


class ErrorKind(StrEnum):
    """Kinds of trouble that end the far half, as far as the other half tells them apart."""

    BAD_INPUT = "bad-input"
    NOT_READY = "not-ready"
    LAB_PROBLEM = "lab-problem"
    SYSTEM_REFUSED = "system-refused"
    TRIAL_FAILED = "trial-failed"
    UNEXPECTED = "unexpected"


RAISED: Mapping[ErrorKind, type[NodropError]] = {
    ErrorKind.BAD_INPUT: BadInput,
    ErrorKind.NOT_READY: NotReady,
    ErrorKind.TRIAL_FAILED: TrialFailed,
}
"""Class of each kind here; any other kind is a problem of the lab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarError:
    """The error that ended the far half, as it is sent."""

    kind: ErrorKind
    message: str
    hint: str | None = None

    @classmethod
    def of(cls, error: NodropError) -> FarError:
        match error:
            case BadInput():
                kind = ErrorKind.BAD_INPUT
            case NotReady():
                kind = ErrorKind.NOT_READY
            case SystemRefused():
                kind = ErrorKind.SYSTEM_REFUSED
            case TrialFailed():
                kind = ErrorKind.TRIAL_FAILED
            case _:
                kind = ErrorKind.LAB_PROBLEM
        return cls(kind=kind, message=error.message, hint=error.hint)

    def to_raise(self) -> NodropError:
        """The error here, on lines that a terminal may be shown."""
        hint = None if self.hint is None else one_line(self.hint)
        return RAISED.get(self.kind, LabProblem)(one_line(self.message), hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The first report: nodrop runs there."""

    report: Literal["greeting"] = "greeting"
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The run directory there, which words of errors may name."""

    report: Literal["folder"] = "folder"
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentManifest:
    """The manifest there; it is sent again whenever it has changed."""

    report: Literal["manifest"] = "manifest"
    manifest: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    report: Literal["note"] = "note"
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request for the next order, which is a `Next`."""

    report: Literal["request"] = "request"
    kept: str | None = None
    """Fingerprint of a trial that was measured there, and has not come over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    report: Literal["trial"] = "trial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    report: Literal["phase"] = "phase"
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReading:
    report: Literal["reading"] = "reading"
    live: Live


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHead:
    """A file of the trial, whose bytes follow from `begun` on."""

    report: Literal["file"] = "file"
    path: tuple[str, ...]
    size: int
    sha256: str
    begun: int = 0
    """Bytes that the other half has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    report: Literal["record"] = "record"
    line: str
    """The record, as a line of trials.jsonl."""
    fetched: bool = False
    """True of a trial that an earlier sitting measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorAnswer:
    """The findings of `nodrop doctor`."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    disturbing: tuple[str, ...] = ()
    """Notes that forbid no run, and will be in its figures."""
    calibration: tuple[Json, ...] = ()
    """Certificates that a run would stand on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last report."""

    report: Literal["end"] = "end"
    error: FarError | None = None
    interrupted: bool = False
    """A signal ended it there."""
    findings: DoctorAnswer | None = None
    """Null if it measured."""


Report = (
    Greeting
    | RunFolder
    | CurrentManifest
    | Note
    | Request
    | TrialStarted
    | Phase
    | LiveReading
    | FileHead
    | TrialEnded
    | Ended
)

STRICT_FORM = ConfigDict(extra="forbid", ser_json_inf_nan="constants")
ORDERS: TypeAdapter[Order] = TypeAdapter(
    Annotated[Order, Field(discriminator="order")], config=STRICT_FORM
)
REPORTS: TypeAdapter[Report] = TypeAdapter(
    Annotated[Report, Field(discriminator="report")], config=STRICT_FORM
)


def content_of(message: Order | Report) -> bytes:
    """The message as JSON. BadInput if it has none: a name on the command line may be any bytes."""
    try:
        if isinstance(message, Order):
            return ORDERS.dump_json(message)
        return REPORTS.dump_json(message)
    except PydanticSerializationError as error:
        raise BadInput(f"cannot be sent to the receiver: {one_line(error)}") from None


def send(frames: Frames, message: Order | Report) -> None:
    content = content_of(message)
    whole = max(0, len(content) - 1) // LONGEST_BYTES * LONGEST_BYTES
    frames.stream(OURS, PART, content[:whole])
    frames.send(OURS, LAST, content[whole:])


def send_file(frames: Frames, head: FileHead, file: IO[bytes]) -> None:
    """The head, then the bytes of the file from where it stands, as many as the head says."""
    send(frames, head)
    left = head.size - head.begun
    while left > 0 and (part := file.read(min(left, LONGEST_BYTES))):
        frames.send(OURS, FILE, part)
        left -= len(part)
    if left:
        raise LabProblem(f"{'/'.join(head.path)}: it became shorter while it was read")


class Heard:
    """Puts messages together again."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def whole(self, frame: Frame) -> bytes | None:
        """Content of the message that ends with this frame; None if it goes on."""
        self._parts += frame.payload
        if len(self._parts) > json_text.raised(MOST_BYTES):
            raise NotJson(f"a message of more than {json_text.said(MOST_BYTES)}")
        if frame.kind != LAST:
            return None
        content, self._parts = bytes(self._parts), bytearray()
        return content


def order_of(content: bytes) -> Order:
    """The order in a message. NotJson names the first field at fault."""
    try:
        return ORDERS.validate_json(content)
    except ValidationError as error:
        raise NotJson(first_fault(error)) from None


def report_of(content: bytes) -> Report:
    """The report in a message. NotJson names the first field at fault."""
    table = decode_object(content, most_bytes=json_text.raised(MOST_BYTES))
    try:
        return REPORTS.validate_python(table)
    except ValidationError as error:
        raise NotJson(first_fault(error)) from None


WAITING = 64
"""Frames that were received and not yet looked at, at most."""
SILENT_S = 60.0
"""Longest silence of the far half, which speaks every few seconds, also while it loads, undoes or
waits; a slow line needs seconds for a frame."""
UNDO_S = 180.0
"""From when it is to end: it undoes, and may be stuck in that."""
LOOK_S = 1.0
END_TIMEOUT_S = 10.0
STDERR_BYTES = 32 * 1024


class Far:
    """The other half, as a program that is spoken with. To be entered; after it, it has ended."""

    def __init__(self, host: SshHost, control: Sequence[str], sender: Held) -> None:
        self.name, self._host = host.name, host
        self._ended = threading.Event()
        address = host.address and f"SSH_CONNECTION=- - {host.address} -"
        ours = [f"{HOLDER_VARIABLE}={holder()}", f"{HOST_VARIABLE}={host.name}"]
        argv = ["env", *([address] if address else []), *ours, *control, "nodrop.remote.agent"]
        self._program = host.begin(argv)
        out, into = self._program.stdout, self._program.stdin
        assert out is not None and into is not None
        self._frames = Frames(out, into)
        self._relay = RelayEnd(self._frames, sender)
        self._came: queue.Queue[tuple[str, bytes] | None] = queue.Queue(WAITING)
        self._heard = Heard()
        self._listens, self._silent_s = False, 0.0
        """Counted while we listen: we may be stopped, or busy with what it said."""
        self._end_by_s: float | None = None
        self._errors = bytearray()
        self._threads = [
            threading.Thread(target=run, daemon=True)
            for run in (self._read, self._read_errors, self._live)
        ]

    def greeted(self) -> None:
        """Waits for its greeting. LabProblem, in one sentence, if it does not run or is of
        another version."""
        try:
            first = self.report()
        except LabProblem as problem:
            words = self._stuck() or f"nodrop cannot run there{self._last()}"
            raise LabProblem(f"{self.name}: {words}") from problem
        if not isinstance(first, Greeting):
            raise LabProblem(f"{self.name}: nodrop there sends a {first.report} at first")

    def order(self, order: Order) -> None:
        with suppress(OSError):  # it has ended: that is heard
            send(self._frames, order)

    def end(self, number: int) -> None:
        """Orders it to end by this signal, and to undo. One that hangs may not take the word."""
        self._end_by_s = time.monotonic() + UNDO_S
        threading.Thread(target=self.order, args=(EndOrder(signal=number),), daemon=True).start()

    def report(self) -> Report:
        """The next one. LabProblem if it makes no sense, or the half has ended, or is stuck."""
        while True:
            kind, content = self._next()
            if kind != FILE:
                try:
                    return report_of(content)
                except NotJson as error:
                    words = f"what it says makes no sense: {error}"
                    raise LabProblem(f"{self.name}: {words}") from None

    def file(self, size: int) -> Iterator[bytes]:
        """Content of a file, which follows its head."""
        while size > 0:
            kind, content = self._next()
            if kind != FILE or len(content) > size:
                raise NotJson("a file that is not as long as it was said")
            size -= len(content)
            yield content

    def _next(self) -> tuple[str, bytes]:
        came = self._await()
        if came is None:
            self._came.put(None)
            gone = ": the ssh connection is gone" if self._host.lost() else ""
            raise LabProblem(f"{self.name}: nodrop there has ended{gone}{self._last()}")
        return came

    def _await(self) -> tuple[str, bytes] | None:
        """None: it has ended."""
        while True:
            try:
                return self._came.get(timeout=LOOK_S)
            except queue.Empty:
                self._silent_s += LOOK_S if self._listens else 0
                if words := self._stuck():
                    raise LabProblem(f"{self.name}: {words}") from None

    def _stuck(self) -> str:
        """Why it is not waited for any longer; "" if it is."""
        if self._silent_s >= SILENT_S:
            words = f"says nothing for {SILENT_S:g} s: it hangs, or its host"
        elif self._end_by_s is not None and time.monotonic() > self._end_by_s:
            words = f"does not end within {UNDO_S:g} s"
        else:
            return ""
        return f"nodrop there {words}; `nodrop undo LAB --all` ends it"

    def _last(self) -> str:
        """The last line that the program complained of."""
        with suppress(subprocess.TimeoutExpired):
            self._program.wait(END_TIMEOUT_S)
        self._threads[1].join(1.0)
        lines = bytes(self._errors).decode(errors="replace").strip().splitlines()
        return f": {one_line(lines[-1], longest=300)}" if lines else ""

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while (frame := self._received()) is not None:
                if frame.channel != OURS:
                    self._relay.hear(frame)
                elif frame.kind == ALIVE:
                    continue
                elif frame.kind == FILE:
                    self._came.put((FILE, frame.payload))
                elif (content := self._heard.whole(frame)) is not None:
                    self._came.put((LAST, content))
        self._ended.set()
        try:
            self._relay.close()
        finally:  # or who waits for a report would wait for ever
            self._came.put(None)

    def _received(self) -> Frame | None:
        self._silent_s, self._listens = 0.0, True
        try:
            return self._frames.receive()
        finally:
            self._listens = False

    def _live(self) -> None:
        """Says now and then that we are."""
        with suppress(OSError, ValueError):
            while not self._ended.wait(ALIVE_INTERVAL_S):
                self._frames.send(OURS, ALIVE)

    def _read_errors(self) -> None:
        assert self._program.stderr is not None
        with suppress(OSError, ValueError):
            for line in self._program.stderr:
                self._errors += line
                del self._errors[:-STDERR_BYTES]

    def __enter__(self) -> Far:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        program = self._program
        assert program.stdin is not None
        self._ended.set()
        self._end_by_s = self._end_by_s or time.monotonic() + UNDO_S
        try:
            if not self._stuck():
                with suppress(OSError):
                    program.stdin.close()
            while self._await() is not None:  # until it has undone, whatever it still says
                pass
        except LabProblem:  # it is stuck, and ssh would keep our pipes open
            self._host.close()
        with suppress(subprocess.TimeoutExpired):
            program.wait(END_TIMEOUT_S)
        if program.poll() is None:
            program.kill()
            program.wait()
        for pipe in (program.stdin, program.stdout, program.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
