"""The order of the trials: a drift over the run would show here, between cells it would hide."""

from __future__ import annotations

from statistics import median

from markupsafe import Markup

from nodrop.report import bounded, numbers
from nodrop.report.loss_plot import ticks
from nodrop.report.setups import conditions
from nodrop.report.story import Story, once
from nodrop.report.svg import path, picture, tag

WIDTH, HEIGHT = 1000.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 14.0, 12.0, 36.0


@once
def order_plot(story: Story) -> Markup:
    """Activation time by place in the order: it depends on the setup and the host, not on the
    load."""
    seen = [(i, t) for i, t in enumerate(story.trials) if t.activation_s is not None]
    if len(seen) < 3:
        return Markup("")
    usual = _usual(story)
    shown = {t.anchor: (t.activation_s or 0.0) / usual[t.anchor] for _, t in seen}
    high = ticks(max(shown.values()), wanted=3)
    unit = "s" if set(usual.values()) == {1.0} else "×"
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    last = max(len(story.trials) - 1, 1)
    parts: list[Markup] = []
    for tick in high:
        y = HEIGHT - BOTTOM - tick / high[-1] * tall
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        label = f"{tick:.3g} {unit}"
        parts.append(tag("text", label, x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end"))
    for i, trial in bounded.marks(seen):
        x = LEFT + i / last * wide
        y = HEIGHT - BOTTOM - shown[trial.anchor] / high[-1] * tall
        says = f"{i + 1}: {trial.name}, {numbers.seconds(trial.activation_s)} s"
        parts.append(_dot(x, y, says, valid=trial.valid))
    name = "trials in the order in which they were measured"
    parts.append(
        tag("text", name, x=WIDTH / 2, y=HEIGHT - 8, class_="axis-name", text_anchor="middle")
    )
    return picture(WIDTH, HEIGHT, "Activation time by order of the trials", *parts)


def _usual(story: Story) -> dict[str, float]:
    """What to hold each trial against: the median of its own setup if setups differ; else 1 s."""
    places = [place for condition in conditions(story) for place in condition.places]
    if not places:
        return dict.fromkeys((t.anchor for t in story.trials), 1.0)
    times: dict[tuple[int, str], list[float]] = {}
    of: dict[str, tuple[int, str]] = {}
    for place in places:
        for trial in place.cell.trials:
            of[trial.anchor] = (trial.source, place.name)
            if trial.activation_s:
                times.setdefault(of[trial.anchor], []).append(trial.activation_s)
    usual = {place: median(seen) for place, seen in times.items()}
    return {t.anchor: usual.get(of.get(t.anchor, (0, "")), 1.0) for t in story.trials}


def _dot(x: float, y: float, says: str, *, valid: bool) -> Markup:
    if valid:
        return tag("circle", tag("title", says), cx=x, cy=y, r=3.5, class_="s0 fill")
    cross = path([(x - 4, y - 4), (x + 4, y + 4)]) + path([(x + 4, y - 4), (x - 4, y + 4)])
    return tag("path", tag("title", says), d=cross, class_="cross")
