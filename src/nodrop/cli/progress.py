"""Shows a run while it goes on: live on a terminal, plain lines when piped, JSON for machines."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, TextIO

from rich.console import Console, Group
from rich.live import Live as Display

from nodrop.cli.live import bar_line, phase_words, reading_line, remaining_words
from nodrop.cli.tables import cells_table, console, plan_words
from nodrop.measure.eta import Eta
from nodrop.measure.plan import Plan, PlannedTrial
from nodrop.measure.progress import Live, Progress, Silent
from nodrop.measure.summary import cell_key, outcomes, record_words, summarize_cells
from nodrop.report.escape import plain
from nodrop.results.trial import MARKS, TrialRecord, mark_of


@contextmanager
def shown(*, quiet: bool, as_json: bool) -> Iterator[Progress]:
    """Progress goes to stderr, so that stdout holds the result alone; with --json, to stdout."""
    err = console(stderr=True)
    if as_json:
        yield JsonLines(sys.stdout)
    elif quiet:
        yield Silent()
    elif err.is_terminal:
        with OnTerminal(err) as display:
            yield display
    else:
        yield PlainLines(err)


class PlainLines:
    """One line when a trial ends: what a log wants."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.plan: Plan | None = None
        self.ahead: Counter[str] = Counter()
        """Trials not yet run, by cell."""
        self.under_way: str | None = None
        """Its cell."""
        self.eta = Eta(guess_s=0.0)
        self.began: float | None = None

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        self.plan = plan
        done = {record.run for record in earlier}
        self.ahead = Counter(cell_key(t.cell) for t in plan.trials if t.run_name not in done)
        guess = (plan.around_s + (plan.load_s or 0.0)) / max(len(plan.trials), 1)
        self.eta = Eta(guess_s=guess)
        self._say(f"{directory}: {plan_words(plan)}")
        if done:
            self._say(f"resumed: {len(done)} trials are there, {self.ahead.total()} to go")

    def note(self, words: str) -> None:
        self._say(words)

    def trial_started(self, trial: PlannedTrial) -> None:
        self.began, self.under_way = time.monotonic(), cell_key(trial.cell)

    def phase(self, name: str) -> None:
        pass

    def live(self, reading: Live) -> None:
        pass

    def trial_ended(self, trial: PlannedTrial, record: TrialRecord) -> None:
        if self.began is not None:
            self.eta.ended(cell_key(trial.cell), time.monotonic() - self.began)
        self.began = self.under_way = None
        self.ahead[cell_key(trial.cell)] -= 1
        self._say(self._line(trial, record))

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        pass

    def _say(self, words: str) -> None:
        # A name from a file may hold escape sequences.
        self.out.print(plain(words, longest=2000), markup=False)

    def _line(self, trial: PlannedTrial, record: TrialRecord) -> str:
        total = len(self.plan.trials) if self.plan else 0
        left = f", {self._left()} left" if self.ahead.total() else ""
        return f"[{trial.index}/{total}] {trial.run_name}: {record_words(record)}{left}"

    def _left(self) -> str:
        begun_s = time.monotonic() - self.began if self.began is not None else 0.0
        rest = self.eta.remaining(self.ahead, begun=self.under_way, begun_s=begun_s)
        return remaining_words(rest)


class OnTerminal(PlainLines):
    """The trial under way in two lines that are drawn over.

    Drawn on events only, twice a second at most: a thread that redraws would take time from what
    is being measured.
    """

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self.display = Display(console=out, auto_refresh=False, transient=True)
        self.now = ""
        self.reading: Live | None = None

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        super().plan_started(plan, directory=directory, earlier=earlier)
        self.display.start()

    def trial_started(self, trial: PlannedTrial) -> None:
        super().trial_started(trial)
        self.now, self.reading = trial.run_name, None
        self._draw("")

    def phase(self, name: str) -> None:
        self._draw(name)

    def live(self, reading: Live) -> None:
        if reading.phase != "offer":
            return  # at rest: what was last seen under load stays until the trial has ended
        self.reading = reading
        self._draw(phase_words(reading))

    def trial_ended(self, trial: PlannedTrial, record: TrialRecord) -> None:
        super().trial_ended(trial, record)
        self.now, self.reading = "", None
        self._draw("")

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        super().finished(directory, records)
        self.display.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Also on Ctrl-C, or the error would be written over the display.
        self.display.stop()

    def _line(self, trial: PlannedTrial, record: TrialRecord) -> str:
        return f"{MARKS[mark_of(record)]} {trial.run_name}: {record_words(record)}"

    def _draw(self, phase: str) -> None:
        total = len(self.plan.trials) if self.plan else 1
        line = bar_line(
            total - self.ahead.total(), total, [f"{self._left()} left", self.now, phase]
        )
        self.display.update(Group(line, reading_line(self.reading)), refresh=True)


class JsonLines:
    """One object per event; the last is `finished` with the directory and the cells."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        self._event(
            "plan_started",
            directory=str(directory),
            trials=len(plan.trials),
            earlier=[record.run for record in earlier],
            seed=plan.seed,
        )

    def note(self, words: str) -> None:
        self._event("note", words=words)

    def trial_started(self, trial: PlannedTrial) -> None:
        self._event(
            "trial_started",
            index=trial.index,
            run=trial.run_name,
            cell=trial.cell,
            repetition=trial.repetition,
        )

    def phase(self, name: str) -> None:
        self._event("phase", phase=name)

    def live(self, reading: Live) -> None:
        self._event("live", **asdict(reading))

    def trial_ended(self, trial: PlannedTrial, record: TrialRecord) -> None:
        self._event("trial_ended", index=trial.index, trial=record.model_dump())

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        self._event(
            "finished",
            directory=str(directory),
            **outcomes(records),
            cells=[asdict(row) for row in summarize_cells(records)],
        )

    def _event(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}, ensure_ascii=False, default=str)
        self.out.write(line + "\n")
        self.out.flush()


def print_cells(records: Sequence[TrialRecord]) -> None:
    """The table a run ends with, on stdout."""
    console().print(cells_table(summarize_cells(records)))
