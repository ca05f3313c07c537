"""How a search chooses its next load: nodrop's own way, MLRsearch's, or plain bisection.

Each is a function of the trials of one round of one cell. None: it has nothing to add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nodrop.config.search import Search
from nodrop.findings.searched import Load, Tried, loads


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A load to be tried, and for how long."""

    value: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What a method may know."""

    search: Search
    start: float
    """Where to begin if nothing is known."""
    lowest: float
    highest: float
    tried: Sequence[Tried]
    """Of this round, in order."""
    earlier: Sequence[Tried] = ()
    """Of the rounds before."""

    def ask(self, value: float, seconds: float) -> Ask:
        digits = max(3, math.ceil(-math.log10(self.search.relative_width)) + 2)
        inside = min(max(value, self.lowest), self.highest)
        return Ask(value=float(f"{inside:.{digits}g}"), seconds=seconds)


Method = Callable[[Field], Ask | None]


def bisection(field: Field) -> Ask | None:
    """Each load once; halves what is left until it is narrow enough, for each goal in its turn."""
    for goal in field.search.goals:
        found = loads(field.tried)
        low, high = field.lowest, field.highest
        for load in found:
            if load.looks_carried(goal) is False:
                high = min(high, load.value)
        for load in found:
            if load.looks_carried(goal) and load.value < high:
                low = max(low, load.value)
        known = {load.value for load in found}
        if high not in known:
            return field.ask(high, field.search.final_trial_s)
        if low not in known and high > low:
            return field.ask(low, field.search.final_trial_s)
        if high > low and high - low > field.search.relative_width * high:
            return field.ask((low + high) / 2, field.search.final_trial_s)
    return None


def own(field: Field) -> Ask | None:
    """A bracket by short trials, then trials of the final length on both sides of it."""
    return next((ask for goal in field.search.goals if (ask := _own(field, goal))), None)


def _own(field: Field, goal: float) -> Ask | None:
    search = field.search
    found = loads(field.tried)
    bad = next((x for x in found if x.looks_carried(goal) is False), None)
    good = next(
        (
            x
            for x in reversed(found)
            if x.looks_carried(goal) and (bad is None or x.value < bad.value)
        ),
        None,
    )
    if bad is None and good is None:
        return field.ask(_expected(field, goal) or field.start, search.initial_trial_s)
    if bad is None:
        assert good is not None
        if good.value >= field.highest:
            return _settle(field, good, goal)
        return field.ask(good.value * 2, search.initial_trial_s)
    if good is None:
        if bad.value <= field.lowest:
            return _settle(field, bad, goal)
        return field.ask(_below(bad, goal, search), search.final_trial_s)
    if bad.value / good.value > 1 + search.relative_width * 1.0001:
        return field.ask(_between(good, bad, goal, search), search.final_trial_s)
    return _settle(field, good, goal) or _settle(field, bad, goal)


def _expected(field: Field, goal: float) -> float | None:
    """What the rounds before found."""
    carried = [x.value for x in loads(field.earlier) if x.carried(goal, field.search)]
    return max(carried, default=None)


def _settle(field: Field, load: Load, goal: float) -> Ask | None:
    final_s = field.search.final_trial_s
    if load.mute(goal, at_least_s=final_s) or load.carried(goal, field.search) is not None:
        return None
    return field.ask(load.value, final_s)


def _below(bad: Load, goal: float, search: Search) -> float:
    reached = [r for t in bad.trials if (r := t.reaches(goal)) is not None]
    guess = min(reached, default=bad.value) * (1 - search.relative_width / 2)
    return max(guess, bad.value / 4) if guess < bad.value else bad.value / 2


def _between(good: Load, bad: Load, goal: float, search: Search) -> float:
    """Where the losses of the load above point to, if that is inside; else the middle."""
    inside = 1 + search.relative_width / 2
    reached = [r for t in bad.trials if (r := t.reaches(goal)) is not None]
    guess = min(reached, default=0.0)
    if good.value * inside < guess < bad.value / inside:
        return guess
    return math.sqrt(good.value * bad.value)
