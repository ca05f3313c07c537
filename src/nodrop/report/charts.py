"""Charts of a search, of curves and of parts of a whole, each from plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from nodrop.capacity.knee import Dot
from nodrop.report import numbers
from nodrop.report.chart import (
    OUTCOMES,
    SERIES,
    Chart,
    KeyEntry,
    Mark,
    Pane,
    Plot,
    Scale,
    Shown,
    cut,
    outcome_key,
    tag,
)

MOST_SERIES = 8
"""Colours, dashes and shapes go round after so many; the table has every one."""
MOST_BARS = 60
ROW, BAR = 38, 14
"""Height of a named row and of its bar."""
NEAR = 3.0
"""So many widths of the answer are drawn beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A fitted curve at one load, with its band."""

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
    carried_pps: float | None = None
    too_much_pps: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    held: tuple[Held, ...] = ()
    """Trials among those that the curve rests on."""
    by_detections: bool = False
    """Its losses are parts of the expected detections."""

    @property
    def answer_pps(self) -> tuple[float, float] | None:
        """From the load that was carried to the one that was too much."""
        low, high = self.carried_pps, self.too_much_pps
        return None if low is None or high is None else (min(low, high), max(low, high))

    @property
    def near(self) -> tuple[Dot, ...]:
        """Trials that are drawn large: all, or those near the answer."""
        if self.answer_pps is None:
            return self.dots
        low, high = self.answer_pps
        room = NEAR * max(high - low, 0.01 * high)
        return tuple(d for d in self.dots if low - room <= d.pps <= high + room) or self.dots


def knee_plot(knee: Knee) -> Chart:
    """Loss near the answer over its zones, the busiest worker below it, and all loads, small."""
    if not knee.dots:
        return Chart(knee.title, tuple(_all_loads(knee, None)), outcome_key(["void"]))
    near = knee.near
    bounds = [b for b in (knee.carried_pps, knee.too_much_pps) if b is not None]
    reached = [*(d.pps for d in near), *bounds]
    if knee.too_much_pps is not None:  # room for its label
        reached.append(min(reached) + (knee.too_much_pps - min(reached)) / 0.78)
    x = Scale.near(reached, wanted=6)
    curve = [point for point in knee.curve if x.holds(point.pps)]
    held = [one for one in knee.held if x.holds(one.pps)]
    tops = [d.loss_ratio or 0.0 for d in near]
    tops += [*(one.unserved_ratio for one in held), *(point.loss_ratio for point in curve)]
    y = Scale.over([top * 100 for top in tops], wanted=4)
    what = "Missed detections" if knee.by_detections else "Lost packets"
    plot = Plot(f"{what} over the offered load", x, y, height=250)
    _zones(plot, knee)
    plot.axes("offered load, packets/s", numbers.count, _plain)
    plot.area([(p.pps, p.high_ratio * 100) for p in curve],
              [(p.pps, p.low_ratio * 100) for p in curve], "fit")  # fmt: skip
    plot.line([(p.pps, p.loss_ratio * 100) for p in curve], "fit")
    for one in held:
        plot.rise(one.pps, one.lost_ratio * 100, one.unserved_ratio * 100, "held")
    _outcomes(plot, _by_loss(near, y.high))
    key = [*outcome_key((d.mark for d in (*near, *knee.voids)), detections=knee.by_detections)]
    if curve:
        key += [("line", "fit", "fitted"), ("area", "fit", "its 95 % band")]
    if held:
        key.append(("bar", "held", "still in the rings at the end"))
    if any(d.apart for d in near):
        key.append(("halo", "apart", "stands apart from the others"))
    named = ("Missed", "% of expected") if knee.by_detections else ("Lost", "% of sent")
    panes = (Pane((plot,), *named), *_workers(near, x), *_all_loads(knee, x))
    return Chart(knee.title, panes, tuple(key), "knee")


def _plain(value: float) -> str:
    return f"{value:.3g}"


def _zones(plot: Plot, knee: Knee) -> None:
    """Blue ground: carried. Orange ground: too much. Between them: not known."""
    low, high, x = knee.carried_pps, knee.too_much_pps, plot.x
    if low is not None:
        anchor = "start" if x.at(low) < 0.25 else "end"
        plot.band(x.low, low, "z-carried")
        plot.upright(low, "carried", f"carried {numbers.count(low)}", anchor)
    if high is not None and (low is None or high > low):
        anchor = "end" if low is None and x.at(high) >= 0.75 else "start"
        plot.band(high, x.high, "z-lost")
        plot.upright(high, "lost", f"too much {numbers.count(high)}", anchor)


def _by_loss(dots: Sequence[Dot], unknown: float) -> list[tuple[Dot, Mark]]:
    """Each at its load and its loss in per cent; `unknown`: where those stand that have none."""
    losses = [unknown if d.loss_ratio is None else d.loss_ratio * 100 for d in dots]
    return [(d, Mark(d.pps, y, d.says, d.run)) for d, y in zip(dots, losses, strict=True)]


def _outcomes(plot: Plot, dots: Sequence[tuple[Dot, Mark]]) -> None:
    """Each by the sign of its outcome, with a ring if it stands apart."""
    for outcome, (shape, style, _) in OUTCOMES.items():
        plot.marks([mark for dot, mark in dots if dot.mark == outcome], shape, style)
    plot.marks([Mark(mark.x, mark.y) for dot, mark in dots if dot.apart], "halo", "apart")


def _workers(near: Sequence[Dot], x: Scale) -> Iterator[Pane]:
    """Its time, of the worker that lost most, else of the busiest."""
    known = [(d.pps, w) for d in near if (w := d.worker) is not None]
    if not known:
        return
    plot = Plot("The worker that lost most, over the offered load", Scale(x.low, x.high),
                Scale(0, 100, (0, 50, 100)), height=64, pad="bare")  # fmt: skip
    plot.axes(y_shown=_plain)
    ran = [Mark(pps, w.cpu_ratio * 100, f"{w.name} ran {w.cpu_ratio * 100:.0f} % of the time")
           for pps, w in known if w.cpu_ratio is not None]  # fmt: skip
    waited = [Mark(pps, w.wait_ratio * 100,
                   f"{w.name} waited for a CPU {w.wait_ratio * 100:.0f} % of the time")
              for pps, w in known if w.wait_ratio is not None]  # fmt: skip
    plot.marks(ran, "box", "s-ran").marks(waited, "box", "s-wait hollow")
    key: list[KeyEntry] = [("box", "s-ran", "ran")]
    key += [("box", "s-wait hollow", "waited for its CPU")] if waited else []
    yield Pane((plot,), "The worker that lost most", "% of the time, same loads", tuple(key))


def _all_loads(knee: Knee, shown: Scale | None) -> Iterator[Pane]:
    """Every trial, void ones above the others; none if all are drawn already."""
    every = [*knee.dots, *knee.voids]
    if not every or (shown is not None and all(shown.holds(d.pps) for d in every)
                     and not knee.voids):  # fmt: skip
        return
    top = max((d.loss_ratio or 0.0 for d in every), default=0.0) * 100 or 1.0
    plot = Plot("All loads", Scale.over([d.pps for d in every], 6), Scale(0, top * 1.3),
                height=46, pad="flat")  # fmt: skip
    if shown is not None:
        plot.band(max(shown.low, plot.x.low), min(shown.high, plot.x.high), "window")
    plot.axes("", numbers.short, None, grid="")
    _outcomes(plot, _by_loss(every, top * 1.15))
    yield Pane((plot,), "All loads", "packets/s; the frame is the part above" if shown
               else "packets/s")  # fmt: skip


def search_plot(title: str, dots: Sequence[Dot], rounds: Sequence[int]) -> Chart:
    """Each trial's load in the order measured, with the round that it belongs to. Empty if fewer
    than two trials have one."""
    if len(dots) < 2:
        return Chart()
    n = len(dots)
    order = Scale.over([n], 6).steps
    x = Scale(0.2, n + 0.8, tuple(s for s in order if 0 < s <= n and s == int(s)))
    plot = Plot(title, x, Scale.over([d.pps for d in dots], 3), height=150)
    plot.axes("trials, in their order", _plain, numbers.short)
    plot.line([(i, d.pps) for i, d in enumerate(dots, 1)], "path")
    begun = [next(own) for _, own in groupby(enumerate(rounds), key=lambda one: one[1])]
    if len(begun) > 1:
        ends = [*(i for i, _ in begun[1:]), n]
        for (i, number), end in zip(begun, ends, strict=True):
            room = x.at(end + 0.5) - x.at(i + 0.5)
            words = f"round {number}" if room > 0.24 else f"{number}" if room > 0.05 else ""
            plot.upright(i + 0.5, "moment", words, "start")
    _outcomes(plot, [(d, Mark(i, d.pps, f"trial {i}, {d.says}", d.run))
                     for i, d in enumerate(dots, 1)])  # fmt: skip
    key = outcome_key((d.mark for d in dots), detections=any(d.of_detections for d in dots))
    return Chart(title, (Pane((plot,), "Load", "packets/s"),), key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    name: str
    points: tuple[tuple[float, float], ...]


def curve_plot(title: str, x_name: str, y_name: str, curves: Sequence[Curve]) -> Chart:
    """Curves in one frame. Empty if there is no point."""
    shown = [curve for curve in curves if curve.points][:MOST_SERIES]
    if not shown:
        return Chart()
    x = Scale.over(x for curve in shown for x, _ in curve.points)
    y = Scale.over(y for curve in shown for _, y in curve.points)
    plot = Plot(title, x, y).axes(x_name, numbers.short, numbers.short)
    for n, curve in enumerate(shown):
        plot.line(curve.points, f"s{n}")
    key = tuple(("line", f"s{n}", curve.name) for n, curve in enumerate(shown))
    return Chart(title, (Pane((plot,), y_name),), key)


@dataclass(frozen=True, slots=True)
class Part:
    kind: str
    """Parts of one kind have one colour, and one name in the key."""
    value: float
    says: str
    """For pointer and keyboard."""
    style: str
    """Its class in chart.css."""


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    parts: tuple[Part, ...]
    words: str
    """Beside its name."""
    interval: tuple[float, float] | None = None
    """An interval of the whole."""
    group: str = ""
    """A heading above the first bar of each group."""

    @property
    def reach(self) -> float:
        """The end of its parts, or of its interval."""
        return max(sum(part.value for part in self.parts), (self.interval or (0, 0))[1])


def stacked_bars(title: str, axis_name: str, bars: Iterable[Bar], *, high: float | None = None,
                 order: Sequence[str] = ()) -> Chart:  # fmt: skip
    """A named row per bar. Empty if there is nothing to draw. `order`: kinds in the key."""
    shown = [bar for bar in bars if bar.parts][:MOST_BARS]
    if not shown:
        return Chart()
    x = Scale.over([max(bar.reach for bar in shown) if high is None else high])
    panes, several = [], {bar.group for bar in shown} != {""}
    for group, own in groupby(shown, key=lambda bar: bar.group):
        panes.append(Pane((named_bars(group or title, list(own), x),), group))
    found = {p.kind: p.style for b in shown for p in b.parts if p.value}
    styles = {**{kind: found[kind] for kind in order if kind in found}, **found}
    key = tuple(("zone", f"part {style}", kind) for kind, style in styles.items())
    panes[-1] = replace(panes[-1], note=axis_name)
    return Chart(title, tuple(panes), key, "bars several" if several else "bars")


def named_bars(
    name: str, bars: Sequence[Bar], x: Scale, shown: Shown = numbers.short,
    room: tuple[int, int] = (330, 480),
) -> Plot:  # fmt: skip
    """A row for each. `room`: px for its name and for the words beside it."""
    plot = Plot(name, x, Scale.rows(len(bars)), height=ROW * len(bars), pad="rows")
    plot.axes("", shown, None, grid="x")
    for row, bar in enumerate(bars):
        label = tag("tspan", cut(bar.name, room[0]), class_="b")
        words = tag("tspan", f"  {cut(bar.words, room[1])}", class_="wd") if bar.words else ""
        plot.words(x.low, row, label + words, "row-name", dy=-5)
        at = 0.0
        for part in bar.parts:
            if part.value:
                says = f"{bar.name}: {part.says}" if bar.name not in part.says else part.says
                plot.bar(at, at + part.value, row, BAR, part.style, dy=8, says=says)
                at += part.value
        if bar.interval:
            plot.span(*bar.interval, row, "whole", caps=True, dy=8)
    return plot


def series_of(n: int) -> tuple[str, str]:
    """Shape and style of the n-th of several."""
    return SERIES[n % len(SERIES)], f"s{n % MOST_SERIES}"
