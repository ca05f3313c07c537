"""The answer of a search in a terminal: sentences, figures and the knee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodrop.answer.finding import render
from nodrop.capacity.card import action_lines, card_lines, loads_lines
from nodrop.capacity.knee import OF_DETECTIONS, WORDS, Dot
from nodrop.capacity.pictures import knee_of
from nodrop.capacity.searched_cells import SearchedCell
from nodrop.capacity.words import (
    doubts,
    fitted,
    fitted_words,
    forecast_words,
    lowered,
    shown_fit,
    soak_words,
)
from nodrop.config.units import count_of
from nodrop.report import escape
from nodrop.report.chart import ticks
from nodrop.report.numbers import short
from nodrop.report.story import Story
from nodrop.report.trust import decoder_words, sensor_words
from nodrop.results.capacity import Card
from nodrop.stats.loss_curve import LossCurve
from nodrop.terminal.arguments import say
from nodrop.terminal.console import console, print_keyed, speaks_unicode

WIDTH, HEIGHT = 64, 8
"""Size of the plot itself, in characters."""
NARROWEST = 24
LEFT = 10
"""Room for the names of the rows."""
NEAR = 2.0
"""So many times the answer's upper end is drawn; beyond, a few trials that looked for where to look
would leave it a corner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    good: str
    absorbed: str
    loss: str
    failed: str
    answer: str
    left: str
    floor: str
    corner: str

    def of(self, mark: str) -> str:
        return {
            "good": self.good,
            "absorbed": self.absorbed,
            "loss": self.loss,
            "failed": self.failed,
        }[mark]


UNICODE = Signs(
    good="●", absorbed="◐", loss="▼", failed="✗", answer="░", left="┤", floor="─", corner="┼"
)
ASCII = Signs(
    good="o", absorbed="a", loss="v", failed="x", answer="=", left="|", floor="-", corner="+"
)
"""For pipes, and for terminals that say they have no UTF-8."""
STRENGTH = {"good": 0, "absorbed": 1, "loss": 2, "failed": 3}
"""Rank of each mark. If two trials share a place, the higher rank stands: never the better one."""


def knee(
    dots: Sequence[Dot],
    *,
    answer: tuple[float, float] | None,
    signs: Signs,
    columns: int | None = None,
) -> list[str]:
    """Lines; none if there is no trial to draw. `answer`: its interval, in packets/s."""
    if not dots:
        return []
    near = [dot for dot in dots if answer is None or dot.pps <= NEAR * answer[1]] or dots
    beyond, dots = [dot for dot in dots if dot not in near], near
    width = WIDTH if columns is None else max(NARROWEST, min(WIDTH, columns - LEFT - 2))
    right = ticks(max(*(dot.pps for dot in dots), *(answer or (0.0, 0.0))), wanted=10)[-1]
    top = ticks(max(dot.loss_ratio or 0.0 for dot in dots) * 100, wanted=2)[-1]

    def column(pps: float) -> int:
        return min(round(pps / right * (width - 1)), width - 1)

    rows = [[" "] * width for _ in range(HEIGHT - 1)] + [[signs.floor] * width]
    for dot in sorted(dots, key=lambda dot: STRENGTH[dot.mark]):
        part = 1.0 if dot.loss_ratio is None else dot.loss_ratio * 100 / top
        up = round(part * (HEIGHT - 1))
        rows[HEIGHT - 1 - up][column(dot.pps)] = signs.of(dot.mark)
    names = (f"{top:g} %", "missed") if near[0].of_detections else (f"{top:g} % lost", "")
    lines = [*_framed(rows, names, signs), _scale(right, width)]
    if answer:
        low, high = map(column, answer)
        lines.append(" " * (LEFT + 2 + low) + signs.answer * (high + 1 - low))
    return [*lines, _key(dots, answer, signs), *_beyond(beyond)]


def _framed(rows: Sequence[Sequence[str]], top: tuple[str, str], signs: Signs) -> Iterator[str]:
    names = [*top, *[""] * (HEIGHT - 3), "0"]
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        edge = signs.corner if number == HEIGHT - 1 else signs.left
        yield f"{name:>{LEFT}} {edge}{''.join(row)}".rstrip()


def _scale(right: float, width: int) -> str:
    """0, the middle and the end of the axis, each below its place."""
    middle, end = short(right / 2), f"{short(right)} packets/s"
    line = f"0{middle:>{width // 2 + len(middle) // 2 - 1}}"
    return " " * (LEFT + 2) + line + f"{end:>{max(width - len(line), len(end) + 1)}}"


def _beyond(dots: Sequence[Dot]) -> Iterator[str]:
    if dots:
        trials = count_of(len(dots), "trial")
        least = short(min(dot.pps for dot in dots))
        yield f"{'':{LEFT + 2}}not drawn: {trials} at {least} packets/s and more"


def _key(dots: Sequence[Dot], answer: tuple[float, float] | None, signs: Signs) -> str:
    seen = {dot.mark for dot in dots}
    words = OF_DETECTIONS if dots[0].of_detections else WORDS
    said = [f"{signs.of(mark)} {name}" for mark, name in words.items() if mark in seen]
    said += [f"{signs.answer} the answer"] if answer else []
    return f"{'':{LEFT + 2}}each sign is a trial: {'; '.join(said)}"


NO_FIGURE = 6
"""Exit code of a search that has no load that is carried, for a cell or a goal, and of a run that
was disturbed too often for its cells to be compared."""


def ends_with(searches: Sequence[SearchedCell]) -> int:
    """The exit code of a search. A void trial on the way to a figure is no failure: the sender is
    late at loads beyond its own."""
    answers = [answer for one in searches for answer in one.answers]
    found = answers and all(answer.lower is not None for answer in answers)
    return 0 if found else NO_FIGURE


def print_capacity(searched: SearchedCell, card: Card) -> None:
    """The answer of a search: its card, the knee, what speaks against it, what was sent."""
    out = console()
    trials = count_of(card.sure.trials, "trial")
    out.print(f"{searched.subject}  {trials}", markup=False, highlight=False, soft_wrap=True)
    print_keyed(out, _carried(searched, card))
    say()
    picture = knee_of(searched)
    for line in knee(
        picture.dots,
        answer=picture.answer_pps,
        signs=UNICODE if speaks_unicode(out) else ASCII,
        columns=out.width if out.is_terminal else None,
    ):
        out.print(line, markup=False, soft_wrap=True)
    say()
    print_keyed(out, _beside(searched, card))


MOST_GIVEN = 20
"""Cells printed of a run whose loads were given; the page has the others."""


def print_given(cards: Sequence[Card]) -> None:
    """The card of cells that differ in their load alone. Of several such groups each has what it
    carries, and the first what to do."""
    out = console()
    for n, card in enumerate(cards[:MOST_GIVEN]):
        words = f"{card.subject}  {count_of(card.sure.trials, 'trial')}"
        out.print(words, markup=False, highlight=False, soft_wrap=True)
        in_short = [*loads_lines(card), *(() if n else action_lines(card))]
        print_keyed(out, card_lines(card) if len(cards) == 1 else in_short)
    if cards:
        say()


def print_sensor(story: Story) -> None:
    """Packets that the SUT did less work on, rules that it did not load."""
    said = (*decoder_words(story), *sensor_words(story))
    print_keyed(console(), [("sensor", words) for words in said])


def _carried(searched: SearchedCell, card: Card) -> Iterator[tuple[str, str]]:
    """The lines of the card. Where no load is carried, the first says why that is not known."""
    first, *others = card_lines(card)
    if card.carried is None:
        said = render(searched.answers[0].statements[0], "short")
        first = ("carried", f"{escape.plain(said, longest=600)}.")
    yield first
    yield from others


def _beside(searched: SearchedCell, card: Card) -> Iterator[tuple[str, str]]:
    for words in doubts(searched.answers[0]):
        yield "but", words
    for soak in searched.soaks:
        yield "soak", soak_words(soak.record)
    if (window := searched.window) is not None:
        # The plan said the rest, and Trust in the report does.
        at = ", at 1X " if card.by == "multiplier" else ": "
        yield "sent", f"{window.name}{at}{window.rate_words}."
        if window.begun_warning:
            yield "warning", f"{window.begun_words}: it may look faster than it is."
    curve, shown = fitted(searched), shown_fit(searched)
    if isinstance(curve, LossCurve):
        yield "fitted", lowered(fitted_words(shown))
    if words := forecast_words(searched):
        yield "budget", words
