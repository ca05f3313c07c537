"""The part of the report that lays setups side by side: figures, tables and words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodrop.report.activation import (
    activation_bars,
    activation_table,
    activations,
    phase_names,
    phases_page_table,
)
from nodrop.report.cell_charts import comparison_plot, studies_plot
from nodrop.report.chart import Chart
from nodrop.report.charts import stacked_bars
from nodrop.report.clock_costs import clock_costs, costs_table, costs_words
from nodrop.report.comparison import (
    Compared,
    compared,
    comparison_table,
    family_words,
    figures_of,
)
from nodrop.report.costs import Figure
from nodrop.report.flows import time_chart
from nodrop.report.instances import instance_bars, instances_table, shared
from nodrop.report.ledger_bars import ledger_bars, ledger_bars_table
from nodrop.report.panels import RECEIVED, Panel, Series, Timeline
from nodrop.report.setups import Condition, Place, conditions, setup_names
from nodrop.report.story import Story
from nodrop.report.studies import StudyFigure, studies_table, studies_words, study_figures
from nodrop.report.tables import Table
from nodrop.report.timeline import CPU_TITLE, MEMORY_TITLE, USED, busy, timeline

MOST_OVERLAYS = 6
MOST_LINES = 8
FROM_S = -1.0
"""What came before is a guest's discarded load, which the others have not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow:
    name: str
    anchor: str
    n: int
    items: tuple[Compared, ...]
    """One per figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionRows:
    label: str
    rows: tuple[PlaceRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure with the numbers behind it."""

    name: str
    """For files."""
    title: str
    drawing: Chart
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupsSection:
    figures: tuple[Figure, ...]
    conditions: tuple[ConditionRows, ...]
    family: str
    """What is compared at once."""
    emulated: tuple[str, ...]
    """Setups that ran on an emulated machine."""
    costs: Drawing
    fates: Drawing
    activation: Drawing
    phases: Table
    instances: Drawing | None
    over_time: tuple[Drawing, ...]
    study: Drawing | None
    study_words: str
    clock: Table | None
    clock_words: tuple[str, ...]


def setups_section(story: Story) -> SetupsSection | None:
    """None if the run has only one setup."""
    found = conditions(story)
    if not found:
        return None
    figures = figures_of(found)
    study = study_figures(story, found)
    clocks = clock_costs(found)
    return SetupsSection(
        figures=figures,
        conditions=tuple(_rows(condition, figures) for condition in found),
        family=family_words(found[0].family, story.cells),
        emulated=tuple(dict.fromkeys(p.name for c in found for p in c.places if p.emulated)),
        costs=_costs(found),
        fates=_fates(found),
        activation=_activation(found),
        phases=phases_page_table(activations(found)),
        instances=_instances(story),
        over_time=tuple(_over_time(story, found)),
        study=_study(study),
        study_words=studies_words(study),
        clock=costs_table(clocks) if any(c.ns for c in clocks) else None,
        clock_words=tuple(costs_words(clocks)),
    )


def setups_drawings(section: SetupsSection | None) -> Iterator[Drawing]:
    """Every figure of the section, for files."""
    if section is not None:
        drawn = (section.costs, section.fates, section.activation, section.instances)
        yield from (d for d in (*drawn, *section.over_time, section.study) if d is not None)


def setups_tables(section: SetupsSection | None) -> list[Table]:
    """Every table of the section that has something to say, for files."""
    if section is None:
        return []
    instances = section.instances.table if section.instances else None
    study = section.study.table if section.study else None
    found = (section.costs.table, section.activation.table, instances, study, section.clock)
    return [table for table in found if table is not None and table.rows]


def _rows(condition: Condition, figures: Sequence[Figure]) -> ConditionRows:
    def row(place: Place) -> PlaceRow:
        return PlaceRow(
            name=place.name,
            anchor=place.cell.typical.anchor,
            n=len(place.cell.valid),
            items=tuple(
                compared(condition.base.cell, place.cell, figure, condition.family)
                for figure in figures
            ),
        )

    return ConditionRows(label=condition.label, rows=tuple(map(row, condition.places)))


def _costs(found: Sequence[Condition]) -> Drawing:
    title = "What each setup costs"
    return Drawing(
        name="setups", title=title, drawing=comparison_plot(found), table=comparison_table(found)
    )


def _fates(found: Sequence[Condition]) -> Drawing:
    title = "Where the packets of each setup went"
    drawn = stacked_bars(title, "% of the packets sent, all measured trials", ledger_bars(found))
    table = ledger_bars_table(found)
    return Drawing(name="setups-ledger", title=title, drawing=drawn, table=table)


def _activation(found: Sequence[Condition]) -> Drawing:
    title = "From the launch to a SUT that listens"
    listed = activations(found)
    drawn = stacked_bars(
        title,
        "seconds, medians over all measured trials",
        activation_bars(listed),
        order=phase_names(listed),
    )
    table = activation_table(listed)
    return Drawing(name="activation", title=title, drawing=drawn, table=table)


def _instances(story: Story) -> Drawing | None:
    listed = shared(story)
    if not listed:
        return None
    title = "How the packets fall on several instances"
    drawn = stacked_bars(title, "% of the packets received", instance_bars(listed), high=100)
    table = instances_table(listed)
    return Drawing(name="instances", title=title, drawing=drawn, table=table)


def _study(found: Sequence[StudyFigure]) -> Drawing | None:
    if not found:
        return None
    table = studies_table(found)
    return Drawing(name=table.name, title=table.title, drawing=studies_plot(found), table=table)


def _over_time(story: Story, found: Sequence[Condition]) -> Iterator[Drawing]:
    """The typical trial of each setup, their first packets at 0 s; the heaviest load first."""
    styles = {name: style for style, name in enumerate(setup_names(found))}
    heaviest = sorted(found, key=lambda c: -(c.base.cell.offered_pps or 0.0))[:MOST_OVERLAYS]
    for number, condition in enumerate(heaviest, 1):
        lines = []
        for place in condition.places[:MOST_LINES]:
            trial = place.cell.typical
            if line := timeline(story.sources[trial.source], trial):
                lines.append((place.name, line))
        if len(lines) < 2:
            continue
        together = Timeline(panels=tuple(_panels(lines, styles)), marks=())
        at = f" at {condition.label}" if condition.label else ""
        title = f"CPU and memory over time{at}"
        name = f"setups-time-{number}"
        drawn = time_chart([together], title)
        yield Drawing(name=name, title=title, drawing=drawn, table=together.table())


def _panels(lines: Sequence[tuple[str, Timeline]], styles: Mapping[str, int]) -> Iterator[Panel]:
    """A setup has the style that it has in every other figure, whoever else is drawn."""

    def named(name: str, series: Series | None, style: int | None = None) -> list[Series]:
        points = tuple(p for p in series.points if p[0] >= FROM_S) if series else ()
        given = styles[name] if style is None else style
        return [Series(name=name, points=points, style=given)] if points else []

    received = [s for name, line in lines for s in named(name, line.series(RECEIVED))]
    host = [s for name, line in lines for s in named(name, _host(line))]
    own = [s for name, line in lines for s in named(name, line.own_cpu)]
    memory = [s for name, line in lines for s in named(name, line.series(MEMORY_TITLE))]
    inside = ((name, found) for name, line in lines if (found := _inside(line)))
    for style, (name, used) in enumerate(inside, len(styles)):
        memory += named(f"{name}: inside", used, style)
    for title, unit, high, series in (
        ("Received", "packets/s", None, received),
        ("Host CPU, all of it", "%", 100.0, host),
        ("SUT CPU", "% of one CPU", None, own),
        ("Memory: resident on the host, used inside", "MiB", None, memory),
    ):
        if series:
            yield Panel(title=title, unit=unit, series=tuple(series), high=high)


def _inside(line: Timeline) -> Series | None:
    """Memory used within a guest, if it was sampled from within."""
    inside = (p for p in line.panels if p.title.startswith(f"{MEMORY_TITLE} inside"))
    return next((s for panel in inside for s in panel.series if s.name == USED), None)


def _host(line: Timeline) -> Series | None:
    return next((busy(panel) for panel in line.panels if panel.title == CPU_TITLE), None)
