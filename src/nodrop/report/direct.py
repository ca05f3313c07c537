"""The direct answer: which of several cells carries, loses or costs more, by how much, and if that
cannot be told, what would be needed. It is the first sentence of a run with several cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nodrop.answer.finding import WORDS
from nodrop.capacity.load_words import Writing, goal_words
from nodrop.capacity.search_answer import Answer
from nodrop.capacity.searched_cells import SearchedCell
from nodrop.capacity.two_searches import SAME_RATIO, RatioSpan, Weighed, weigh
from nodrop.capacity.words import limit_words
from nodrop.config.matrix import NAMED
from nodrop.config.units import count_of
from nodrop.ledger.imbalance import over_mean
from nodrop.report import escape
from nodrop.report.comparison import Compared, compared, more_runs_words, no_number
from nodrop.report.costs import (
    DIFFERENCES,
    FAILURES,
    FAILURES_FIGURE,
    FIGURES,
    LOSS,
    LOSS_FIGURE,
    figure,
)
from nodrop.report.hosts import other_hosts
from nodrop.report.sentences import Sentence, listed, phrase, sentence_of
from nodrop.report.setups import Contrast, SetupLevel, compared_at_once, contrasts, held_words
from nodrop.report.story import RunCell, Story, StorySource, by_key, once
from nodrop.report.trials import StoredTrial, work_of
from nodrop.report.trust import FOREIGN_CPU_RATIO
from nodrop.results.capacity import Direct, Level
from nodrop.results.trial import SIGNS
from nodrop.stats.comparison import Relation
from nodrop.stats.interval import Family
from nodrop.untrusted.json_text import value_in

MOST_DIRECT = 4
"""Answers in words; the tables have the others."""
CAPACITY = "capacity"
MOST_DISTURBED = 0.5
"""Part of a cell's trials in which other programs may have the SUT's CPUs; with more, nothing is
ranked."""
UNEVEN = figure("over_mean_pct", lambda trial: over_mean(work_of(trial.record)))
RANKED = (*FIGURES, UNEVEN)
CARRIES = ("carries", "carry", "more", "less")
BOOKS = "books"

Verdict = Literal["more", "less", "same", "cannot tell"]
Clause = tuple[Level, str]
"""One level's part of the answer, and the command that would show more (empty without one)."""


@once
def direct_answers(story: Story) -> tuple[tuple[Direct, Sentence], ...]:
    """One for each factor, with all else equal; at most `MOST_DIRECT`."""
    said = [_books(story, n) for n in range(len(story.sources)) if _metric(story, n) == BOOKS]
    for contrast in _compared_in_words(story)[:MOST_DIRECT]:
        if contrast.levels[0].searched is not None:
            said.append(_searched(story, contrast))
        elif heaviest := _heaviest(contrast):
            said.append(_fixed(story, contrast, *heaviest))
    return tuple(said)


def _compared_in_words(story: Story) -> Sequence[Contrast]:
    return [c for c in contrasts(story) if _metric(story, c.source) != BOOKS]


def direct_sentences(story: Story) -> Iterator[Sentence]:
    yield from (sentence for _, sentence in direct_answers(story))
    if more := _compared_in_words(story)[MOST_DIRECT:]:
        differ = list(dict.fromkeys(" and ".join(c.factor) for c in more))
        evidence = {"groups": len(more), "factors": differ}
        yield sentence_of("direct-left", evidence, named=listed([*map(escape.plain, differ)]))


def disturbed(story: Story) -> bool:
    """Most trials of what is to be compared were disturbed, so the run answers nothing."""
    found = direct_answers(story)
    return bool(found) and all(direct.disturbed for direct, _ in found)


VerdictRow = tuple[str, str, str, str, str]
"""Kind (`different`, `same`, `unknown`), sign, name, words, and figures so far if they do not
tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCard:
    """Cells that differ in one factor: the largest sure difference, then each against the base."""

    kicker: str
    headline: str
    tally: str
    rows: tuple[VerdictRow, ...]
    to_do: str


KINDS = {"more": "different", "less": "different", "same": "same", "cannot tell": "unknown"}


def verdict_cards(story: Story) -> tuple[VerdictCard, ...]:
    """One for each direct answer; a command that several share stands with the first."""
    cards = [_verdict_card(direct) for direct, _ in direct_answers(story) if direct.levels]
    first = {card.to_do: card for card in reversed(cards)}
    return tuple(c if c is first[c.to_do] else replace(c, to_do="") for c in cards)


def _ways(name: str) -> tuple[str, str, str, str]:
    return next((figure.ways for figure in RANKED if figure.name == name), CARRIES)


def _verdict_card(direct: Direct) -> VerdictCard:
    verb, _, more, less = _ways(direct.figure)
    ways = {"more": f"{verb} {more}", "less": f"{verb} {less}", "same": "the same",
            "cannot tell": "cannot tell yet"}  # fmt: skip
    base = escape.plain(direct.base, longest=80)
    rows = []
    for level in direct.levels:
        words, seen, kind = level.words, "", KINDS[level.verdict]
        if kind == "unknown":
            words = level.needed
            so_far = "" if direct.figure == CAPACITY else level.words
            seen = f"{so_far[:1].upper()}{so_far[1:]}." if so_far else ""
            if level.seen_ratio is not None:
                seen = (
                    f"So far {times(RatioSpan(low=level.seen_ratio[0], high=level.seen_ratio[1]))}."
                )
        said = ": ".join(filter(None, (ways[level.verdict], words)))
        rows.append((kind, SIGNS[kind][0], escape.plain(level.name, longest=80), said, seen))
    kinds = [kind for kind, *_ in rows]
    sure = [one for one in direct.levels if one.verdict in ("more", "less")]
    if direct.disturbed:
        headline = "Cannot tell: other programs had the CPUs."
    elif sure:
        first = max(sure, key=lambda one: abs(one.difference or (one.ratio or (1.0,))[0] or 0.0))
        headline = f"{escape.plain(first.name, longest=80)} {ways[first.verdict]} than {base}"
    else:
        headline = "Cannot tell yet." if "unknown" in kinds else f"The same as {base}."
    tally = ", ".join(f"{n} {SIGNS[kind]}" for kind in SIGNS if (n := kinds.count(kind)))
    factors = [f.removesuffix(".kind").rpartition(".")[2] for f in direct.factor]
    names = listed([escape.plain(factor).replace("_", " ") for factor in factors]).capitalize()
    kicker = f"Each against “{base}”" if factors == [NAMED] else f"{names}, against {base}"
    kicker += f" at {direct.at}" if direct.at else ""
    return VerdictCard(
        kicker=", ".join(filter(None, (kicker, held_words(direct.held)))),
        headline=headline,
        tally=tally if len({*kinds}) > 1 else "",
        rows=tuple(rows),
        to_do=direct.to_do.strip("`"),
    )


def _metric(story: Story, source: int) -> object:
    return story.sources[source].run.manifest.get("metric")


def _books(story: Story, number: int) -> tuple[Direct, Sentence]:
    """Whether every packet is in the books of some thread."""
    source = story.sources[number]
    trials = tuple(t for t in story.trials if t.source == number and t.valid)
    void = sum(t.source == number and not t.valid for t in story.trials)
    open_ones = tuple(t for t in trials if t.record.threads_unexplained_packets)
    silent = sum(t.record.threads_unexplained_packets is None for t in trials)
    n, several = len(trials), len(open_ones)
    if open_ones:
        worst = max(open_ones, key=lambda t: t.record.threads_unexplained_packets or 0)
        packets = worst.record.threads_unexplained_packets
        text = phrase("books-open", several=several, n=n, packets=packets, run=worst.name)
    else:
        text = phrase("books-shut" if n and not silent else "books-silent", n=n, silent=silent)
    text += f"; {count_of(void, 'more trial')} failed or void say nothing." if void else "."
    direct = Direct(
        question=source.question, factor=[], held={}, figure=BOOKS, at="", base="",
        disturbed=False, levels=[], text=text, to_do="",
    )  # fmt: skip
    return direct, Sentence("direct", text, direct.model_dump(), open_ones or trials)


def _verdict(answer: Relation | None, *, more: bool) -> Verdict:
    said: Mapping[Relation | None, Verdict] = {
        Relation.SAME: "same",
        Relation.DIFFERENT: "more" if more else "less",
    }
    return said.get(answer, "cannot tell")


# Searches


def _searched(story: Story, contrast: Contrast) -> tuple[Direct, Sentence]:
    (first, searched), *others = [(lv, lv.searched) for lv in contrast.levels if lv.searched]
    base = searched.answers[0]
    trials = (*searched.trials, *(trial for _, one in others for trial in one.trials))
    clauses = [_carries(story, contrast, level, base, own) for level, own in others]
    goal = goal_words(base.goal, base.goals_of, base.by)
    same = f"the same within {SAME_RATIO * 100:.0f} %"
    text = _worded(first.name, clauses, CARRIES, goal, same)
    return _said(story, contrast, CAPACITY, "", clauses, text, trials)


def _carries(
    story: Story, contrast: Contrast, level: SetupLevel, base: Answer, searched: SearchedCell
) -> Clause:
    # One median for each cell that was searched.
    cells = {id(lv.searched) for c in contrasts(story) for lv in c.levels if lv.searched}
    own, hosts = searched.answers[0], len({t.pair for t in searched.trials if t.valid}) > 1
    by_rate = any(key.startswith("load.") for key in contrast.factor)
    found = weigh(base, own, Family(parts=max(len(cells), 1)), hosts=hosts, by_rate=by_rate)
    verdict = _verdict(found.verdict, more=found.between.above)
    amount, within = times(found.between), times(found.within)
    if verdict == "cannot tell":  # bounds that one search of each showed
        amount = f"{_bounds(own)} against {_bounds(base)}"
        amount += f", so far {within}" if within and found.lack != "no end" else ""
    needed, to_do = _needed(story, contrast, base, own, found)
    ratio, seen_ratio = (
        None if span.empty else (span.low, span.high) for span in (found.between, found.within)
    )
    more = found.advice.more_runs if found.advice else None
    said = Level(
        name=level.name, verdict=verdict, why=found.lack or "", ratio=ratio,
        seen_ratio=seen_ratio, difference=None, interval=None, more=more, words=amount,
        needed=needed,
    )  # fmt: skip
    return said, to_do


def times(span: RatioSpan) -> str:
    """`1.21 to 1.34 times as much`, rounded outwards."""
    low = "" if span.low is None else f"{math.floor(span.low * 100 + 1e-9) / 100:.2f}"
    high = "" if span.high is None else f"{math.ceil(span.high * 100 - 1e-9) / 100:.2f}"
    if low and high:
        return f"{low} times as much" if low == high else f"{low} to {high} times as much"
    ends = f"at least {low}" if low else f"at most {high}" if high else ""
    return ends and f"{ends} times as much"


def _bounds(answer: Answer) -> str:
    lower, upper, confidence = answer.lower, answer.upper, answer.confidence
    writing = Writing(by=answer.by, known=confidence.known_ratio if confidence else 0.0)
    if lower is not None and upper is not None:
        return "{}, not {}".format(*writing.both(lower, upper))
    if lower is not None:
        return f"at least {writing.bound(lower, up=False)}"
    return "nothing known" if upper is None else f"less than {writing.bound(upper, up=True)}"


def _needed(
    story: Story, contrast: Contrast, base: Answer, own: Answer, found: Weighed
) -> tuple[str, str]:
    """The remedy in words, and as a command."""
    source = story.sources[contrast.source]
    match found.lack:
        case None:
            return "", ""
        case "nothing" | "no end":
            open_ones = [one for one in (base, own) if one.upper is None] or [base, own]
            ends = listed(list(dict.fromkeys(map(limit_words, open_ones))))
            helps = [_beyond(source, one.limited_by) for one in open_ones]
            what = "; ".join(dict.fromkeys(words for words, _ in helps))
            command = next((command for _, command in helps if command), "")
            return (
                f"searches ended at {ends}, before a load was too much; what helps: {what}",
                command,
            )
        case "hosts":
            return "each round mixes trials of several hosts, so rounds have no interval", ""
        case "rounds" | "spread":
            advice = found.advice
            if advice is None or advice.more_runs is None:
                return no_number("round"), ""
            rounds = min(len(base.rounds), len(own.rounds)) + advice.more_runs
            command = source.command_words(f"search.rounds={rounds}")
            return f"{more_runs_words(advice, 'round')} of each would be needed", command


def _beyond(source: StorySource, reason: str) -> tuple[str, str]:
    """Remedy that lets a search find a load that is too much, in words, and its command if any."""
    had = value_in(source.run.manifest, "search", "budget_s")
    if reason == "generator":
        parted = ('limits.cpus="1"', "load.cpu=0", 'setup.rps_cpus="1"')
        return "a SUT that is full before the sender is, on one CPU", source.command_words(*parted)
    if reason == "budget" and isinstance(had, int | float):
        return "a longer search", source.command_words(f"search.budget_s={had * 3:.0f}")
    others = "what makes its trials void has to go"
    return WORDS["searches"].get(reason, others), ""


# Loads that were given


def _fixed(
    story: Story, contrast: Contrast, at: str, levels: Sequence[tuple[SetupLevel, RunCell]]
) -> tuple[Direct, Sentence]:
    asked = _metric(story, contrast.source)
    lost = FAILURES_FIGURE if all(cell.answered for _, cell in levels) else LOSS_FIGURE
    figure = next((f for f in RANKED if f.name == asked and f is not LOSS_FIGURE), lost)
    family = compared_at_once(story)
    if figure not in DIFFERENCES:  # its comparisons are not among those of the report
        measured = sum(1 for cell in story.cells if figure.values(cell))
        family = Family(parts=family.parts + measured)
    base, base_cell = levels[0]
    source = story.sources[contrast.source]
    clauses = [
        _costs(source, level.name, cell, base_cell, compared(base_cell, cell, figure, family))
        for level, cell in levels[1:]
    ]
    silent = [lv.name for lv in contrast.levels if lv.name not in {one.name for one, _ in levels}]
    same = f"the same within {figure.margin_words}"
    text = _worded(base.name, clauses, figure.ways, f"at {at}" if at else "", same)
    if silent:
        none = f"{listed(silent)} cannot be compared: no trial {f'at {at} ' if at else ''}measured"
        text = f"{text}; {none}" if clauses else f"Cannot tell: {none}"
    trials = tuple(t for _, cell in levels for t in cell.valid)
    return _said(story, contrast, figure.name, at, clauses, text, trials, base=base.name)


def _heaviest(contrast: Contrast) -> tuple[str, list[tuple[SetupLevel, RunCell]]] | None:
    """The heaviest load at which most levels were measured, the base first if it was; None if no
    two levels had a load in common."""
    cells = ((level, cell) for level in contrast.levels for cell in level.cells)
    loads = by_key((one[1].load_label, one) for one in cells)

    def weight(label: str) -> tuple[int, float]:
        cells = [cell for _, cell in loads[label]]
        return sum(bool(c.valid) for c in cells), max(c.asked_pps or 0.0 for c in cells)

    if not (shared := [label for label, load in loads.items() if len(load) > 1]):
        return None
    label = max(shared, key=weight)
    return label, [one for one in loads[label] if one[1].valid] or loads[label][:1]


def _costs(source: StorySource, name: str, cell: RunCell, base: RunCell, item: Compared) -> Clause:
    verdict = _verdict(item.answer, more=item.more)
    why = needed = to_do = ""
    more: int | None = None
    if item.found is None:
        why = "nothing"
    elif verdict == "cannot tell":
        why, more = "runs", item.advice.more_runs
        needed = f"{more_runs_words(item.advice)} of each would be needed"
        if more is not None:
            fewest = min(len(one.trials) for one in (cell, base))
            to_do = source.command_words(f"measure.repetitions={fewest + more}")
    said = Level(
        name=name, verdict=verdict, why=why, ratio=None, seen_ratio=None, more=more,
        difference=item.found.shift if item.found else None,
        interval=(item.interval.low, item.interval.high) if item.interval else None,
        words=_amount(item, cell, base), needed=needed,
    )  # fmt: skip
    return said, to_do


def _amount(item: Compared, cell: RunCell, base: RunCell) -> str:
    figure = item.figure
    if item.found is None:
        return "not measured"
    if item.found.answer is Relation.SAME:
        return item.but_words
    if item.found.answer is Relation.DIFFERENT:
        return item.lossy_words if item.found.by_share else item.shift_words(figure.difference_unit)
    if figure in (LOSS_FIGURE, FAILURES_FIGURE) and not cell.lossy and not base.lossy:
        trials = count_of(len(cell.valid), "trial")
        what = "had a failure" if cell.answered else "lost a packet"
        return f"0 of {trials} {what}, in the base 0 of {len(base.valid)}"
    own = item.own.summary
    shown = [
        f"{figure.shown(median)} {figure.unit}" if median is not None else "not measured"
        for median in (own.median if own else None, item.base_median)
    ]
    seen = f"so far {shown[0]} against {shown[1]} in the median"
    if figure in (LOSS_FIGURE, FAILURES_FIGURE):
        what = "had failures" if cell.answered else "lost packets"
        seen += f", {len(cell.lossy)} of {count_of(len(cell.valid), 'trial')} {what}, "
        seen += f"in the base {len(base.lossy)} of {len(base.valid)}"
    return f"{seen}; {item.beyond_words}" if item.beyond_words else seen


# Words


def _worded(
    base: str, clauses: Sequence[Clause], verbs: tuple[str, str, str, str], tail: str, same: str
) -> str:
    """`A and B lose more than C at 8X: A by …, B by …; …`, without a stop at its end."""

    def amounts(levels: Sequence[Level]) -> str:
        if len(levels) == 1:
            return levels[0].words
        return ", ".join(f"{level.name} {level.words}" for level in levels)

    one_does, several, more, less = verbs
    at = f" {tail}" if tail else ""
    parts = []
    said = [one for one, _ in clauses]
    for verdict, way in (("more", more), ("less", less)):
        if found := [one for one in said if one.verdict == verdict]:
            verb = one_does if len(found) == 1 else several
            names = listed([c.name for c in found])
            parts.append(f"{names} {verb} {way} than {base}{at}: {amounts(found)}")
    if found := [one for one in said if one.verdict == "same"]:
        names = listed([base, *(c.name for c in found)])
        told = amounts([c for c in found if c.words])
        parts.append(f"{names} {several} {same}{at}" + (f", {told}" if told else ""))
    clear = bool(parts)  # it begins with a name, which stays as it is
    unsure = by_key((one.needed, one) for one in said if one.verdict == "cannot tell")
    for needed, found in unsure.items():
        names = " or ".join(c.name for c in found)
        which = f"cannot tell yet whether {names} {one_does} {more} or {less} than {base}"
        parts.append(f"{which}{at}: {amounts(found)}" + (f"; {needed}" if needed else ""))
    text = "; ".join(parts)
    return text if clear else text[:1].upper() + text[1:]


def _said(
    story: Story,
    contrast: Contrast,
    figure: str,
    at: str,
    clauses: Sequence[Clause],
    text: str,
    trials: tuple[StoredTrial, ...],
    *,
    base: str = "",
) -> tuple[Direct, Sentence]:
    source, (first, *others) = story.sources[contrast.source], contrast.levels
    lost = figure not in (LOSS, FAILURES) or any(t.lost_packets or t.loss_ratio for t in trials)
    words = _crowded_words(contrast, figure, at, trials) if lost else ""
    before = [source.name] * story.several + [held_words(contrast.held)]
    prefix = "".join(f"{one}: " for one in before if one)
    # Pairs of a fleet that measured other cells.
    on = [(level.name, other_hosts(first.cells[0], level.cells[0])) for level in others]
    hosts = ", ".join(f"{name}: {pairs}" for name, pairs in on if pairs)
    differ = f"; this includes how their hosts differ ({hosts})" if hosts else ""
    levels = [one for one, _ in clauses]
    beside = listed([*dict.fromkeys(one.needed for one in levels if words and one.needed)])
    text = f"{prefix}{words or text}{beside and f'; {beside}'}{differ}."
    to_do = source.command_words() if words else next((do for _, do in reversed(clauses)), "")
    if words:
        unsure = {"verdict": "cannot tell", "why": "disturbed", "more": None}
        levels = [one.model_copy(update=unsure) for one in levels]
    direct = Direct(
        question=source.question,
        factor=list(contrast.factor),
        held=dict(contrast.held),
        figure=figure,
        at=at,
        base=base or first.name,
        disturbed=bool(words),
        levels=levels,
        text=text,
        to_do=to_do,
    )
    rule = "direct-disturbed" if words else "direct"
    return direct, Sentence(rule, text, direct.model_dump(), trials, to_do=to_do)


def _crowded_words(contrast: Contrast, figure: str, at: str, trials: Sequence[StoredTrial]) -> str:
    """Words in the place of a rank if other programs had the CPUs in most trials of any level; else
    empty."""
    measured, crowded = {*trials}, list[float]()
    known, most = 0, False
    for level in contrast.levels:
        told = (t.aside.foreign_cpu_ratio for t in level.trials if t in measured)
        ratios = [ratio for ratio in told if ratio is not None]
        busy = [ratio for ratio in ratios if ratio >= FOREIGN_CPU_RATIO]
        known, crowded = known + len(ratios), crowded + busy
        most |= len(busy) > MOST_DISTURBED * len(ratios)
    if not most:
        return ""
    does, _, more, _ = _ways(figure)
    names = listed([level.name for level in contrast.levels], "or")
    return phrase(
        "crowded", way=f"{does} {more}{f' at {at}' if at else ''}", names=names,
        limit=FOREIGN_CPU_RATIO, crowded=len(crowded), known=known, most=max(crowded),
    )  # fmt: skip
