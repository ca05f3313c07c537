"""How a search chooses its next load: nodrop's own way, MLRsearch's, or plain bisection.

None: the method has nothing to add. MLRsearch and bisection look at the trials of one round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nodrop.capacity.bounds import Bounds
from nodrop.capacity.tried import CEILING, MOST_MISSED, NEAR, Load, Tried, loads
from nodrop.config.search import Search
from nodrop.results.trial import Ramp

ASTRAY = 0.5
"""Part of a load that cannot be tried at which the search goes on."""
LOOK = 0.55
"""Part of the load that a ramp expects at which the first trial reads the level: a trace with
bursts fills a ring long before a ramp of even gaps does."""
EXPECTED = 1.05
"""... without a level: just above, a trial says its limit by what is served."""
LONGEST = 4.0
"""Factor on the length of other trials that a trial has at most which is to show a pace."""
STEP = 1.15
"""Factor by which a search goes on once a ramp's sender could do no more."""
FURTHEST = 3.0
"""Factor to a higher load of which a level that is still low says too little."""
FEW = 2
"""Trials left with which the trace's own load comes first: it is what most ask."""
OWN_TRIALS = 2
"""Number of void trials after which the trace's own load is given up."""
MUTE = 9
"""Number of trials in a row that end a search if they say nothing, whatever their loads were."""
LATELY = 4
"""Number of last trials of which one is of the load that is carried."""
LONG = 3.0
"""Limit on the time of a goal's trials, in `duration_sum_s`, unless its proofs take more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A load to be tried, and for how long."""

    value: float
    seconds: float
    ramp_from: float | None = None
    """The load grows from there to `value`; None: it is the same all the time."""
    soak: bool = False
    """Each pass over the window has flows of its own."""
    round: int = 1
    """Start of the SUT that the trial is of, with nodrop's own method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodInput:
    """All that a method may know."""

    search: Search
    start: float
    """Load to begin with if nothing is known."""
    lowest: float
    highest: float
    tried: Sequence[Tried]
    """Trials in order: of one round, or, for nodrop's own method, of all."""
    need: float | None = None
    """The load that has to be carried."""
    ramp: Ramp | None = None
    """Results of the cell's ramp; None if it had none."""
    level: bool = False
    """The ramp's record has the level of the SUT's ring."""
    few: bool = False
    """The budget has time for no more than `FEW` trials."""

    def ask(self, value: float, seconds: float) -> Ask:
        digits = max(3, math.ceil(-math.log10(self.search.relative_width)) + 2)
        # The limits as they were given: rounded ones would lie outside, or never be reached.
        if self.lowest < value < self.highest:
            value = float(f"{value:.{digits}g}")
        return Ask(value=min(max(value, self.lowest), self.highest), seconds=seconds)


Method = Callable[[MethodInput], Ask | None]


def bisection(field: MethodInput) -> Ask | None:
    """Each load once; halves what is left until it is narrow enough, for each goal in its turn."""
    for goal in field.search.goals:
        known = {x.value: x.looks_carried(goal, field.search) for x in loads(field.tried)}
        high = min([field.highest, *(v for v, carried in known.items() if carried is False)])
        low = max([field.lowest, *(v for v, carried in known.items() if carried and v < high)])
        if high not in known:
            return field.ask(high, field.search.final_trial_s)
        if low not in known and high > low:
            return field.ask(low, field.search.final_trial_s)
        if high > low and high - low > field.search.relative_width * high:
            return field.ask((low + high) / 2, field.search.final_trial_s)
    return None


def own(field: MethodInput) -> Ask | None:
    """Looks well below the limit, tries what the level there proposes, or the part that was served
    of too much, and proves a load just below the limit and one just above (docs/methodology.md)."""
    bounds: Bounds | None = None
    strictest: _Own | None = None
    needed: Ask | None = None
    for goal in sorted(field.search.goals):
        bounds = Bounds(field.tried, goal, field.search, bounds)
        goal_search = _Own(field, bounds)
        if goal == field.search.goals[0]:
            needed = goal_search.needed()
            if needed is not None and not any(t.value == needed.value for t in field.tried):
                return needed
        ask = goal_search.ask()
        if ask is None and strictest is None:
            ask = goal_search.narrower()
        if ask is not None:
            return ask
        strictest = strictest or goal_search
    return needed or (None if strictest is None else strictest.last_word())


class _Own:
    """The search for one goal."""

    def __init__(self, field: MethodInput, bounds: Bounds) -> None:
        self._field, self._goal, self._search = field, bounds.goal, field.search
        self._final_s = field.search.final_trial_s
        self._bounds = bounds

    def ask(self) -> Ask | None:
        if self._bounds.keeps_changing or self._took_long or (self._mute and self._bounds.said):
            return None
        return self._asked(self._next())

    def needed(self) -> Ask | None:
        """The load that has to be carried, until it is shown whether it is."""
        need, bounds = self._field.need, self._bounds
        if need is None or bounds.keeps_changing or need in bounds.untriable:
            return None
        lower, upper = bounds.bracket.lower, bounds.bracket.upper
        below = lower is not None and lower.value >= need
        above = upper is not None and upper.value <= need
        if below or above or max(bounds.good(need), bounds.bad(need)) >= bounds.proofs:
            return None
        return Ask(value=need, seconds=self._final_s, round=self._round(need))

    def narrower(self) -> Ask | None:
        """A load between bounds that are proved and still far apart: it is tried until it moves one
        of them, or its trials contradict each other."""
        bounds = self._bounds
        value = None if bounds.keeps_changing or self._mute or self._took_long else bounds.between
        return self._asked(None if value is None else self._field.ask(value, self._final_s))

    def last_word(self) -> Ask | None:
        """The load that is carried, if it was not tried lately: a SUT that has changed shows it
        there."""
        lower, said = self._bounds.bracket.lower, self._bounds.said
        if lower is None or self._bounds.keeps_changing or self._mute:
            return None
        if any(s.trial.value == lower.value for s in said[-LATELY:]):
            return None
        ask = self._field.ask(lower.value, self._final_s)
        return replace(ask, round=self._round(ask.value))

    @property
    def _mute(self) -> bool:
        """The last trials say nothing; of a sender that was late, not even that lower loads are
        left."""
        last, untriable = self._field.tried[-MUTE:], self._bounds.untriable
        sent = any(s.good and s.trial.value not in untriable for s in self._bounds.said)
        if sent and all(t.late for t in last):
            return False
        return len(last) == MUTE and all(t.good(self._goal) is None for t in last)

    @property
    def _took_long(self) -> bool:
        goals = 1 + sorted(self._search.goals).index(self._goal)
        final = [t.seconds for t in self._field.tried if t.outcome != "void"]
        proofs_s = 2 * self._bounds.proofs * self._final_s
        return sum(final) >= LONG * max(self._search.duration_sum_s, proofs_s) * goals

    def _round(self, value: float) -> int:
        """Each proof of the load that is carried is of another start of the SUT."""
        searched = [t.record.searched for t in self._field.tried]
        last = max((s.round for s in searched if s is not None), default=1)
        lower = self._bounds.lower_candidate
        if lower is None or lower.value != value:
            return last
        return max(last, min(self._search.rounds, self._bounds.good(lower.value) + 1))

    def _asked(self, ask: Ask | None) -> Ask | None:
        """The ask with its round, and twice as long as a trial of that load that lost nothing and
        was too short to show the pace."""
        if ask is None:
            return None
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
        return replace(ask, seconds=max(ask.seconds, seconds), round=self._round(ask.value))

    def _next(self) -> Ask | None:
        bounds = self._bounds
        if not bounds.said:
            return self._first()
        if (again := bounds.to_repeat) is not None:
            return self._field.ask(again, self._final_s)
        if bounds.lowest_bad is None:
            return self._up()
        if bounds.highest_good is None:
            return self._down(bounds.lowest_bad)
        return self._prove()

    def _first(self) -> Ask | None:
        """Own load of the trace as soon as another says nothing: it is what most ask first, so that
        a short budget has its answer. Then half of a load at which the sender was late: what the
        SUT carries may be far below what the sender cannot do."""
        start, initial_s, ramp = self._field.start, self._search.initial_trial_s, self._field.ramp
        void = [x for x in loads(self._field.tried) if x.mute(self._goal)]
        late = [t.value for t in self._field.tried if t.late and not t.disturbed]
        late += [x.value for x in void]
        if late:
            if min(late) <= self._field.lowest:
                return None
            own = [t for t in self._field.tried if t.value == start]
            if len(own) < OWN_TRIALS and start <= min(late):
                return self._field.ask(start, self._final_s)
            return self._field.ask(min(late) * ASTRAY, self._final_s)
        if ramp is not None and ramp.expects and not self._field.few:
            at = LOOK if self._field.level else EXPECTED
            return self._field.ask(ramp.expects * at, self._final_s)
        if self._field.few:
            return self._field.ask(start, self._final_s)
        clean = 0.0 if ramp is None or ramp.clean_to is None else ramp.clean_to
        return self._field.ask(max(start, clean), initial_s)

    def _up(self) -> Ask | None:
        """Next load upwards, by the level or by the time that the busiest thread has left."""
        bounds, good = self._bounds, self._bounds.highest_good
        assert good is not None
        ceiling = bounds.ceiling
        highest = self._field.highest if ceiling is None else ceiling / CEILING
        if good.value >= highest * 0.9999:
            return self._proof_of(good.value)
        proposed = self.proposed
        if proposed is None:
            step = _step(good) if bounds.is_first else NEAR
            ramp = self._field.ramp
            sender_to = None if ramp is None else ramp.sender_to
            # A load beyond it that was sent refutes it: the sender was only disturbed.
            if sender_to and sender_to * STEP >= good.value > sender_to / step:
                step = min(step, STEP)
            seconds = self._search.initial_trial_s
        else:
            step = min(max(proposed / good.value, 1 + self._search.relative_width), FURTHEST)
            seconds = self._final_s
        if ceiling is not None:
            step = min(step, math.sqrt(ceiling / good.value))
        return self._field.ask(good.value * step, seconds)

    @property
    def proposed(self) -> float | None:
        """The load just above the limit, if the level of a trial well below it shows it."""
        bounds = self._bounds
        if bounds.estimate.limit is None or not bounds.estimate.by_level:
            return None
        return bounds.estimate.limit * (1 + bounds.above)

    def _down(self, bad: Load) -> Ask | None:
        lowest, bounds = self._field.lowest, self._bounds
        if bad.value <= lowest:
            failed = any(t.outcome == "failed" for t in bad.trials)
            said = bounds.bad(bad.value)
            enough = bad.final_s(self._search) > (self._final_s if failed else 0.0)
            return None if enough and said else self._field.ask(lowest, self._final_s)
        if bad.value not in bounds.mute_values:
            limit = bounds.estimate.limit
            below = bad.value if limit is None else min(bad.value, limit)
            times = len({s.trial.value for s in bounds.said if not s.good})
            further = 1.0 if times < 2 else 0.75 if times == 2 else ASTRAY
            value = min(below / (1 + bounds.below), bad.value * further)
            return self._field.ask(value, self._final_s)
        return self._field.ask(bad.value * ASTRAY, self._final_s)

    def _prove(self) -> Ask | None:
        """Loads just below and just above the limit, in turns."""
        bounds = self._bounds
        if bounds.middle is not None:
            return self._field.ask(bounds.middle, self._final_s)
        low, high = (
            self._field.ask(x, self._final_s).value
            for x in (bounds.lower_target, bounds.upper_target)
        )
        goods, bads = bounds.good(low), bounds.bad(high)
        stuck = {x.value for x in loads(self._field.tried) if x.mute(self._goal)}
        asks_low = goods < bounds.needed(low) and low not in stuck
        asks_high = bads < bounds.proofs and high <= self._field.highest and high not in stuck
        if asks_high and (bads <= goods - 1 or not asks_low or (not bads and not bounds.shown)):
            return self._field.ask(high, self._final_s)
        return self._field.ask(low, self._final_s) if asks_low else None

    def _proof_of(self, highest: float) -> Ask | None:
        """Highest load that can be sent, until it is proved; a lower one if its trials refute it,
        and not by a single one."""
        bounds, ask = self._bounds, self._field.ask(highest, self._final_s)
        while bounds.refuted(ask.value) and not (
            bounds.bad(ask.value) == 1 and bounds.good(ask.value) < 1 / MOST_MISSED - 1
        ):
            lower = self._field.ask(ask.value / (1 + self._search.relative_width), self._final_s)
            if lower.value >= ask.value:
                return None
            ask = lower
        proved = bounds.good(ask.value) >= bounds.needed(ask.value)
        return None if proved and not bounds.refuted(ask.value) else ask


def _step(good: Load) -> float:
    """Factor to the load at which the busiest thread would have no time left, and a little more."""
    busy = [t.record.busiest_thread for t in good.trials if t.record.busiest_thread]
    ratio = max((thread.cpu_ratio for thread in busy), default=0.0)
    return min(max(1.15 / ratio, 1.3), 8.0) if ratio > 0 else 2.0
