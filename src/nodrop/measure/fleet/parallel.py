"""What is left of a plan that several pairs share: as many trials, in less time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodrop.measure.controllers.seam import Controller, May, Outlook, TrialInput, any_trial
from nodrop.measure.plan import Plan
from nodrop.results.trial import TrialRecord
from nodrop.stats.eta import Remaining


class InParallel:
    """A `Controller` that says how long its trials take so many pairs."""

    def __init__(self, of: Controller, pairs: int) -> None:
        self._of, self._pairs = of, pairs
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
        return replace(one, seconds=one.seconds / self._pairs)


def in_parallel(plan: Plan, pairs: int) -> Plan:
    return replace(
        plan,
        controller=InParallel(plan.controller, pairs),
        load_s=None if plan.load_s is None else plan.load_s / pairs,
        around_s=plan.around_s / pairs,
    )
