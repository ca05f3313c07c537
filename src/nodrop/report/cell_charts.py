"""Charts of cells, setups and runs side by side: every run a dot, every cell its median."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from nodrop.report import numbers
from nodrop.report.chart import (
    MOST_SERIES,
    ROW,
    Chart,
    KeyEntry,
    Mark,
    Pane,
    Plot,
    Scale,
    cut,
    named_bars,
    series_of,
    tag,
)
from nodrop.report.comparison import compared, figures_of
from nodrop.report.costs import LOSS_FIGURE, Figure, grouped
from nodrop.report.loads import percent_with_interval
from nodrop.report.repeats import MOST_CELLS, Repeated, outlying_in
from nodrop.report.setups import Condition, conditions, setup_names
from nodrop.report.story import Cell, Story, once
from nodrop.report.studies import StudyFigure, study_bars
from nodrop.report.trials import Trial

ASIDE = 0.011
"""Between series, as a part of the axis: at the same load their marks would hide each other."""
MOST_CONDITIONS = 10
"""Beyond, marks would cover each other; the table has every condition."""


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
    key: list[KeyEntry] = []
    if len(groups) > 1:
        key = [(*series_of(n), group[0].group or "all") for n, group in enumerate(drawn)]
    key += [("cross", "failed", "the SUT failed")] if failed else []
    return Chart(plot.says, (Pane((plot,), "Lost", "% of sent"),), tuple(key))


def _series(plot: Plot, group: Sequence[Cell], n: int, aside: float, *, strips: int) -> None:
    shape, style = series_of(n)
    ordered = sorted(group, key=lambda c: c.offered_pps or 0.0)
    medians = []
    for cell in ordered:
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


@once
def order_plot(story: Story) -> Chart:
    """Activation time by place in the order: it depends on the setup and the host, not on the
    load. A drift over the run would show here, between cells it would hide."""
    seen = [
        (i, t, t.activation_s) for i, t in enumerate(story.trials) if t.activation_s is not None
    ]
    if len(seen) < 3:
        return Chart()
    usual = _usual(story)
    unit = "s" if set(usual.values()) == {1.0} else "×"
    y = Scale.over((took / usual[t.anchor] for _, t, took in seen), 3)
    x = Scale(-0.5, len(story.trials) - 0.5)
    plot = Plot("Activation time by order of the trials", x, y, 110)
    plot.axes("trials in the order measured", None,
              lambda v: f"{_plain(v)} {unit}")  # fmt: skip
    for valid, shape, style in ((True, "dot", "s0"), (False, "cross", "void")):
        plot.marks([
            Mark(i, took / usual[t.anchor], f"{i + 1}: {t.name}, {numbers.seconds(took)} s",
                 t.anchor)
            for i, t, took in seen if t.valid is valid
        ], shape, style)  # fmt: skip
    return Chart(plot.says, (Pane((plot,)),))


def _usual(story: Story) -> dict[str, float]:
    """Seconds that each trial is held against, by anchor: the median of its own setup if setups
    differ; else 1 s."""
    usual = dict.fromkeys((t.anchor for t in story.trials), 1.0)
    by_setup: dict[tuple[int, str], list[Trial]] = {}
    for place in (place for condition in conditions(story) for place in condition.places):
        by_setup.setdefault((place.cell.source, place.name), []).extend(place.cell.trials)
    for trials in by_setup.values():
        if times := [t.activation_s for t in trials if t.activation_s]:
            usual |= dict.fromkeys((t.anchor for t in trials), median(times))
    return usual


def comparison_plot(found: Sequence[Condition]) -> Chart:
    """A pane per figure. Empty unless something was measured in two places."""
    shown, figures = found[:MOST_CONDITIONS], figures_of(found)
    if not figures:
        return Chart()
    names = setup_names(shown)
    strips = len(figures) * sum(len(c.places) for c in shown)
    panes = tuple(_figure(shown, figure, names, strips) for figure in figures)
    key = tuple((*series_of(n), name) for n, name in enumerate(names))
    return Chart("What each setup costs", panes, key, "panels")


def _figure(found: Sequence[Condition], figure: Figure, names: Sequence[str], strips: int) -> Pane:
    values = [v for c in found for p in c.places for v in figure.values(p.cell)]
    plot = Plot(figure.title, Scale(0, len(found)), Scale.over(values, 4), height=130, pad="flat")
    plot.axes("", None, _plain)
    for n, condition in enumerate(found):
        if n:
            plot.upright(n, "faintline")
        label = tag("tspan", cut(condition.label, 440 / len(found)))
        plot.words(n + 0.5, plot.y.low, label, "tx", dy=17)
        for place in condition.places:
            item = compared(condition.base.cell, place.cell, figure, condition.family)
            if item.summary is None:
                continue
            number = names.index(place.name)
            x, (shape, style) = n + (number + 1) / (len(names) + 1), series_of(number)
            dots = [Mark(x, value) for value in item.own.values]
            plot.marks(dots, "small", f"{style} faint", strips=strips)
            if interval := item.summary.interval:
                plot.rise(x, interval.low, interval.high, f"{style} median")
            where = f"{place.name} at {condition.label}" if condition.label else place.name
            says = item.words(where, condition.base.name)
            mark = Mark(x, item.summary.median, says, place.cell.typical.anchor)
            plot.marks([mark], shape, style)
    return Pane((plot,), figure.title, figure.unit)


def repeats_plot(found: Sequence[Repeated]) -> Chart:
    """A strip per cell, a pane per figure; the band is what cannot be seen."""
    cells = list(dict.fromkeys(id(r.cell) for r in found))[:MOST_CELLS]
    figures = list(dict.fromkeys(r.figure.name for r in found))
    strips = len(cells) * len(figures)
    panes = [
        _strips([r for r in found if r.figure.name == name and id(r.cell) in cells], strips)
        for name in figures
    ]
    title = "Repetitions of the same cell about their median"
    return Chart(title, tuple(panes), (), "panels three") if cells else Chart()


def _strips(found: Sequence[Repeated], strips: int) -> Pane:
    figure = found[0].figure
    reach = max([abs(d) for r in found for d in r.deviations] + [r.sees or 0.0 for r in found])
    step = Scale.over([reach], 2).high
    x = Scale(-step, step, (-step, 0.0, step))
    plot = Plot(f"{figure.title} of each cell's runs", x, Scale.rows(len(found)),
                height=(ROW - 4) * len(found), pad="rows")  # fmt: skip
    plot.axes("", lambda v: f"{v:+.3g}".replace("-", "−") if v else "0", None, "x")
    for row, one in enumerate(found):
        plot.words(x.low, row, cut(one.cell.label, 300), "row-name", dy=-6)
        if one.sees is not None:
            wide = (x.at(one.sees) - x.at(-one.sees)) * 100
            box = {"x": f"{x.at(-one.sees) * 100:.2f}%", "y": 1, "width": f"{wide:.2f}%"}
            rect = tag("rect", **box, height=13, class_="unseen")
            plot.behind.append(tag("svg", rect, y=plot.py(row), overflow="visible"))
        plot.marks([Mark(d, row) for d in one.deviations], "small", "s0 faint", strips=strips, dy=7)
        apart = [Mark(one.deviations[n], row) for n in one.apart]
        plot.marks(apart, "halo", "apart", strips=strips, dy=7)
        plot.marks([Mark(0.0, row, one.words)], "tick", "s0 strong", dy=7)
    return Pane((plot,), figure.title, figure.difference_unit)


def studies_plot(figures: Sequence[StudyFigure]) -> Chart:
    """The study of 2016 beside this run, each on a scale of its own: only the order of the setups
    can be compared."""
    panes = []
    for figure in figures:
        for bars, unit in study_bars(figure):
            x = Scale.over([max(bar.reach for bar in bars)], 3)
            name = f"{figure.name}: {unit}"
            panes.append(Pane((named_bars(name, bars, x, _plain, (200, 330)),), figure.name, unit))
    key: tuple[KeyEntry, ...] = (
        ("zone", "part p-rest", "2016: other hardware"),
        ("zone", "part p-phase2", "this run: medians"),
        ("bar", "whole", "95 % interval"),
    )
    title = "The study of 2016 beside this run"
    return Chart(title, tuple(panes), key, "panels") if panes else Chart()
