"""The [matrix] of an experiment: dotted keys and their values, and cells that have a name.

The cells are the product, less what `exclude` names.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from nodrop.config.options import key_path, shown, unknown_key
from nodrop.errors import BadInput, BadKey

Cell = dict[str, Any]
NAMED = "cell"
"""Factor of a named cell: its name, beside the keys that the name stands for."""
CELLS = "cells."
EXCLUDE = "exclude"
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9=-]{0,63}")
MOST_COMBINATIONS = 100_000
"""Limit on the combinations that `exclude` looks at, one by one."""

VARIED_TABLES = ("setup", "sut", "load", "limits", "tune")
"""Tables in which a cell may differ. [measure] is how cells are looked at, and the same for all,
except for `VARIED_MEASURES`."""
VARIED_MEASURES = ("measure.profile", "measure.level_interval_ms")
"""Keys of instruments, whose effect on the SUT shows only in cells with one beside cells without
it."""


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`"load.multiplier" = […]`, or bare keys that TOML made tables of, as dotted key → list."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{prefix}{name}"
        inner = flatten(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
        for dotted, values in inner.items():
            if dotted in flat:
                raise BadKey(f"matrix.{dotted}", "given twice")
            flat[dotted] = values
    return flat


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    dimensions: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Dotted key → its values."""
    named: Mapping[str, Cell] = field(default_factory=dict)
    """Name → what it sets. Each is combined with all values of the dimensions."""
    excluded: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    """A cell is left out if all keys of one of these have one of the values."""

    def __bool__(self) -> bool:
        return bool(self.dimensions or self.named)

    def combinations(self) -> int:
        """Cells, those included that are excluded."""
        values = math.prod(len(values) for values in self.dimensions.values())
        return values * max(1, len(self.named))

    def cells(self) -> Iterator[Cell]:
        """Cells in order, the last key turning fastest. Without a matrix there is one cell: {}."""
        named = [{NAMED: name, **cell} for name, cell in self.named.items()] or [{}]
        for first, *values in itertools.product(named, *self.dimensions.values()):
            cell = first | dict(zip(self.dimensions, values, strict=True))
            if not any(_covers(one, cell) for one in self.excluded):
                yield cell

    def cell_count(self) -> int:
        return sum(1 for _ in self.cells()) if self.excluded else self.combinations()


def check_matrix(flat: Mapping[str, Any]) -> Matrix:
    """The matrix, every key of which can name something and takes at least one value."""
    rest = {k: v for k, v in flat.items() if k != EXCLUDE and not k.startswith(CELLS)}
    for key, values in rest.items():
        _check_key(key, f"matrix.{key}")
        _check_values(values, f"matrix.{key}")
    named = _named(flat)
    of_cells = {f"{CELLS}{name}.{key}": key for name, cell in named.items() for key in cell}
    every = {**{key: key for key in rest}, **of_cells}
    for (where, key), (other_where, other) in itertools.permutations(every.items(), 2):
        both_of_cells = where in of_cells and other_where in of_cells
        same = key == other and not both_of_cells
        if same or other.startswith(f"{key}."):
            keys = (f"matrix.{where}", f"matrix.{other_where}")
            raise BadInput(f"{' and '.join(keys)} set the same thing: keep one of them", keys=keys)
    matrix = Matrix(
        dimensions={key: tuple(values) for key, values in rest.items()},
        named=named,
        excluded=_excluded(flat.get(EXCLUDE, []), set(every.values()), bool(named)),
    )
    if matrix.excluded:
        _check_excluded(matrix)
    return matrix


def _check_values(values: Any, where: str) -> None:
    if not isinstance(values, list):
        raise BadKey(where, "must be a list of values", given=shown(values))
    if not values:
        raise BadKey(where, "must have at least one value", given="[]")
    for i, value in enumerate(values):
        if any(_same(value, earlier) for earlier in values[:i]):
            raise BadKey(where, f"{shown(value)} is given twice")


def _named(flat: Mapping[str, Any]) -> dict[str, Cell]:
    """`cells.autofp-2.sut.threads = 2`: one value for each key."""
    found: dict[str, Cell] = {}
    for whole, value in flat.items():
        if not whole.startswith(CELLS):
            continue
        name, _, key = whole.removeprefix(CELLS).partition(".")
        if not NAME_PATTERN.fullmatch(name):
            raise BadKey(
                f"matrix.{CELLS}{name}", "a name has lower case letters, digits, dashes and ="
            )
        if not key:
            raise BadKey(
                f"matrix.{whole}", "must be a table of keys and values", given=shown(value)
            )
        _check_key(key, f"matrix.{whole}")
        if isinstance(value, list):
            raise BadKey(
                f"matrix.{whole}",
                f"must be one value; a list of them is matrix.{key}",
                given=shown(value),
            )
        found.setdefault(name, {})[key] = value
    for (name, cell), (other, same) in itertools.combinations(found.items(), 2):
        if _same_cell(cell, same):
            raise BadKey(f"matrix.{CELLS}{other}", f"is the same as matrix.{CELLS}{name}")
    return found


def _excluded(
    given: Any, keys: AbstractSet[str], any_named: bool
) -> tuple[Mapping[str, tuple[Any, ...]], ...]:
    where = f"matrix.{EXCLUDE}"
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise BadKey(
            where, 'must be a list of tables such as {"sut.threads" = 4}', given=shown(given)
        )
    found = []
    for one in map(flatten, given):
        if not one:
            raise BadKey(where, "an empty table would leave no cell")
        for key in one:
            if key not in keys and not (key == NAMED and any_named):
                raise BadKey(where, f"{key}: the matrix does not vary it")
        found.append({k: tuple(v) if isinstance(v, list) else (v,) for k, v in one.items()})
    return tuple(found)


def _check_excluded(matrix: Matrix) -> None:
    where = f"matrix.{EXCLUDE}"
    if matrix.combinations() > MOST_COMBINATIONS:
        raise BadKey(
            where,
            f"{matrix.combinations():,} combinations are more than the {MOST_COMBINATIONS:,} that "
            "it is asked about",
        )
    every = list(Matrix(dimensions=matrix.dimensions, named=matrix.named).cells())
    for one in matrix.excluded:
        if not any(_covers(one, cell) for cell in every):
            words = ", ".join(f"{key} = {shown(list(v))}" for key, v in one.items())
            raise BadKey(where, f"no cell has {words}")
    if not any(True for _ in matrix.cells()):
        raise BadKey(where, "leaves no cell")


def pin(flat: dict[str, Any], key: str, value: Any) -> None:
    """A key that has one value from now on is not varied, whatever the matrix says of it. Of
    `cell`, the value is a named cell or several ("a,b"), and the others are left out."""
    for varied in [k for k in flat if k == key or _key_of_named(k) == key]:
        del flat[varied]
    if key == NAMED:
        names = sorted({_name_of(k) for k in flat if k.startswith(CELLS)})
        kept = value if isinstance(value, list) else str(value).split(",")
        if not kept or any(name not in names for name in kept):
            words = f"the named cells are {', '.join(names)}" if names else "no cell has a name"
            raise BadKey(NAMED, words, given=shown(value))
        for other in [k for k in flat if k.startswith(CELLS) and _name_of(k) not in kept]:
            del flat[other]
    left = []
    for one in flat.pop(EXCLUDE, None) or []:
        table = flatten(one) if isinstance(one, Mapping) else one
        if isinstance(table, dict) and key in table:
            values = table.pop(key)
            values = values if isinstance(values, list) else [values]
            if not any(_same(value, other) for other in values):
                continue
        left.append(table)
    if left:
        flat[EXCLUDE] = left


def _name_of(whole: str) -> str:
    return whole.removeprefix(CELLS).partition(".")[0]


def _key_of_named(whole: str) -> str:
    return whole.removeprefix(CELLS).partition(".")[2] if whole.startswith(CELLS) else ""


def _covers(excluded: Mapping[str, tuple[Any, ...]], cell: Cell) -> bool:
    return all(
        key in cell and any(_same(cell[key], value) for value in values)
        for key, values in excluded.items()
    )


def _same_cell(cell: Cell, other: Cell) -> bool:
    return cell.keys() == other.keys() and all(_same(cell[key], other[key]) for key in cell)


def _check_key(key: str, where: str) -> None:
    path = key_path(key, where)
    if key in VARIED_MEASURES:
        return
    if path[0] not in VARIED_TABLES:
        rest = "".join(f".{part}" for part in path[1:])
        tables = f"; keys begin with {', '.join(f'{table}.' for table in VARIED_TABLES)}"
        near = unknown_key(path[0], VARIED_TABLES, suffix=rest, otherwise=tables)
        raise BadKey(where, f"names nothing that can vary{near}")
    if len(path) == 1:
        raise BadKey(where, f"is a table; name a key of it, such as {key}.{_EXAMPLE[key]}")


_EXAMPLE = {"setup": "kind", "sut": "kind", "load": "multiplier", "limits": "cpus", "tune": "rps"}


def _same(a: Any, b: Any) -> bool:
    """1 and 1.0 are one load, but 1 and true are not one value."""
    if isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def said_by_name(factors: Sequence[str], cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Factors of named cells that need not be said beside the name, which alone decides them."""
    if NAMED not in factors or not all(NAMED in cell for cell in cells):
        return []
    names = {str(cell[NAMED]) for cell in cells}

    def decided(factor: str) -> bool:
        return len({(str(cell[NAMED]), repr(cell.get(factor))) for cell in cells}) == len(names)

    return [f for f in factors if f != NAMED and decided(f)]
