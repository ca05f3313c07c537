"""Figures as files: SVG for papers, and the numbers behind each as csv."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from nodrop.report.capacity import capacity_table, efficiencies, steps_table
from nodrop.report.capacity_pictures import capacity_bars, core_bars, knee_of, way_of
from nodrop.report.cell_charts import loss_plot, order_plot, repeats_plot
from nodrop.report.chart import Chart
from nodrop.report.charts import knee_plot
from nodrop.report.efficiency import efficiency_table
from nodrop.report.figures import LEDGER_COLUMNS, ledger_lines
from nodrop.report.flows import flow, time_chart
from nodrop.report.published import published
from nodrop.report.repeats import repeats, repeats_table
from nodrop.report.searched import searches
from nodrop.report.setups_section import SetupsSection, setups_drawings
from nodrop.report.story import Cell, Story
from nodrop.report.tables import Column, Made, Row, Table, Value, numeric, text
from nodrop.report.timeline import timeline

MOST_CELLS = 60
"""Of so many cells the typical trial is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureFile:
    name: str
    svg: str
    table: Table


def figure_files(story: Story, setups: SetupsSection | None) -> Iterator[FigureFile]:
    """Loss, order, repetitions, the setups, and of each cell's typical trial the flow and the trial
    over time."""
    planned = [cell for cell in story.cells if not cell.searched]
    yield from _figure("loss", loss_plot(planned), _loss_table(story))
    yield from _of_searches(story)
    yield from _figure("order", order_plot(story), _order_table(story))
    repeated = repeats(story)
    yield from _figure("repeats", repeats_plot(repeated), repeats_table(repeated))
    for drawn in setups_drawings(setups):
        yield from _figure(drawn.name, drawn.drawing, drawn.table)
    for cell in story.cells[:MOST_CELLS]:
        yield from _of_typical(story, cell)
    for number, found in enumerate(published(story), 1):
        for chart in found.charts:
            name = f"{chart.name}-{number}" if number > 1 else chart.name
            yield from _figure(name, chart.drawing, chart.table)


def _of_searches(story: Story) -> Iterator[FigureFile]:
    found = searches(story)
    for number, searched in enumerate(found, 1):
        end = "" if number == 1 else f"-{number}"
        yield from _figure(f"knee{end}", knee_plot(knee_of(searched)), steps_table(searched))
        yield from _figure(f"search{end}", way_of(searched), steps_table(searched))
    if found:
        yield from _figure("capacity", capacity_bars(found), capacity_table(found))
        work = efficiencies(found)
        yield from _figure("efficiency", core_bars(found), efficiency_table(work))


def _of_typical(story: Story, cell: Cell) -> Iterator[FigureFile]:
    trial = cell.typical
    # Run names are safe as file names: the trial record allows no other.
    name = f"{trial.source}-{trial.name}" if story.several else trial.name
    if ledger := trial.ledger:
        table = Table(
            name="flow",
            title="Packet flow",
            columns=LEDGER_COLUMNS[2:],
            rows=tuple(Row(values=line) for line in ledger_lines(ledger)),
        )
        drawn = flow(ledger, f"Packet flow of {trial.name}")
        yield from _figure(f"flow-{name}", drawn, table)
    found = timeline(story.sources[trial.source], trial)
    if found:
        drawn = time_chart([found], f"{trial.name} over time")
        yield from _figure(f"time-{name}", drawn, found.table())


def _figure(name: str, drawn: Chart, table: Table) -> Iterator[FigureFile]:
    if drawn:
        yield FigureFile(name=name, svg=drawn.saved(style()), table=table)


def style() -> str:
    """The style of all charts, in the light colours."""
    return (files("nodrop.report") / "templates" / "chart.css").read_text(encoding="utf-8")


def _loss_table(story: Story) -> Table:
    columns = (
        Column(name="cell", title="Cell"),
        Column(name="run", title="Run"),
        numeric("offered_pps", "Offered, packets/s"),
        numeric("loss_ratio", "Loss"),
    )
    rows = Made(
        lambda: (
            Row(
                values=(
                    text(cell.label),
                    text(trial.name),
                    _number(trial.offered_pps),
                    _number(trial.loss_ratio),
                )
            )
            for cell in story.cells
            for trial in cell.valid
        )
    )
    return Table(name="loss", title="Loss over offered load", columns=columns, rows=rows)


def _order_table(story: Story) -> Table:
    columns = (
        Column(name="run", title="Run"),
        numeric("activation_s", "Activation, s"),
        Column(name="outcome", title="Outcome"),
    )
    rows = Made(
        lambda: (
            Row(
                values=(
                    text(t.name),
                    _number(t.activation_s),
                    text(t.outcome),
                )
            )
            for t in story.trials
        )
    )
    return Table(name="order", title="Activation by order", columns=columns, rows=rows)


def _number(value: float | None) -> Value:
    return Value(raw=value, shown="" if value is None else f"{value:g}")
