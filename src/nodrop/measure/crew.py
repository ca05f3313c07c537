"""Who measures: this process, or the pairs of a fleet; the manager gives trials, gets records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nodrop.hosts.seam import Json
from nodrop.measure.controllers.seam import Controller, TrialInput
from nodrop.measure.pair import Pair
from nodrop.measure.progress import Progress
from nodrop.results.trial import TrialRecord
from nodrop.results.writer import RunWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A trial that was measured; its files are in the run directory."""

    asked: TrialInput
    record: TrialRecord
    details: Json
    """For trial.json."""


class Crew(Protocol):
    def begin(self, controller: Controller, done: Sequence[TrialRecord]) -> bool:
        """Begins what can begin now; False when nothing is under way and nothing is to be added."""
        ...

    def ended(self) -> Sequence[Ended]:
        """Waits for the next. Nothing, if there is another reason to look again."""
        ...


class Here:
    """A `Crew` of one pair, which this process measures."""

    def __init__(
        self, pair: Pair, writer: RunWriter, progress: Progress, *, host: str | None
    ) -> None:
        self._pair, self._writer, self._progress = pair, writer, progress
        self._host = host
        """Its name, if the run began on another."""
        self._next: tuple[TrialInput, bool] | None = None

    def begin(self, controller: Controller, done: Sequence[TrialRecord]) -> bool:
        asked = controller.next(done)
        if asked is None:
            return False
        self._progress.trial_started(asked)
        self._next = asked, self._pair.plan.asks_tsc(asked, done)
        return True

    def ended(self) -> Sequence[Ended]:
        assert self._next is not None
        asked, asks_tsc = self._next
        record, details = self._pair.measure(
            asked,
            self._writer.trial(asked.run_name),
            asks_tsc=asks_tsc,
            phase=self._progress.phase,
            live=self._progress.live,
        )
        record = record.model_copy(update={"host": self._host})
        return [Ended(asked=asked, record=record, details=details)]
