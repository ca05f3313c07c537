"""Answer of a search for a cell and a goal, as numbers and as findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nodrop.answer.finding import Finding
from nodrop.capacity.tried import MOST_MISSED, Tried
from nodrop.config.search import Of
from nodrop.results.capacity import Confidence, LimitedBy
from nodrop.stats.interval import Interval, Knee, upper_bound

ALIKE = 1.005
"""Bounds that are no further apart are the same for a reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A load that was tried, as it was really offered; None = not measured."""

    value: float
    pps: float | None
    bps: float | None
    runs: tuple[str, ...]
    """Trials that show whether it was carried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Result of one start of the SUT."""

    number: int
    lower: Bound | None
    """The highest load that was carried."""
    upper: Bound | None
    """The lowest above it that was not."""
    closed: bool = True
    """The search came to an end: its bounds are close, or it met another limit. Otherwise they only
    say where the search stood when it was cut."""


AGAIN = 2


def rounds_apart(rounds: Sequence[Round]) -> tuple[Round, Round] | None:
    """The better and the worse of two rounds whose bounds have nothing in common, if the worse one
    lost at its end again and again: one trial may have been disturbed."""
    lows = [(r.lower.value, r.number, r) for r in rounds if r.lower is not None]
    shown = [r for r in rounds if r.upper is not None and len(r.upper.runs) >= AGAIN]
    highs = [(r.upper.value, r.number, r) for r in shown if r.upper is not None]
    if not lows or not highs:
        return None
    (low, _, better), (high, _, worse) = max(lows), min(highs)
    return (better, worse) if low > high * ALIKE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Loads that were carried, over the rounds that no budget cut."""

    carried: tuple[Bound, ...]
    """Bounds of the rounds; never empty."""
    interval: Interval | None
    """95 % interval of the median round."""
    why_no_interval: str

    @property
    def n(self) -> int:
        return len(self.carried)

    @property
    def lowest(self) -> float:
        return min(bound.value for bound in self.carried)

    @property
    def highest(self) -> float:
        return max(bound.value for bound in self.carried)

    @property
    def spread(self) -> float | None:
        """Share of the highest that the lowest lies below it; None of one round."""
        return (self.highest - self.lowest) / self.highest if self.n > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A load that has to be carried, held against the bounds."""

    asked: str
    value: float
    verdict: Literal["yes", "no", "not shown"]
    times: float | None
    """Load that is carried, as a multiple of this one; None = no load is shown to be carried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """How many trials of the load that is carried, and of loads a little below, missed the goal."""

    trials: int
    """Trials of all rounds at these loads that show whether they met the goal."""
    missed: int
    least: float
    """The lowest of these loads."""

    @property
    def share_at_most(self) -> float:
        """Upper bound, with 95 % confidence, of the share of such trials that miss the goal."""
        return upper_bound(self.missed, self.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a search for one cell and one goal."""

    cell: Mapping[str, Any]
    by: str
    goal: float
    """The loss ratio that is tolerated: 0 is NDR."""
    goals_of: Of
    """The ratio is one of packets, or of detections that are missed."""
    lower: Bound | None
    """The highest load that is proved to be carried. None = none was, or nothing was shown."""
    upper: Bound | None
    """The lowest load above `lower` that was not carried. None = none was tried, or could be."""
    fit: Knee | None
    """Limit between the two, with its 95 % interval."""
    by_level: bool
    """The limit comes from the level of the SUT's ring, else from what was served of too much."""
    fullest_ratio: float | None
    """Highest level of that ring, as a share of it, in the trials that carried `lower`; None = no
    level was read."""
    between: Between | None
    """None if no round found a load that is carried."""
    rounds: tuple[Round, ...]
    missed: Missed | None
    """None if no load is carried."""
    cut_rounds: int
    """Rounds that the budget ended before their bounds were close. They say nothing of how much
    rounds differ."""
    limited_by: LimitedBy
    place: str | None
    knob: str
    broke: str
    """The verdict of a trial at the load that was not carried."""
    reached_width: float | None
    """(upper − lower) / upper, of the packets/s that were sent; of the search's scale if more was
    asked for and no more was sent."""
    confidence: Confidence | None
    """None without a load that is carried."""
    needed: Needed | None
    """None if no load was said to be needed."""
    trials: int
    trial_seconds: float
    sent_pps: Mapping[float, float]
    """Load → packets/s that its trials really sent, the median: a replica in part has whole flows,
    so a trace with one large flow sends no more of 1.9X than of 1.5X."""
    findings: tuple[Finding, ...]
    """The first is the answer; what the search took is the last."""


FEW_MEASURED = 0.5
"""Part of the trials that say something; with fewer: low."""
NEARLY_ALL_MEASURED = 0.9
"""... and the part that high needs."""
ROUNDS = 3
"""Rounds that ended, as high needs them."""
OF_ROUNDS = {0: "no_round", 1: "one_round", 2: "two_rounds"}
FEWEST, ENOUGH = 2, 3
"""Trials of the load that is carried: with fewer than the first number low; high needs the second.
"""
AGREE = 0.1
"""Distance of the rounds' loads that high allows, or what was asked for if that is more."""
MOST_AGREE = 0.5
"""Part of the trials at a bound, or beyond it, that may say otherwise; with more: low."""
FAR_APART = 0.2
"""Distance of bounds, or rounds; further apart: low."""
TAKEN = ("hypervisor", "other_programs", "sender_cpu", "interrupts", "quota")
"""Limits that mean that the SUT was kept off its CPU when it lost packets."""
KNOWN = {"high": 0.001, "fair": 0.01, "low": 0.1}
"""Relative precision of an answer by its confidence. Its digits follow."""
PART = 0.1
"""... and part of the way from bound to bound, or from round to round, beyond which it is not known
either."""


Checks = Iterable[tuple[bool, Finding]]
"""Whether each reason holds, the most important first."""


def confidence(
    answer: Answer, trials: Sequence[Tried], asked_width: float, against: Sequence[Finding]
) -> Confidence:
    """`trials`: of all rounds, without ramps; `against`: findings that speak against the answer."""
    goods = [(trial, trial.good(answer.goal)) for trial in trials]
    shown = [trial for trial, good in goods if good is not None]
    least = math.inf if answer.lower is None else answer.lower.value
    by_sender = answer.limited_by == "generator"
    # The sender is the answer's limit, and they show it.
    beyond = sum(by_sender and trial.late and trial.value > least for trial in trials)
    counted = {"said": len(shown), "trials": len(trials) - beyond}
    busy = {"busy": sum(t.record.host_was_busy for t in shown), "said": len(shown)}
    few_said, disturbed = _reason("few_said", **counted), _reason("disturbed", **busy)
    proofs = math.inf if answer.lower is None else len(answer.lower.runs)
    seldom, width = _reason("seldom", trials=proofs), answer.reached_width
    seen = answer.missed
    missed, tried = (0, 0) if seen is None else (seen.missed, seen.trials)
    rounds = 0 if answer.between is None else answer.between.n
    spread = None if answer.between is None else answer.between.spread

    def wide(most: float) -> Checks:
        yield (width or 0.0) > most, _reason("bounds", width=width)
        yield (spread or 0.0) > most, _reason("spread", spread=spread)

    low: Checks = (
        (len(shown) < FEW_MEASURED * counted["trials"], few_said),
        (busy["busy"] > FEW_MEASURED * len(shown), disturbed),
        (answer.limited_by in TAKEN, _reason("kept_off")),
        (missed > max(1, MOST_MISSED * tried), _reason("missed", missed=missed, trials=tried)),
        *((one.values.get("most_share", 1.0) > MOST_AGREE, one) for one in against),
        *wide(FAR_APART),
        (proofs < FEWEST, seldom),
    )
    fair: Checks = (
        (answer.upper is None, _reason("no_end")),
        (proofs < ENOUGH, seldom),
        (len(shown) < NEARLY_ALL_MEASURED * counted["trials"], few_said),
        (busy["busy"] > (1 - NEARLY_ALL_MEASURED) * len(shown), disturbed),
        *((True, one) for one in against),
        (rounds < ROUNDS, _reason(OF_ROUNDS.get(rounds, ""))),
        *wide(max(AGREE, asked_width)),
    )
    level: Literal["high", "fair", "low"] = "high"
    reason = _reason("agree", rounds=rounds, spread=spread, **counted)
    if found := [one for holds, one in low if holds]:
        level, reason = "low", found[0]
    elif found := [one for holds, one in fair if holds]:
        level, reason = "fair", found[0]
    ways = [part * PART for part in (width, spread) if part is not None]
    return Confidence(level=level, reason=reason, known_ratio=max([KNOWN[level], *ways]))


def _reason(code: str, **values: Any) -> Finding:
    return Finding(code=f"sure.{code}", values=values)
