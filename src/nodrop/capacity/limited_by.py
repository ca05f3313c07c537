"""Limits of an answer: the SUT, what came before it, what took the CPU, or the search itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from nodrop.capacity.tried import (
    SENDER_REASONS,
    Bracket,
    Load,
    Tried,
    loads,
    never_ready,
    no_ratio,
    untriable_above,
)
from nodrop.config.search import RANGE, Search
from nodrop.ledger.cause import Rule
from nodrop.ledger.hops import ON_EVERY_HOST
from nodrop.results.capacity import LimitedBy
from nodrop.results.trial import TrialRecord

CLOSED = 4
"""Factor on the widths that were asked for up to which bounds count as close."""
SAME_SHARE = 2.0
"""Factor up to which loss ratios of all loads are one share of the load."""
APART = 2.0
"""... and factor by which the loads must be apart for that."""


def least_tried(own: Sequence[TrialRecord], search: Search) -> float:
    """Lowest load that the search may try. Only nodrop's own method needs no minimum, and it begins
    where the cell's load does."""
    if search.min is not None:
        return search.min
    first = min(own, key=lambda r: r.index).searched
    assert first is not None
    return (first.value if first.ramp is None else first.ramp.start) / RANGE


def limited_by(
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
    if no_ratio(t.record for t in measured):
        return "not_judged"
    if measured and cut != "lab" and all(never_ready(t.record) for t in measured):
        return "nothing_measured"  # whatever else ended it, the SUT's own words stand there
    if not measured and cut != "lab":
        why = _void_for(every)
        tried_enough = why != "generator" or any(one.untriable(goal) for one in loads(every))
        return why if cut != "budget" or (every and tried_enough) else cut
    lower, upper = chosen.lower, chosen.upper
    if upper is None:
        return _limited_above(every, of_answer, lower, goal, search, cut)
    below = [t for t in every if t.value < upper.value]
    if lower is None and any(load.looks_carried(goal, search) for load in loads(below)):
        return _void_for(below) if 2 * sum(t.disturbed for t in below) > len(below) else cut
    if by := _hidden(every, chosen, goal, search):
        return by
    if lower is not None:
        failed = any(t.outcome == "failed" for t in upper.trials)
        return "sut_failed" if failed else _in_the_way(every, upper.value, goal)
    if _same_share(measured, goal):
        return "loss_at_every_load"
    on_its_way = upper.value > least * (1 + search.relative_width)
    return cut if on_its_way else "min"


def _in_the_way(every: Sequence[Tried], least: float, goal: float) -> LimitedBy:
    """The cause that most trials name at the lowest load, from `least` on, that lost more than the
    goal tolerates. Without such a trial the SUT fell behind."""
    if 2 * sum(t.outcome == "void" or t.doubtful for t in every) > len(every):
        return "not_known"
    bad = [t for t in every if t.value >= least and t.good(goal) is False]
    lossy = [t for t in bad if (t.loss_ratio or 0.0) > goal and t.record.packets.loss_place]
    nearest = [loss_by(t.record) for t in lossy if t.value == min(x.value for x in lossy)]
    return max(nearest, key=nearest.count, default="sut")


def loss_by(record: TrialRecord) -> LimitedBy:
    body = record.packets
    lost, before = body.lost_packets or 0, body.lost_before_sut_packets
    if before is None:
        before = sum(body.lost_by_place.get(p.name, 0) for p in ON_EVERY_HOST) or (
            lost if body.loss_place in {p.name for p in ON_EVERY_HOST} else 0
        )
    if 2 * before > lost:
        return "before_sut"
    rule = body.loss_causes[0].rule if body.loss_causes else ""
    return TAKEN_BY.get(rule, "sut")


TAKEN_BY: Mapping[str, LimitedBy] = {
    Rule.OTHERS: "other_programs",
    Rule.STOLEN: "hypervisor",
    Rule.SENDER: "sender_cpu",
    Rule.SOFTIRQ: "interrupts",
    Rule.THROTTLED: "quota",
}
"""Rule of a loss cause → the limit to report: what had the CPU of the thread that lost packets."""


def _limited_above(
    every: Sequence[Tried],
    of_answer: Sequence[Tried],
    lower: Load | None,
    goal: float,
    search: Search,
    cut: LimitedBy,
) -> LimitedBy:
    """Limit of the answer if no load was too much."""
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


def _hidden(
    every: Sequence[Tried], chosen: Bracket, goal: float, search: Search
) -> LimitedBy | None:
    """Cause that disturbed the trials between bounds that are far apart: the hypervisor or
    programs."""
    assert chosen.upper is not None
    least = 0.0 if chosen.lower is None else chosen.lower.value
    if chosen.upper.value <= least * (1 + search.relative_width) ** CLOSED:
        return None
    between = [t for t in every if least < t.value < chosen.upper.value and t.good(goal) is None]
    by = _void_for(between)
    return by if by in ("hypervisor", "other_programs") else None


def _void_for(
    trials: Sequence[Tried],
) -> Literal["hypervisor", "other_programs", "generator", "nothing_measured"]:
    """Cause that kept the trials from being measured, if it is one."""
    void = [t for t in trials if t.outcome == "void" or t.doubtful]
    if 2 * sum(t.disturbed for t in void) > len(void):  # whatever the few others say
        others = sum(t.others_took_more for t in void)
        return "other_programs" if 2 * others > len(void) else "hypervisor"
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
