"""Panels on one time axis, as one picture."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from nodrop.report import numbers
from nodrop.report.loss_plot import ticks
from nodrop.report.panels import Panel, Series, Timeline
from nodrop.report.svg import picture, tag

WIDTH = 1000.0
LEFT, RIGHT = 64.0, 190.0
PANEL, GAP, TOP, BOTTOM = 84.0, 26.0, 26.0, 34.0
LABEL = 14.0


def time_chart(timeline: Timeline, title: str) -> Markup:
    span = _span(timeline)
    if span is None:
        return Markup("")
    parts: list[Markup] = []
    y = TOP
    for panel in timeline.panels:
        parts += _panel(panel, y, span)
        y += PANEL + GAP
    bottom = y - GAP
    parts += _axis(span, bottom)
    parts += [_mark(name, at, n, span, bottom) for n, (name, at) in enumerate(timeline.marks)]
    return picture(WIDTH, bottom + BOTTOM, title, *parts)


def _span(timeline: Timeline) -> tuple[float, float] | None:
    times = [t for p in timeline.panels for s in p.series for t, _ in s.points]
    times += [at for _, at in timeline.marks]
    return (min(times), max(times)) if times and min(times) < max(times) else None


def _x(t: float, span: tuple[float, float]) -> float:
    return LEFT + (t - span[0]) / (span[1] - span[0]) * (WIDTH - LEFT - RIGHT)


def _panel(panel: Panel, top: float, span: tuple[float, float]) -> list[Markup]:
    stack = _stacked(panel.series) if panel.stacked else [s.points for s in panel.series]
    reached = max((v for points in stack for _, v in points), default=0.0)
    # CPU times step by a tick (4 ms), and a sampler that waits for its turn reads them late: an
    # interval may seem to hold more than itself. What cannot be more is drawn as all there is.
    steps = ticks(reached if panel.high is None else panel.high, wanted=2)

    def y(value: float) -> float:
        return top + PANEL - min(value / steps[-1], 1.0) * PANEL

    title = f"{panel.title}, {panel.unit}"
    parts = [tag("text", title, x=LEFT, y=top - 6, class_="panel-name")]
    for step in steps:
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(step), y2=y(step), class_="grid"))
        label = numbers.short(step)
        parts.append(
            tag("text", label, x=LEFT - 8, y=y(step) + 4, class_="tick", text_anchor="end")
        )
    base: Sequence[tuple[float, float]] = [(t, 0.0) for t, _ in stack[0]] if stack else ()
    for number, (series, points) in enumerate(zip(panel.series, stack, strict=True)):
        line = [(_x(t, span), y(v)) for t, v in points]
        if panel.stacked:
            under = [(_x(t, span), y(v)) for t, v in reversed(base)]
            shape = tag("path", d=_compact([*line, *under]) + "Z", class_="area")
            base = points
        else:
            shape = tag("path", d=_compact(line), class_="line")
        key = _key(series, top + 10 + number * LABEL, stacked=panel.stacked)
        parts.append(
            tag("g", tag("title", series.name), shape, *key, class_=f"s{series.style % 8}")
        )
    return parts


def _stacked(series: Sequence[Series]) -> list[tuple[tuple[float, float], ...]]:
    """Cumulative values; all series of a stacked panel have the same times."""
    sums: dict[float, float] = {}
    found = []
    for one in series:
        for t, value in one.points:
            sums[t] = sums.get(t, 0.0) + value
        found.append(tuple((t, sums[t]) for t, _ in one.points))
    return found


def _key(series: Series, y: float, *, stacked: bool) -> list[Markup]:
    """Named beside the panel, in the order of the lines: no colour is the only sign."""
    x = WIDTH - RIGHT + 12
    sample = (
        tag("rect", x=x, y=y - 8, width=16, height=8, class_="area")
        if stacked
        else tag("path", d=f"M{x:.0f},{y - 4:.0f} h16", class_="line")
    )
    return [sample, tag("text", series.name, x=x + 22, y=y, class_="key")]


def _axis(span: tuple[float, float], bottom: float) -> list[Markup]:
    first, last = span
    steps = ticks(last - min(first, 0.0), wanted=6)
    size = steps[1] - steps[0]
    parts = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis")]
    n = int(first // size)
    while n * size <= last:
        t = n * size
        n += 1
        if t < first:
            continue
        label = f"{t:.6g} s".replace("-", "−")
        x = _x(t, span)
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
        parts.append(tag("text", label, x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    return parts


def _mark(name: str, at: float, number: int, span: tuple[float, float], bottom: float) -> Markup:
    x = _x(at, span)
    low = bottom + 31
    return tag(
        "g",
        tag("line", x1=x, x2=x, y1=TOP - 2, y2=bottom, class_="moment"),
        tag("text", name, x=x, y=low, class_="moment-name", text_anchor=_anchor(number)),
    )


def _anchor(number: int) -> str:
    """Traffic ends and the drain ends close together: one name left of its line, one right."""
    return ("start", "end", "start")[number % 3]


def _compact(points: Sequence[tuple[float, float]]) -> str:
    """Whole pixels across, tenths up; points on a straight horizontal line are left out."""
    kept = [
        p
        for i, p in enumerate(points)
        if not 0 < i < len(points) - 1 or not _flat(points[i - 1], p, points[i + 1])
    ]
    return "M" + " ".join(f"{x:.0f},{y:.1f}".replace(".0 ", " ") for x, y in kept) if kept else ""


def _flat(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return abs(a[1] - b[1]) < 0.05 and abs(b[1] - c[1]) < 0.05


def overlay(series: Sequence[Series], title: str, unit: str, high: float | None) -> Markup:
    """The same figure of several cells in one panel, their first packets at 0 s."""
    panel = Panel(title=title, unit=unit, series=tuple(series), high=high)
    return time_chart(Timeline(panels=(panel,), marks=()), f"{title} of several cells")
