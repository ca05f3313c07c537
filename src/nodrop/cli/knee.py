"""The knee in a terminal: every trial a sign, loss over offered load, and where the answer lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodrop.config.units import count_of
from nodrop.report.chart import ticks
from nodrop.report.knee import WORDS, Dot
from nodrop.report.numbers import short

WIDTH, HEIGHT = 64, 8
"""Of the plot itself, in signs."""
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
"""What stands if two trials share a place: never the better one."""


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
    lines = [*_framed(rows, top, signs), _scale(right, width)]
    if answer:
        low, high = map(column, answer)
        lines.append(" " * (LEFT + 2 + low) + signs.answer * (high + 1 - low))
    return [*lines, _key(dots, answer, signs), *_beyond(beyond)]


def _framed(rows: Sequence[Sequence[str]], top: float, signs: Signs) -> Iterator[str]:
    for number, row in enumerate(rows):
        name = f"{top:g} % lost" if number == 0 else "0" if number == HEIGHT - 1 else ""
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
    said = [f"{signs.of(mark)} {name}" for mark, name in WORDS.items() if mark in seen]
    said += [f"{signs.answer} the answer lies here"] if answer else []
    return f"{'':{LEFT + 2}}each sign is a trial: {'; '.join(said)}"
