"""Charts of cells, setups and runs side by side: every run a dot, every cell its median."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median

from nodrop.report import numbers
from nodrop.report.chart import Chart, KeyEntry, Mark, Pane, Plot, Scale, cut, tag
from nodrop.report.charts import BAR, MOST_SERIES, ROW, series_of
from nodrop.report.comparison import Compared, compared, figures_of
from nodrop.report.costs import LOSS_FIGURE, Figure
from nodrop.report.loads import percent_with_interval
from nodrop.report.repeats import MOST_CELLS, MOST_NAMED, Repeated, outlying_in
from nodrop.report.setups import Condition, Place, conditions, setup_names
from nodrop.report.story import Cell, Story, once
from nodrop.report.studies import Beside, StudyFigure, here_words

ASIDE = 0.011
"""Between series, as a part of the axis: at the same load their marks would hide each other."""
MOST_CONDITIONS = 10
"""Beyond, marks would cover each other; the table has every condition."""


def _plain(value: float) -> str:
    return f"{value:,.6g}".replace(",", "\u202f").replace("-", "−")


def loss_plot(cells: Sequence[Cell]) -> Chart:
    """Loss over offered load. Empty unless some measured trial has both."""
    shown = [c for c in cells if c.loss is not None and c.offered_pps is not None]
    if not shown:
        return Chart()
    groups = [list(found) for _, found in groupby(shown, key=lambda c: (c.source, c.group))]
    failed = [(c, pps) for c in cells if c.failed and (pps := c.offered_pps or c.asked_pps)]
    rates = [v for c in shown for v in c.values("offered_pps")] + [pps for _, pps in failed]
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
    seen = [(i, t) for i, t in enumerate(story.trials) if t.activation_s is not None]
    if len(seen) < 3:
        return Chart()
    usual = _usual(story)
    shown = {t.anchor: (t.activation_s or 0.0) / usual[t.anchor] for _, t in seen}
    unit = "s" if set(usual.values()) == {1.0} else "×"
    x = Scale(-0.5, len(story.trials) - 0.5)
    plot = Plot("Activation time by order of the trials", x, Scale.over(shown.values(), 3), 110)
    plot.axes("trials in the order in which they were measured", None,
              lambda v: f"{_plain(v)} {unit}")  # fmt: skip
    for valid, shape, style in ((True, "dot", "s0"), (False, "cross", "void")):
        plot.marks([
            Mark(i, shown[t.anchor], f"{i + 1}: {t.name}, {numbers.seconds(t.activation_s)} s",
                 t.anchor)
            for i, t in seen if t.valid is valid
        ], shape, style)  # fmt: skip
    return Chart(plot.says, (Pane((plot,)),))


def _usual(story: Story) -> dict[str, float]:
    """Seconds that each trial is held against, by anchor: the median of its own setup if setups
    differ; else 1 s."""
    places = [place for condition in conditions(story) for place in condition.places]
    if not places:
        return dict.fromkeys((t.anchor for t in story.trials), 1.0)
    times: dict[tuple[int, str], list[float]] = {}
    of: dict[str, tuple[int, str]] = {}
    for place in places:
        for trial in place.cell.trials:
            of[trial.anchor] = (trial.source, place.name)
            if trial.activation_s:
                times.setdefault(of[trial.anchor], []).append(trial.activation_s)
    usual = {place: median(seen) for place, seen in times.items()}
    return {t.anchor: usual.get(of.get(t.anchor, (0, "")), 1.0) for t in story.trials}


def comparison_plot(found: Sequence[Condition]) -> Chart:
    """A pane per figure. Empty unless something was measured in two places."""
    shown, figures = found[:MOST_CONDITIONS], figures_of(found)
    if not figures:
        return Chart()
    names = setup_names(shown)
    strips = len(figures) * sum(len(c.places) for c in shown)
    panes = [_figure(shown, figure, names, strips) for figure in figures]
    key = tuple((*series_of(n), name) for n, name in enumerate(names))
    return Chart("What each setup costs", tuple(panes), key, "panels")


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
            number = names.index(place.name)
            x = n + (number + 1) / (len(names) + 1)
            _place(plot, condition, place, figure, x, number, strips)
    return Pane((plot,), figure.title, figure.unit)


def _place(plot: Plot, condition: Condition, place: Place, figure: Figure, x: float, n: int,
           strips: int) -> None:  # fmt: skip
    item = compared(condition.base.cell, place.cell, figure, condition.family)
    if item.summary is None:
        return
    shape, style = series_of(n)
    dots = [Mark(x, value) for value in figure.values(place.cell)]
    plot.marks(dots, "small", f"{style} faint", strips=strips)
    if interval := item.summary.interval:
        plot.rise(x, interval.low, interval.high, f"{style} median")
    mark = Mark(x, item.summary.median, _says(item, condition, place.name),
                place.cell.typical.anchor)  # fmt: skip
    plot.marks([mark], shape, style)


def _says(item: Compared, condition: Condition, place: str) -> str:
    where = f"{place} at {condition.label}" if condition.label else place
    runs = f", n = {item.summary.n}" if item.summary else ""
    worst = f", {item.worst_words}" if item.worst_words else ""
    said = f"{item.figure.title} of {where}: {item.median_words}, {item.spread_words}{worst}{runs}"
    if item.found is None:
        return said
    relative = f" ({item.relative_words})" if item.relative_words else ""
    return f"{said}; against {condition.base.name} {item.shift_words}{relative}: {item.verdict}"


def repeats_plot(found: Sequence[Repeated]) -> Chart:
    """A strip per cell, a pane per figure; the band is what cannot be seen."""
    cells = list(dict.fromkeys(id(r.cell) for r in found))[:MOST_CELLS]
    figures = list(dict.fromkeys(r.figure.name for r in found))
    panes = [
        _strips([r for r in found if r.figure.name == name and id(r.cell) in cells],
                len(cells) * len(figures))
        for name in figures
    ]  # fmt: skip
    if not cells:
        return Chart()
    return Chart(
        "Repetitions of the same cell about their median", tuple(panes), (), "panels three"
    )


def _strips(found: Sequence[Repeated], strips: int) -> Pane:
    figure = found[0].figure
    reach = max([abs(d) for r in found for d in r.deviations] + [r.sees or 0.0 for r in found])
    step = Scale.over([reach], 2).high
    x = Scale(-step, step, (-step, 0.0, step))
    plot = Plot(f"{figure.title} of each cell's runs", x, Scale.rows(len(found)),
                height=(ROW - 4) * len(found), pad="rows")  # fmt: skip
    plot.axes("", lambda v: "median" if not v else f"{v:+.3g}".replace("-", "−"), None, "x")
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
        plot.marks([Mark(0.0, row, _repeated_words(one))], "tick", "s0 strong", dy=7)
    return Pane((plot,), figure.title, figure.difference_unit)


def _repeated_words(repeated: Repeated) -> str:
    figure, n = repeated.figure, len(repeated.values)
    low, high = (figure.signed(end(repeated.deviations)) for end in (min, max))
    said = (
        f"{figure.title} of {repeated.cell.label}: {n} runs between {low} and {high} "
        f"{figure.difference_unit} of their median"
    )
    apart = repeated.apart
    if runs := ", ".join(repeated.runs[i] for i in apart[:MOST_NAMED]):
        runs += f" and {len(apart) - MOST_NAMED} more" if len(apart) > MOST_NAMED else ""
        said += f"; {runs} stands apart" if len(apart) == 1 else f"; {runs} stand apart"
    return f"{said}; {repeated.sees_words}"


def studies_plot(figures: Sequence[StudyFigure]) -> Chart:
    """The study of 2016 beside this run, each on a scale of its own: only the order of the setups
    can be compared."""
    panes = [pane for figure in figures for pane in _study(figure)]
    key: tuple[KeyEntry, ...] = (
        ("zone", "part p-rest", "2016: other hardware"),
        ("zone", "part p-phase2", "this run: medians"),
        ("bar", "whole", "95 % interval"),
    )
    return (
        Chart("The study of 2016 beside this run", tuple(panes), key, "panels")
        if panes
        else Chart()
    )


def _study(figure: StudyFigure) -> Iterator[Pane]:
    published, rows = figure.published, figure.rows
    name = published.name[0].upper() + published.name[1:]
    there = Scale.over([row.published for row in rows], 3)
    here = Scale.over([_reach(row) for row in rows], 3)
    for x, unit, of_2016 in ((there, f"2016, {published.there}", True),
                             (here, f"this run, {published.here}", False)):  # fmt: skip
        plot = Plot(f"{name}: {unit}", x, Scale.rows(len(rows)), ROW * len(rows), "rows")
        plot.axes("", _plain, None, grid="x")
        for n, row in enumerate(rows):
            words = f"{row.published:.2f}" if of_2016 else f"{here_words(row.here)}; {row.said}"
            label = tag("tspan", cut(row.setup, 200), class_="b")
            beside = tag("tspan", f"  {cut(words, 330)}", class_="wd")
            plot.words(x.low, n, label + beside, "row-name", dy=-5)
            says = f"{name} of {row.setup}: {_study_words(figure, row)}"
            if of_2016:
                plot.bar(0, row.published, n, BAR, "p-rest", dy=8, says=says)
            elif row.here is not None:
                plot.bar(0, row.here.median, n, BAR, "p-phase2", dy=8, says=says)
                if interval := row.here.interval:
                    plot.span(interval.low, interval.high, n, "whole", caps=True, dy=8)
        yield Pane((plot,), name, unit)


def _reach(row: Beside) -> float:
    if row.here is None:
        return 0.0
    return max(row.here.median, row.here.interval.high if row.here.interval else 0.0)


def _study_words(figure: StudyFigure, row: Beside) -> str:
    published = figure.published
    here = f"{here_words(row.here)} {published.here}" if row.here else "not measured"
    return f"2016 {row.published:.2f} {published.there}; here {here}; {row.said}"
