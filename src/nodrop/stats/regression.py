"""Whether the newest values of a series are worse than its best stretch, or might be unseen.

Three answers. *Worse*: the newest values lie above the best stretch before them, by a rank-sum test
and by more than the margin. *No worse*: they do not lie above it by more than the margin, and these
values spread so little that a regression of twice the margin would be found within three further
ones. *Cannot tell*: anything else. Larger values are the worse ones.

The last change alone says nothing: after a regression, a small step down is one for the better, and
a creep has only small steps. So everything is held against the best stretch between two changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from math import comb
from statistics import median

import numpy as np
from numpy.typing import NDArray

from nodrop.stats.changes import FEWEST, changes, ranks_of, values_needed

NEWEST = (1, 2, 3)
"""Numbers of newest values that are looked at by themselves; more of them are a stretch."""
TIMES = 2.0
"""Regressions of so many margins are to be found."""
POWER = 0.95
FEWEST_ALIKE = 8
"""Values from which their spread is known; with fewer, nobody knows how widely they spread."""
WIDER = 1.2
"""Residuals of a few values are smaller than those of the world that they came from (simulated)."""
MOST_BEFORE, MOST_NEWEST = 40, 20
"""Values of a stretch that a test takes: more change no answer, and take seconds."""

Floats = NDArray[np.float64]
Margin = Callable[[float], float]
"""Level → how much more than it does not matter."""


class RegressionVerdict(StrEnum):
    WORSE = "worse"
    NO_WORSE = "no worse"
    CANNOT_TELL = "cannot tell"


class Why(StrEnum):
    SEEN = "seen"
    FEW = "few"
    """Values, whatever they are."""
    NEWEST = "newest"
    """Values lie higher by more than the margin, and chance can do that."""
    SPREAD = "spread"
    """A regression of `TIMES` margins would not be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    verdict: RegressionVerdict
    why: Why
    best: tuple[int, int] | None
    """The first value of the best stretch, and the first after it; None of too few values."""
    newest: int
    """Number of newest values that were held against it."""
    found_ratio: float | None
    """How often a regression of `TIMES` margins is found within three values; None if unknown."""
    places: tuple[int, ...]
    """The first value after each change."""
    more: int
    """Values that are needed at least; 0 if no number helps, or none is needed."""


def judge(values: Sequence[float], margin: Margin, *, error: float) -> Judgement:
    """*Worse* has a probability of at most `error` if nothing ever changed, and so has a change."""
    found = _judged(values, margin, error)
    begin = found.places[-1] if found.places else 0
    for newest, gap_needed in ((2, _gap_of_two), (1, _gap_of_one)):
        if _apart_from_all(values[begin:], newest, margin, gap_needed, error / 2):
            return replace(found, places=(*found.places, len(values) - newest))
    return found


LEAST_GAP = 0.25
"""Gap in ranges of the values before it, and in margins."""


def _gap_of_two(n: int, error: float) -> float:
    """Gap, in ranges of the others, that the last two of `n` values of noise have with a
    probability of at most `error`: simulated, of the worst of six shapes (docs/methodology.md)."""
    return math.log(2 / comb(n, 2) / error) / 2.5


def _gap_of_one(n: int, error: float) -> float:
    """Gap that the last value alone has, in the same ranges and as rarely."""
    return 8.7 * math.log(0.08 / error) / n


def _apart_from_all(
    values: Sequence[float],
    newest: int,
    margin: Margin,
    gap_needed: Callable[[int, float], float],
    error: float,
) -> bool:
    """The newest values lie beyond all before them, by more than the margin and by a gap that
    noise hardly has. Ranks alone show no change of so few values."""
    n = len(values)
    if n < FEWEST_ALIKE:
        return False
    before, last = values[:-newest], values[-newest:]
    low, high = min(before), max(before)
    gap, level = max(min(last) - high, low - max(last)), median(before)
    needed = max(LEAST_GAP, gap_needed(n, error))
    beyond = gap > max(needed * (high - low), LEAST_GAP * margin(level))
    return beyond and abs(median(last) - level) > margin(level)


def _judged(values: Sequence[float], margin: Margin, error: float) -> Judgement:
    places = _placed(values, changes(values, error=error / 2))
    bounds = [*pairwise([0, *places, len(values)])]
    begin = bounds[-1][0]
    if not values:
        return Judgement(
            verdict=RegressionVerdict.CANNOT_TELL, why=Why.FEW, best=None, newest=0,
            found_ratio=None, places=(), more=values_needed(error / 2),
        )  # fmt: skip
    lasts = [n for n in NEWEST if n <= len(values) - begin]
    for newest in dict.fromkeys([*([len(values) - begin] if places else []), *reversed(lasts)]):
        best = _best(values, bounds, newest)
        if best is None:
            continue
        level = median(values[slice(*best)])
        now = median(values[len(values) - newest :])
        # A long stretch may begin with a higher level that has gone.
        least = min(now, median(values[-NEWEST[-1] :])) if newest > NEWEST[-1] else now
        if least - level > margin(level) and _above(values, bounds, newest) <= error / 2:
            return Judgement(
                verdict=RegressionVerdict.WORSE, why=Why.SEEN, best=best, newest=newest,
                found_ratio=None, places=_with_the_last(values, places), more=0,
            )  # fmt: skip
    return _not_worse(values, places, margin, error)


def _placed(values: Sequence[float], places: Sequence[int]) -> tuple[int, ...]:
    """Each change that is shown, at the run where the levels part: ranks show that there is one,
    and place it badly near an end."""
    bounds = [0, *places, len(values)]
    for i in range(1, len(bounds) - 1):
        begin, end = bounds[i - 1], bounds[i + 1]
        up = median(values[bounds[i] : end]) > median(values[begin : bounds[i]])
        bounds[i] = begin + _parting(values[begin:end], up=up)
    return tuple(bounds[1:-1])


def _with_the_last(values: Sequence[float], places: tuple[int, ...]) -> tuple[int, ...]:
    """The places; if no change leads up to the newest values, which are worse, also theirs."""
    bounds = [0, *places, len(values)]
    levels = [median(values[begin:end]) for begin, end in pairwise(bounds)]
    if levels[-1] > min(levels) or len(values) - bounds[-2] < FEWEST:
        return places
    return (*places, bounds[-2] + _parting(values[bounds[-2] :], up=True))


def _parting(values: Sequence[float], *, up: bool) -> int:
    """The first value of the second of two levels that lie as close to all values as two can."""
    found = [
        (_apart(values[:at]) + _apart(values[at:]), at)
        for at in range(1, len(values))
        if (median(values[at:]) > median(values[:at])) == up
    ]
    return min(found)[1] if found else len(values) - 1


def _apart(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)


def _not_worse(
    values: Sequence[float], places: tuple[int, ...], margin: Margin, error: float
) -> Judgement:
    bounds = [*pairwise([0, *places, len(values)])]
    best = min(bounds, key=lambda b: median(values[slice(*b)]))
    level = median(values[slice(*best)])
    begin, end = bounds[-1]
    lasts = [n for n in (*NEWEST, end - begin) if n <= end - begin]
    highest = max(lasts, key=lambda n: (median(values[end - n :]), -n))
    now = median(values[end - highest :])
    few = _values_lacking(len(values), best[1] - best[0], len(bounds), error)
    found = None if few else _found_ratio(values, bounds, best, margin(level), error)
    if found is not None and found < POWER and highest in NEWEST and now - level > margin(level):
        # Few values that lie higher are no spread of the others.
        before = values[:-highest]
        held = [*bounds[:-1], (begin, end - highest)] if end - highest > begin else bounds[:-1]
        own = min(held, key=lambda b: median(before[slice(*b)]))
        found = _found_ratio(before, held, own, margin(level), error)
    if few:
        why = Why.FEW
    elif found is not None and found < POWER:
        why = Why.SPREAD
    elif now - level > margin(level):
        why = Why.NEWEST
    else:
        why = Why.SEEN
    return Judgement(
        verdict=RegressionVerdict.NO_WORSE if why is Why.SEEN else RegressionVerdict.CANNOT_TELL,
        why=why, best=best, newest=highest,
        found_ratio=found, places=places, more=few,
    )  # fmt: skip


def _values_lacking(total: int, alike: int, stretches: int, error: float) -> int:
    """Values still needed until three further ones can be found to lie above `alike` others."""
    needed = FEWEST_ALIKE
    while _most_before(needed, error / 2 / stretches) < 0:
        needed += 1
    return max(needed - alike, values_needed(error / 2) - total, 0)


def _best(
    values: Sequence[float], bounds: Sequence[tuple[int, int]], newest: int
) -> tuple[int, int] | None:
    """The lowest stretch before the newest values."""
    before = [*_before(bounds, newest)]
    return min(before, key=lambda b: median(values[slice(*b)]), default=None)


def _before(bounds: Sequence[tuple[int, int]], newest: int) -> Iterator[tuple[int, int]]:
    *earlier, (begin, end) = bounds
    yield from earlier
    if end - newest - begin >= FEWEST:
        yield begin, end - newest


def _above(values: Sequence[float], bounds: Sequence[tuple[int, int]], newest: int) -> float:
    """How probable it is that newest values, of any number looked at, lie so clearly above the best
    stretch by chance: what each number can reach of it, added up; times the stretches that could
    have been the best one."""
    begin, end = bounds[-1]
    looked_at = {n for n in (*NEWEST, *((end - begin,) if begin else ())) if n <= end - begin}
    tails = {n: _tail(values, bounds, n) for n in looked_at}
    seen = tails[newest][0]
    reached = sum(max((p for p in tail if p <= seen * (1 + 1e-9)), default=0.0)
                  for _, tail in tails.values())  # fmt: skip
    return reached * len([*_before(bounds, newest)])


def _tail(
    values: Sequence[float], bounds: Sequence[tuple[int, int]], newest: int
) -> tuple[float, Floats]:
    """P-value of the rank-sum test for what was seen, and all p-values that could be seen."""
    best = _best(values, bounds, newest)
    if best is None:
        return 1.0, np.ones(1)
    before = values[slice(*best)][-MOST_BEFORE:]
    new = values[len(values) - newest :][-MOST_NEWEST:]
    ranks = ranks_of([*before, *new])
    found = _tails(tuple(sorted(ranks.tolist())), len(new))
    return float(found[int(ranks[len(before) :].sum())]), found[found > 0]


@lru_cache(maxsize=256)
def _tails(ranks: tuple[int, ...], newest: int) -> Floats:
    """Sum of ranks → how probable so large a sum of so many of them is, exactly."""
    subsets = np.zeros((newest + 1, sum(ranks) + 1))
    subsets[0, 0] = 1.0
    for rank in ranks:
        subsets[1:, rank:] += subsets[:-1, : subsets.shape[1] - rank].copy()
    found: Floats = np.cumsum(subsets[newest][::-1])[::-1] / comb(len(ranks), newest)
    return found


@lru_cache(maxsize=256)
def _most_before(alike: int, error: float) -> int:
    """Most pairs of one of `alike` values and one of three further ones in which the further one is
    the lower, with these three still found to lie above; below 0: never."""
    tails = {n: _tails(tuple(2 * rank for rank in range(1, alike + n + 1)), n) for n in NEWEST}
    most, last = -1, NEWEST[-1]
    highest = 2 * sum(range(alike + 1, alike + last + 1))
    for before in range(alike * last):
        seen = tails[last][highest - 2 * before]
        reached = sum(max((p for p in tail if 0 < p <= seen * (1 + 1e-9)), default=0.0)
                      for tail in tails.values())  # fmt: skip
        if reached > error:
            break
        most = before
    return most


def _found_ratio(
    values: Sequence[float],
    bounds: Sequence[tuple[int, int]],
    best: tuple[int, int],
    margin: float,
    error: float,
) -> float:
    """How often three further values, `TIMES` margins above the best stretch, are found."""
    own = np.sort(np.asarray(values[slice(*best)][-MOST_BEFORE:], dtype=np.float64))
    level = float(np.median(own))
    new = level + _residuals(values, bounds) * WIDER + TIMES * margin
    # Pairs in which the further value is the lower one; a tie is half of one.
    below = len(own) - (np.searchsorted(own, new, "left") + np.searchsorted(own, new, "right")) / 2
    most = _most_before(len(own), error / 2 / len(bounds))
    sums = below[:, None, None] + below[None, :, None] + below[None, None, :]
    higher = (new - level > margin).astype(np.int64)
    matter = higher[:, None, None] + higher[None, :, None] + higher[None, None, :]
    return float(np.mean((sums <= most) & (matter >= 2)))


def _residuals(values: Sequence[float], bounds: Sequence[tuple[int, int]]) -> Floats:
    """How far values lie from the median of their stretch. Short stretches say little of it."""
    long = [b for b in bounds if b[1] - b[0] >= FEWEST_ALIKE] or [*bounds]
    found = [v - median(values[slice(*b)]) for b in long for v in values[slice(*b)]]
    return np.asarray(found[-MOST_BEFORE:], dtype=np.float64)
