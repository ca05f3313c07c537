"""The knee drawn: every trial a mark, loss and the busiest thread over the offered load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nodrop.report import bounded, numbers
from nodrop.report.knee import WORDS, Dot
from nodrop.report.loss_plot import ticks
from nodrop.report.svg import path, picture, tag, text_width

WIDTH, HEIGHT = 720.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 64.0, 56.0, 46.0
FLOOR = HEIGHT - BOTTOM
KEY_SIZE, KEY_TOP, KEY_LINE = 12.0, 12.0, 18.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Of a fitted curve, with its band."""

    pps: float
    loss_ratio: float
    low_ratio: float
    high_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    title: str
    dots: tuple[Dot, ...]
    answer_pps: tuple[float, float] | None = None
    """The interval of the answer."""
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    x_ticks: Sequence[float]
    loss_ticks: Sequence[float]

    def x(self, pps: float) -> float:
        return LEFT + min(pps / self.x_ticks[-1], 1.0) * (WIDTH - LEFT - RIGHT)

    def loss(self, ratio: float) -> float:
        return FLOOR - min(ratio * 100 / self.loss_ticks[-1], 1.0) * (FLOOR - TOP)

    def cpu(self, ratio: float) -> float:
        return FLOOR - min(ratio, 1.0) * (FLOOR - TOP)


def knee_plot(knee: Knee) -> Markup:
    """Empty if there is no trial to draw."""
    if not knee.dots:
        return Markup("")
    reached = max(dot.pps for dot in knee.dots)
    losses = [dot.loss_ratio or 0.0 for dot in knee.dots]
    axes = _Axes(
        x_ticks=ticks(max(reached, *(knee.answer_pps or (0.0, 0.0)))),
        loss_ticks=ticks(max(losses) * 100, wanted=4),
    )
    shown = bounded.marks(knee.dots, key=lambda dot: dot.pps)
    parts = [
        *_frame(axes),
        *_answer(axes, knee.answer_pps),
        *_curve(axes, knee.curve),
        _reached(axes, reached),
        *(_cpu(axes, dot) for dot in shown if dot.busiest_cpu_ratio is not None),
        *(_trial(axes, dot) for dot in shown),
        *_key(knee),
    ]
    return picture(WIDTH, HEIGHT, knee.title, *parts)


def _frame(axes: _Axes) -> Iterator[Markup]:
    right = WIDTH - RIGHT
    for step in axes.loss_ticks:
        y = axes.loss(step / 100)
        yield tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid")
        yield tag("text", f"{step:.3g}", x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end")
    for pct in (0, 50, 100):
        y = axes.cpu(pct / 100)
        yield tag("text", f"{pct}", x=right + 8, y=y + 4, class_="tick")
    for step in axes.x_ticks:
        x = axes.x(step)
        yield tag("line", x1=x, x2=x, y1=FLOOR, y2=FLOOR + 4, class_="axis")
        label = numbers.short(step)
        yield tag("text", label, x=x, y=FLOOR + 18, class_="tick", text_anchor="middle")
    yield tag("line", x1=LEFT, x2=right, y1=FLOOR, y2=FLOOR, class_="axis")
    middle = {"class_": "axis-name", "text_anchor": "middle"}
    below = "offered load, packets/s (really sent)"
    yield tag("text", below, x=(LEFT + right) / 2, y=HEIGHT - 8, **middle)
    y = (TOP + FLOOR) / 2
    for x, words in ((16.0, "lost, % of sent"), (WIDTH - 14, "busiest thread, % of a CPU")):
        yield tag("text", words, x=x, y=y, transform=f"rotate(-90 {x:g} {y:g})", **middle)


def _answer(axes: _Axes, interval: tuple[float, float] | None) -> Iterator[Markup]:
    if interval is None:
        return
    low, high = map(axes.x, interval)
    says = f"The answer: {numbers.between(*interval, numbers.count)} packets/s"
    area = {"x": low, "y": TOP, "width": max(high - low, 2.0), "height": FLOOR - TOP}
    drawn = tag("rect", **area, class_="answer-band")
    yield tag("g", tag("title", says), drawn, class_="mark-part", tabindex="0", role="img")


def _curve(axes: _Axes, curve: Sequence[CurvePoint]) -> Iterator[Markup]:
    highest = axes.loss_ticks[-1] / 100
    curve = [point for point in curve if point.loss_ratio <= highest]
    if not curve:
        return
    upper = [(axes.x(p.pps), axes.loss(p.high_ratio)) for p in curve]
    lower = [(axes.x(p.pps), axes.loss(p.low_ratio)) for p in reversed(curve)]
    yield tag("path", d=path([*upper, *lower], close=True), class_="curve-band")
    line = [(axes.x(p.pps), axes.loss(p.loss_ratio)) for p in curve]
    yield tag("g", tag("path", d=path(line), class_="line"), class_="s0")


def _reached(axes: _Axes, pps: float) -> Markup:
    x = axes.x(pps)
    line = tag("line", x1=x, x2=x, y1=TOP, y2=FLOOR, class_="moment")
    name = {"y": TOP - 6, "class_": "moment-name", "text_anchor": "middle"}
    return tag("g", line, tag("text", "most offered", x=min(x, WIDTH - RIGHT - 44), **name))


def _cpu(axes: _Axes, dot: Dot) -> Markup:
    x, y = axes.x(dot.pps), axes.cpu(dot.busiest_cpu_ratio or 0.0)
    box = path([(x - 3, y - 3), (x + 3, y - 3), (x + 3, y + 3), (x - 3, y + 3)], close=True)
    return tag("g", tag("path", d=box, class_="hollow"), class_="s4")


def _trial(axes: _Axes, dot: Dot) -> Markup:
    x = axes.x(dot.pps)
    y = TOP if dot.loss_ratio is None else axes.loss(dot.loss_ratio)
    shape = _shape(dot.mark, x, y)
    return tag("g", tag("title", dot.says), shape, class_="mark", tabindex="0", role="img")


def _shape(mark: str, x: float, y: float) -> Markup:
    """A shape for each outcome: colour is never the only sign."""
    if mark == "failed":
        cross = path([(x - 5, y - 5), (x + 5, y + 5)]) + path([(x + 5, y - 5), (x - 5, y + 5)])
        return tag("path", d=cross, class_="cross failed")
    if mark == "loss":
        down = path([(x - 5, y - 4), (x + 5, y - 4), (x, y + 5)], close=True)
        return tag("path", d=down, class_="knee-loss")
    kind = "knee-good" if mark == "good" else "knee-absorbed"
    return tag("circle", cx=x, cy=y, r=4.5, class_=kind)


def _key(knee: Knee) -> Iterator[Markup]:
    """Above the drawing, each sign with its words."""
    marks = {dot.mark for dot in knee.dots}
    entries = [(_shape(mark, 6, 0), name) for mark, name in WORDS.items() if mark in marks]
    if any(dot.busiest_cpu_ratio is not None for dot in knee.dots):
        box = path([(3, -3), (9, -3), (9, 3), (3, 3)], close=True)
        entries.append((tag("path", d=box, class_="hollow s4"), "busiest thread"))
    swatch = {"x": 0, "y": -6, "width": 12, "height": 12}
    if knee.answer_pps:
        entries.append((tag("rect", **swatch, class_="answer-band"), "the answer lies here"))
    if knee.curve:
        entries.append((tag("rect", **swatch, class_="curve-band"), "fitted, with its band"))
    x, y = LEFT, KEY_TOP
    for sign, name in entries:
        wide = 18 + text_width(name, KEY_SIZE)
        if x + wide > WIDTH:
            x, y = LEFT, y + KEY_LINE
        label = tag("text", name, x=18, y=4, class_="key")
        yield tag("g", sign, label, transform=f"translate({x:.1f} {y:g})")
        x += wide + 12
