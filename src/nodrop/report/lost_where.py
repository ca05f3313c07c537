"""The places where the lossy trials of a cell lost packets, and what points at the cause.

All of them are counted: one example is no evidence for the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from nodrop.report import escape
from nodrop.report.story import Cell
from nodrop.report.trials import Trial

_NUMBERS = re.compile(r"[\d.,\u202f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """What points at a cause, in one or several lossy trials."""

    rule: str
    words: str
    """Of the first of them."""
    alike: bool
    """The words are the same in all of them."""
    trials: tuple[Trial, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "words": self.words,
            "runs": [t.name for t in self.trials],
        }


def places_words(cell: Cell) -> str:
    """` in the socket ring`, ` mostly in the socket ring in 4 of 6 lossy trials, …`."""
    places = places_of(cell)
    if not places:
        return ""
    mostly = (
        "mostly in" if any(len(t.record.packets.lost_by_place) > 1 for t in cell.lossy) else "in"
    )
    if len(places) == 1:
        return f" {mostly} the {escape.plain(next(iter(places)))}"
    listed = [f"{mostly} the {escape.plain(place)} in {n}" for place, n in places.items()]
    return f" {listed[0]} of {len(cell.lossy)} lossy trials, " + ", ".join(listed[1:])


def places_of(cell: Cell) -> dict[str, int]:
    """Lossy trials by the place where each lost most, the commonest first."""
    found: dict[str, int] = {}
    for trial in cell.lossy:
        if place := trial.record.packets.loss_place:
            found[place] = found.get(place, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def pointers(cell: Cell) -> list[Pointer]:
    """The commonest first."""
    gathered: dict[str, list[tuple[str, Trial]]] = {}
    for trial in cell.lossy:
        for rule, words in _causes(trial):
            gathered.setdefault(rule, []).append((words, trial))
    found = [
        Pointer(
            rule=rule,
            words=told[0][0],
            alike=len({words for words, _ in told}) == 1,
            trials=tuple(trial for _, trial in told),
        )
        for rule, told in gathered.items()
    ]
    return sorted(found, key=lambda p: -len(p.trials))


def _causes(trial: Trial) -> list[tuple[str, str]]:
    """Rule and words of each; of older runs the words alone, which differ in their numbers."""
    found = trial.record.packets.loss_causes
    words = trial.record.packets.loss_cause
    old = [(_NUMBERS.sub("#", words), words)] if words else []
    return [(cause.rule, cause.words) for cause in found] or old


def causes_words(cell: Cell) -> str:
    """`; what points at the cause in 5 of 6 lossy trials: …; in 1 nothing does`."""
    found = pointers(cell)
    if not found:
        return ""
    lossy, parts = len(cell.lossy), []
    for n, pointer in enumerate(found):
        of = f" of {lossy} lossy trials" if n == 0 and lossy > 1 else ""
        where = f"in {len(pointer.trials)}{of}" if lossy > 1 else ""
        such = "" if pointer.alike else " (so in the first of them)"
        parts.append(f"{where}: {escape.plain(pointer.words)}{such}".removeprefix(": "))
    unknown = sum(1 for t in cell.lossy if not _causes(t))
    if unknown:
        parts.append(f"in {unknown} nothing does")
    return "; what points at the cause" + (" " if lossy > 1 else ": ") + "; ".join(parts)


def knob_words(cell: Cell) -> str:
    """What touches most of the losses; in how many trials, if not in all."""
    knobs: dict[str, int] = {}
    for trial in cell.lossy:
        if trial.record.packets.knob:
            knobs[trial.record.packets.knob] = knobs.get(trial.record.packets.knob, 0) + 1
    if not knobs:
        return ""
    knob, n = max(knobs.items(), key=lambda item: item[1])
    said = escape.plain(knob)
    return said if n == len(cell.lossy) else f"{said} (in {n} of {len(cell.lossy)} lossy trials)"
