"""A plan that several pairs share: as many trials, in less time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from nodrop.measure.controllers.seam import Controller, May, Outlook, TrialInput, any_trial
from nodrop.measure.plan import Plan
from nodrop.results.trial import TrialRecord
from nodrop.stats.eta import Remaining


class InParallel:
    """A `Controller` whose trials take this part of the time."""

    def __init__(self, of: Controller, part: float) -> None:
        self._of, self._part = of, part
        self.heeds_void = of.heeds_void

    def next(self, done: Sequence[TrialRecord], may: May = any_trial) -> TrialInput | None:
        return self._of.next(done, may)

    def outlook(self, done: Sequence[TrialRecord]) -> Outlook:
        found = self._of.outlook(done)
        most = found.at_most
        return replace(
            found,
            at_least=self._shared(found.at_least),
            at_most=None if most is None else self._shared(most),
        )

    def beforehand(self) -> Sequence[TrialInput]:
        return self._of.beforehand()

    def _shared(self, one: Remaining) -> Remaining:
        return replace(one, seconds=one.seconds * self._part)


def in_parallel(plan: Plan, pairs: int, *, host_invariant: bool) -> Plan:
    """A cell that stays on its pair is not divided: the pair with most cells takes longest."""
    cells = len(plan.cells)
    part = 1 / pairs if host_invariant else ceil(cells / pairs) / cells
    return replace(
        plan,
        controller=InParallel(plan.controller, part),
        load_s=None if plan.load_s is None else plan.load_s * part,
        around_s=plan.around_s * part,
    )
