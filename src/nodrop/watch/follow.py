"""A run directory while it grows: what is done, what goes on, how long it will take."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join, quote
from typing import Any

from pydantic import ValidationError

from nodrop.capacity.answering import search_of
from nodrop.config.asked import resumed_command
from nodrop.config.search import Search
from nodrop.config.units import format_seconds, noun
from nodrop.errors import BadInput
from nodrop.results.layout import LIVE, MANIFEST, RUNS, TRIAL, TRIALS, is_written
from nodrop.results.rundir import Json, command_in
from nodrop.results.summary import Eta, Remaining, record_words
from nodrop.results.trial import MARKS, Live, RecordError, TrialRecord, live_rows, mark_of
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import SMALL_FILE_BYTES, NotJson, decode_object, member, plain
from nodrop.watch.so_far import CellsSoFar, SoFar, SoFarRow

TAIL_BYTES = 64 * 1024
"""A reading is half a kilobyte."""
RECENT_NS = 10**9


@dataclass(slots=True)
class GrowingRun:
    """A run that grows beside a measurement. It is asked twice a second: what has not changed is
    not read again."""

    path: Path
    is_behind: bool = False
    """More whole lines may be there than `new_records` has read."""
    unread_lines: int = 0
    """Lines read that are no records."""
    _read_bytes: int = 0
    """Bytes of trials.jsonl that were read."""
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

    def new_records(self, *, most_lines: int) -> Iterator[TrialRecord]:
        """Whole lines since the last call, `most_lines` at most. From the beginning if the file has
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
        """Time of all steps of an ended trial together."""
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


GUESS_S = 10.0
"""Seconds of a trial, until one has ended."""
MOST_ENDED = 200
"""A view holds the last ones: looking at a long run costs what looking at a short one does."""
MOST_READ = 500
"""Lines per look, 0.1 s of work: the first looks at a long run cost what later ones do."""
_CELL = re.compile(r"^\d+-(?:(.*)-)?r\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTrial:
    """A trial that has ended."""

    run: str
    mark: str
    """`good`, `loss`, `failed` or `void`, as in the report."""
    words: str
    row: SoFarRow


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The run at one moment, its words made safe to show. None = not known."""

    name: str
    directory: str
    question: str
    command: tuple[str, ...]
    """Words that began it; empty if they are not recorded."""
    total: int | None
    """Trials of the plan; None if their number depends on what they show."""
    certain_and_most: tuple[int, int] | None
    """Trials, if a rule or a verdict may end the run early."""
    rounds: tuple[int, int] | None
    """Round of the search that is under way, and the most there can be; None if the run is no
    search."""
    counts: Mapping[str, int]
    """Trials that have ended, by mark."""
    ended: tuple[EndedTrial, ...]
    """The last ones, in the order in which they were measured."""
    new: tuple[EndedTrial, ...]
    """Trials that ended since the last look."""
    goes_on: bool
    """A process holds the lock of the run directory."""
    finished: bool
    """Every trial of the plan has been run."""
    trial: str | None
    """The trial under way."""
    phase: str | None
    reading: Live | None
    """The newest of the trial under way."""
    remaining: Remaining | None
    at_most_s: float | None
    """Seconds until the budget is spent, or until a rule has no more repetitions; None = not
    known."""
    done_ratio: float | None
    """Share of the plan, of the budget or of the rounds that is behind."""
    unread_lines: int = 0
    """Lines of ended trials of which nothing can be shown."""
    is_behind: bool = False
    """More trials have ended than were read so far: the next look goes on."""
    so_far: SoFar | None = None
    """The answer as far as the trials show it; None: they show none."""

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    @property
    def over(self) -> bool:
        return (self.finished or not self.goes_on) and not self.is_behind

    @property
    def progress(self) -> str:
        """`3 of 9 trials`; of a search `18 trials, round 2 of at most 3`."""
        if self.total is not None:
            return f"{self.done} of {self.total} {noun(self.total, 'trial')}"
        trials = f"{self.done} trial" + "s" * (self.done != 1)
        if self.finished:
            return trials
        if self.rounds is not None:
            number, most = self.rounds
            return f"{trials}, round {number} of at most {most}"
        if self.certain_and_most is not None:
            certain, most = self.certain_and_most
            return f"{self.done} of {max(certain, self.done)} to {most} trials"
        return trials

    @property
    def next_step(self) -> str:
        """The command that shows what was found, or goes on; empty while the run does."""
        if not self.over:
            return ""
        if self.finished:
            return f"nodrop report {quote(self.directory)}"
        began = self.command or ("nodrop", "run", "EXPERIMENT")
        return join(resumed_command(began, self.directory))

    @property
    def left(self) -> str:
        """`1 min 10 s ± 4 s left`; `` if nothing is left or nothing is known."""
        if self.over:
            return ""
        if self.at_most_s is not None:
            return f"at most {format_seconds(self.at_most_s)} left"
        return f"{self.remaining.words} left" if self.remaining else ""


@dataclass(slots=True)
class RunFollower:
    """Looks at one run directory again and again; each look reads what is new."""

    run: GrowingRun
    _marks: dict[str, str] = field(default_factory=dict)
    """Run → mark, of every trial that has ended."""
    _counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(MARKS, 0)))
    _last: tuple[EndedTrial, ...] = ()
    _eta: Eta = field(default_factory=lambda: Eta(guess_s=GUESS_S))
    _order: object = field(default_factory=object)
    """Order of the manifest when it was last read."""
    _ahead: dict[str, None] = field(default_factory=dict)
    """Trials of the plan that have not ended, in order."""
    _cells: Counter[str] = field(default_factory=Counter)
    """Trials of the plan that have not ended, counted by cell."""
    _total: int = 0
    """Trials that were certain before the first one."""
    _search: Search | None = None
    _most: int | None = None
    """Trials of all cells, if a rule or a verdict may end them earlier."""
    _round: int = 1
    _spent_s: dict[str, float] = field(default_factory=dict)
    """Run → seconds that the trial took, in a search."""
    _gathered: CellsSoFar = field(default_factory=lambda: CellsSoFar(None))

    @classmethod
    def of(cls, path: Path) -> RunFollower:
        return cls(GrowingRun.open(path))

    def look(self) -> View:
        """BadInput if the directory is gone."""
        # Asked first: if a run ends while we read, the next look still reports its end.
        goes_on = is_written(self.run.path)
        manifest = self.run.manifest()
        self._plan(manifest)
        records = tuple(self.run.new_records(most_lines=MOST_READ))
        for record in () if self.run.is_behind else records:
            self._time(record.run)
        new = tuple(map(self._end, records))
        again = {trial.run for trial in new}
        self._last = (*(t for t in self._last if t.run not in again), *new)[-MOST_ENDED:]
        planned = next(iter(self._ahead), None)
        under_way = self.run.under_way(planned, self._marks) if goes_on else None
        row, reading = self._newest(under_way)
        finished = "finished_utc" in manifest and len(self._marks) >= self._total
        began_ns = None if under_way is None else self.run.began_mono_ns(under_way)
        begun_s = 0.0 if began_ns is None else max(0.0, (time.monotonic_ns() - began_ns) / 1e9)
        begun = None if under_way is None else cell_of(under_way)
        remaining = self._eta.remaining(self._cells, begun=begun, begun_s=begun_s)
        is_open = self._search is not None or self._most is not None
        at_most_s = self._at_most_s(under_way, begun_s)
        return View(
            name=plain(manifest.get("name") or self.run.path.name),
            directory=plain(self.run.path, longest=1000),
            question=plain(manifest.get("question") or "", longest=1000),
            command=command_in(manifest),
            total=None if is_open else self._total or None,
            certain_and_most=None if self._most is None else (self._total, self._most),
            rounds=None if self._search is None else (self._round, self._search.rounds),
            counts=dict(self._counts),
            ended=self._last,
            new=new,
            goes_on=goes_on,
            finished=finished,
            trial=None if under_way is None else plain(under_way),
            phase=None if row is None else plain(row.get("phase")),
            reading=reading,
            remaining=remaining if self._total and not is_open else None,
            at_most_s=at_most_s,
            done_ratio=1.0 if finished else self._done_ratio(at_most_s),
            unread_lines=self.run.unread_lines,
            is_behind=self.run.is_behind,
            so_far=None if self.run.is_behind else self._gathered.look(),
        )

    def _plan(self, manifest: Mapping[str, Any]) -> None:
        order = manifest.get("order")
        if order is self._order:
            return
        self._order = order
        runs = dict.fromkeys(map(str, order)) if isinstance(order, list) else {}
        self._total = len(runs)
        self._ahead = {run: None for run in runs if run not in self._marks}
        self._cells = Counter(map(cell_of, self._ahead))
        self._search = self._gathered.search = search_of(manifest)
        cells, each = manifest.get("cells"), manifest.get("repetitions")
        most = len(cells) * each if isinstance(cells, list) and isinstance(each, int) else 0
        self._most = most if most > self._total and not self._search else None

    def _end(self, record: TrialRecord) -> EndedTrial:
        run, mark = record.run, mark_of(record)
        if run in self._marks:
            self._counts[self._marks[run]] -= 1  # repeated: the last one counts
        self._marks[run] = mark
        self._counts[mark] += 1
        if record.searched is not None:
            self._round = max(self._round, record.searched.round)
            self._spent_s[run] = record.took_s or 0.0
        if run in self._ahead:
            del self._ahead[run]
            self._cells[cell_of(run)] -= 1
        self._gathered.add(record)
        words = plain(record_words(record), longest=1000)
        row = SoFarRow.of(record)
        return EndedTrial(run=plain(run), mark=mark, words=words, row=row)

    def _time(self, run: str) -> None:
        took_s = None if run in self._marks else self.run.took_s(run)
        if took_s is not None:
            self._eta.ended(cell_of(run), took_s)

    def _newest(self, under_way: str | None) -> tuple[dict[str, Any] | None, Live | None]:
        """The last row, and the last that has figures."""
        if under_way is None:
            return None, None
        rows = self.run.last_live_rows(under_way)
        for row in reversed(rows):
            if "intended_packets" in row:
                try:
                    return rows[-1], live_rows().validate_python(row)
                except ValidationError:
                    break  # of another version
        return (rows[-1], None) if rows else (None, None)

    def _at_most_s(self, under_way: str | None, begun_s: float) -> float | None:
        if self._search is not None:
            budget_s = self._search.budget_s
            spent_s = sum(self._spent_s.values()) + begun_s
            return None if budget_s is None else max(0.0, budget_s - spent_s)
        if self._most is None or under_way is None:
            return None
        ahead = {cell_of(under_way): max(self._most - len(self._marks), 1)}
        return self._eta.remaining(ahead, begun=cell_of(under_way), begun_s=begun_s).seconds

    def _done_ratio(self, left_s: float | None) -> float | None:
        if self._search is None:
            of = self._most or self._total
            return min(len(self._marks) / of, 1.0) if of else None
        if left_s is not None and self._search.budget_s:
            return 1.0 - left_s / self._search.budget_s
        return (self._round - 1) / self._search.rounds


def cell_of(run: str) -> str:
    """`docker-4x` of `0007-docker-4x-r03`: trials of one cell have it in common."""
    found = _CELL.match(run)
    return (found[1] or "") if found else run
