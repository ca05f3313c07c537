"""How much values differ between hosts, and how much within one: host as a random effect.

The one-way random-effects analysis of variance (Searle, Casella and McCulloch, Variance Components,
1992): value = mean + host + trial. The hosts are a sample of the hosts there are, so what is said
of another one rests on as many values as there are hosts, however many trials each has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import f as f_distribution
from scipy.stats import t as t_distribution

from nodrop.stats.interval import CONFIDENCE, Interval

FEWEST_HOSTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpread:
    hosts: int
    values: int
    mean: float
    """Mean of the hosts' means: each host counts once."""
    interval: Interval | None
    """For the mean of all such hosts. None if these do not differ at all: that two or three lost
    nothing is no proof that none does."""
    within: float
    """Standard deviation of the trials of one host."""
    between: float
    """Standard deviation of the hosts' own means, what chance within them adds taken off; 0 if
    they differ no more than that."""
    p: float
    """Probability that hosts which do not differ at all differ so much (F test)."""

    def apart(self, error: float = 1 - CONFIDENCE) -> bool:
        """Hosts differ, and by more than trials of one host. It is said wrongly so often at most
        where hosts are alike."""
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
    """By Student's t of the hosts' means: exact if all hosts have as many trials."""
    k, middle = len(means), fmean(means)
    if min(means) == max(means):
        return None
    spread = math.sqrt(math.fsum((mean - middle) ** 2 for mean in means) / (k - 1) / k)
    reach = float(t_distribution.ppf((1 + CONFIDENCE) / 2, k - 1)) * spread
    return Interval(low=middle - reach, high=middle + reach, coverage=CONFIDENCE)


def _p(mean_between: float, mean_within: float, hosts: int, trials: int) -> float:
    """The arguments are mean squares, then their degrees of freedom."""
    if mean_within == 0:
        return 0.0 if mean_between > 0 else 1.0
    return float(f_distribution.sf(mean_between / mean_within, hosts, trials))
