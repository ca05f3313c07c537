"""A flame graph: each function as wide as its part of the samples or waits, above its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from markupsafe import Markup

from nodrop.findings.functions import OTHER
from nodrop.report import numbers
from nodrop.report.svg import LETTER, cut, picture, tag

WIDTH, ROW, KEY = 1000.0, 18.0, 22.0
NARROWEST = 0.002
"""Of the whole: what is narrower is not drawn, and said so."""
DEEPEST = 40
OWN_STYLES = (0, 1, 2, 3, 4, 5, 7)
"""Of the largest groups; all others are grey."""
GREY = 6
MORE, LESS = 1, 0


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
    before: int = 0
    """In the cell that this one is held against."""

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
    root = _tree(stacks)
    if not root.weight:
        return Markup("")
    return _Picture(root, largest, weighed).drawn(title)


def flame_difference(
    title: str,
    base: str,
    stacks: Mapping[tuple[str, ...], tuple[int, str]],
    before: Mapping[tuple[str, ...], tuple[int, str]],
) -> Markup:
    """As wide as in this cell; the colour and a sign say what takes more or less than in `base`.
    What ran in `base` alone has no width. Empty if either has no samples."""
    root, was = _tree(stacks), _tree(before)
    if not root.weight or not was.weight:
        return Markup("")
    _note(root, was)
    return _Difference(root, base).drawn(f"{title} against {base}")


def _note(frame: _Frame, was: _Frame) -> None:
    frame.before = was.weight
    for name, callee in frame.callees.items():
        if name in was.callees:
            _note(callee, was.callees[name])


def _tree(stacks: Mapping[tuple[str, ...], tuple[int, str]]) -> _Frame:
    root = _Frame()
    for way, (weight, group) in stacks.items():
        frame = root
        for name in ("", *way[:DEEPEST]):
            frame = frame.callees.setdefault(name, _Frame()) if name else root
            frame.weight += weight
            frame.groups[group] = frame.groups.get(group, 0) + weight
    return root


class _Picture:
    def __init__(self, root: _Frame, largest: Sequence[str], weighed: Weighed) -> None:
        self._root, self._total, self._weighed = root, root.weight, weighed
        own = [group for group in largest if group != OTHER]
        self._styles = dict(zip(own, OWN_STYLES, strict=False))
        self._parts: list[Markup] = []

    def drawn(self, title: str) -> Markup:
        key, key_height = _key_of(self._key())
        height = key_height + self._depth(self._root) * ROW
        self._draw(self._root, 0.0, height)
        words = f"Flame graph of {title}: {self._amount(self._root)}"
        return picture(WIDTH, height + 4, words, key, *self._parts)

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
        says = f"{name}: {share} % {self._weighed.of}, {self._amount(frame)}; {self._more(frame)}"
        style = f"part s{self._style(frame)}"
        parts = [
            tag("title", says),
            tag("rect", x=x, y=y, width=width, height=ROW - 1, class_=style),
        ]
        if int((width - 6) / LETTER) >= 3:
            label = self._sign(frame) + name.rpartition(": ")[2]
            parts.append(tag("text", cut(label, width - 6), x=x + 3, y=y + 13, class_="part-name"))
        return tag("g", *parts, class_="mark-part", tabindex="0", role="img", aria_label=says)

    def _more(self, frame: _Frame) -> str:
        return frame.group

    def _sign(self, frame: _Frame) -> str:
        del frame
        return ""

    def _style(self, frame: _Frame) -> int:
        return self._styles.get(frame.group, GREY)

    def _key(self) -> Iterable[tuple[str, int]]:
        own = {g: w for g, w in self._root.groups.items() if g in self._styles}
        shown = sorted(own.items(), key=lambda one: (-one[1], one[0]))
        if rest := self._total - sum(own.values()):
            alone = rest == self._root.groups.get(OTHER)
            shown.append((OTHER if alone else "all others", rest))
        return [
            (f"{group} {numbers.percent(weight / self._total)} %", self._styles.get(group, GREY))
            for group, weight in shown
        ]


class _Difference(_Picture):
    """Only shifts are coloured that are more than so many samples vary by chance."""

    def __init__(self, root: _Frame, base: str) -> None:
        super().__init__(root, (), SAMPLES)
        self._base = base

    def _shift(self, frame: _Frame) -> float:
        return frame.weight / self._total - frame.before / self._root.before

    def _beyond_chance(self, frame: _Frame) -> bool:
        both = (frame.weight + frame.before) / (self._total + self._root.before)
        error = sqrt(both * (1 - both) * (1 / self._total + 1 / self._root.before))
        return abs(self._shift(frame)) > 2 * error

    def _more(self, frame: _Frame) -> str:
        was = numbers.percent(frame.before / self._root.before)
        chance = "" if self._beyond_chance(frame) else ", which may be chance"
        return f"{was} % in {self._base}{chance}"

    def _sign(self, frame: _Frame) -> str:
        if not self._beyond_chance(frame):
            return ""
        return "▲ " if self._shift(frame) > 0 else "▼ "

    def _style(self, frame: _Frame) -> int:
        return {"▲ ": MORE, "▼ ": LESS}.get(self._sign(frame), GREY)

    def _key(self) -> Iterable[tuple[str, int]]:
        words = (
            ("▲ more than in", MORE),
            ("▼ less than in", LESS),
            ("no shift beyond chance from", GREY),
        )
        return [(f"{word} {self._base}", style) for word, style in words]


def _key_of(entries: Iterable[tuple[str, int]]) -> tuple[Markup, float]:
    """With its height: of as many lines as it needs."""
    parts, x, y = [], 4.0, 0.0
    for words, style in entries:
        width = 34 + len(words) * LETTER
        if x + width > WIDTH and x > 4:
            x, y = 4.0, y + KEY
        swatch = tag("rect", x=x, y=y + 3, width=14, height=10, class_=f"part s{style}")
        parts.append(tag("g", swatch, tag("text", words, x=x + 20, y=y + 12, class_="key")))
        x += width
    return tag("g", *parts), y + KEY
