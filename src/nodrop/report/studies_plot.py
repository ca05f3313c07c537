"""The study of 2016 drawn beside this run: each half on a scale of its own, since nothing but the
order of the setups can be compared."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from nodrop.report.studies import Beside, StudyFigure, here_words
from nodrop.report.svg import cut, path, picture, tag

WIDTH = 1000.0
THERE, HERE, LONGEST = 150.0, 380.0, 130.0
"""The x at which the bars of each half begin, and the length of a figure's longest."""
MEASURED, JUDGED = HERE + LONGEST + 10, 680.0
HEADS, HEAD, ROW, THICK, GAP = 40.0, 20.0, 20.0, 11.0, 12.0


def studies_plot(figures: Sequence[StudyFigure]) -> Markup:
    """Empty if there is nothing to compare."""
    if not figures:
        return Markup("")
    parts = [
        _text("2016: other hardware", THERE, 14, "panel-name"),
        _text("This run: medians, 95 % intervals", HERE, 14, "panel-name"),
        _text("Does the order of 2016 hold here?", JUDGED, 14, "panel-name"),
    ]
    y = HEADS
    for figure in figures:
        parts += _figure(figure, y)
        y += HEAD + ROW * len(figure.rows) + GAP
    return picture(WIDTH, y - GAP, "The study of 2016 beside this run", *parts)


def _figure(figure: StudyFigure, top: float) -> list[Markup]:
    published = figure.published
    name = published.name[0].upper() + published.name[1:]
    parts = [
        tag("text", name, x=THERE - 10, y=top, class_="panel-name", text_anchor="end"),
        _text(published.there, THERE, top, "axis-name"),
        _text(published.here, HERE, top, "axis-name"),
    ]
    bottom = top + 8 + ROW * len(figure.rows)
    for x in (THERE, HERE):
        parts.append(tag("line", x1=x, x2=x, y1=top + 8, y2=bottom, class_="axis"))
    there = max(row.published for row in figure.rows)
    here = max((_reach(row) for row in figure.rows), default=0.0)
    for number, row in enumerate(figure.rows):
        y = top + 8 + number * ROW
        words = tag("title", f"{name} of {row.setup}: {_says(figure, row)}")
        drawn = [*_there(row, y, there), *_here(row, y, here)]
        parts.append(tag("g", words, *drawn, class_="mark-part", tabindex="0", role="img"))
    return parts


def _reach(row: Beside) -> float:
    if row.here is None:
        return 0.0
    return max(row.here.median, row.here.interval.high if row.here.interval else 0.0)


def _there(row: Beside, y: float, highest: float) -> list[Markup]:
    width = row.published / highest * LONGEST
    name = cut(row.setup, THERE - 12)
    return [
        tag("text", name, x=THERE - 10, y=y + 14, class_="bar-name", text_anchor="end"),
        tag("rect", x=THERE, y=y + 4, width=width, height=THICK, class_="part p-rest"),
        _text(f"{row.published:.2f}", THERE + width + 8, y + 14, "bar-words"),
    ]


def _here(row: Beside, y: float, highest: float) -> list[Markup]:
    parts = [
        _text(here_words(row.here), MEASURED, y + 14, "bar-words"),
        _text(cut(row.said, WIDTH - JUDGED), JUDGED, y + 14, "bar-words"),
    ]
    if row.here is None or not highest:
        return parts
    scale = LONGEST / highest
    width = row.here.median * scale
    parts.append(tag("rect", x=HERE, y=y + 4, width=width, height=THICK, class_="part p-phase2"))
    if interval := row.here.interval:
        low, high = (HERE + end * scale for end in (interval.low, interval.high))
        middle = y + 4 + THICK / 2
        caps = "".join(path([(at, middle - 4), (at, middle + 4)]) for at in (low, high))
        parts.append(tag("path", d=path([(low, middle), (high, middle)]) + caps, class_="span"))
    return parts


def _says(figure: StudyFigure, row: Beside) -> str:
    published = figure.published
    here = f"{here_words(row.here)} {published.here}" if row.here else "not measured"
    return f"2016 {row.published:.2f} {published.there}; here {here}; {row.said}"


def _text(words: str, x: float, y: float, style: str) -> Markup:
    return tag("text", words, x=x, y=y, class_=style)
