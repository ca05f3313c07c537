"""The load above which too large a share of trials is not good: a quantile with an interval.

Each trial has a *limit*: the load up to which it would have been good. A trial that was not good
says its own, by what was served of its load; one that was good says that it lies higher. So trials
above a load z are draws of "is the limit below z", whose share is binomial: no shape of the noise
is assumed, only that a trial a little above z says what it would have done at z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import bdtr, bdtrc, betaincinv

from nodrop.stats.interval import CONFIDENCE, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit as one trial shows it."""

    offered: float
    at: float | None
    """None: higher than what was offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The load up to which no more than the allowed share of trials is not good."""

    n: int
    """Trials that it rests on."""
    estimate: float
    low: float | None
    """None: too few trials for a bound with this confidence, or none that was high enough."""
    high: float | None

    @property
    def relative_width(self) -> float | None:
        if self.low is None or self.high is None or self.high <= 0:
            return None
        return (self.high - self.low) / self.high


def knee(limits: Sequence[Limit], exceed_ratio: float) -> Knee | None:
    """None if no trial was not good. Each of the two bounds may err with half of what is left."""
    known = sorted(limit.at for limit in limits if limit.at is not None)
    if not known:
        return None
    error = (1 - CONFIDENCE) / 2
    low, high = None, None
    for z in known:
        n, below, until = _counts(limits, z)
        # So few limits below z that more than the allowed share cannot well be: p(z) is allowed.
        if bdtr(below, n, exceed_ratio) <= error:
            low = z
        if high is None and n and bdtrc(until - 1, n, exceed_ratio) <= error:
            high = z
    return Knee(n=len(limits), estimate=_estimate(limits, known, exceed_ratio), low=low, high=high)


def _counts(limits: Sequence[Limit], z: float) -> tuple[int, int, int]:
    """Trials that were offered z or more; of those, limits below z, and up to it."""
    high = [limit for limit in limits if limit.offered >= z]
    below = sum(limit.at is not None and limit.at < z for limit in high)
    until = sum(limit.at is not None and limit.at <= z for limit in high)
    return len(high), below, until


def _estimate(limits: Sequence[Limit], known: Sequence[float], exceed_ratio: float) -> float:
    """The lowest limit that more than the allowed share of trials do not pass; if just that share
    lies below, the middle between it and the one before."""
    before = known[0]
    for z in known:
        n, below, until = _counts(limits, z)
        if until > exceed_ratio * n:
            return (before + z) / 2 if below and below == exceed_ratio * n else z
        before = z
    return known[-1]


def upper_bound(hits: int, n: int, *, confidence: float = CONFIDENCE) -> float:
    """The share of runs is below this: 0 of 6 lossy says less than 39 % of runs.

    `upper_bound(0, n)` also bounds the share of runs that would be worse than the worst of n.
    """
    _check(hits, n)
    return 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, confidence))


def lower_bound(hits: int, n: int, *, confidence: float = CONFIDENCE) -> float:
    """The share of runs is above this."""
    return 1 - upper_bound(n - hits, n, confidence=confidence)


def share_interval(hits: int, n: int) -> Interval:
    """Both bounds at once, each allowed half of the error."""
    each = (1 + CONFIDENCE) / 2
    return Interval(
        low=lower_bound(hits, n, confidence=each),
        high=upper_bound(hits, n, confidence=each),
        coverage=CONFIDENCE,
    )


def _check(hits: int, n: int) -> None:
    if not 0 <= hits <= n or n == 0:
        raise ValueError(f"{hits} of {n} runs: a share needs at least one run")
