"""Cells that differ in one factor alone: what a question about that factor is answered from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.findings.observations import RATES
from nodrop.report.searched import SearchedCell, searches
from nodrop.report.setups import BASE_KIND, INSTANCES, KIND
from nodrop.report.story import Cell, Story, factor_label, once, said_by_name
from nodrop.report.trials import Trial
from nodrop.results.trial import accelerator_words

LOADS = (*RATES, "load.ramp", "load.soak_s")
Factor = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One value of the factor."""

    name: str
    cells: tuple[Cell, ...]
    """By load, the least first."""
    searched: SearchedCell | None

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(t for cell in self.cells for t in cell.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    source: int
    factor: Factor
    """Keys that differ together."""
    held: Mapping[str, Any]
    """The other factors of the run, which are the same here."""
    levels: tuple[Level, ...]
    """The base first; two at least."""

    @property
    def held_words(self) -> str:
        return " · ".join(factor_label(f, v) for f, v in self.held.items() if f not in LOADS)


@once
def contrasts(story: Story) -> tuple[Contrast, ...]:
    """Run by run, in the order of the experiment's factors. Empty if only loads differ."""
    found: list[Contrast] = []
    for source in range(len(story.sources)):
        cells = [cell for cell in story.cells if cell.source == source]
        searched = [one for one in searches(story) if one.source == source]
        of_searches = {id(cell) for one in searched for cell in one.cells}
        fixed = [cell for cell in cells if id(cell) not in of_searches]
        found += _contrasts(source, _by_load(fixed))
        found += _contrasts(source, [_level(one.cells, one) for one in searched])
    return tuple(found)


def _by_load(cells: Sequence[Cell]) -> list[Level]:
    """Cells that differ in their load alone are one level."""
    gathered: dict[str, list[Cell]] = {}
    for cell in cells:
        key = repr(sorted((k, repr(v)) for k, v in cell.factors.items() if k not in LOADS))
        gathered.setdefault(key, []).append(cell)
    return [_level(sorted(each, key=lambda c: c.rank), None) for each in gathered.values()]


def _level(cells: Sequence[Cell], searched: SearchedCell | None) -> Level:
    return Level(name="", cells=tuple(cells), searched=searched)


def _asked(level: Level) -> Mapping[str, Any]:
    """Factors that the experiment gives the level, but for loads that vary."""
    first = level.cells[0]
    if level.searched is not None:
        return first.trials[0].record.cell
    return {k: v for k, v in first.factors.items() if k not in LOADS}


def _contrasts(source: int, levels: Sequence[Level]) -> list[Contrast]:
    asked = [_asked(level) for level in levels]
    factors = _factors(asked)
    found = []
    for factor in factors:
        others = [f for one in factors if one != factor for f in one]
        gathered: dict[str, list[int]] = {}
        for number, cell in enumerate(asked):
            rest = repr([(f, cell.get(f)) for f in others])
            gathered.setdefault(rest, []).append(number)
        for numbers in gathered.values():
            if len(numbers) > 1:
                named = [_named(levels[n], factor, asked[n]) for n in numbers]
                held = {f: asked[numbers[0]][f] for f in others if f in asked[numbers[0]]}
                ordered = _base_first(named, [asked[n] for n in numbers], factor)
                found.append(Contrast(source=source, factor=factor, held=held, levels=ordered))
    return found


def _factors(asked: Sequence[Mapping[str, Any]]) -> list[Factor]:
    """Keys that vary, each by itself; those of a setup together, as they make one."""
    seen: dict[str, set[str]] = {}
    for cell in asked:
        for key in cell:
            seen.setdefault(key, set())
    for cell in asked:
        for key, values in seen.items():
            values.add(repr(cell.get(key, ...)))
    vary = [key for key, values in seen.items() if len(values) > 1]
    by_name = said_by_name(vary, asked)
    alone = [key for key in vary if key not in by_name]
    setups = [key for key in alone if key == "setup" or key.startswith("setup.")]
    if len(setups) < 2 or INSTANCES in setups:
        return [(key,) for key in alone]
    first = alone.index(setups[0])
    rest: list[Factor] = [(key,) for key in alone if key not in setups]
    return [*rest[:first], tuple(setups), *rest[first:]]


def _named(level: Level, factor: Factor, asked: Mapping[str, Any]) -> Level:
    words = [factor_label(f, asked[f]) for f in factor if f in asked] or ["as it is"]
    if KIND in factor and (accelerator := accelerator_words(level.trials)):
        words.append(accelerator)
    return Level(name=" ".join(words), cells=level.cells, searched=level.searched)


def _base_first(
    levels: Sequence[Level], asked: Sequence[Mapping[str, Any]], factor: Factor
) -> tuple[Level, ...]:
    """The host itself, or no rules at all, before what comes first."""

    def rank(number: int) -> tuple[bool, int, int]:
        lists = [v for f in factor if isinstance(v := asked[number].get(f), list)]
        return asked[number].get(KIND) != BASE_KIND, sum(map(len, lists)), number

    base = min(range(len(levels)), key=rank)
    return (levels[base], *levels[:base], *levels[base + 1 :])
