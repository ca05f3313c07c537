"""Answers of a search: how much a cell carries, how sure that is, and what is in the way.

Two kinds of bounds, and neither stands for the other: those of the answer, which all trials of the
cell prove together, and those of each round, a start of the SUT, whose loads differ as starts do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

from nodrop.capacity.bounds import Bounds
from nodrop.capacity.estimate import Estimate
from nodrop.capacity.findings import changed, doubts, findings
from nodrop.capacity.limited_by import CLOSED, least_tried, limited_by
from nodrop.capacity.search_answer import (
    Answer,
    Between,
    Bound,
    Missed,
    Needed,
    Round,
    confidence,
    rounds_apart,
)
from nodrop.capacity.tried import (
    NEAR,
    Bracket,
    Load,
    Tried,
    bracket_of,
    lab_is_out,
    loads,
    of_cell_tried,
    of_round,
    slows,
    tried,
    untriable_above,
)
from nodrop.config.search import Search
from nodrop.results.capacity import Confidence, LimitedBy
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import Knee, median_interval, runs_needed


def search_of(manifest: Mapping[str, Any]) -> Search | None:
    """None if the run is no search, or one of another version."""
    said = manifest.get("search")
    try:
        return Search.of(said) if isinstance(said, dict) else None
    except (TypeError, ValueError):
        return None


def answers(records: Sequence[TrialRecord], search: Search) -> tuple[Answer, ...]:
    """Answers per cell and goal, in the order of the cells' first trials. Pure."""
    searched = [r for r in records if r.searched is not None and r.searched.soak is None]
    cells: list[dict[str, Any]] = []
    for record in sorted(searched, key=lambda r: r.index):
        if dict(record.cell) not in cells:
            cells.append(dict(record.cell))
    cut: LimitedBy = "unfinished" if search.budget_s is None else "budget"
    if lab_is_out(searched):
        cut = "lab"
    return tuple(
        answer for cell in cells for answer in _Cell(searched, cell, search, cut).answers()
    )


class _Cell:
    """All goals of a cell together: what loses nothing loses at most 0.5 %."""

    def __init__(
        self,
        records: Sequence[TrialRecord],
        cell: Mapping[str, Any],
        search: Search,
        cut: LimitedBy,
    ) -> None:
        """`cut`: what ended the search, if nothing that it found did."""
        self._cell, self._search, self._cut = cell, search, cut
        self._own = [record for record in records if record.cell == dict(cell)]
        self._every = of_cell_tried(self._own)
        self._numbers = sorted({r.searched.round for r in self._own if r.searched})
        self._trials = [of_round(self._own, cell, number) for number in self._numbers]

    def answers(self) -> Sequence[Answer]:
        """Answers in the order of the goals."""
        if self._search.method != "nodrop":
            return [self._of_rounds(goal) for goal in self._search.goals]
        found: dict[float, Answer] = {}
        bounds: Bounds | None = None
        changes, least = True, 0.0
        for goal in sorted(self._search.goals):
            bounds = Bounds(self._every, goal, self._search, bounds)
            # A load that is carried without loss is carried for each goal.
            changes = changes and (bounds.keeps_changing or slows(self._trials, goal))
            found[goal] = self._by_own(bounds, changes, least)
            lower = found[goal].lower
            least = least if lower is None else lower.value
        return [found[goal] for goal in self._search.goals]

    def _by_own(self, bounds: Bounds, changes: bool, least: float) -> Answer:
        """`least`: the load that is carried for a stricter goal."""
        bracket = bounds.bracket
        if changes:
            bracket = replace(bracket, lower=None)
        of_starts = [bounds.of_start(trials) for trials in self._trials]
        rounds = tuple(
            self._round(number, of_start, bounds.goal)
            for number, of_start in zip(self._numbers, of_starts, strict=True)
        )
        _, worse = (None if changes else rounds_apart(rounds)) or (None, None)
        most = math.inf if bracket.lower is None else bracket.lower.value
        # Its own trials need not prove it: what all of them prove counts, if it is less.
        if worse is not None and worse.lower is not None and least <= worse.lower.value <= most:
            bracket = of_starts[rounds.index(worse)]
        return self._answer(bounds.goal, rounds, self._every, bracket, bounds.estimate, changes)

    def _of_rounds(self, goal: float) -> Answer:
        """Answer of the round that found the least: starts of the SUT may differ."""
        brackets = [bracket_of(loads(trials), goal, self._search) for trials in self._trials]
        rounds = tuple(
            self._round(number, bracket, goal)
            for number, bracket in zip(self._numbers, brackets, strict=True)
        )
        place = rounds.index(least_of(rounds))
        return self._answer(goal, rounds, self._trials[place], brackets[place], None, False)

    def _round(self, number: int, bracket: Bracket, goal: float) -> Round:
        return Round(
            number=number,
            lower=_bound(bracket.lower, goal),
            upper=_bound(bracket.upper, goal),
            closed=self._closed(bracket, goal, self._trials[self._numbers.index(number)]),
        )

    def _closed(self, bracket: Bracket, goal: float, trials: Sequence[Tried]) -> bool:
        """The bounds are close, or it met another end."""
        lower, upper, search = bracket.lower, bracket.upper, self._search
        if lower is not None and upper is not None:
            return upper.value <= lower.value * (1 + search.relative_width) ** CLOSED
        if lower is None:
            return upper is not None and upper.value <= least_tried(self._own, search)
        at_most = search.max is not None and lower.value >= search.max
        return at_most or untriable_above(loads(trials), lower, goal, search) is not None

    def _answer(
        self,
        goal: float,
        rounds: tuple[Round, ...],
        of_answer: Sequence[Tried],
        chosen: Bracket,
        estimate: Estimate | None,
        changes: bool,
    ) -> Answer:
        own, every, search = self._own, self._every, self._search
        ended = [r for r in rounds if r.closed or search.budget_s is None]
        limit: LimitedBy = "changes"
        if not changes:
            least = least_tried(own, search)
            limit = limited_by(every, of_answer, chosen, goal, search, self._cut, least=least)
        broke = _broke(chosen, goal)
        ramps = [tried(r) for r in own if r.searched and r.searched.ramp is not None]
        lossy = _lossy(every, chosen) or _lossy(ramps, chosen)
        lower, upper = _bound(chosen.lower, goal), _bound(chosen.upper, goal)
        failed = broke is not None and broke.outcome == "failed"
        sent = [_bound(load, 0.0) for load in loads(every)]
        hosts = len({t.record.measured_on for t in every if t.record.valid})
        answer = Answer(
            cell=self._cell,
            by=search.by,
            goal=goal,
            goals_of=search.goals_of,
            lower=lower,
            upper=upper,
            fit=None if estimate is None or changes else _held(estimate.interval, lower, upper),
            by_level=estimate is not None and estimate.by_level,
            fullest_ratio=_fullest(chosen.lower, goal),
            between=None if limit == "changes" else _between(ended, hosts),
            rounds=rounds,
            missed=_missed(every, chosen.lower, goal),
            cut_rounds=len(rounds) - len(ended),
            limited_by=limit,
            # What touches losses touches no failure.
            place=None if lossy is None or failed else lossy.record.packets.loss_place,
            knob="" if lossy is None or failed else lossy.record.packets.knob,
            broke="" if broke is None else broke.record.verdict,
            reached_width=_width(lower, upper),
            confidence=None,
            needed=_needed(own, search, lower, upper),
            trials=len(own),
            trial_seconds=sum(
                r.offered.duration_s or r.searched.duration_s for r in own if r.searched is not None
            ),
            sent_pps={one.value: one.pps for one in sent if one and one.pps is not None},
            findings=(),
        )
        answer = replace(answer, confidence=_confidence(answer, every, search, estimate))
        return replace(answer, findings=tuple(findings(answer, every, search, own, estimate)))


def _held(limit: Knee | None, lower: Bound | None, upper: Bound | None) -> Knee | None:
    """The limit, no lower than what is carried and no higher than what is too much: an estimate is
    not held against a proof."""
    if limit is None:
        return None
    least = 0.0 if lower is None else lower.value
    most = math.inf if upper is None else upper.value
    value = min(max(limit.estimate, least), most)
    low = None if limit.low is None else min(limit.low, value)
    high = None if limit.high is None else max(limit.high, value)
    return replace(limit, estimate=value, low=low, high=high)


def _needed(
    own: Sequence[TrialRecord], search: Search, lower: Bound | None, upper: Bound | None
) -> Needed | None:
    value = next((r.searched.need for r in own if r.searched and r.searched.need), None)
    if search.need is None or value is None:
        return None
    verdict: Literal["yes", "no", "not shown"] = "not shown"
    if lower is not None and lower.value >= value:
        verdict = "yes"
    elif upper is not None and upper.value <= value:
        verdict = "no"
    times = None if lower is None else lower.value / value
    return Needed(asked=search.need, value=value, verdict=verdict, times=times)


def _confidence(
    answer: Answer, every: Sequence[Tried], search: Search, estimate: Estimate | None
) -> Confidence | None:
    lower, upper = answer.lower, answer.upper
    less_than = upper is not None and not any(t.value < upper.value for t in every)
    if lower is None and not less_than:
        return None
    against = [*([] if estimate is None else changed(answer, estimate)), *doubts(answer, every)]
    return confidence(answer, every, search.relative_width, against)


def least_of(rounds: Sequence[Round]) -> Round:
    """The round that carried least. If a round found no load that is carried, it is the one that
    found the least load that is not. A round that found no load too much carries at least what it
    came to: it stands behind those whose end is known."""
    whole = [(r.upper is None, r.lower.value, r.number) for r in rounds if r.lower is not None]
    if len(whole) < len(rounds):
        ended = [(r.upper.value, r.number) for r in rounds if r.upper and r.lower is None]
        number = min(ended, default=(0.0, rounds[0].number))[1]
    else:
        number = min(whole)[2]
    return next(r for r in rounds if r.number == number)


def _fullest(lower: Load | None, goal: float) -> float | None:
    """Highest level of the ring, as a share of it, in the trials that carried the load."""
    if lower is None:
        return None
    queues = [t.record.packets.queue for t in lower.trials if t.good(goal)]
    return max((q.highest_ratio for q in queues if q is not None), default=None)


def _missed(every: Sequence[Tried], lower: Load | None, goal: float) -> Missed | None:
    if lower is None:
        return None
    said = [
        (t.value, good)
        for t in every
        if lower.value / NEAR <= t.value <= lower.value and (good := t.good(goal)) is not None
    ]
    missed = sum(not good for _, good in said)
    return Missed(trials=len(said), missed=missed, least=min(value for value, _ in said))


def _broke(chosen: Bracket, goal: float) -> Tried | None:
    """The trial that says best why the load was not carried: of the middle of the losses."""
    if chosen.upper is None:
        return None
    same = [t for t in chosen.upper.trials if t.good(goal) is False]
    ordered = sorted(same, key=lambda t: (t.outcome != "failed", t.loss_ratio or 0.0))
    if ordered and ordered[0].outcome == "failed":
        return ordered[0]
    return ordered[len(ordered) // 2] if ordered else None


def _lossy(every: Sequence[Tried], chosen: Bracket) -> Tried | None:
    """The trial that says where packets are lost: the ring may have held all of the load that was
    not carried, and then the next higher one that lost says it. If none did, the ramp may."""
    if chosen.upper is None:
        return None
    above = [t for t in every if t.value >= chosen.upper.value and t.record.packets.loss_place]
    nearest = [t for t in above if t.value == min(x.value for x in above)]
    nearest.sort(key=lambda t: t.loss_ratio or 0.0)
    return nearest[len(nearest) // 2] if nearest else None


def _bound(load: Load | None, goal: float) -> Bound | None:
    if load is None:
        return None
    offered = [t.record.offered for t in load.trials if t.outcome == "measured"]
    pps = [o.pps for o in offered if o.pps is not None]
    bps = [o.bps for o in offered if o.bps is not None]
    return Bound(
        value=load.value,
        pps=median(pps) if pps else None,
        bps=median(bps) if bps else None,
        runs=tuple(t.record.run for t in load.trials if t.good(goal) is not None),
    )


def _width(lower: Bound | None, upper: Bound | None) -> float | None:
    if lower is None or upper is None:
        return None
    if lower.pps is not None and upper.pps is not None and upper.pps > lower.pps:
        return (upper.pps - lower.pps) / upper.pps
    return (upper.value - lower.value) / upper.value


def _between(rounds: Sequence[Round], hosts: int) -> Between | None:
    """Rounds that found no load that is carried are no part of the range, so that there is no
    interval either: it would be that of the better ones. Nor if several hosts measured them."""
    carried = tuple(r.lower for r in rounds if r.lower is not None)
    if not carried:
        return None
    none = len(rounds) - len(carried)
    several = hosts > 1
    interval = None if none or several else median_interval([bound.value for bound in carried])
    few, needed = f"in {none} of {len(rounds)} no load was carried", f"needs {runs_needed()} rounds"
    why = f"each mixes trials of {hosts} hosts" if several else few if none else needed
    return Between(carried=carried, interval=interval, why_no_interval="" if interval else why)
