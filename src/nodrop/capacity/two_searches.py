"""Two searches against each other: which cell carries more, and by how much.

Each round has bounds: the load that was carried and the next one that was not. A round that found
no load too much has no upper bound, so "at least" answers are never put in order as if they were
numbers. The ratio of two median rounds lies between those of the ends of their intervals, which
are made of the rounds' bounds by order statistics (stats/comparison.py has the same of medians).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nodrop.capacity.search_answer import Answer, Bound
from nodrop.stats.comparison import Advice, ComparisonRule, Relation, more_runs
from nodrop.stats.interval import Family, median_rank

SAME_RATIO = 0.1
"""Two capacities that differ by less are the same: each is known to within the width of a search,
which is half of this unless the experiment says otherwise."""


Lack = Literal["nothing", "no end", "rounds", "spread", "hosts"]
"""Why no difference can be told: a cell has no load that was carried and none that was not; a
search ended before it found a load that is too much; too few rounds for an interval between them;
the rounds differ too much; or each round mixes trials of several hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSpan:
    """A ratio lies between these; None = open on that side."""

    low: float | None = None
    high: float | None = None

    @property
    def above(self) -> bool:
        return self.low is not None and self.low > 1

    @property
    def below(self) -> bool:
        return self.high is not None and self.high < 1

    @property
    def empty(self) -> bool:
        return self.low is None and self.high is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """How many times as much as the base another cell carries."""

    verdict: Relation
    between: RatioSpan
    """Bounds by the median rounds, with the confidence of the family; open on both sides if there
    is no such interval."""
    within: RatioSpan
    """Bounds within the searches of the two median rounds: what was seen, no more."""
    lack: Lack | None
    """Reason for the verdict "cannot tell"; None with any other verdict."""
    advice: Advice | None
    """How many more rounds of each."""


def weigh(
    base: Answer, other: Answer, family: Family, *, hosts: bool = False, by_rate: bool = False
) -> Weighed:
    """`by_rate`: in packets/s, for 4X of one trace is another load than 4X of another."""
    if by_rate:
        base, other = _in_packets(base), _in_packets(other)
    within = _within(base, other)
    first, second = (RatioSpan() if hosts else _median_bounds(one, family) for one in (base, other))
    between = RatioSpan(low=_ratio(second.low, first.high), high=_ratio(second.high, first.low))
    verdict = _verdict(between)
    lack = _lack(base, other, family, within, hosts) if verdict is Relation.CANNOT_TELL else None
    return Weighed(
        verdict=verdict,
        between=between,
        within=within,
        lack=lack,
        advice=_advice(base, other, family, lack),
    )


def _in_packets(answer: Answer) -> Answer:
    """Bounds whose rate is not known are open."""

    def rate(bound: Bound | None) -> Bound | None:
        known = bound is not None and bound.pps is not None
        return replace(bound, value=bound.pps or 0.0) if bound is not None and known else None

    rounds = tuple(replace(r, lower=rate(r.lower), upper=rate(r.upper)) for r in answer.rounds)
    return replace(answer, lower=rate(answer.lower), upper=rate(answer.upper), rounds=rounds)


def _median_bounds(answer: Answer, family: Family) -> RatioSpan:
    """Bounds on what the median start of the SUT carries; open with too few rounds. Every round
    that was begun counts: one that was cut has bounds far apart, or open."""
    n = len(answer.rounds)
    rank, _ = median_rank(n, family.error(n))
    if not rank:
        return RatioSpan()
    lows = sorted(r.lower.value if r.lower else 0.0 for r in answer.rounds)
    highs = sorted(r.upper.value if r.upper else math.inf for r in answer.rounds)
    low, high = lows[rank - 1], highs[n - rank]
    return RatioSpan(low=low or None, high=None if math.isinf(high) else high)


def _verdict(between: RatioSpan) -> Relation:
    low, high = between.low, between.high
    if low is not None and high is not None and low >= 1 - SAME_RATIO and high <= 1 + SAME_RATIO:
        return Relation.SAME
    return Relation.DIFFERENT if between.above or between.below else Relation.CANNOT_TELL


def _lack(base: Answer, other: Answer, family: Family, within: RatioSpan, hosts: bool) -> Lack:
    both = (base, other)
    if any(one.lower is None and one.upper is None for one in both):
        return "nothing"
    if hosts:
        return "hosts"
    if any(one.upper is None for one in both) and not (within.above or within.below):
        return "no end"
    if min(len(one.rounds) for one in both) < family.runs_needed():
        return "rounds"
    open_ends = any(r.upper is None or r.lower is None for one in both for r in one.rounds)
    return "no end" if open_ends else "spread"


def _advice(base: Answer, other: Answer, family: Family, lack: Lack | None) -> Advice | None:
    if lack == "rounds":
        fewest = min(len(base.rounds), len(other.rounds))
        return Advice(more_runs=family.runs_needed() - fewest, only_least=True)
    if lack == "spread":
        asked = ComparisonRule(relative=SAME_RATIO, family=family)
        return more_runs(_middles(base), _middles(other), asked)
    return None


def _middles(answer: Answer) -> Sequence[float]:
    return [
        math.sqrt(r.lower.value * r.upper.value)
        for r in answer.rounds
        if r.lower is not None and r.upper is not None
    ]


def _within(base: Answer, other: Answer) -> RatioSpan:
    """Ratio by the bounds of the two answers."""
    low, high, base_low, base_high = (
        None if bound is None else bound.value
        for bound in (other.lower, other.upper, base.lower, base.upper)
    )
    return RatioSpan(low=_ratio(low, base_high), high=_ratio(high, base_low))


def _ratio(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of
