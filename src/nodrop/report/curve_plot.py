"""Curves over time, several setups in one frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nodrop.report import numbers
from nodrop.report.loss_plot import MOST_SERIES, ticks
from nodrop.report.svg import path, picture, tag

WIDTH, HEIGHT = 560.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 96.0, 14.0, 44.0
LABEL_HEIGHT = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    name: str
    points: tuple[tuple[float, float], ...]


def curve_plot(title: str, x_name: str, y_name: str, curves: Sequence[Curve]) -> Markup:
    """Empty if there is no point."""
    shown = [curve for curve in curves if curve.points][:MOST_SERIES]
    if not shown:
        return Markup("")
    x_ticks = ticks(max(x for curve in shown for x, _ in curve.points))
    y_ticks = ticks(max(y for curve in shown for _, y in curve.points))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + x / x_ticks[-1] * (right - LEFT),
            bottom - y / y_ticks[-1] * (bottom - TOP),
        )

    parts = _frame(x_ticks, y_ticks, x_name, y_name)
    ends = [place(*curve.points[-1])[1] for curve in shown]
    for number, (curve, label_y) in enumerate(zip(shown, _apart(ends), strict=True)):
        line = [place(x, y) for x, y in curve.points]
        label = tag("text", curve.name, x=right + 8, y=label_y + 4, class_="series-name")
        drawn = tag("path", d=path(line), class_="line")
        parts.append(tag("g", drawn, label, class_=f"series s{number}"))
    return picture(WIDTH, HEIGHT, title, *parts)


def _frame(
    x_ticks: Sequence[float], y_ticks: Sequence[float], x_name: str, y_name: str
) -> list[Markup]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts: list[Markup] = []
    for tick in y_ticks:
        y = bottom - tick / y_ticks[-1] * (bottom - TOP)
        parts.append(tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid"))
        label = numbers.short(tick)
        parts.append(tag("text", label, x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end"))
    for tick in x_ticks:
        x = LEFT + tick / x_ticks[-1] * (right - LEFT)
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
        label = numbers.short(tick)
        parts.append(tag("text", label, x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    parts.append(tag("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"))
    middle = (LEFT + right) / 2
    x_label = {"x": middle, "y": HEIGHT - 8}
    parts.append(tag("text", x_name, **x_label, class_="axis-name", text_anchor="middle"))
    turn = f"rotate(-90 14 {HEIGHT / 2:.0f})"
    y_label = {"x": 14, "y": HEIGHT / 2, "transform": turn}
    parts.append(tag("text", y_name, **y_label, class_="axis-name", text_anchor="middle"))
    return parts


def _apart(ys: Sequence[float]) -> list[float]:
    """Label heights moved so far that none covers another, in the order given."""
    order = sorted(range(len(ys)), key=lambda n: ys[n])
    found = list(ys)
    lowest = TOP
    for n in order:
        found[n] = max(ys[n], lowest)
        lowest = found[n] + LABEL_HEIGHT
    over = lowest - LABEL_HEIGHT - (HEIGHT - BOTTOM)
    return [y - over for y in found] if over > 0 else found
