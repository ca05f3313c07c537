"""A run directory while it grows: what is done, what goes on, how long it will take."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.measure.eta import Eta, Remaining
from nodrop.measure.progress import Live
from nodrop.measure.summary import record_words
from nodrop.report.escape import plain
from nodrop.results.growing import GrowingRun
from nodrop.results.trial import TrialRecord, mark_of

GUESS_S = 10.0
"""Per trial, until one has ended."""
_CELL = re.compile(r"^\d+-(?:(.*)-)?r\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A trial that has ended."""

    run: str
    mark: str
    """`good`, `loss`, `failed` or `void`, as in the report."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The run at one moment, its words made safe to show. None = not known."""

    name: str
    question: str
    total: int | None
    """Trials of the plan."""
    ended: tuple[Ended, ...]
    """In the order in which they were measured."""
    goes_on: bool
    """Somebody holds the lock of the run directory."""
    finished: bool
    """Every trial of the plan has been run."""
    trial: str | None
    """The one under way."""
    phase: str | None
    reading: Live | None
    """The newest of the trial under way."""
    remaining: Remaining | None

    @property
    def over(self) -> bool:
        return self.finished or not self.goes_on


@dataclass(slots=True)
class Follower:
    """Looks at one run directory again and again; each look reads what is new."""

    run: GrowingRun
    _records: dict[str, TrialRecord] = field(default_factory=dict)
    _took_s: dict[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Follower:
        return cls(GrowingRun.open(path))

    def look(self) -> View:
        """BadInput where the directory is gone."""
        # Asked first: a run that ends while we read is still told to the end by the next look.
        goes_on = self.run.is_written()
        manifest = self.run.manifest()
        for record in self.run.new_records():
            self._records[record.run] = record
            self._took_s[record.run] = self.run.took_s(record.run)
        order = _texts(manifest.get("order"))
        under_way = self.run.under_way() if goes_on else None
        row, reading = self._newest(under_way)
        return View(
            name=plain(manifest.get("name") or self.run.path.name),
            question=plain(manifest.get("question") or "", longest=1000),
            total=len(order) or None,
            ended=tuple(map(_ended, self._records.values())),
            goes_on=goes_on,
            finished="finished_utc" in manifest and len(self._records) >= len(order),
            trial=None if under_way is None else plain(under_way),
            phase=None if row is None else plain(row.get("phase")),
            reading=reading,
            remaining=self._remaining(order, under_way) if order else None,
        )

    def _newest(self, under_way: str | None) -> tuple[dict[str, Any] | None, Live | None]:
        """The last row, and the last that has figures."""
        if under_way is None:
            return None, None
        rows = self.run.last_live_rows(under_way)
        for row in reversed(rows):
            if "intended_packets" in row:
                try:
                    return rows[-1], Live.from_row(row)
                except TypeError:
                    break  # of another version
        return (rows[-1], None) if rows else (None, None)

    def _remaining(self, order: Sequence[str], under_way: str | None) -> Remaining:
        eta = Eta(guess_s=GUESS_S)
        for run, took_s in self._took_s.items():
            if took_s is not None:
                eta.ended(cell_of(run), took_s)
        ahead = [run for run in order if run not in self._records]
        begun_s = 0.0
        if under_way is not None:
            began_ns = self.run.began_mono_ns(under_way)
            if began_ns is not None:
                begun_s = max(0.0, (time.monotonic_ns() - began_ns) / 1e9)
        return eta.remaining(map(cell_of, ahead), begun_s=begun_s)


def cell_of(run: str) -> str:
    """`docker-4x` of `0007-docker-4x-r03`: trials of one cell have it in common."""
    found = _CELL.match(run)
    return (found[1] or "") if found else run


def _ended(record: TrialRecord) -> Ended:
    words = plain(record_words(record), longest=1000)
    return Ended(run=plain(record.run), mark=mark_of(record), words=words)


def _texts(found: object) -> list[str]:
    return [str(item) for item in found] if isinstance(found, list) else []
