"""Charts of cells side by side: every run a dot, every cell its median."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from nodrop.report import numbers
from nodrop.report.chart import (
    MOST_SERIES,
    ROW,
    Chart,
    Mark,
    Pane,
    Plot,
    Scale,
    cut,
    series_of,
    tag,
)
from nodrop.report.costs import LOSS_FIGURE, grouped
from nodrop.report.loads import percent_with_interval
from nodrop.report.repeats import MOST_CELLS, Repeated, outlying_in
from nodrop.report.story import Cell

ASIDE = 0.011
"""Between series, as a part of the axis: at the same load their marks would hide each other."""


def _plain(value: float) -> str:
    return grouped(f"{value:,.6g}")


def loss_plot(cells: Sequence[Cell]) -> Chart:
    """Loss over offered load. Empty unless some measured trial has both."""
    shown = [c for c in cells if c.loss is not None and c.offered_pps is not None]
    if not shown:
        return Chart()
    groups = [list(found) for _, found in groupby(shown, key=lambda c: (c.source, c.group))]
    failed = [(c, pps) for c in cells if c.failed and (pps := c.offered_pps or c.asked_pps)]
    rates = [t.offered_pps for c in shown for t in c.valid if t.offered_pps is not None]
    rates += [pps for _, pps in failed]
    y = Scale.over(c.loss.high * 100 for c in shown if c.loss)
    plot = Plot("Loss over offered load", Scale.over(rates), y)
    plot.axes("offered load, packets/s", numbers.short, _plain)
    drawn = groups[:MOST_SERIES]
    for n, group in enumerate(drawn):
        aside = (n - (len(drawn) - 1) / 2) * ASIDE * plot.x.high
        _series(plot, group, n, aside, strips=len(shown))
    crosses = [
        Mark(pps, y.high, f"{c.label}: failed in {len(c.failed)} of {len(c.failed) + len(c.valid)}")
        for c, pps in failed
    ]
    plot.marks(crosses, "cross", "failed")
    several: Sequence[Sequence[Cell]] = drawn if len(groups) > 1 else []
    key = [(*series_of(n), group[0].group or "all") for n, group in enumerate(several)]
    key += [("cross", "failed", "the SUT failed")] if failed else []
    return Chart(plot.says, (Pane((plot,), "Lost", "% of sent"),), tuple(key))


def _series(plot: Plot, group: Sequence[Cell], n: int, aside: float, *, strips: int) -> None:
    shape, style = series_of(n)
    medians = []
    for cell in sorted(group, key=lambda c: c.offered_pps or 0.0):
        loss, pps = cell.loss, (cell.offered_pps or 0.0) + aside
        if loss is None:
            continue
        told = [
            Mark(t.offered_pps + aside, t.loss_ratio * 100)
            for t in cell.valid
            if t.offered_pps is not None and t.loss_ratio is not None
        ]
        plot.marks(told, "small", f"{style} faint", strips=strips)
        apart = [
            Mark(offered + aside, one.found.value,
                 f"{one.trial.name} stands apart: {one.words}", one.trial.anchor)
            for one in outlying_in(cell, LOSS_FIGURE)
            if (offered := one.trial.offered_pps) is not None
        ]  # fmt: skip
        plot.marks(apart, "halo", "apart", strips=strips)
        if loss.interval:
            plot.rise(pps, loss.interval.low * 100, loss.interval.high * 100, f"{style} median")
        says = f"{cell.label}: {percent_with_interval(loss)} lost, n = {loss.n}"
        medians.append(Mark(pps, loss.median * 100, says, cell.typical.anchor))
    plot.line([(m.x, m.y) for m in medians], style)
    plot.marks(medians, shape, style)


def runs_plot(found: Sequence[Repeated]) -> Chart:
    """A row per cell, a pane per figure. The band about a median is what cannot be told from it."""
    cells = list(dict.fromkeys(id(r.cell) for r in found))[:MOST_CELLS]
    figures = list(dict.fromkeys(r.figure.name for r in found))
    strips = len(cells) * len(figures)
    panes = [
        _strips([r for r in found if r.figure.name == name and id(r.cell) in cells], strips)
        for name in figures
    ]
    return Chart("Every run of each cell", tuple(panes), (), "panels") if cells else Chart()


def _strips(found: Sequence[Repeated], strips: int) -> Pane:
    figure = found[0].figure
    ends = (end for r in found for end in (*r.values, r.median + (r.sees or 0.0)))
    x = Scale.over(ends, 4)
    plot = Plot(f"{figure.title} of each cell's runs", x, Scale.rows(len(found)),
                height=(ROW - 4) * len(found), pad="rows")  # fmt: skip
    plot.axes("", _plain, None, "x")
    for row, one in enumerate(found):
        plot.words(x.low, row, cut(one.cell.label, 300), "row-name", dy=-6)
        if one.sees is not None:
            low, high = (x.at(one.median + side) * 100 for side in (-one.sees, one.sees))
            box = {"x": f"{low:.2f}%", "y": 1, "width": f"{high - low:.2f}%"}
            rect = tag("rect", **box, height=13, class_="unseen")
            plot.behind.append(tag("svg", rect, y=plot.py(row), overflow="visible"))
        dots = [Mark(value, row) for value in one.values]
        plot.marks(dots, "small", "s0 faint", strips=strips, dy=7)
        plot.marks([dots[n] for n in one.apart], "halo", "apart", strips=strips, dy=7)
        if (summary := one.figure.summary(one.cell)) and (interval := summary.interval):
            plot.span(interval.low, interval.high, row, "s0 median", dy=7)
        plot.marks([Mark(one.median, row, one.words)], "tick", "s0 strong", dy=7)
    return Pane((plot,), figure.title, figure.unit)
