"""The layout of a run directory: its files' names, its lock, its trials' folders, their raw files.

No other room knows a file name of it.

<name>-<utc>/
    manifest.json  experiment.toml  lab.toml  trials.jsonl  lock  [findings.json  imported.json
    drops.jsonl]
    runs/<run>/    trial.json ledger.json offered.json counters.json samples-<host>.jsonl
                   levels-<host>.jsonl live.jsonl
                   sut/ [profile.json] [elsewhere.json]
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from nodrop.config.units import count_of
from nodrop.errors import BadInput, LabProblem
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import GUEST_FILE_BYTES

MANIFEST = "manifest.json"
EXPERIMENT = "experiment.toml"
LAB = "lab.toml"
PAGE = "index.html"
"""Page of a report, and of a folder of run directories."""
TRIALS = "trials.jsonl"
RUNS = "runs"
LOCK = "lock"
STORED = "stored.jsonl"
"""File in the local copy of a stored run: the store's address, and which files are the same there.
"""
WRITING = "writing.json"
"""File in a store while a run is written there: who writes it."""
TRIAL = "trial.json"
LIVE = "live.jsonl"
DROPS = "drops.jsonl"
"""Intervals that `nodrop drops --record` saw, in a run directory without trials."""
SUT = "sut"
"""The folder of files that a SUT wrote; no report relies on them."""
ELSEWHERE = "elsewhere.json"
"""The file of a trial whose raw files lie on the storage of its lab: which, and where."""
PROFILE = "profile"
"""The profile of a trial with `measure.profile`."""
_SAMPLES = "samples-"
_LEVELS = "levels-"
_ROWS = ".jsonl"


class WrittenPart(StrEnum):
    """A part of a written report."""

    HTML = "html"
    CSV = "csv"
    MARKDOWN = "markdown"
    LATEX = "latex"
    FIGURES = "figures"


def samples_of(host: str) -> str:
    """The rows of one host's sampler."""
    return f"{_SAMPLES}{safe_name(host)}{_ROWS}"


def levels_of(host: str) -> str:
    """The levels of the SUT's capture rings on one host."""
    return f"{_LEVELS}{safe_name(host)}{_ROWS}"


def sampled_host(file: str) -> str | None:
    """The host whose samples a file holds; None if it holds none."""
    if file.startswith(_SAMPLES) and file.endswith(_ROWS):
        return file.removeprefix(_SAMPLES).removesuffix(_ROWS)
    return None


def safe_name(name: str) -> str:
    """A name from an experiment or lab file as one path component that cannot leave its folder."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
    return safe.lstrip(".")[:100] or "_"


# The lock of a run directory: one process writes, others see whether one does, and what a
# killed one left is cut off.

LOCKS = Path("/proc/locks")


def locked(path: Path) -> FileIO:
    """flock(2): the kernel lets go of it when the holder dies, however it dies."""
    file = Folder(path).changing(LOCK)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failed:
        holder = file.read(20).decode(errors="replace").strip()
        file.close()
        raise BadInput(
            f"{path}: another nodrop (pid {holder if holder.isdecimal() else 'unknown'}) "
            "is writing to this run directory",
            hint="wait for it, or watch it with `nodrop watch`",
        ) from failed
    file.truncate()
    file.write(f"{os.getpid()}\n".encode())
    return file


def is_written(path: Path) -> bool:
    """Whether a process holds the flock: asked of the kernel's list, for whoever takes the lock
    even for a moment could turn away a run that wants to resume."""
    try:
        with Folder(path).open(LOCK) as file:
            inode = os.fstat(file.fileno()).st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return False
    return any(
        words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode)
        for words in map(str.split, lines)
        if len(words) > 5
    )


def cut_half_line(folder: Folder) -> None:
    """The next line must not be glued to what an interrupted writer left."""
    whole_bytes = 0
    if folder.is_there(TRIALS):
        lines = filter(lambda line: line.endswith(b"\n"), folder.lines(TRIALS))
        whole_bytes = sum(map(len, lines))
    with folder.open_to_change(TRIALS) as file:
        file.truncate(whole_bytes)
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFolder:
    """The folder into which one trial puts its files while it is measured."""

    run: str
    path: Path

    @classmethod
    def within(cls, above: Path, run: str) -> TrialFolder:
        """A new folder for a trial that is measured elsewhere than its run directory."""
        folder = Folder(above, (safe_name(run),))
        folder.make()
        folder.folder(SUT).make()
        return cls(run=run, path=folder.path)

    @property
    def sut(self) -> Path:
        return self.path / SUT

    def packed(self) -> dict[str, bytes]:
        """Files of the folder, by their paths in it: to be sent to who writes the run directory."""
        return dict(_files(Folder(self.path)))

    def unpack(self, files: Mapping[str, bytes]) -> None:
        """Writes the files that `packed` gave of another folder."""
        for name, content in files.items():
            *folders, file = name.split("/")
            folder = Folder(self.path, tuple(folders))
            folder.make_all()
            folder.write(file, content, durable=False)

    def samples(self, host: str) -> Path:
        """Rows of that host's sampler."""
        return self.path / samples_of(host)

    def levels(self, host: str) -> Path:
        """Levels of the SUT's capture rings on that host."""
        return self.path / levels_of(host)

    def append_live(self, row: Mapping[str, Any]) -> None:
        """A reading of the trial under way; for watching, so nothing waits for the disk."""
        with Folder(self.path).open_to_change(LIVE, append=True) as file:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """A JSON file of this trial: `ledger`, `offered`, `counters` …; not `trial`."""
        if f"{name}.json" == TRIAL:
            raise ValueError("trial.json marks a trial as whole: RunWriter.finish writes it")
        write_json(Folder(self.path), f"{safe_name(name)}.json", content)


def _files(folder: Folder) -> Iterator[tuple[str, bytes]]:
    for name in folder.names():
        path = "/".join((*folder.below, name))
        if folder.is_file(name):
            yield path, folder.read(name, most_bytes=GUEST_FILE_BYTES)
        elif name in folder.folders():
            yield from _files(folder.folder(name))


def _sha256_of(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while part := file.read(1 << 20):
        digest.update(part)
    return digest.hexdigest()


def files_of_trial(run_directory: Path, run: str) -> Iterator[tuple[Folder, str, int, str]]:
    """Folder, name, bytes and hash of each, that last by which the trial counts."""
    top = Folder(run_directory)
    last: list[tuple[Folder, str, int, str]] = []
    waiting = [top.folder(RUNS, safe_name(run))]
    while waiting:
        folder = waiting.pop()
        for name in folder.names():
            if folder.is_file(name):
                with folder.open(name) as file:
                    size = os.fstat(file.fileno()).st_size
                    found = (folder, name, size, _sha256_of(file))
                if name == TRIAL:
                    last.append(found)
                else:
                    yield found
        waiting += [folder.folder(name) for name in folder.folders()]
    yield from last


def write_json(folder: Folder, name: str, content: Mapping[str, Any]) -> None:
    folder.write(name, json_text(content))


def json_text(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    return text.encode() + b"\n"


AGAIN_S = 60.0
"""Time after which a place that was lost is tried again, when a trial ends."""


class Follower(Protocol):
    """Brings files of a run to its place."""

    way: Way

    def ended(self, run: str) -> None:
        """Brings the files of a trial that has ended; they are here."""
        ...

    def rest(self) -> None:
        """Brings all that did not follow yet. LabProblem, with what to do about it, if it
        cannot."""
        ...


class Way:
    """The way to such a place, which may be lost for a while."""

    def __init__(self, place: str, path: Path) -> None:
        """`place`, in words; `path`: of the run here."""
        self._place, self._path = place, path
        self.notes: list[str] = []
        """Notes for whoever shows the run: the place is lost, or found again."""
        self._lost_at: float | None = None

    def said(self) -> list[str]:
        """The notes, once."""
        found, self.notes = self.notes, []
        return found

    def put(self, some: Callable[[], None], *, rest: Callable[[], None] | None = None) -> None:
        """`some`, unless the place is lost; once it is tried again, the `rest` of all."""
        if self._lost_at is None:
            try:
                some()
            except LabProblem as lost:
                self._lost_at = time.monotonic()
                self.notes.append(f"{lost.message}; files stay in {self._path} until it answers")
        elif rest is not None and time.monotonic() - self._lost_at >= AGAIN_S:
            try:
                rest()
            except LabProblem:
                self._lost_at = time.monotonic()
            else:
                self._lost_at = None
                self.notes.append(f"{self._place}: is there again, and has what it lacked")


Json = dict[str, Any]
LARGE_BYTES = 1 << 18
"""Size from which on a file of the SUT is raw: a log that is read by eye is shorter, and stays."""


class Keeper(Protocol):
    """A host that keeps files."""

    host: str
    path: str
    """The folder there in which runs have theirs."""

    def keep(self, folder: Folder, name: str, sha256: str, *, there: str) -> None:
        """Keeps a file in folder `there`; it is on disk when this returns. LabProblem, in one
        sentence, if it cannot."""
        ...


class RawFiles:
    """The raw files of a run: a `Follower`."""

    def __init__(self, path: Path, keeper: Keeper) -> None:
        self._keeper, self._run = keeper, Folder(path)
        self._there = f"{keeper.path}/{path.resolve().name}"
        self.way = Way(f"{keeper.host}:{self._there}", path)

    def facts(self) -> Json:
        """Facts for the manifest."""
        return {"host": self._keeper.host, "folder": self._there}

    def ended(self, run: str) -> None:
        self.way.put(lambda: self._follow(run), rest=self._follow_all)

    def rest(self) -> None:
        try:
            self._follow_all()
        except LabProblem as lost:
            path, left = self._run.path, len([*self._waiting()])
            raise LabProblem(
                f"{lost.message}; raw files of {count_of(left, 'trial')} lie in {path} alone",
                hint=f"nothing is lost: --resume --out {path} puts them there",
            ) from lost

    def _follow_all(self) -> None:
        for run in self._waiting():
            self._follow(run)

    def _waiting(self) -> Iterator[str]:
        runs = self._run.folder(RUNS)
        for run in runs.folders():
            if runs.folder(run).is_file(TRIAL) and not runs.folder(run).is_file(ELSEWHERE):
                yield run

    def _follow(self, run: str) -> None:
        """Brings files of a trial. Nothing is removed here before a file says where it is."""
        raw = [
            one
            for one in files_of_trial(self._run.path, run)
            if _is_raw(one[0].below[2:], name=one[1], size=one[2])
        ]
        for folder, name, _, sha256 in raw:
            self._keeper.keep(folder, name, sha256, there=self._folder(folder))
        files = [
            {"name": "/".join((*folder.below[2:], name)), "bytes": size, "sha256": sha256}
            for folder, name, size, sha256 in raw
        ]
        trial = self._run.folder(RUNS, run)
        place = {"host": self._keeper.host, "folder": self._folder(trial)}
        write_json(trial, ELSEWHERE, {**place, "files": files})
        for folder, name, _, _ in raw:
            folder.remove(name)

    def _folder(self, here: Folder) -> str:
        return "/".join((self._there, *here.below[1:]))


def _is_raw(below: tuple[str, ...], *, name: str, size: int) -> bool:
    """`below`: the folders between the trial's and the file."""
    if below[:1] == (SUT,):
        return size >= LARGE_BYTES
    return not below and sampled_host(name) is not None
