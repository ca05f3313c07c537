"""Median over repetitions with an exact 95 % interval from order statistics.

No distribution is assumed: the true median lies below each run with probability one half, so how
many runs lie below it is binomial. With fewer than six runs no pair of runs encloses it with 95 %
probability, and none is made up.

Trials of one start of the SUT have in common what that start drew: where its memory lies, its hash
seeds. So each start counts once, by the median of its trials. Trials of one host have in common
what that host is: if several hosts measured a cell, each host counts once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import fmean, median

from nodrop.stats.special import bdtr, bdtrc, betaincinv

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, order=True)
class HostCluster:
    """A host in the place of a start of the SUT: all values of the host count once."""

    source: int
    """Number of its run among several."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    low: float
    high: float
    coverage: float
    """The exact probability, at least what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One figure over the repetitions of a cell."""

    n: int
    median: float
    interval: Interval | None
    why_no_interval: str = ""
    low: float
    high: float
    """Smallest and largest run: between-run spread, not an interval for the median."""
    hosts: int = 0
    """How many measured it, if each of them counts once; 0: no two did."""


def summarize(
    values: Sequence[float],
    *,
    starts: Sequence[Hashable] | None = None,
    looks: LookPlan | None = None,
) -> Summary | None:
    """None if there is nothing to summarize. `starts` names the start of the SUT that each value is
    of, or its host if several measured it; None: each is of its own. `looks`: what was seen decided
    how many values there are."""
    if not values:
        return None
    ordered = sorted(values)
    independent = values if starts is None else by_start(values, starts)
    if looks is None:
        interval, least = median_interval(independent), runs_needed()
    else:
        interval, least = looks.interval(independent), looks.first
    needed = f"needs n ≥ {least}"
    if len(independent) < len(values):
        needed = f"needs {least} starts of the SUT, has {len(independent)}"
    hosts = len(independent) if of_hosts(starts or ()) else 0
    if hosts:
        needed = f"needs {least} hosts, has {hosts}"
    return Summary(
        n=len(ordered),
        median=float(median(independent)),
        interval=interval,
        why_no_interval="" if interval else needed,
        low=ordered[0],
        high=ordered[-1],
        hosts=hosts,
    )


def of_hosts(starts: Sequence[Hashable]) -> bool:
    return any(isinstance(start, HostCluster) for start in starts)


def by_start(values: Sequence[float], starts: Sequence[Hashable]) -> list[float]:
    """One value per start of the SUT: the median of its trials."""
    if len(set(starts)) == len(values):
        return [float(value) for value in values]
    shared: dict[Hashable, list[float]] = defaultdict(list)
    for value, start in zip(values, starts, strict=True):
        shared[start].append(value)
    return [float(median(each)) for each in shared.values()]


def median_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval | None:
    """The narrowest symmetric pair of order statistics that covers the median.

    Equal runs only make the coverage larger. If half of all runs lie below a gap and half above it,
    any value in the gap is a median, and each of them is covered.
    """
    n = len(values)
    rank, coverage = median_rank(n, 1 - confidence)
    if rank == 0:
        return None
    ordered = sorted(values)
    return Interval(low=ordered[rank - 1], high=ordered[n - rank], coverage=coverage)


@lru_cache(maxsize=4096)
def median_rank(n: int, error: float) -> tuple[int, float]:
    """The interval runs from this smallest to this largest run, and what it covers; rank 0: so few
    runs have none."""
    # In whole numbers: floats know no 2^-n beyond n = 1074.
    allowed = math.floor(Fraction(error) / 2 * 2**n)
    count, below, rank = 1, 0, 0
    while rank < n // 2 and below + count <= allowed:
        below += count
        rank += 1
        count = count * (n - rank + 1) // rank
    return rank, 1 - 2 * below / 2**n


def runs_needed(confidence: float = CONFIDENCE) -> int:
    """The fewest runs with which an interval exists: all of them must enclose the median."""
    return math.ceil(1 - math.log2(1 - confidence))


AT_FIRST = 0.5
"""Part of the error that the first look may spend; the rest goes evenly to each further doubling.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPlan:
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
    """Rank for 0 … last runs, and the probability that the interval of any look is wrong."""
    import numpy as np  # here, because a far host imports this module and has no numpy

    walk = np.ones(1)
    """Probability of the number of n runs that lie below the median, without walks that left."""
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


TO_SIGMA = 1.4826
"""Median absolute deviation of normal values → standard deviation."""
MEAN_TO_SIGMA = 1.2533
"""Mean absolute deviation → standard deviation."""
BOUNDS = ((6, 10.8), (8, 8.5), (10, 7.0), (12, 6.3), (15, 6.0), (20, 5.2), (30, 4.8), (50, 4.5))
"""Number of values from which on a bound holds, and the bound in scaled deviations: 99 % of normal
samples lie within it (simulated, 40,000 samples each)."""
ALIKE_BOUND = 3.5
"""Bound in scaled mean deviations, if more than half of the values are the same (Iglewicz and
Hoaglin 1993): one of six, two of ten."""
FEWEST = BOUNDS[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    index: int
    """Index in the sample."""
    value: float
    median: float
    """Median of the sample, this value included."""
    deviations: float
    """Scaled deviations from the median; always positive."""


def outliers(values: Sequence[float]) -> tuple[Outlier, ...]:
    """Outliers in the order of the sample; none of fewer than `FEWEST` values."""
    if len(values) < FEWEST:
        return ()
    middle = median(values)
    apart = [abs(value - middle) for value in values]
    scale, bound = TO_SIGMA * median(apart), _bound(len(values))
    if scale == 0:
        scale, bound = MEAN_TO_SIGMA * fmean(apart), ALIKE_BOUND
    return tuple(
        Outlier(index=i, value=values[i], median=middle, deviations=distance / scale)
        for i, distance in enumerate(apart)
        if scale > 0 and distance > bound * scale
    )


def _bound(n: int) -> float:
    return BOUNDS[bisect_right(BOUNDS, n, key=lambda bound: bound[0]) - 1][1]


# All that a report infers at once, and what each part of it may err.
#
# The error of a report is shared evenly among its parts (Bonferroni), so nothing is assumed about
# how its figures hang together. Half of it is kept for later looks: each time the runs of a cell
# have doubled, half of what is left is spent. So a report may be repeated with more runs until it
# answers, once per doubling, and all of these reports together err at most as often as one was
# allowed to.
SECOND_LOOK = 20
"""Runs of a cell from which on a report is a second look; 40 is a third, 80 a fourth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    parts: int
    """Number of intervals and tests: one for the median of each figure of each cell, and one test
    for the shares of lossy runs of each pair of cells."""
    look: int | None = None
    """Number of the look, from 0, if looks are counted and each is taken once; None counts
    doublings of the runs."""

    def error(self, n: int) -> float:
        """The error allowed to one part that rests on n runs."""
        look = (n // SECOND_LOOK).bit_length() if self.look is None else self.look
        return (1 - CONFIDENCE) * 0.5 ** (look + 1) / self.parts

    def median(self, values: Sequence[float]) -> Interval | None:
        return median_interval(values, confidence=1 - self.error(len(values)))

    def runs_needed(self, rank: int = 1) -> int:
        """Fewest runs of each cell whose medians have intervals that leave out `rank` runs less one
        at either end."""
        n = 1
        while median_rank(n, self.error(n))[0] < rank:
            n += 1
        return n


# The load above which too large a share of trials is not good: a quantile with an interval.
#
# Each trial has a *limit*: the load up to which it would have been good. A trial that was not good
# says its own, by what was served of its load; one that was good says that it lies higher. So
# trials above a load z are draws of "is the limit below z", whose share is binomial: no shape of
# the noise is assumed, only that a trial a little above z says what it would have done at z.


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
    counted = [(z, *_counts(limits, z)) for z in known]
    for z, n, below, until in counted:
        # So few limits below z that more than the allowed share cannot well be: p(z) is allowed.
        if bdtr(below, n, exceed_ratio) <= error:
            low = z
        if high is None and n and bdtrc(until - 1, n, exceed_ratio) <= error:
            high = z
    return Knee(n=len(limits), estimate=_estimate(counted, exceed_ratio), low=low, high=high)


def _counts(limits: Sequence[Limit], z: float) -> tuple[int, int, int]:
    """Trials that were offered z or more; of those, limits below z, and up to it."""
    high = [limit.at for limit in limits if limit.offered >= z]
    known = [at for at in high if at is not None]
    return len(high), sum(at < z for at in known), sum(at <= z for at in known)


def _estimate(counted: Sequence[tuple[float, int, int, int]], exceed_ratio: float) -> float:
    """The lowest limit that more than the allowed share of trials do not pass; if just that share
    lies below, the middle between it and the one before."""
    before = counted[0][0]
    for z, n, below, until in counted:
        if until > exceed_ratio * n:
            return (before + z) / 2 if below and below == exceed_ratio * n else z
        before = z
    return counted[-1][0]


def upper_bound(hits: int, n: int, *, confidence: float = CONFIDENCE) -> float:
    """The share of runs is below this: 0 of 6 lossy says less than 39 % of runs.

    `upper_bound(0, n)` also bounds the share of runs that would be worse than the worst of n.
    """
    _check(hits, n)
    return 1.0 if hits == n else betaincinv(hits + 1, n - hits, confidence)


def lower_bound(hits: int, n: int, *, confidence: float = CONFIDENCE) -> float:
    """Lower bound of the share of runs."""
    return 1 - upper_bound(n - hits, n, confidence=confidence)


def share_interval(hits: int, n: int) -> Interval:
    """Interval of a share: both bounds at once, each allowed half of the error."""
    each = (1 + CONFIDENCE) / 2
    return Interval(
        low=lower_bound(hits, n, confidence=each),
        high=upper_bound(hits, n, confidence=each),
        coverage=CONFIDENCE,
    )


def _check(hits: int, n: int) -> None:
    if not 0 <= hits <= n or n == 0:
        raise ValueError(f"{hits} of {n} runs: a share needs at least one run")
