"""One channel's samples: columns of numbers, and a named reason for what could not be read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Cell = float | None
"""None = nothing (or no number) stands there; 0 is a measured zero."""

# A counter of 64 bits ends below 1.9e19; sums of such numbers stay finite.
LARGEST = 1e19

# Columns of words: which NIC a netstat row is about.
TEXT_COLUMNS = frozenset({"NIC"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Something that was not imported."""

    reason: str
    """One of a small set of names: they are counted."""
    where: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One channel's record of one run."""

    epoch_s: int
    """The second at which the run was started: the sample's name in all channels."""
    columns: Mapping[str, Sequence[Cell]]
    rows: int

    def column(self, name: str) -> Sequence[Cell]:
        """Header spelling wins; `Uptime` and `uptime` are the same column."""
        if name in self.columns:
            return self.columns[name]
        for other, cells in self.columns.items():
            if other.lower() == name.lower():
                return cells
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """All samples of one channel of one condition."""

    samples: tuple[Sample, ...]
    skips: tuple[Skip, ...] = field(default=())


def sample_of_rows(
    epoch_s: int, header: Sequence[object], rows: Iterable[Sequence[object]], where: str
) -> tuple[Sample | None, list[Skip]]:
    """Turns a sheet into columns. Cells that hold no number are left out, each kind named once."""
    names = [str(cell).strip() for cell in header]
    kept = list(rows)
    while kept and all(cell in ("", None) for cell in kept[-1]):
        kept.pop()
    if not any(names) or not kept:
        return None, [Skip(reason="empty sample", where=where)]
    columns: dict[str, Sequence[Cell]] = {}
    odd: Counter[tuple[str, str]] = Counter()
    width = len(names)
    padded = [row if len(row) >= width else [*row, *[""] * (width - len(row))] for row in kept]
    for name, cells in zip(names, zip(*padded, strict=False), strict=False):
        if not name or name in TEXT_COLUMNS or name in columns:
            continue
        if all(type(cell) is float for cell in cells) and _in_range(cells):
            columns[name] = cells
        else:
            columns[name] = [_number(cell, name, odd) for cell in cells]
    skips = [
        Skip(reason=reason, where=where, detail=f"{count} in column {column}")
        for (reason, column), count in odd.items()
    ]
    return Sample(epoch_s=epoch_s, columns=columns, rows=len(kept)), skips


def _number(cell: object, column: str, odd: Counter[tuple[str, str]]) -> Cell:
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        if -LARGEST <= cell <= LARGEST:  # also false for what is not a number
            return float(cell)
        odd["number out of range", column] += 1
    else:
        odd["empty cell" if cell in ("", None) else "text in a number cell", column] += 1
    return None


def _in_range(cells: Sequence[float]) -> bool:
    return math.isfinite(sum(cells)) and max(cells) <= LARGEST and min(cells) >= -LARGEST
