"""Several SUTs that share the packets: what each one got, and how unevenly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.report import numbers
from nodrop.report.charts import Bar, Part
from nodrop.report.story import Cell, Story
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.stats.interval import summarize

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


def instances_table(found: Sequence[Shared]) -> Table:
    columns = [
        Column(name="cell", title="Cell"),
        Column(name="run", title="Run"),
        numeric("instance", "Instance"),
        numeric("share_pct", "Share, %"),
    ]
    columns += [numeric(f"{n}_packets", n.capitalize()) for n in COUNTED]
    rows = [
        Row(
            anchor=one.cell.typical.anchor,
            values=(
                text(one.cell.label),
                text(one.cell.typical.name),
                Value(raw=number, shown=str(number)),
                _share(part.get("received", 0) / one.received),
                *(Value(raw=part.get(n), shown=numbers.count(part.get(n))) for n in COUNTED),
            ),
        )
        for one in found
        for number, part in enumerate(one.parts, 1)
    ]
    return Table(name="instances", title="Instances", columns=tuple(columns), rows=tuple(rows))


def _share(ratio: float) -> Value:
    return Value(raw=ratio * 100, shown=numbers.percent(ratio))
