"""Statements on an answer: each has its rule, its evidence and its trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodrop.capacity.search_answer import Answer, Between, Statement, apart, rounds_words
from nodrop.capacity.tried import Tried, no_ratio
from nodrop.config.search import Search
from nodrop.config.units import noun
from nodrop.findings.load_words import UNSURE, Writing, goal_words, known_apart, value_words
from nodrop.ledger.hops import ON_EVERY_HOST
from nodrop.ledger.verdict import percent
from nodrop.results.trial import Ramp, TrialRecord
from nodrop.stats.interval import Knee


def ramp_words(by: str, ramp: Ramp) -> str:
    """Words for what a load that grew showed."""
    said = []
    if ramp.lossy_from is not None:
        said.append(f"packets were lost at {value_words(by, ramp.lossy_from)} at the latest")
    if ramp.full_from is not None:
        said.append(f"its busiest thread was full at {value_words(by, ramp.full_from)}")
    if not said and ramp.clean_to:
        said.append(f"nothing was seen to be too much up to {value_words(by, ramp.clean_to)}")
    if ramp.sender_to is not None:
        said.append(f"the sender sent {value_words(by, ramp.sender_to)} at most")
    if ramp.expects is not None:
        how = {"served": "what was served", "cpu": "CPU per packet"}[ramp.expects_by or "served"]
        said.append(f"about {value_words(by, ramp.expects)} is expected, by {how}")
    return "; ".join(said) or "nothing was read while the load grew"


def statements(
    answer: Answer, every: Sequence[Tried], search: Search, own: Sequence[TrialRecord]
) -> Iterator[Statement]:
    """`every` trial that decides something; `own` are all of the cell, its ramps as well."""
    headline = _headline(answer, every, own)
    if search.soak_s and answer.lower is None:
        headline = replace(headline, text=f"{headline.text}; there is no load to soak it at")
    yield headline
    if (sure := answer.confidence) is not None:
        yield Statement(
            rule="capacity-confidence",
            text=f"confidence {sure.level}: {sure.why}",
            evidence={"level": sure.level, "known_ratio": sure.known},
        )
    if answer.lower is not None and answer.fit is not None:
        yield from _fitted(answer, answer.fit)
    if answer.between is not None and answer.between.n > 1:
        yield _between_rounds(answer, answer.between)
    yield from doubts(answer, every)
    missing = search.budget_s is not None and len(answer.rounds) < search.rounds
    shown = any(t.good(answer.goal) is not None for t in every)
    if shown and (missing or answer.cut_rounds):  # else it was not the budget that ended it
        cut = f"; the budget cut {answer.cut_rounds} short, before its bounds were close"
        complete = rounds_words(len(answer.rounds), answer.cut_rounds, search.rounds)
        yield Statement(
            rule="capacity-rounds-missing",
            text=complete + (cut if answer.cut_rounds else ""),
            evidence={
                "rounds": len(answer.rounds),
                "asked": search.rounds,
                "cut": answer.cut_rounds,
            },
        )
    width, bounds = answer.reached_width, ""
    if width is not None:
        asked = percent(search.relative_width)
        bounds = f"; bounds {percent(width)} apart ({asked} asked for)"
    yield Statement(
        rule="capacity-cost",
        text=f"{answer.trials} {noun(answer.trials, 'trial')}, "
        f"{answer.trial_seconds:,.0f} s of load{bounds}",
        evidence={
            "trials": answer.trials,
            "trial_seconds": answer.trial_seconds,
            "reached_width": width,
        },
        runs=tuple(t.record.run for t in every),
    )


def doubts(answer: Answer, every: Sequence[Tried]) -> Iterator[Statement]:
    """Statements that speak against the answer."""
    found = (_rounds_differ(answer), _contradicted(answer, every))
    yield from filter(None, found)


def writing(answer: Answer) -> Writing:
    """How its loads are written: its bounds alike wherever they stand."""
    bounds = [bound for bound in (answer.lower, answer.upper) if bound is not None]
    pps = bounds[0].pps if bounds else None
    per = None if pps is None else pps / bounds[0].value
    known = UNSURE if answer.confidence is None else answer.confidence.known
    if len(bounds) == 2:
        known = known_apart(bounds[0].value, bounds[1].value, known)
    return Writing(
        by=answer.by,
        known=known,
        pps_per=per,
        sent_pps=answer.sent_pps,
        rounds_up={b.value: b is answer.upper for b in bounds},
    )


def _headline(answer: Answer, every: Sequence[Tried], own: Sequence[TrialRecord]) -> Statement:
    goal, loads = goal_words(answer.goal, answer.goals_of), writing(answer)
    lower, upper = answer.lower, answer.upper
    evidence = {
        "goal": answer.goal,
        "lower": None if lower is None else lower.value,
        "upper": None if upper is None else upper.value,
        "limited_by": answer.limited_by,
    }
    runs = (*(lower.runs if lower else ()), *(upper.runs if upper else ()))

    def said(rule: str, text: str) -> Statement:
        return Statement(rule=rule, text=text, evidence=evidence, runs=runs)

    if lower is not None and upper is not None:
        carried, too_much = loads.both(lower, upper)
        text = f"carries {carried} {goal}"
        if answer.limited_by == "sut_failed":
            return said("capacity-failed", f"{text}; at {too_much} it failed")
        bad = [t for t in every if t.value == upper.value and t.good(answer.goal) is False]
        if bad and all(map(_behind_alone, bad)):
            verb = "missed" if answer.goals_of == "detections" else "lost"
            text = f"{text}; at {too_much} it fell behind, and {verb} nothing yet"
        else:
            text = f"{text}, not {too_much}"
        why = _NOT_THE_SUT.get(answer.limited_by, "").format(place=answer.place)
        return said("capacity-found", f"{text}: {why}" if why else text)
    if lower is not None:
        at_least = f"carries at least {loads.carried(lower)} {goal}"
        why = _WHY_AT_LEAST[answer.limited_by] + _while_others(answer, every)
        why += _last_void(answer, own) + _undecided(answer, every)
        return said("capacity-at-least", f"{at_least}: {why}")
    if answer.limited_by == "loss_at_every_load":
        where = f", at place {answer.place}" if answer.place else ""
        what = "missed detections" if answer.goals_of == "detections" else "loss"
        words = f"carries no load {goal}: {what} at every load{where}"
        if _on_its_way(answer):
            words = f"what it carries {goal} is not known: {what} at every load{where}, before it"
        return said("capacity-none", words)
    why = _WHY_NOT.get(answer.limited_by, "") + _while_others(answer, every)
    why += _last_void(answer, own)
    if mute := no_ratio(own):
        why = f"{why} ({mute})"
    if answer.limited_by == "changes":
        return said("capacity-not-known", f"what it carries {goal} is not known: {why}")
    if upper is not None and (not why or not any(t.value < upper.value for t in every)):
        words = f"carries less than {loads.too_much(upper)} {goal}, the least that was tried"
        if _on_its_way(answer):
            before = _NOT_THE_SUT["before_sut"].format(place=answer.place)
            words = f"what it carries {goal} is not known: {loads.too_much(upper)}, the least that "
            words += f"was tried, was not carried, and {before}"
        return said("capacity-below-min", f"{words}: {why}" if why else words)
    why += _looked_carried(answer, every)
    return said("capacity-not-known", f"what it carries {goal} is not known: {why}")


def _on_its_way(answer: Answer) -> bool:
    """Packets were lost before they came to the SUT."""
    return answer.place in {place.name for place in ON_EVERY_HOST}


def _while_others(answer: Answer, every: Sequence[Tried]) -> str:
    """A generator that is late on a busy host may be good for more."""
    if answer.limited_by != "generator":
        return ""
    void = [t for t in every if t.outcome == "void"]
    busy = sum(t.record.host_was_busy for t in void)
    if 2 * busy <= len(void):
        return ""
    return f" while others had the CPUs (in {busy} of {len(void)} void trials)"


def _last_void(answer: Answer, own: Sequence[TrialRecord]) -> str:
    """E.g. rules that do not load: whoever reads the answer alone must learn it."""
    if answer.limited_by not in ("nothing_measured", "lab"):
        return ""
    return "".join(f" ({record.verdict})" for record in own[-1:] if not record.valid)


def _behind_alone(trial: Tried) -> bool:
    """Its rings held what was not done in time: no more than that speaks against the load."""
    return trial.outcome == "measured" and trial.loss_ratio == 0


def _undecided(answer: Answer, every: Sequence[Tried]) -> str:
    """The lowest load above that a trial showed to be too much, if the search ended before others
    agreed: who sees that trial in the picture would miss it here."""
    if answer.lower is None or answer.limited_by not in ("budget", "unfinished"):
        return ""
    above = [t for t in every if t.value > answer.lower.value and t.good(answer.goal) is False]
    if not above:
        return ""
    least = writing(answer).at(min(t.value for t in above), up=True)
    return f"; {least} was too much in a trial that does not decide"


def _looked_carried(answer: Answer, every: Sequence[Tried]) -> str:
    """The highest load within the goal below what was too much, if only trials that do not decide
    were."""
    most = math.inf if answer.upper is None else answer.upper.value
    carried = [t for t in every if t.good(answer.goal) and t.value < most]
    if not carried:
        return ""
    best = max(carried, key=lambda t: t.value)
    pps = best.record.offered.per_s
    loads = Writing(by=answer.by, known=UNSURE, pps_per=None if pps is None else pps / best.value)
    return f"; {loads.at(best.value)} was carried in a trial that does not decide"


def _fitted(answer: Answer, fit: Knee) -> Iterator[Statement]:
    if fit.low is None or fit.high is None:
        return
    loads = writing(answer)
    by = "the level of the SUT's ring" if answer.by_level else "what was served of too much"
    span = loads.span(fit.low, fit.high)
    yield Statement(
        rule="capacity-fit",
        text=f"the limit is {loads.at(fit.estimate)}, by {by} (95 % interval {span}, {fit.n} "
        "trials)",
        evidence={"estimate": fit.estimate, "low": fit.low, "high": fit.high, "trials": fit.n},
    )


def _rounds_differ(answer: Answer) -> Statement | None:
    """Bounds of rounds that have nothing in common."""
    found = apart(answer.rounds)
    if found is None:
        return None
    better, worse = found
    assert better.lower is not None and worse.upper is not None
    low, high = better.lower.value, worse.upper.value
    at_least, at_most = writing(answer).distinct(low, high)
    return Statement(
        rule="capacity-rounds-differ",
        text=f"rounds differ by more than chance within one explains: round {better.number} found "
        f"at least {at_least}, round {worse.number} at most {at_most}; starts of the SUT "
        "differ, or it changes with time: the answer is that of the lowest",
        evidence={
            "low": low,
            "of_round": better.number,
            "high": high,
            "of_other_round": worse.number,
        },
    )


def _contradicted(answer: Answer, every: Sequence[Tried]) -> Statement | None:
    """Trials of any round that say the contrary of the loads of the answer."""
    shown = [(t, good) for t in every if (good := t.good(answer.goal)) is not None]
    loads = writing(answer)
    words, shares = list[str](), [0.0]
    runs: list[Tried] = []
    if (lower := answer.lower) is not None:
        same = [(t, good) for t, good in shown if t.value <= lower.value]
        if bad := [t for t, good in same if not good]:
            least = loads.at(min(t.value for t in bad), up=False)
            words.append(
                f"{len(bad)} of {len(same)} trials at {loads.at(lower.value)} "
                f"or less missed the goal (the lowest of them at {least})"
            )
            runs, shares = [*runs, *bad], [*shares, len(bad) / len(same)]
    if (upper := answer.upper) is not None:
        same = [(t, good) for t, good in shown if t.value >= upper.value]
        if carried := [t for t, good in same if good]:
            most = loads.at(max(t.value for t in carried), up=True)
            words.append(
                f"{len(carried)} of {len(same)} trials at {loads.at(upper.value)} "
                f"or more met it (the highest of them at {most})"
            )
            runs, shares = [*runs, *carried], [*shares, len(carried) / len(same)]
    if not words:
        return None
    return Statement(
        rule="capacity-contradicted",
        text=f"not all trials agree: {'; '.join(words)}",
        evidence={"trials": len(runs), "most_share": max(shares)},
        runs=tuple(t.record.run for t in runs),
    )


_WHY_AT_LEAST = {
    "generator": "the generator was the limit",
    "max": "search.max allowed no more",
    "budget": "the budget ended there",
    "hypervisor": "the hypervisor took too much of this host's CPU to measure more",
    "other_programs": "other programs had too much of this host's CPU to measure more",
    "void_above": "every trial above it was void",
    "unfinished": "the search has not ended, and has not found a load that is too much",
    "lab": "it ended there, as the lab failed",
}
_NOT_THE_SUT = {
    "hypervisor": _WHY_AT_LEAST["hypervisor"],
    "before_sut": "the packets were lost before it, in the {place}",
    "other_programs": "other programs had its CPU",
    "sender_cpu": "the sender had its CPU as it lost",
    "interrupts": "interrupts had its CPU as it lost",
    "quota": "its CPU quota held it as it lost",
    "not_known": "most trials say nothing of their load, so what limits it is not known",
}
"""Limit → why a load was not carried, though that need not be the SUT's fault."""
_WHY_NOT = {
    "generator": "the generator was the limit",
    "hypervisor": "the hypervisor took too much of this host's CPU to measure anything",
    "other_programs": "other programs had too much of this host's CPU to measure anything",
    "budget": "the budget ended first",
    "unfinished": "the search has not ended",
    "lab": "the search ended, as the lab failed",
    "nothing_measured": "no trial was measured that shows it",
    "not_judged": "no trial can be judged by its detections",
    "changes": "the SUT serves less and less while it is searched",
}


def _between_rounds(answer: Answer, between: Between) -> Statement:
    loads = writing(answer)
    span = loads.span(between.lowest, between.highest, up=False)
    each = "" if " to " in span else "each of "
    words = f"{each}{between.n} rounds carried {span}"
    if between.interval is None:
        words += f"; no interval between rounds ({between.why_no_interval})"
    else:
        span = loads.span(between.interval.low, between.interval.high)
        words += f"; 95 % interval of the median round: {span}"
    return Statement(
        rule="capacity-between-rounds",
        text=words,
        evidence={"rounds": between.n, "lowest": between.lowest, "highest": between.highest},
        runs=(),
    )
