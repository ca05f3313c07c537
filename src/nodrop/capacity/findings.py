"""Findings on an answer: each has its code, its values, its reasons and its trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from nodrop.answer.finding import Finding, render
from nodrop.capacity.estimate import Estimate
from nodrop.capacity.load_words import (
    UNITS,
    UNSURE,
    Writing,
    ends_words,
    goal_words,
    known_apart,
    value_words,
    written,
)
from nodrop.capacity.search_answer import Answer, Between, Bound, Missed, Needed, rounds_apart
from nodrop.capacity.tried import Tried, no_ratio
from nodrop.config.search import Search
from nodrop.ledger.hops import ON_EVERY_HOST
from nodrop.results.capacity import CardLoad
from nodrop.results.trial import Ramp, TrialRecord
from nodrop.stats.interval import Knee

MORE = 1.05
"""Factor from which on there is headroom to speak of."""


def ramp_findings(by: str, ramp: Ramp) -> Iterator[Finding]:
    """Findings on a load that grew, the most important first."""
    clean = ramp.lossy_from is None and ramp.full_from is None
    ends = (
        ("lossy_from", ramp.lossy_from),
        ("full_from", ramp.full_from),
        ("clean_to", (ramp.clean_to or None) if clean else None),
        ("sender_to", ramp.sender_to),
        (f"expects_{ramp.expects_by or 'served'}", ramp.expects),
    )
    seen = [(code, value) for code, value in ends if value is not None]
    said = [Finding(code=f"ramp.{c}", values={"load": value_words(by, v)}) for c, v in seen]
    yield from said or (Finding(code="ramp.silent"),)


def ramp_words(by: str, ramp: Ramp) -> str:
    return "; ".join(ramp_finding.text for ramp_finding in ramp_findings(by, ramp))


def findings(
    answer: Answer,
    every: Sequence[Tried],
    search: Search,
    own: Sequence[TrialRecord],
    estimate: Estimate | None,
) -> Iterator[Finding]:
    """`every` trial that decides something; `own` are all of the cell, its ramps as well;
    `estimate`: of nodrop's own method."""
    first = _answered(answer, every, own)
    if search.soak_s and answer.lower is None:
        first = replace(first, because=(*first.because, _reason("no_soak")))
    yield first
    if (sure := answer.confidence) is not None:
        values = {"level": sure.level, "known_ratio": sure.known_ratio}
        yield Finding(code="capacity-confidence", values=values, because=(sure.reason,))
    if answer.lower is not None and answer.fit is not None:
        yield from _fitted(answer, answer.fit)
    if answer.between is not None and answer.between.n > 1:
        yield _between_rounds(answer, answer.between)
    yield from doubts(answer, every)
    missing = search.budget_s is not None and len(answer.rounds) < search.rounds
    shown = any(t.good(answer.goal) is not None for t in every)
    if shown and (missing or answer.cut_rounds):  # else it was not the budget that ended it
        begun, cut = len(answer.rounds), answer.cut_rounds
        counted = {"rounds": begun, "complete": begun - cut, "asked": search.rounds, "cut": cut}
        yield Finding(
            code="capacity-rounds-missing",
            values=counted,
            because=(_reason("cut", cut=cut),) if cut else (),
        )
    if estimate is not None:
        yield from changed(answer, estimate)
    if answer.missed is not None:
        yield _noise(answer, answer.missed)
    if estimate is not None:
        yield from _set_aside(answer, estimate)
    width = answer.reached_width
    bounds = () if width is None else (_reason("bounds", width=width, asked=search.relative_width),)
    yield Finding(
        code="capacity-cost",
        values={
            "trials": answer.trials,
            "trial_seconds": answer.trial_seconds,
            "reached_width": width,
        },
        because=bounds,
        trials=tuple(t.record.run for t in every),
    )


def needed_words(need: Needed, by: str) -> str:
    scale = value_words(by, need.value)
    asked = need.asked if scale == need.asked else f"{need.asked} ({scale})"
    code = "least" if need.times is None else "more" if need.times >= MORE else "sentence"
    values = {"asked": asked, "times": need.times}
    form = {"yes": code, "no": "least" if need.times is None else "sentence"}
    finding = Finding(code=f"needed.{need.verdict.replace(' ', '_')}", values=values)
    return render(finding, form.get(need.verdict, "sentence"))


def _reason(code: str, **values: Any) -> Finding:
    return Finding(code=f"reason.{code}", values=values)


def doubts(answer: Answer, every: Sequence[Tried]) -> Iterator[Finding]:
    """Findings that speak against the answer."""
    found = (_rounds_differ(answer), _contradicted(answer, every))
    yield from filter(None, found)


def writing(answer: Answer) -> Writing:
    """How its loads are written: its bounds alike wherever they stand."""
    bounds = [bound for bound in (answer.lower, answer.upper) if bound is not None]
    pps = bounds[0].pps if bounds else None
    per = None if pps is None else pps / bounds[0].value
    known = UNSURE if answer.confidence is None else answer.confidence.known_ratio
    if len(bounds) == 2:
        known = known_apart(bounds[0].value, bounds[1].value, known)
    return Writing(
        by=answer.by,
        known=known,
        pps_per=per,
        sent_pps=answer.sent_pps,
        rounds_up={b.value: b is answer.upper for b in bounds},
    )


def ends_of(answer: Answer) -> tuple[CardLoad | None, CardLoad | None]:
    """The load that is carried, and the one that is too much. Digits follow what is known, as in
    every sentence: the first is rounded down, the other up."""
    known, lower, upper = writing(answer).known, answer.lower, answer.upper
    pps = ends_words(lower.pps if lower else None, upper.pps if upper else None, known)
    value = ends_words(lower.value if lower else None, upper.value if upper else None, known)

    def load(bound: Bound | None, shown_pps: str, shown_value: str) -> CardLoad | None:
        if bound is None:
            return None
        return CardLoad(
            pps=bound.pps,
            bps=bound.bps,
            value=bound.value,
            runs=[*bound.runs],
            shown_pps=shown_pps,
            shown_mbit="" if bound.bps is None else written(bound.bps / 1e6, max(known, 1e-3)),
            shown_value=shown_value,
            unit=UNITS[answer.by],
        )

    return load(lower, pps[0], value[0]), load(upper, pps[1], value[1])


def rate_words(load: CardLoad) -> str:
    if load.shown_pps:
        return f"{load.shown_pps} packets/s"
    return load.shown_value if load.value is None else f"{load.shown_value}{load.unit}"


def _answered(answer: Answer, every: Sequence[Tried], own: Sequence[TrialRecord]) -> Finding:
    loads, (carries, _) = writing(answer), ends_of(answer)
    lower, upper = answer.lower, answer.upper
    values = {
        "goal": answer.goal,
        "within": goal_words(answer.goal, answer.goals_of, answer.by),
        "of_detections": answer.goals_of == "detections",
        "met": render(
            Finding(code="met", values={"goal": bool(answer.goal)}),
            "transactions" if answer.by == "rate" else answer.goals_of,
        ),
        "rate": "" if carries is None else rate_words(carries),
        "lower": None if lower is None else lower.value,
        "upper": None if upper is None else upper.value,
        "limited_by": answer.limited_by,
    }
    runs = (*(lower.runs if lower else ()), *(upper.runs if upper else ()))
    limit = _limit(answer)

    def found(code: str, because: Sequence[Finding], **words: str) -> Finding:
        own_values = {**values, **words}
        return Finding(code=code, values=own_values, because=tuple(because), trials=runs)

    if lower is not None and upper is not None:
        carried, too_much = loads.both(lower, upper)
        if answer.limited_by == "sut_failed":
            return found("capacity-failed", (), carried=carried, too_much=too_much)
        bad = [t for t in every if t.value == upper.value and t.good(answer.goal) is False]
        # If its rings held what was not done in time, no more than that speaks against the load.
        behind = bad and all(t.outcome == "measured" and t.loss_ratio == 0 for t in bad)
        code = "capacity-behind" if behind else "capacity-found"
        return found(code, (limit,), carried=carried, too_much=too_much)
    others = [limit, *_while_others(answer, every), *_last_void(answer, own)]
    if lower is not None:
        others += _undecided(answer, every)
        return found("capacity-at-least", others, carried=loads.bound(lower, up=False))
    before = answer.place in {place.name for place in ON_EVERY_HOST}
    if answer.limited_by == "loss_at_every_load":
        where = "_before" if before else "_place" if answer.place else ""
        values_of = {"place": answer.place, "of_detections": answer.goals_of == "detections"}
        every_load = _reason(f"at_every_load{where}", **values_of)
        return found("capacity-not-known" if before else "capacity-none", (every_load,))
    if mute := no_ratio(own):
        others.append(_reason("verdict", verdict=mute))
    least_tried = upper is not None and not any(t.value < upper.value for t in every)
    silent = not any(render(reason, "why") for reason in others)
    if upper is not None and answer.limited_by != "changes" and (silent or least_tried):
        too_much = loads.bound(upper, up=True)
        if before:
            lost = _reason("least_lost_before", too_much=too_much, place=answer.place)
            return found("capacity-not-known", (lost, *others), too_much=too_much)
        return found("capacity-below-min", others, too_much=too_much)
    if answer.limited_by != "changes":
        others += _looked_carried(answer, every)
    return found("capacity-not-known", others)


def _limit(answer: Answer) -> Finding:
    """Why a load was not carried, or could not be tried; without words if nothing but the SUT
    is why."""
    return Finding(code=f"limited_by.{answer.limited_by}", values={"place": answer.place})


def _while_others(answer: Answer, every: Sequence[Tried]) -> Iterator[Finding]:
    """A generator that is late on a busy host may be good for more."""
    void = [t for t in every if t.outcome == "void"]
    busy = sum(t.record.host_was_busy for t in void)
    if answer.limited_by == "generator" and 2 * busy > len(void):
        yield _reason("while_others", busy=busy, trials=len(void))


def _last_void(answer: Answer, own: Sequence[TrialRecord]) -> Iterator[Finding]:
    """E.g. rules that do not load: whoever reads the answer alone must learn it."""
    if answer.limited_by in ("nothing_measured", "lab") and own and not own[-1].valid:
        yield _reason("verdict", verdict=own[-1].verdict)


def _undecided(answer: Answer, every: Sequence[Tried]) -> Iterator[Finding]:
    """The lowest load above that a trial showed to be too much, if the search ended before others
    agreed: who sees that trial in the picture would miss it here."""
    if answer.lower is None or answer.limited_by not in ("budget", "unfinished"):
        return
    above = [t for t in every if t.value > answer.lower.value and t.good(answer.goal) is False]
    if above:
        least = writing(answer).at(min(t.value for t in above), up=True)
        yield _reason("undecided", least=least)


def _looked_carried(answer: Answer, every: Sequence[Tried]) -> Iterator[Finding]:
    """The highest load within the goal below what was too much, if only trials that do not decide
    were."""
    most = math.inf if answer.upper is None else answer.upper.value
    carried = [t for t in every if t.good(answer.goal) and t.value < most]
    if not carried:
        return
    best = max(carried, key=lambda t: t.value)
    pps = best.record.offered.pps
    loads = Writing(by=answer.by, known=UNSURE, pps_per=None if pps is None else pps / best.value)
    yield _reason("looked_carried", most=loads.at(best.value))


def _fitted(answer: Answer, fit: Knee) -> Iterator[Finding]:
    if fit.low is None or fit.high is None:
        return
    loads = writing(answer)
    yield Finding(
        code="capacity-fit",
        values={
            "estimate": fit.estimate,
            "low": fit.low,
            "high": fit.high,
            "trials": fit.n,
            "limit": loads.at(fit.estimate),
            "by_level": answer.by_level,
            "span": loads.span(fit.low, fit.high),
        },
    )


def _rounds_differ(answer: Answer) -> Finding | None:
    """Bounds of rounds that have nothing in common."""
    found = rounds_apart(answer.rounds)
    if found is None:
        return None
    better, worse = found
    assert better.lower is not None and worse.upper is not None
    low, high = better.lower.value, worse.upper.value
    at_least, at_most = writing(answer).distinct(low, high)
    return Finding(
        code="capacity-rounds-differ",
        values={
            "low": low,
            "of_round": better.number,
            "high": high,
            "of_other_round": worse.number,
            "at_least": at_least,
            "at_most": at_most,
        },
    )


def _contradicted(answer: Answer, every: Sequence[Tried]) -> Finding | None:
    """Trials of any round that say the contrary of the loads of the answer."""
    shown = [(t, good) for t in every if (good := t.good(answer.goal)) is not None]
    loads, (lower, upper) = writing(answer), (answer.lower, answer.upper)
    below = [one for one in shown if lower is not None and one[0].value <= lower.value]
    above = [one for one in shown if upper is not None and one[0].value >= upper.value]
    because, shares = list[Finding](), [0.0]
    runs: list[Tried] = []
    for bound, code, count, of, same in (
        (lower, "missed_below", "missed", min, [(t, not good) for t, good in below]),
        (upper, "met_above", "met", max, above),
    ):
        if bound is not None and (odd := [t for t, contrary in same if contrary]):
            end = loads.at(of(t.value for t in odd), up=bound is upper)
            values = {"trials": len(same), "load": loads.at(bound.value), "end": end}
            because.append(_reason(code, **{count: len(odd)}, **values))
            runs, shares = [*runs, *odd], [*shares, len(odd) / len(same)]
    if not because:
        return None
    return Finding(
        code="capacity-contradicted",
        values={"trials": len(runs), "most_share": max(shares)},
        because=tuple(because),
        trials=tuple(t.record.run for t in runs),
    )


def _between_rounds(answer: Answer, between: Between) -> Finding:
    loads = writing(answer)
    ends = between.interval
    span = "" if ends is None else loads.span(ends.low, ends.high)
    missing = _reason("no_interval", lacking=between.why_no_interval)
    return Finding(
        code="capacity-between-rounds",
        values={
            "alike": between.lowest == between.highest,
            "rounds": between.n,
            "lowest": between.lowest,
            "highest": between.highest,
            "span": loads.span(between.lowest, between.highest, up=False),
            "ends": f"; 95 % interval {span}" if ends else "",
        },
        because=(_reason("interval", interval=span) if ends else missing,),
    )


def changed(answer: Answer, estimate: Estimate) -> Iterator[Finding]:
    """Phases of the SUT, if their order is no chance, or if it served less and less."""
    if not (estimate.changed or answer.limited_by == "changes"):
        return
    loads = writing(answer)
    served = [s for phase in estimate.phases for s in phase if s.at is not None and not s.good]
    if len(served) < 2:
        return
    first, last = served[0], served[-1]
    assert first.at is not None and last.at is not None
    values: dict[str, Any] = {"first": loads.at(first.at), "last": loads.at(last.at)}
    because = []
    # Loads differ: of a SUT that serves a smaller part of each, the last may be served more.
    if last.at < first.at and len(estimate.phases) == 2:
        begun = {**values, "begun": estimate.phases[-1][0].trial.record.index}
        because.append(_reason("served_since", **begun))
    elif last.at < first.at:
        because.append(_reason("served", **values))
    if answer.limited_by != "changes":
        because.append(_reason("last_count"))
    yield Finding(
        code="capacity-changed",
        values={"phases": len(estimate.phases)},
        because=tuple(because),
        trials=(first.trial.record.run, last.trial.record.run),
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
        because=(_reason("lost_or_behind" if of_packets else "missed_goal"),),
    )


def _set_aside(answer: Answer, estimate: Estimate) -> Iterator[Finding]:
    loads = writing(answer)
    aside = estimate.aside()
    because = [
        Finding(
            code=f"aside.{why}",
            values={
                "n": len(trials),
                "least": loads.at(min(t.value for t in trials), up=False),
            },
        )
        for why, trials in aside.items()
        if trials
    ]
    if because:
        yield Finding(
            code="capacity-set-aside",
            values={why: len(trials) for why, trials in aside.items()},
            because=tuple(because),
            trials=tuple(t.record.run for trials in aside.values() for t in trials),
        )
