"""Coverage of the intervals of hosts, by simulation."""

from __future__ import annotations

import random

import pytest

from nodrop.stats.comparison import host_spread
from nodrop.stats.interval import HostCluster, Interval, median_interval, summarize
from tests.depth import depth


def covers(interval: Interval) -> bool:
    return interval.low <= 0 <= interval.high


@pytest.mark.parametrize("between", [0.0, 0.8, depth(0.5), depth(1.0)])
@pytest.mark.parametrize(
    "trials",
    [(2, 14), (8,) * 4, (2, 4, 8, 18) * 2, *map(depth, ((8, 8), (2, 4, 8, 18), (8,) * 8))],
    ids=str,
)
def test_what_is_printed_covers_the_truth_whatever_hosts_are_like(
    between: float, trials: tuple[int, ...]
) -> None:
    """1,000 fleets each, within = 1: the interval of the mean, and, from six hosts on, that of the
    median. A test of hosts sees so small differences seldom, but the interval of all trials, as if
    no two shared a host, misses the truth far too often."""
    rng, fleets = random.Random(7), 1000
    mean, median, pooled, seen = 0, 0, 0, 0
    for _ in range(fleets):
        hosts = [rng.gauss(0, between) for _ in trials]
        samples = [
            [rng.gauss(host, 1) for _ in range(n)] for host, n in zip(hosts, trials, strict=True)
        ]
        values = [value for sample in samples for value in sample]
        starts = [HostCluster(0, str(i)) for i, n in enumerate(trials) for _ in range(n)]
        spread, summary = host_spread(samples), summarize(values, starts=starts)
        alone = median_interval(values)
        assert spread is not None and summary is not None and alone is not None
        assert (summary.interval is not None) is (len(trials) >= 6)
        mean += spread.interval is not None and covers(spread.interval)
        median += summary.interval is not None and covers(summary.interval)
        pooled += covers(alone)
        seen += spread.apart()
    assert 0.93 <= mean / fleets <= 0.985
    assert len(trials) < 6 or median / fleets >= 0.95
    if between >= 0.8:
        assert pooled / fleets < 0.88
        assert seen / fleets < 0.8
