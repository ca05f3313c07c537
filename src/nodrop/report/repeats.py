"""A/A: the same thing measured again and again, and so what difference this instrument can see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from nodrop.report.costs import FIGURES, Figure
from nodrop.report.setups import compared_at_once
from nodrop.report.story import Cell, Story, once
from nodrop.report.tables import Column, Made, Row, Table, Value, numeric, text
from nodrop.stats.family import Family
from nodrop.stats.outliers import outliers
from nodrop.stats.power import POWER, resolution, runs_to_see

SHOWN = ("loss_pct", "sut_cpu_s", "activation_s")
MOST_CELLS = 30
MOST_NAMED = 20
"""Runs that stand apart; the table has the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """One figure of one cell: how far each run lies from the cell's median."""

    cell: Cell
    figure: Figure
    runs: tuple[str, ...]
    values: tuple[float, ...]
    starts: int
    """Starts of the SUT: each counts once in what can be seen."""
    median: float
    sees: float | None
    """Another cell with as many runs and as much spread would mostly be found to differ from this
    shift on; None if that is not known."""
    family: Family

    @property
    def sees_words(self) -> str:
        unit = self.figure.difference_unit
        if self.sees is not None:
            return (
                f"a difference is seen with a probability of {POWER * 100:.0f} % from about "
                f"{self.figure.at_least(self.sees)} {unit} on"
            )
        if self.starts < (needed := runs_to_see(self.family)):
            alone = self.starts == len(self.values) and len(self.cell.pairs) < 2
            name = "runs" if alone else self.cell.independent_name
            return f"what difference could be seen is not known from fewer than {needed} {name}"
        return "so many runs are alike that it is not known what difference could be seen"

    @property
    def apart(self) -> list[int]:
        """Indexes of the runs that stand apart."""
        return [found.index for found in outliers(self.values)]

    @property
    def deviations(self) -> tuple[float, ...]:
        return tuple(value - self.median for value in self.values)


@once
def repeats(story: Story) -> list[Repeated]:
    """Spread of each shown figure, in cells with at least two valid trials."""
    family = compared_at_once(story)
    return [
        found
        for figure in FIGURES
        if figure.name in SHOWN
        for cell in story.cells
        if (found := _repeated(cell, figure, family)) is not None
    ]


def _repeated(cell: Cell, figure: Figure, family: Family) -> Repeated | None:
    runs = tuple(t.name for t in cell.valid if figure.of(t) is not None)
    values, starts = tuple(figure.values(cell)), figure.by_start(cell)
    if len(values) < 2:
        return None
    return Repeated(
        cell=cell,
        figure=figure,
        runs=runs,
        values=values,
        starts=len(starts),
        median=median(starts),
        sees=resolution(starts, family),
        family=family,
    )


def repeats_words(found: Sequence[Repeated]) -> list[str]:
    """Words for the difference that can be seen, figure by figure, over all cells."""
    said = []
    for figure in FIGURES:
        sees = [r.sees for r in found if r.figure.name == figure.name and r.sees is not None]
        if not sees:
            continue
        low, high = figure.at_least(min(sees)), figure.at_least(max(sees))
        unit = figure.difference_unit
        span = f"{low} {unit}" if low == high else f"{low} to {high} {unit}, depending on the cell"
        said.append(f"{figure.title}: about {span}")
    return said


def repeats_table(found: Sequence[Repeated]) -> Table:
    return Table(
        name="repeats",
        title="Repetitions of the same cell",
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="figure", title="Figure"),
            Column(name="run", title="Run"),
            numeric("value", "Value"),
            numeric("deviation", "From the median"),
            numeric("sees", "Seen from"),
        ),
        rows=Made(lambda: _rows(found)),
    )


def _rows(found: Sequence[Repeated]) -> Iterator[Row]:
    for repeated in found:
        for run, value, apart in zip(
            repeated.runs, repeated.values, repeated.deviations, strict=True
        ):
            figure = repeated.figure
            sees = repeated.sees
            yield Row(
                values=(
                    text(repeated.cell.label),
                    text(figure.name),
                    text(run),
                    Value(raw=value, shown=figure.shown(value)),
                    Value(raw=apart, shown=figure.signed(apart)),
                    Value(raw=sees, shown="" if sees is None else figure.at_least(sees)),
                )
            )
