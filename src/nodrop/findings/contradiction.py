"""Contradictions between loads: a lower one that carried less than a higher one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

ERROR = 0.05
"""Probability of an error for all pairs of loads that are looked at together."""
APART_RATIO = 0.001
"""Losses that differ by less say nothing worth a finding, however sure the difference is; and loads
that differ by a smaller part are one load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Results of the trials of one load; void ones are not in it."""

    name: str
    losses: tuple[float, ...]
    """Loss ratios of the measured trials."""
    failed: int = 0
    pps: float | None = None
    """Rate at which the load was offered, in packets/s; None = not known."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Settings that make the load larger, such as `load.speed`."""

    @property
    def trials(self) -> int:
        return len(self.losses) + self.failed

    @property
    def bad(self) -> int:
        """Number of trials that lost packets, or failed."""
        return sum(1 for loss in self.losses if loss) + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    lower: LoadResult
    higher: LoadResult
    probability: float
    """Probability of trials that look like this, or worse, though the higher load loses at least as
    much."""
    sure: bool
    by_amount: bool = False
    """All trials lost: each trial of the lower load more than each of the higher one."""


def pairs(ladders: Sequence[Sequence[LoadResult]]) -> int:
    """How often a contradiction is looked for."""
    return sum(math.comb(sum(1 for r in ladder if r.trials), 2) for ladder in ladders)


def contradiction(ladder: Sequence[LoadResult], *, looks: int) -> Contradiction | None:
    """The clearest one of a ladder, which rises; `looks`: pairs that the report looks at in all.

    One that is not sure is given only if the higher load shows nothing bad at all: a reader would
    take it for carried.
    """
    found = sorted(_found(ladder, ERROR / max(looks, 1)), key=lambda c: c.probability)
    sure = [c for c in found if c.sure]
    return next(iter(sure or [c for c in found if not c.higher.bad]), None)


def _found(ladder: Sequence[LoadResult], error: float) -> Iterator[Contradiction]:
    for lower, higher in combinations((r for r in ladder if r.trials), 2):
        pps, more_pps = lower.pps, higher.pps
        # 16X that came to no more packets/s than 8X is no higher load.
        no_more = pps is not None and more_pps is not None and more_pps <= pps * (1 + APART_RATIO)
        if no_more or not _of_one_scale(lower.rates, higher.rates):
            continue
        if lower.bad * higher.trials > higher.bad * lower.trials:
            chance = _at_least(lower.bad, lower.trials, higher.bad, higher.trials)
            yield Contradiction(
                lower=lower, higher=higher, probability=chance, sure=chance <= error
            )
        if lower.losses and higher.losses and not lower.failed:
            chance = 1 / math.comb(len(lower.losses) + len(higher.losses), len(lower.losses))
            apart = min(lower.losses) - max(higher.losses)
            if apart >= APART_RATIO and higher.bad and not higher.failed and chance <= error:
                yield Contradiction(
                    lower=lower, higher=higher, probability=chance, sure=True, by_amount=True
                )


def _of_one_scale(lower: Mapping[str, float], higher: Mapping[str, float]) -> bool:
    """4X at the trace's speed and 1X at eight times it differ in kind: other flows and bursts."""
    if lower.keys() != higher.keys():
        return False
    grows = [math.copysign(1, higher[k] - lower[k]) for k in lower if higher[k] != lower[k]]
    return len(set(grows)) <= 1


def _at_least(hits: int, n: int, other_hits: int, other_n: int) -> float:
    """Fisher's exact test, one-sided: the probability that at least `hits` of all hits fall to the
    first by chance."""
    every = hits + other_hits
    ways = sum(
        math.comb(n, k) * math.comb(other_n, every - k) for k in range(hits, min(n, every) + 1)
    )
    return ways / math.comb(n + other_n, every)
