"""Look after every run and stop when you like: intervals of a median that stay right.

An interval that is right in 95 of 100 cases at any one number of runs is wrong far more often if
one looks after every run and stops when it pleases. So the error is spent over the looks. How many
runs lie below the true median is a walk that goes up with probability one half, whatever the runs
are like, and an interval is wrong only if that walk leaves its bounds. The probability that it
leaves them at any look from the first to the last is computed exactly, and is at most the error.

So all intervals of one figure are right at once. When to stop may depend on them, on other figures
and on other cells. Ties only make them right more often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np

from nodrop.stats.interval import CONFIDENCE, Interval

AT_FIRST = 0.5
"""So much of the error the first look may spend; the rest goes evenly to each further doubling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """A figure of a cell may be looked at with `first` runs, with `last`, and any number between.
    More than `last` are allowed and use the bounds of the last look."""

    first: int
    last: int
    error: float = 1 - CONFIDENCE
    """Error of all looks together, for this one figure. Several figures that must all be right
    share it."""

    def interval(self, values: Sequence[float]) -> Interval | None:
        """Interval of the median. None if so few runs have none."""
        rank = self.rank(len(values))
        if rank == 0:
            return None
        ordered = sorted(values)
        return Interval(
            low=ordered[rank - 1],
            high=ordered[len(ordered) - rank],
            coverage=1 - _bounds(self.first, self.last, self.error)[1],
        )

    def rank(self, n: int) -> int:
        """The interval runs from this smallest to this largest run; 0: so few have none."""
        return _bounds(self.first, self.last, self.error)[0][min(n, self.last)]

    @property
    def runs_needed(self) -> int | None:
        """The fewest runs that have an interval; None: not even the last look has one."""
        return next((n for n in range(1, self.last + 1) if self.rank(n)), None)


def half_width(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


def relative_half_width(values: Sequence[float], interval: Interval) -> float:
    """Half-width as a share of the median; infinite if the median is 0 and the half-width is
    not."""
    half, middle = half_width(interval), abs(float(median(values)))
    if half == 0:
        return 0.0
    return half / middle if middle else math.inf


@lru_cache(maxsize=256)
def _bounds(first: int, last: int, error: float) -> tuple[tuple[int, ...], float]:
    """For 0 … last runs the rank, and the probability that the interval of any look is wrong."""
    walk = np.ones(1)
    """By how many of n runs lie below the median: the probability, without walks that left."""
    ranks, spent, rank = [0], 0.0, 0
    for n in range(1, last + 1):
        walk = np.convolve(walk, (0.5, 0.5))
        # The next rank: the interval is wrong as well if just `rank` runs lie on one side.
        while n >= first and rank < n // 2:
            more = float(walk[rank] + walk[n - rank])
            if spent + more > _allowed(n, first, last, error) * (1 + 1e-12):
                break
            spent += more
            walk[rank] = walk[n - rank] = 0.0
            rank += 1
        ranks.append(rank)
    return tuple(ranks), spent


def _allowed(n: int, first: int, last: int, error: float) -> float:
    """Error that the looks up to the one with n runs may spend together: never less at first than
    an interval over all runs needs, if that much is there."""
    at_first = min(error, max(AT_FIRST * error, 2.0 ** (1 - first)))
    if last == first:
        return error
    return at_first + (error - at_first) * math.log(n / first) / math.log(last / first)
