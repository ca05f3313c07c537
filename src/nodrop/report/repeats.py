"""A/A: the same thing measured again and again, and so what difference this instrument can see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from nodrop.config.search import Repetitions
from nodrop.config.units import count_of
from nodrop.report.costs import DIFFERENCES, FIGURES, Figure
from nodrop.report.sentences import Sentence, first_of, phrase, sentence_of
from nodrop.report.setups import compared_at_once, conditions, figures_compared
from nodrop.report.story import RunCell, Story, by_key, once
from nodrop.report.tables import Field, Made, Table, number, own, table_of, words
from nodrop.report.trials import StoredTrial
from nodrop.results.rundir import Records
from nodrop.results.summary import Known, Sut, known, rule_of
from nodrop.stats.comparison import POWER, resolution, runs_to_see
from nodrop.stats.interval import Family, Outlier, outliers

MOST_CELLS = 30
MOST_NAMED = 20
"""Runs that stand apart; the table has the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """One figure of one cell: how far each run lies from the cell's median."""

    cell: RunCell
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
        if self.sees is not None:
            least = f"{self.figure.at_least(self.sees)} {self.figure.difference_unit}"
            return phrase("sees", power=POWER, least=least)
        if self.starts < (needed := runs_to_see(self.family)):
            alone = self.starts == len(self.values) and len(self.cell.pairs) < 2
            name = "runs" if alone else self.cell.independent_name
            return phrase("sees-not-yet", needed=needed, name=name)
        return phrase("sees-nothing")

    @property
    def apart(self) -> list[int]:
        """Indexes of the runs that stand apart."""
        return [outlier.index for outlier in outliers(self.values)]

    @property
    def deviations(self) -> tuple[float, ...]:
        return tuple(value - self.median for value in self.values)

    @property
    def words(self) -> str:
        low, high = (self.figure.signed(end(self.deviations)) for end in (min, max))
        of, unit = f"{self.figure.title} of {self.cell.label}", self.figure.difference_unit
        middle = f"{self.figure.shown(self.median)} {self.figure.unit}"
        spread = f"{len(self.values)} runs between {low} and {high} {unit} of it"
        named = first_of([self.runs[i] for i in self.apart], MOST_NAMED)
        apart = f"; {named} {'stands' if len(self.apart) == 1 else 'stand'} apart" if named else ""
        return f"{of}: {middle}, {spread}{apart}; {self.sees_words}"


@once
def repeats(story: Story) -> list[Repeated]:
    """Spread of each figure that is compared, in cells with at least two valid trials. Setups with
    all else in common stand together."""
    family = compared_at_once(story)
    together = [place.cell for condition in conditions(story) for place in condition.places]
    cells = dict.fromkeys((*together, *story.cells))
    return [
        Repeated(
            cell=cell,
            figure=figure,
            runs=tuple(t.name for t in cell.valid if figure.of(t) is not None),
            values=figure.values(cell),
            starts=len(starts),
            median=median(starts),
            sees=resolution(starts, family),
            family=family,
        )
        for figure in figures_compared(story)
        for cell in cells
        if len(figure.values(cell)) > 1 and (starts := figure.gathered(cell).by_start)
    ]


def repeats_words(found: Sequence[Repeated]) -> list[str]:
    """Words for the difference that can be seen, figure by figure, over all cells."""
    said = []
    seen = by_key((r.figure.name, r.sees) for r in found if r.sees is not None)
    for figure, sees in ((f, seen[f.name]) for f in FIGURES if f.name in seen):
        low, high = figure.at_least(min(sees)), figure.at_least(max(sees))
        unit = figure.difference_unit
        span = f"{low} {unit}" if low == high else f"{low} to {high} {unit}, depending on the cell"
        said.append(f"{figure.title}: about {span}")
    return said


Run = tuple[Repeated, str, float, float]
"""A cell, and the name, the value and the distance from the median of one run."""
RUN_FIELDS: tuple[Field[Run], ...] = (
    words("cell", "Cell", lambda x: x[0].cell.label),
    words("figure", "Figure", lambda x: x[0].figure.name),
    words("run", "Run", lambda x: x[1]),
    own("value", "Value", lambda x: x[2], lambda x: x[0].figure.shown),
    own("deviation", "From the median", lambda x: x[3], lambda x: x[0].figure.signed),
    own("sees", "Seen from", lambda x: x[0].sees, lambda x: x[0].figure.at_least, missing=""),
)


def repeats_table(found: Sequence[Repeated]) -> Table:
    def runs() -> Iterator[Run]:
        for one in found:
            for run in zip(one.runs, one.values, one.deviations, strict=True):
                yield (one, *run)

    return table_of("repeats", "Repetitions of the same cell", RUN_FIELDS, Made(runs))


def stopped(story: Story) -> Iterator[Sentence]:
    for n, source in enumerate(story.sources):
        found = rule_of(source.run.manifest)
        if found is not None:
            cells = [cell for cell in story.cells if cell.source == n]
            yield from _said(cells, *found)


def _said(cells: Sequence[RunCell], rule: Repetitions, sut: Sut) -> Iterator[Sentence]:
    told = [(cell, known(Records(t.packed for t in cell.trials), rule, sut)) for cell in cells]
    for reached in (True, False):
        these = [(cell, of) for cell, of in told if all(one.reached for one in of) == reached]
        if not these:
            continue
        each = "; ".join(f"{cell.label}: {_words(cell, of)}" for cell, of in these)
        plain = [
            {
                "cell": cell.label,
                "trials": len(cell.trials),
                "known": [
                    {"until": str(k.until), "n": k.n, "half_width": k.half_width} for k in of
                ],
            }
            for cell, of in these
        ]
        name = "rule-reached" if reached else "rule-not-reached"
        evidence = {"until": list(rule.until), "max": rule.max, "cells": plain}
        yield sentence_of(name, evidence, asked=" and ".join(rule.until), n=len(these), each=each)


def _words(cell: RunCell, told: Sequence[Known]) -> str:
    said = [
        f"{one.until.metric} ± {one.half_width:.3g} {one.until.unit}"
        if one.half_width is not None
        else f"{one.until.metric} has no interval" + (f" of {one.n} hosts" if one.hosts else "")
        for one in told
    ]
    return f"{', '.join(said)} after {count_of(len(cell.trials), 'trial')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlying:
    cell: RunCell
    figure: Figure
    trial: StoredTrial
    found: Outlier

    @property
    def words(self) -> str:
        """`SUT CPU 4.10 s (median 1.20)`."""
        value, middle = (self.figure.shown(v) for v in (self.found.value, self.found.median))
        return f"{self.figure.title} {value} {self.figure.unit} (median {middle})"


@once
def outlying(story: Story) -> tuple[Outlying, ...]:
    """Trials that stand apart from their cell. Cells of a search are left out: each load is a cell
    of its own, and capacity/words.py says what stands apart there."""
    return tuple(
        one
        for cell in story.cells
        if not cell.searched
        for figure in DIFFERENCES
        for one in outlying_in(cell, figure)
    )


def outlying_in(cell: RunCell, figure: Figure) -> Iterator[Outlying]:
    """Trials that stand apart, among the measured ones that have the figure."""
    known = [(trial, value) for trial in cell.valid if (value := figure.of(trial)) is not None]
    for outlier in outliers([value * figure.scale for _, value in known]):
        yield Outlying(cell=cell, figure=figure, trial=known[outlier.index][0], found=outlier)


OUTLIER_FIELDS: tuple[Field[Outlying], ...] = (
    words("run", "Run", lambda one: one.trial.name),
    words("cell", "Cell", lambda one: one.cell.label),
    words("figure", "Figure", lambda one: f"{one.figure.title}, {one.figure.unit}"),
    own("value", "Value", lambda one: one.found.value, lambda one: one.figure.shown),
    own("median", "Median of the cell", lambda one: one.found.median,
        lambda one: one.figure.shown),
    number("deviations", "Away", lambda one: one.found.deviations, "{:.1f}".format,
           help="in scaled median absolute deviations; if most values are the same, in mean ones"),
)  # fmt: skip


def outliers_tables(story: Story) -> Iterator[Table]:
    """Table of the trials that stand apart; none if no trial does."""
    if found := outlying(story):
        yield table_of(
            "outliers", "Trials that stand apart from their cell", OUTLIER_FIELDS, found,
            anchor=lambda one: one.trial.anchor, mark=lambda one: one.trial.mark,
        )  # fmt: skip
