"""What a search found: how much a cell carries, how sure that is, and what is in the way.

Two kinds of bounds, and neither stands for the other: *within the search* of one round lie the load
that was carried and the next one that was not; *between rounds* is how much starts of the SUT
differ, with an interval from six rounds on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from scipy.stats import kendalltau

from nodrop.config.search import Search
from nodrop.findings.searched import (
    SENDER_REASONS,
    Bracket,
    Load,
    Picture,
    Tried,
    loads,
    of_round,
)
from nodrop.ledger.verdict import percent
from nodrop.results.trial import TrialRecord
from nodrop.stats.interval import CONFIDENCE, Interval, median_interval, runs_needed
from nodrop.stats.knee import Knee

SAME_SHARE = 2.0
"""Loss ratios of all loads are one share of the load if none is so many times another."""
APART = 2.0
"""... and if the loads are so far apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A load that was tried, as it was really offered; None = not measured."""

    value: float
    pps: float | None
    bps: float | None
    runs: tuple[str, ...]
    """Its trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one start of the SUT showed."""

    number: int
    lower: Bound | None
    """The highest load that was carried."""
    upper: Bound | None
    """The lowest above it that was not."""
    fit: Knee | None
    """Of all trials near the limit together: the load above which too many are not good, with its
    95 % bounds. None if the method has none, or no trial near it was not good."""

    @property
    def value(self) -> float | None:
        """What it comes to: the fitted load, or what was carried if there is no fit. None: no load
        was."""
        if self.lower is None:
            return None
        return self.lower.value if self.fit is None else self.fit.estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Of the loads that were carried, over the rounds."""

    n: int
    lowest: float
    highest: float
    interval: Interval | None
    """Of the median round, 95 %."""
    why_no_interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence, the rule that made it, and what it rests on (docs/reference/findings.md)."""

    rule: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one cell and one goal."""

    cell: Mapping[str, Any]
    by: str
    goal: float
    """The loss ratio that is tolerated: 0 is NDR."""
    lower: Bound | None
    """Within the search of the median round: the highest load that was carried. None = none was,
    or nothing was shown."""
    upper: Bound | None
    """Of the same round: the lowest load above it that was not. None = none was tried, or could
    be."""
    fit: Knee | None
    """Of the same round."""
    between: Between | None
    """None if no round found a load that is carried."""
    rounds: tuple[Round, ...]
    limited_by: str
    """`sut`, `sut_failed`, `generator`, `max`, `min`, `loss_at_every_load`, `budget`,
    `void_above` (trials above were void, and not for the sender), `nothing_measured`,
    `unfinished`."""
    place: str | None
    knob: str
    broke: str
    """The verdict of a trial at the load that was not carried."""
    reached_width: float | None
    """(upper − lower) / upper."""
    trials: int
    trial_seconds: float
    statements: tuple[Statement, ...]
    """The first is the answer; what the search took is the last."""


def answers(records: Sequence[TrialRecord], search: Search) -> tuple[Answer, ...]:
    """One per cell and goal, in the order of the cells' first trials. Pure."""
    searched = [record for record in records if record.searched is not None]
    cells: list[dict[str, Any]] = []
    for record in sorted(searched, key=lambda r: r.index):
        if dict(record.cell) not in cells:
            cells.append(dict(record.cell))
    return tuple(_answer(searched, cell, goal, search) for cell in cells for goal in search.goals)


def _answer(
    records: Sequence[TrialRecord], cell: Mapping[str, Any], goal: float, search: Search
) -> Answer:
    own = [record for record in records if record.cell == dict(cell)]
    found = [
        (number, of_round(own, cell, number))
        for number in sorted({r.searched.round for r in own if r.searched})
    ]
    pictures = [(number, Picture(trials, goal, search)) for number, trials in found]
    brackets = [picture.bracket() for _, picture in pictures]
    rounds = tuple(
        Round(number=number, lower=_bound(b.lower), upper=_bound(b.upper), fit=picture.knee)
        for (number, picture), b in zip(pictures, brackets, strict=True)
    )
    median_round = _median_round(rounds)
    chosen = brackets[rounds.index(median_round)]
    every = tuple(t for _, trials in found for t in trials)
    limit = _limited_by(every, chosen, goal, search)
    broke, lossy = _broke(every, chosen, goal), _lossy(every, chosen)
    lower, upper = _bound(chosen.lower), _bound(chosen.upper)
    answer = Answer(
        cell=cell,
        by=search.by,
        goal=goal,
        lower=lower,
        upper=upper,
        fit=median_round.fit,
        between=_between(rounds),
        rounds=rounds,
        limited_by=limit,
        place=None if lossy is None else lossy.record.packets.loss_place,
        knob="" if lossy is None else lossy.record.packets.knob,
        broke="" if broke is None else broke.record.verdict,
        reached_width=None
        if lower is None or upper is None
        else (upper.value - lower.value) / upper.value,
        trials=len(own),
        trial_seconds=sum(t.record.offered.duration_s or t.seconds for t in every),
        statements=(),
    )
    return replace(answer, statements=tuple(_statements(answer, every, search)))


def _median_round(rounds: Sequence[Round]) -> Round:
    """Of two in the middle the lower, so that it was really measured; without a load that is
    carried, the first that found one that is not."""
    whole = [(value, r.number) for r in rounds if (value := r.value) is not None]
    if not whole:
        return next((r for r in rounds if r.upper is not None), rounds[0])
    _, number = sorted(whole)[(len(whole) - 1) // 2]
    return next(r for r in rounds if r.number == number)


def _limited_by(every: Sequence[Tried], chosen: Bracket, goal: float, search: Search) -> str:
    measured = [t for t in every if t.outcome != "void"]
    if not measured:
        return "generator" if _of_the_sender(every) else "nothing_measured"
    if chosen.upper is not None:
        if chosen.lower is None:
            return "loss_at_every_load" if _same_share(measured, goal) else "min"
        failed = any(t.outcome == "failed" for t in chosen.upper.trials)
        return "sut_failed" if failed else "sut"
    tops = loads(every)
    mute = [load for load in tops if load.mute(goal)]
    if mute and _of_the_sender([t for load in mute for t in load.trials]):
        return "generator"
    if mute and chosen.lower is not None:
        return "void_above"
    if chosen.lower is not None and search.max is not None and chosen.lower.value >= search.max:
        return "max"
    if search.budget_s is not None:
        return "budget"
    return "nothing_measured" if chosen.lower is None else "unfinished"


def _of_the_sender(trials: Sequence[Tried]) -> bool:
    reasons = [set(t.record.invalid_reasons) for t in trials if t.outcome == "void"]
    return bool(reasons) and all(found & SENDER_REASONS for found in reasons)


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


def _broke(every: Sequence[Tried], chosen: Bracket, goal: float) -> Tried | None:
    """The trial that says best why the load was not carried: of the middle of the losses."""
    if chosen.upper is None:
        return None
    same = [t for t in every if t.value == chosen.upper.value and t.good(goal) is False]
    ordered = sorted(same, key=lambda t: (t.outcome != "failed", t.loss_ratio or 0.0))
    if ordered and ordered[0].outcome == "failed":
        return ordered[0]
    return ordered[len(ordered) // 2] if ordered else None


def _lossy(every: Sequence[Tried], chosen: Bracket) -> Tried | None:
    """The trial that says where packets are lost: the ring may have held all of the load that was
    not carried, and then the next higher one that lost says it."""
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


def _between(rounds: Sequence[Round]) -> Between | None:
    """Rounds that found no load that is carried are no part of the range, so that there is no
    interval either: it would be that of the better ones."""
    values = [r.lower.value for r in rounds if r.lower is not None]
    if not values:
        return None
    none = len(rounds) - len(values)
    interval = None if none else median_interval(values)
    why = f"in {none} of {len(rounds)} no load was carried" if none else _TOO_FEW
    return Between(
        n=len(values),
        lowest=min(values),
        highest=max(values),
        interval=interval,
        why_no_interval="" if interval else why,
    )


_TOO_FEW = f"needs {runs_needed()} rounds"


def goal_words(goal: float) -> str:
    return "without loss" if goal == 0 else f"with at most {percent(goal)} lost"


def value_words(by: str, value: float) -> str:
    if by == "multiplier":
        return f"{value:g}X"
    return f"{value:g} times the trace's speed" if by == "speed" else f"{value:,.0f} packets/s"


def _statements(answer: Answer, every: Sequence[Tried], search: Search) -> Iterator[Statement]:
    yield _headline(answer)
    if answer.lower is not None and answer.fit is not None:
        yield from _fitted(answer, answer.fit, search)
    if answer.between is not None and answer.between.n > 1:
        yield _between_rounds(answer, answer.between)
    if differ := _rounds_differ(answer):
        yield differ
    if otherwise := _contradicted(answer, every):
        yield otherwise
    if drift := _drift(answer):
        yield drift
    if len(answer.rounds) < search.rounds and search.budget_s is not None:
        yield Statement(
            rule="capacity-rounds-missing",
            text=f"{len(answer.rounds)} of {search.rounds} rounds were begun within the budget",
            evidence={"rounds": len(answer.rounds), "asked": search.rounds},
        )
    yield Statement(
        rule="capacity-cost",
        text=f"{answer.trials} trials, {answer.trial_seconds:,.0f} s of load",
        evidence={"trials": answer.trials, "trial_seconds": answer.trial_seconds},
        runs=tuple(t.record.run for t in every),
    )


def _headline(answer: Answer) -> Statement:
    by, goal = answer.by, goal_words(answer.goal)
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
        text = f"carries {value_words(by, lower.value)} {goal}"
        if answer.limited_by == "sut_failed":
            return said("capacity-failed", f"{text}; at {value_words(by, upper.value)} it failed")
        return said("capacity-found", f"{text}, not {value_words(by, upper.value)}")
    if lower is not None:
        at_least = f"carries at least {value_words(by, lower.value)} {goal}"
        return said("capacity-at-least", f"{at_least}: {_WHY_AT_LEAST[answer.limited_by]}")
    if answer.limited_by == "loss_at_every_load":
        where = f", at place {answer.place}" if answer.place else ""
        return said("capacity-none", f"none {goal}: loss at every load{where}")
    if answer.limited_by == "min" and upper is not None:
        words = f"carries less than {value_words(by, upper.value)} {goal}, the least that was tried"
        return said("capacity-below-min", words)
    return said(
        "capacity-not-known", f"what it carries {goal} is not known: {_WHY_NOT[answer.limited_by]}"
    )


def _fitted(answer: Answer, fit: Knee, search: Search) -> Iterator[Statement]:
    if fit.low is None or fit.high is None:
        return
    at = value_words(answer.by, fit.estimate)
    more = f"more than {percent(search.exceed_ratio)} of the trials are not carried"
    low, high = value_words(answer.by, fit.low), value_words(answer.by, fit.high)
    yield Statement(
        rule="capacity-fit",
        text=f"above {at} {more} (95 %: {low} to {high}, {fit.n} trials of one round)",
        evidence={"estimate": fit.estimate, "low": fit.low, "high": fit.high, "trials": fit.n},
    )


def _rounds_differ(answer: Answer) -> Statement | None:
    """Bounds of rounds that have nothing in common."""
    known = [(r, r.fit) for r in answer.rounds if r.fit is not None]
    lows = [(fit.low, r.number) for r, fit in known if fit.low is not None]
    highs = [(fit.high, r.number) for r, fit in known if fit.high is not None]
    if not lows or not highs or max(lows)[0] <= min(highs)[0]:
        return None
    (low, better), (high, worse) = max(lows), min(highs)
    return Statement(
        rule="capacity-rounds-differ",
        text=f"rounds differ by more than each is unsure of: round {better} found at least "
        f"{value_words(answer.by, low)}, round {worse} at most {value_words(answer.by, high)}; "
        "its starts differ, or it changes with time",
        evidence={"low": low, "of_round": better, "high": high, "of_other_round": worse},
    )


def _contradicted(answer: Answer, every: Sequence[Tried]) -> Statement | None:
    """Trials of any round that say the contrary of the loads of the answer."""
    shown = [(t, good) for t in every if (good := t.good(answer.goal)) is not None]
    words, runs = [], []
    if (lower := answer.lower) is not None:
        same = [(t, good) for t, good in shown if t.value <= lower.value]
        if bad := [t for t, good in same if not good]:
            least = value_words(answer.by, min(t.value for t in bad))
            words.append(
                f"{len(bad)} of {len(same)} trials at {value_words(answer.by, lower.value)} "
                f"or less were not carried (the lowest at {least})"
            )
            runs += bad
    if (upper := answer.upper) is not None:
        same = [(t, good) for t, good in shown if t.value >= upper.value]
        if carried := [t for t, good in same if good]:
            most = value_words(answer.by, max(t.value for t in carried))
            words.append(
                f"{len(carried)} of {len(same)} trials at {value_words(answer.by, upper.value)} "
                f"or more were carried (the highest at {most})"
            )
            runs += carried
    if not words:
        return None
    return Statement(
        rule="capacity-contradicted",
        text=f"not all trials agree: {'; '.join(words)}",
        evidence={"trials": len(runs)},
        runs=tuple(t.record.run for t in runs),
    )


def _drift(answer: Answer) -> Statement | None:
    """Rounds that come to more and more, or to less and less: Kendall's exact test."""
    values = [value for r in answer.rounds if (value := r.value) is not None]
    if len(values) < 2 or len(set(values)) < 2:
        return None
    found = kendalltau(range(len(values)), values)
    if not found.pvalue <= 1 - CONFIDENCE:
        return None
    way = "more and more" if found.statistic > 0 else "less and less"
    words = ", ".join(value_words(answer.by, value) for value in values)
    return Statement(
        rule="capacity-drift",
        text=f"rounds came to {way} ({words}): the SUT or the host changes with time",
        evidence={"values": values, "p": float(found.pvalue)},
    )


_WHY_AT_LEAST = {
    "generator": "the generator was the limit",
    "max": "more was not to be tried",
    "budget": "the budget ended there",
    "void_above": "every trial above it was void",
    "unfinished": "the search has not ended; no load above it was seen not to be carried",
}
_WHY_NOT = {
    "generator": "the generator was the limit",
    "budget": "the budget ended first",
    "nothing_measured": "no trial was measured that shows it",
}


def _between_rounds(answer: Answer, between: Between) -> Statement:
    words = (
        f"{between.n} rounds carried {value_words(answer.by, between.lowest)} to "
        f"{value_words(answer.by, between.highest)}"
    )
    if between.interval is None:
        words += f"; no interval between rounds ({between.why_no_interval})"
    else:
        low, high = between.interval.low, between.interval.high
        words += (
            f"; 95 % interval of the median round: {value_words(answer.by, low)} to "
            f"{value_words(answer.by, high)}"
        )
    return Statement(
        rule="capacity-between-rounds",
        text=words,
        evidence={"rounds": between.n, "lowest": between.lowest, "highest": between.highest},
        runs=(),
    )
