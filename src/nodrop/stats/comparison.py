"""Do two cells differ? Different, the same within a margin, or too early to say.

The difference is that of the two medians. Its interval is made of theirs: if each median lies in
its own interval, their difference lies between the differences of the ends. So it covers whatever
the runs are like: unequal spread, unequal n, ties, two humps, heavy tails. The price is width.

"Same" says more than that the medians are near: it also bounds the share of runs that lie further
apart than the margin. Seven tenths of the runs may agree while the others lose half their packets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from nodrop.stats.interval import (
    CONFIDENCE,
    SECOND_LOOK,
    Family,
    Interval,
    lower_bound,
    median_rank,
    upper_bound,
)
from nodrop.stats.special import fdtrc, fisher_exact, stdtrit

MOST_APART = 0.2
"""Cells are called the same only if fewer of their runs than this can lie outside the margin."""

Runs = NDArray[np.float64]
"""One sorted sample per row."""


class Relation(StrEnum):
    DIFFERENT = "different"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRule:
    """The margins within which two cells are the same, and the family of the comparison."""

    absolute: float = 0.0
    relative: float = 0.0
    """Margin as a share of the base's median. Differences up to the sum of both margins count as
    the same."""
    losses: bool = False
    """Zero is special: the shares of runs above it are compared as well."""
    family: Family

    def above(self, base: Runs) -> Runs:
        return base + self.absolute + self.relative * np.abs(base)

    def below(self, base: Runs) -> Runs:
        return base - self.absolute - self.relative * np.abs(base)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`other` against `base`."""

    answer: Relation
    shift: float
    """Median of other − median of base."""
    interval: Interval | None
    """Interval of the shift. None if either cell has too few runs for its family."""
    relative: Interval | None
    """Interval of the shift as a share of the base's median. None unless that median is surely
    above 0."""
    apart: float
    """Upper bound of the share of runs that lie further apart than the margin, or lose in one cell
    only."""

    @property
    def by_share(self) -> bool:
        """Different in how often runs lose: the medians alone would not show it."""
        between = self.interval
        holds_zero = between is not None and between.low <= 0 <= between.high
        return self.answer is Relation.DIFFERENT and holds_zero


def compare(
    base: Sequence[float], other: Sequence[float], asked: ComparisonRule
) -> Comparison | None:
    """Comparison of two samples; None without values."""
    if not base or not other:
        return None
    b, o = (np.sort(np.asarray([values], dtype=np.float64)) for values in (base, other))
    apart = apart_bounds(b, o, asked)
    medians = asked.family.median(base), asked.family.median(other)
    return Comparison(
        answer=tuple(Relation)[int(answers(b, o, asked, apart)[0])],
        shift=float(median(other)) - float(median(base)),
        interval=_shift(*medians),
        relative=_relative(*medians),
        apart=float(apart[0]),
    )


def answers(base: Runs, other: Runs, asked: ComparisonRule, apart: Runs) -> NDArray[np.int64]:
    """Index of each row's answer in `Relation`."""
    different, same, cannot_tell = range(len(Relation))
    found = np.full(len(base), cannot_tell)
    b, o = (median_ends(runs, asked.family) for runs in (base, other))
    if b is not None and o is not None:
        found[(o[0] > b[1]) | (o[1] < b[0])] = different
        # Inside the margin is the same even if zero is left out: with enough runs any two
        # cells differ by something.
        near = (o[1] <= asked.above(b[0])) & (o[0] >= asked.below(b[1]))
        found[near & (apart <= MOST_APART)] = same
        if asked.losses:
            found[_shares_differ(base, other, asked.family)] = different
    return found


def apart_bounds(base: Runs, other: Runs, asked: ComparisonRule) -> Runs:
    """How far the shares of runs above any one value can differ, once the base was moved by the
    margin. Every value has its own test, and all of them must pass, so each may use the whole
    error."""
    found = np.maximum(
        _excess(other, asked.above(base)),
        _excess(asked.below(base), other),
    )
    if asked.losses:
        b_low, b_high = _bounds(base.shape[1])
        o_low, o_high = _bounds(other.shape[1])
        b, o = np.sum(base > 0, axis=1), np.sum(other > 0, axis=1)
        lossier = np.maximum(o_high[o] - b_low[b], b_high[b] - o_low[o])
        found = np.maximum(found, lossier)
    return found


def median_ends(runs: Runs, family: Family) -> tuple[Runs, Runs] | None:
    n = runs.shape[1]
    rank, _ = median_rank(n, family.error(n))
    return (runs[:, rank - 1], runs[:, n - rank]) if rank else None


def _excess(higher: Runs, lower: Runs) -> Runs:
    """Upper bounds of the largest P(higher > t) − P(lower > t)."""
    n, m = higher.shape[1], lower.shape[1]
    _, most = _bounds(n)
    least, _ = _bounds(m)
    values = np.concatenate([higher, lower], axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, axis=1)
    of_higher = order < n
    found = most[n - np.cumsum(of_higher, axis=1)] - least[m - np.cumsum(~of_higher, axis=1)]
    # Only past the last of equal values are all of them counted.
    tied = values[:, 1:] == values[:, :-1]
    found[:, :-1][tied] = -1.0
    everything = most[n] - least[m]
    worst: Runs = found.max(axis=1)
    return np.maximum(worst, everything)


@lru_cache(maxsize=256)
def _bounds(n: int) -> tuple[Runs, Runs]:
    """Lower and upper bounds of a share for 0 … n hits. A lower bound of one cell and an upper
    bound of another hold at once."""
    each = CONFIDENCE**0.5
    low = [lower_bound(hits, n, confidence=each) for hits in range(n + 1)]
    high = [upper_bound(hits, n, confidence=each) for hits in range(n + 1)]
    return np.array(low), np.array(high)


def _shares_differ(base: Runs, other: Runs, family: Family) -> NDArray[np.bool_]:
    m, n = base.shape[1], other.shape[1]
    lossy = zip(np.sum(base > 0, axis=1), np.sum(other > 0, axis=1), strict=True)
    allowed = family.error(min(m, n))
    return np.array([fisher_exact(int(b), m, int(o), n) <= allowed for b, o in lossy])


def _shift(base: Interval | None, other: Interval | None) -> Interval | None:
    if base is None or other is None:
        return None
    return Interval(
        low=other.low - base.high,
        high=other.high - base.low,
        coverage=base.coverage + other.coverage - 1,
    )


def _relative(base: Interval | None, other: Interval | None) -> Interval | None:
    if base is None or other is None or base.low <= 0:
        return None
    return Interval(
        low=other.low / (base.high if other.low > 0 else base.low) - 1,
        high=other.high / (base.low if other.high > 0 else base.high) - 1,
        coverage=base.coverage + other.coverage - 1,
    )


FEWEST_HOSTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpread:
    hosts: int
    values: int
    mean: float
    """Mean of the hosts' means: each host counts once."""
    interval: Interval | None
    """Interval of the mean of all such hosts. None if these do not differ at all: that two or three
    lost nothing is no proof that none does."""
    within: float
    """Standard deviation of the trials of one host."""
    between: float
    """Standard deviation of the hosts' own means, what chance within them adds taken off; 0 if
    they differ no more than that."""
    p: float
    """Probability that hosts which do not differ at all differ by as much (F test)."""

    def apart(self, error: float = 1 - CONFIDENCE) -> bool:
        """Hosts differ, and by more than trials of one host. The error is the probability of saying
        so where hosts are alike."""
        return self.p < error and self.between > self.within


def host_spread(samples: Sequence[Sequence[float]]) -> HostSpread | None:
    """`samples`: of each host its values. None if they cannot be told apart: fewer than two hosts,
    or not one with two values."""
    known = [sample for sample in samples if sample]
    k, n = len(known), sum(map(len, known))
    if k < FEWEST_HOSTS or n == k:
        return None
    means = [fmean(sample) for sample in known]
    grand = sum(map(sum, known)) / n
    pairs = list(zip(known, means, strict=True))
    squares_between = math.fsum(len(sample) * (mean - grand) ** 2 for sample, mean in pairs)
    squares_within = math.fsum((v - mean) ** 2 for sample, mean in pairs for v in sample)
    mean_between, mean_within = squares_between / (k - 1), squares_within / (n - k)
    each = (n - sum(len(sample) ** 2 for sample in known) / n) / (k - 1)
    between = max(0.0, (mean_between - mean_within) / each)
    return HostSpread(
        hosts=k,
        values=n,
        mean=fmean(means),
        interval=_of_the_mean(means),
        within=math.sqrt(mean_within),
        between=math.sqrt(between),
        p=_p(mean_between, mean_within, k - 1, n - k),
    )


def _of_the_mean(means: Sequence[float]) -> Interval | None:
    """Interval of the mean by Student's t of the hosts' means: exact if all hosts have as many
    trials."""
    k, middle = len(means), fmean(means)
    if min(means) == max(means):
        return None
    spread = math.sqrt(math.fsum((mean - middle) ** 2 for mean in means) / (k - 1) / k)
    reach = stdtrit(k - 1, (1 + CONFIDENCE) / 2) * spread
    return Interval(low=middle - reach, high=middle + reach, coverage=CONFIDENCE)


def _p(mean_between: float, mean_within: float, hosts: int, trials: int) -> float:
    """The arguments are mean squares, then their degrees of freedom."""
    if mean_within == 0:
        return 0.0 if mean_between > 0 else 1.0
    return fdtrc(hosts, trials, mean_between / mean_within)


# Predictions of what more runs would say, and of what these runs can see: by drawing runs like
# them.
#
# Runs are drawn from the runs themselves, twice over: first what the cell may really be like, then
# what it would give. So few runs make a wide guess and not a sure one. It stays a guess: a
# rare run that has not happened yet is not in it.
POWER = 0.8
"""How probable an answer must be before it is promised."""
SEEN, SEEN_RANK = 0.9, 3
"""Draws know less than the world does: what nine tenths of them see is seen in at least four of
five further cells, if intervals leave out two runs at either end (simulated)."""
SEEN_AHEAD = 0.95
"""Share of draws, as `SEEN`, for runs that are only planned: fewer earlier runs say less of their
spread."""
DRAWS = 400
MOST_DRAWN = 400_000
SEED = 20261122
"""A fixed seed: the same runs give the same advice."""
MOST_TIMES, MOST_RUNS = 8, 1280
"""A few runs say nothing about many times as many. Beyond this, no number is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How many more runs per cell; None if no number can be named."""

    more_runs: int | None
    only_least: bool = False
    """Fewer cannot answer whatever they show; whether so many do is not known."""


def more_runs(base: Sequence[float], other: Sequence[float], asked: ComparisonRule) -> Advice:
    """Further runs after which a comparison answers, with a probability of `POWER`.

    It leads to the next look that the family has kept some of its error for, and to no other.
    """
    return _more_runs(tuple(sorted(base)), tuple(sorted(other)), asked)


@lru_cache(maxsize=4096)
def _more_runs(base: tuple[float, ...], other: tuple[float, ...], asked: ComparisonRule) -> Advice:
    have = min(len(base), len(other))
    needed = asked.family.runs_needed()
    if have < needed:
        return Advice(more_runs=needed - have, only_least=True)
    total = SECOND_LOOK
    while total <= min(MOST_TIMES * have, MOST_RUNS):
        if total > have and _answered(base, other, asked, total) >= POWER:
            return Advice(more_runs=total - have)
        total *= 2
    return Advice(more_runs=None)


def _answered(
    base: tuple[float, ...], other: tuple[float, ...], asked: ComparisonRule, total: int
) -> float:
    """How often `total` runs of each cell give an answer."""
    rng = np.random.default_rng(SEED)
    b, o = _drawn(rng, base, total), _drawn(rng, other, total)
    found = answers(b, o, asked, apart_bounds(b, o, asked))
    return float(np.mean(found != tuple(Relation).index(Relation.CANNOT_TELL)))


def resolution(values: Sequence[float], family: Family) -> float | None:
    """Another cell with as many runs as these, alike but for a shift, is found to differ with a
    probability of at least `POWER` from this shift on.

    None from fewer than `runs_to_see`, and if so many runs are alike that they show no spread.
    """
    runs = tuple(sorted(values))
    if len(runs) < runs_to_see(family):
        return None
    return _seen(runs, len(runs), family, SEEN)


def detectable(earlier: Sequence[float], planned: int, family: Family) -> float | None:
    """Difference that a planned run is found to show with a probability of at least `POWER`, if its
    two cells spread like these runs.

    None from fewer than `earlier_needed` earlier runs or `runs_to_see` planned ones, and if the
    earlier runs show no spread.
    """
    if len(earlier) < earlier_needed(family) or planned < runs_to_see(family):
        return None
    return _seen(tuple(sorted(earlier)), planned, family, SEEN_AHEAD)


def _seen(runs: tuple[float, ...], total: int, family: Family, share: float) -> float | None:
    rng = np.random.default_rng(SEED)
    base = median_ends(_drawn(rng, runs, total), family)
    other = median_ends(_drawn(rng, runs, total), family)
    if base is None or other is None:
        return None
    seen = float(np.quantile(base[1] - other[0], share, method="higher"))
    return seen if seen > 0 else None


def runs_to_see(family: Family) -> int:
    """Fewest runs that say enough: with fewer, intervals reach to the last runs, of which the runs
    say too little."""
    return family.runs_needed(SEEN_RANK)


def earlier_needed(family: Family) -> int:
    """Fewest earlier runs: from fewer, what further runs show is promised too early (simulated)."""
    return -(-2 * runs_to_see(family) // 3)


def _drawn(rng: np.random.Generator, runs: tuple[float, ...], total: int) -> Runs:
    draws = max(min(DRAWS, MOST_DRAWN // total), 50)
    seen = np.asarray(runs)[rng.integers(0, len(runs), (draws, len(runs)))]
    picked = rng.integers(0, len(runs), (draws, total))
    return np.sort(np.take_along_axis(seen, picked, axis=1), axis=1)
