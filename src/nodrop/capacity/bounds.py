"""Bounds of a cell for a goal: the load that its trials prove to be carried, and the one above
that they show to be too much."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from nodrop.capacity.estimate import Estimate, Sight
from nodrop.capacity.tried import (
    KEEPS_CHANGING,
    MOST_MISSED,
    NEAR,
    ROUNDED,
    Bracket,
    Load,
    Tried,
    loads,
)
from nodrop.config.search import Search
from nodrop.ledger.over_time import SEEN_BEHIND

PROOFS = 3
"""Good trials that prove a load to be carried, if no larger part than `MOST_MISSED` of the
trials of it, and of loads a little below, missed the goal; so many bad ones that a load is too
much, if not as many of it, or of a little more, were carried. Each start of the SUT has its own."""
OF_OTHERS = 2
"""... of a goal that tolerates more than the strictest."""
ODD_WORTH = 3
"""Good trials that a load needs beside each that was set aside, or it is not said to be
carried."""
BRIMFUL = 0.97
"""A load that filled its ring further the last time is not called carried: the next trial of it may
lose."""
WIDE = 2.0
"""Factor on the width that was asked for: bounds further apart are worth more trials."""
LEAST_MARGIN = 0.2
"""Part of the width that was asked for."""
SPREADS_BELOW = 2.0
SPREADS_ABOVE = 0.75
"""Distance of the loads to prove from the limit, in standard deviations of single trials; the least
margin comes on top. The lower one is to lose nothing nearly always, the upper one in most trials.
"""
BEYOND = 1.05
"""Factor by which the limit may lie beyond a load that says it cannot: trials of one load differ by
their noise."""
REUSED = 0.6
"""A load that was tried stands for one that is to be proved if it is no further off than this part
of the width that was asked for: trials of one load say more together."""


class Bounds:
    """All trials of a cell together, whichever start of the SUT they are of."""

    def __init__(
        self,
        trials: Sequence[Tried],
        goal: float,
        search: Search,
        stricter: Bounds | None = None,
    ) -> None:
        """`stricter`: of the goal before, whose load is carried for this one too."""
        self.goal, self._search = goal, search
        self.is_first = stricter is None
        self._least = None if stricter is None else stricter.bracket.lower
        self.proofs = max(PROOFS, search.rounds) if stricter is None else OF_OTHERS
        self.estimate = Estimate(trials, goal, search)
        self._width = search.relative_width
        odd = self.estimate.odd
        self._sights = [s for s in self.estimate.sights if s not in odd]
        self.said = [s for s in self._sights if s.good is not None]
        every = loads(trials)
        self.mute_values = [x.value for x in every if x.mute(goal)]
        self.untriable = {x.value for x in every if x.untriable(goal)}

    @property
    def keeps_changing(self) -> bool:
        """The SUT served less and less: no load is carried for long."""
        return len(self.estimate.phases) >= KEEPS_CHANGING

    def good(self, value: float) -> int:
        """Trials of the final length that carried it."""
        final_s = self._search.final_trial_s
        return sum(
            bool(s.good) for s in self.said if s.trial.value == value and s.trial.seconds >= final_s
        )

    def bad(self, value: float) -> int:
        return sum(s.good is False for s in self.said if s.trial.value == value)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        return loads(s.trial for s in self._sights)

    @cached_property
    def _good_shares(self) -> dict[float, float]:
        """Share of good trials of each load, as more load cannot make a SUT lose less: loads that
        contradict each other are pooled."""
        pools: list[tuple[list[float], int, int]] = []
        for load in self.loads:
            said = [s.good for s in self.said if s.trial.value == load.value]
            if not said:
                continue
            pools.append(([load.value], said.count(True), len(said)))
            while len(pools) > 1 and pools[-1][1] * pools[-2][2] > pools[-2][1] * pools[-1][2]:
                (values, good, n), (above, more, m) = pools[-2:]
                pools[-2:] = [([*values, *above], good + more, n + m)]
        return {value: good / n for values, good, n in pools for value in values}

    @cached_property
    def lowest_bad(self) -> Load | None:
        shares = self._good_shares
        return next((x for x in self.loads if shares.get(x.value, 1.0) <= 0.5), None)

    @cached_property
    def highest_good(self) -> Load | None:
        """The highest good load below the lowest bad one; without a bad one, a load that can be
        sent."""
        shares = self._good_shares
        good = [x for x in self.loads if shares.get(x.value, 0.0) > 0.5]
        if self.lowest_bad is None:
            good = [x for x in good if x.value not in self.untriable] or good
        seen = {s.trial.value for s in self.said if s.good}
        return next((x for x in reversed(good) if x.value in seen), None)

    @property
    def ceiling(self) -> float | None:
        """Lowest load above all carried ones that could not be tried."""
        most = 0.0 if self.highest_good is None else self.highest_good.value
        return min((value for value in self.untriable if value > most), default=None)

    @property
    def to_repeat(self) -> float | None:
        """Load of the last trial, if it fell far below what others say: a second one tells a
        disturbance from a change."""
        if len(self.said) < 3:
            return None
        last, before = self.said[-1], self.said[:-1]
        if last.good is not False or self.bad(last.trial.value) > 1:
            return None
        others = [s for s in before if s.good and s.trial.value >= last.trial.value]
        fell = last.at is None or last.at * (1 + 2 * self.below) < max(
            (s.trial.value for s in others), default=0.0
        )
        return last.trial.value if others and fell else None

    @property
    def below(self) -> float:
        """Margin from the limit to the load to prove as carried."""
        return self._margin(SPREADS_BELOW)

    @property
    def above(self) -> float:
        return self._margin(SPREADS_ABOVE)

    def _margin(self, spreads: float) -> float:
        if self.lowest_bad is not None and self.highest_good is not None and self._misled:
            return self._width / 2
        return self._width * max(0.5, LEAST_MARGIN + spreads * self.estimate.spread / self._width)

    @cached_property
    def _between(self) -> tuple[float, float]:
        low, high = self.highest_good, self.lowest_bad
        assert low is not None and high is not None
        return low.value, high.value

    @cached_property
    def _misled(self) -> bool:
        """The estimate lies beyond a load that says it cannot: bursts are lost first, so what was
        served of too much says too much; or the SUT meets a second limit."""
        (low, high), limit = self._between, self.estimate.limit
        beyond = BEYOND if self.estimate.by_level else 1 + SEEN_BEHIND
        return limit is None or not (low <= limit * beyond and limit < high * beyond)

    @cached_property
    def middle(self) -> float | None:
        """Load between bounds that are far apart, if the estimate says nothing of it."""
        low, high = self._between
        far = high > low * (1 + self._width) * ROUNDED
        return math.sqrt(low * high) if self._misled and far else None

    @cached_property
    def _limit(self) -> float:
        low, high = self._between
        limit = self.estimate.limit
        return math.sqrt(low * high) if self._misled or limit is None else limit

    def _missed(self, value: float) -> list[Sight]:
        """Trials of this load, and of loads a little below it, that were not good."""
        return [s for s in self.said if not s.good and value / NEAR <= s.trial.value <= value]

    def refuted(self, value: float) -> bool:
        missed = len(self._missed(value))
        return missed > MOST_MISSED * (self.good(value) + missed) or value in self._brimful

    @cached_property
    def _brimful(self) -> set[float]:
        """Loads that were carried, but the last time with next to no room in the ring."""
        last = {s.trial.value: s.trial.excess(self.goal) for s in self.said if s.good}
        return {value for value, excess in last.items() if (excess or 0.0) > BRIMFUL}

    @property
    def shown(self) -> bool:
        """A load near the limit was too much."""
        return self.lowest_bad is not None and self.lowest_bad.value <= NEAR * self._limit

    @cached_property
    def lower_target(self) -> float:
        candidate = self.lower_candidate
        aim = self._lower_aim if candidate is None else candidate.value
        return aim if self._least is None else max(aim, self._least.value)

    @cached_property
    def _lower_aim(self) -> float:
        aim = self._between[0] if self._misled else self._limit / (1 + self.below)
        for _ in range(len(self.said)):
            most = aim * (1 + self._width / 4)
            missed = self._missed(most)
            few = len(missed) <= MOST_MISSED * max(self.proofs, self.good(aim) + len(missed))
            reached = [] if few else [min(s.trial.value, s.at or math.inf) for s in missed]
            reached += [v for v in self._brimful if most / (1 + self._width / 2) <= v <= most]
            if not reached:
                break
            aim = min(aim, *reached) / (1 + self._width / 2)
        return aim

    @cached_property
    def lower_candidate(self) -> Load | None:
        """Load that is tried already, near enough to the one to prove."""
        if self.lowest_bad is None or self.highest_good is None:
            return None
        aim, step = self._lower_aim, 1 + REUSED * self._width
        most = max(aim * 1.001, min(self._limit / (1 + self.below / 2), aim * step))
        near = [
            x
            for x in self.loads
            if aim / step <= x.value <= most and self.good(x.value) and not self.refuted(x.value)
        ]
        return max(near, key=lambda x: (self.good(x.value), x.value), default=None)

    @cached_property
    def upper_target(self) -> float:
        if self._misled and not self._outvoted(self._between[1]):
            return self._between[1]
        aim, step = self._limit * (1 + self.above), 1 + REUSED * self._width
        good = [s.trial.value for s in self.said if s.good]
        least = self.lower_target
        near = [
            x.value
            for x in self.loads
            if max(least * 1.001, self._limit * (1 + self.above / 2)) <= x.value <= aim * step
            and self.bad(x.value)
            and not self._outvoted(x.value)
        ]
        if near:
            return max(near, key=lambda v: (self.bad(v), -v))
        carried = [v for v in good if v >= aim * 0.999 and self._outvoted(v)]
        return max([aim, *(v * (1 + self._width) for v in carried)])

    def _odd(self, value: float) -> int:
        return sum(s.trial.value == value for s in self.estimate.odd)

    def needed(self, value: float) -> int:
        """Good trials that prove this load: one more for each that was set aside."""
        return self.proofs + self._odd(value)

    def _outvoted(self, value: float) -> bool:
        carried = sum(bool(s.good) for s in self.said if value <= s.trial.value <= value * NEAR)
        return carried >= self.bad(value)

    @cached_property
    def bracket(self) -> Bracket:
        """The highest load that is proved, else the highest that a whole trial carried and nothing
        speaks against, and the lowest above it that is shown to be too much."""
        carried = {s.trial.value for s in self.said if s.good and self._whole(s.trial)}
        tried = [x for x in self.loads if x.value in carried and not self.refuted(x.value)]
        tried = [x for x in tried if self.good(x.value) >= ODD_WORTH * self._odd(x.value)]
        limit = self.estimate.limit if self.estimate.by_level else None
        proved = [
            x
            for x in tried
            if self.good(x.value) >= self.proofs and (limit is None or x.value <= limit * ROUNDED)
        ]
        lower = max(proved or self._below_bad(tried), key=lambda x: x.value, default=None)
        if self._least is not None and (lower is None or lower.value < self._least.value):
            lower = self._least
        least = 0.0 if lower is None else lower.value
        bad = [x for x in self.loads if x.value > least and self.bad(x.value)]
        shown = [x for x in bad if self.bad(x.value) >= self.proofs and not self._outvoted(x.value)]
        likely = [x for x in bad if not self._outvoted(x.value)]
        upper = next(iter(shown or likely), None)
        return Bracket(lower=lower, upper=upper)

    def _whole(self, trial: Tried) -> bool:
        """Whether a trial had the final length, or sent all packets of the window."""
        window, sent = trial.record.window, trial.record.offered.sent
        return trial.seconds >= self._search.final_trial_s or (
            window is not None and (sent or 0) >= window.packets
        )

    @property
    def between(self) -> float | None:
        """Load whose next trials may bring bounds that are proved closer together; None if they are
        close, if what lies between them was carried once and lost once, or without a level: a ring
        then hides a small overload."""
        lower, upper, limit = self.bracket.lower, self.bracket.upper, self.estimate.limit
        if lower is None or upper is None or limit is None or not self.estimate.by_level:
            return None
        low, high = lower.value, upper.value
        if self.good(low) < self.proofs or high <= low * (1 + WIDE * self._width):
            return None
        inside = [x.value for x in self.loads if low < x.value < high]
        high = min([high, *(v for v in inside if self.bad(v))])
        most = min(high, limit / (1 + self.below / 2))
        begun = [v for v in inside if v < most and 0 < self.good(v) < self.needed(v)]
        if begun:
            return max(begun)
        middle = min(math.sqrt(low * high), most)
        if middle >= low * (1 + self._width / 2):
            return middle
        unsure = high < upper.value and not self.good(high) and self.bad(high) < self.proofs
        return high if unsure else None

    def _below_bad(self, tried: Sequence[Load]) -> Sequence[Load]:
        """Loads that can be sent and were carried more than once; all of them if none was."""
        end = math.inf if self.lowest_bad is None else self.lowest_bad.value
        below = [x for x in tried if x.value < end]
        below = [x for x in below if x.value not in self.untriable] or below
        return [x for x in below if self.good(x.value) > 1] or below

    def of_start(self, trials: Sequence[Tried]) -> Bracket:
        """Bounds by the trials of one start of the SUT alone."""
        own = {id(t.record) for t in trials}
        every = (s for phase in self.estimate.phases for s in phase)
        sights = [s for s in every if s.good is not None and id(s.trial.record) in own]
        found = loads(s.trial for s in sights)
        final_s = self._search.final_trial_s
        tally = Counter(s.trial.value for s in sights if s.good)
        tally.subtract(s.trial.value for s in sights if not s.good)
        # One trial of two may have been disturbed.
        upper = next((x for x in found if tally[x.value] < 0), None)
        end = math.inf if upper is None else upper.value
        good = {s.trial.value for s in sights if s.good and s.trial.seconds >= final_s}
        below = [x for x in found if x.value in good and x.value < end]
        return Bracket(lower=max(below, key=lambda x: x.value, default=None), upper=upper)
