"""A history drawn: a mark per run with its spread, and a step at each change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape as html
from importlib.resources import files

from markupsafe import Markup

from nodrop.report.loss_plot import ticks
from nodrop.report.svg import path, picture, tag
from nodrop.report.versus import figure_named
from nodrop.results.history import History, HistoryRun, Line
from nodrop.untrusted.words import visible

WIDTH, HEIGHT = 860.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 76.0, 16.0, 18.0, 38.0
FLOOR = HEIGHT - BOTTOM


def history_page(found: History, *, title: str) -> str:
    """One HTML file that needs nothing else, in the style of a report."""
    templates = files("nodrop.report") / "templates"
    style = "".join(
        (templates / name).read_text(encoding="utf-8") for name in ("figure.css", "style.css")
    )
    parts = [Markup("<h1>"), title, Markup("</h1><p><strong>"), found.verdict, Markup("</strong>")]
    parts += [f", {len(found.runs)} runs", Markup("</p>")]
    for line in found.lines:
        name = f"{line.cell} · {figure_named(line.metric).title}"
        drawn = _scrolls(history_plot(line, found.runs), name)
        parts += [tag("section", tag("h2", name), _said(found, line), drawn)]
    runs = _list(_run_words(run) for run in found.runs)
    parts += [tag("section", tag("h2", "Runs"), runs)]
    parts += [tag("section", tag("h2", "Notes"), _list(found.notes))]
    body = Markup("").join(parts)
    return visible(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html(title)}</title><style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )


def _scrolls(drawn: Markup, name: str) -> Markup:
    """A picture that is wider than a small screen scrolls by itself, as those of a report do."""
    return tag("figure", tag("div", drawn, class_="scroll", tabindex="0", role="region",
                             aria_label=name))  # fmt: skip


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


def history_plot(line: Line, runs: Sequence[HistoryRun]) -> Markup:
    highest = max((point.highest or 0.0 for point in line.points), default=0.0)
    marks = ticks(highest, wanted=4)
    step = (WIDTH - LEFT - RIGHT) / max(len(runs), 1)

    def x(place: float) -> float:
        return LEFT + (place + 0.5) * step

    def y(value: float) -> float:
        return FLOOR - value / marks[-1] * (FLOOR - TOP)

    parts: list[Markup] = []
    for mark in marks:
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(mark), y2=y(mark), class_="grid"))
        label = f"{mark:g} {line.unit}".rstrip()
        parts.append(tag("text", label, x=LEFT - 8, y=y(mark) + 4, class_="tick",
                         text_anchor="end"))  # fmt: skip
    for change in line.changes:
        at = x(change.run - 0.5)
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=FLOOR, class_="moment"))
    for begin, end, level in _levels(line):
        along = [(x(begin - 0.4), y(level)), (x(end - 0.6), y(level))]
        parts.append(tag("g", tag("path", d=path(along), class_="line"), class_="s6"))
    for place, (point, run) in enumerate(zip(line.points, runs, strict=True)):
        if point.median is None or point.lowest is None or point.highest is None:
            parts.append(_void(x(place), FLOOR, f"{run.name}: no value"))
            continue
        words = f"{run.name}: {figure_named(line.metric).shown(point.median)} {line.unit}"
        ends = [(x(place), y(point.lowest)), (x(place), y(point.highest))]
        parts.append(
            tag("g", tag("title", f"{words}, n = {point.n}"), tag("path", d=path(ends),
                class_="whisker"), tag("circle", cx=x(place), cy=y(point.median), r=3.5,
                class_="fill"), class_="s0")
        )  # fmt: skip
    name = "runs in the order of their own time; lines reach from the lowest to the highest trial"
    parts.append(tag("text", name, x=WIDTH / 2, y=HEIGHT - 8, class_="axis-name",
                     text_anchor="middle"))  # fmt: skip
    return picture(WIDTH, HEIGHT, f"{line.cell}, {line.metric} over {len(runs)} runs", *parts)


def _levels(line: Line) -> Iterator[tuple[int, int, float]]:
    """First run, the run after the last, and the median between two changes."""
    if not line.changes:
        return
    places = [0, *(change.run for change in line.changes), len(line.points)]
    levels = [line.changes[0].before, *(change.after for change in line.changes)]
    yield from zip(places, places[1:], levels, strict=False)


def _void(x: float, y: float, words: str) -> Markup:
    cross = path([(x - 4, y - 4), (x + 4, y + 4)]) + path([(x + 4, y - 4), (x - 4, y + 4)])
    return tag("path", tag("title", words), d=cross, class_="cross")
