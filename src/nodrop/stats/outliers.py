"""Values that stand far from the others of their sample: to be marked, never dropped.

Hampel's rule: the distance from the median, in median absolute deviations scaled to be a standard
deviation of normal values. One wild value moves neither. How far is too far depends on how many
values there are (Davies and Gather 1993): so far that one in a hundred normal samples has a mark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

TO_SIGMA = 1.4826
"""Median absolute deviation of normal values → standard deviation."""
MEAN_TO_SIGMA = 1.2533
"""Mean absolute deviation → standard deviation."""
BOUNDS = ((6, 10.8), (8, 8.5), (10, 7.0), (12, 6.3), (15, 6.0), (20, 5.2), (30, 4.8), (50, 4.5))
"""From so many values on, so many scaled deviations: 99 % of normal samples lie within them
(simulated, 40,000 samples each)."""
ALIKE_BOUND = 3.5
"""If more than half of the values are the same, in scaled mean deviations (Iglewicz and Hoaglin
1993): one of six, two of ten."""
FEWEST = BOUNDS[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    index: int
    """In the sample."""
    value: float
    median: float
    """Median of the sample, this value included."""
    deviations: float
    """Scaled, from the median; always positive."""


def outliers(values: Sequence[float]) -> tuple[Outlier, ...]:
    """In the order of the sample; none of fewer than `FEWEST`."""
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
