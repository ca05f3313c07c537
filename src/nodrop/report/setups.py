"""Cells that differ only in where the SUT ran, side by side: the base first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.report.costs import DIFFERENCES, FIGURES, family_of
from nodrop.report.story import Cell, Story, factor_label, once
from nodrop.results.trial import accelerator_words
from nodrop.stats.family import Family

KIND, INSTANCES = "setup.kind", "setup.instances"
BASE_KIND = "bare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One setup under one condition."""

    name: str
    """Name beside the other places; a guest's always says what ran it."""
    cell: Cell

    @property
    def emulated(self) -> bool:
        return any(t.accelerator == "tcg" for t in self.cell.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Places that have the load and every other factor in common."""

    label: str
    places: tuple[Place, ...]
    family: Family
    """All that its report compares."""

    @property
    def base(self) -> Place:
        return self.places[0]


@once
def conditions(story: Story) -> tuple[Condition, ...]:
    """Empty if nothing varies between setups. Instances are compared within their kind: what
    is asked of them is what a second one adds."""
    compared = _compared(story.factors)
    if not compared:
        return ()
    gathered: dict[tuple[int, str], list[Cell]] = {}
    for cell in story.cells:
        if cell.searched:
            continue
        rest = sorted((k, repr(v)) for k, v in cell.factors.items() if k not in compared)
        gathered.setdefault((cell.source, repr(rest)), []).append(cell)
    family = compared_at_once(story)
    found = [_condition(story, cells, compared, family) for cells in gathered.values()]
    return tuple(c for c in found if len(c.places) > 1)


@once
def compared_at_once(story: Story) -> Family:
    return family_of(story.cells, FIGURES if _compared(story.factors) else DIFFERENCES)


def setup_names(found: Sequence[Condition]) -> tuple[str, ...]:
    """In the order in which they are drawn."""
    return tuple(dict.fromkeys(place.name for c in found for place in c.places))


def _compared(factors: Sequence[str]) -> tuple[str, ...]:
    if INSTANCES in factors:
        return (INSTANCES,)
    return tuple(f for f in factors if f == "setup" or f.startswith("setup."))


def _condition(
    story: Story, cells: Sequence[Cell], compared: Sequence[str], family: Family
) -> Condition:
    first = cells[0]
    same = [f for f in story.factors if f not in compared and f in first.factors]
    same.sort(key=lambda f: f.startswith("load."))
    words = [factor_label(f, first.factors[f]) for f in same]
    if story.several:
        words.insert(0, story.sources[first.source].name)
    if INSTANCES in compared and (accelerator := _accelerator(first)):
        words.append(accelerator)
    places = [_place(cell, compared) for cell in cells]
    base = min(range(len(cells)), key=lambda n: (cells[n].factors.get(KIND) != BASE_KIND, n))
    if base:
        places.insert(0, places.pop(base))
    return Condition(label=" · ".join(words), places=tuple(places), family=family)


def _place(cell: Cell, compared: Sequence[str]) -> Place:
    words = [factor_label(f, cell.factors[f]) for f in compared if f in cell.factors]
    if accelerator := _accelerator(cell):
        words.append(accelerator)
    return Place(name=" ".join(words) or "as it is", cell=cell)


def _accelerator(cell: Cell) -> str:
    return accelerator_words(cell.trials)
