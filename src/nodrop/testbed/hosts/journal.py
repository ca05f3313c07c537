"""The undo journal: what this run changed on the host, on disk before it is changed.

One file of JSON lines per run in the user's state folder, which only the user may write to. The
first line names the controller, the others name what reverses a change (hosts/reversal.py). If the
controller died (kill -9, power), `nodrop undo` reads the file and puts the host back; undoing twice
does no harm. If it is not certain that all is undone, the file stays, and that is said.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Self

from nodrop.errors import OF_A_DISK, LabProblem, NodropError, NotReady, SystemRefused, signals_held
from nodrop.testbed.hosts.api import Json, UndoAction
from nodrop.testbed.hosts.folders import is_root_of_host, state_folder
from nodrop.testbed.hosts.processes import (
    ProcessId,
    boot_id,
    end_process,
    holder,
    labelled_processes,
    pid_namespace,
    run_words,
    this_host,
    user_namespace,
    user_namespace_lives,
)
from nodrop.testbed.hosts.reversal import NETNS_FOLDER, reverse
from nodrop.untrusted import json_text
from nodrop.untrusted.folder import Folder, RefusedFile, append_whole
from nodrop.untrusted.json_text import NotJson, decode_object

MOST_PID = 1 << 22
"""PID_MAX_LIMIT of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """First line of a journal: the run that it belongs to, and the boot that it was written in."""

    controller: ProcessId
    boot_id: str
    user_namespace: int
    pid_namespace: int | None
    """None in journals of versions that did not write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChange:
    what: str
    action: str
    arguments: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedProcess:
    """A process that must not outlive the run."""

    what: str
    process: ProcessId


def read_head(line: bytes) -> Head:
    try:
        said = json_text.decode_object(line)
        return Head(
            controller=_process(json_text.member(said, "controller", dict)),
            boot_id=json_text.member(said, "boot_id", str),
            user_namespace=json_text.counted(said, "user_namespace"),
            pid_namespace=json_text.optional(said, "pid_namespace", int),
        )
    except NotJson as error:
        raise NotJson(f"its first line {error}, so whose it is is not known") from None


def read_entry(line: bytes) -> HostChange | StartedProcess:
    said = json_text.decode_object(line)
    what = json_text.member(said, "what", str)
    if "process" in said:
        return StartedProcess(what=what, process=_process(json_text.member(said, "process", dict)))
    if "argv" in said:
        raise NotJson(f"{what}: a command, as older versions of nodrop wrote: undo it by hand")
    arguments = json_text.member(said, "arguments", list)
    if not all(isinstance(argument, str) and _passes(argument) for argument in arguments):
        raise NotJson("arguments: must be texts that a program can be given")
    return HostChange(
        what=what, action=json_text.member(said, "action", str), arguments=tuple(arguments)
    )


def _passes(argument: str) -> bool:
    """No NUL and no half of a surrogate pair: execve(2) takes neither."""
    return "\0" not in argument and not any("\ud800" <= sign <= "\udfff" for sign in argument)


def _process(said: Json) -> ProcessId:
    pid = json_text.counted(said, "pid")
    if not 0 < pid <= MOST_PID:
        raise NotJson(f"pid: {pid} is not one that Linux gives")
    return ProcessId(pid, json_text.counted(said, "start_ticks"))


SUFFIX = ".jsonl"
KILL_ROUNDS = 10
ONLY_OWNER = 0o600
FOLDER_MODE = 0o700
LABEL = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
"""Form of a run's label, which becomes part of patterns and of names of namespaces."""


@dataclass(slots=True, kw_only=True)
class UndoReport:
    """The outcome of one undo, in words."""

    label: str
    """The run's label, or the lab's name if its receiver was not reached; empty if the report is
    not of one run."""
    host: str = ""
    """Host of the run; empty: this one."""
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Changes that were not undone, or of which that is not known."""
    goes_on: list[str] = field(default_factory=list)
    """Runs that were left alone."""


@dataclass(slots=True, kw_only=True)
class Pending:
    """Work that one undo would do, in words."""

    label: str
    what: Sequence[str] = ()
    """Changes to be put back, in this order."""
    goes_on: str = ""
    """Description of the run that owns the journal, if that run is still alive; empty if not."""


class DiskJournal:
    """An UndoJournal (hosts/api.py). As a context manager it undoes on exit, whatever happened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = path.stem
        self._folder = Folder(path.parent)
        self._file: FileIO | None = None
        """Ours while we live: its flock says so to every process of this host, whatever namespace
        it looks from."""
        self._written: set[str] = set()
        self.changed: Sequence[str] = ()
        """Changes of the host, each once; known when the context has ended."""
        self.left: Sequence[str] = ()
        """Changes that could not be put back."""

    @classmethod
    def create(
        cls, label: str | None = None, *, folder: Path | None = None, results: Path | None = None
    ) -> Self:
        """Opens a new journal for this process as the controller, which writes to `results`."""
        folder = _made_folder(folder or journal_folder())
        journal = cls(folder / f"{label or new_label()}{SUFFIX}")
        if journal._folder.is_there(journal.path.name):
            raise LabProblem(f"a journal of this label exists: {journal.path}")
        with _kept_in(folder):
            journal._begin(results)
        return journal

    def _begin(self, results: Path | None) -> None:
        # Whole and locked before it has its name: no reader sees it headless, or takes it for dead.
        begun = f".{self.label}.begun"
        file = self._folder.changing(begun, append=True, mode=ONLY_OWNER)
        fcntl.flock(file, fcntl.LOCK_EX)
        self._file = file
        self._append(
            {
                "controller": ProcessId.of(os.getpid()).as_json(),
                "boot_id": boot_id(),
                "user_namespace": user_namespace(),
                "pid_namespace": pid_namespace(),
                "holder": holder(),
                "since_unix_s": int(time.time()),
                "results": None if results is None else str(results.absolute()),
            }
        )
        self._folder.rename(begun, self.path.name)

    def push(self, *, what: str, action: UndoAction, arguments: Sequence[str] = ()) -> None:
        # The same change made anew for every trial needs one line, not one per trial.
        self._append({"what": what, "action": action, "arguments": list(arguments)})

    def process(self, pid: int, what: str) -> None:
        identity = ProcessId.find(pid)
        if identity:  # else it is gone already
            self._append({"what": what, "process": identity.as_json()})

    def undo(self) -> Sequence[str]:
        return self.undo_all().failed

    def undo_all(self) -> UndoReport:
        """Ends our processes, then reverses the changes, last first; the file stays."""
        report = UndoReport(label=self.label)
        try:
            head, entries, damage = self._read()
        except (OSError, NodropError, NotJson) as error:
            report.failed.append(_not_readable(self.path, error))
            return report
        if head.boot_id != boot_id():
            report.done.append("everything went with the last boot")
            return report
        report.failed += damage
        self._end_processes(entries, report)
        if head.user_namespace != user_namespace():
            # Its namespaces go with their last process; the commands would hit another place.
            if user_namespace_lives(head.user_namespace):
                report.failed.append("its user namespace still stands: undo it from there")
            return report
        for entry in reversed(entries):
            if isinstance(entry, HostChange):
                self._reverse(entry, report)
        for name in namespaces_of(self.label):
            what = f"network namespace {name}"
            change = HostChange(what=what, action=UndoAction.DELETE_NETNS, arguments=(name,))
            self._reverse(change, report)
        return report

    def pending(self) -> list[str]:
        """Entries to end or to put back, in words, the last first; damage to the journal comes
        before them."""
        head, entries, damage = self._read()
        if head.boot_id != boot_id():
            return [*damage]
        return [*damage, *dict.fromkeys(entry.what for entry in reversed(entries))]

    def _reverse(self, change: HostChange, report: UndoReport) -> None:
        try:
            if reverse(change.action, change.arguments, label=self.label):
                report.done.append(change.what)
        except (NodropError, OSError) as problem:
            report.failed.append(f"{change.what}: {problem}")

    def changes(self) -> list[HostChange]:
        """Changes that it names, in order; none if they went with the last boot."""
        head, entries, _ = self._read()
        if head.boot_id != boot_id():
            return []
        return [entry for entry in entries if isinstance(entry, HostChange)]

    def head(self) -> Head:
        """The run that the journal is of. NotJson or OSError if that cannot be known."""
        return self._read()[0]

    def first(self) -> str:
        """The journal's first line, as it is."""
        return next(iter(self._folder.lines(self.path.name)), b"").decode(errors="replace")

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Whether its run is over. If it is, no other process undoes it meanwhile."""
        with self._folder.open(self.path.name) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def remove(self) -> None:
        if self._folder.is_there(self.path.name):
            self._folder.remove(self.path.name)
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._file is None:  # removed: all is put back, or kept elsewhere
            return
        with signals_held():
            _, entries, _ = self._read()
            self.changed = list(dict.fromkeys(e.what for e in entries if isinstance(e, HostChange)))
            failed = self.left = self.undo()
            if not failed:
                self.remove()
                return
            self.close()
        words = "could not undo: " + "; ".join(failed)
        if error is None:
            raise LabProblem(words, hint=f"the journal is kept: {self.path}; run `nodrop undo`")
        error.add_note(words)

    def _append(self, entry: Json) -> None:
        line = json.dumps(entry)
        if line in self._written:
            return
        if self._file is None:
            raise LabProblem(f"{self.path}: this journal is not ours to write")
        with _kept_in(self.path.parent):
            append_whole(self._file, line.encode() + b"\n")
        self._written.add(line)

    def _read(self) -> tuple[Head, list[HostChange | StartedProcess], list[str]]:
        """Head, entries, and in words what is damaged in between. A last line without an end was
        never acted upon, so it is passed over."""
        self._folder.must_be_ours("the undo journals")
        if LABEL.fullmatch(self.label) is None:
            raise RefusedFile(self.path, "its name is that of no run")
        with self._folder.open(self.path.name) as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise RefusedFile(self.path, "is another user's, or others may write to it")
        lines = [line for line in self._folder.lines(self.path.name) if line.endswith(b"\n")]
        head = read_head(lines[0] if lines else b"")
        entries: list[HostChange | StartedProcess] = []
        damage = []
        for number, line in enumerate(lines[1:], 2):
            try:
                entries.append(read_entry(line))
            except NotJson as error:
                damage.append(f"what line {number} of {self.path} names: {error}")
        return head, entries, damage

    def _end_processes(
        self, entries: Sequence[HostChange | StartedProcess], report: UndoReport
    ) -> None:
        for entry in reversed(entries):
            if isinstance(entry, StartedProcess):
                _end(entry.process, entry.what, report)
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


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """A disk that is full is said to be this one, and not that of the results."""
    try:
        yield
    except OSError as lost:
        if lost.errno not in OF_A_DISK:
            raise
        raise SystemRefused(
            lost, during="keeping the undo journal", host=this_host(), files=str(folder)
        ) from lost


def must_be_kept() -> None:
    """NotReady, before anything is begun, if no journal can be written here."""
    folder = _made_folder(journal_folder())
    if not os.access(folder, os.W_OK):
        raise NotReady(
            f"{folder}: the undo journal cannot be kept there: it is read-only",
            hint="point XDG_STATE_HOME to a folder that can be written",
        )


def journal_folder() -> Path:
    return state_folder() / "undo"


def tuned_folder() -> Path:
    """Journals of settings that stay as they were set when their command has ended
    (`nodrop tune apply`): no undo of a killed run touches them."""
    return state_folder() / "tuned"


def journals(path: Path | None = None) -> list[DiskJournal]:
    """BadInput if their folder is another user's: what is in it would be done with our rights."""
    path = path or journal_folder()
    if not path.is_dir():
        return []
    folder = Folder(path)
    folder.must_be_ours("the undo journals")
    return [DiskJournal(path / name) for name in folder.names() if name.endswith(SUFFIX)]


def abandoned_labels() -> list[str]:
    """Labels of runs that are over and not undone. A journal that cannot be read is skipped."""
    found = []
    for journal in journals():
        with suppress(OSError, NodropError, NotJson), journal.held() as over:
            if over:
                found.append(journal.label)
    return found


def going_on() -> list[UndoReport]:
    return [
        UndoReport(label=label, goes_on=[f"{words} goes on"]) for label, words in living().items()
    ]


def living() -> dict[str, str]:
    """Label of each run that is under way on this host → words that say whose it is. A journal that
    cannot be read is skipped."""
    found = {}
    for journal in journals():
        with suppress(OSError, NodropError, NotJson), journal.held() as over:
            if not over:
                found[journal.label] = journal_words(journal.label, journal.first())
    return found


def beside_us() -> list[str]:
    """The runs of other processes that are under way on this host, in words."""
    found = []
    for journal in journals():
        with suppress(OSError, NodropError, NotJson), journal.held() as over:
            if over or (controller := journal.head().controller) == ProcessId.of(os.getpid()):
                continue
            first = journal.first()
            folder = json_text.optional(decode_object(first), "results", str)
            where = f" writes to {json_text.one_line(folder, longest=500)}" if folder else ""
            found.append(
                f"pid {controller.pid}, {journal_words(journal.label, first)}{where}".rstrip(",")
            )
    return found


def journal_words(label: str, first: str) -> str:
    """Words for the run, by the first line of its journal on some host."""
    try:
        return run_words({**decode_object(first), "label": label})
    except NotJson:  # no line was written
        return f"run {label}"


def pending(*, running: bool) -> list[Pending]:
    """Work that `undo_abandoned` would do, by journal; nothing is touched."""
    found = []
    for journal in [*journals(), *(journals(tuned_folder()) if running else ())]:
        one = Pending(label=journal.label)
        try:
            with journal.held() as over:
                if not over:
                    one.goes_on = journal_words(journal.label, journal.first())
                if over or running:
                    one.what = journal.pending()
        except (OSError, NodropError, NotJson) as error:
            one.what = [_not_readable(journal.path, error)]
        found.append(one)
    return found


def undo_abandoned(*, running: bool = False) -> list[UndoReport]:
    """Undoes every journal whose run is over; with `running`, also ends those that go on, and puts
    back what stays set. One that cannot be read does not stop the others."""
    found = [*journals(), *(journals(tuned_folder()) if running else ())]
    return [report for journal in found if (report := _undone(journal, running)) is not None]


def _undone(journal: DiskJournal, running: bool) -> UndoReport | None:
    """Undoes a journal; None if its run goes on."""
    report = UndoReport(label=journal.label)
    try:
        with journal.held() as over:
            if not over and not running:
                return None
            if not over and not _ended(journal, report):
                return report
        with journal.held() as over:
            if not over:
                report.failed.append(f"{journal.path}: another `nodrop undo` is at it")
                return report
            undone = journal.undo_all()
            report.done += undone.done
            report.failed += undone.failed
            if not report.failed:
                journal.remove()
    except FileNotFoundError:  # its own run has just undone it
        return report if report.done else None
    except (OSError, NodropError, NotJson) as error:
        report.failed.append(_not_readable(journal.path, error))
    return report


def _ended(journal: DiskJournal, report: UndoReport) -> bool:
    """Ends a controller that lives, politely at first: it then undoes by itself."""
    head = journal.head()
    if head.pid_namespace != pid_namespace():
        report.failed.append(
            f"{journal.path}: its run goes on in another PID namespace (a container?): end it there"
        )
        return False
    if end_process(head.controller, politely_s=5.0) is False:
        report.failed.append(f"{journal.path}: its run (pid {head.controller.pid}) does not end")
        return False
    report.done.append(f"run {journal.label} (pid {head.controller.pid}) ended")
    return True


def namespaces_of(label: str) -> Iterator[str]:
    """Named network namespaces of one label that still stand."""
    if NETNS_FOLDER.is_dir():
        for path in sorted(NETNS_FOLDER.glob(f"nodrop-{label}-*")):
            yield path.name


def _made_folder(folder: Path) -> Path:
    try:
        # Root makes no folder in another user's home (`sudo -E`): he could exchange it.
        above = next(path for path in folder.parents if path.exists())
        if is_root_of_host() and not folder.exists() and above.stat().st_uid != 0:
            raise NotReady(
                f"{folder}: the undo journals of root cannot be kept in another user's folder",
                hint="use sudo without -E, or point XDG_STATE_HOME to a folder of root's",
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        Folder(folder).must_be_ours("the undo journals")
    except OSError as error:
        raise NotReady(
            f"{folder}: the undo journal cannot be kept there: {error.strerror}",
            hint="point XDG_STATE_HOME to a folder that can be written",
        ) from None
    return folder


def _not_readable(path: Path, error: Exception) -> str:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return f"{path}: {why}; it is kept: put back what it names, then delete it"


def _end(process: ProcessId, what: str, report: UndoReport) -> None:
    words = f"{what} {process.pid}"
    match end_process(process):
        case True:
            report.done.append(words)
        case False:
            report.failed.append(f"{words} does not end")
