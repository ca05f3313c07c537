"""A run directory that somebody else is writing: read in passing, without touching its lock."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodrop.errors import BadInput
from nodrop.results.rundir import LIVE, LOCK, MANIFEST, RUNS, TRIAL, TRIALS, Json
from nodrop.results.trial import RecordError, TrialRecord

LOCKS = Path("/proc/locks")
TAIL_BYTES = 64 * 1024
"""A reading is half a kilobyte."""


@dataclass(slots=True)
class GrowingRun:
    path: Path
    _read_bytes: int = 0
    """Of trials.jsonl."""

    @classmethod
    def open(cls, path: Path) -> GrowingRun:
        if not (path / MANIFEST).is_file():
            raise BadInput(
                f"{path}: not a run directory (no {MANIFEST})",
                hint="give the directory that `nodrop run` names when it begins",
            )
        return cls(path)

    def manifest(self) -> Json:
        """Replaced as a whole whenever it changes, so it is never half-written."""
        try:
            found = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as failed:
            raise BadInput(f"{self.path / MANIFEST}: {failed}") from failed
        return found if isinstance(found, dict) else {}

    def is_written(self) -> bool:
        """Whether a process holds the flock: asked of the kernel's list, for whoever takes the lock
        even for a moment could turn away a run that wants to resume."""
        try:
            inode = (self.path / LOCK).stat().st_ino
            lines = LOCKS.read_text().splitlines()
        except OSError:
            return False
        return any(
            words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode)
            for words in map(str.split, lines)
            if len(words) > 5
        )

    def new_records(self) -> Iterator[TrialRecord]:
        """Whole lines since the last call. From the beginning where the file has become shorter."""
        with (self.path / TRIALS).open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._read_bytes:
                self._read_bytes = 0
            file.seek(self._read_bytes)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            try:
                yield TrialRecord.from_line(line.decode())
            except (RecordError, UnicodeDecodeError):
                continue  # the report names damage; here there is nothing to show of it

    def under_way(self) -> str | None:
        """The trial that has a folder and has not ended."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.path / RUNS))
        except OSError:
            return None
        # From the end: a resumed run may have left an earlier folder half-written.
        for name in reversed(names):
            if not (self.path / RUNS / name / TRIAL).exists():
                return name
        return None

    def took_s(self, run: str) -> float | None:
        """All steps of an ended trial together."""
        try:
            found = json.loads((self.path / RUNS / run / TRIAL).read_text(encoding="utf-8"))
            return float(sum(found["details"]["timings_s"].values()))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def began_mono_ns(self, run: str) -> int | None:
        try:
            with (self.path / RUNS / run / LIVE).open(encoding="utf-8") as file:
                began = json.loads(file.readline())["mono_ns"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return began if isinstance(began, int) else None

    def last_live_rows(self, run: str) -> list[Json]:
        """The newest readings and phases of a trial, oldest first."""
        try:
            with (self.path / RUNS / run / LIVE).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = file.read().split(b"\n")[:-1]
        except OSError:
            return []
        rows = map(_object, lines)
        return [row for row in rows if row is not None]


def _object(line: bytes) -> Json | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None  # the first may be cut
    return found if isinstance(found, dict) else None
