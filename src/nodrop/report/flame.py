"""A flame graph: each function as wide as its part of the samples, above its caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from nodrop.findings.functions import OTHER, groups
from nodrop.report import numbers
from nodrop.report.svg import picture, tag

WIDTH, ROW, KEY = 1000.0, 18.0, 22.0
LETTER = 6.6
NARROWEST = 0.002
"""Of the whole: what is narrower is not drawn, and said so."""
DEEPEST = 40
STYLES = 8


@dataclass(slots=True)
class _Frame:
    samples: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    callees: dict[str, _Frame] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """That most of its samples belong to."""
        return max(sorted(self.groups), key=lambda group: self.groups[group], default=OTHER)


def flame(title: str, stacks: Mapping[tuple[str, ...], tuple[int, str]]) -> Markup:
    """Samples and group by frames, the outermost first. Empty if there are none."""
    root = _Frame()
    for way, (samples, group) in stacks.items():
        frame = root
        for name in ("", *way[:DEEPEST]):
            frame = frame.callees.setdefault(name, _Frame()) if name else root
            frame.samples += samples
            frame.groups[group] = frame.groups.get(group, 0) + samples
    if not root.samples:
        return Markup("")
    height = KEY + _depth(root, root.samples) * ROW
    drawn: list[Markup] = []
    _draw(root, 0.0, height, root.samples, drawn)
    words = f"Flame graph of {title}: {numbers.count(root.samples)} samples"
    return picture(WIDTH, height + 4, words, _key(root), *drawn)


def _depth(frame: _Frame, total: int) -> int:
    shown = [f for f in frame.callees.values() if f.samples >= NARROWEST * total]
    return 1 + max((_depth(one, total) for one in shown), default=-1)


def _draw(frame: _Frame, left: float, bottom: float, total: int, drawn: list[Markup]) -> None:
    x = left
    for name, callee in sorted(frame.callees.items()):
        width = callee.samples / total * WIDTH
        if callee.samples >= NARROWEST * total:
            drawn.append(_rectangle(name, callee, x, bottom - ROW, width, total))
            _draw(callee, x, bottom - ROW, total, drawn)
        x += width


def _rectangle(name: str, frame: _Frame, x: float, y: float, width: float, total: int) -> Markup:
    share = numbers.percent(frame.samples / total)
    says = f"{name}: {share} % of the samples, {numbers.count(frame.samples)}; {frame.group}"
    style = f"part s{_style(frame.group)}"
    parts = [tag("title", says), tag("rect", x=x, y=y, width=width, height=ROW - 1, class_=style)]
    letters = int((width - 6) / LETTER)
    if letters >= 3:
        label = name.rpartition(": ")[2]
        label = label if len(label) <= letters else f"{label[: letters - 1]}…"
        parts.append(tag("text", label, x=x + 3, y=y + 13, class_="part-name"))
    return tag("g", *parts, class_="mark-part", tabindex="0", role="img", aria_label=says)


def _style(group: str) -> int:
    names = [name for name, _ in groups()]
    return names.index(group) % STYLES if group in names else STYLES - 2


def _key(root: _Frame) -> Markup:
    parts, x = [], 4.0
    for group, samples in sorted(root.groups.items(), key=lambda item: (-item[1], item[0])):
        words = f"{group} {numbers.percent(samples / root.samples)} %"
        swatch = tag("rect", x=x, y=3, width=14, height=10, class_=f"part s{_style(group)}")
        parts.append(tag("g", swatch, tag("text", words, x=x + 20, y=12, class_="key")))
        x += 34 + len(words) * LETTER
        if x > WIDTH - 120:
            break
    return tag("g", *parts)
