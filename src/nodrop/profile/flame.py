"""Flame graphs: where a role ran or waited, and what shifted against another cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from nodrop.profile.functions import OTHER
from nodrop.report import numbers
from nodrop.report.chart import (
    LETTER,
    Chart,
    Pane,
    Plot,
    Scale,
    cut,
    number,
    tag,
)

FLAME_ROW = 18
NARROWEST = 0.002
"""A part of the whole below which a function is not drawn."""
DEEPEST = 40
OWN_STYLES = (0, 1, 2, 3, 4, 5, 7)
"""Styles of the largest groups; all others are grey."""
GREY, MORE, LESS = 6, 1, 0


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
Stacks = Mapping[tuple[str, ...], tuple[int, str]]
"""Weight and group by frames, the outermost first."""


@dataclass(slots=True)
class _Frame:
    weight: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    callees: dict[str, _Frame] = field(default_factory=dict)
    before: int = 0
    """In the cell that this one is held against."""

    @property
    def group(self) -> str:
        """The group that most of its samples belong to."""
        return max(sorted(self.groups), key=lambda group: self.groups[group], default=OTHER)


def flame(title: str, stacks: Stacks, *, largest: Sequence[str] = (),
          weighed: Weighed = SAMPLES) -> Chart:  # fmt: skip
    """Each function as wide as its part, above its caller. Empty without samples.

    `largest`: groups by size, the same for all pictures that are compared.
    """
    root = _tree(stacks)
    return _Flame(root, largest, weighed).drawn(title) if root.weight else Chart()


def flame_difference(title: str, base: str, stacks: Stacks, before: Stacks) -> Chart:
    """Flame graph with the widths of this cell; colour and sign say what takes more or less than in
    `base`. A function that ran in `base` alone has no width. Empty if either has no samples."""
    root, was = _tree(stacks), _tree(before)
    if not root.weight or not was.weight:
        return Chart()
    _note(root, was)
    return _Difference(root, base).drawn(f"{title} against {base}")


def _note(frame: _Frame, was: _Frame) -> None:
    frame.before = was.weight
    for name, callee in frame.callees.items():
        if name in was.callees:
            _note(callee, was.callees[name])


def _tree(stacks: Stacks) -> _Frame:
    root = _Frame()
    for way, (weight, group) in stacks.items():
        frame = root
        for name in ("", *way[:DEEPEST]):
            frame = frame.callees.setdefault(name, _Frame()) if name else root
            frame.weight += weight
            frame.groups[group] = frame.groups.get(group, 0) + weight
    return root


class _Flame:
    def __init__(self, root: _Frame, largest: Sequence[str], weighed: Weighed) -> None:
        self._root, self._total, self._weighed = root, root.weight, weighed
        own = [group for group in largest if group != OTHER]
        self._styles = dict(zip(own, OWN_STYLES, strict=False))

    def drawn(self, title: str) -> Chart:
        high = self._depth(self._root) * FLAME_ROW
        words = f"Flame graph of {title}: {self._amount(self._root)}"
        plot = Plot(words, Scale(0, 1), Scale(high or 1, 0), high or 1, "full")
        self._draw(plot, self._root, 0.0, high)
        key = tuple(("zone", f"part s{style}", name) for name, style in self._key())
        return Chart(words, (Pane((plot,)),), key, "flame")

    def _amount(self, frame: _Frame) -> str:
        return self._weighed.shown.format(numbers.count(frame.weight // self._weighed.divisor))

    def _wide(self, frame: _Frame) -> bool:
        return frame.weight >= NARROWEST * self._total

    def _depth(self, frame: _Frame) -> int:
        shown = filter(self._wide, frame.callees.values())
        return 1 + max((self._depth(one) for one in shown), default=-1)

    def _draw(self, plot: Plot, frame: _Frame, left: float, bottom: int) -> None:
        for name, callee in sorted(frame.callees.items()):
            wide = callee.weight / self._total
            if self._wide(callee):
                self._box(plot, name, callee, left, bottom - FLAME_ROW, wide)
                self._draw(plot, callee, left, bottom - FLAME_ROW)
            left += wide

    def _box(self, plot: Plot, name: str, frame: _Frame, left: float, top: int,
             wide: float) -> None:  # fmt: skip
        share = numbers.percent(frame.weight / self._total)
        says = f"{name}: {share} % {self._weighed.of}, {self._amount(frame)}; {self._more(frame)}"
        style = f"part s{self._style(frame)}"
        parts = [tag("rect", width="100%", height=FLAME_ROW - 1, class_=style)]
        if wide * 1000 > 3 * LETTER:
            label = self._sign(frame) + name.rpartition(": ")[2]
            parts.append(tag("text", cut(label, wide * 1000), x=3, y=13, class_="part-name"))
        box = {"x": f"{number(left * 100)}%", "y": top, "width": f"{number(wide * 100, 3)}%"}
        plot.front.append(tag("svg", *parts, **box, height=FLAME_ROW - 1))
        middle = (top + FLAME_ROW / 2) / plot.height * 1000
        plot.told.append((round((left + wide / 2) * 1000), round(middle), says, ""))

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


class _Difference(_Flame):
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
