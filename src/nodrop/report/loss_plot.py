"""Loss over offered load: every measured trial a dot, every cell its median with interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from markupsafe import Markup

from nodrop.report import bounded, numbers
from nodrop.report.costs import LOSS_FIGURE
from nodrop.report.loads import percent_with_interval
from nodrop.report.outlying import outlying_in
from nodrop.report.story import Cell
from nodrop.report.svg import path, picture, ring, tag

WIDTH, HEIGHT = 560.0, 290.0
LEFT, TOP, BOTTOM = 64.0, 18.0, 46.0
LEAST_ROOM_FOR_NAMES, NO_NAMES = 90.0, 16.0
LETTER = 7.4
LINE = 15.0
ASIDE = 6.0
"""Between series: at the same load their dots and bars would hide each other."""
MOST_LETTERS = 32
MOST_SERIES = 8
"""Colours, dashes and marker shapes go round after this many; the table has every cell."""


def ticks(high: float, wanted: int = 5) -> list[float]:
    """Round values from 0 to just above `high`."""
    if high <= 0:
        return [0.0, 1.0]
    raw = high / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * (1 - 1e-9))
    return [i * step for i in range(math.ceil(high / step - 1e-9) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    x_ticks: list[float]
    y_ticks: list[float]
    right: float
    """Where the plotting area ends."""

    def x(self, pps: float) -> float:
        return LEFT + pps / self.x_ticks[-1] * (self.right - LEFT)

    def y(self, pct: float) -> float:
        return HEIGHT - BOTTOM - pct / self.y_ticks[-1] * (HEIGHT - TOP - BOTTOM)


def loss_plot(cells: Sequence[Cell]) -> Markup:
    """Empty unless some measured trial has both its load and its loss."""
    shown = [c for c in cells if c.loss is not None and c.offered_pps is not None]
    if not shown:
        return Markup("")
    groups = [list(found) for _, found in groupby(shown, key=lambda c: (c.source, c.group))]
    failed = [(c, pps) for c in cells if c.failed and (pps := c.offered_pps or c.asked_pps)]
    rates = [v for c in shown for v in c.values("offered_pps")] + [pps for _, pps in failed]
    axes = _Axes(
        right=WIDTH - _room_for_names(groups),
        x_ticks=ticks(max(rates)),
        y_ticks=ticks(max(c.loss.high for c in shown if c.loss) * 100),
    )
    parts = _frame(axes)
    drawn = groups[:MOST_SERIES]
    for number, group in enumerate(drawn):
        aside = (number - (len(drawn) - 1) / 2) * ASIDE
        parts += _series(axes, group, number, aside, strips=len(shown))
    if len(groups) > 1:
        parts += _names(axes, drawn)
    parts += [_failed(axes, cell, pps) for cell, pps in failed]
    return picture(WIDTH, HEIGHT, "Loss over offered load", *parts)


def _failed(axes: _Axes, cell: Cell, pps: float) -> Markup:
    """At the top: the median below it is that of trials which the SUT survived."""
    x, y = axes.x(pps), TOP
    says = f"{cell.label}: failed in {len(cell.failed)} of {len(cell.failed) + len(cell.valid)}"
    cross = path([(x - 5, y - 5), (x + 5, y + 5)]) + path([(x + 5, y - 5), (x - 5, y + 5)])
    drawn = tag("path", d=cross, class_="cross failed")
    return tag("g", tag("title", says), drawn, class_="mark", tabindex="0", role="img")


def _room_for_names(groups: Sequence[Sequence[Cell]]) -> float:
    """At most half of the width: what is longer is cut, and stands in the table."""
    if len(groups) < 2:
        return NO_NAMES
    longest = max(len(_series_name(group[0])) for group in groups[:MOST_SERIES])
    return max(LEAST_ROOM_FOR_NAMES, longest * LETTER + 36)


def _series_name(cell: Cell) -> str:
    name = cell.group or "all"
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def _frame(axes: _Axes) -> list[Markup]:
    right, bottom = axes.right, HEIGHT - BOTTOM
    parts: list[Markup] = []
    for tick in axes.y_ticks:
        y = axes.y(tick)
        parts.append(tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid"))
        label = f"{tick:.3g}"
        parts.append(tag("text", label, x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end"))
    for tick in axes.x_ticks:
        x = axes.x(tick)
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
        label = numbers.short(tick)
        parts.append(tag("text", label, x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    parts.append(tag("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"))
    middle = (LEFT + right) / 2
    parts.append(
        tag(
            "text",
            "offered load, packets/s (really sent)",
            x=middle,
            y=HEIGHT - 8,
            class_="axis-name",
            text_anchor="middle",
        )
    )
    turn = f"rotate(-90 16 {HEIGHT / 2:.0f})"
    parts.append(
        tag(
            "text",
            "lost, % of sent",
            x=16,
            y=HEIGHT / 2,
            transform=turn,
            class_="axis-name",
            text_anchor="middle",
        )
    )
    return parts


def _series(
    axes: _Axes, group: Sequence[Cell], number: int, aside: float, *, strips: int
) -> list[Markup]:
    ordered = sorted(group, key=lambda c: c.offered_pps or 0.0)
    medians = [_median(axes, cell) for cell in ordered]
    parts = [tag("path", d=path([(x + aside, y) for x, y in medians]), class_="line")]
    for cell, (x, y) in zip(ordered, medians, strict=True):
        parts += [*_dots(axes, cell, aside, strips), *_apart(axes, cell, aside, strips)]
        parts += _cell(axes, cell, x + aside, y, number)
    return [tag("g", *parts, class_=f"series s{number}")]


def _median(axes: _Axes, cell: Cell) -> tuple[float, float]:
    loss = cell.loss.median if cell.loss else 0.0
    return axes.x(cell.offered_pps or 0.0), axes.y(loss * 100)


def _names(axes: _Axes, groups: Sequence[Sequence[Cell]]) -> list[Markup]:
    """Beside the last median of each series, as near as the names of others allow."""
    last = [max(group, key=lambda c: c.offered_pps or 0.0) for group in groups]
    wanted = sorted((_median(axes, cell)[1], n) for n, cell in enumerate(last))
    lowest = HEIGHT - BOTTOM - LINE * len(wanted) + 5
    parts, y = [], TOP - LINE
    for place, (at, n) in enumerate(wanted):
        y = max(y + LINE, min(at, lowest + LINE * place))
        x = axes.x(last[n].offered_pps or 0.0) + 12 + ASIDE * len(groups) / 2
        name = tag("text", _series_name(last[n]), x=x, y=y + 4, class_="series-name")
        parts.append(tag("g", name, class_=f"s{n}"))
    return parts


def _dots(axes: _Axes, cell: Cell, aside: float, strips: int) -> Iterator[Markup]:
    told = [
        (trial.loss_ratio, trial.offered_pps)
        for trial in cell.valid
        if trial.offered_pps is not None and trial.loss_ratio is not None
    ]
    for loss, pps in bounded.marks(told, strips=strips, key=itemgetter(0)):
        cx, cy = axes.x(pps) + aside, axes.y(loss * 100)
        yield tag("circle", cx=cx, cy=cy, r=2.5, class_="dot")


def _apart(axes: _Axes, cell: Cell, aside: float, strips: int) -> Iterator[Markup]:
    """Drawn whether or not the trial itself is one of the dots."""
    for one in bounded.marks(tuple(outlying_in(cell, LOSS_FIGURE)), strips=strips):
        offered = one.trial.offered_pps
        if offered is None:
            continue
        cx, cy = axes.x(offered) + aside, axes.y(one.found.value)
        says = f"{one.trial.name} stands apart: {one.words}"
        drawn = tag("circle", cx=cx, cy=cy, r=2.5, class_="dot"), ring(cx, cy, 6.5)
        yield tag("g", tag("title", says), *drawn, class_="mark", tabindex="0", role="img")


def _cell(axes: _Axes, cell: Cell, x: float, y: float, number: int) -> list[Markup]:
    parts: list[Markup] = []
    loss = cell.loss
    if loss and loss.interval:
        low, high = axes.y(loss.interval.low * 100), axes.y(loss.interval.high * 100)
        parts.append(tag("path", d=path([(x, low), (x, high)]), class_="whisker"))
    says = f"{cell.label}: {percent_with_interval(loss)} lost, n = {loss.n}" if loss else cell.label
    parts.append(
        tag(
            "g",
            tag("title", says),
            marker(x, y, number),
            class_="mark",
            tabindex="0",
            role="img",
        )
    )
    return parts


def marker(x: float, y: float, number: int) -> Markup:
    """A shape per series: colour is never the only sign."""
    shapes = (
        ((-5, -5), (5, -5), (5, 5), (-5, 5)),
        ((0, -6), (6, 5), (-6, 5)),
        ((0, -7), (7, 0), (0, 7), (-7, 0)),
        ((0, 6), (6, -5), (-6, -5)),
    )
    if number % 5 == 0:
        return tag("circle", cx=x, cy=y, r=5)
    corners = shapes[number % 5 - 1]
    return tag("path", d=path([(x + dx, y + dy) for dx, dy in corners], close=True))
