"""How sure an answer is: high, fair or low, by a rule that names its reason.

docs/methodology.md has the rule. What is known decides the digits of an answer as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodrop.findings.answer import Between, Bound, Confidence, Level, Statement
from nodrop.findings.searched import PROOF, Tried
from nodrop.ledger.verdict import percent
from nodrop.results.capacity import LimitedBy

FEW_MEASURED = 0.5
"""Fewer of the trials say something: low."""
NEARLY_ALL_MEASURED = 0.9
"""High needs so many."""
ROUNDS = 3
"""High needs so many rounds that ended."""
AGREE = 0.05
"""... whose loads lie no further apart; or no further than what was asked for."""
MOST_AGREE = 0.5
"""If more of the trials at a bound, or beyond it, say otherwise: low."""
FAR_APART = 0.2
"""Bounds, or rounds, that are further apart: low."""
TAKEN = ("hypervisor", "other_programs", "sender_cpu", "interrupts", "quota")
"""Limits that mean that the SUT was kept off its CPU when it lost packets."""
KNOWN = {"high": 0.001, "fair": 0.01, "low": 0.1}
"""Relative: an answer is known no better. Its digits follow."""
PART = 0.1
"""... nor better than this part of the way from bound to bound, or from round to round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence that the confidence rule reads."""

    upper: Bound | None
    width: float | None
    """(upper − lower) / upper."""
    asked_width: float
    between: Between | None
    limited_by: LimitedBy
    trials: Sequence[Tried]
    """Trials of all rounds, without ramps."""
    goal: float
    doubts: Sequence[Statement]
    """Statements that speak against the answer."""
    none_carried: int = 0
    """Rounds that came to an end and found no load that is carried."""
    carried: int = PROOF
    """Trials that carried the load of the answer."""

    @property
    def said(self) -> int:
        """Trials that show something."""
        return sum(trial.good(self.goal) is not None for trial in self.trials)

    @property
    def busy(self) -> int:
        """... though the hypervisor, other programs or a quota had the CPUs."""
        shown = [t for t in self.trials if t.good(self.goal) is not None]
        return sum(trial.record.host_was_busy for trial in shown)

    @property
    def spread(self) -> float | None:
        """Spread of the loads that ended rounds carried, relative to the highest; None if fewer
        than two rounds ended."""
        between = self.between
        if between is None or between.n < 2:
            return None
        return (between.highest - between.lowest) / between.highest


def confidence(found: Evidence) -> Confidence:
    level: Level
    if why := next(_low(found), ""):
        level = "low"
    elif why := next(_not_high(found), ""):
        level = "fair"
    else:
        assert found.between is not None and found.spread is not None, "high needs three rounds"
        rounds = f"{found.between.n} rounds within {percent(found.spread)} of each other"
        level, why = "high", f"{rounds}, {_counted(found)}"
    ways = [part * PART for part in (found.width, found.spread) if part is not None]
    return Confidence(level=level, why=why, known=max([KNOWN[level], *ways]))


def _counted(found: Evidence) -> str:
    return f"{found.said} of {len(found.trials)} trials say something of their load"


def _disturbed(found: Evidence) -> str:
    return f"others had the CPUs in {found.busy} of the {found.said} trials that say something"


def _low(found: Evidence) -> Iterator[str]:
    if found.said < FEW_MEASURED * len(found.trials):
        yield f"only {_counted(found)}"
    if found.busy > FEW_MEASURED * found.said:
        yield _disturbed(found)
    if found.limited_by in TAKEN:
        yield "the SUT was kept off its CPU as it lost"
    if found.none_carried:
        yield f"in {found.none_carried} of its rounds no load was carried"
    for doubt in found.doubts:
        if doubt.evidence.get("most_share", 1.0) > MOST_AGREE:
            yield _first(doubt.text)
    if found.width is not None and found.width > FAR_APART:
        yield f"its bounds lie {percent(found.width)} apart"
    if found.spread is not None and found.spread > FAR_APART:
        yield f"rounds lie {percent(found.spread)} apart"


def _not_high(found: Evidence) -> Iterator[str]:
    if found.upper is None:
        yield "no load was shown to be too much"
    if found.said < NEARLY_ALL_MEASURED * len(found.trials):
        yield f"only {_counted(found)}"
    if found.busy > (1 - NEARLY_ALL_MEASURED) * found.said:
        yield _disturbed(found)
    if found.doubts:
        yield _first(found.doubts[0].text)
    rounds = 0 if found.between is None else found.between.n
    if rounds < ROUNDS:
        counted = {0: "no round", 1: "only one round", 2: "only two rounds"}[rounds]
        yield f"{counted} came to an end"
    if found.carried < PROOF:
        times = "once" if found.carried == 1 else f"{found.carried} times"
        yield f"its load was carried {times}, not {PROOF} times"
    wide = max(AGREE, found.asked_width)
    if found.width is not None and found.width > wide:
        yield f"its bounds lie {percent(found.width)} apart"
    if found.spread is not None and found.spread > wide:
        yield f"rounds lie {percent(found.spread)} apart"


def _first(text: str) -> str:
    return text.partition(";")[0].partition(":")[0]
