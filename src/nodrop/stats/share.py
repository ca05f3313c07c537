"""Bounds from n runs on the share of runs in which something happens, such as a loss.

Clopper and Pearson's exact bounds: however large the share really is, they are right with at least
the stated confidence.
"""

from __future__ import annotations

from scipy.special import betaincinv

from nodrop.stats.interval import CONFIDENCE, Interval


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
