"""A flame graph: each function as wide as its part of the samples or waits, above its caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from nodrop.findings.functions import OTHER
from nodrop.report import numbers
from nodrop.report.svg import picture, tag

WIDTH, ROW, KEY = 1000.0, 18.0, 22.0
LETTER = 6.6
NARROWEST = 0.002
"""Of the whole: what is narrower is not drawn, and said so."""
DEEPEST = 40
OWN_STYLES = (0, 1, 2, 3, 4, 5, 7)
"""Of the largest groups; all others are grey."""
GREY = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """By what the widths are."""

    of: str
    """Words for the whole."""
    shown: str
    """A format of the weight."""
    divisor: int = 1


SAMPLES = Weighed(of="of the samples", shown="{} samples")
WAITS = Weighed(of="of the waits", shown="{} ms", divisor=1_000_000)


@dataclass(slots=True)
class _Frame:
    weight: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    callees: dict[str, _Frame] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """That most of its samples belong to."""
        return max(sorted(self.groups), key=lambda group: self.groups[group], default=OTHER)


def flame(
    title: str,
    stacks: Mapping[tuple[str, ...], tuple[int, str]],
    *,
    largest: Sequence[str] = (),
    weighed: Weighed = SAMPLES,
) -> Markup:
    """Weight and group by frames, the outermost first. Empty if there are none.

    `largest`: groups by size, the same for all pictures that are compared.
    """
    root = _Frame()
    for way, (weight, group) in stacks.items():
        frame = root
        for name in ("", *way[:DEEPEST]):
            frame = frame.callees.setdefault(name, _Frame()) if name else root
            frame.weight += weight
            frame.groups[group] = frame.groups.get(group, 0) + weight
    if not root.weight:
        return Markup("")
    return _Picture(root, largest, weighed).drawn(title)


class _Picture:
    def __init__(self, root: _Frame, largest: Sequence[str], weighed: Weighed) -> None:
        self._root, self._total, self._weighed = root, root.weight, weighed
        own = [group for group in largest if group != OTHER]
        self._styles = dict(zip(own, OWN_STYLES, strict=False))
        self._parts: list[Markup] = []

    def drawn(self, title: str) -> Markup:
        height = KEY + self._depth(self._root) * ROW
        self._draw(self._root, 0.0, height)
        words = f"Flame graph of {title}: {self._amount(self._root)}"
        return picture(WIDTH, height + 4, words, self._key(), *self._parts)

    def _amount(self, frame: _Frame) -> str:
        return self._weighed.shown.format(numbers.count(frame.weight // self._weighed.divisor))

    def _wide(self, frame: _Frame) -> bool:
        return frame.weight >= NARROWEST * self._total

    def _depth(self, frame: _Frame) -> int:
        shown = filter(self._wide, frame.callees.values())
        return 1 + max((self._depth(one) for one in shown), default=-1)

    def _draw(self, frame: _Frame, left: float, bottom: float) -> None:
        x = left
        for name, callee in sorted(frame.callees.items()):
            width = callee.weight / self._total * WIDTH
            if self._wide(callee):
                self._parts.append(self._rectangle(name, callee, x, bottom - ROW, width))
                self._draw(callee, x, bottom - ROW)
            x += width

    def _rectangle(self, name: str, frame: _Frame, x: float, y: float, width: float) -> Markup:
        share = numbers.percent(frame.weight / self._total)
        says = f"{name}: {share} % {self._weighed.of}, {self._amount(frame)}; {frame.group}"
        style = f"part s{self._style(frame.group)}"
        parts = [
            tag("title", says),
            tag("rect", x=x, y=y, width=width, height=ROW - 1, class_=style),
        ]
        letters = int((width - 6) / LETTER)
        if letters >= 3:
            label = name.rpartition(": ")[2]
            label = label if len(label) <= letters else f"{label[: letters - 1]}…"
            parts.append(tag("text", label, x=x + 3, y=y + 13, class_="part-name"))
        return tag("g", *parts, class_="mark-part", tabindex="0", role="img", aria_label=says)

    def _style(self, group: str) -> int:
        return self._styles.get(group, GREY)

    def _key(self) -> Markup:
        parts, x, rest = [], 4.0, 0
        for group, weight in sorted(self._root.groups.items(), key=lambda one: (-one[1], one[0])):
            if group not in self._styles or x > WIDTH - 200:
                rest += weight
                continue
            entry, x = self._entry(group, weight, x)
            parts.append(entry)
        if rest:
            parts.append(self._entry(OTHER, rest, x)[0])
        return tag("g", *parts)

    def _entry(self, group: str, weight: int, x: float) -> tuple[Markup, float]:
        words = f"{group} {numbers.percent(weight / self._total)} %"
        style = f"part s{self._style(group)}"
        swatch = tag("rect", x=x, y=3, width=14, height=10, class_=style)
        entry = tag("g", swatch, tag("text", words, x=x + 20, y=12, class_="key"))
        return entry, x + 34 + len(words) * LETTER
