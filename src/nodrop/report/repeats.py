"""A/A: the same thing measured again and again, and so what difference this instrument can see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from nodrop.report import bounded
from nodrop.report.costs import FIGURES, Figure
from nodrop.report.loss_plot import ticks
from nodrop.report.setups import compared_at_once
from nodrop.report.story import Cell, Story, once
from nodrop.report.svg import cut, picture, ring, tag
from nodrop.report.tables import Column, Made, Row, Table, Value, numeric, text
from nodrop.stats.family import Family
from nodrop.stats.outliers import outliers
from nodrop.stats.power import POWER, resolution, runs_to_see

SHOWN = ("loss_pct", "sut_cpu_s", "activation_s")
MOST_CELLS = 30
MOST_NAMED = 20
"""Runs that stand apart; the table has the others."""
WIDTH, LEFT, GAP, ROW = 1000.0, 210.0, 34.0, 20.0
TOP, BOTTOM = 30.0, 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """One figure of one cell: how far each run lies from the cell's median."""

    cell: Cell
    figure: Figure
    runs: tuple[str, ...]
    values: tuple[float, ...]
    starts: int
    """Of the SUT: each counts once in what can be seen."""
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
        """Of the runs, those that stand apart."""
        return [found.index for found in outliers(self.values)]

    @property
    def deviations(self) -> tuple[float, ...]:
        return tuple(value - self.median for value in self.values)


@once
def repeats(story: Story) -> list[Repeated]:
    """Of cells with at least two valid trials."""
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
    """What difference can be seen, figure by figure, over all cells."""
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


def repeats_plot(found: Sequence[Repeated]) -> Markup:
    """A strip per cell, a panel per figure; the band is what cannot be seen."""
    cells = list(dict.fromkeys(id(r.cell) for r in found))[:MOST_CELLS]
    figures = list(dict.fromkeys(r.figure.name for r in found))
    if not cells:
        return Markup("")
    bottom = TOP + ROW * len(cells)
    parts = [_name(next(r.cell for r in found if id(r.cell) == key), n)
             for n, key in enumerate(cells)]  # fmt: skip
    wide = (WIDTH - LEFT - GAP * (len(figures) - 1)) / len(figures)
    for number, name in enumerate(figures):
        listed = [r for r in found if r.figure.name == name and id(r.cell) in cells]
        left = LEFT + number * (wide + GAP)
        strips = len(cells) * len(figures)
        parts += _panel(listed, cells, left, wide - 14, bottom, strips)
    title = "Repetitions of the same cell about their median"
    return picture(WIDTH, bottom + BOTTOM, title, *parts)


def _name(cell: Cell, number: int) -> Markup:
    words, end = tag("title", cell.label), LEFT - 14
    y = TOP + ROW * number + 14
    name = cut(cell.label, end)
    return tag("text", words, name, x=end, y=y, class_="bar-name", text_anchor="end")


def _panel(
    found: Sequence[Repeated],
    cells: Sequence[int],
    left: float,
    wide: float,
    bottom: float,
    strips: int,
) -> list[Markup]:
    figure = found[0].figure
    reach = max([abs(d) for r in found for d in r.deviations] + [r.sees or 0.0 for r in found])
    step = ticks(reach, wanted=2)[-1]

    def x(value: float) -> float:
        return left + wide / 2 + value / step * wide / 2

    title = f"{figure.title}, {figure.difference_unit}"
    parts = [tag("text", title, x=left, y=14, class_="panel-name")]
    for at in (-step, 0.0, step):
        kind = "axis" if at == 0 else "grid"
        parts.append(tag("line", x1=x(at), x2=x(at), y1=TOP - 6, y2=bottom, class_=kind))
        label = "median" if at == 0 else f"{at:+.3g}".replace("-", "−")
        parts.append(
            tag("text", label, x=x(at), y=bottom + 15, class_="tick", text_anchor="middle")
        )
    for repeated in found:
        y = TOP + ROW * cells.index(id(repeated.cell)) + ROW / 2
        parts.append(_strip(repeated, x, y, strips))
    return parts


def _strip(repeated: Repeated, x: Callable[[float], float], y: float, strips: int) -> Markup:
    parts = []
    if repeated.sees is not None:
        low, high = x(-repeated.sees), x(repeated.sees)
        wide = max(high - low, 1.0)
        parts.append(tag("rect", x=low, y=y - 7, width=wide, height=14, class_="band"))
    deviations = repeated.deviations
    dots = bounded.marks(deviations, strips=strips, key=float)
    parts += [tag("circle", cx=x(d), cy=y, r=3, class_="dot") for d in dots]
    parts += [ring(x(deviations[n]), y, 6.5) for n in bounded.marks(repeated.apart, strips=strips)]
    says = tag("title", _says(repeated))
    return tag("g", says, *parts, class_="mark s0", tabindex="0", role="img")


def _says(repeated: Repeated) -> str:
    figure, n = repeated.figure, len(repeated.values)
    deviations, apart = repeated.deviations, repeated.apart
    low, high = (figure.signed(end(deviations)) for end in (min, max))
    said = (
        f"{figure.title} of {repeated.cell.label}: {n} runs between {low} and {high} "
        f"{figure.difference_unit} of their median"
    )
    if runs := ", ".join(repeated.runs[i] for i in apart[:MOST_NAMED]):
        runs += f" and {len(apart) - MOST_NAMED} more" if len(apart) > MOST_NAMED else ""
        said += f"; {runs} stands apart" if len(apart) == 1 else f"; {runs} stand apart"
    return f"{said}; {repeated.sees_words}"


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
