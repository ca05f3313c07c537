"""Bars of parts, one below the other, each with its words: one too thin to see is still named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nodrop.report import numbers
from nodrop.report.loss_plot import ticks
from nodrop.report.svg import LETTER, cut, path, picture, tag

WIDTH = 1000.0
LEFT, RIGHT = 190.0, 330.0
"""Room for a bar's name, and for its words."""
ROW, BAR, HEAD = 26.0, 16.0, 24.0
TOP, KEY_LINE, BOTTOM = 8.0, 20.0, 36.0
THINNEST = 1.5
MOST_BARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    kind: str
    """Parts of one kind have one colour, and one name in the key."""
    value: float
    says: str
    """For pointer and keyboard."""
    style: str
    """Its class in figure.css."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    name: str
    parts: tuple[Part, ...]
    words: str
    """Beside the bar."""
    interval: tuple[float, float] | None = None
    """Of the whole."""
    group: str = ""
    """A heading above the first bar of each group."""


def stacked_bars(
    title: str,
    axis_name: str,
    bars: Sequence[Bar],
    *,
    high: float | None = None,
    order: Sequence[str] = (),
) -> Markup:
    """Empty if there is nothing to draw. `order` is that of the kinds in the key."""
    shown = [bar for bar in bars if bar.parts][:MOST_BARS]
    if not shown:
        return Markup("")
    reached = max(max(sum(p.value for p in b.parts), (b.interval or (0, 0))[1]) for b in shown)
    steps = ticks(reached if high is None else high, wanted=5)
    key, y = _key(shown, order)
    scale = (WIDTH - LEFT - RIGHT) / steps[-1]
    top, parts, group = y, [key], ""
    drawn: list[Markup] = []
    for bar in shown:
        if bar.group and bar.group != group:
            drawn.append(tag("text", cut(bar.group, 900), x=4, y=y + 16, class_="panel-name"))
            y += HEAD
        group = bar.group
        drawn.append(_bar(bar, y, scale))
        y += ROW
    parts += _axis(steps, axis_name, scale, top, y)
    return picture(WIDTH, y + BOTTOM, title, *parts, *drawn)


def _key(bars: Sequence[Bar], order: Sequence[str]) -> tuple[Markup, float]:
    found = {part.kind: part.style for bar in bars for part in bar.parts if part.value}
    styles = {**{kind: found[kind] for kind in order if kind in found}, **found}
    parts, x, y = [], LEFT, TOP + 10
    for kind, style in styles.items():
        width = 34 + len(kind) * LETTER
        if x + width > WIDTH and x > LEFT:
            x, y = LEFT, y + KEY_LINE
        swatch = tag("rect", x=x, y=y - 9, width=14, height=10, class_=f"part {style}")
        parts.append(tag("g", swatch, tag("text", kind, x=x + 20, y=y, class_="key")))
        x += width
    return tag("g", *parts), y + 12


def _axis(
    steps: Sequence[float], name: str, scale: float, top: float, bottom: float
) -> list[Markup]:
    parts = []
    for step in steps:
        x = LEFT + step * scale
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        label = numbers.short(step)
        parts.append(tag("text", label, x=x, y=bottom + 14, class_="tick", text_anchor="middle"))
    middle = {"x": LEFT + steps[-1] * scale / 2, "y": bottom + 30, "text_anchor": "middle"}
    return [*parts, tag("text", name, **middle, class_="axis-name")]


def _bar(bar: Bar, y: float, scale: float) -> Markup:
    label = tag("text", tag("title", bar.name), cut(bar.name, LEFT - 12), x=LEFT - 10, y=y + 17,
                class_="bar-name", text_anchor="end")  # fmt: skip
    parts, x = [label], LEFT
    for part in bar.parts:
        if not part.value:
            continue
        width = max(part.value * scale, THINNEST)
        rect = tag("rect", x=x, y=y + 4, width=width, height=BAR, class_=f"part {part.style}")
        says = tag("title", part.says)
        parts.append(tag("g", says, rect, class_="mark-part", tabindex="0", role="img"))
        x += width
    if bar.interval:
        low, high = (LEFT + end * scale for end in bar.interval)
        middle = y + 4 + BAR / 2
        caps = "".join(path([(at, middle - 5), (at, middle + 5)]) for at in (low, high))
        parts.append(tag("path", d=path([(low, middle), (high, middle)]) + caps, class_="span"))
        x = max(x, high)
    beside = WIDTH - RIGHT + 14
    parts.append(tag("text", tag("title", bar.words), cut(bar.words, RIGHT - 14), x=beside,
                     y=y + 17, class_="bar-words"))  # fmt: skip
    return tag("g", *parts)
