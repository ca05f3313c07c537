"""Pages of a comparison and of a history: each one file, in the style of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil

from markupsafe import Markup

from nodrop.compare.history import change_words
from nodrop.compare.records import History, HistoryRun, Line, MetricRow, Versus
from nodrop.compare.versus import figure_named, in_margins, notes_words, shown
from nodrop.report import numbers
from nodrop.report.chart import Chart, Mark, Pane, Plot, Scale, tag
from nodrop.report.sections import framed
from nodrop.results.trial import SIGNS

SKIP = ("answer", "To the answer")
REACH = 6.0
"""Width of the drawing on each side, in margins; a number stands for what lies beyond."""
MOST_STRIPS = 60
MOST_DATES = 8
"""Runs that have their date below them."""
KINDS = {"different": "different", "same": "same", "cannot tell": "unknown"}
SAMPLES = (
    ("different", "leaves out 0", 3.3, (2.4, 4.4)),
    ("same", "all inside the margin", 0.1, (-0.6, 0.5)),
    ("cannot tell", "neither, or too few runs", 0.7, (-2.1, 3.4)),
)
"""An example of each verdict, for those who read it the first time: difference and interval in
margins."""


def versus_page(found: Versus) -> str:
    """Every verdict as a difference in margins, so that all figures share one axis."""
    runs = [row for row in found.rows if row.a_values or row.b_values]
    strips = groupby(runs[:MOST_STRIPS], _cell_of)
    return framed(
        "compare.html.j2",
        "nodrop.compare",
        skip=SKIP,
        who=[("A, the base", found.a), ("B", found.b)],
        found=found,
        samples=[(one, why, _against(one, True, at, ends)) for one, why, at, ends in SAMPLES],
        axis=_axis(),
        groups=[(cell, [*map(_told, rows)]) for cell, rows in groupby(found.rows, _cell_of)],
        strips=[(cell, [*map(_strip, rows)]) for cell, rows in strips],
        left_out=max(0, len(runs) - MOST_STRIPS),
        runs=sorted({n for row in found.rows for n in (row.a_n, row.b_n)}),
        notes=[*notes_words(found)],
        kinds=KINDS,
        signs=SIGNS,
    )


def _cell_of(row: MetricRow) -> str:
    return row.cell


def _told(row: MetricRow) -> Mapping[str, object]:
    """A row of the table of verdicts."""
    figure, at = figure_named(row.metric), in_margins(row)
    verdict, parted, why = row.words.partition(" (" if row.answer == "cannot tell" else ", but ")
    interval, unit = "", figure.difference_unit
    if row.interval:
        interval = "[{}, {}]".format(*map(figure.signed, row.interval))
    return {
        "row": row,
        "figure": figure,
        "a": shown(row, row.a_median),
        "b": shown(row, row.b_median),
        "plot": None if at is None else _against(row.answer, row.worse, at, _ends(row)),
        "by": "" if row.difference is None else f"{figure.signed(row.difference)} {unit}",
        "interval": interval,
        "verdict": verdict.partition(":")[2].strip() if row.answer == "different" else "",
        "why": f"{parted.strip(', (')} {why.rstrip(')')}".strip(),
    }


def _ends(row: MetricRow) -> tuple[float, float] | None:
    if row.interval is None or not row.margin_size:
        return None
    low, high = row.interval
    return low / row.margin_size, high / row.margin_size


def _against(answer: str, worse: bool | None, at: float, ends: tuple[float, float] | None) -> Plot:
    """One difference in margins: green ground is the margin."""
    plot = Plot(f"{at:+.1f} margins: {answer}", Scale(-REACH, REACH), Scale.rows(1), 26, "against")
    plot.band(-1, 1, "z-same").upright(0, "zero")
    style = {"same": "merged", "cannot tell": "void"}.get(answer, "lost" if worse else "carried")
    if ends and ends[0] <= REACH and ends[1] >= -REACH:
        plot.span(max(ends[0], -REACH), min(ends[1], REACH), 0, style)
        plot.marks([Mark(end, 0) for end in ends if abs(end) <= REACH], "tick", style)
    if abs(at) > REACH:
        words = f"{at:+,.0f} margins".replace("-", "−")
        beyond = (f"{words} ▸", "a-end") if at > 0 else (f"◂ {words}", "")
        return plot.words(REACH if at > 0 else -REACH, 0, beyond[0], f"in-row {beyond[1]} {style}")
    shape = {"same": "box", "cannot tell": "ring"}.get(answer, "down" if worse else "up")
    return plot.marks([Mark(at, 0)], shape, style + (" hollow" if shape == "ring" else ""))


def _axis() -> Plot:
    """The margins above the column of differences."""
    steps = (-REACH, -3.0, -1.0, 1.0, 3.0, REACH)
    plot = Plot("Difference, in margins", Scale(-REACH, REACH, steps), Scale(0, 1), 2, "against")
    return plot.axes("", lambda v: f"{v:+.0f}".replace("-", "−"), None, grid="")


def _strip(row: MetricRow) -> Chart:
    """Every run a ring, the medians upright."""
    figure = figure_named(row.metric)
    values = [*row.a_values, *row.b_values]
    near = min(values) > max(values) / 2
    x = Scale.near(values, 4) if near else Scale.over(values, 4)
    plot = Plot(f"{figure.title} of every run", x, Scale.rows(2), height=56, pad="named")
    plot.axes("", numbers.short, None, grid="x")
    sides = (("A", row.a_values, row.a_median), ("B", row.b_values, row.b_median))
    for n, (name, found, middle) in enumerate(sides):
        plot.words(x.low, n, name, "row", dx=-12)
        plot.marks([Mark(value, n) for value in found], "ring", f"s{n} faint")
        if middle is not None:
            plot.marks([Mark(middle, n)], "tick", f"s{n} strong")
    return Chart(plot.says, (Pane((plot,), figure.title, figure.unit),))


def history_page(history: History) -> str:
    names = [f"{line.cell} · {figure_named(line.metric).title}" for line in history.lines]
    parts = [
        tag("section", tag("h1", "nodrop history"), _history_card(history, names), id="answer")
    ]
    for name, line in zip(names, history.lines, strict=True):
        drawn = tag("figure", history_plot(line, history.runs).__html__())
        parts += [tag("section", tag("h2", name), _list(change_words(history, line)), drawn)]
    runs = _list(_run_words(run) for run in history.runs)
    parts += [tag("section", tag("h2", "Runs"), runs)]
    parts += [tag("section", tag("h2", "Notes"), _list(history.notes))]
    main = Markup("").join(parts)
    return framed("history.html.j2", "nodrop.compare", main=main, skip=SKIP)


HISTORY_KINDS = {"worse": "different", "no worse": "same", "cannot tell": "unknown"}


def _history_card(history: History, names: Sequence[str]) -> Markup:
    """The verdict, then a row for each figure."""
    head = tag(
        "div",
        tag("p", f"{len(history.runs)} runs, the latest against those before", class_="kicker"),
        tag("p", f"{history.verdict[:1].upper()}{history.verdict[1:]}.", class_="verdict head"),
        class_="a1",
    )
    rows = []
    for name, line in zip(names, history.lines, strict=True):
        kind = HISTORY_KINDS[line.verdict]
        said = tag("span", tag("b", name), f" {line.words}")
        rows.append(tag("li", tag("b", SIGNS[kind][0]), " ", said, class_=kind))
    shown = tag("div", tag("ul", *rows, class_="rows"), class_="a3")
    return tag("div", head, shown, class_="card verdicts-card")


def _run_words(run: HistoryRun) -> str:
    changed = f": {', '.join(run.changed)}" if run.changed else ""
    return f"{_minute(run)} {run.name}{changed}"


def _minute(run: HistoryRun) -> str:
    """Time of a run: `2026-11-01 02:00`."""
    return run.started_utc[:16].replace("T", " ")


def _list(items: Iterator[str] | Sequence[str]) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))


def history_plot(line: Line, runs: Sequence[HistoryRun]) -> Chart:
    """A mark per run with its spread, and a step at each change; newest runs that are worse have a
    shape and colour of their own."""
    highest = max((point.highest or 0.0 for point in line.points), default=0.0)
    name = f"{line.cell}, {line.metric} over {len(runs)} runs"
    steps = tuple(range(0, len(runs), ceil(len(runs) / MOST_DATES) or 1))
    across = Scale(-0.5, max(len(runs), 1) - 0.5, steps)
    plot = Plot(name, across, Scale.over([highest], 4), height=150)
    days = len({run.started_utc[:10] for run in runs}) > 1
    plot.axes("runs by their begin, UTC; lines: lowest to highest trial",
              lambda step: _minute(runs[round(step)])[slice(5, 10) if days else slice(11, 16)],
              lambda v: f"{v:g}")  # fmt: skip
    worse = line.newest.first if line.verdict == "worse" and line.newest else len(runs)
    for change in line.changes:
        plot.upright(change.run - 0.5, "moment")
    for begin, end, level in _levels(line):
        plot.line([(begin - 0.4, level), (end - 0.6, level)], "fit")
    good: list[Mark] = []
    bad: list[Mark] = []
    void: list[Mark] = []
    for place, (point, run) in enumerate(zip(line.points, runs, strict=True)):
        if point.median is None or point.lowest is None or point.highest is None:
            void.append(Mark(place, 0.0, f"{run.name}: no value"))
            continue
        words = f"{run.name}: {figure_named(line.metric).shown(point.median)} {line.unit}"
        plot.rise(place, point.lowest, point.highest, "s0 median")
        kept = bad if place >= worse else good
        kept.append(Mark(place, point.median, f"{words}, n = {point.n}"))
    plot.marks(good, "dot", "s0").marks(bad, "down", "lost").marks(void, "cross", "void hollow")
    return Chart(name, (Pane((plot,), figure_named(line.metric).title, line.unit),))


def _levels(line: Line) -> Iterator[tuple[int, int, float]]:
    """First run, the run after the last, and the median between two changes."""
    if not line.changes:
        return
    places = [0, *(change.run for change in line.changes), len(line.points)]
    levels = [line.changes[0].before, *(change.after for change in line.changes)]
    yield from zip(places, places[1:], levels, strict=False)
