"""A history drawn: a mark per run with its spread, and a step at each change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape as html
from importlib.resources import files

from markupsafe import Markup

from nodrop.report.chart import Chart, Mark, Pane, Plot, Scale, symbols, tag
from nodrop.report.versus import figure_named
from nodrop.results.history import History, HistoryRun, Line
from nodrop.untrusted.words import visible


def history_page(found: History, *, title: str) -> str:
    """One HTML file that needs nothing else, in the style of a report."""
    templates = files("nodrop.report") / "templates"
    style = "".join(
        (templates / name).read_text(encoding="utf-8") for name in ("chart.css", "style.css")
    )
    parts = [Markup("<h1>"), title, Markup("</h1><p><strong>"), found.verdict, Markup("</strong>")]
    parts += [f", {len(found.runs)} runs", Markup("</p>")]
    for line in found.lines:
        name = f"{line.cell} · {figure_named(line.metric).title}"
        drawn = tag("figure", history_plot(line, found.runs).__html__())
        parts += [tag("section", tag("h2", name), _said(found, line), drawn)]
    runs = _list(_run_words(run) for run in found.runs)
    parts += [tag("section", tag("h2", "Runs"), runs)]
    parts += [tag("section", tag("h2", "Notes"), _list(found.notes))]
    body = Markup("").join(parts)
    return visible(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html(title)}</title><style>{style}</style></head><body>{symbols()}<main>{body}</main></body></html>\n"
    )


def _said(found: History, line: Line) -> Markup:
    return Markup("").join([tag("p", line.words), _list(change_words(found, line))])


def change_words(found: History, line: Line) -> Iterator[str]:
    if not line.changes:
        yield "no change seen"
    for change in line.changes:
        beside = f"; beside it: {', '.join(change.beside)}" if change.beside else ""
        yield f"at {found.runs[change.run].name}: {change.words}{beside}"


def _run_words(run: HistoryRun) -> str:
    changed = f": {', '.join(run.changed)}" if run.changed else ""
    return f"{run.started_utc} {run.name}{changed}"


def _list(items: Iterator[str] | Sequence[str]) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))


def history_plot(line: Line, runs: Sequence[HistoryRun]) -> Chart:
    """A mark per run with its spread, and a step at each change."""
    highest = max((point.highest or 0.0 for point in line.points), default=0.0)
    name = f"{line.cell}, {line.metric} over {len(runs)} runs"
    plot = Plot(name, Scale(-0.5, max(len(runs), 1) - 0.5), Scale.over([highest], 4), height=150)
    plot.axes("runs in the order of their own time; lines: lowest to highest trial",
              None, lambda v: f"{v:g}")  # fmt: skip
    for change in line.changes:
        plot.upright(change.run - 0.5, "moment")
    for begin, end, level in _levels(line):
        plot.line([(begin - 0.4, level), (end - 0.6, level)], "fit")
    known, void = [], []
    for place, (point, run) in enumerate(zip(line.points, runs, strict=True)):
        if point.median is None or point.lowest is None or point.highest is None:
            void.append(Mark(place, 0.0, f"{run.name}: no value"))
            continue
        words = f"{run.name}: {figure_named(line.metric).shown(point.median)} {line.unit}"
        plot.rise(place, point.lowest, point.highest, "s0 median")
        known.append(Mark(place, point.median, f"{words}, n = {point.n}"))
    plot.marks(known, "dot", "s0").marks(void, "cross", "void")
    return Chart(name, (Pane((plot,), "", line.unit),))


def _levels(line: Line) -> Iterator[tuple[int, int, float]]:
    """First run, the run after the last, and the median between two changes."""
    if not line.changes:
        return
    places = [0, *(change.run for change in line.changes), len(line.points)]
    levels = [line.changes[0].before, *(change.after for change in line.changes)]
    yield from zip(places, places[1:], levels, strict=False)
