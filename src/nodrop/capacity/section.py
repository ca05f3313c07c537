"""The capacity section: of each searched cell its answers, its knee, what a core carries, and how
the search went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nodrop.capacity.findings import ramp_words
from nodrop.capacity.load_words import value_words
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
from nodrop.capacity.words import (
    between_words,
    curves_table,
    forecast_words,
    limit_words,
    stand_apart,
)
from nodrop.ledger.over_time import duration
from nodrop.report import escape, numbers
from nodrop.report.bounded import shortened
from nodrop.report.chart import Chart
from nodrop.report.sections import Picture
from nodrop.report.story import Story
from nodrop.report.tables import Field, Made, Table, number, own, table_of, without, words
from nodrop.results.trial import TrialRecord


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
    """Bars of the cells; empty if there is one cell alone."""


def capacity_section(story: Story) -> CapacitySection | None:
    """None if no load was searched."""
    cells = searches(story)
    if not cells:
        return None
    views = tuple(_view(cell, n) for n, cell in enumerate(cells, 1))
    return CapacitySection(views=views, bars=capacity_bars(cells))


def capacity_tables(story: Story) -> Iterator[Table]:
    """Answers, what a core carries, curves and steps of all searched cells, as files."""
    cells = searches(story)
    if cells:
        yield capacity_table(cells)
        if work := list(efficiencies(cells)):
            yield efficiency_table(work)
        yield curves_table(cells)
        yield steps_table(*cells)


def capacity_pictures(story: Story) -> Iterator[Picture]:
    """Knee and search of each searched cell; then all of them side by side."""
    cells = searches(story)
    for n, searched in enumerate(cells, 1):
        end, steps = "" if n == 1 else f"-{n}", steps_table(searched)
        yield Picture(f"knee{end}", knee_plot(knee_of(searched)), steps)
        yield Picture(f"search{end}", way_of(searched), steps)
    if cells:
        yield Picture("capacity", capacity_bars(cells), capacity_table(cells))


def efficiencies(cells: Sequence[SearchedCell]) -> Iterator[tuple[str, Efficiency]]:
    """Name and efficiency of each cell that shows one."""
    each = ((cell.subject, efficiency(trial.record for trial in cell.trials)) for cell in cells)
    yield from ((name, work) for name, work in each if work)


def _view(searched: SearchedCell, n: int) -> CapacityView:
    knee = knee_of(searched)
    return CapacityView(
        name=searched.subject,
        answers=capacity_table([searched], name=f"capacity-{n}"),
        knee=knee_plot(knee),
        caption=caption_of(searched, knee),
        efficiency=efficiency_words(
            searched.subject, efficiency(t.record for t in searched.trials)
        ),
        budget=forecast_words(searched),
        way=way_of(searched),
        steps=shortened(without(steps_table(searched), {"cell"}), "search"),
    )


Answered = tuple[SearchedCell, Answer]


def _end(
    name: str, title: str, help: str, of: Callable[[Answer], Bound | None]
) -> tuple[Field[Answered], ...]:
    """A bound in packets/s, in bits/s, and as it was asked for."""

    def asked(x: Answered) -> str:
        bound = of(x[1])
        return value_words(x[1].by, bound.value) if bound else numbers.NOT_MEASURED

    return (
        number(f"{name}_pps", title, lambda x: bound.pps if (bound := of(x[1])) else None,
               numbers.rate, help=help),
        number(f"{name}_bps", "Mbit/s", lambda x: bound.bps if (bound := of(x[1])) else None,
               numbers.megabits),
        words(name, "which is", asked),
    )  # fmt: skip


def _goal(name: str, title: str, help: str = "") -> Field[Answered]:
    return number(name, title, lambda x: x[1].goal, numbers.percent, help=help)


ANSWER_FIELDS: tuple[Field[Answered], ...] = (
    *_end("carried", "Carried, packets/s", "The highest load that was carried", lambda a: a.lower),
    *_end("not_carried", "Not carried, packets/s", "The lowest load above it that was not",
          lambda a: a.upper),
    words("confidence", "Confidence",
          lambda x: x[1].confidence.level if x[1].confidence else numbers.NOT_MEASURED),
    words("rounds", "Between rounds", lambda x: between_words(x[1]),
          "What rounds carried, each with a new start of the SUT"),
    words("limited_by", "Limited by", lambda x: limit_words(x[1])),
    words("place", "Where", lambda x: x[1].place or numbers.NOT_MEASURED),
)  # fmt: skip


def capacity_table(cells: Sequence[SearchedCell], *, name: str = "capacity") -> Table:
    """A row for each cell and goal."""
    goal = _goal("goal_loss_ratio", "Tolerated loss, %")
    if any(one.by_detections for one in cells):
        goal = _goal("goal_ratio", "Tolerated, %", "of packets lost or of detections missed")
    answers = ((one, answer) for one in cells for answer in one.answers)
    cell: Field[Answered] = words("cell", "Cell", lambda x: x[0].subject)
    return table_of(name, "What is carried", (cell, goal, *ANSWER_FIELDS), answers)


@dataclass(frozen=True, slots=True)
class _SearchTrial:
    """A trial of a search; its record is unpacked once."""

    searched: SearchedCell
    record: TrialRecord
    anchor: str
    mark: str
    apart: str
    """The way in which it stands apart; empty if it does not."""

    @property
    def load(self) -> str:
        tried = self.record.searched
        if tried is None:
            return ""
        value = value_words(tried.by, tried.value)
        ramp = tried.ramp
        return (
            value if ramp is None else f"a ramp from {value_words(tried.by, ramp.start)} to {value}"
        )

    @property
    def kept_pace(self) -> str:
        if not self.record.valid:
            return self.record.outcome
        if self.record.searched is not None and self.record.searched.ramp is not None:
            return "a ramp decides nothing"
        return {True: "yes", False: "no", None: "not shown"}[self.record.packets.sustained]

    @property
    def says(self) -> str:
        said, tried = self.record.verdict, self.record.searched
        if tried is not None and tried.ramp is not None:
            said = f"{ramp_words(tried.by, tried.ramp)} ({said})"
        return "; ".join(filter(None, [escape.plain(said, longest=200), self.apart]))


STEP_FIELDS: tuple[Field[_SearchTrial], ...] = (
    words("cell", "Cell", lambda x: x.searched.subject),
    words("run", "Trial", lambda x: x.record.run),
    own("round", "Round", lambda x: x.record.searched.round if x.record.searched else None,
        lambda _: str, missing=""),
    words("load", "Load", lambda x: x.load),
    number("offered_pps", "Offered, packets/s", lambda x: x.record.offered.pps),
    own("duration_s", "For, s", lambda x: x.record.offered.duration_s, lambda _: duration,
        missing=""),
    number("loss_pct", "Lost, %", lambda x: x.record.packets.loss_ratio, numbers.percent,
           scale=100),
    number("missed_pct", "Detections missed, %", lambda x: x.record.detection_loss_ratio,
           numbers.percent, scale=100, help="of those expected"),
    number("busiest_thread_pct", "Busiest thread, %",
           lambda x: busy.cpu_ratio if (busy := x.record.busiest_thread) else None,
           numbers.whole_percent, scale=100),
    words("kept_pace", "Kept the pace", lambda x: x.kept_pace),
    words("says", "What it says", lambda x: x.says),
)  # fmt: skip


def steps_table(*searched: SearchedCell) -> Table:
    """Every trial, in the order in which it was measured."""

    def steps() -> Iterator[_SearchTrial]:
        for one in searched:
            apart = stand_apart(one)
            yield from (
                _SearchTrial(one, t.record, t.anchor, t.mark, apart.get(t.name, ""))
                for t in (*one.ramps, *one.trials)
            )

    missed = any(one.by_detections for one in searched)
    fields = [one for one in STEP_FIELDS if missed or one.column.name != "missed_pct"]
    return table_of("search", "How the search went", fields, Made(steps),
                    anchor=lambda x: x.anchor, mark=lambda x: x.mark)  # fmt: skip
