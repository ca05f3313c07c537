"""Trials that stand apart from the others of their cell: marked, and in every figure as before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodrop.report.costs import DIFFERENCES, Figure
from nodrop.report.story import Cell, Story, once
from nodrop.report.tables import Column, Made, Row, Table, Value, numeric, text
from nodrop.report.trials import Trial
from nodrop.stats.outliers import Outlier, outliers


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlying:
    """One figure of one trial."""

    cell: Cell
    figure: Figure
    trial: Trial
    found: Outlier

    @property
    def words(self) -> str:
        """`SUT CPU 4.10 s (median 1.20)`."""
        value, middle = (self.figure.shown(v) for v in (self.found.value, self.found.median))
        return f"{self.figure.title} {value} {self.figure.unit} (median {middle})"


@once
def outlying(story: Story) -> tuple[Outlying, ...]:
    """Trials that stand apart from their cell. Cells of a search are left out: each load is a cell
    of its own, and report/fitted.py says what stands apart there."""
    return tuple(
        one
        for cell in story.cells
        if not cell.searched
        for figure in DIFFERENCES
        for one in outlying_in(cell, figure)
    )


def outlying_in(cell: Cell, figure: Figure) -> Iterator[Outlying]:
    """Trials that stand apart, among the measured ones that have the figure."""
    known = [(trial, value) for trial in cell.valid if (value := figure.of(trial)) is not None]
    for found in outliers([value * figure.scale for _, value in known]):
        yield Outlying(cell=cell, figure=figure, trial=known[found.index][0], found=found)


def words_of_trials(found: Sequence[Outlying]) -> Mapping[str, str]:
    """Anchor → in which figures it stands apart."""
    said: dict[str, list[str]] = {}
    for one in found:
        said.setdefault(one.trial.anchor, []).append(one.words)
    return {anchor: "; ".join(words) for anchor, words in said.items()}


def outliers_table(found: Sequence[Outlying]) -> Table:
    return Table(
        name="outliers",
        title="Trials that stand apart from their cell",
        columns=(
            Column(name="run", title="Run"),
            Column(name="cell", title="Cell"),
            Column(name="figure", title="Figure"),
            numeric("value", "Value"),
            numeric("median", "Median of the cell"),
            numeric(
                "deviations",
                "Away",
                "in scaled median absolute deviations; if most values are the same, in mean ones",
            ),
        ),
        rows=Made(lambda: map(_row, found)),
    )


def _row(one: Outlying) -> Row:
    figure, found = one.figure, one.found
    return Row(
        anchor=one.trial.anchor,
        mark=one.trial.mark,
        values=(
            text(one.trial.name),
            text(one.cell.label),
            text(f"{figure.title}, {figure.unit}"),
            Value(raw=found.value, shown=figure.shown(found.value)),
            Value(raw=found.median, shown=figure.shown(found.median)),
            Value(raw=found.deviations, shown=f"{found.deviations:.1f}"),
        ),
    )
