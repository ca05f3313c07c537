"""Cells against a base cell: shifts with intervals and the three-way verdict, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.report import escape
from nodrop.report.story import Cell
from nodrop.stats.comparison import Answer, Comparison, compare

LOSS_MARGIN = 0.001
"""A tenth of a percentage point of loss is the same."""
RELATIVE_MARGIN = 0.05
"""Of the base's median, for what is not a loss."""
MOST_BASES = 40
"""Every cell can be the base up to so many cells; beyond, the first one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    title: str
    unit: str
    scale: float
    digits: int


FIGURES = (
    Figure(name="loss_ratio", title="Loss", unit="percentage points", scale=100, digits=2),
    Figure(name="activation_s", title="Activation", unit="s", scale=1, digits=3),
    Figure(name="sut_cpu_s", title="SUT CPU", unit="s", scale=1, digits=2),
    Figure(name="sut_rss_peak_bytes", title="Peak memory", unit="MiB", scale=2**-20, digits=1),
)


def differences(cells: Sequence[Cell], base: int) -> list[list[str]]:
    """For every cell the words of each figure; the base's own row says that it is the base."""
    return [
        ["base"] * len(FIGURES)
        if i == base
        else [difference(cells[base], cell, figure) for figure in FIGURES]
        for i, cell in enumerate(cells)
    ]


def difference(base: Cell, other: Cell, figure: Figure) -> str:
    values = base.values(figure.name)
    summary = base.summary(figure.name)
    if summary is None:
        return "not measured"
    loss = figure.name == "loss_ratio"
    margin = LOSS_MARGIN if loss else abs(summary.median) * RELATIVE_MARGIN
    found = compare(values, other.values(figure.name), margin=margin)
    if found is None:
        return "not measured"
    return _words(found, figure, "0.1 points" if loss else f"{RELATIVE_MARGIN * 100:.0f} %")


def _words(found: Comparison, figure: Figure, margin: str) -> str:
    if found.answer is Answer.SAME:
        return f"same within {margin}"
    shift = _signed(found.shift, figure)
    between = ""
    if found.interval:
        low, high = (_signed(v, figure) for v in (found.interval.low, found.interval.high))
        between = f" [{low}, {high}]"
    if found.answer is Answer.DIFFERENT:
        return f"{shift}{between}"
    return f"{shift}{between}: cannot tell yet ({more_runs_words(found)})"


def more_runs_words(found: Comparison) -> str:
    more = found.more_runs
    return f"about {more} more run{'s' if more != 1 else ''}" if more else "too near to the margin"


def _signed(value: float, figure: Figure) -> str:
    text = f"{value * figure.scale:+,.{figure.digits}f}"
    return text.replace(",", escape.THIN).replace("-", "−")
