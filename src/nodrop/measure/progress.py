"""Progress that a run reports while it goes on, for whatever shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from nodrop.measure.controllers.seam import TrialInput
from nodrop.measure.plan import Plan
from nodrop.results.live import Live
from nodrop.results.trial import TrialRecord


class Progress(Protocol):
    """Called from the thread that runs the trials, in this order; a call must return quickly."""

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        """`earlier`: records of a resumed run, whose trials are not run again."""
        ...

    def note(self, words: str) -> None:
        """Something about the run as a whole: what is being prepared, what could not be undone."""
        ...

    def trial_started(self, trial: TrialInput) -> None: ...

    def phase(self, name: str) -> None:
        """A step of the trial's lifecycle begins."""
        ...

    def live(self, reading: Live) -> None: ...

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None: ...

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        """Everything that could be run was; also called if the run was interrupted."""
        ...


class Silent:
    """Reports nothing (-q, and tests)."""

    def plan_started(self, plan: Plan, *, directory: Path, earlier: Sequence[TrialRecord]) -> None:
        pass

    def note(self, words: str) -> None:
        pass

    def trial_started(self, trial: TrialInput) -> None:
        pass

    def phase(self, name: str) -> None:
        pass

    def live(self, reading: Live) -> None:
        pass

    def trial_ended(self, trial: TrialInput, record: TrialRecord) -> None:
        pass

    def finished(self, directory: Path, records: Sequence[TrialRecord]) -> None:
        pass
