"""Cells that differ only in where the SUT ran, side by side: the base first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.capacity.cells import SearchedCell, given_cells, searches
from nodrop.findings.observations import RATES
from nodrop.report import numbers
from nodrop.report.charts import Bar, Part
from nodrop.report.costs import DIFFERENCES, FIGURES, family_of
from nodrop.report.story import Cell, Story, factor_label, once, said_by_name
from nodrop.report.tables import Field, Table, number, table_of, words
from nodrop.report.trials import Trial
from nodrop.results.trial import accelerator_words
from nodrop.stats.interval import Family, summarize

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
        searched = [one for one in searches(story) if one.source == source]
        fixed = [cell for cell in given_cells(story) if cell.source == source]
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
        for n, cell in enumerate(asked):
            rest = repr([(f, cell.get(f)) for f in others])
            gathered.setdefault(rest, []).append(n)
        for alike in gathered.values():
            if len(alike) > 1:
                named = [_named(levels[n], factor, asked[n]) for n in alike]
                held = {f: asked[alike[0]][f] for f in others if f in asked[alike[0]]}
                ordered = _base_first(named, [asked[n] for n in alike], factor)
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


COUNTED = ("received", "captured", "decoded", "lost", "residual")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A cell of several instances, by its typical trial."""

    cell: Cell
    parts: tuple[Mapping[str, int], ...]
    """One per instance: packets by those names of COUNTED that it reported."""

    @property
    def received(self) -> int:
        return sum(part.get("received", 0) for part in self.parts)


def shared(story: Story) -> list[Shared]:
    """Cells whose typical trial has books of several instances."""
    found = [Shared(cell=c, parts=_parts(c.typical.details.get("instances"))) for c in story.cells]
    return [one for one in found if len(one.parts) > 1 and one.received]


def _parts(told: Any) -> tuple[Mapping[str, int], ...]:
    if not isinstance(told, list) or not all(isinstance(part, dict) for part in told):
        return ()
    return tuple(
        {name: number for name in COUNTED if isinstance(number := part.get(f"{name}_packets"), int)}
        for part in told
    )


def imbalance_words(cell: Cell) -> str:
    """Over the repetitions: how much more than its share the busiest instance received."""
    found = cell.summary("imbalance_ratio") or summarize(list(_told_apart(cell)))
    if found is None:
        return "imbalance not measured"
    said = f"busiest +{numbers.percent(found.median)} %"
    if interval := found.interval:
        return f"{said} {numbers.between(interval.low, interval.high, numbers.percent)}"
    return said


def _told_apart(cell: Cell) -> Iterator[float]:
    """From an older version, which wrote it to trial.json only."""
    for trial in cell.valid:
        if trial.aside.imbalance_ratio is not None:
            yield trial.aside.imbalance_ratio


def instance_bars(found: Sequence[Shared]) -> list[Bar]:
    return [
        Bar(
            name=one.cell.label,
            parts=tuple(
                Part(
                    kind=f"instance {n}",
                    value=part.get("received", 0) / one.received * 100,
                    says=_says(one, n, part),
                    style=f"p-phase{(n - 1) % 5}",
                )
                for n, part in enumerate(one.parts, 1)
            ),
            words=f"{imbalance_words(one.cell)}; {_lost(one)}",
        )
        for one in found
    ]


def _lost(one: Shared) -> str:
    lost = sum(part.get("lost", 0) for part in one.parts)
    return f"{numbers.count(lost)} lost" if lost else "nothing lost"


def _says(one: Shared, number: int, part: Mapping[str, int]) -> str:
    told = ", ".join(f"{numbers.count(part[name])} {name}" for name in COUNTED if name in part)
    share = numbers.percent(part.get("received", 0) / one.received)
    return f"{one.cell.label}, instance {number}: {share} % of the packets; {told}"


InstancePart = tuple[Shared, int, Mapping[str, int]]


def _packets(name: str) -> Field[InstancePart]:
    return number(f"{name}_packets", name.capitalize(), lambda x: x[2].get(name))


INSTANCE_FIELDS: tuple[Field[InstancePart], ...] = (
    words("cell", "Cell", lambda x: x[0].cell.label),
    words("run", "Run", lambda x: x[0].cell.typical.name),
    number("instance", "Instance", lambda x: x[1]),
    number("share_pct", "Share, %", lambda x: x[2].get("received", 0) / x[0].received,
           numbers.percent, scale=100),
    *map(_packets, COUNTED),
)  # fmt: skip


def instances_table(found: Sequence[Shared]) -> Table:
    parts = ((one, n, part) for one in found for n, part in enumerate(one.parts, 1))
    return table_of(
        "instances", "Instances", INSTANCE_FIELDS, parts, anchor=lambda x: x[0].cell.typical.anchor
    )
