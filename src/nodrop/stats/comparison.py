"""Do two cells differ? An interval for the shift between them, and a verdict that may be "not yet".

The shift is Hodges and Lehmann's: the median of all pairwise differences. Its interval inverts the
Mann-Whitney test, whose null distribution is counted exactly, so no distribution is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist, median

from nodrop.stats.interval import CONFIDENCE, Interval

EXACT_PRODUCT = 2500
"""Up to 50 x 50 runs are counted exactly; beyond, the normal approximation is as good."""
MANY_RUNS = 1000


class Answer(StrEnum):
    DIFFERENT = "different"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`other` against `base`."""

    answer: Answer
    shift: float
    """other − base; positive = other is larger."""
    interval: Interval | None
    margin: float
    """Differences up to this size count as the same."""
    more_runs: int | None = None
    """Per cell, a guess from the spread so far; None where none are needed or no number helps."""


def compare(
    base: Sequence[float],
    other: Sequence[float],
    *,
    margin: float,
    confidence: float = CONFIDENCE,
) -> Comparison | None:
    """Three answers: same within `margin`, different, or not to be told yet. None without values.

    An interval wholly inside the margin is "same" even where it excludes zero: with enough runs
    every two cells differ by something.
    """
    if not base or not other:
        return None
    differences = sorted(b - a for a in base for b in other)
    shift = float(median(differences))
    interval = _shift_interval(differences, len(base), len(other), confidence)
    answer, more = Answer.CANNOT_TELL, None
    if interval is None:
        more = _runs_until_interval(len(base), len(other), confidence)
    elif -margin <= interval.low and interval.high <= margin:
        answer = Answer.SAME
    elif interval.low > 0 or interval.high < 0:
        answer = Answer.DIFFERENT
    else:
        more = _runs_until_answer(interval, shift, margin, min(len(base), len(other)))
    return Comparison(answer=answer, shift=shift, interval=interval, margin=margin, more_runs=more)


def resolution(values: Sequence[float], *, confidence: float = CONFIDENCE) -> float | None:
    """What `compare` can see: two cells, both with as many runs and as much spread as these, would
    be told apart from about this shift on. None where so few runs give no interval."""
    n = len(values)
    rank, _ = _critical_rank(n, n, confidence)
    if rank == 0:
        return None
    # A run differs by nothing from itself, which says nothing of another cell's runs.
    apart = sorted(abs(a - b) for a, b in combinations(values, 2))
    share = 1 - 2 * rank / (n * n)
    return apart[min(math.ceil(share * len(apart)), len(apart)) - 1]


def _shift_interval(
    differences: Sequence[float], m: int, n: int, confidence: float
) -> Interval | None:
    rank, below = _critical_rank(m, n, confidence)
    if rank == 0:
        return None
    return Interval(low=differences[rank - 1], high=differences[-rank], coverage=1 - 2 * below)


def _critical_rank(m: int, n: int, confidence: float) -> tuple[int, float]:
    """Largest k with P(U <= k-1) within the tail: the interval runs from the k-th difference."""
    tail = (1 - confidence) / 2
    if m * n > EXACT_PRODUCT:
        spread = math.sqrt(m * n * (m + n + 1) / 12)
        rank = math.floor(m * n / 2 - NormalDist().inv_cdf(1 - tail) * spread)
        return max(rank, 0), tail
    counts = _mann_whitney_counts(*sorted((m, n)))
    everything = math.comb(m + n, m)
    below, rank = 0, 0
    for u, count in enumerate(counts):
        if (below + count) / everything > tail:
            break
        below += count
        rank = u + 1
    return rank, below / everything


@lru_cache(maxsize=64)
def _mann_whitney_counts(m: int, n: int) -> tuple[int, ...]:
    """Orderings of m and n values for each U: the coefficients of a Gaussian binomial."""
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        # times (1 − q^(n+i)), then divided by (1 − q^i)
        for u in range(m * n, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, m * n + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


def _runs_until_interval(m: int, n: int, confidence: float) -> int:
    more = 1
    while _critical_rank(m + more, n + more, confidence)[0] == 0:
        more += 1
    return more


def _runs_until_answer(interval: Interval, shift: float, margin: float, runs: int) -> int | None:
    """Intervals narrow with √n: how many runs until this one leaves zero, or fits the margin."""
    half = (interval.high - interval.low) / 2
    wanted = max(abs(shift), margin - abs(shift))
    if wanted <= 0 or half <= 0:
        return None
    total = math.ceil(runs * (half / wanted) ** 2)
    more = max(total - runs, 1)
    return more if more <= MANY_RUNS else None
