"""Worlds whose truth is known, and how often what is said of them holds.

Every simulation is seeded. NODROP_SIMULATIONS=10000 repeats each so many times and takes a while;
with `pytest -s` the rates are printed, and docs/methodology.md has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import log
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from nodrop.stats.comparison import ComparisonRule, answers, apart_bounds
from nodrop.stats.interval import Family

Runs = NDArray[np.float64]
World = Callable[[np.random.Generator, tuple[int, int]], Runs]

REPEATED = int(os.environ.get("NODROP_SIMULATIONS", "0"))
ALONE = Family(parts=2)
DIFFERENT, SAME, CANNOT_TELL = range(3)


def repeated(usual: int, most: int = 1_000_000) -> int:
    return min(REPEATED, most) or usual


def rate(of: str, *happened: object) -> float:
    found = float(np.mean(happened))
    print(f"rate of {of}: {found:.4f}")  # noqa: T201
    return found


def seeded(*parts: object) -> np.random.Generator:
    """Each case has numbers of its own, the same every time."""
    return np.random.default_rng([ord(c) for c in repr(parts)])


def sometimes(share: float, size: float) -> World:
    """Loses `size` in that share of the runs, and nothing in the others."""
    return lambda rng, shape: np.where(rng.random(shape) < share, size, 0.0)


def _humps(rng: np.random.Generator, shape: tuple[int, int]) -> Runs:
    low = rng.random(shape) < 0.55
    return np.where(low, rng.normal(-5, 1, shape), rng.normal(5, 1, shape))


def _zeros_or_losses(share: float) -> World:
    return lambda rng, shape: np.where(rng.random(shape) < share, 0.0, rng.exponential(1, shape))


WORLDS: dict[str, tuple[World, float]] = {
    "normal": (lambda rng, shape: rng.normal(0, 1, shape), 0.0),
    "wide": (lambda rng, shape: rng.normal(0, 10, shape), 0.0),
    "skewed": (lambda rng, shape: rng.lognormal(0, 2, shape), 1.0),
    "heavy tails": (lambda rng, shape: rng.standard_cauchy(shape), 0.0),
    "few values": (lambda rng, shape: np.round(rng.normal(0, 0.6, shape)), 0.0),
    "mostly zero": (_zeros_or_losses(0.6), 0.0),
    "often zero": (_zeros_or_losses(0.4), log(1.2)),
    "two humps": (_humps, -5 + NormalDist().inv_cdf(0.5 / 0.55)),
    "3 of 10 lose half": (sometimes(0.3, 50.0), 0.0),
    "constant": (lambda rng, shape: np.zeros(shape), 0.0),
}
"""Each with its median."""


def drawn(world: str, rng: np.random.Generator, repetitions: int, n: int) -> Runs:
    return np.sort(WORLDS[world][0](rng, (repetitions, n)), axis=1)


def judged(base: Runs, other: Runs, asked: ComparisonRule) -> NDArray[np.int64]:
    return answers(base, other, asked, apart_bounds(base, other, asked))
