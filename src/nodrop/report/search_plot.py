"""How a search went: the load of each trial, in their order, each with its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nodrop.report import bounded, numbers
from nodrop.report.knee import Dot
from nodrop.report.knee_plot import key_of, marks_key, shape
from nodrop.report.loss_plot import ticks
from nodrop.report.svg import path, picture, ring, tag

WIDTH, TALL = 720.0, 150.0
LEFT, RIGHT, BELOW, HEAD = 64.0, 20.0, 44.0, 34.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    dot: Dot
    round: int


def search_plot(title: str, steps: Sequence[Step]) -> Markup:
    """Empty if fewer than two trials have a load."""
    if len(steps) < 2:
        return Markup("")
    high = ticks(max(step.dot.pps for step in steps), wanted=3)
    key, top = key_of(marks_key([step.dot for step in steps]), WIDTH)
    top += HEAD
    floor = top + TALL
    apart = (WIDTH - LEFT - RIGHT) / max(len(steps), 1)
    places = [
        (LEFT + (number + 0.5) * apart, floor - step.dot.pps / high[-1] * TALL)
        for number, step in enumerate(steps)
    ]
    parts = [
        *key,
        *_frame(high, top, len(steps), apart),
        *_rounds(steps, apart, top),
        tag("path", d=path(places), class_="way"),
        *(_mark(number, step, place)
          for number, step, place in bounded.marks(
              [(n, step, place) for n, (step, place)
               in enumerate(zip(steps, places, strict=True), 1)])),
    ]  # fmt: skip
    return picture(WIDTH, floor + BELOW, title, *parts)


def _frame(high: Sequence[float], top: float, trials: int, apart: float) -> Iterator[Markup]:
    floor, right = top + TALL, WIDTH - RIGHT
    for tick in high:
        y = floor - tick / high[-1] * TALL
        yield tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid")
        label = numbers.short(tick)
        yield tag("text", label, x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end")
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if n * apart >= 26)
    for number in range(every, trials + 1, every):
        x = LEFT + (number - 0.5) * apart
        yield tag("text", f"{number}", x=x, y=floor + 16, class_="tick", text_anchor="middle")
    middle = {"class_": "axis-name", "text_anchor": "middle"}
    words = "trials of this search, in their order"
    yield tag("text", words, x=(LEFT + right) / 2, y=floor + 36, **middle)
    y = (top + floor) / 2
    yield tag("text", "packets/s", x=16, y=y, transform=f"rotate(-90 16 {y:g})", **middle)


def _rounds(steps: Sequence[Step], apart: float, top: float) -> Iterator[Markup]:
    """Where a round begins, each with a new start of the SUT."""
    if steps[0].round == steps[-1].round:
        return
    said = -1e9
    for number, step in enumerate(steps):
        if number and step.round == steps[number - 1].round:
            continue
        x = LEFT + number * apart
        yield tag("line", x1=x, x2=x, y1=top, y2=top + TALL, class_="moment")
        if x - said > 56 and x < WIDTH - 50:
            yield tag("text", f"round {step.round}", x=x + 3, y=top - 6, class_="moment-name")
            said = x


def _mark(number: int, step: Step, place: tuple[float, float]) -> Markup:
    drawn = [shape(step.dot.mark, *place)]
    if step.dot.apart:
        drawn.append(ring(*place))
    title = tag("title", f"trial {number}, {step.dot.says}")
    return tag("g", title, *drawn, class_="mark", tabindex="0", role="img")
