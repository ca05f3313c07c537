"""How a search chooses its next load: nodrop's own way, MLRsearch's, or plain bisection.

Each is a function of the trials of one round of one cell. None: it has nothing to add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from nodrop.capacity.tried import NEAR, Load, Picture, Tried, loads
from nodrop.config.search import Search
from nodrop.ledger.over_time import SEEN_BEHIND
from nodrop.results.trial import Ramp

ABOVE = 0.02
"""By so much at least a load is above the limits of trials that are to say theirs."""
LEAST_KNOWN = 3
"""So many limits say how much trials differ, before a lower load is tried."""
UNDECIDED = 3
"""So many trials of a load that do not agree are enough: it is at the limit itself."""
MOST_DOUBTFUL = 24
"""Trials of a round whose losses the hypervisor explains: it hides what the load does."""
SHOWN = 1.2 * SEEN_BEHIND
"""A trial of a load so far above what is served shows that it is too much."""
SURPRISING = 0.95
"""A load just above what is served loses less than the rest of this."""
ASTRAY = 0.5
"""So far down a search goes at once, if what was served of more load has misled it, or the load
cannot be tried."""
BELOW_BAD = 0.75
"""So far below the least load of rounds that carried none the next one looks; if nothing was
measured of that load, as far as `ASTRAY`."""
RAMP_ABOVE = 1.05
"""So far above what a ramp expects its first trial is: if that is right, it says its limit."""
LONGEST = 4.0
"""A trial that is to show a pace lasts at most so many times as long as others."""
LAST_WORD = 2
"""One of so many last trials of a round is of the load that it carried."""
CEILING = 1.15
"""If the sender cannot do more, "at least" need not be closer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A load to be tried, and for how long."""

    value: float
    seconds: float
    ramp_from: float | None = None
    """The load grows from there to `value`; None: it is the same all the time."""
    soak: bool = False
    """Each pass over the window has flows of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """All that a method may know."""

    search: Search
    start: float
    """Where to begin if nothing is known."""
    lowest: float
    highest: float
    tried: Sequence[Tried]
    """Trials of this round, in order."""
    earlier: Sequence[Tried] = ()
    """Trials of the rounds before."""
    ramp: Ramp | None = None
    """Results of the cell's ramp; None if it had none."""

    def ask(self, value: float, seconds: float) -> Ask:
        digits = max(3, math.ceil(-math.log10(self.search.relative_width)) + 2)
        # The limits as they were given: rounded ones would lie outside, or never be reached.
        if self.lowest < value < self.highest:
            value = float(f"{value:.{digits}g}")
        return Ask(value=min(max(value, self.lowest), self.highest), seconds=seconds)


Method = Callable[[Field], Ask | None]


def bisection(field: Field) -> Ask | None:
    """Each load once; halves what is left until it is narrow enough, for each goal in its turn."""
    for goal in field.search.goals:
        found = loads(field.tried)
        low, high = field.lowest, field.highest
        for load in found:
            if load.looks_carried(goal, field.search) is False:
                high = min(high, load.value)
        for load in found:
            if load.looks_carried(goal, field.search) and load.value < high:
                low = max(low, load.value)
        known = {load.value for load in found}
        if high not in known:
            return field.ask(high, field.search.final_trial_s)
        if low not in known and high > low:
            return field.ask(low, field.search.final_trial_s)
        if high > low and high - low > field.search.relative_width * high:
            return field.ask((low + high) / 2, field.search.final_trial_s)
    return None


def own(field: Field) -> Ask | None:
    """Goes up until a trial is not good: how much of its load was served then says where to look.
    From there on trials of the final length, most of them just above that and some just below,
    until the fitted interval is narrow enough or the time for it is used up (docs/methodology.md).
    """
    return next((ask for goal in field.search.goals if (ask := _Own(field, goal).ask())), None)


class _Own:
    """The search for one goal."""

    def __init__(self, field: Field, goal: float) -> None:
        self._field, self._goal, self._search = field, goal, field.search
        self._width, self._final_s = field.search.relative_width, field.search.final_trial_s
        self._picture = Picture(field.tried, goal, field.search)
        self._loads = self._picture.loads
        self._known = sorted(x.at for x in self._picture.limits if x.at is not None)
        self._bad = next((x for x in self._loads if self._leans(x) is False), None)
        below = [x for x in self._loads if self._bad is None or x.value < self._bad.value]
        self._good = next((x for x in reversed(below) if self._leans(x)), None)

    @cached_property
    def _earlier(self) -> Picture:
        return Picture(self._field.earlier, self._goal, self._search)

    def ask(self) -> Ask | None:
        if self._picture.keeps_changing:
            return None
        ask = self._next() or self._last_word()
        return None if ask is None else self._long_enough(ask)

    def _long_enough(self, ask: Ask) -> Ask:
        """Twice as long as a trial of that load that lost nothing, and was too short to show the
        pace."""
        short = [
            t.seconds
            for t in self._field.tried
            if t.value == ask.value
            and t.outcome == "measured"
            and t.kept is None
            and t.loss_ratio is not None
            and t.loss_ratio <= self._goal
        ]
        seconds = min(2 * max(short, default=0.0), LONGEST * ask.seconds)
        return replace(ask, seconds=max(ask.seconds, seconds))

    def _next(self) -> Ask | None:
        good, bad = self._good, self._bad
        if bad is None:
            return self._up()
        if again := self._again(bad):
            return again
        if good is None and self._hopeless:
            return None
        if good is not None and self._longest_reached:
            return None
        if good is not None and bad.value > good.value * NEAR and self._misled:
            return self._close_in(good, bad)
        if good is None and self._misled:
            return self._down(bad)
        if self._known and not self._picture.refuted:
            ask = self._sample()
            if ask is None or not self._far_each_time(ask.value):
                return ask
        reached = self._reached(bad)
        if not self._known and reached is not None and not self._finals_at(reached * self._step):
            return self._field.ask(reached * self._step, self._final_s)
        return self._down(bad) if good is None else self._close_in(good, bad)

    def _far_each_time(self, value: float) -> bool:
        """All trials of this load were too far above what they carried to show the limit: more of
        them show no more."""
        said = [t for t in self._picture.trials if t.value == value and t.outcome != "void"]
        far = [t for t in said if t.good(self._goal) is False]
        far = [t for t in far if (at := t.reaches(self._goal)) is None or value > NEAR * at]
        return len(far) >= UNDECIDED and len(far) == len(said)

    @property
    def _step(self) -> float:
        """How far above a limit a load shows the difference: a third of the width, or the spread
        of the trials' limits."""
        return 1 + max(self._width / 3, ABOVE, self._spread)

    @property
    def _spread(self) -> float:
        """Spread of the trials' limits, as a part of the least limit."""
        if not self._known:
            return 0.0
        passed = [x.offered for x in self._picture.limits if x.at is None]
        return max([self._known[-1], *passed]) / self._known[0] - 1

    @property
    def _hopeless(self) -> bool:
        """No round before found a load that is carried, and this one has looked at the least."""
        if not self._earlier.loads or any(map(self._earlier.carried, self._earlier.loads)):
            return False
        return bool(self._finals_at(self._field.lowest))

    def _leans(self, load: Load) -> bool | None:
        decided = self._picture.carried(load)
        if decided is not None or load.carried(self._goal, self._search) is not None:
            return decided
        return load.looks_carried(self._goal, self._search)

    @property
    def _longest_reached(self) -> bool:
        """Whether the round's trials of the final length have taken as long as a search may that
        finds no end, at whatever loads. Each goal has as much time; the goals before this one have
        used theirs."""
        goals = 1 + self._search.goals.index(self._goal)
        most_s = 3 * self._search.duration_sum_s * goals
        return sum(x.final_s(self._search) for x in self._loads) >= most_s

    def _up(self) -> Ask | None:
        expected = self._expected()
        if expected is not None and (self._good is None or self._good.value < expected * 0.999):
            return self._field.ask(expected, self._final_s)
        if self._good is None:
            return self._first()
        end = self._end_before
        if expected is not None and end is not None and end > self._good.value * NEAR:
            return self._field.ask(math.sqrt(self._good.value * end), self._final_s)
        ceilings = [x.value for x in self._earlier.loads if x.mute(self._goal)]
        highest = min([self._field.highest, *(x / CEILING for x in ceilings)])
        if self._good.value >= highest:
            return self._settle(self._good)
        ended = expected is not None and (ceilings or self._earlier.knee is not None)
        close = ended and self._good.value <= (expected or 0.0) * (1 + self._width)
        step = 1 + self._width if close else _step(self._good)
        if ended:
            step = min(step, NEAR)
        ramp = self._field.ramp
        if ramp is not None and ramp.sender_to and self._good.value * step > ramp.sender_to:
            step = min(step, CEILING)
        return self._field.ask(self._good.value * step, self._search.initial_trial_s)

    def _first(self) -> Ask:
        """Where a ramp expects the limit; where it ended, if it met none; else at the beginning.
        Half of that, and so on, if the sender was late there: what the SUT carries may be far below
        what the sender cannot do."""
        start, initial_s, ramp = self._field.start, self._search.initial_trial_s, self._field.ramp
        late = [t.value for t in self._field.tried if t.late and not t.disturbed]
        if late and min(late) > self._field.lowest:
            return self._field.ask(min(late) * ASTRAY, self._final_s)
        if ramp is not None and ramp.expects:
            return self._field.ask(ramp.expects * RAMP_ABOVE, self._final_s)
        clean = 0.0 if ramp is None or ramp.clean_to is None else ramp.clean_to
        return self._field.ask(max(start, clean), initial_s)

    @property
    def _end_before(self) -> float | None:
        """Lowest load that the rounds before did not carry; None if there is none."""
        upper = self._earlier.bracket().upper
        return None if upper is None else upper.value

    def _expected(self) -> float | None:
        """Just above what the rounds before found; the step after what was carried, if no load was
        too much; what looked so, if none of their trials decides; below all of it, if nothing
        was."""
        before = self._earlier
        if not before.loads:
            return None
        carried = [x for x in before.loads if before.carried(x)]
        looks = [x for x in before.loads if x.looks_carried(self._goal, self._search)]
        good = carried or looks
        end = self._end_before
        if good and before.knee is not None and (end is None or before.knee.estimate <= end):
            return before.knee.estimate * (1 + self._width / 3)
        if max(len(carried), len(looks)) == len(before.loads):
            # The budget ended them on their way up.
            return min(good[-1].value * _step(good[-1]), self._field.highest)
        if good:
            return max(x.value for x in good)
        least = before.loads[0]
        further = ASTRAY if least.all_void else BELOW_BAD
        return max(self._field.lowest, least.value * further)

    def _down(self, bad: Load) -> Ask | None:
        if bad.value <= self._field.lowest:
            return self._settle(bad)
        if self._misled or bad.mute(self._goal):
            lower = self._earlier.bracket().lower
            if lower is not None and lower.value < bad.value:
                return self._field.ask(lower.value, self._final_s)
            return self._field.ask(bad.value * ASTRAY, self._final_s)
        tried = sum(self._leans(x) is False for x in self._loads)
        further = max(0.25, 1 - self._width * 3.0 ** (tried - 2))
        return self._field.ask(bad.value * further, self._final_s)

    def _settle(self, load: Load) -> Ask | None:
        """By a trial of the final length; a SUT that failed is tried again."""
        if load.mute(self._goal, at_least_s=self._final_s):
            return None
        failed = any(t.outcome == "failed" for t in load.trials)
        enough = load.final_s(self._search) > (self._final_s if failed else 0.0)
        return None if enough else self._field.ask(load.value, self._final_s)

    def _reached(self, load: Load) -> float | None:
        found = [r for t in load.trials if (r := t.reaches(self._goal)) is not None]
        return median(found) if found else None

    @property
    def _misled(self) -> bool:
        """Whether the part that was served of a higher load is no measure of the limit here: a load
        below that one lost much too, or two loads lost. Bursts cause this: they alone are lost
        first."""
        return self._surprised or len(self._lost_within(0.0)) >= 2

    @property
    def _surprised(self) -> bool:
        return any(reached < value * SURPRISING for value, reached in self._lost_within(ABOVE))

    def _lost_within(self, above: float) -> Sequence[tuple[float, float]]:
        """Loads that lost though a higher one was served that much, or so little less, and what
        they reached."""
        lost = [(x.value, r) for x in self._loads if (r := self._reached(x)) is not None]
        return [
            (value, reached)
            for value, reached in lost
            if any(value < v and value <= r * (1 + above) for v, r in lost)
        ]

    def _close_in(self, good: Load, bad: Load) -> Ask | None:
        """To the middle, if nothing points anywhere, or not to what is there. Below a load that
        cannot be tried, what is carried is confirmed first: the time may end before the ceiling is
        found closely, and each load beyond it takes three trials that say nothing."""
        if bad.mute(self._goal):
            confirm = self._settle(good)
            if confirm is not None or bad.value <= good.value * CEILING:
                return confirm
        if bad.value <= good.value * (1 + self._width):
            return self._settle(good) or self._settle(bad)
        return self._field.ask(math.sqrt(good.value * bad.value), self._final_s)

    def _again(self, bad: Load) -> Ask | None:
        """A load that lost far more in its one trial than others of the search let expect: the SUT
        may lose so much now and then, whatever the load is, or it has changed."""
        said = [share for t in bad.trials if (share := t.share(self._goal)) is not None]
        if len(said) != 1 or said[0] >= 1 / NEAR:
            return None
        before = self._earlier.bracket().lower
        known = [0.0 if before is None else before.value, *self._known]
        known += [t.value for t in self._picture.trials if t.good(self._goal)]
        if max(known) < bad.value * said[0]:
            return None
        return self._field.ask(bad.value, self._final_s)

    def _finals_at(self, value: float) -> int:
        at = self._field.ask(value, self._final_s).value
        return sum(t.value == at and t.seconds >= self._final_s for t in self._field.tried)

    def _sample(self) -> Ask | None:
        """Near the limit: so high that nearly every trial says its limit. One as far below them as
        they are apart shows early whether they mislead; nearer, it would often be lost by
        chance."""
        if sum(t.doubtful for t in self._field.tried) >= MOST_DOUBTFUL:
            return None
        fit, limits = self._picture.knee, self._picture.limits
        assert fit is not None
        lower = self._reuse((fit.low or self._known[0]) / (1 + self._width / 3), down=True)
        lower = self._field.ask(lower, self._final_s).value
        width = fit.relative_width
        narrow = width is not None and width <= self._width
        if narrow or len(limits) * self._final_s >= self._search.duration_sum_s:
            return self._confirm(lower, fit.high or self._known[-1])
        carried = any(x.at is None and x.offered <= fit.estimate for x in limits)
        if len(self._known) >= LEAST_KNOWN and not carried and not self._carried_before(lower):
            below = self._known[0] / (1 + max(self._width / 3, self._spread))
            return self._field.ask(below, self._final_s)
        least = max([*self._known, *(x.offered for x in limits if x.at is None)])
        return self._field.ask(self._reuse(least * self._step, down=False), self._final_s)

    def _confirm(self, lower: float, high: float) -> Ask | None:
        """By trials of their own: the least that is not to be carried and, as the last word of the
        round, the most that is."""
        found = self._picture.bracket()
        high = max(high, found.lower.value if found.lower else high)
        above = max(self._width / 2, SHOWN if self._absorbs(high) else 0.0)
        close = 1 + above * 4 / 3
        missing = found.upper is None or found.upper.value > high * close
        if missing and self._finals_between(high, high * close) < UNDECIDED:
            return self._field.ask(high * (1 + above), self._final_s)
        close = 1 + self._width * 2 / 3
        missing = found.lower is None or found.lower.value * close < lower
        if missing and self._finals_between(lower / close, lower) < UNDECIDED:
            return self._field.ask(lower, self._final_s)
        return None

    def _last_word(self) -> Ask | None:
        """The load that is carried, if it has not been tried lately: a SUT that has changed shows
        it there."""
        lower, upper = self._picture.bracket().lower, self._picture.bracket().upper
        if lower is None or upper is None or self._said_last(lower.value):
            return None
        last = self._field.tried[-UNDECIDED:]
        if all(t.value == lower.value and t.good(self._goal) is None for t in last):
            return None  # it cannot be tried any more
        return self._field.ask(lower.value, self._final_s)

    def _carried_before(self, value: float) -> bool:
        """By a round before: this one says so again at its end."""
        lower = self._earlier.bracket().lower
        return lower is not None and lower.value * (1 + self._width) >= value

    def _said_last(self, value: float) -> bool:
        """One of the last trials that say something carried so much."""
        said = [t for t in self._picture.trials if t.good(self._goal) is not None]
        return any(t.good(self._goal) and t.value >= value for t in said[-LAST_WORD:])

    def _absorbs(self, high: float) -> bool:
        """A ring holds what is too much: only a SUT that is seen to be behind shows it."""
        return any(
            t.good(self._goal) if t.value > high else t.kept is False and not t.loss_ratio
            for t in self._field.tried
        )

    def _finals_between(self, low: float, high: float) -> float:
        """Trials."""
        return sum(
            x.final_s(self._search) / self._final_s for x in self._loads if low < x.value <= high
        )

    def _reuse(self, value: float, *, down: bool) -> float:
        """A load that was tried already and is as good: trials of one load say more together."""
        if down:
            near = 1 + max(self._width / 3, self._spread)
            tried = [x.value for x in self._loads if value / near <= x.value <= value]
            return max(tried, default=value)
        tried = [x.value for x in self._loads if value / self._step < x.value <= value]
        return max(tried, default=value)


def _step(good: Load) -> float:
    """Up to where the busiest thread would have no time left, and a little more."""
    busy = [t.record.busiest_thread for t in good.trials if t.record.busiest_thread]
    ratio = max((thread.cpu_ratio for thread in busy), default=0.0)
    return min(max(1.15 / ratio, 1.3), 8.0) if ratio > 0 else 2.0
