"""The knee drawn: every trial a mark, loss and the busiest thread over the offered load.

If the search began far from its answer, a second panel shows the loads near it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nodrop.report import bounded, numbers
from nodrop.report.knee import WORDS, Dot
from nodrop.report.loss_plot import ticks
from nodrop.report.svg import path, picture, ring, tag, text_width

WIDTH = 720.0
LEFT, RIGHT = 64.0, 64.0
BELOW = 46.0
"""A panel: ticks and the name of the axis."""
TALL, LANE, HEAD = 218.0, 26.0, 24.0
"""A panel's plot; the lane of the void trials above it; the room for words above both."""
KEY_SIZE, KEY_TOP, KEY_LINE = 12.0, 12.0, 18.0
FAR = 1.5
"""If loads are so many times those near the answer, these have a panel of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Of a fitted curve, with its band."""

    pps: float
    loss_ratio: float
    low_ratio: float
    high_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A trial that ended before what the rings held could be lost."""

    pps: float
    lost_ratio: float
    unserved_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    title: str
    dots: tuple[Dot, ...]
    voids: tuple[Dot, ...] = ()
    answer_pps: tuple[float, float] | None = None
    """The interval of the answer."""
    near_pps: tuple[float, float] | None = None
    """Loads of the trials that decide."""
    curve: tuple[CurvePoint, ...] = ()
    held: tuple[Held, ...] = ()
    """Of the trials that the curve rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    name: str
    x_ticks: Sequence[float]
    loss_ticks: Sequence[float]
    top: float

    @property
    def floor(self) -> float:
        return self.top + TALL

    def holds(self, dot: Dot) -> bool:
        return self.x_ticks[0] <= dot.pps <= self.x_ticks[-1]

    def x(self, pps: float) -> float:
        low, high = self.x_ticks[0], self.x_ticks[-1]
        return LEFT + min(max((pps - low) / (high - low), 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def loss(self, ratio: float) -> float:
        return self.floor - min(ratio * 100 / self.loss_ticks[-1], 1.0) * TALL

    def cpu(self, ratio: float) -> float:
        return self.floor - min(ratio, 1.0) * TALL


def knee_plot(knee: Knee) -> Markup:
    """Empty if there is no trial to draw."""
    if not knee.dots and not knee.voids:
        return Markup("")
    key, top = _key(knee)
    whole = _whole(knee, top + HEAD + (LANE if knee.voids else 0))
    panels = [whole]
    if (near := _near(knee, whole)) is not None:
        panels.append(near)
    drawn = [part for panel in panels for part in _drawn(panel, knee)]
    return picture(WIDTH, panels[-1].floor + BELOW, knee.title, *key, *drawn)


def _whole(knee: Knee, top: float) -> _Panel:
    """From 0 to the highest load that was measured; void ones beyond stand at the edge."""
    reached = max(dot.pps for dot in knee.dots or knee.voids)
    return _panel("", ticks(max(reached, *(knee.answer_pps or (0.0, 0.0)))), top, knee)


def _near(knee: Knee, whole: _Panel) -> _Panel | None:
    """None if the whole shows it well enough."""
    if knee.near_pps is None:
        return None
    low, high = knee.near_pps
    aside = max(0.15 * (high - low), 0.01 * high)
    if high + aside > FAR * low or whole.x_ticks[-1] < FAR * (high + aside):
        return None
    steps = _ticks_between(max(low - aside, 0.0), high + aside)
    return _panel("near the answer", steps, whole.floor + BELOW + HEAD, knee)


def _panel(name: str, x_ticks: Sequence[float], top: float, knee: Knee) -> _Panel:
    """As high as its trials and the curve; the band may reach beyond."""
    seen = [(dot.pps, dot.loss_ratio or 0.0) for dot in knee.dots]
    seen += [(point.pps, point.loss_ratio) for point in knee.curve]
    within = [loss for pps, loss in seen if x_ticks[0] <= pps <= x_ticks[-1]]
    high = ticks(max(within, default=0.0) * 100, wanted=4)
    return _Panel(name=name, x_ticks=x_ticks, loss_ticks=high, top=top)


def _ticks_between(low: float, high: float) -> list[float]:
    step = ticks(high - low)[1]
    first = math.floor(low / step)
    return [n * step for n in range(first, math.ceil(high / step) + 1)]


def _drawn(panel: _Panel, knee: Knee) -> Iterator[Markup]:
    dots = [dot for dot in knee.dots if panel.holds(dot)]
    shown = bounded.marks(dots, key=lambda dot: dot.pps)
    yield from _frame(panel)
    yield from _answer(panel, knee.answer_pps)
    yield from _curve(panel, knee.curve)
    if not panel.name:
        yield from _voids(panel, knee.voids)
        if measured := [dot.pps for dot in dots if dot.mark != "failed"]:
            yield _reached(panel, max(measured), aside=bool(knee.voids))
    yield from (_held(panel, one) for one in knee.held)
    yield from (_cpu(panel, dot) for dot in shown if dot.busiest_cpu_ratio is not None)
    yield from (_trial(panel, dot) for dot in shown)


def _frame(panel: _Panel) -> Iterator[Markup]:
    right, floor = WIDTH - RIGHT, panel.floor
    for step in panel.loss_ticks:
        y = panel.loss(step / 100)
        yield tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid")
        yield tag("text", f"{step:.3g}", x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end")
    for pct in (0, 50, 100):
        y = panel.cpu(pct / 100)
        yield tag("text", f"{pct}", x=right + 8, y=y + 4, class_="tick")
    shown = numbers.count if panel.name else numbers.short
    for step in panel.x_ticks:
        x = panel.x(step)
        yield tag("line", x1=x, x2=x, y1=floor, y2=floor + 4, class_="axis")
        yield tag("text", shown(step), x=x, y=floor + 18, class_="tick", text_anchor="middle")
    yield tag("line", x1=LEFT, x2=right, y1=floor, y2=floor, class_="axis")
    middle = {"class_": "axis-name", "text_anchor": "middle"}
    below = ", ".join(filter(None, ["offered load, packets/s (really sent)", panel.name]))
    yield tag("text", below, x=(LEFT + right) / 2, y=floor + BELOW - 8, **middle)
    y = (panel.top + floor) / 2
    for x, words in ((16.0, "lost, % of sent"), (WIDTH - 14, "busiest thread, % of a CPU")):
        yield tag("text", words, x=x, y=y, transform=f"rotate(-90 {x:g} {y:g})", **middle)


def _answer(panel: _Panel, interval: tuple[float, float] | None) -> Iterator[Markup]:
    if interval is None:
        return
    low, high = map(panel.x, interval)
    says = f"The answer: {numbers.between(*interval, numbers.count)} packets/s"
    area = {"x": low, "y": panel.top, "width": max(high - low, 2.0), "height": TALL}
    drawn = tag("rect", **area, class_="answer-band")
    yield tag("g", tag("title", says), drawn, class_="mark-part", tabindex="0", role="img")


def _curve(panel: _Panel, curve: Sequence[CurvePoint]) -> Iterator[Markup]:
    """As far as its trials and the panel reach."""
    within = panel.x_ticks[0], panel.x_ticks[-1]
    curve = [point for point in curve if within[0] <= point.pps <= within[1]]
    if not curve:
        return
    upper = [(panel.x(p.pps), panel.loss(p.high_ratio)) for p in curve]
    lower = [(panel.x(p.pps), panel.loss(p.low_ratio)) for p in reversed(curve)]
    yield tag("path", d=path([*upper, *lower], close=True), class_="curve-band")
    line = [(panel.x(p.pps), panel.loss(p.loss_ratio)) for p in curve]
    yield tag("g", tag("path", d=path(line), class_="line"), class_="s0")


def _held(panel: _Panel, one: Held) -> Markup:
    """From the mark to where it would stand, had the trial been long enough."""
    x = panel.x(one.pps)
    ends = [(x, panel.loss(one.lost_ratio)), (x, panel.loss(one.unserved_ratio))]
    tip = [(x - 4, ends[1][1]), (x + 4, ends[1][1])]
    return tag("g", tag("path", d=path(ends) + path(tip), class_="held"), class_="s0")


def _reached(panel: _Panel, pps: float, *, aside: bool) -> Markup:
    x = panel.x(pps)
    line = tag("line", x1=x, x2=x, y1=panel.top, y2=panel.floor, class_="moment")
    y = panel.top - 6 - (LANE if aside else 0)
    name = {"y": y, "class_": "moment-name", "text_anchor": "middle"}
    return tag("g", line, tag("text", "most measured", x=min(x, WIDTH - RIGHT - 44), **name))


def _voids(panel: _Panel, voids: Sequence[Dot]) -> Iterator[Markup]:
    """Above the plot: how much they lost is not known."""
    if not voids:
        return
    y = panel.top - LANE + 10
    beyond = sum(not panel.holds(dot) for dot in voids)
    if beyond:
        yield tag("text", f"{beyond} beyond", x=WIDTH - RIGHT + 10, y=y + 4, class_="tick")
    yield tag("text", "void", x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end")
    for dot in bounded.marks(voids, key=lambda dot: dot.pps):
        drawn = shape("void", panel.x(dot.pps), y)
        yield tag("g", tag("title", dot.says), drawn, class_="mark", tabindex="0", role="img")


def _cpu(panel: _Panel, dot: Dot) -> Markup:
    x, y = panel.x(dot.pps), panel.cpu(dot.busiest_cpu_ratio or 0.0)
    box = path([(x - 3, y - 3), (x + 3, y - 3), (x + 3, y + 3), (x - 3, y + 3)], close=True)
    return tag("g", tag("path", d=box, class_="hollow"), class_="s4")


def _trial(panel: _Panel, dot: Dot) -> Markup:
    x = panel.x(dot.pps)
    y = panel.top if dot.loss_ratio is None else panel.loss(dot.loss_ratio)
    drawn = [shape(dot.mark, x, y)]
    if dot.apart:
        drawn.append(ring(x, y))
    return tag("g", tag("title", dot.says), *drawn, class_="mark", tabindex="0", role="img")


def shape(mark: str, x: float, y: float) -> Markup:
    """A shape for each outcome: colour is never the only sign."""
    if mark == "failed":
        cross = path([(x - 5, y - 5), (x + 5, y + 5)]) + path([(x + 5, y - 5), (x - 5, y + 5)])
        return tag("path", d=cross, class_="cross failed")
    if mark == "void":
        return tag("path", d=path([(x - 5, y), (x, y - 5), (x + 5, y), (x, y + 5)], close=True),
                   class_="knee-void")  # fmt: skip
    if mark == "loss":
        down = path([(x - 5, y - 4), (x + 5, y - 4), (x, y + 5)], close=True)
        return tag("path", d=down, class_="knee-loss")
    kind = "knee-good" if mark == "good" else "knee-absorbed"
    return tag("circle", cx=x, cy=y, r=4.5, class_=kind)


def key_of(entries: Sequence[tuple[Markup, str]], right: float) -> tuple[list[Markup], float]:
    """Each sign, drawn about (6, 0), with its words, in lines; and where the last one ends."""
    found, x, y = [], LEFT, KEY_TOP
    for sign, name in entries:
        wide = 18 + text_width(name, KEY_SIZE)
        if x + wide > right and x > LEFT:
            x, y = LEFT, y + KEY_LINE
        label = tag("text", name, x=18, y=4, class_="key")
        found.append(tag("g", sign, label, transform=f"translate({x:.1f} {y:g})"))
        x += wide + 12
    return found, y


def _key(knee: Knee) -> tuple[list[Markup], float]:
    entries = marks_key([*knee.dots, *knee.voids])
    if any(dot.busiest_cpu_ratio is not None for dot in knee.dots):
        box = path([(3, -3), (9, -3), (9, 3), (3, 3)], close=True)
        entries.append((tag("g", tag("path", d=box, class_="hollow"), class_="s4"),
                        "busiest thread"))  # fmt: skip
    swatch = {"x": 0, "y": -6, "width": 12, "height": 12}
    if knee.answer_pps:
        entries.append((tag("rect", **swatch, class_="answer-band"), "the answer lies here"))
    if knee.curve:
        band = tag("rect", **swatch, class_="curve-band")
        line = tag("g", tag("path", d="M0,0 12,0", class_="line"), class_="s0")
        entries.append((tag("g", band, line), "fitted, with its 95 % band"))
    if knee.held:
        up = tag("path", d=path([(6, 6), (6, -6)]) + path([(2, -6), (10, -6)]), class_="held")
        entries.append((tag("g", up, class_="s0"), "and what rings still held"))
    return key_of(entries, WIDTH)


def marks_key(dots: Sequence[Dot]) -> list[tuple[Markup, str]]:
    """Those that are there."""
    marks = {dot.mark for dot in dots}
    found = [(shape(mark, 6, 0), name) for mark, name in WORDS.items() if mark in marks]
    if any(dot.apart for dot in dots):
        found.append((ring(6, 0, 6.5), "stands apart from the others"))
    return found
