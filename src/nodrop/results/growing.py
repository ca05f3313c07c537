"""A run directory that another process is writing: read in passing, without touching its lock."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nodrop.errors import BadInput
from nodrop.results.lock import is_written
from nodrop.results.names import LIVE, MANIFEST, RUNS, TRIAL, TRIALS
from nodrop.results.rundir import Json
from nodrop.results.trial import RecordError, TrialRecord
from nodrop.untrusted.bounds import SMALL_FILE_BYTES
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson, decode_object, member

TAIL_BYTES = 64 * 1024
"""A reading is half a kilobyte."""
RECENT_NS = 10**9


@dataclass(slots=True)
class GrowingRun:
    """Asked twice a second beside a measurement: what has not changed is not read again."""

    path: Path
    is_behind: bool = False
    """More whole lines may be there than `new_records` has read."""
    unread_lines: int = 0
    """Of those it has read, that are no records."""
    _read_bytes: int = 0
    """Of trials.jsonl."""
    _manifest: Json = field(default_factory=dict)
    _manifest_stamp: tuple[int, int, int] | None = None
    _listed: list[str] = field(default_factory=list)
    """Folders of trials that had not ended when `runs` last changed."""
    _listed_at_ns: int | None = None

    @classmethod
    def open(cls, path: Path) -> GrowingRun:
        if not Folder(path).is_file(MANIFEST):
            raise BadInput(
                f"{path}: not a run directory (no {MANIFEST})",
                hint="give the directory that `nodrop run` names when it begins",
            )
        return cls(path)

    def manifest(self) -> Json:
        """Replaced as a whole whenever it changes, so it is never half-written."""
        try:
            with Folder(self.path).open(MANIFEST) as file:
                found = os.fstat(file.fileno())
                stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp != self._manifest_stamp:
                text = Folder(self.path).read(MANIFEST)
                self._manifest = decode_object(text, most_bytes=SMALL_FILE_BYTES)
                self._manifest_stamp = stamp
        except (OSError, ValueError) as failed:
            raise BadInput(f"{self.path / MANIFEST}: {failed}") from failed
        return self._manifest

    def is_written(self) -> bool:
        """Whether a process holds the lock."""
        return is_written(self.path)

    def new_records(self, *, most_lines: int) -> Iterator[TrialRecord]:
        """Whole lines since the last call, at most so many. From the beginning if the file has
        become shorter."""
        self.is_behind = False
        folder = Folder(self.path)
        if not folder.is_there(TRIALS):  # of a run that was copied while it began
            return
        with folder.open(TRIALS) as file:
            size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == self._read_bytes:
            return
        if size_bytes < self._read_bytes:
            self._read_bytes = self.unread_lines = 0
        for read_lines, line in enumerate(folder.lines(TRIALS, begin=self._read_bytes)):
            if not line.endswith(b"\n"):
                return
            if read_lines == most_lines:
                self.is_behind = True
                return
            self._read_bytes += len(line)
            try:
                record = TrialRecord.from_line(line)
            except RecordError:  # the report says why
                self.unread_lines += 1
                continue
            yield record

    def under_way(self, planned: str | None, ended: Container[str]) -> str | None:
        """The trial that has a folder and has not ended: the one `planned` next, or else any."""
        runs = Folder(self.path).folder(RUNS)
        if planned and runs.is_there(planned) and not runs.folder(planned).is_there(TRIAL):
            return planned
        try:
            changed_ns = runs.changed_ns()
            # A folder that changed within a tick of the clock is listed again.
            if changed_ns != self._listed_at_ns or time.time_ns() - changed_ns < RECENT_NS:
                self._listed = [name for name in runs.names() if name not in ended]
                self._listed_at_ns = changed_ns
        except OSError:
            return None
        # From the end: a resumed run may have left an earlier folder half-written.
        for name in reversed(self._listed):
            if not runs.folder(name).is_there(TRIAL):
                return name
        return None

    def took_s(self, run: str) -> float | None:
        """All steps of an ended trial together."""
        try:
            found = decode_object(self._of(run).read(TRIAL), most_bytes=SMALL_FILE_BYTES)
            return float(sum(found["details"]["timings_s"].values()))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
            return None

    def began_mono_ns(self, run: str) -> int | None:
        try:
            return member(decode_object(next(self._of(run).lines(LIVE), b"")), "mono_ns", int)
        except (OSError, NotJson):
            return None

    def last_live_rows(self, run: str) -> list[Json]:
        """The newest readings and phases of a trial, oldest first."""
        try:
            with self._of(run).open(LIVE) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = file.read().split(b"\n")[:-1]
        except OSError:
            return []
        return [row for line in lines if (row := _object(line)) is not None]

    def _of(self, run: str) -> Folder:
        return Folder(self.path).folder(RUNS, run)


def _object(line: bytes) -> Json | None:
    try:
        return decode_object(line)
    except NotJson:
        return None  # the first may be cut
