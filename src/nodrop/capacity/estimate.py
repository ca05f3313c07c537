"""The limit of a cell, estimated from what each of its trials says of it.

A trial whose ring was at least half full has a twin, which says at which load that ring just holds.
Of a trial with less in its ring the excess, (highest level + lost) / slots, says it: it crosses 1
at the limit, on either side of which it grows evenly with the load. Without a level a trial that
was too much says by what was served of it where the limit lies, and one that was carried only that
it lies higher.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean, median, stdev

from nodrop.capacity.tried import NEAR, Aside, Tried
from nodrop.config.search import Search
from nodrop.stats.interval import CONFIDENCE, Knee, Limit, knee
from nodrop.stats.special import stdtrit

LEAST_EXCESS = 0.25
MOST_EXCESS = 3.0
"""Excess between which a trial says by its level where the limit lies."""
CLOSE = 0.5
"""Trials at whose load the excess is no further from 1 are preferred to others."""
USUAL_SLOPE = 1.7
"""Growth of the excess with the load at the limit, relative, before two trials show it: of a queue
whose fullest moment brings packets three times as fast as on average."""
SLOPES = (1.0, 200.0)
APART = 0.03
"""Loads further apart show how the excess grows."""
USUAL_SPREAD = 0.15
"""Spread of trials' limits before three of them show it, as a part of the width that was asked
for."""
FELL = 0.93
"""A trial whose limit lies below this part of those before it: another program disturbed it, or the
SUT has changed..."""
FELL_SPREADS = 2.0
"""... if they differ by less than so many standard deviations allow."""
RECOVERED = 0.97
AGREE = 2
"""Trials in a row that fell and so show a change."""
BY_CHANCE = 0.005
ODD = 0.15
"""A share of the trials up to which those that fell are disturbances that nothing else shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The limit as one trial shows it."""

    trial: Tried
    good: bool | None
    at: float | None
    """None: higher than its load, if it was good; else not known."""
    by_level: bool
    close: bool = False
    """The level that says so was near the limit."""

    @property
    def share(self) -> float | None:
        """Part of its load that it carried."""
        if self.good:
            return 1.0
        return None if self.at is None else min(1.0, self.at / self.trial.value)


class Estimate:
    """Joint evidence of a cell's trials for a goal, in the order in which they were measured: of
    those since the SUT last changed for the worse."""

    def __init__(self, trials: Sequence[Tried], goal: float, search: Search) -> None:
        self.goal, self._search = goal, search
        self.every = [t for t in trials if t.outcome != "void"]
        self.slope = self._slope()
        sights = [self._sight(t) for t in self.every]
        cuts = _changes(sights)
        self.phases = [sights[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        self.sights = self.phases[-1]
        self.odd = _odd(self.sights)

    @property
    def changed(self) -> bool:
        """The order of the phases is no chance: trials of a SUT of two modes fall into the better
        ones first and the worse ones last so seldom."""
        *before, after = [len([s for s in phase if s.good is not None]) for phase in self.phases]
        return bool(before) and 1 / math.comb(sum(before) + after, after) <= BY_CHANCE

    def aside(self) -> Mapping[Aside, Sequence[Tried]]:
        """Trials that say nothing of a load, by the reason."""
        mute = [s.trial for s in self.sights if s.good is None and s.trial.loss_ratio is not None]
        return {
            "stolen": [t for t in mute if (t.loss_ratio or 0.0) > self.goal],
            "pace": [t for t in mute if (t.loss_ratio or 0.0) <= self.goal],
            "odd": [s.trial for s in self.odd],
            "changed": [s.trial for phase in self.phases[:-1] for s in phase],
        }

    def _slope(self) -> float:
        """Relative growth of the excess with the load at the limit: the weighted median over pairs
        of trials, those around the limit first."""
        known = [(t.value, e) for t in self.every if (e := t.excess(self.goal)) is not None]
        near = [(x, e) for x, e in known if LEAST_EXCESS <= e <= MOST_EXCESS]
        below = max(((x, e) for x, e in known if e < LEAST_EXCESS), default=None)
        above = min(((x, e) for x, e in known if e > MOST_EXCESS), default=None)
        if below is not None and not any(e <= 1 for _, e in near):
            near.append(below)
        if above is not None and not any(e >= 1 for _, e in near):
            near.append(above)
        slopes = []
        for (x, e), (y, f) in combinations(near, 2):
            if abs(x / y - 1) < APART or (f - e) / (y - x) <= 0:
                continue
            growth = (f - e) / (y - x)
            crossing = x + (1 - e) / growth
            if crossing <= 0:
                continue
            weight = abs(y - x) / ((0.1 + abs(e - 1)) * (0.1 + abs(f - 1)))
            slopes.append((min(max(growth * crossing, SLOPES[0]), SLOPES[1]), weight))
        return _weighted_median(slopes) if slopes else USUAL_SLOPE

    def _sight(self, trial: Tried) -> Sight:
        good, excess = trial.good(self.goal), trial.excess(self.goal)
        by_level = trial.fits(goal=self.goal)
        if by_level is None and excess is not None and LEAST_EXCESS <= excess <= MOST_EXCESS:
            by_level = trial.value / max(0.3, 1 + (excess - 1) / self.slope)
        served = trial.reaches(self.goal) if good is False else None
        known = [at for at in (by_level, served) if at is not None and good is not None]
        at = min(known, default=None)
        is_level = by_level is not None and at == by_level
        close = is_level and at is not None and abs(trial.value / at - 1) <= CLOSE / self.slope
        return Sight(trial=trial, good=good, at=at, by_level=is_level, close=close)

    @cached_property
    def limits(self) -> Sequence[Limit]:
        """Limits from the trials near them: a SUT far above need not be what it is there."""
        near = filter(self._is_near, self.sights)
        limits = [Limit(offered=one.trial.value, at=one.at) for one in near]
        least = min((limit.at for limit in limits if limit.at is not None), default=0.0)
        return [limit for limit in limits if limit.offered * NEAR >= least or limit.at is not None]

    def _is_near(self, sight: Sight) -> bool:
        if sight.good is None or sight in self.odd:
            return False
        far = sight.good is False and (sight.at is None or sight.trial.value > NEAR * sight.at)
        by_pace = not self.by_level and sight.trial.seconds >= self._search.final_trial_s
        return not far and (sight.by_level or by_pace)

    @cached_property
    def _close(self) -> Sequence[float]:
        """Limits that trials near them say, as many as there are."""
        known = [limit for limit in self.limits if limit.at is not None]
        for most in (CLOSE / 2, CLOSE, math.inf):
            within = [
                x.at for x in known if x.at and abs(x.offered / x.at - 1) <= most / self.slope
            ]
            if len(within) >= 3:
                return within
        return [x.at for x in known if x.at]

    @property
    def by_level(self) -> bool:
        """Most of what is known of the limit is known by the level."""
        known = [s for s in self.sights if s.at is not None]
        return 2 * sum(s.by_level for s in known) > len(known)

    @cached_property
    def limit(self) -> float | None:
        """The likeliest; None if no trial says anything of it."""
        if self.by_level and self._close:
            return median(self._close)
        found = None if self.by_level else knee(self.limits, self._search.exceed_ratio)
        if found is not None:
            return found.estimate
        far = [s.at for s in self.sights if s.at is not None]
        return min(far, default=None)

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the limits of single trials, relative."""
        usual = USUAL_SPREAD * self._search.relative_width
        return usual if len(self._close) < 3 else _spread(self._close)

    @cached_property
    def interval(self) -> Knee | None:
        """95 % interval of the limit: of the mean of what trials near it say by their level, or by
        order statistics of what was served."""
        if not self.by_level:
            return knee(self.limits, self._search.exceed_ratio)
        if self.limit is None:
            return None
        n = len(self._close)
        if n < 3:
            return Knee(n=n, estimate=self.limit, low=None, high=None)
        logs = list(map(math.log, self._close))
        half = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * stdev(logs) / math.sqrt(n)
        middle = math.exp(fmean(logs))
        low, high = middle * math.exp(-half), middle * math.exp(half)
        return Knee(n=n, estimate=self.limit, low=min(low, self.limit), high=max(high, self.limit))


def _spread(limits: Sequence[float]) -> float:
    """Standard deviation of at least three limits, relative; one that is far off counts less."""
    logs = [*map(math.log, limits)]
    middle = median(logs)
    apart = 1.4826 * median(abs(x - middle) for x in logs)
    return max(apart, 0.7 * stdev(logs)) if len(logs) > 3 else max(apart, stdev(logs))


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    half, passed = sum(weight for _, weight in values) / 2, 0.0
    for value, weight in sorted(values):
        passed += weight
        if passed >= half:
            return value
    return max(values)[0]


def _changes(sights: Sequence[Sight]) -> list[int]:
    """Places of the first trials after the SUT began to serve less: two in a row fell, and none
    since then did as well as before."""
    cuts, begin = [], 0
    while (cut := _change(sights, begin)) is not None:
        cuts.append(cut)
        begin = cut
    return cuts


def _change(sights: Sequence[Sight], begin: int) -> int | None:
    for cut in range(begin + 1, len(sights)):
        before, after = sights[begin:cut], [s for s in sights[cut:] if s.good is not None]
        row = after[:AGREE]
        if len(row) < AGREE or row[0] is not sights[cut]:
            continue
        if not all(_fell(s, before) for s in row):
            continue
        least = min(s.trial.value for s in row)
        recovered = any(s.good and s.trial.value >= RECOVERED * least for s in after[AGREE:])
        recovered |= any(
            s.at is not None and s.at >= RECOVERED * shown
            for s in after[AGREE:]
            if (shown := _shown(before)) is not None
        )
        if not recovered:
            return cut
    return None


def _shown(sights: Sequence[Sight]) -> float | None:
    """The limit as trials just above and just below it show it."""
    carried = [s.trial.value for s in sights if s.good]
    close = [s.at for s in sights if s.good is False and s.at is not None and s.close]
    return max([*carried, median(close)] if close else carried, default=None)


def _fell(sight: Sight, before: Sequence[Sight]) -> bool:
    """The SUT carried much less than earlier trials show, or a smaller part than in every trial of
    no less load."""
    if sight.good is not False:
        return False
    near = [s.at for s in before if s.close and s.at is not None]
    fell = min(FELL, math.exp(-FELL_SPREADS * _spread(near))) if len(near) > 3 else FELL
    if (shown := _shown(before)) is not None:
        value, at = sight.trial.value, sight.at
        if sight.by_level and at is not None and value <= NEAR * shown and at < fell * shown:
            return True
        if value <= shown and (value if at is None else at) < fell * (
            shown if at is None else value
        ):
            return True
    shares = [s.share for s in before if s.trial.value >= sight.trial.value and s.share]
    return bool(shares) and (sight.share or 0.0) < fell * min(shares)


def _odd(sights: Sequence[Sight]) -> list[Sight]:
    """Single trials that fell, as long as they are few, or this host was seen to be busy: the level
    of a disturbed trial only ever rises."""
    said = [s for s in sights if s.good is not None]
    carried = [s.trial.value for s in said if s.good]
    fell = [
        s
        for s in said
        if s.good is False
        and s.trial.outcome == "measured"
        and s.at is not None
        and sum(value >= 0.999 * s.trial.value for value in carried) >= AGREE
        and s.at < FELL * median(v for v in carried if v >= 0.999 * s.trial.value)
    ]
    seen = [s for s in fell if s.trial.record.host_was_busy]
    unseen = [s for s in fell if s not in seen]
    few = len(unseen) <= max(1, ODD * len(said))
    return seen + (unseen if few else [])
