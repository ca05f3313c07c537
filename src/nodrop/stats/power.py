"""Predictions of what more runs would say, and of what these runs can see: by drawing runs like
them.

Runs are drawn from the runs themselves, twice over: first what the cell may really be like, then
what it would give. So few runs make a wide guess and not a sure one. It stays a guess: a
rare run that has not happened yet is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nodrop.stats.comparison import Answer, Question, Runs, answers, apart_bounds, median_ends
from nodrop.stats.family import SECOND_LOOK, Family

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


def more_runs(base: Sequence[float], other: Sequence[float], asked: Question) -> Advice:
    """Until a comparison that cannot tell yet would answer, with a probability of `POWER`.

    It leads to the next look that the family has kept some of its error for, and to no other.
    """
    return _more_runs(tuple(sorted(base)), tuple(sorted(other)), asked)


@lru_cache(maxsize=4096)
def _more_runs(base: tuple[float, ...], other: tuple[float, ...], asked: Question) -> Advice:
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
    base: tuple[float, ...], other: tuple[float, ...], asked: Question, total: int
) -> float:
    """How often `total` runs of each cell give an answer."""
    rng = np.random.default_rng(SEED)
    b, o = _drawn(rng, base, total), _drawn(rng, other, total)
    found = answers(b, o, asked, apart_bounds(b, o, asked))
    return float(np.mean(found != tuple(Answer).index(Answer.CANNOT_TELL)))


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
    """Before a run: two cells that spread like these runs, with so many runs each, are found to
    differ with a probability of at least `POWER` if they are apart by this.

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
    """Below, intervals reach to the last runs, and of those the runs say too little."""
    return family.runs_needed(SEEN_RANK)


def earlier_needed(family: Family) -> int:
    """From fewer, what further runs show is promised too early (simulated)."""
    return -(-2 * runs_to_see(family) // 3)


def _drawn(rng: np.random.Generator, runs: tuple[float, ...], total: int) -> Runs:
    draws = max(min(DRAWS, MOST_DRAWN // total), 50)
    seen = np.asarray(runs)[rng.integers(0, len(runs), (draws, len(runs)))]
    picked = rng.integers(0, len(runs), (draws, total))
    return np.sort(np.take_along_axis(seen, picked, axis=1), axis=1)
