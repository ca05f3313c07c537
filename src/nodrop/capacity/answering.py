"""Answers of a search: how much a cell carries, how sure that is, and what is in the way.

Two kinds of bounds, and neither stands for the other: *within the search* of one round lie the load
that was carried and the next one that was not; *between rounds* is how much starts of the SUT
differ, with an interval from six rounds on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from nodrop.answer.finding import Finding
from nodrop.capacity.limit import CLOSED, least_tried, limited_by
from nodrop.capacity.search_answer import (
    Answer,
    Between,
    Bound,
    Confidence,
    Evidence,
    Missed,
    Round,
    apart,
    confidence,
)
from nodrop.capacity.statements import doubts, statements, writing
from nodrop.capacity.tried import (
    NEAR,
    PROOF,
    SAME,
    Aside,
    Bracket,
    Load,
    Picture,
    Proof,
    Tried,
    lab_is_out,
    loads,
    of_round,
    proofs,
    proved,
    slows,
    tried,
    untriable_above,
)
from nodrop.config.search import Search
from nodrop.results.capacity import LimitedBy
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import CONFIDENCE, median_interval, median_rank, runs_needed


def reservations(answer: Answer, views: Sequence[Picture]) -> Iterator[Finding]:
    """`views`: of each round, for the goal of the answer."""
    yield from changed(answer, views)
    if lowered := _lowered(answer, views):
        yield lowered
    if answer.missed is not None:
        yield _noise(answer, answer.missed)
    if aside := _set_aside(answer, views):
        yield aside


def changed(answer: Answer, views: Sequence[Picture]) -> Iterator[Finding]:
    """In rounds whose trials fall apart into phases; if it served less and less, in all."""
    because, runs, loads = list[Finding](), list[str](), writing(answer)
    for number, view in zip((r.number for r in answer.rounds), views, strict=True):
        trials = [t for phase in (*view.earlier, view.trials) for t in phase]
        served = [(t, at) for t in trials if (at := t.reaches(answer.goal)) is not None]
        served = [(t, at) for t, at in served if not t.good(answer.goal)]
        if len(served) < 2 or not (view.earlier or answer.limited_by == "changes"):
            continue
        (first, most), (last, least) = served[0], served[-1]
        values = {"round": number, "first": loads.at(most), "last": loads.at(least)}
        if len(view.earlier) == 1:
            begun = {**values, "begun": view.trials[0].record.index}
            because.append(Finding(code="reason.served_since", values=begun))
        else:
            because.append(Finding(code="reason.served", values=values))
        runs += [first.record.run, last.record.run]
    if not because:
        return
    rounds = {"rounds": len(because)}
    if answer.limited_by != "changes":
        because.append(Finding(code="reason.last_count"))
    yield Finding(
        code="capacity-changed", values=rounds, because=tuple(because), trials=tuple(runs)
    )


def _lowered(answer: Answer, views: Sequence[Picture]) -> Finding | None:
    """Why the answer is less than what rounds carried, if it is."""
    if answer.lower is None:
        return None
    least, loads = answer.lower.value, writing(answer)
    carried = [r.lower.value for r in answer.rounds if r.lower and r.lower.value > least * SAME]
    trials = [
        (t, good) for v in views for t in v.trials if (good := t.good(answer.goal)) is not None
    ]
    above = [(t, good) for t, good in trials if least < t.value <= min(carried, default=0.0)]
    missed = [t for t, good in above if not good]
    if not missed:
        return None
    own = [good for t, good in trials if t.value == least]
    return Finding(
        code="capacity-lowered",
        values={
            "carried": loads.at(min(carried)),
            "least": loads.at(least),
            "trials": len(above),
            "missed": len(missed),
            "own_trials": len(own),
            "own_carried": own.count(True),
        },
        trials=tuple(t.record.run for t in missed),
    )


def _noise(answer: Answer, found: Missed) -> Finding:
    assert answer.lower is not None
    of_packets = answer.goal == 0 and answer.goals_of == "packets"
    return Finding(
        code="capacity-noise",
        values={
            "where": writing(answer).span(found.least, answer.lower.value, up=False),
            "trials": found.trials,
            "missed": found.missed,
            "share_at_most": found.share_at_most,
        },
        because=(Finding(code="reason.lost_or_behind" if of_packets else "reason.missed_goal"),),
    )


def _set_aside(answer: Answer, views: Sequence[Picture]) -> Finding | None:
    loads = writing(answer)
    found: dict[Aside, list[Tried]] = {why: [] for why in Aside}
    for view in views:
        for why, trials in view.aside().items():
            found[why] += trials
    because = [
        Finding(
            code=f"aside.{why.value}",
            values={
                "n": len(trials),
                "least": loads.at(min(t.value for t in trials), up=False),
            },
        )
        for why, trials in found.items()
        if trials
    ]
    if not because:
        return None
    return Finding(
        code="capacity-set-aside",
        values={why.value: len(trials) for why, trials in found.items()},
        because=tuple(because),
        trials=tuple(t.record.run for trials in found.values() for t in trials),
    )


def answers(records: Sequence[TrialRecord], search: Search) -> tuple[Answer, ...]:
    """One per cell and goal, in the order of the cells' first trials. Pure."""
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


def to_prove(
    records: Sequence[TrialRecord], cell: Mapping[str, Any], search: Search
) -> float | None:
    """Load to try next, so that what the rounds came to is carried again and again; None if it is,
    or if no load near it can be. Pure."""
    searched = [r for r in records if r.searched is not None and r.searched.soak is None]
    return _Cell(searched, cell, search, "unfinished").to_prove()


REFUTED = 2
"""So many trials show that a load is too much, if no more of it, or of a little more, were
carried: one alone may have been unlucky."""


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
        self._numbers = sorted({r.searched.round for r in self._own if r.searched})
        self._trials = [of_round(self._own, cell, number) for number in self._numbers]
        self._every = tuple(t for trials in self._trials for t in trials)
        self._pictures = [self._views(trials) for trials in self._trials]
        self._changing = [
            any(picture.keeps_changing for picture in views.values()) for views in self._pictures
        ]
        goal = min(search.goals)
        self._slows = 2 * sum(self._changing) > len(self._changing) or slows(
            [
                trials if changing else views[goal].trials
                for trials, views, changing in zip(
                    self._trials, self._pictures, self._changing, strict=True
                )
            ],
            goal,
        )
        self._brackets = [
            _together(views, search, changing=changing)
            for views, changing in zip(self._pictures, self._changing, strict=True)
        ]
        self._pooled = _together(self._views(self._every), search, changing=all(self._changing))

    def _views(self, trials: Sequence[Tried]) -> dict[float, Picture]:
        return {goal: Picture(trials, goal, self._search) for goal in self._search.goals}

    def answers(self) -> Sequence[Answer]:
        """In the order of the goals."""
        found: dict[float, Answer] = {}
        least: Load | None = None
        for goal, rounds, place in self._chosen():
            bracket = self._bracket(goal, place)
            if bracket.lower is not None and self._search.method == "nodrop":
                bracket = replace(bracket, lower=self._proved(bracket.lower, goal, least))
                bracket = replace(bracket, upper=self._refuted(bracket, goal, place))
            least = bracket.lower
            found[goal] = self._answer(goal, rounds, place, bracket)
        return [found[goal] for goal in self._search.goals]

    def _chosen(self) -> Iterator[tuple[float, tuple[Round, ...], int | None]]:
        """Goals, the strictest first, with their rounds and the one that answers; of a goal that
        tolerates more, the same round if another would contradict."""
        strict: tuple[float | None, int | None] = None, None
        for goal in sorted(self._search.goals):
            rounds = self._rounds(goal)
            place = self._place(rounds)
            lower, least = self._bracket(goal, place).lower, strict[0]
            if least is not None and (lower is None or lower.value < least):
                place = strict[1]
                lower = self._bracket(goal, place).lower
            strict = (None if lower is None else lower.value), place
            yield goal, rounds, place

    def _proved(self, lower: Load, goal: float, least: Load | None) -> Load:
        """The load that all rounds together prove, no higher than what one of them carried, and no
        lower than what is carried for a stricter goal. If the budget ended before the proof of
        one, the next lower load that nothing speaks against."""
        trials = self._lasting(goal)
        found = proved(proofs(trials, lower.value, goal, self._search))
        if found is None:
            below = proofs(trials, lower.value, goal, self._search, near=math.inf)
            found = next((proof for proof in below if proof.holds), None)
        value = lower.value if found is None else found.value
        if least is not None and value < least.value:
            return least
        return Load(value=value, trials=tuple(t for t in self._every if t.value == value))

    def _lasting(self, goal: float) -> Sequence[Tried]:
        """Trials of all rounds, without those before the SUT changed."""
        return [t for views in self._pictures for t in views[goal].trials]

    def to_prove(self) -> float | None:
        found = [(goal, self._bracket(goal, place), place) for goal, _, place in self._chosen()]
        for goal, bracket, _ in found:
            value = None if bracket.lower is None else self._next_proof(bracket.lower, goal)
            if value is not None:
                return value
        for goal, bracket, place in found:
            value = self._next_refutation(bracket, goal, place) if bracket.lower else None
            if value is not None:
                return value
        return None

    def _mute(self, goal: float) -> bool:
        """The last trials say nothing."""
        return all(t.good(goal) is None for t in self._lasting(goal)[-PROOF:])

    def _refuted(self, bracket: Bracket, goal: float, place: int | None) -> Load | None:
        """The least load that the trials of all rounds together show to be too much; the one that
        the bracket has, if none does."""
        found = self._refutations(bracket, goal, place)
        return next((load for load, lost, carried in found if lost >= carried), bracket.upper)

    def _refutations(
        self, bracket: Bracket, goal: float, place: int | None
    ) -> Iterator[tuple[Load, int, int]]:
        """Loads that lost, from the bracket's end up: how many trials of each did, and how many of
        it and of loads a little above it were carried. None if the round that answers is sure of
        its end: other starts of the SUT may have another."""
        upper = math.inf if bracket.upper is None else bracket.upper.value
        if place is not None and self._is_sure(upper, goal, place):
            return
        said = [(t, good) for t in self._lasting(goal) if (good := t.good(goal)) is not None]
        carried = [t.value for t, good in said if good]
        for load in loads(t for t, good in said if not good and t.value >= upper):
            above = sum(load.value <= value <= load.value * NEAR for value in carried)
            whole = tuple(t for t in self._every if t.value == load.value)
            yield Load(value=load.value, trials=whole), len(load.trials), above

    def _is_sure(self, upper: float, goal: float, place: int) -> bool:
        """Several trials of the round lost so much or a little more, and none carried it; one
        fewer is enough if the bounds of rounds have nothing in common."""
        near = (t for t in self._pictures[place][goal].trials if upper <= t.value <= upper * NEAR)
        said = [t.good(goal) for t in near]
        differ = apart(self._rounds(goal)) is not None
        return True not in said and said.count(False) >= REFUTED + (not differ)

    def _next_refutation(self, bracket: Bracket, goal: float, place: int | None) -> float | None:
        """Load to try next, so that what is said to be too much lost again and again."""
        found = [*self._refutations(bracket, goal, place)]
        if not found or self._mute(goal):
            return None
        for load, lost, carried in found:
            if lost >= carried:
                return load.value if lost < REFUTED or lost == carried else None
        highest, most = found[-1][0].value, self._search.max or math.inf
        return highest * (1 + 2 * self._search.relative_width) if highest < most else None

    def _next_proof(self, lower: Load, goal: float) -> float | None:
        trials, step = self._lasting(goal), 1 + 2 * self._search.relative_width
        found = proofs(trials, lower.value, goal, self._search)
        best = proved(found)
        refuted = [one.value for one in found if one.refuted]
        if self._mute(goal):
            return None
        if best is None:
            value = min(refuted) / step if refuted else lower.value
            return None if value < lower.value / NEAR else value
        above = [one for one in found if one.value > best.value]
        if best.enough:
            return _between_proofs(best.value, above, step)
        ceiling = min((one.value for one in above if one.refuted), default=best.value)
        return ceiling / step if ceiling > best.value * step**2 else best.value

    def _rounds(self, goal: float) -> tuple[Round, ...]:
        brackets = [of_goals[goal] for of_goals in self._brackets]
        return tuple(
            Round(
                number=number,
                lower=_bound(b.lower, goal),
                upper=_bound(b.upper, goal),
                fit=views[goal].knee,
                closed=closed(b, views[goal], self._search, goal)
                and _looked(views[goal], brackets),
            )
            for number, views, b in zip(self._numbers, self._pictures, brackets, strict=True)
        )

    def _place(self, rounds: Sequence[Round]) -> int | None:
        """Index of the round whose bounds become the answer's. None if the budget cut all rounds:
        one alone then has little to say, so the trials of all of them are taken together."""
        ended = self._ended(rounds)
        return rounds.index(answering(ended)) if ended else None

    def _ended(self, rounds: Sequence[Round]) -> Sequence[Round]:
        return [r for r in rounds if r.closed or self._search.budget_s is None]

    def _bracket(self, goal: float, place: int | None) -> Bracket:
        found = self._pooled[goal] if place is None else self._brackets[place][goal]
        return replace(found, lower=None) if self._slows else found

    def _answer(
        self, goal: float, rounds: tuple[Round, ...], place: int | None, chosen: Bracket
    ) -> Answer:
        own, every, search, ended = self._own, self._every, self._search, self._ended(rounds)
        of_answer = every if place is None else self._trials[place]
        changes = all(self._changing) if place is None else self._changing[place]
        limit: LimitedBy = "changes"
        if not (changes or self._slows):
            least = least_tried(own, search)
            limit = limited_by(every, of_answer, chosen, goal, search, self._cut, least=least)
        broke = _broke(chosen, goal)
        ramps = [tried(r) for r in own if r.searched and r.searched.ramp is not None]
        lossy = _lossy(every, chosen) or _lossy(ramps, chosen)
        lower, upper = _bound(chosen.lower, goal), _bound(chosen.upper, goal)
        failed = broke is not None and broke.outcome == "failed"
        hosts = len({t.record.measured_on for t in every if t.record.valid})
        answer = Answer(
            cell=self._cell,
            by=search.by,
            goal=goal,
            goals_of=search.goals_of,
            lower=lower,
            upper=upper,
            fit=None if place is None else rounds[place].fit,
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
            trials=len(own),
            trial_seconds=sum(_offered_s(record) for record in own),
            sent_pps=_sent_pps(every),
            statements=(),
        )
        views = [of_goals[goal] for of_goals in self._pictures]
        answer = replace(answer, confidence=_confidence(answer, every, search, views))
        *others, cost = statements(answer, every, search, own)
        others += reservations(answer, views)
        return replace(answer, statements=(*others, cost))


def _between_proofs(proved_value: float, above: Sequence[Proof], step: float) -> float | None:
    """Load to try above one that has its proof: the highest that nothing speaks against, else the
    middle of a wide gap to the lowest that is refuted. None: there is no such load."""
    if open_values := [one.value for one in above if not one.refuted]:
        return max(open_values)
    ceiling = min((one.value for one in above), default=proved_value)
    return math.sqrt(proved_value * ceiling) if ceiling > proved_value * step else None


def _together(
    views: Mapping[float, Picture], search: Search, *, changing: bool
) -> dict[float, Bracket]:
    """Brackets of all goals, from the same trials. A load that loses more than one goal tolerates
    is no better for a stricter one; one that is carried for a goal is carried for those that
    tolerate more."""
    found: dict[float, Bracket] = {}
    above: Load | None = None
    for goal in sorted(search.goals, reverse=True):
        bracket = found[goal] = views[goal].bracket(above)
        above = bracket.upper
    carried: Load | None = None
    for goal in sorted(search.goals):
        bracket = found[goal]
        if carried is not None and (bracket.lower is None or bracket.lower.value < carried.value):
            bracket = replace(bracket, lower=carried)
        carried = bracket.lower
        found[goal] = replace(bracket, lower=None) if changing else bracket
    return found


def _confidence(
    answer: Answer, every: Sequence[Tried], search: Search, views: Sequence[Picture]
) -> Confidence | None:
    lower, upper = answer.lower, answer.upper
    less_than = upper is not None and not any(t.value < upper.value for t in every)
    if lower is None and not less_than:
        return None
    none_carried = sum(one.closed and one.value is None for one in answer.rounds)
    return confidence(
        Evidence(
            upper=upper,
            width=answer.reached_width,
            asked_width=search.relative_width,
            between=answer.between,
            limited_by=answer.limited_by,
            trials=every,
            goal=answer.goal,
            doubts=[*changed(answer, views), *doubts(answer, every)],
            missed=answer.missed,
            none_carried=none_carried if lower else 0,
        )
    )


def closed(found: Bracket, picture: Picture, search: Search, goal: float) -> bool:
    """The bounds are close, or the round met another end."""
    lower, upper, close = found.lower, found.upper, (1 + search.relative_width) ** CLOSED
    if lower is not None and upper is not None:
        fitted = None if picture.knee is None else picture.knee.relative_width
        return upper.value <= lower.value * close or (fitted is not None and 1 + fitted <= close)
    if lower is None:
        return upper is not None and not any(
            load.value < upper.value and load.looks_carried(goal, search) for load in picture.loads
        )
    at_most = search.max is not None and lower.value >= search.max
    return at_most or untriable_above(picture.loads, lower, goal, search) is not None


def _looked(own: Picture, brackets: Sequence[Bracket]) -> bool:
    """A round that found none looked as low as the others found one, with trials that say
    something; else it was cut on its way."""
    if own.bracket().lower is not None:
        return True
    least = min((load.value for load in own.loads if not load.all_void), default=math.inf)
    return all(b.lower is None or least <= b.lower.value for b in brackets)


def _offered_s(record: TrialRecord) -> float:
    assert record.searched is not None
    return record.offered.duration_s or record.searched.duration_s


def answering(rounds: Sequence[Round]) -> Round:
    """The median one; of two in the middle the lower, so that it was really measured. If rounds
    differ by more than chance, the lowest that the 95 % interval of the median holds: with fewer
    than nine, the lowest. Without a load that is carried, the one that found the least load that is
    not. One that found no load too much carries at least what it came to: it stands behind those
    whose end is known."""
    whole = [(r.upper is None, value, r.number) for r in rounds if (value := r.value) is not None]
    if not whole:
        ended = [(r.upper.value, r.number) for r in rounds if r.upper is not None]
        number = min(ended, default=(0.0, rounds[0].number))[1]
        return next(r for r in rounds if r.number == number)
    middle = (len(whole) - 1) // 2
    if apart(rounds) is not None:
        rank, _ = median_rank(len(whole), 1 - CONFIDENCE)
        middle = max(0, rank - 1)
    *_, number = sorted(whole)[middle]
    return next(r for r in rounds if r.number == number)


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
    pps = [o.per_s for o in offered if o.per_s is not None]
    bps = [o.bps for o in offered if o.bps is not None]
    return Bound(
        value=load.value,
        pps=median(pps) if pps else None,
        bps=median(bps) if bps else None,
        runs=tuple(t.record.run for t in load.trials if t.good(goal) is not None),
    )


def _sent_pps(trials: Sequence[Tried]) -> dict[float, float]:
    bounds = (_bound(load, 0.0) for load in loads(trials))
    return {one.value: one.pps for one in bounds if one is not None and one.pps is not None}


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
    why = f"in {none} of {len(rounds)} no load was carried" if none else _TOO_FEW
    if several:
        why = f"each mixes trials of {hosts} hosts"
    return Between(carried=carried, interval=interval, why_no_interval="" if interval else why)


_TOO_FEW = f"needs {runs_needed()} rounds"
