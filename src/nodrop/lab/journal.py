"""The undo journal: what this run changed on the host, on disk before it is changed.

One file of JSON lines per run in the user's state folder. The first line names the controller,
the others what reverses a change. Where the controller died (kill -9, power), `nodrop undo` reads
the file and puts the host back; undoing twice does no harm.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from nodrop.errors import LabProblem, NotReady
from nodrop.lab.folders import state_folder
from nodrop.lab.host import run_command
from nodrop.lab.interrupts import signals_held
from nodrop.lab.processes import (
    ProcessId,
    boot_id,
    end_process,
    labelled_processes,
    user_namespace,
)
from nodrop.lab.seam import Json

NETNS_FOLDER = Path("/run/netns")
KILL_ROUNDS = 10
UNDO_TIMEOUT_S = 90.0
"""More than any of the commands gives itself: a guest that lets go of a NIC, a busy Docker."""
ALREADY_GONE = (
    "No such file or directory",
    "Cannot find device",
    "No such process",
    "container does not exist",
)
"""What iproute2, runc and friends say about a thing that somebody has already removed."""


@dataclass(slots=True, kw_only=True)
class UndoReport:
    """What one undo did, in words."""

    label: str
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class DiskJournal:
    """An UndoJournal (lab/seam.py). As a context manager it undoes on exit, whatever happened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = path.stem
        self._written: set[str] = set()
        self.changed: Sequence[str] = ()
        """Once the context has ended: what was changed on the host, each thing once."""
        self.left: Sequence[str] = ()
        """Of that, what could not be put back."""

    @classmethod
    def create(cls, label: str | None = None) -> Self:
        """Opens a new journal for this process as the controller."""
        folder = journal_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotReady(
                f"{folder}: the undo journal cannot be kept there: {error.strerror}",
                hint="point XDG_STATE_HOME to a folder that can be written",
            ) from None
        journal = cls(folder / f"{label or new_label()}.jsonl")
        try:
            journal.path.touch(exist_ok=False)
        except FileExistsError:
            raise LabProblem(f"a journal of this label exists: {journal.path}") from None
        journal._append(
            {
                "controller": ProcessId.of(os.getpid()).as_json(),
                "boot_id": boot_id(),
                "user_namespace": user_namespace(),
            }
        )
        _sync_folder(folder)
        return journal

    def push(self, *, what: str, argv: Sequence[str]) -> None:
        # The same change made anew for every trial needs one line, not one per trial.
        self._append({"what": what, "argv": list(argv)})

    def process(self, pid: int, what: str) -> None:
        identity = ProcessId.find(pid)
        if identity:  # else it is gone already
            self._append({"what": what, "process": identity.as_json()})

    def undo(self) -> Sequence[str]:
        return self.undo_all().failed

    def undo_all(self) -> UndoReport:
        """Ends our processes, then reverses the changes, last first; the file stays."""
        report = UndoReport(label=self.label)
        head, entries = self._read()
        if head.get("boot_id") != boot_id():
            report.done.append("everything went with the last boot")
            return report
        self._end_processes(entries, report)
        if head.get("user_namespace") != user_namespace():
            # The namespaces went with their last process; the commands would hit another place.
            return report
        for entry in reversed(entries):
            if "argv" in entry:
                _reverse(entry["what"], entry["argv"], report)
        for name in namespaces_of(self.label):
            _reverse(f"network namespace {name}", ["ip", "netns", "del", name], report)
        return report

    def controller_lives(self) -> bool:
        """Whether the run that wrote this journal still goes on."""
        head, _ = self._read()
        controller = head.get("controller")
        if controller is None or head.get("boot_id") != boot_id():
            return False
        return ProcessId.from_json(controller).lives()

    def controller(self) -> ProcessId | None:
        head, _ = self._read()
        return ProcessId.from_json(head["controller"]) if "controller" in head else None

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with signals_held():
            _, entries = self._read()
            self.changed = list(dict.fromkeys(e["what"] for e in entries if "argv" in e))
            failed = self.left = self.undo()
            if not failed:
                self.remove()
                return
        words = "could not undo: " + "; ".join(failed)
        if error is None:
            raise LabProblem(words, hint=f"the journal is kept: {self.path}; run `nodrop undo`")
        error.add_note(words)

    def _append(self, entry: Json) -> None:
        line = json.dumps(entry)
        if line in self._written:
            return
        with self.path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._written.add(line)

    def _read(self) -> tuple[Json, list[Json]]:
        """Head and entries; a half-written line was never acted upon, so it is passed over."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}, []
        entries = [entry for entry in map(_parse, lines) if entry is not None]
        if entries and "controller" in entries[0]:
            return entries[0], entries[1:]
        return {}, entries

    def _end_processes(self, entries: Sequence[Json], report: UndoReport) -> None:
        for entry in reversed(entries):
            if "process" in entry:
                _end(ProcessId.from_json(entry["process"]), entry["what"], report)
        for _ in range(KILL_ROUNDS):  # a process may fork while we look
            found = labelled_processes(self.label)
            if not found:
                return
            for process in found:
                _end(process, "process", report)
        report.failed.append(f"processes labelled {self.label} keep coming back")


def new_label() -> str:
    """Names one run on this host; short, because it becomes part of namespace names."""
    return secrets.token_hex(4)


def journal_folder() -> Path:
    return state_folder() / "undo"


def journals() -> list[DiskJournal]:
    return [DiskJournal(path) for path in sorted(journal_folder().glob("*.jsonl"))]


def undo_abandoned(*, running: bool = False) -> list[UndoReport]:
    """Undoes every journal whose controller is gone; with `running`, ends live controllers too."""
    reports = []
    for journal in journals():
        controller = journal.controller()
        if controller and journal.controller_lives():
            if not running:
                continue
            end_process(controller, politely_s=5.0)
        report = journal.undo_all()
        if not report.failed:
            journal.remove()
        reports.append(report)
    return reports


def namespaces_of(label: str) -> Iterator[str]:
    """Named network namespaces of one label that still stand."""
    if NETNS_FOLDER.is_dir():
        for path in sorted(NETNS_FOLDER.glob(f"nodrop-{label}-*")):
            yield path.name


def _reverse(what: str, argv: Sequence[str], report: UndoReport) -> None:
    try:
        done = run_command(argv, where="undo", timeout_s=UNDO_TIMEOUT_S, check=False)
    except LabProblem as problem:
        report.failed.append(f"{what}: {problem}")
        return
    if done.returncode == 0:
        report.done.append(what)
    elif not any(words in done.stderr for words in ALREADY_GONE):
        report.failed.append(f"{what}: {done.stderr.strip()}")


def _end(process: ProcessId, what: str, report: UndoReport) -> None:
    words = f"{what} {process.pid}"
    match end_process(process):
        case True:
            report.done.append(words)
        case False:
            report.failed.append(f"{words} does not end")


def _parse(line: bytes) -> Json | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
