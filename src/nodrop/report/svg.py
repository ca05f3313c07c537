"""SVG by composition: every attribute and text is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from nodrop.report.escape import plain

LETTER = 6.6
"""Width of a letter of a label, about."""


def cut(label: str, width: float) -> str:
    """What has room."""
    most = max(int(width / LETTER), 2)
    return label if len(label) <= most else f"{label[: most - 1]}…"


def number(value: float) -> str:
    """At most two decimals and no trailing zeros: small files, the same bytes everywhere."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def tag(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """`tag("text", "5 %", x=3, text_anchor="end", class_="label")`; None leaves one out."""
    found = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup(f"<{name}{found}/>")
    return Markup(f"<{name}{found}>{join(children)}</{name}>")


def _attribute(value: object) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(value)
    return plain(value, longest=100_000)


def join(children: Iterable[Markup | str]) -> Markup:
    return Markup("").join(
        child if isinstance(child, Markup) else escape(plain(child, longest=1000))
        for child in children
    )


def picture(width: float, height: float, title: str, *children: Markup) -> Markup:
    """A whole image; `title` is what a screen reader says. A group, since parts take the focus."""
    return tag(
        "svg",
        tag("title", title),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="group",
        aria_label=title,
        class_="figure",
        style=f"min-width:{number(width * 0.62)}px;max-width:{number(width * 1.15)}px",
    )


def ring(x: float, y: float, r: float = 9.0) -> Markup:
    """Around what stands apart from the others."""
    return tag("circle", cx=x, cy=y, r=r, class_="apart")


_NARROW, _WIDE = frozenset("fijlrt.,:;|!'()[] "), frozenset("mwMW%@")


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """At least that of DejaVu Sans, the widest of the page's fonts: no browser is asked here."""
    ems = sum(0.42 if c in _NARROW else 1.0 if c in _WIDE else 0.65 for c in text)
    return ems * size * (1.1 if bold else 1.0)


def path(points: Iterable[tuple[float, float]], *, close: bool = False) -> str:
    """A `d` attribute of straight lines."""
    found = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return f"M{found}{'Z' if close else ''}" if found else ""
