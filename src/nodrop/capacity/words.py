"""Result of a search, in sentences: for the report's answer and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from nodrop.answer.finding import WORDS, Finding, render, worded
from nodrop.capacity.findings import writing
from nodrop.capacity.limited_by import TAKEN_BY
from nodrop.capacity.load_words import goal_words
from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell
from nodrop.capacity.tried import Tried, tried
from nodrop.config.units import count_of
from nodrop.report import escape, numbers
from nodrop.report.sentences import Sentence
from nodrop.report.tables import LOWER_END, UPPER_END, Field, Table, number, own, table_of, words
from nodrop.report.trials import StoredTrial
from nodrop.results.trial import TrialRecord, count_once
from nodrop.stats.interval import outliers
from nodrop.stats.loss_curve import LossCurve, NoCurve, Offer, loss_curve

RULES = {
    "capacity-confidence": "capacity-confidence",
    "capacity-between-rounds": "capacity-between-rounds",
    "capacity-fit": "capacity-fitted",
    "capacity-rounds-differ": "capacity-rounds-differ",
    "capacity-contradicted": "capacity-contradicted",
    "capacity-changed": "capacity-changed",
    "capacity-noise": "capacity-noise",
    "capacity-set-aside": "capacity-set-aside",
    "capacity-rounds-missing": "capacity-rounds-missing",
    "capacity-cost": "search-cost",
}
"""Statements that are no headline, each with the rule of its sentence."""
DOUBTS = (
    "capacity-rounds-differ",
    "capacity-contradicted",
    "capacity-changed",
    "capacity-set-aside",
)
"""Statements that speak against the answer."""


BOUNDS = {
    (True, True): "apart",
    (True, False): "no_upper",
    (False, True): "no_lower",
    (False, False): "neither",
}
"""Which bounds there are, the lower and the upper → their words."""


def answer_sentences(searched: SearchedCell) -> Iterator[Sentence]:
    """Sentences on each goal: what is carried, what broke at the next load, and how much rounds
    differ. What broke is said once if goals end at the same load."""
    said: set[str] = set()
    for answer in searched.answers:
        for statement in answer.findings:
            rule = RULES.get(statement.code, "capacity")
            if rule == "capacity":
                yield _sentence(searched, rule, headline(searched.subject, answer), statement)
                words = broke(answer)
                if words and words not in said:
                    said.add(words)
                    knob = escape.plain(answer.knob)
                    text = f"{searched.subject}: {words[:1].lower()}{words[1:]}"
                    yield _sentence(searched, "capacity-broke", text, statement, knob=knob)
            elif rule != "search-cost":
                text = f"{searched.subject}, {goal_name(answer)}: {statement.text}."
                yield _sentence(searched, rule, text, statement)
    if (window := searched.window) is not None:
        whose = ", at 1X " if searched.answers[0].by == "multiplier" else ": "
        yield Sentence(
            rule="capacity-window",
            text=f"{searched.subject}: {window.sentence.replace(': ', whose, 1)}.",
            subject=searched.subject,
            evidence=window.model_dump(),
            trials=searched.trials,
        )
    # Soaks have no part in the answers.
    for trial in searched.soaks:
        yield Sentence(
            rule="capacity-soak",
            text=f"{searched.subject}: {soak_words(trial.record)}.",
            subject=searched.subject,
            evidence=soak_evidence(trial.record),
            trials=(trial,),
        )


def soak_words(record: TrialRecord) -> str:
    """`held for 5 min at 13,485 packets/s, 43.2 Mbit/s`, or from when on it was lost."""
    books, offered, asked = record.packets, record.offered, record.searched
    assert asked is not None and asked.soak is not None
    bits = "" if offered.bps is None else f", {numbers.megabits(offered.bps)} Mbit/s"
    at = "" if offered.pps is None else f" at {numbers.count(offered.pps)} packets/s{bits}"
    since, place, ratio = asked.soak.lossy_from_s, books.loss_place, books.loss_ratio
    values = {
        "asked": _long(asked.duration_s),
        "outcome": record.outcome,
        "verdict": escape.plain(record.why),
        "lasted": f"{_long(offered.duration_s or asked.duration_s)}{at}",
        "lost": "" if ratio is None else f" {numbers.percent(ratio)} %",
        "when": "" if since is None else f" from {_moment(since)} on",
        "where": f", in {escape.plain(place)}" if place else "",
    }
    ends = (
        ("other", record.outcome != "measured"),
        ("lost", bool(books.lost_packets)),
        ("not_known", ratio is None),
        ("behind", books.sustained is False),
        ("held", True),
    )
    code = next(name for name, holds in ends if holds)
    return render(Finding(code=f"soak.{code}", values=values))


def soak_evidence(record: TrialRecord) -> dict[str, float | str | None]:
    asked = record.searched
    assert asked is not None and asked.soak is not None
    return {
        "value": asked.value,
        "duration_s": record.offered.duration_s,
        "outcome": record.outcome,
        "loss_ratio": record.packets.loss_ratio,
        "lossy_from_s": asked.soak.lossy_from_s,
        "place": record.packets.loss_place,
    }


def _long(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds >= 60 else f"{seconds:.3g} s"


def _moment(seconds: float) -> str:
    """Minutes and seconds are counted from 1."""
    unit, n = ("minute", seconds // 60) if seconds >= 60 else ("second", seconds)
    return f"{unit} {int(n) + 1}"


def cost_sentence(searched: SearchedCell) -> Sentence:
    """A sentence on what the search took, which is the same for all its goals."""
    cost = searched.answers[0].findings[-1]
    return _sentence(searched, "search-cost", f"a search of {searched.subject}: {cost.text}", cost)


def headline(subject: str, answer: Answer) -> str:
    """`Suricata carries 103,400 packets/s, 310 Mbit/s (61.2X) without loss, not 106,400 packets/s
    (63X).` The rates are those really sent."""
    text = render(replace(answer.findings[0], subject=subject))
    return f"{escape.plain(text, longest=600)}."


def broke(answer: Answer) -> str:
    """A sentence on what a trial at the load that was not carried says; empty if there is none."""
    if not answer.broke or answer.upper is None:
        return ""
    at = writing(answer).at(answer.upper.value)
    began = "At" if answer.broke.startswith("absorbed") else "What broke at"
    return f"{began} {at}: {escape.plain(answer.broke, longest=600)}."


def _sentence(
    searched: SearchedCell, rule: str, text: str, statement: Finding, *, knob: str = ""
) -> Sentence:
    runs = set(statement.trials)
    return Sentence(
        rule=rule,
        text=text,
        subject=searched.subject,
        evidence={"statement": statement.code, **statement.values},
        trials=tuple(t for t in searched.trials if t.name in runs),
        knob=knob,
    )


def forecast_words(searched: SearchedCell) -> str:
    """A sentence on what the budget was likely to buy and what it bought; empty if that was not
    foreseen."""
    foreseen = searched.forecast
    if foreseen is None:
        return ""
    rounds, reached = searched.round_trials, [*map(bounds_words, searched.answers)]
    each = zip(map(goal_name, searched.answers), reached, strict=True)
    bounds = ", ".join(f"{goal}: {words}" for goal, words in each)
    values = {
        "budget_s": foreseen.budget_s,
        "subject": searched.subject,
        "likely": foreseen.trials,
        "width": foreseen.relative_width,
        "trials": len(searched.ramps) + len(searched.trials),
        "ramps": f"{count_of(n, 'ramp')}, " if (n := len(searched.ramps)) else "",
        "rounds": len(rounds),
        "each": " + ".join(map(str, rounds)),
        "bounds": bounds if len(set(reached)) > 1 else reached[0],
    }
    likely = worded(f"budget.{'few' if foreseen.relative_width is None else 'likely'}", **values)
    bought = worded(f"budget.{'rounds' if len(rounds) > 1 else 'bought'}", **values)
    return f"{likely} {bought}{_starts(searched, foreseen.budget_s)}"


def _starts(searched: SearchedCell, budget_s: float) -> str:
    """Words on the starts of the SUT if they took much of the budget: rules are loaded then."""
    first: dict[object, float] = {}
    records = [trial.record for trial in (*searched.ramps, *searched.trials)]
    for one in sorted(records, key=lambda record: record.index):
        first.setdefault(one.world or one.index, one.activation_s or 0.0)
    took_s, n = sum(first.values()), len(first)
    if took_s < LEAST_STARTS * budget_s:
        return ""
    said = worded("budget.starts", starts=n, subject=searched.subject, took_s=took_s)
    return f" {said}"


def bounds_words(answer: Answer) -> str:
    """How far its bounds are apart; the bound that is missing, if one is."""
    code = BOUNDS[answer.lower is not None, answer.upper is not None]
    return worded(f"bounds.{code}", width=answer.reached_width)


def goal_name(answer: Answer) -> str:
    return goal_words(answer.goal, answer.goals_of, answer.by, "sentence")


def causes_words(by: str, record: TrialRecord) -> str:
    """Causes of its loss, but for the one that the limit itself names."""
    rules = [c.rule for c in record.packets.loss_causes if TAKEN_BY.get(c.rule, c.rule) != by]
    names = [_cause(rule) for rule in rules]
    if not names or by not in ("sut", "not_known", *TAKEN_BY.values()):
        return ""
    whose = "another" if by in TAKEN_BY.values() else by
    return render(Finding(code=f"causes.{whose}", values={"names": ", ".join(names)}))


def _cause(rule: str) -> str:
    """A rule that this version does not know is named as it is."""
    if rule in WORDS["cause"]:
        return render(Finding(code=f"cause.{rule}"), "short")
    return escape.plain(rule).replace("_", " ")


def between_words(answer: Answer) -> str:
    """Loads of the rounds: between starts of the SUT, never within one search."""
    for finding in answer.findings:
        if finding.code == "capacity-between-rounds":
            return render(finding, "short")
    cut = any(one.lower is not None for one in answer.rounds)
    return render(Finding(code=f"rounds.{'one' if answer.between else 'cut' if cut else 'none'}"))


def limit_words(answer: Answer) -> str:
    return render(Finding(code=f"limited_by.{answer.limited_by}"), "short")


LEAST_STARTS = 0.1
"""Part of the budget from which starts of the SUT are named."""
LEAST_APART = 0.01
"""Share of the rate that the other trials served. Trials of a SUT without any noise differ by less,
and that says nothing."""


def fitted(searched: SearchedCell) -> LossCurve | NoCurve:
    if searched.by_detections:
        return NoCurve(why="it would be one of lost packets, and the search is by detections")
    offers = [*_offers(searched)]
    if not any(offer.loss_ratio for offer in offers):
        return NoCurve(why="no trial that decides lost packets")
    return loss_curve(offers)


def disagreeing(searched: SearchedCell, answer: Answer) -> Iterator[tuple[StoredTrial, bool]]:
    """Trials that met the goal (True) at the load that is too much or above, or missed it below."""
    low, high = answer.lower, answer.upper
    for trial, asked in ((t, asked) for t in searched.trials if (asked := t.record.searched)):
        good = tried(trial.record).good(answer.goal)
        if good and high is not None and asked.value >= high.value:
            yield trial, True
        elif good is False and low is not None and asked.value <= low.value:
            yield trial, False


def from_another_host(command: str) -> str:
    """The command in a lab of two hosts, which is written as docs/how-to/two-hosts.md says."""
    return command if "--lab " in command else f"{command} --lab labs/two-hosts.toml"


def deciding(searched: SearchedCell) -> list[Tried]:
    """Measured trials of the final length."""
    found = [tried(trial.record) for trial in searched.trials]
    longest = max((one.seconds for one in found), default=0.0)
    return [
        one
        for one in found
        if one.seconds == longest and one.outcome == "measured" and one.record.offered.pps
    ]


def _offers(searched: SearchedCell) -> Iterator[Offer]:
    """A trial of which it is not shown whether it kept the pace is none."""
    decided = [*deciding(searched)]
    starts = count_once([one.record for one in decided])
    for one, start in zip(decided, starts, strict=True):
        good, served, offered = one.good(0.0), one.served_ratio, one.record.offered
        if good is None or served is None or not offered.pps or not offered.sent:
            continue
        yield Offer(
            pps=offered.pps,
            loss_ratio=0.0 if good else 1 - served,
            packets=offered.sent,
            start=start,
        )


def stand_apart(searched: SearchedCell) -> Mapping[str, str]:
    """Run → in words: trials that came to a limit of their own far from those of the others."""
    shown = [
        (one.record, limit)
        for one in deciding(searched)
        if not one.good(0.0) and (limit := _limit(one))
    ]
    found = outliers([math.log(limit) for _, limit in shown])
    return {
        shown[outlier.index][
            0
        ].run: f"stands apart: it served {numbers.count(shown[outlier.index][1])} "
        f"packets/s, the others about {numbers.count(math.exp(outlier.median))}"
        for outlier in found
        if abs(math.expm1(outlier.value - outlier.median)) > LEAST_APART
    }


def _limit(one: Tried) -> float | None:
    pps, served = one.record.offered.pps, one.served_ratio
    return None if pps is None or served is None else pps * served


def shown_fit(searched: SearchedCell) -> LossCurve | NoCurve:
    """The fitted curve. None of its median if the interval excludes no load that was tried: that
    would be an extrapolation."""
    found = fitted(searched)
    tried_pps = [pps for one in deciding(searched) if (pps := one.record.offered.pps)]
    if isinstance(found, NoCurve) or not (
        found.low_pps < min(tried_pps) and max(tried_pps) < found.high_pps
    ):
        return found
    interval = numbers.between(found.low_pps, found.high_pps, numbers.count)
    why = f"its 95 % interval, {interval} packets/s, excludes no load that was tried"
    return NoCurve(why=why)


def fitted_words(found: LossCurve | NoCurve) -> str:
    if isinstance(found, NoCurve):
        return worded("fitted.none", reason=found.why)
    return worded(
        f"fitted.{'one' if found.starts == 1 else 'several'}",
        pps=numbers.count(found.capacity_pps),
        interval=numbers.between(found.low_pps, found.high_pps, numbers.count),
        trials=found.n,
        starts=f"{found.starts} {found.counted}",
        lossy=found.lossy,
        scatter=numbers.percent(found.scatter),
    )


Fitted = tuple[str, LossCurve | NoCurve, LossCurve | NoCurve]
"""A cell's name, its curve, and the curve that is shown to people."""


def _curve(of: Fitted) -> LossCurve | None:
    return None if isinstance(of[1], NoCurve) else of[1]


def _known(of: Fitted) -> Callable[[float], str]:
    return numbers.count if of[1] == of[2] else lambda _: "not known"


FIELDS: tuple[Field[Fitted], ...] = (
    words("cell", "Cell", lambda x: x[0]),
    own("capacity_pps", "Median trial takes, packets/s",
        lambda x: found.capacity_pps if (found := _curve(x)) else None, _known),
    own("low_pps", "from", lambda x: found.low_pps if (found := _curve(x)) else None, _known,
        help=LOWER_END),
    own("high_pps", "to", lambda x: found.high_pps if (found := _curve(x)) else None, _known,
        help=UPPER_END),
    number("scatter_pct", "Scatter, %", lambda x: found.scatter if (found := _curve(x)) else None,
           numbers.percent, scale=100, help="from trial to trial"),
    number("trials", "Trials", lambda x: found.n if (found := _curve(x)) else None, str),
    number("too_much", "Too much", lambda x: found.lossy if (found := _curve(x)) else None, str,
           help="of these trials"),
    number("starts", "Starts", lambda x: found.starts if (found := _curve(x)) else None, str,
           help="of the SUT; hosts if several did"),
    words("why_none", "Why there is none",
          lambda x: x[2].why if isinstance(x[2], NoCurve) else ""),
)  # fmt: skip


def curves_table(cells: Sequence[SearchedCell]) -> Table:
    curves = ((cell.subject, fitted(cell), shown_fit(cell)) for cell in cells)
    return table_of("loss-curves", "Fitted loss curves", FIELDS, curves)
