"""What each setup costs, drawn: a panel per figure, every run a dot, its median with interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from nodrop.report import bounded
from nodrop.report.comparison import Compared, compared, figures_of
from nodrop.report.costs import Figure
from nodrop.report.loss_plot import marker, ticks
from nodrop.report.setups import Condition, Place, setup_names
from nodrop.report.svg import LETTER, cut, path, picture, tag

WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 1000.0, 470.0, 190.0
LEFT, TOP, BOTTOM, GAP = 62.0, 24.0, 34.0, 22.0
KEY_HEIGHT = 26.0
MOST_CONDITIONS = 10
"""Beyond, marks would cover each other; the table has every condition."""
"""Width of a letter of the key, rounded up: a name is never cut by the next."""


def comparison_plot(found: Sequence[Condition]) -> Markup:
    """Empty unless something was measured in two places."""
    shown, figures = found[:MOST_CONDITIONS], figures_of(found)
    if not figures:
        return Markup("")
    names = setup_names(shown)
    key, key_height = _key(names)
    parts = [key]
    for number, figure in enumerate(figures):
        x = (number % 2) * (WIDTH - PANEL_WIDTH)
        y = key_height + (number // 2) * (PANEL_HEIGHT + GAP)
        strips = len(figures) * sum(len(c.places) for c in shown)
        panel = _panel(shown, figure, names, strips)
        parts.append(tag("g", *panel, transform=f"translate({x:.0f} {y:.0f})"))
    rows = -(-len(figures) // 2)
    height = key_height + rows * (PANEL_HEIGHT + GAP) - GAP + 4
    return picture(WIDTH, height, "What each setup costs", *parts)


def _key(names: Sequence[str]) -> tuple[Markup, float]:
    """Marker and name of every setup, in as many lines as it takes."""
    parts, x, y = [], LEFT, 16.0
    for number, name in enumerate(names):
        width = 26 + len(name) * LETTER
        if x + width > WIDTH and x > LEFT:
            x, y = LEFT, y + KEY_HEIGHT
        sample = tag("g", marker(x + 6, y - 4, number), class_="mark")
        label = tag("text", name, x=x + 18, y=y, class_="key")
        parts.append(tag("g", sample, label, class_=f"s{number % 8}"))
        x += width
    return tag("g", *parts), y + 24


def _panel(
    found: Sequence[Condition], figure: Figure, names: Sequence[str], strips: int
) -> list[Markup]:
    high = max(
        (value for c in found for p in c.places for value in figure.values(p.cell)), default=0.0
    )
    steps = ticks(high, wanted=4)
    bottom = PANEL_HEIGHT - BOTTOM

    def y(value: float) -> float:
        return bottom - value / steps[-1] * (bottom - TOP)

    title = f"{figure.title}, {figure.unit}"
    parts = [tag("text", tag("title", figure.help), title, x=LEFT, y=12, class_="panel-name")]
    for step in steps:
        parts.append(tag("line", x1=LEFT, x2=PANEL_WIDTH, y1=y(step), y2=y(step), class_="grid"))
        label = f"{step:,.6g}".replace(",", "\u202f")
        parts.append(
            tag("text", label, x=LEFT - 8, y=y(step) + 4, class_="tick", text_anchor="end")
        )
    parts.append(tag("line", x1=LEFT, x2=PANEL_WIDTH, y1=bottom, y2=bottom, class_="axis"))
    wide = (PANEL_WIDTH - LEFT) / len(found)
    for n, condition in enumerate(found):
        left = LEFT + n * wide
        if n:
            parts.append(tag("line", x1=left, x2=left, y1=TOP, y2=bottom, class_="grid"))
        words = tag("title", condition.label)
        label = cut(condition.label, wide)
        middle = {"x": left + wide / 2, "y": bottom + 17, "text_anchor": "middle"}
        parts.append(tag("text", words, label, **middle, class_="tick"))
        for place in condition.places:
            number = names.index(place.name)
            x = left + (number + 1) / (len(names) + 1) * wide
            parts.append(_place(condition, place, figure, x, y, number, strips))
    return parts


def _place(
    condition: Condition,
    place: Place,
    figure: Figure,
    x: float,
    y: Callable[[float], float],
    number: int,
    strips: int,
) -> Markup:
    item = compared(condition.base.cell, place.cell, figure, condition.family)
    dots = bounded.marks(figure.values(place.cell), strips=strips, key=float)
    parts = [tag("circle", cx=x, cy=y(value), r=2.2, class_="dot") for value in dots]
    if item.summary is None:
        return Markup("")
    if interval := item.summary.interval:
        ends = [(x, y(interval.low)), (x, y(interval.high))]
        parts.append(tag("path", d=path(ends), class_="whisker"))
    says, drawn = (
        tag("title", _says(item, condition, place.name)),
        marker(x, y(item.summary.median), number),
    )
    parts.append(tag("g", says, drawn, class_="mark", tabindex="0", role="img"))
    return tag("g", *parts, class_=f"s{number % 8}")


def _says(item: Compared, condition: Condition, place: str) -> str:
    where = f"{place} at {condition.label}" if condition.label else place
    runs = f", n = {item.summary.n}" if item.summary else ""
    worst = f", {item.worst_words}" if item.worst_words else ""
    said = f"{item.figure.title} of {where}: {item.median_words}, {item.spread_words}{worst}{runs}"
    if item.found is None:
        return said
    relative = f" ({item.relative_words})" if item.relative_words else ""
    return f"{said}; against {condition.base.name} {item.shift_words}{relative}: {item.verdict}"
