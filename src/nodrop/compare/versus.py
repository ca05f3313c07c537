"""B against A: different, the same within a margin, or too early to say; metric by metric.

One family holds all of it: if nothing changed, a comparison of any size is "different" anywhere
with at most 5 %. The statistics are those of a report (stats/comparison.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, Literal
from xml.etree import ElementTree

from nodrop.compare.records import MetricRow, Repeats, Side, SideCell, Versus, VersusCard
from nodrop.compare.sides import (
    FAILED,
    MOST_NAMED,
    NO_FIGURE,
    OF_DETECTIONS,
    in_lines,
    in_short,
    is_compared,
    may_differ,
    metrics_known,
    must_be_there,
    other_facts,
    read_side,
    refused,
    unfound,
)
from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.exit_codes import ANSWERED, NO_ANSWER, WORSE
from nodrop.report import escape
from nodrop.report.comparison import Compared
from nodrop.report.costs import FAILURES, LOSS, Figure, minus
from nodrop.report.story import Gathered, gathered
from nodrop.stats.comparison import (
    ComparisonRule,
    Relation,
    compare,
    detectable,
    earlier_needed,
    runs_to_see,
)
from nodrop.stats.interval import Family, by_start

CAPACITY = "capacity_"
CAPACITY_UNITS = {"multiplier": "X", "speed": "× speed", "pps": "packets/s", "rate": "/s"}
OUTER_FENCE = 3.0
MOST_TO_DO = 3
FEWEST_FENCED = 6
"""Quartiles of fewer runs are runs themselves."""
IMPLIED: Mapping[str, tuple[str, ...]] = {
    "sut.version": ("sut.bits",),
    "sut.bits": ("sut.version",),
}
"""Another version has other bits; other bits may be another version."""
Verdict = Literal["no worse", "worse", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    cell: str
    figure: Figure
    a: Repeats | None
    b: Repeats | None


def versus(
    a: Side,
    b: Side,
    *,
    differs: Sequence[str] = (),
    metrics: Sequence[str] = (),
    look: int | None = None,
) -> Versus:
    """BadInput if the sides may not be compared: `differs` names facts or factors that may. `look`,
    from 0: of a comparison that is made again and again until it can tell."""
    allowed = {name for one in differs for name in (one, *IMPLIED.get(one, ()))}
    same_run = a.identity == b.identity
    if same_run and any(cell in b.cells for cell in a.cells):
        raise BadInput(f"{a.name} and {b.name} are one run: nothing can differ")
    matched, missing = _matched(a, b, allowed)
    said = _differences(a, b, matched, allowed)
    if not matched:
        raise BadInput(
            f"{a.name} and {b.name} have no cell in common",
            hint="; ".join(missing[:4]) + "; --differs KEY lets a factor differ",
        )
    must_be_there(metrics, [cell for pair in matched for cell in pair])
    pairs = [pair for cells in matched for pair in _pairs(*cells, metrics)]
    if not pairs:
        raise BadInput(
            f"{a.name} and {b.name}: no metric has a figure on both sides",
            hint="; ".join([*missing, NO_FIGURE]),
        )
    missing += _without_figures(matched, metrics)
    behind = [*_behind(matched)] if any(pair.figure.name == LOSS for pair in pairs) else []
    family, of_failures = _family(pairs, look), _family_of_failures(pairs, look)
    rows = [
        row
        for pair in pairs
        if (row := _row(pair, of_failures if pair.figure.name == FAILED else family)) is not None
    ]
    crowded = dict(_crowded(matched))
    rows = [_undecided(row, crowded[row.cell]) if row.cell in crowded else row for row in rows]
    open_ones = unfound(matched, metrics)
    to_do = ["Offer each load for longer: rings held what was not served."] if behind else []
    to_do += ["Search for longer: a goal has no figure (Notes)."] if open_ones else []
    to_do += ["Measure again on a quiet host: other programs had the CPUs."] if crowded else []
    card = _card(rows, to_do, lacking=bool(missing))
    missing += behind + open_ones + [f"{cell}: {words}" for cell, words in crowded.items()]
    verdict, code = _verdict(rows, missing)
    return Versus(
        a=a.name, b=b.name, verdict=verdict, exit_code=code, card=card,
        differs=said, rows=rows, missing=missing,
        notes=[
            *_unread(a, b), *_weak(a, b), *_notes(matched), *_pooled(matched),
            _family_words(family, len(rows)),
        ],
    )  # fmt: skip


def _differences(
    a: Side, b: Side, matched: Sequence[tuple[SideCell, SideCell]], allowed: set[str]
) -> list[str]:
    found = other_facts(a, b, matched)
    if other := refused(found, allowed):
        words, names = in_short(other, a, b)
        raise BadInput(
            f"{a.name} and {b.name} differ in {words}", hint=f"if that is the point: {names}"
        )
    return in_lines(found, a, b)


def _matched(
    a: Side, b: Side, allowed: set[str]
) -> tuple[list[tuple[SideCell, SideCell]], list[str]]:
    """Cells with the same factors but for those that may differ."""
    of_b: dict[str, list[SideCell]] = {}
    for cell in b.cells:
        of_b.setdefault(_key(cell, allowed), []).append(cell)
    found, alone = [], []
    seen: set[str] = set()
    for cell in a.cells:
        key = _key(cell, allowed)
        others = of_b.get(key, [])
        if len(others) > 1 or (others and key in seen):
            raise BadInput(
                f"{cell.label}: several cells of {a.name} and {b.name} fit each other",
                hint="choose one of each: DIR::key=value,key=value",
            )
        seen.add(key)
        if others:
            found.append((cell, others[0]))
        else:
            alone.append(f"{cell.label} is in {a.name} alone, and compared with nothing")
    alone += [
        f"{cell.label} is in {b.name} alone, and compared with nothing"
        for cell in b.cells
        if _key(cell, allowed) not in seen
    ]
    return found, alone


def _without_figures(
    matched: Sequence[tuple[SideCell, SideCell]], metrics: Sequence[str]
) -> list[str]:
    """Cells of which nothing is compared: void on both sides, or no search found a limit. No
    failure on either side is no figure."""
    return [
        f"{a.label} has no such figure on either side, and is compared with nothing"
        for a, b in matched
        if not any(
            pair.figure.name != FAILED
            or any(value for s in (pair.a, pair.b) if s for value in s.values)
            for pair in _pairs(a, b, metrics)
        )
    ]


def _behind(matched: Sequence[tuple[SideCell, SideCell]]) -> Iterator[str]:
    """Sides most of whose trials lost nothing as the rings held what the SUT did not serve."""
    for pair in matched:
        for name, cell in zip("AB", pair, strict=True):
            if words := cell.behind_words(LOSS):
                yield f"{cell.label}: {name} {words}"


def _crowded(matched: Sequence[tuple[SideCell, SideCell]]) -> Iterator[tuple[str, str]]:
    """Cells of which other programs disturbed most trials of a side: no verdict on them."""
    for a, b in matched:
        sides = [(f"in {name}", cell.crowded_words()) for name, cell in (("A", a), ("B", b))]
        if words := "; ".join(f"{side} {said}" for side, said in sides if said):
            yield (a.label if a.label == b.label else f"{a.label} → {b.label}"), words


def _undecided(row: MetricRow, why: str) -> MetricRow:
    update = {"answer": "cannot tell", "worse": None, "more_runs": None}
    return row.model_copy(update={**update, "words": f"cannot tell: {why}"})


def _key(cell: SideCell, allowed: set[str]) -> str:
    kept = {k: v for k, v in cell.factors.items() if not may_differ(k, allowed)}
    return repr(sorted((k, repr(v)) for k, v in kept.items()))


def _pairs(a: SideCell, b: SideCell, metrics: Sequence[str]) -> Iterator[_Pair]:
    label = a.label if a.label == b.label else f"{a.label} → {b.label}"
    for name in dict.fromkeys((*a.figures, *b.figures)):
        if name != FAILED and not is_compared(name, metrics):
            continue
        yield _Pair(
            cell=label, figure=figure_named(name), a=a.figures.get(name), b=b.figures.get(name)
        )


def figure_named(name: str) -> Figure:
    known = {figure.name: figure for figure in metrics_known()}
    if name in known:
        return known[name]
    if name == FAILED:
        return Figure(
            name=FAILED, title="Trials that the SUT fails", unit="%", scale=1, digits=0,
            of=lambda _: None, help="died, hung or was killed", points=True, verb="fail",
            of_trials=True, ways=("fails", "fail", "more", "less"),
        )  # fmt: skip
    if name.startswith(CAPACITY):
        by, _, goal = name.removeprefix(CAPACITY).partition("_at_")
        what = "detection loss ratio" if goal.endswith(OF_DETECTIONS) else "loss ratio"
        title = escape.plain(f"{by}, {what} at most {goal.removesuffix(OF_DETECTIONS)}")
        return Figure(
            name=escape.plain(name), title=f"Capacity ({title})",
            unit=CAPACITY_UNITS.get(by, ""), scale=1, digits=0 if by == "pps" else 3,
            of=lambda _: None, help="what each round carried",
            ways=("carries", "carry", "more", "less"),
        )  # fmt: skip
    raise BadInput(f"{escape.plain(name)}: no metric that nodrop knows")


def _asked(figure: Figure, family: Family) -> ComparisonRule:
    if figure.name == FAILED:
        return ComparisonRule(losses=True, family=family)
    return figure.asked(family)


def _family(pairs: Sequence[_Pair], look: int | None) -> Family:
    """A median of each side, and a test of shares where zero is special."""
    others = [pair for pair in pairs if pair.figure.name != FAILED]
    shares = sum(1 for pair in others if pair.figure.loses)
    return Family(parts=max(1, 2 * len(others) + shares), look=look)


def _family_of_failures(pairs: Sequence[_Pair], look: int | None) -> Family:
    """A SUT that dies needs no share of its error with what it costs: one part for each cell."""
    return Family(parts=max(1, sum(pair.figure.name == FAILED for pair in pairs)), look=look)


def _row(pair: _Pair, family: Family) -> MetricRow | None:
    """None if no trial of either side failed: that needs no line."""
    a, b = (side.values if side else [] for side in (pair.a, pair.b))
    if pair.figure.name == FAILED and not any((*a, *b)):
        return None
    item = _compared(pair, family)
    answer = item.found.answer if item.found else Relation.CANNOT_TELL
    between = item.found.interval if item.found and not pair.figure.of_trials else None
    unsure = item.found is not None and answer is Relation.CANNOT_TELL
    a_level, b_level = (
        _level(pair.figure, each) for each in (item.base.by_start, item.own.by_start)
    )
    shift = item.found.shift if item.found else None
    if pair.figure.of_trials and a_level is not None and b_level is not None:
        shift = b_level - a_level
    margin = None
    if a_level is not None and not pair.figure.of_trials:
        margin = pair.figure.margin(a_level)
    return MetricRow(
        cell=pair.cell,
        metric=pair.figure.name,
        unit=pair.figure.unit,
        a_n=len(a),
        b_n=len(b),
        a_median=a_level,
        b_median=b_level,
        answer=answer.value,
        worse=_worse(item) if answer is Relation.DIFFERENT else None,
        difference=shift,
        interval=(between.low, between.high) if between else None,
        margin="0" if pair.figure.name == FAILED else pair.figure.margin_words,
        more_runs=item.advice.more_runs if unsure else None,
        unusual_a=unusual(a),
        unusual_b=unusual(b),
        words=_words(item),
        margin_size=margin,
        a_values=list(a),
        b_values=list(b),
    )


def _card(rows: Sequence[MetricRow], to_do: list[str], *, lacking: bool) -> VersusCard:
    """`to_do`: before any further runs; `lacking`: cells that one side lacks."""
    counts = Counter(row.answer for row in rows)
    headline, where = "Cannot tell yet.", ""
    if sure := [row for row in rows if row.answer == "different"]:
        sure.sort(key=lambda row: (bool(row.worse), abs(in_margins(row) or 0.0)), reverse=True)
        headline, where = _headline(sure[0]), f"{sure[0].cell}: {sure[0].words}."
        worse = [row.metric for row in sure if row.worse]
        # What loses packets, or dies, has less to do: that is no gain.
        if worse and len(worse) < len(sure) and not {LOSS, FAILURES, FAILED} & {*worse}:
            where += f" But {_headline(sure[len(worse)])}"
    elif not (lacking or to_do or counts["cannot tell"]):
        headline = "B is the same as A."
    unsure: dict[float, list[str]] = {}
    for row in rows:
        if row.answer == "cannot tell":
            title = figure_named(row.metric).title
            no_number = math.inf if row.a_n and row.b_n else 0.0
            unsure.setdefault(row.more_runs or no_number, []).append(title)
    to_do += [
        f"{_more(runs)}: {', '.join(dict.fromkeys(titles))}."
        for runs, titles in sorted(unsure.items())[:MOST_TO_DO]
    ]
    to_do += ["Measure the cells that one side lacks."] if lacking else []
    return VersusCard(
        headline=headline, where=where, different=counts["different"], same=counts["same"],
        cannot_tell=counts["cannot tell"], to_do=to_do,
    )  # fmt: skip


def _more(runs: float) -> str:
    if runs in (0, math.inf):
        narrow = "Narrow the spread first (a quiet host, longer loads)"
        return narrow if runs else "Measure on both sides"
    return f"Measure {runs:.0f} or more further runs of each"


def in_margins(row: MetricRow) -> float | None:
    """Difference of the medians; None if there is no margin to measure it in."""
    if row.difference is None or not row.margin_size:
        return None
    return row.difference / row.margin_size


def _headline(row: MetricRow) -> str:
    """`B uses 12 % more memory.`, or where the shares of lossy runs differ `B loses more often.`"""
    figure = figure_named(row.metric)
    verb, _, more, less = figure.ways
    way = more if bool(row.worse) is not row.metric.startswith(CAPACITY) else less
    by_share = row.interval is None or row.interval[0] <= 0 <= row.interval[1]
    if by_share or row.difference is None:
        return f"B {verb} {'more' if row.worse else 'less'} often."
    size, digits = abs(row.difference), 0
    if figure.loses or not row.a_median:
        return f"B {verb} {figure.at_least(size)} {figure.difference_unit} {way}."
    percent = size / abs(row.a_median) * 100
    digits = 0 if percent >= 10 else 1
    return f"B {verb} {minus(f'{percent:,.{digits}f}')} % {way}."


def _level(figure: Figure, values: Sequence[float]) -> float | None:
    if not values:
        return None
    return fmean(values) if figure.of_trials else median(values)


def _compared(pair: _Pair, family: Family) -> Compared:
    own, base = (_gathered(side) for side in (pair.b, pair.a))
    return Compared(
        figure=pair.figure,
        own=own,
        base=base,
        hosts=any(side is not None and side.hosts for side in (pair.a, pair.b)),
        found=compare(base.by_start, own.by_start, _asked(pair.figure, family)),
        family=family,
    )


def _gathered(side: Repeats | None) -> Gathered:
    return gathered(zip(side.values, side.starts, strict=True) if side else ())


def _worse(item: Compared) -> bool:
    """More is worse, but of capacity."""
    return item.more is not item.figure.name.startswith(CAPACITY)


def _words(item: Compared) -> str:
    if item.found is None:
        return "cannot tell: one side has not measured it"
    by_share = item.found.by_share or item.figure.of_trials
    if item.found.answer is Relation.DIFFERENT and not by_share and item.found.interval:
        low, high = item.found.interval.low, item.found.interval.high
        signed, unit = item.figure.signed, item.figure.difference_unit
        return f"different by [{signed(low)}, {signed(high)}] {unit}".rstrip()
    return item.verdict


def unusual(values: Sequence[float]) -> list[float]:
    """Values beyond Tukey's outer fences: three quartile distances from the quartiles. If half of
    all runs are alike there is no such distance, and none is called unusual."""
    if len(values) < FEWEST_FENCED:
        return []
    low, _, high = quantiles(values, n=4, method="inclusive")
    reach = OUTER_FENCE * (high - low)
    if math.isclose(reach, 0.0, abs_tol=1e-12):
        return []
    return [value for value in values if not low - reach <= value <= high + reach]


def _verdict(rows: Sequence[MetricRow], missing: Sequence[str]) -> tuple[Verdict, int]:
    """A cell that is not compared may be the one that is worse."""
    if any(row.worse for row in rows):
        return "worse", WORSE
    if missing or any(row.answer == Relation.CANNOT_TELL.value for row in rows):
        return "cannot tell", NO_ANSWER
    return "no worse", ANSWERED


def _unread(*sides: Side) -> Iterator[str]:
    """A few lines of many: the report of the run has them all."""
    for name, side in zip("AB", sides, strict=True):
        for words in side.unread[:MOST_NAMED]:
            yield f"{name} could not be read whole: {words}"
        if len(side.unread) > MOST_NAMED:
            yield f"{name}: and {len(side.unread) - MOST_NAMED} such lines more"


def _weak(*sides: Side) -> Iterator[str]:
    for name, side in zip("AB", sides, strict=True):
        yield from (f"{name}: {words}" for words in side.weak)


def _notes(matched: Sequence[tuple[SideCell, SideCell]]) -> Iterator[str]:
    for name, cell in ((name, c) for pair in matched for name, c in zip("AB", pair, strict=True)):
        if cell.failed:
            said = count_of(cell.failed, "failed trial")
            yield f"{cell.label}: {name} has {said}, in no other figure"
        if cell.void:
            yield f"{cell.label}: {name} has {count_of(cell.void, 'void trial')}, in no figure"
        if not any(key.startswith(CAPACITY) for key in cell.figures) and not cell.figures:
            yield f"{cell.label}: {name} has no figure that can be compared"


def _pooled(matched: Sequence[tuple[SideCell, SideCell]]) -> Iterator[str]:
    for cell in (
        a if any(figure.hosts for figure in a.figures.values()) else b for a, b in matched
    ):
        if any(figure.hosts for figure in cell.figures.values()):
            yield f"{cell.label}: several hosts measured it, and each counts as one run"


def _family_words(family: Family, rows: int) -> str:
    least = family.runs_needed()
    compared = "1 metric is compared" if rows == 1 else f"{rows} metrics are compared at once"
    return (
        f"{compared}; if nothing changed, the chance that anything is called different is at most "
        "5 %, and as much that one side is said to fail more often. That takes at least "
        f"{least} runs of each side (starts of the SUT; of a search its rounds, search.rounds)"
    )


def shown(row: MetricRow, value: float | None) -> str:
    """A median in words."""
    if value is None:
        return "not measured"
    return f"{figure_named(row.metric).shown(value)} {row.unit}".rstrip()


def to_markdown(found: Versus) -> str:
    return "\n".join(_markdown(found)) + "\n"


def _markdown(found: Versus) -> Iterator[str]:
    a, b = (escape.markdown(name) for name in (found.a, found.b))
    yield f"**nodrop: {found.verdict}** ({b} against {a})"
    yield ""
    for key, words in found.card.lines:
        yield f"- {key}{': ' if key else ''}{escape.markdown(words, longest=1000)}"
    yield ""
    yield "| cell | metric | A | B | verdict | n |"
    yield "|---|---|---:|---:|---|---:|"
    for row in found.rows:
        cells = (row.cell, row.metric, *_medians(row), row.words, f"{row.a_n} and {row.b_n}")
        yield "| " + " | ".join(escape.markdown(cell) for cell in cells) + " |"
    yield ""
    for words in notes_words(found):
        yield f"- {escape.markdown(words, longest=1000)}"


def _medians(row: MetricRow) -> tuple[str, str]:
    return shown(row, row.a_median), shown(row, row.b_median)


def notes_words(found: Versus) -> Iterator[str]:
    """Everything beside the verdicts: what is missing, what differs, what to know of the runs."""
    yield from found.missing
    yield from (f"A and B differ in {words}" for words in found.differs)
    yield from found.notes
    for row in found.rows:
        for name, values in (("A", row.unusual_a), ("B", row.unusual_b)):
            if values:
                said = ", ".join(shown(row, value) for value in values)
                yield f"{row.cell}, {row.metric}: unusual in {name}, and counted: {said}"


def to_junit(found: Versus) -> bytes:
    """A test case per metric: worse is a failure; what cannot be told yet is skipped, and so is a
    cell of one side alone."""
    worse = sum(1 for row in found.rows if row.worse)
    unsure = sum(1 for row in found.rows if row.answer == "cannot tell")
    counts = {
        "tests": len(found.rows) + len(found.missing), "failures": worse, "errors": 0,
        "skipped": unsure + len(found.missing),
    }  # fmt: skip
    suite = ElementTree.Element(
        "testsuite", {"name": _xml(f"nodrop: {found.b} against {found.a}"), **_texts(counts)}
    )
    for row in found.rows:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": _xml(row.cell), "name": row.metric}
        )
        if row.worse:
            ElementTree.SubElement(case, "failure", {"message": _xml(row.words)})
        elif row.answer == "cannot tell":
            ElementTree.SubElement(case, "skipped", {"message": _xml(row.words)})
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(row.words)
    for words in found.missing:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "cells", "name": "missing"})
        ElementTree.SubElement(case, "skipped", {"message": _xml(words)})
    found_bytes: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return found_bytes


def _texts(counts: dict[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items()}


def _xml(words: str) -> str:
    """XML has no control characters; escaping is the library's."""
    return escape.plain(words, longest=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The smallest difference of one figure between a cell like this one and another."""

    figure: Figure
    cell: Mapping[str, Any]
    earlier: int
    """Independent runs: of a SUT that stays up its starts. 0: the earlier run has no such cell."""
    planned: int
    least: float | None
    """The smallest difference that can be shown, in the figure's unit; None if it cannot be said.
    """
    median: float | None
    why_not: str

    @property
    def of_median(self) -> float | None:
        return self.least / abs(self.median) if self.least and self.median else None

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.figure.name,
            "unit": self.figure.difference_unit,
            "cell": dict(self.cell),
            "earlier_runs": self.earlier,
            "planned_runs": self.planned,
            "least_difference": self.least,
            "of_median": self.of_median,
            "why_not": self.why_not,
        }


def detectable_differences(
    cells: Sequence[Mapping[str, Any]], planned: int, given: Path
) -> list[Detectable]:
    """Detectable differences by metric, in the order of the cells. BadInput if the earlier run has
    none of them."""
    side = read_side(str(given))
    found = [(cell, _matching(side, cell)) for cell in cells]
    known = [one for _, one in found if one is not None]
    if not known:
        raise BadInput(
            f"--given {given}: no cell of it is one of this experiment",
            hint="its cells: " + "; ".join(cell.label for cell in side.cells),
        )
    there = {name for cell in known for name in cell.figures if is_compared(name, ())}
    figures = [figure for figure in metrics_known() if figure.name in there]
    family = _planned_family(len(cells), figures)
    return [_of(figure, cell, one, planned, family) for figure in figures for cell, one in found]


def _matching(side: Side, cell: Mapping[str, Any]) -> SideCell | None:
    return next((one for one in side.cells if one.factors == dict(cell)), None)


def _planned_family(cells: int, figures: Sequence[Figure]) -> Family:
    """All that the report of the planned run will compare."""
    pairs = sum(f.loses for f in figures) * cells * (cells - 1) // 2
    return Family(parts=max(cells * len(figures) + pairs, 1))


def _of(
    figure: Figure, cell: Mapping[str, Any], one: SideCell | None, planned: int, family: Family
) -> Detectable:
    repeats = one.figures.get(figure.name) if one else None
    values = by_start(repeats.values, repeats.starts) if repeats else []
    least = detectable(values, planned, family)
    return Detectable(
        figure=figure,
        cell=cell,
        earlier=len(values),
        planned=planned,
        least=least,
        median=float(median(values)) if values else None,
        why_not="" if least else _why_not(len(values), planned, family),
    )


def _why_not(earlier: int, planned: int, family: Family) -> str:
    if not earlier:
        return "the earlier run has no such cell"
    if earlier < earlier_needed(family):
        return f"needs {earlier_needed(family)} earlier runs, has {earlier}"
    if planned < runs_to_see(family):
        return f"needs {runs_to_see(family)} planned runs, has {planned}"
    return "the earlier runs do not spread"
