"""Cells in blocked random order until a comparison of them can tell, or the budget is spent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from nodrop.measure.controllers.seam import Controller, May, Outlook, TrialInput, any_trial
from nodrop.results.trial import TrialRecord
from nodrop.stats.eta import Remaining

LOOKS = (12, 20, 32, 50)
"""Trials of each cell that are not void; after these, one look at the end. Each look costs half of
the error that is left, so there are few."""

Told = Callable[[Sequence[TrialRecord], int], bool]
"""Do these records tell, at the look of this number?"""


class UntilTold:
    """A `Controller`. A look is taken once, when its number of trials is reached, so a resumed run
    takes none again."""

    heeds_void = False

    def __init__(
        self,
        blocks: Controller,
        *,
        most: int,
        told: Told,
        budget_s: float | None,
        cells: int = 2,
    ) -> None:
        """`most`: trials of each cell, as the blocks have them."""
        self._blocks, self._told, self._budget_s = blocks, told, budget_s
        self._cells = cells
        self._looks = tuple(look for look in LOOKS if look < most)

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        look = self._due(done)
        if look is not None and self._told(done, look):
            return None
        if self._budget_s is not None and sum(r.took_s or 0.0 for r in done) >= self._budget_s:
            return None
        return self._blocks.next(done, may)

    def look_at_the_end(self, done: Sequence[TrialRecord]) -> int:
        """The number of the last look: it was taken, or it is one more."""
        due = self._due(done)
        return sum(look <= self._least(done) for look in self._looks) if due is None else due

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        most = self._blocks.outlook(done)
        rest = self._within_budget(most.at_most or most.at_least, done)
        ahead = next((look for look in self._looks if look > self._least(done)), None)
        if ahead is None or not rest.trials:
            return Outlook(at_least=rest, at_most=rest, next_s=most.next_s)
        trials = min(max(self._cells * ahead - len(done), 0), rest.trials)
        seconds = rest.seconds * trials / rest.trials
        least = Remaining(trials=trials, seconds=seconds, spread_s=None)
        return Outlook(at_least=least, at_most=rest, next_s=most.next_s)

    def _within_budget(self, rest: Remaining, done: Sequence[TrialRecord]) -> Remaining:
        """The trial that the budget ends in is measured whole."""
        if self._budget_s is None or not rest.trials:
            return rest
        left_s = self._budget_s - sum(r.took_s or 0.0 for r in done)
        each_s = rest.seconds / rest.trials
        if left_s >= rest.seconds or each_s <= 0:
            return rest
        trials = max(0, math.ceil(left_s / each_s))
        return Remaining(trials=trials, seconds=trials * each_s, spread_s=None)

    def beforehand(self) -> Sequence[TrialInput]:
        first = self._looks[0] if self._looks else None
        found = self._blocks.beforehand()
        return found if first is None else found[: self._cells * first]

    def _due(self, done: Sequence[TrialRecord]) -> int | None:
        """The look that the last record made due."""
        least = self._least(done)
        if least in self._looks and self._least(done[:-1]) < least:
            return self._looks.index(least)
        return None

    def _least(self, done: Sequence[TrialRecord]) -> int:
        """Trials of the cell that has fewest."""
        counted = Counter(repr(record.cell) for record in done if record.outcome != "void")
        return min(counted.values()) if len(counted) == self._cells else 0
