"""Cells that differ only in where the SUT ran, side by side: the base first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodrop.capacity.searched_cells import SearchedCell, given_cells, searches
from nodrop.config.matrix import said_by_name
from nodrop.findings.observations import RATES
from nodrop.report.costs import DIFFERENCES, FAILURES, FIGURES, LOSS, Figure
from nodrop.report.story import RunCell, Story, by_key, factor_label, once
from nodrop.report.trials import StoredTrial
from nodrop.results.trial import accelerator_words
from nodrop.stats.interval import Family

KIND, INSTANCES = "setup.kind", "setup.instances"
BASE_KIND = "bare"
LOADS = (*RATES, "load.ramp", "load.soak_s")
Factor = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetupLevel:
    name: str
    cells: tuple[RunCell, ...]
    """Cells by load, the least first."""
    searched: SearchedCell | None = None

    @property
    def cell(self) -> RunCell:
        """The only cell, under one condition."""
        return self.cells[0]

    @property
    def emulated(self) -> bool:
        return any(t.accelerator == "tcg" for t in self.trials)

    @property
    def trials(self) -> tuple[StoredTrial, ...]:
        return tuple(t for cell in self.cells for t in cell.trials)

    @property
    def asked(self) -> Mapping[str, Any]:
        """Factors that the experiment gives it, but for loads that vary."""
        if self.searched is not None:
            return self.cell.trials[0].record.cell
        return {k: v for k, v in self.cell.factors.items() if k not in LOADS}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupCondition:
    """Setups that have the load and every other factor in common."""

    label: str
    places: tuple[SetupLevel, ...]
    """A cell each, the base first; the name of a guest always says what ran it."""
    family: Family
    """Family of all that its report compares."""

    @property
    def base(self) -> SetupLevel:
        return self.places[0]


@once
def conditions(story: Story) -> tuple[SetupCondition, ...]:
    """Empty if nothing varies between setups. Instances are compared within their kind: what
    is asked of them is what a second one adds."""
    compared = _compared(story.factors)
    cells = (c for c in story.cells if compared and not c.searched)
    alike = by_key(((c.source, _others(c, compared)), c) for c in cells)
    return tuple(_condition(story, found, compared) for found in alike.values() if len(found) > 1)


def _others(cell: RunCell, left_out: Sequence[str]) -> str:
    """Factors but for some, as a key."""
    return repr(sorted((k, repr(v)) for k, v in cell.factors.items() if k not in left_out))


def figures_compared(story: Story) -> Sequence[Figure]:
    return FIGURES if _compared(story.factors) else DIFFERENCES


@once
def compared_at_once(story: Story) -> Family:
    """All that a report compares: medians of each figure and cell, and losses of each pair."""
    figures, cells = figures_compared(story), story.cells
    measured = [f.name for f in figures for cell in cells if f.values(cell)]
    lossy = measured.count(LOSS) + measured.count(FAILURES)
    return Family(parts=max(len(measured) + lossy * (lossy - 1) // 2, 1))


def _compared(factors: Sequence[str]) -> Factor:
    if INSTANCES in factors:
        return (INSTANCES,)
    return tuple(f for f in factors if f == "setup" or f.startswith("setup."))


def _condition(story: Story, cells: Sequence[RunCell], compared: Factor) -> SetupCondition:
    first = cells[0]
    same = [f for f in story.factors if f not in compared and f in first.factors]
    loads_last = sorted(same, key=lambda f: f.startswith("load."))
    words = [story.sources[first.source].name] if story.several else []
    words += [factor_label(f, first.factors[f]) for f in loads_last]
    if INSTANCES in compared and (accelerator := accelerator_words(first.trials)):
        words.append(accelerator)
    places = tuple(_base_first([SetupLevel("", (cell,)) for cell in cells], compared, guests=True))
    return SetupCondition(label=" · ".join(words), places=places, family=compared_at_once(story))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    source: int
    factor: Factor
    """Keys that differ together."""
    held: Mapping[str, Any]
    """The other factors of the run, which are the same here."""
    levels: tuple[SetupLevel, ...]
    """The base first; two at least."""


def held_words(held: Mapping[str, Any]) -> str:
    return " · ".join(factor_label(f, v) for f, v in held.items() if f not in LOADS)


@once
def contrasts(story: Story) -> tuple[Contrast, ...]:
    """Run by run, in the order of the experiment's factors. Empty if only loads differ."""
    found: list[Contrast] = []
    for source in range(len(story.sources)):
        given = (c for c in given_cells(story) if c.source == source)
        by_load = by_key((_others(c, LOADS), c) for c in given).values()
        fixed = [tuple(sorted(cells, key=lambda c: c.rank)) for cells in by_load]
        searched = [search for search in searches(story) if search.source == source]
        found += _contrasts(source, [SetupLevel("", cells) for cells in fixed])
        found += _contrasts(source, [SetupLevel("", tuple(one.cells), one) for one in searched])
    return tuple(found)


def _contrasts(source: int, levels: Sequence[SetupLevel]) -> Iterator[Contrast]:
    factors = _factors([level.asked for level in levels])
    for factor in factors:
        others = [f for one in factors if one != factor for f in one]
        rest = (repr([(f, level.asked.get(f)) for f in others]) for level in levels)
        for alike in by_key(zip(rest, levels, strict=True)).values():
            if len(alike) > 1:
                first = alike[0].asked
                held = {f: first[f] for f in others if f in first}
                ordered = tuple(_base_first(alike, factor))
                yield Contrast(source=source, factor=factor, held=held, levels=ordered)


def _factors(asked: Sequence[Mapping[str, Any]]) -> list[Factor]:
    """Keys that vary, each by itself; those of a setup together, as they make one."""
    keys = dict.fromkeys(key for cell in asked for key in cell)
    vary = [key for key in keys if len({repr(cell.get(key, ...)) for cell in asked}) > 1]
    by_name = said_by_name(vary, asked)
    alone = [key for key in vary if key not in by_name]
    setups = [key for key in alone if key == "setup" or key.startswith("setup.")]
    if len(setups) < 2 or INSTANCES in setups:
        return [(key,) for key in alone]
    together = {setups[0]: tuple(setups)}
    return [together.get(key, (key,)) for key in alone if key not in setups[1:]]


def _base_first(
    levels: Sequence[SetupLevel], factor: Factor, guests: bool = False
) -> Iterator[SetupLevel]:
    """Named, all `guests` by what ran them too; the host itself, or no rules at all, before what
    comes first."""

    def rank(level: SetupLevel) -> tuple[bool, bool, int]:
        lists = [v for f in factor if isinstance(v := level.asked.get(f), list)]
        proved = level.asked.get("cell") != "without"  # of a proof, compare/proving.py
        return proved, level.asked.get(KIND) != BASE_KIND, sum(map(len, lists))

    base = min(levels, key=rank)
    for level in (base, *(one for one in levels if one is not base)):
        words = [factor_label(f, level.asked[f]) for f in factor if f in level.asked]
        accelerator = accelerator_words(level.trials) if guests or KIND in factor else ""
        yield replace(level, name=" ".join(filter(None, (*(words or ["as it is"]), accelerator))))
