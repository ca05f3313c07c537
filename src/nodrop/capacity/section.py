"""The capacity section: of each searched cell its answers, its knee, what a core carries, and how
the search went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nodrop.capacity.pictures import (
    Efficiency,
    capacity_bars,
    caption_of,
    efficiency,
    efficiency_table,
    efficiency_words,
    knee_of,
    knee_plot,
    way_of,
)
from nodrop.capacity.search_answer import Answer, Bound
from nodrop.capacity.searched_cells import SearchedCell, searches
from nodrop.capacity.statements import ramp_words, writing
from nodrop.capacity.words import curves_table, forecast_words, limit_words, stand_apart
from nodrop.findings.load_words import value_words
from nodrop.ledger.over_time import duration
from nodrop.report import escape, numbers
from nodrop.report.bounded import shortened
from nodrop.report.chart import Chart
from nodrop.report.sections import Picture
from nodrop.report.story import Story
from nodrop.report.tables import Column, Made, Row, Table, Value, numeric, text
from nodrop.report.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityView:
    """One searched cell as the page shows it."""

    name: str
    answers: Table
    knee: Chart
    caption: str
    """Caption of the knee, with what the curve says or why there is none."""
    efficiency: str
    budget: str
    """A sentence on what the budget was likely to buy and what it bought; empty if that was not
    foreseen."""
    way: Chart
    steps: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySection:
    views: tuple[CapacityView, ...]
    bars: Chart
    """Empty if there is one cell alone."""


def capacity_section(story: Story) -> CapacitySection | None:
    """None if no load was searched."""
    found = searches(story)
    if not found:
        return None
    views = tuple(_view(one, number) for number, one in enumerate(found, 1))
    return CapacitySection(views=views, bars=capacity_bars(found))


def capacity_tables(story: Story) -> Iterator[Table]:
    """Answers, what a core carries, curves and steps of all searched cells, as files."""
    found = searches(story)
    if found:
        yield capacity_table(found)
        if work := list(efficiencies(found)):
            yield efficiency_table(work)
        yield curves_table(found)
        yield steps_table(*found)


def capacity_pictures(story: Story) -> Iterator[Picture]:
    """Knee and search of each searched cell; then all of them side by side."""
    found = searches(story)
    for n, searched in enumerate(found, 1):
        end, steps = "" if n == 1 else f"-{n}", steps_table(searched)
        yield Picture(f"knee{end}", knee_plot(knee_of(searched)), steps)
        yield Picture(f"search{end}", way_of(searched), steps)
    if found:
        yield Picture("capacity", capacity_bars(found), capacity_table(found))


def efficiencies(found: Sequence[SearchedCell]) -> Iterator[tuple[str, Efficiency]]:
    """Name and efficiency of each cell that shows one."""
    for one in found:
        if work := efficiency(trial.record for trial in one.trials):
            yield one.subject, work


def _view(searched: SearchedCell, number: int) -> CapacityView:
    steps = steps_table(searched)
    columns = steps.columns[1:]
    own = [replace(row, values=row.values[1:]) for row in steps.rows]
    knee = knee_of(searched)
    return CapacityView(
        name=searched.subject,
        answers=capacity_table([searched], name=f"capacity-{number}"),
        knee=knee_plot(knee),
        caption=caption_of(searched, knee),
        efficiency=efficiency_words(
            searched.subject, efficiency(t.record for t in searched.trials)
        ),
        budget=forecast_words(searched),
        way=way_of(searched),
        steps=shortened(replace(steps, columns=columns, rows=own), "search"),
    )


def steps_table(*searched: SearchedCell) -> Table:
    """Every trial, in the order in which it was measured."""
    missed = any(one.by_detections for one in searched)
    at = [column.name for column in STEP_COLUMNS].index("busiest_thread_pct")
    columns = (*STEP_COLUMNS[:at], MISSED, *STEP_COLUMNS[at:]) if missed else STEP_COLUMNS

    def rows() -> Iterator[Row]:
        for row, ratio in (step for one in searched for step in _steps(one)):
            shown = Value(raw=None if ratio is None else ratio * 100, shown=numbers.percent(ratio))
            values = (*row.values[:at], shown, *row.values[at:]) if missed else row.values
            yield replace(row, values=values)

    return Table(name="search", title="How the search went", columns=columns, rows=Made(rows))


ANSWER_COLUMNS = (
    Column(name="cell", title="Cell"),
    numeric("goal_loss_ratio", "Tolerated loss, %"),
    numeric("carried_pps", "Carried, packets/s", "The highest load that was carried"),
    numeric("carried_bps", "Mbit/s"),
    Column(name="carried", title="which is"),
    numeric("not_carried_pps", "Not carried, packets/s", "The lowest load above it that was not"),
    numeric("not_carried_bps", "Mbit/s"),
    Column(name="not_carried", title="which is"),
    Column(name="confidence", title="Confidence"),
    Column(
        name="rounds",
        title="Between rounds",
        help="What rounds carried, each with a new start of the SUT",
    ),
    Column(name="limited_by", title="Limited by"),
    Column(name="place", title="Where"),
)


def capacity_table(found: Sequence[SearchedCell], *, name: str = "capacity") -> Table:
    """A row for each cell and goal."""
    rows = tuple(_answer_row(one, answer) for one in found for answer in one.answers)
    columns = ANSWER_COLUMNS
    if any(one.by_detections for one in found):
        goal = numeric("goal_ratio", "Tolerated, %", "of packets lost or of detections missed")
        columns = (columns[0], goal, *columns[2:])
    return Table(name=name, title="What is carried", columns=columns, rows=rows)


def _answer_row(searched: SearchedCell, answer: Answer) -> Row:
    return Row(
        values=(
            text(searched.subject),
            Value(raw=answer.goal, shown=numbers.percent(answer.goal)),
            *_bound_values(answer.by, answer.lower),
            *_bound_values(answer.by, answer.upper),
            text(answer.confidence.level if answer.confidence else numbers.NOT_MEASURED),
            text(between_words(answer)),
            text(limit_words(answer)),
            text(answer.place or numbers.NOT_MEASURED),
        )
    )


def _bound_values(by: str, bound: Bound | None) -> tuple[Value, Value, Value]:
    pps, bps = (bound.pps, bound.bps) if bound else (None, None)
    return (
        Value(raw=pps, shown=numbers.rate(pps)),
        Value(raw=bps, shown=numbers.megabits(bps)),
        text(value_words(by, bound.value) if bound else numbers.NOT_MEASURED),
    )


def between_words(answer: Answer) -> str:
    """`4,100 to 4,300 packets/s (61X to 62X) in 3 rounds`: between starts of the SUT, never within
    one search."""
    between = answer.between
    if between is None:
        cut = any(one.lower is not None for one in answer.rounds)
        return "not known: the budget cut each short" if cut else "no round carried a load"
    if between.n == 1:
        return "one round"
    loads = writing(answer)
    said = f"{loads.span(between.lowest, between.highest, up=False)} in {between.n} rounds"
    if between.interval is None:
        return said
    return f"{said}; 95 % interval {loads.span(between.interval.low, between.interval.high)}"


STEP_COLUMNS = (
    Column(name="cell", title="Cell"),
    Column(name="run", title="Trial"),
    numeric("round", "Round"),
    Column(name="load", title="Load"),
    numeric("offered_pps", "Offered, packets/s"),
    numeric("duration_s", "For, s"),
    numeric("loss_pct", "Lost, %"),
    numeric("busiest_thread_pct", "Busiest thread, %"),
    Column(name="kept_pace", title="Kept the pace"),
    Column(name="says", title="What it says"),
)


MISSED = numeric("missed_pct", "Detections missed, %", "of those expected")


def _steps(searched: SearchedCell) -> Iterator[tuple[Row, float | None]]:
    """Each with the part of the detections that was missed."""
    apart = stand_apart(searched)
    for one in (*searched.ramps, *searched.trials):
        yield _step(searched, one, apart.get(one.name, "")), one.record.detection_loss_ratio


def _step(searched: SearchedCell, trial: Trial, apart: str) -> Row:
    record, tried = trial.record, trial.record.searched
    loss, busy = record.packets.loss_ratio, record.busiest_thread
    kept = {True: "yes", False: "no", None: "not shown"}[record.packets.sustained]
    value = "" if tried is None else value_words(tried.by, tried.value)
    says = record.verdict
    if tried is not None and tried.ramp is not None:
        value = f"a ramp from {value_words(tried.by, tried.ramp.start)} to {value}"
        kept, says = "a ramp decides nothing", f"{ramp_words(tried.by, tried.ramp)} ({says})"
    seconds = record.offered.duration_s
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
            text("; ".join(filter(None, [escape.plain(says, longest=200), apart]))),
        ),
        anchor=trial.anchor,
        mark=trial.mark,
    )
