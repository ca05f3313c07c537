"""The Universal Scalability Law: how capacity grows with threads, and what bounds it.

X(n) = gamma n / (1 + alpha (n - 1) + beta n (n - 1)), with gamma the capacity of one thread, alpha
the share that is done one after the other (contention), and beta what each pair of threads costs
(coherency). N. J. Gunther, Guerrilla Capacity Planning, Springer 2007, chapter 4.

Fitted by least squares; intervals by Student's t with n - 3 degrees of freedom, so four thread
counts give wide ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.stats import t as student

from nodrop.stats.interval import CONFIDENCE, Interval

LEAST_COUNTS = 4
"""Fewest thread counts for a fit: the law has three unknowns."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    alpha: float
    beta: float
    gamma: float
    alpha_interval: Interval
    beta_interval: Interval
    gamma_interval: Interval
    most_threads: int
    """The largest count that was measured: nothing is said beyond it."""

    def at(self, threads: float) -> float:
        return float(_law(np.array([threads]), self.alpha, self.beta, self.gamma)[0])


def fit(threads: Sequence[int], capacities: Sequence[float]) -> Law | None:
    """None if fewer than LEAST_COUNTS different counts were measured, or no law fits them."""
    if len(set(threads)) < LEAST_COUNTS:
        return None
    n, x = np.array(threads, dtype=float), np.array(capacities, dtype=float)
    each = float(np.max(x / n))
    try:
        found, covariance = curve_fit(
            _law, n, x, p0=(0.05, 0.001, each), bounds=((0, 0, 0), (1, np.inf, np.inf))
        )
    except RuntimeError:
        return None  # it does not converge
    errors = np.sqrt(np.diag(covariance))
    if not np.all(np.isfinite(errors)):
        return None
    half = float(student.ppf((1 + CONFIDENCE) / 2, len(threads) - len(found)))
    alpha, beta, gamma = (
        Interval(low=max(0.0, v - half * e), high=v + half * e, coverage=CONFIDENCE)
        for v, e in zip(found, errors, strict=True)
    )
    return Law(
        alpha=float(found[0]),
        beta=float(found[1]),
        gamma=float(found[2]),
        alpha_interval=alpha,
        beta_interval=beta,
        gamma_interval=gamma,
        most_threads=max(threads),
    )


def _law(n: Numbers, alpha: float, beta: float, gamma: float) -> Numbers:
    return gamma * n / (1 + alpha * (n - 1) + beta * n * (n - 1))
