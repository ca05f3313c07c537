"""Loads of one curve, from the lowest to the highest, and the pairs that contradict each other.

More load cannot make a SUT lose less. If it looks like that, something else decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

ERROR = 0.05
"""For all pairs of loads that are looked at together."""
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

    @property
    def trials(self) -> int:
        return len(self.losses) + self.failed

    @property
    def bad(self) -> int:
        """Lost packets, or failed."""
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
    """All lost: each trial of the lower load more than each of the higher one."""


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
        if None not in (lower.pps, higher.pps) and not _more(lower.pps or 0.0, higher.pps or 0.0):
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


def _more(lower_pps: float, higher_pps: float) -> bool:
    """16X that came to no more packets/s than 8X is no higher load."""
    return higher_pps > lower_pps * (1 + APART_RATIO)


def _at_least(hits: int, n: int, other_hits: int, other_n: int) -> float:
    """Fisher's exact test, one-sided: so many of all hits, or more, fall to the first by chance."""
    every = hits + other_hits
    ways = sum(
        math.comb(n, k) * math.comb(other_n, every - k) for k in range(hits, min(n, every) + 1)
    )
    return ways / math.comb(n + other_n, every)
