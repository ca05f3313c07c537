"""What a search found: how much a cell carries, how sure that is, and what is in the way.

Two kinds of bounds, and neither stands for the other: *within the search* of one round lie the load
that was carried and the next one that was not; *between rounds* is how much starts of the SUT
differ, with an interval from six rounds on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

from nodrop.config.search import RANGE, Search
from nodrop.findings.answer import Answer, Between, Bound, Confidence, Round
from nodrop.findings.capacity_statements import doubts, statements
from nodrop.findings.confidence import Evidence, confidence
from nodrop.findings.searched import (
    SENDER_REASONS,
    Bracket,
    Load,
    Picture,
    Tried,
    lab_is_out,
    loads,
    of_round,
    tried,
    untriable_above,
)
from nodrop.ledger.cause import Rule
from nodrop.ledger.places import ON_EVERY_HOST
from nodrop.results.capacity import LimitedBy
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import median_interval, runs_needed

SAME_SHARE = 2.0
"""Loss ratios of all loads are one share of the load if none is so many times another."""
APART = 2.0
"""... and if the loads are so far apart."""
CLOSED = 4
"""A round is closed if its bounds are no more of the widths that were asked for apart."""


def answers(records: Sequence[TrialRecord], search: Search) -> tuple[Answer, ...]:
    """One per cell and goal, in the order of the cells' first trials. Pure."""
    searched = [record for record in records if record.searched is not None]
    cells: list[dict[str, Any]] = []
    for record in sorted(searched, key=lambda r: r.index):
        if dict(record.cell) not in cells:
            cells.append(dict(record.cell))
    cut: LimitedBy = "unfinished" if search.budget_s is None else "budget"
    if lab_is_out(searched):
        cut = "lab"
    return tuple(
        _answer(searched, cell, goal, search, cut) for cell in cells for goal in search.goals
    )


def _answer(
    records: Sequence[TrialRecord],
    cell: Mapping[str, Any],
    goal: float,
    search: Search,
    cut: LimitedBy,
) -> Answer:
    """`cut`: what ended the search, if nothing that it found did."""
    own = [record for record in records if record.cell == dict(cell)]
    found = [
        (number, of_round(own, cell, number))
        for number in sorted({r.searched.round for r in own if r.searched})
    ]
    pictures = [(number, Picture(trials, goal, search)) for number, trials in found]
    brackets = [picture.bracket() for _, picture in pictures]
    rounds = tuple(
        Round(
            number=number,
            lower=_bound(b.lower),
            upper=_bound(b.upper),
            fit=picture.knee,
            closed=closed(b, picture, search, goal) and _looked(picture, brackets),
        )
        for (number, picture), b in zip(pictures, brackets, strict=True)
    )
    ended = [r for r in rounds if r.closed or search.budget_s is None]
    median_round = _median_round(ended or rounds)
    every = tuple(t for _, trials in found for t in trials)
    # If the budget cut all of them, a round has little to say: its trials join those of the others.
    together = None if ended else Picture(every, goal, search)
    chosen = together.bracket() if together else brackets[rounds.index(median_round)]
    of_answer = every if together else found[rounds.index(median_round)][1]
    limit = _limited_by(every, of_answer, chosen, goal, search, cut, least=_least(own, search))
    broke = _broke(chosen, goal)
    ramps = [tried(r) for r in own if r.searched and r.searched.ramp is not None]
    lossy = _lossy(every, chosen) or _lossy(ramps, chosen)
    lower, upper = _bound(chosen.lower), _bound(chosen.upper)
    failed = broke is not None and broke.outcome == "failed"
    answer = Answer(
        cell=cell,
        by=search.by,
        goal=goal,
        lower=lower,
        upper=upper,
        fit=None if together else median_round.fit,
        between=_between(ended, len({t.record.pair for t in every if t.record.valid})),
        rounds=rounds,
        cut_rounds=len(rounds) - len(ended),
        limited_by=limit,
        # What touches losses touches no failure.
        place=None if lossy is None or failed else lossy.record.packets.loss_place,
        knob="" if lossy is None or failed else lossy.record.packets.knob,
        broke="" if broke is None else broke.record.verdict,
        reached_width=None
        if lower is None or upper is None
        else (upper.value - lower.value) / upper.value,
        confidence=None,
        trials=len(own),
        trial_seconds=sum(_offered_s(record) for record in own),
        statements=(),
    )
    answer = replace(answer, confidence=_confidence(answer, every, search))
    return replace(answer, statements=tuple(statements(answer, every, search, own)))


def _confidence(answer: Answer, every: Sequence[Tried], search: Search) -> Confidence | None:
    if answer.lower is None:
        return None
    return confidence(
        Evidence(
            lower=answer.lower,
            upper=answer.upper,
            width=answer.reached_width,
            asked_width=search.relative_width,
            between=answer.between,
            limited_by=answer.limited_by,
            trials=every,
            goal=answer.goal,
            doubts=[*doubts(answer, every)],
            none_carried=sum(one.closed and one.value is None for one in answer.rounds),
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
    """A round that found none looked as low as the others found one; else it was cut on its way."""
    least = own.loads[0].value if own.loads else 0.0
    if own.bracket().lower is not None:
        return True
    return all(b.lower is None or least <= b.lower.value for b in brackets)


def _offered_s(record: TrialRecord) -> float:
    assert record.searched is not None
    return record.offered.duration_s or record.searched.duration_s


def _median_round(rounds: Sequence[Round]) -> Round:
    """Of two in the middle the lower, so that it was really measured; without a load that is
    carried, the one that found the least load that is not. One that found no load too much carries
    at least what it came to: it stands behind those whose end is known."""
    whole = [(r.upper is None, value, r.number) for r in rounds if (value := r.value) is not None]
    if not whole:
        ended = [(r.upper.value, r.number) for r in rounds if r.upper is not None]
        number = min(ended, default=(0.0, rounds[0].number))[1]
        return next(r for r in rounds if r.number == number)
    *_, number = sorted(whole)[(len(whole) - 1) // 2]
    return next(r for r in rounds if r.number == number)


def _least(own: Sequence[TrialRecord], search: Search) -> float:
    """That the search may try. Only nodrop's own method needs no minimum, and it begins where the
    cell's load does."""
    if search.min is not None:
        return search.min
    first = min(own, key=lambda r: r.index).searched
    assert first is not None
    return (first.value if first.ramp is None else first.ramp.start) / RANGE


def _limited_by(
    every: Sequence[Tried],
    of_answer: Sequence[Tried],
    chosen: Bracket,
    goal: float,
    search: Search,
    cut: LimitedBy,
    *,
    least: float,
) -> LimitedBy:
    """`of_answer`: the trials that `chosen` are the bounds of."""
    measured = [t for t in every if t.outcome != "void"]
    if not measured and cut != "lab":
        return _void_for(every) if every else "nothing_measured"
    lower, upper = chosen.lower, chosen.upper
    if upper is None:
        return _limited_above(every, of_answer, lower, goal, search, cut)
    below = [t for t in every if t.value < upper.value]
    if lower is None and any(load.looks_carried(goal, search) for load in loads(below)):
        return "hypervisor" if 2 * sum(t.disturbed for t in below) > len(below) else cut
    if _hidden(every, chosen, goal, search):
        return "hypervisor"
    if lower is not None:
        failed = any(t.outcome == "failed" for t in upper.trials)
        return "sut_failed" if failed else _in_the_way(every, upper.value, goal)
    if _same_share(measured, goal):
        return "loss_at_every_load"
    on_its_way = upper.value > least * (1 + search.relative_width)
    return cut if on_its_way else "min"


def _in_the_way(every: Sequence[Tried], least: float, goal: float) -> LimitedBy:
    """By what most of the trials that missed the goal say, at the load that was not carried or, if
    rings held that, at the next higher one that lost: where it lost, and what had its CPU."""
    if 2 * sum(t.outcome == "void" or t.doubtful for t in every) > len(every):
        return "not_known"
    bad = [t for t in every if t.value >= least and t.good(goal) is False]
    lossy = [t for t in bad if t.record.packets.loss_place]
    nearest = [_loss_by(t.record) for t in lossy if t.value == min(x.value for x in lossy)]
    return max(nearest, key=nearest.count, default="sut")


def _loss_by(record: TrialRecord) -> LimitedBy:
    body = record.packets
    lost, before = body.lost_packets or 0, body.lost_before_sut_packets
    if before is None:
        before = sum(body.lost_by_place.get(p.name, 0) for p in ON_EVERY_HOST) or (
            lost if body.loss_place in {p.name for p in ON_EVERY_HOST} else 0
        )
    if 2 * before > lost:
        return "before_sut"
    rule = body.loss_causes[0].rule if body.loss_causes else ""
    return _TAKEN_BY.get(rule, "sut")


_TAKEN_BY: Mapping[str, LimitedBy] = {
    Rule.OTHERS: "other_programs",
    Rule.STOLEN: "hypervisor",
    Rule.SENDER: "sender_cpu",
    Rule.SOFTIRQ: "interrupts",
    Rule.THROTTLED: "quota",
}
"""What had the CPU of the thread that lost."""


def _limited_above(
    every: Sequence[Tried],
    of_answer: Sequence[Tried],
    lower: Load | None,
    goal: float,
    search: Search,
    cut: LimitedBy,
) -> LimitedBy:
    """The same if no load was too much."""
    if cut == "lab":
        return cut
    ceiling = untriable_above(loads(of_answer), lower, goal, search) or untriable_above(
        loads(every), lower, goal, search
    )
    void_for = _void_for(() if ceiling is None else ceiling.trials)
    if void_for != "nothing_measured":
        return void_for
    if lower is None:
        return "nothing_measured" if search.budget_s is None else cut
    if ceiling is not None:
        return "void_above"
    return "max" if search.max is not None and lower.value >= search.max else cut


def _hidden(every: Sequence[Tried], chosen: Bracket, goal: float, search: Search) -> bool:
    """The bounds are far apart, as the hypervisor disturbed the trials between them."""
    assert chosen.upper is not None
    least = 0.0 if chosen.lower is None else chosen.lower.value
    if chosen.upper.value <= least * (1 + search.relative_width) ** CLOSED:
        return False
    between = [t for t in every if least < t.value < chosen.upper.value and t.good(goal) is None]
    return _void_for(between) == "hypervisor"


def _void_for(
    trials: Sequence[Tried],
) -> Literal["hypervisor", "generator", "nothing_measured"]:
    """What kept them from being measured, if it is one thing."""
    void = [t for t in trials if t.outcome == "void" or t.doubtful]
    if 2 * sum(t.disturbed for t in void) > len(void):
        return "hypervisor"  # whatever the few others say
    rest = [set(t.record.invalid_reasons) for t in void if not t.disturbed]
    return "generator" if rest and all(r & SENDER_REASONS for r in rest) else "nothing_measured"


def _same_share(measured: Sequence[Tried], goal: float) -> bool:
    """Every load lost, and from the lowest on, as far as it was not too much anyway, the same part
    of it."""
    lossy = [(t.value, t.loss_ratio) for t in measured if t.loss_ratio is not None]
    least = min((ratio for _, ratio in lossy), default=0.0)
    same = [
        value
        for value, ratio in lossy
        if ratio <= SAME_SHARE * least and (1 - least) <= SAME_SHARE * (1 - ratio)
    ]
    if least <= goal or min(same) > min(value for value, _ in lossy):
        return False
    return max(same) >= APART * min(same)


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


def _bound(load: Load | None) -> Bound | None:
    if load is None:
        return None
    offered = [t.record.offered for t in load.trials if t.outcome == "measured"]
    pps = [o.per_s for o in offered if o.per_s is not None]
    bps = [o.bps for o in offered if o.bps is not None]
    return Bound(
        value=load.value,
        pps=median(pps) if pps else None,
        bps=median(bps) if bps else None,
        runs=tuple(t.record.run for t in load.trials),
    )


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
