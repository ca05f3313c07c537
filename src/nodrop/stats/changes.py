"""Changes of the level of a series, placed where its ranks split most clearly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray

FEWEST = 2
"""Values between two changes: one value alone is an outlier."""
MOST = 200
"""Values; the table of more takes seconds."""
STEPS = 0.8
"""Part of the error for one step: most changes are one, near the end. The rest is for a stretch
that differs from what is before and after it."""
SHUFFLES = 1_999
SEED = 20261123
"""A fixed seed: the same values give the same answer."""

Sums = NDArray[np.int64]
"""One series per row: twice its ranks, summed up."""
Chances = NDArray[np.float64]
"""[how many ranks, their sum] → logarithm of how probable a sum is that is as far from its mean."""
Clearest = Callable[[Sums, Chances], NDArray[np.float64]]
"""The smallest of each row."""


def changes(values: Sequence[float], *, error: float) -> list[int]:
    """Places of the first value after each change, in order.

    A series without a change has one with a probability of at most `error`. Each part of a split
    series is asked again, with half of the error. Then each place is looked for again between its
    neighbours, for the first split of several steps may lie between two of them.
    """
    if len(values) > MOST:
        raise ValueError(f"{len(values)} values, and at most {MOST} can be looked at")
    found = sorted(_changes(values, 0, error))
    bounds = [0, *found, len(values)]
    for i in range(len(found), 0, -1):
        begin, end = bounds[i - 1], bounds[i + 1]
        if moved := _step(values[begin:end], STEPS * error):
            bounds[i] = begin + moved[0]
    return bounds[1:-1]


def values_needed(error: float) -> int:
    """Fewer cannot show a change, whatever they are: too many orders of them look as clear."""
    n = 2 * FEWEST
    # Nothing is clearer than two levels, one half each: the lower may come first or last.
    while 2 / comb(n, n // 2) > STEPS * error:
        n += 1
    return n


def _changes(values: Sequence[float], begins: int, error: float) -> list[int]:
    places = _step(values, STEPS * error) or _there_and_back(values, (1 - STEPS) * error)
    if not places:
        return []
    found = [begins + at for at in places]
    for begin, end in pairwise([0, *places, len(values)]):
        found += _changes(values[begin:end], begins + begin, error / 2)
    return found


def _step(values: Sequence[float], error: float) -> list[int]:
    """The likeliest place of one change; empty if there may be none."""
    if len(values) < 2 * FEWEST or not _unlikely(values, _of_steps, error):
        return []
    ranks = ranks_of(values)
    return [FEWEST + int(_steps(_sums(ranks), _chances(_sorted(ranks)))[0].argmin())]


def _there_and_back(values: Sequence[float], error: float) -> list[int]:
    """The likeliest stretch that differs from what is before and after it: one split alone hardly
    sees it."""
    n = len(values)
    if n < 3 * FEWEST or not _unlikely(values, _of_stretches, error):
        return []
    ranks = ranks_of(values)
    sums, chances = _sums(ranks), _chances(_sorted(ranks))
    begin = min(_starts(n), key=lambda i: float(_from(sums, i, chances).min()))
    return [begin, begin + FEWEST + int(_from(sums, begin, chances)[0].argmin())]


def _unlikely(values: Sequence[float], clearest: Clearest, error: float) -> bool:
    """The order that was seen is one of those that are possible, so no p-value is 0."""
    ranks = ranks_of(values)
    seen = clearest(_sums(ranks), _chances(_sorted(ranks)))[0]
    by_chance = _by_chance(_sorted(ranks), clearest)
    as_clear = int(np.searchsorted(by_chance, seen, side="right"))
    return (1 + as_clear) / (1 + len(by_chance)) <= error


def ranks_of(values: Sequence[float]) -> NDArray[np.int64]:
    """Twice the ranks: whole numbers even if values are tied."""
    sample, order = np.array(values), np.sort(values)
    below = np.searchsorted(order, sample, side="left")
    found: NDArray[np.int64] = below + np.searchsorted(order, sample, side="right") + 1
    return found


def _sorted(ranks: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(sorted(ranks.tolist()))


def _sums(ranks: NDArray[np.int64]) -> Sums:
    found: Sums = np.cumsum(np.atleast_2d(ranks), axis=1)
    return found


def _steps(sums: Sums, chances: Chances) -> NDArray[np.float64]:
    before = np.arange(FEWEST, sums.shape[1] - FEWEST + 1)
    found: NDArray[np.float64] = chances[before, sums[:, before - 1]]
    return found


def _of_steps(sums: Sums, chances: Chances) -> NDArray[np.float64]:
    found: NDArray[np.float64] = _steps(sums, chances).min(axis=1)
    return found


def _of_stretches(sums: Sums, chances: Chances) -> NDArray[np.float64]:
    each = [_from(sums, i, chances).min(axis=1) for i in _starts(sums.shape[1])]
    found: NDArray[np.float64] = np.min(each, axis=0)
    return found


def _from(sums: Sums, begin: int, chances: Chances) -> NDArray[np.float64]:
    """The stretches that begin there and end before the series does."""
    length = np.arange(FEWEST, sums.shape[1] - FEWEST - begin + 1)
    found: NDArray[np.float64] = chances[length, sums[:, begin + length - 1] - sums[:, [begin - 1]]]
    return found


def _starts(n: int) -> range:
    return range(FEWEST, n - 2 * FEWEST + 1)


@lru_cache(maxsize=16)
def _chances(ranks: tuple[int, ...]) -> Chances:
    """Exact, by counting the subsets of the ranks with each size and sum."""
    n, total = len(ranks), sum(ranks)
    subsets = np.zeros((n + 1, total + 1))
    subsets[0, 0] = 1.0
    for done, rank in enumerate(ranks):
        subsets[1 : done + 2, rank:] += subsets[: done + 1, : total + 1 - rank]
    subsets /= subsets.sum(axis=1, keepdims=True)
    low = np.cumsum(subsets, axis=1)
    high = np.cumsum(subsets[:, ::-1], axis=1)[:, ::-1]
    with np.errstate(divide="ignore"):  # sums that no subset has
        logarithms = np.log(np.minimum(1.0, 2 * np.minimum(low, high)))
    # The same subsets counted from either side differ in their last bits.
    found: Chances = np.round(logarithms, 9)
    return found


@lru_cache(maxsize=256)
def _by_chance(ranks: tuple[int, ...], clearest: Clearest) -> NDArray[np.float64]:
    """The clearest split of each shuffle, sorted."""
    rng = np.random.default_rng(SEED)
    shuffled = rng.permuted(np.tile(np.asarray(ranks), (SHUFFLES, 1)), axis=1)
    found: NDArray[np.float64] = np.sort(clearest(_sums(shuffled), _chances(ranks)))
    return found
