"""Differences that a planned run would likely show, from an earlier run's spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from nodrop.errors import BadInput
from nodrop.report.costs import Figure
from nodrop.report.sides import METRICS, read_side
from nodrop.results.side import Side, SideCell
from nodrop.stats.family import Family
from nodrop.stats.interval import by_start
from nodrop.stats.power import detectable, earlier_needed, runs_to_see


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The smallest difference of one figure between a cell like this one and another."""

    figure: Figure
    cell: Mapping[str, Any]
    earlier: int
    """Independent runs: of a SUT that stays up its starts. 0: the earlier run has no such cell."""
    planned: int
    least: float | None
    """In the figure's unit; None if it cannot be said."""
    median: float | None
    why_not: str

    @property
    def of_median(self) -> float | None:
        return self.least / abs(self.median) if self.least and self.median else None

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.figure.name,
            "unit": self.figure.difference_unit,
            "cell": dict(self.cell),
            "earlier_runs": self.earlier,
            "planned_runs": self.planned,
            "least_difference": self.least,
            "of_median": self.of_median,
            "why_not": self.why_not,
        }


def detectable_differences(
    cells: Sequence[Mapping[str, Any]], planned: int, given: Path
) -> list[Detectable]:
    """By metric, in the order of the cells. BadInput if the earlier run has none of them."""
    side = read_side(str(given))
    found = [(cell, _matching(side, cell)) for cell in cells]
    known = [one for _, one in found if one is not None]
    if not known:
        raise BadInput(
            f"--given {given}: no cell of it is one of this experiment",
            hint="its cells: " + "; ".join(cell.label for cell in side.cells),
        )
    figures = [f for f in METRICS if any(f.name in cell.figures for cell in known)]
    family = _family(len(cells), figures)
    return [_of(figure, cell, one, planned, family) for figure in figures for cell, one in found]


def _matching(side: Side, cell: Mapping[str, Any]) -> SideCell | None:
    return next((one for one in side.cells if one.factors == dict(cell)), None)


def _family(cells: int, figures: Sequence[Figure]) -> Family:
    """All that the report of the planned run will compare."""
    pairs = sum(f.loses for f in figures) * cells * (cells - 1) // 2
    return Family(parts=max(cells * len(figures) + pairs, 1))


def _of(
    figure: Figure, cell: Mapping[str, Any], one: SideCell | None, planned: int, family: Family
) -> Detectable:
    repeats = one.figures.get(figure.name) if one else None
    values = by_start(repeats.values, repeats.starts) if repeats else []
    least = detectable(values, planned, family)
    return Detectable(
        figure=figure,
        cell=cell,
        earlier=len(values),
        planned=planned,
        least=least,
        median=float(median(values)) if values else None,
        why_not="" if least else _why_not(len(values), planned, family),
    )


def _why_not(earlier: int, planned: int, family: Family) -> str:
    if not earlier:
        return "the earlier run has no such cell"
    if earlier < earlier_needed(family):
        return f"needs {earlier_needed(family)} earlier runs, has {earlier}"
    if planned < runs_to_see(family):
        return f"needs {runs_to_see(family)} planned runs, has {planned}"
    return "the earlier runs do not spread"
