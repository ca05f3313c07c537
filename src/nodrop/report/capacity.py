"""The capacity section: of each searched cell its answers, its knee, what a core carries, and how
the search went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from nodrop.findings.answer import Answer, Bound
from nodrop.findings.capacity_statements import value_words
from nodrop.ledger.sustained import duration
from nodrop.report import escape, numbers
from nodrop.report.bounded import shortened
from nodrop.report.capacity_words import goal_name, limit_words
from nodrop.report.efficiency import Efficiency, efficiency
from nodrop.report.fitted import deciding, fitted, fitted_words, stand_apart
from nodrop.report.knee import dots, voids
from nodrop.report.knee_plot import CurvePoint, Knee, knee_plot
from nodrop.report.search_plot import Step, search_plot
from nodrop.report.searched import SearchedCell, searches
from nodrop.report.stacked_bars import Bar, Part, stacked_bars
from nodrop.report.story import Story
from nodrop.report.tables import Column, Made, Row, Table, Value, text
from nodrop.report.trials import Trial
from nodrop.stats.interval import Summary
from nodrop.stats.loss_curve import NoCurve

STYLE = "p-decoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityView:
    """One searched cell as the page shows it."""

    name: str
    answers: Table
    knee: Markup
    caption: str
    """Of the knee; what the curve says is in it, or why there is none."""
    efficiency: str
    way: Markup
    steps: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySection:
    views: tuple[CapacityView, ...]
    bars: Markup
    """Empty if there is one cell alone."""
    cores: Markup
    """What a busy core carries, cell by cell; empty as well."""


def capacity_section(story: Story) -> CapacitySection | None:
    """None if no load was searched."""
    found = searches(story)
    if not found:
        return None
    views = tuple(_view(one, number) for number, one in enumerate(found, 1))
    return CapacitySection(views=views, bars=_bars(found), cores=_cores(found))


def capacity_tables(story: Story) -> Iterator[Table]:
    """Answers and steps of all searched cells, as files."""
    found = searches(story)
    if found:
        yield _answers_table(found, name="capacity")
        yield steps_table(*found)


def _view(searched: SearchedCell, number: int) -> CapacityView:
    steps = steps_table(searched)
    own = [replace(row, values=row.values[1:]) for row in steps.rows]
    knee = knee_of(searched)
    return CapacityView(
        name=searched.subject,
        answers=_answers_table([searched], name=f"capacity-{number}"),
        knee=knee_plot(knee),
        caption=_caption(searched, knee),
        efficiency=_efficiency_words(_efficiency(searched)),
        way=way_of(searched),
        steps=shortened(replace(steps, columns=STEP_COLUMNS[1:], rows=own), "search"),
    )


def _caption(searched: SearchedCell, knee: Knee) -> str:
    said = [f"Every trial of {searched.subject}, at the load that was really sent."]
    if knee.voids:
        said.append("Above the plot: void ones, which say nothing of the SUT.")
    if any(dot.busiest_cpu_ratio is not None for dot in knee.dots):
        said.append("Squares, on the right axis: its busiest thread.")
    if knee.answer_pps:
        said.append(
            "The upright band runs from the highest load that was carried to the lowest above it "
            "that was not."
        )
    said.append(fitted_words(fitted(searched)))
    if knee.curve:
        said.append(
            "The curve says what is lost once the rings are full: a short trial may lose less."
        )
    if any(dot.apart for dot in knee.dots):
        said.append("What stands apart is marked, and is in every figure like the others.")
    return " ".join(said)


def steps_table(*searched: SearchedCell) -> Table:
    """Every trial, in the order in which it was measured."""
    rows = Made(lambda: (_step(one, trial) for one in searched for trial in one.trials))
    return Table(name="search", title="How the search went", columns=STEP_COLUMNS, rows=rows)


def knee_of(searched: SearchedCell) -> Knee:
    """Every trial of it, where its first goal's answer lies, and the loss curve of its trials."""
    records = [trial.record for trial in searched.trials]
    offered = [pps for one in deciding(searched) if (pps := one.record.offered.per_s)]
    return Knee(
        title=f"The knee of {searched.subject}",
        dots=dots(records, stand_apart(searched)),
        voids=voids(records),
        answer_pps=_interval_pps(searched.answers[0]) if searched.answers else None,
        near_pps=(min(offered), max(offered)) if offered else None,
        curve=tuple(_curve(searched)),
    )


CURVE_POINTS = 60


def _curve(searched: SearchedCell) -> Iterator[CurvePoint]:
    """Over the loads of the trials that it was fitted to, and no further."""
    found = fitted(searched)
    if isinstance(found, NoCurve):
        return
    offered = [pps for one in deciding(searched) if (pps := one.record.offered.per_s)]
    low, high = min(offered), max(offered)
    evenly = {low + (high - low) * n / CURVE_POINTS for n in range(CURVE_POINTS + 1)}
    bends = {found.low_pps, found.capacity_pps, found.high_pps}
    for pps in sorted(evenly | {bend for bend in bends if low < bend < high}):
        least, most = found.band(pps)
        yield CurvePoint(
            pps=pps, loss_ratio=found.loss_ratio(pps), low_ratio=least, high_ratio=most
        )


def way_of(searched: SearchedCell) -> Markup:
    """Its trials in their order: load and outcome."""
    records = [trial.record for trial in searched.trials]
    drawn = {dot.run: dot for dot in (*dots(records, stand_apart(searched)), *voids(records))}
    steps = [
        Step(dot=drawn[record.run], round=record.searched.round if record.searched else 1)
        for record in records
        if record.run in drawn
    ]
    return search_plot(f"The search of {searched.subject}, trial by trial", steps)


def _interval_pps(answer: Answer) -> tuple[float, float] | None:
    """Within the search: from the load that was carried to the next one that was not."""
    low = answer.lower.pps if answer.lower else None
    high = answer.upper.pps if answer.upper else None
    return None if low is None or high is None else (min(low, high), max(low, high))


ANSWER_COLUMNS = (
    Column(name="cell", title="Cell"),
    Column(name="goal_loss_ratio", title="Tolerated loss, %", numeric=True),
    Column(name="carried", title="Carried", help="The highest load that was carried"),
    Column(name="carried_pps", title="packets/s", numeric=True),
    Column(name="carried_bps", title="Mbit/s", numeric=True),
    Column(name="not_carried", title="Not carried", help="The lowest load above it that was tried"),
    Column(name="not_carried_pps", title="packets/s", numeric=True),
    Column(name="not_carried_bps", title="Mbit/s", numeric=True),
    Column(
        name="rounds",
        title="Between rounds",
        help="What rounds carried, each with a new start of the SUT",
    ),
    Column(name="limited_by", title="Limited by"),
    Column(name="place", title="Where"),
)


def _answers_table(found: Sequence[SearchedCell], *, name: str) -> Table:
    rows = tuple(_answer_row(one, answer) for one in found for answer in one.answers)
    return Table(name=name, title="What is carried", columns=ANSWER_COLUMNS, rows=rows)


def _answer_row(searched: SearchedCell, answer: Answer) -> Row:
    return Row(
        values=(
            text(searched.subject),
            Value(raw=answer.goal, shown=numbers.percent(answer.goal)),
            *_bound_values(answer.by, answer.lower),
            *_bound_values(answer.by, answer.upper),
            text(between_words(answer)),
            text(limit_words(answer)),
            text(answer.place or numbers.NOT_MEASURED),
        )
    )


def _bound_values(by: str, bound: Bound | None) -> tuple[Value, Value, Value]:
    pps, bps = (bound.pps, bound.bps) if bound else (None, None)
    return (
        text(value_words(by, bound.value) if bound else numbers.NOT_MEASURED),
        Value(raw=pps, shown=numbers.count(pps)),
        Value(raw=bps, shown=numbers.megabits(bps)),
    )


def between_words(answer: Answer) -> str:
    """`61.1X to 61.9X in 3 rounds`: between starts of the SUT, never within one search."""
    between = answer.between
    if between is None:
        return "none carried any"
    if between.n == 1:
        return "one round"
    low, high = between.lowest, between.highest
    said = f"{value_words(answer.by, low)} to {value_words(answer.by, high)} in {between.n} rounds"
    if between.interval is None:
        return said
    ends = (value_words(answer.by, end) for end in (between.interval.low, between.interval.high))
    return f"{said}; 95 % interval {' to '.join(ends)}"


def _bars(found: Sequence[SearchedCell]) -> Markup:
    if len(found) < 2 or not any(answer.lower for one in found for answer in one.answers):
        return Markup("")
    return stacked_bars(
        "Capacity, cell by cell",
        "packets/s that were carried; the line: up to the load that was not",
        [_bar(one, answer) for one in found for answer in one.answers],
    )


def _bar(searched: SearchedCell, answer: Answer) -> Bar:
    pps = answer.lower.pps if answer.lower else None
    cell, goal = searched.label or searched.subject, goal_name(answer.goal)
    words = "none found" if pps is None else f"{numbers.count(pps)} packets/s"
    if answer.lower is not None and answer.by != "pps":
        words = f"{value_words(answer.by, answer.lower.value)}: {words}"
    part = Part(kind="carried", value=pps or 0.0, says=f"{cell}, {goal}: {words}", style=STYLE)
    several = len(searched.answers) > 1
    return Bar(
        name=goal if several else cell,
        group=cell if several else "",
        parts=(part,),
        words=words,
        interval=_interval_pps(answer),
    )


def _efficiency(searched: SearchedCell) -> Efficiency | None:
    return efficiency(trial.record for trial in searched.trials)


def _cores(found: Sequence[SearchedCell]) -> Markup:
    known = [(one, work) for one in found if (work := _efficiency(one)) is not None]
    if len(known) < 2:
        return Markup("")
    return stacked_bars(
        "What a busy core carries, cell by cell",
        "packets for each second of CPU time; the line: 95 % interval of the median start",
        [_core_bar(one.label or one.subject, work) for one, work in known],
    )


def _core_bar(name: str, work: Efficiency) -> Bar:
    found = work.packets
    words = _with_spread(found, numbers.count)
    part = Part(kind="packets", value=found.median, says=f"{name}: {words} packets", style=STYLE)
    between = (found.interval.low, found.interval.high) if found.interval else None
    return Bar(name=name, parts=(part,), words=words, interval=between)


def _efficiency_words(found: Efficiency | None) -> str:
    """Empty if no trial shows it."""
    if found is None:
        return ""
    words = f"{_with_spread(found.packets, numbers.count)} packets"
    if found.bits is not None:
        words += f" and {_with_spread(found.bits, numbers.megabits)} Mbit"
    return f"A busy core carries {words} a second."


def _with_spread(summary: Summary, shown: numbers.Shown) -> str:
    """With the interval between starts of the SUT; without one, with their range."""
    said = shown(summary.median)
    if summary.interval:
        return f"{said} {numbers.between(summary.interval.low, summary.interval.high, shown)}"
    if summary.n == 1:
        return f"{said} (one start of the SUT)"
    return f"{said} ({shown(summary.low)} to {shown(summary.high)} in {summary.n} starts)"


STEP_COLUMNS = (
    Column(name="cell", title="Cell"),
    Column(name="run", title="Trial"),
    Column(name="round", title="Round", numeric=True),
    Column(name="load", title="Load"),
    Column(name="offered_pps", title="Offered, packets/s", numeric=True),
    Column(name="duration_s", title="For, s", numeric=True),
    Column(name="loss_pct", title="Lost, %", numeric=True),
    Column(name="busiest_thread_pct", title="Busiest thread, %", numeric=True),
    Column(name="kept_pace", title="Kept the pace"),
    Column(name="says", title="What it says"),
)


def _step(searched: SearchedCell, trial: Trial) -> Row:
    record, tried = trial.record, trial.record.searched
    loss, busy = record.packets.loss_ratio, record.busiest_thread
    kept = {True: "yes", False: "no", None: "not shown"}[record.packets.sustained]
    value = "" if tried is None else value_words(tried.by, tried.value)
    seconds = tried.duration_s if tried else None
    cpu = None if busy is None else busy.cpu_ratio * 100
    return Row(
        values=(
            text(searched.subject),
            text(record.run),
            Value(raw=tried.round if tried else None, shown=str(tried.round if tried else "")),
            text(value),
            Value(raw=record.offered.per_s, shown=numbers.count(record.offered.per_s)),
            Value(raw=seconds, shown="" if seconds is None else duration(seconds)),
            Value(raw=None if loss is None else loss * 100, shown=numbers.percent(loss)),
            Value(raw=cpu, shown=numbers.count(cpu)),
            text(kept if record.valid else record.outcome),
            text(escape.plain(record.verdict, longest=200)),
        ),
        anchor=trial.anchor,
        mark=trial.mark,
    )
