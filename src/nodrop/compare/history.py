"""A metric over many runs: where its level changed, what else changed there, and whether the newest
runs are worse than the best stretch.

One family holds all lines: if nothing changed, a change is seen anywhere with at most 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from nodrop.compare.records import Change, History, HistoryRun, Line, Point, Side, SideCell, Stretch
from nodrop.compare.sides import (
    FAILED,
    NO_FIGURE,
    SEEN,
    in_lines,
    in_short,
    is_compared,
    must_be_there,
    other_facts,
    read_side,
    refused,
)
from nodrop.compare.versus import CAPACITY, figure_named
from nodrop.config.units import count_of
from nodrop.errors import BadInput
from nodrop.exit_codes import ANSWERED, NO_ANSWER, WORSE
from nodrop.report import escape
from nodrop.report.costs import LOSS, MARGINS, RELATIVE_MARGIN, Figure
from nodrop.results.rundir import open_run
from nodrop.stats.changes import MOST, values_needed
from nodrop.stats.interval import CONFIDENCE, by_start
from nodrop.stats.regression import NEWEST, TIMES, Judgement, RegressionVerdict, Why, judge

MAY_CHANGE = (
    "sut.version", "sut.bits", "sut.binary", "sut.image", "host.kernel", "host.cpu.governor",
    "host.cpu.boost", "host.cpu.smt", "node.sha256",
)  # fmt: skip
"""A history is made to see what these do."""
VERDICTS: Mapping[RegressionVerdict, Literal["no worse", "worse", "cannot tell"]] = {
    RegressionVerdict.WORSE: "worse",
    RegressionVerdict.NO_WORSE: "no worse",
    RegressionVerdict.CANNOT_TELL: "cannot tell",
}
MAY_CHANGE_THERE = ("kernel", "governor", "boost", "smt")
FEWEST_RUNS = 2
MOST_LINES = 25
"""The shuffles of a test show no smaller error than each of these has."""


MOST_WEAK = 4
"""Limit on the disturbed or unfinished runs that the notes name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    side: Side
    started_utc: str


def read_run(path: Path) -> ReadRun:
    manifest = open_run(path).manifest
    return ReadRun(
        side=read_side(str(path)),
        started_utc=escape.plain(manifest.get("started_utc") or "", longest=40),
    )


def history(
    given: Sequence[ReadRun], *, differs: Sequence[str] = (), metrics: Sequence[str] = ()
) -> History:
    """BadInput if the runs cannot stand in one line: `differs` names facts that may differ."""
    runs = sorted(given, key=lambda run: run.started_utc)
    if len(runs) < FEWEST_RUNS:
        raise BadInput("one run is no history: give at least two")
    if len(runs) > MOST:
        raise BadInput(f"{len(runs)} runs are more than {MOST}: give the newest")
    _each_once(runs)
    allowed = {*MAY_CHANGE, *differs, *_of_far_hosts(runs)}
    _refuse(runs, allowed)
    told = [
        HistoryRun(
            name=run.side.name,
            started_utc=run.started_utc,
            changed=_changed(runs[i - 1].side, run.side) if i else [],
        )
        for i, run in enumerate(runs)
    ]
    found = [*_cells(runs)]
    asked = [(cells, name) for cells in found for name in _figures(cells, metrics)]
    there = [cell for cells in found for cell in cells if cell and cell.figures]
    if not there or not (asked or metrics):
        named = f" of {', '.join(metrics)}" if metrics else ""
        raise BadInput(f"no metric{named} has a figure in these runs", hint=NO_FIGURE)
    must_be_there(metrics, there)
    if len(asked) > MOST_LINES:
        raise BadInput(f"{len(asked)} lines at once: --metric NAME asks for fewer")
    error = (1 - CONFIDENCE) / len(asked)
    lines = [_line(cells, name, told, error) for cells, name in asked]
    verdict, code = _verdict(lines)
    return History(
        verdict=verdict,
        exit_code=code,
        runs=told,
        lines=lines,
        notes=[*_crowded(runs), *_weak(runs), *_notes(lines, error)],
    )


def _of_far_hosts(runs: Sequence[ReadRun]) -> Iterator[str]:
    """Keys of the facts that may change, as a lab over ssh saw them on its hosts."""
    tables = [run.side.facts for run in runs]
    tables += [cell.facts for run in runs for cell in run.side.cells]
    for key in {key for facts in tables for key in facts if key.startswith(SEEN)}:
        if key.rpartition(".")[2] in MAY_CHANGE_THERE:
            yield key


def _each_once(runs: Sequence[ReadRun]) -> None:
    seen: dict[str, str] = {}
    for run in runs:
        if run.side.identity in seen:
            raise BadInput(
                f"{seen[run.side.identity]} and {run.side.name} are one run: give it once"
            )
        seen[run.side.identity] = run.side.name


def _refuse(runs: Sequence[ReadRun], allowed: set[str]) -> None:
    first = runs[0].side
    cells: dict[str, SideCell] = {}
    """Each as it was first measured: a run need not have all cells."""
    for earlier, run in pairwise(runs):
        cells = {k: c for k, c in _by_factors(earlier.side).items() if c.figures} | cells
        known = first.model_copy(update={"cells": [*cells.values()]})
        if other := refused(_other_facts(known, run.side, " and "), allowed):
            words, names = in_short(other, known, run.side)
            raise BadInput(
                f"{first.name} and {run.side.name} cannot stand in one line: they differ in "
                f"{words}",
                hint=f"give runs of one kind; if that is the point: {names}",
            )


def _changed(before: Side, now: Side) -> list[str]:
    return in_lines(_other_facts(before, now, " → "), before, now, " → ")


def _other_facts(a: Side, b: Side, between: str) -> dict[str, str]:
    of_b = _by_factors(b)
    cells = [(cell, of_b[key]) for key, cell in _by_factors(a).items() if key in of_b]
    return other_facts(a, b, cells, words=_values, between=between)


def _values(key: str, values: Sequence[str]) -> str:
    return ", ".join(one[:12] if key.endswith(("sha256", "bits")) else one for one in values)


def _by_factors(side: Side) -> Mapping[str, SideCell]:
    return {repr(sorted((k, repr(v)) for k, v in c.factors.items())): c for c in side.cells}


def _cells(runs: Sequence[ReadRun]) -> Iterator[list[SideCell | None]]:
    """Each cell as all runs have it; None if one has not."""
    by_run = [_by_factors(run.side) for run in runs]
    for key in dict.fromkeys(key for cells in by_run for key in cells):
        yield [cells.get(key) for cells in by_run]


def _figures(cells: Sequence[SideCell | None], metrics: Sequence[str]) -> Iterator[str]:
    """Names of the figures that at least one run has; a history without a failed trial needs no
    line for that."""
    names = dict.fromkeys(name for cell in cells if cell for name in cell.figures)
    for name in names:
        failed = any(cell.failed for cell in cells if cell)
        if failed if name == FAILED else is_compared(name, metrics):
            yield name


def _line(
    cells: Sequence[SideCell | None], name: str, runs: Sequence[HistoryRun], error: float
) -> Line:
    figure = figure_named(name)
    points = [_point(cell, name) for cell in cells]
    counted = [i for i, point in enumerate(points) if point.median is not None]
    values = [median for i in counted if (median := points[i].median) is not None]
    sign = -1 if name.startswith(CAPACITY) else 1
    margin = _margin_of(figure, [*filter(None, cells)])
    judged = judge([sign * value for value in values], margin, error=error)
    found = [*_found(figure, values, counted, runs, judged.places, margin)]
    answer: Literal["changed", "no change seen", "cannot tell"] = "no change seen"
    if found:
        answer = "changed"
    elif len(values) < values_needed(error / 2):
        answer = "cannot tell"
    best = None if judged.best is None else _stretch(*judged.best, counted, values)
    newest = None
    if judged.newest:
        newest = _stretch(len(values) - judged.newest, len(values), counted, values)
    unknown = ""
    if judged.verdict is RegressionVerdict.NO_WORSE:
        unknown = _without_value(len(points) - 1 - counted[-1]) or (
            _behind(cells, runs) if name == LOSS else ""
        )
    return Line(
        cell=next(cell.label for cell in cells if cell),
        metric=name,
        unit=figure.unit,
        verdict=VERDICTS[RegressionVerdict.CANNOT_TELL if unknown else judged.verdict],
        words=unknown or _judged_words(figure, judged, best, newest, runs),
        best=best,
        newest=newest,
        found_ratio=judged.found_ratio,
        answer=answer,
        margin=f"half of {_twice(figure)}" if figure.of_trials else figure.margin_words,
        points=points,
        changes=found,
        more_runs=judged.more or None,
    )


def _stretch(begin: int, end: int, counted: Sequence[int], values: Sequence[float]) -> Stretch:
    return Stretch(
        first=counted[begin], last=counted[end - 1], runs=end - begin,
        level=median(values[begin:end]),
    )  # fmt: skip


def _behind(cells: Sequence[SideCell | None], runs: Sequence[HistoryRun]) -> str:
    """Empty if the SUT of the newest run kept the pace of its load."""
    cell = cells[-1]
    words = "" if cell is None else cell.behind_words(LOSS)
    return f"cannot tell: {runs[-1].name} {words}" if words else ""


def _without_value(runs: int) -> str:
    """Empty if all of the newest have one."""
    if not runs:
        return ""
    have = "the newest run has" if runs == 1 else f"the newest {runs} runs have"
    return f"cannot tell: {have} no value, and may be worse"


def _judged_words(
    figure: Figure,
    judged: Judgement,
    best: Stretch | None,
    newest: Stretch | None,
    runs: Sequence[HistoryRun],
) -> str:
    if judged.why is Why.FEW or best is None or newest is None:
        return f"cannot tell yet (at least {count_of(judged.more, 'more run')})"
    twice = _twice(figure)
    within = f"within {NEWEST[-1]} runs"
    if judged.why is Why.SPREAD:
        percent = math.floor((judged.found_ratio or 0.0) * 100)
        return (
            f"cannot tell: runs spread so widely that a regression of {twice} would be found "
            f"{within} in {percent} % of cases; more trials in each run narrow them"
        )
    level = f"{figure.shown(best.level)} {figure.unit}".rstrip()
    place = f"the best stretch ({runs[best.first].name} to {runs[best.last].name})"
    if judged.verdict is RegressionVerdict.NO_WORSE:
        return f"no worse than {level} in {place}; a regression of {twice} would be found {within}"
    shift = f"{figure.signed(newest.level - best.level)} {figure.difference_unit}".rstrip()
    of = "the newest run" if newest.runs == 1 else f"the newest {newest.runs} runs"
    now = f"{figure.shown(newest.level)} {figure.unit}".rstrip()
    said = f"{now} in {of}, {level} in {place} ({shift})"
    if judged.verdict is RegressionVerdict.WORSE:
        return f"worse: {said}"
    return f"cannot tell yet: {said}, which chance can do; further runs tell"


def _twice(figure: Figure) -> str:
    if figure.of_trials:
        return "one trial in each run"
    if figure.loses:
        return f"{TIMES * MARGINS[figure.name]:.1f} points"
    return f"{TIMES * RELATIVE_MARGIN * 100:.0f} %"


def _margin_of(figure: Figure, cells: Sequence[SideCell]) -> Callable[[float], float]:
    """Level of the figure → its margin. For failures it is half of the share that one trial has of
    a run: twice that is one more failure."""
    if figure.of_trials:
        shares = [len(one.values) for cell in cells if (one := cell.figures.get(FAILED))]
        half = 50.0 / max(shares, default=1)
        return lambda _level: half
    return figure.margin


def _point(cell: SideCell | None, name: str) -> Point:
    if cell is None:
        return Point(median=None, lowest=None, highest=None, n=0, failed=0, void=0)
    repeats = cell.figures.get(name)
    values = by_start(repeats.values, repeats.starts) if repeats else []
    counts = bool(values) and not cell.crowded_words()
    return Point(
        median=_level(name, values) if counts else None,
        lowest=min(values, default=None),
        highest=max(values, default=None),
        n=len(values),
        failed=cell.failed,
        void=cell.void,
    )


def _level(name: str, values: Sequence[float]) -> float:
    """Level of a figure: its median. A median says nothing of trials that fail or do not; their
    level is the share that failed."""
    return sum(values) / len(values) if name == FAILED else median(values)


def _found(
    figure: Figure,
    values: Sequence[float],
    counted: Sequence[int],
    runs: Sequence[HistoryRun],
    places: Sequence[int],
    margin: Callable[[float], float],
) -> Iterator[Change]:
    bounds = [0, *places, len(values)]
    for (begin, at), end in zip(pairwise(bounds[:-1]), bounds[2:], strict=True):
        before, after = median(values[begin:at]), median(values[at:end])
        run = counted[at]
        # Runs without a value lie between those that the change was seen in.
        beside = [word for i in range(counted[at - 1] + 1, run + 1) for word in runs[i].changed]
        matters = abs(after - before) > margin(before)
        fell = after < before
        worse = matters and (fell if figure.name.startswith(CAPACITY) else not fell)
        yield Change(
            run=run,
            before=before,
            after=after,
            matters=matters,
            worse=worse,
            words=_words(figure, before, after, matters=matters, worse=worse),
            beside=beside,
        )


def _words(figure: Figure, before: float, after: float, *, matters: bool, worse: bool) -> str:
    shift = f"{figure.signed(after - before)} {figure.difference_unit}".rstrip()
    said = f"from {figure.shown(before)} to {figure.shown(after)} {figure.unit}".rstrip()
    kind = "worse" if worse else "better" if matters else f"within {figure.margin_words}"
    return f"{said} ({shift}): {kind}"


def _verdict(lines: Sequence[Line]) -> tuple[Literal["no worse", "worse", "cannot tell"], int]:
    if any(line.verdict == "worse" for line in lines):
        return "worse", WORSE
    if any(line.verdict == "cannot tell" for line in lines):
        return "cannot tell", NO_ANSWER
    return "no worse", ANSWERED


def _weak(runs: Sequence[ReadRun]) -> Iterator[str]:
    """Runs to be believed less, the newest ones first: it is they that a verdict judges."""
    weak = [run for run in reversed(runs) if run.side.weak]
    for run in weak[:MOST_WEAK]:
        yield f"{run.side.name}: {'; '.join(run.side.weak)}"
    if more := weak[MOST_WEAK:]:
        yield f"{count_of(len(more), 'older run')} with like reasons to be believed less"


def _crowded(runs: Sequence[ReadRun]) -> Iterator[str]:
    for run in runs:
        for cell in run.side.cells:
            if words := cell.crowded_words():
                yield f"{run.side.name}: {words}, so it has no value"


def _notes(lines: Sequence[Line], error: float) -> Iterator[str]:
    for line in {line.cell: line for line in lines}.values():
        failed = sum(point.failed for point in line.points)
        void = sum(point.void for point in line.points)
        if failed:
            yield f"{line.cell}: {count_of(failed, 'trial')} failed, and count in no other figure"
        if void:
            are = "is" if void == 1 else "are"
            yield f"{line.cell}: {count_of(void, 'trial')} {are} void, and in no figure"
    for line in lines:
        empty = sum(1 for point in line.points if point.median is None)
        if empty:
            runs = count_of(empty, "run")
            yield f"{line.cell}, {line.metric}: {runs} without a value, not counted"
    yield (
        f"{count_of(len(lines), 'line')}: if nothing changed, a change is seen, or the newest runs "
        "are called worse, in any of them with at most 5 %. That takes at least "
        f"{values_needed(error / 2)} runs with a value"
    )
    yield (
        "a change is placed at the likeliest run; what changed beside it need not be its cause, "
        "and a slow drift is seen as a change too"
    )


FEWEST_APART = 2
"""One run beyond all others is the newest of n in one history of n, by chance."""


def _apart_words(medians: Sequence[float | None]) -> str:
    """Newest runs beyond all before them, too few for a change to be shown; empty if none are."""
    known = [median for median in medians if median is not None]
    for newest in range(len(known) // 2, FEWEST_APART - 1, -1):
        before, last = known[:-newest], known[-newest:]
        where = "above" if min(last) > max(before) else "below" if max(last) < min(before) else ""
        if where:
            all_before = f"all {len(before)} before"
            return f": the last {newest} lie {where} {all_before}; a further run decides"
    return ""


def change_words(found: History, line: Line) -> Iterator[str]:
    if not line.changes:
        yield "no change shown" + _apart_words([point.median for point in line.points])
    for change in line.changes:
        beside = f"; beside it: {', '.join(change.beside)}" if change.beside else ""
        alone = change.run == max(i for i, p in enumerate(line.points) if p.median is not None)
        again = "; one run alone: measure it again" if alone else ""
        yield f"at {found.runs[change.run].name}: {change.words}{again}{beside}"
