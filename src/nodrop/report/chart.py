"""One drawing kit: axes, marks, bars, keys and frames of charts, on the page and in saved files.

A plot is an SVG without a viewBox. Places along an axis are percentages, text and strokes are
pixels, so the same bytes fill 300 or 1,600 px with text of one size: no script, no second drawing,
no inline style. Paths lie in a stretched inner svg (0 to 1000 each way) whose strokes do not scale.
Every attribute and text is escaped in `tag` and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby, pairwise
from typing import Any, Self

from markupsafe import Markup, escape

from nodrop.report import bounded, numbers
from nodrop.report.escape import plain

Point = tuple[float, float]
Shown = Callable[[float], str]
KeyEntry = tuple[str, str, str]
"""Shape (or line, area, zone, bar), style and name."""

OUTCOMES = {
    "good": ("dot", "carried", "no loss"),
    "absorbed": ("dot", "carried hollow", "no loss, pace not shown"),
    "loss": ("down", "lost", "lost packets"),
    "failed": ("cross", "failed", "the SUT failed"),
    "void": ("diamond", "void hollow", "void"),
}
"""Sign, style and words of an outcome: colour is never the only sign."""
MISSED = OUTCOMES | {
    "good": ("dot", "carried", "no detection missed"),
    "absorbed": ("dot", "carried hollow", "no detection missed, pace not shown"),
    "loss": ("down", "lost", "missed detections"),
}
"""... of trials that are judged by their detections."""
SERIES = ("dot", "box", "up", "diamond", "down")
MOST_SERIES = 8
"""Number of colours, dashes and shapes, which then go round; the table has every series."""
MOST_BARS = 60
ROW, BAR = 38, 14
"""Height of a named row and of its bar."""
NAME_ROOM, WORDS_ROOM = 330, 480
"""px for the name of a bar and for the words beside it."""
LETTER = 6.6
"""Width of a letter of a label, about."""


def number(value: float, digits: int = 2) -> str:
    """The number with at most that many decimals and no trailing zeros: small files, the same bytes
    everywhere."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if digits else text
    return "0" if text in ("-0", "") else text


def tag(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """`tag("text", "5 %", x=3, class_="tick")`; None leaves one out."""
    found = ""
    for key, value in attributes.items():
        if value is not None:
            said = number(value) if isinstance(value, float | int) else "\n".join(
                plain(line, longest=100_000) for line in str(value).split("\n")
            )  # fmt: skip
            found += f' {key.rstrip("_").replace("_", "-")}="{escape(said)}"'
    inner = "".join(map(shown_text, children))
    return Markup(f"<{name}{found}>{inner}</{name}>" if children else f"<{name}{found}/>")


def shown_text(child: object) -> Markup:
    """Markup as it is; any other text without what cannot be seen, and escaped."""
    if isinstance(child, Markup):
        return child
    return escape(child if hasattr(child, "__html__") else plain(child, longest=1000))


def cut(label: str, width: float) -> str:
    """The label, or as much of it as has room."""
    most = max(int(width / LETTER), 2)
    return label if len(label) <= most else f"{label[: most - 1]}…"


def ticks(high: float, wanted: int = 5, low: float = 0.0) -> list[float]:
    """Round values from at or below `low` to at or above `high`."""
    if high <= low:
        return [low, low + 1.0]
    raw = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    return [n * step for n in range(first, math.ceil(high / step - 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Scale:
    low: float
    high: float
    steps: tuple[float, ...] = ()

    @classmethod
    def over(cls, values: Iterable[float], wanted: int = 5) -> Self:
        """The scale from 0, or the lowest value below it, to a round value at or above the
        highest."""
        found = [0.0, *values]
        steps = ticks(max(found), wanted, min(found))
        return cls(steps[0], steps[-1], tuple(steps))

    @classmethod
    def near(cls, values: Sequence[float], wanted: int = 5, room: float = 0.12) -> Self:
        """About the values alone, with round ticks within."""
        low, high = min(values), max(values)
        pad = (high - low) * room or abs(high) * 0.02 or 1.0
        low, high = max(low - pad, 0.0) if low >= 0 else low - pad, high + pad
        return cls(low, high, tuple(s for s in ticks(high, wanted, low) if low < s < high))

    @classmethod
    def rows(cls, n: int) -> Self:
        """Row 0 is the uppermost."""
        return cls(n - 0.5, -0.5)

    def at(self, value: float) -> float:
        """0 to 1; a value beyond an end stands at it."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    y: float
    says: str = ""
    """Words for pointer and keyboard; empty: it cannot be pointed at."""
    to: str = ""


@dataclass(slots=True)
class Plot:
    """One frame with axes. `says` names the whole for a screen reader."""

    says: str
    x: Scale
    y: Scale
    height: int = 240
    pad: str = "pad"
    behind: list[Markup] = field(default_factory=list)
    paths: list[Markup] = field(default_factory=list)
    front: list[Markup] = field(default_factory=list)
    told: list[tuple[int, int, str, str]] = field(default_factory=list)
    """x and y from 0 to 1000, words and anchor of each mark that can be pointed at."""

    def px(self, x: float) -> str:
        return f"{number(self.x.at(x) * 100)}%"

    def py(self, y: float) -> str:
        return f"{number(100 - self.y.at(y) * 100)}%"

    def _d(self, points: Iterable[Point], *, close: bool = False) -> str:
        """Path through the points in whole thousandths, each point relative to the one before;
        points on a straight horizontal line are left out."""
        found = [(round(self.x.at(x) * 1000), round(1000 - self.y.at(y) * 1000)) for x, y in points]
        kept = [
            p for n, p in enumerate(found)
            if not 0 < n < len(found) - 1 or not found[n - 1][1] == p[1] == found[n + 1][1]
        ]  # fmt: skip
        steps = [f"{x1 - x} {y1 - y}" for (x, y), (x1, y1) in pairwise(kept)]
        way = f"l{' '.join(steps)}" if steps else ""
        return f"M{found[0][0]} {found[0][1]}{way}{'Z' if close else ''}"

    def axes(
        self, x_name: str = "", x_shown: Shown | None = None,
        y_shown: Shown | None = None, grid: str = "y",
    ) -> Self:  # fmt: skip
        for step in self.y.steps:
            y = self.py(step)
            if "y" in grid:
                self.behind.append(tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
            if y_shown:
                self.front.append(tag("text", y_shown(step), x="0", y=y, dx=-8, dy=4, class_="ty"))
        named = [x_shown(step) for step in self.x.steps] if x_shown else []
        if len({*named}) < len(named):  # a range so narrow that its ticks share three digits
            named = [f"{step:g}" for step in self.x.steps]
        for n, step in enumerate(self.x.steps):
            x, alt = self.px(step), " alt" if n % 2 else ""
            if "x" in grid:
                self.behind.append(tag("line", x1=x, x2=x, y1="0", y2="100%", class_="grid"))
            if named:
                label = {"x": x, "y": "100%", "dy": 17, "class_": f"tx{alt}"}
                self.front.append(tag("text", named[n], **label))
        self.behind.append(tag("line", x1="0", x2="100%", y1="100%", y2="100%", class_="axis"))
        if x_name:
            self.front.append(tag("text", x_name, x="100%", y="100%", dy=34, class_="nx"))
        return self

    def line(self, points: Sequence[Point], style: str) -> Self:
        if points:
            self.paths.append(tag("path", d=self._d(points), class_=f"line {style}"))
        return self

    def area(self, upper: Sequence[Point], lower: Sequence[Point], style: str) -> Self:
        if upper:
            shape = self._d([*upper, *reversed(lower)], close=True)
            self.paths.append(tag("path", d=shape, class_=f"area {style}"))
        return self

    def band(self, low: float, high: float, style: str) -> Self:
        """Upright, from one place of the x axis to another."""
        x, wide = self.x.at(low) * 100, (self.x.at(high) - self.x.at(low)) * 100
        box = {"x": f"{number(x)}%", "y": "0", "width": f"{number(max(wide, 0.0))}%"}
        self.behind.append(tag("rect", **box, height="100%", class_=f"band {style}"))
        return self

    def ground(self, first: float, last: float, style: str) -> Self:
        """A band from one row to another, over the whole width."""
        top, high = self.py(first - 0.5), 100 * (last - first + 1) / (self.y.low - self.y.high)
        box = {"y": top, "width": "100%", "height": f"{number(high)}%", "class_": f"band {style}"}
        self.behind.append(tag("rect", **box))
        return self

    def upright(self, x: float, style: str, words: str = "", anchor: str = "end") -> Self:
        at = self.px(x)
        self.behind.append(tag("line", x1=at, x2=at, y1="0", y2="100%", class_=f"upright {style}"))
        if words:
            label = {"x": at, "y": "0", "dx": -5 if anchor == "end" else 5, "dy": -6}
            head, _, last = words.rpartition(" ")
            said = [tag("tspan", f"{head} ", class_="wd")] if head else []
            self.front.append(tag("text", *said, last, **label, class_=f"note a-{anchor}"))
        return self

    def span(self, x0: float, x1: float, y: float, style: str, *, caps: bool = False,
             dy: int = 0, to: float | None = None) -> Self:  # fmt: skip
        """An interval along x, `dy` px below its row; with `to`, a line to that value of y."""
        at = self.py(y)
        move = f"translate(0 {dy})" if dy else None
        end = at if to is None else self.py(to)
        ends = {"x1": self.px(x0), "x2": self.px(x1), "y1": at, "y2": end}
        self.front.append(tag("line", **ends, transform=move, class_=f"span {style}"))
        for x in (x0, x1) if caps else ():
            cap = {"x": self.px(x), "y": at, "transform": move, "class_": f"cap {style}"}
            self.front.append(tag("use", href="#m-tick", **cap))
        return self

    def rise(self, x: float, y0: float, y1: float, style: str) -> Self:
        return self.span(x, x, y0, style, to=y1)

    def bar(self, x0: float, x1: float, y: float, thick: int, style: str, *, dy: float = 0,
            says: str = "") -> Self:  # fmt: skip
        """A bar from one value of the x axis to another, `dy` px below its row."""
        left, wide = self.x.at(x0) * 100, (self.x.at(x1) - self.x.at(x0)) * 100
        box = {"x": f"{number(left)}%", "y": dy - thick / 2, "width": f"{number(wide)}%"}
        rect = tag("rect", **box, height=thick, class_=f"part {style}")
        self.front.append(tag("svg", rect, y=self.py(y), overflow="visible"))
        if says:
            middle = 1 - self.y.at(y) + dy / self.height
            self.told.append((round(left * 10 + wide * 5), round(middle * 1000), says, ""))
        return self

    def marks(self, marks: Sequence[Mark], shape: str, style: str, *, strips: int = 1,
              dy: int = 0) -> Self:  # fmt: skip
        """Draws as many marks as `bounded` leaves of one of so many strips."""
        shown = bounded.marks(marks, strips=strips, key=lambda m: m.x)
        if not shown:
            return self
        move = f"translate(0 {dy})" if dy else None
        drawn = [tag("use", href=f"#m-{shape}", x=self.px(m.x), y=self.py(m.y)) for m in shown]
        self.front.append(tag("g", *drawn, transform=move, class_=f"marks {style}"))
        for m in shown:
            if m.says:
                y = 1000 - self.y.at(m.y) * 1000 + dy / self.height * 1000
                self.told.append((round(self.x.at(m.x) * 1000), round(y), m.says, m.to))
        return self

    def words(self, x: float, y: float, text: Markup | str, style: str = "", dx: float = 0,
              dy: float = 4) -> Self:  # fmt: skip
        label = {"x": self.px(x), "y": self.py(y), "dx": dx, "dy": dy}
        self.front.append(tag("text", text, **label, class_=style or None))
        return self

    def named(self, row: int, name: str, words: str = "") -> Self:
        """Name of a row, and words beside it, above what is drawn in it."""
        label = tag("tspan", cut(name, NAME_ROOM), class_="b")
        label += tag("tspan", f"  {cut(words, WORDS_ROOM)}", class_="wd") if words else ""
        return self.words(self.x.low, row, label, "row-name", dy=-5)

    def __html__(self) -> Markup:
        return Markup(_template("plot.svg.j2").module.framed(self))


@dataclass(frozen=True, slots=True)
class Pane:
    """One row of a chart: a heading, its key, and a plot, or several side by side."""

    plots: tuple[Plot, ...]
    heading: str = ""
    unit: str = ""
    key: tuple[KeyEntry, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Panes below each other with one key. Without panes it is empty, and false."""

    title: str = ""
    panes: tuple[Pane, ...] = ()
    key: tuple[KeyEntry, ...] = ()
    kind: str = ""
    columns: tuple[str, ...] = ()
    """Heads of plots that stand side by side."""
    other: tuple[tuple[str, str, str], ...] = ()
    """Style, name and number of each of its parts, as a list for narrow pages."""

    def __bool__(self) -> bool:
        return bool(self.panes)

    def __html__(self) -> Markup:
        made = _template("chart.html.j2").render(chart=self, sign=sign) if self.panes else ""
        return Markup(made)

    __str__ = __html__

    def saved(self, css: str) -> str:
        """A file of fixed size for papers: marks, key and style inside, in the light colours."""
        values = {"chart": self, "sign": sign, "letter": LETTER, "css": Markup(css)}
        return f"{_template('saved.svg.j2').render(values)}\n"


@cache
def _template(name: str) -> Any:
    import jinja2  # only pages need it

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("nodrop.report"), autoescape=True, finalize=shown_text,
        undefined=jinja2.StrictUndefined, trim_blocks=True,
    )  # fmt: skip
    found.filters["number"] = number
    return found.get_template(name)


def sign(shape: str, style: str) -> Markup:
    """Sign of an outcome or a series, as a key, a table or a heading shows it."""
    return Markup(_template("sign.svg.j2").module.sign(shape, style))


def outcome_key(marks: Iterable[str], *, detections: bool = False) -> tuple[KeyEntry, ...]:
    """Key entries of the outcomes that occur; `detections`: trials are judged by these."""
    seen, entries = set(marks), MISSED if detections else OUTCOMES
    return tuple(entry for mark, entry in entries.items() if mark in seen)


@dataclass(frozen=True, slots=True)
class BarPart:
    kind: str
    """Parts of one kind have one colour, and one name in the key."""
    value: float
    says: str
    style: str
    """The part's class in chart.css."""


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    parts: tuple[BarPart, ...]
    words: str
    interval: tuple[float, float] | None = None
    group: str = ""
    """A heading above the first bar of each group."""


def stacked_bars(
    title: str, axis_name: str, bars: Iterable[Bar], high: float | None = None
) -> Chart:
    """A named row per bar. Empty if there is nothing to draw."""
    shown = [bar for bar in bars if bar.parts][:MOST_BARS]
    if not shown:
        return Chart()
    ends = [sum(part.value for part in bar.parts) for bar in shown]
    ends += [bar.interval[1] for bar in shown if bar.interval]
    x = Scale.over(ends if high is None else [high])
    groups = groupby(shown, key=lambda bar: bar.group)
    panes = [Pane((_bars(group or title, [*own], x),), group) for group, own in groups]
    styles = {part.kind: part.style for bar in shown for part in bar.parts if part.value}
    key = tuple(("zone", f"part {style}", kind) for kind, style in styles.items())
    panes[-1] = replace(panes[-1], note=axis_name)
    return Chart(title, tuple(panes), key, "bars several" if panes[0].heading else "bars")


def _bars(name: str, bars: Sequence[Bar], x: Scale) -> Plot:
    plot = Plot(name, x, Scale.rows(len(bars)), height=ROW * len(bars), pad="rows")
    plot.axes("", numbers.short, None, grid="x")
    for row, bar in enumerate(bars):
        plot.named(row, bar.name, bar.words)
        at = 0.0
        for part in bar.parts:
            if part.value:
                plot.bar(at, at + part.value, row, BAR, part.style, dy=8, says=part.says)
                at += part.value
        if bar.interval:
            plot.span(*bar.interval, row, "whole", caps=True, dy=8)
    return plot


def series_of(n: int) -> tuple[str, str]:
    return SERIES[n % len(SERIES)], f"s{n % MOST_SERIES}"
