"""The [matrix] of an experiment: dotted keys and their values; the cells are the product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodrop.config.options import shown, unknown_key
from nodrop.config.toml_file import key_path
from nodrop.errors import BadInput

Matrix = Mapping[str, tuple[Any, ...]]
Cell = dict[str, Any]

VARIED_TABLES = ("setup", "sut", "load", "limits")
"""What a cell may differ in. [measure] is how it is looked at, and the same for all."""


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`"load.multiplier" = […]`, or bare keys that TOML made tables of, as dotted key → list."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{prefix}{name}"
        inner = flatten(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
        for dotted, values in inner.items():
            if dotted in flat:
                raise BadInput(f"matrix.{dotted}: given twice")
            flat[dotted] = values
    return flat


def check_matrix(flat: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The matrix, every key of which can name something and takes at least one value."""
    for key, values in flat.items():
        _check_key(key)
        if not isinstance(values, list):
            raise BadInput(f"matrix.{key} = {shown(values)}: must be a list of values")
        if not values:
            raise BadInput(f"matrix.{key} = []: must have at least one value")
        for i, value in enumerate(values):
            if any(_same(value, earlier) for earlier in values[:i]):
                raise BadInput(f"matrix.{key}: {shown(value)} is given twice")
    for key, other in itertools.permutations(flat, 2):
        if other.startswith(f"{key}."):
            raise BadInput(f"matrix.{key} and matrix.{other} set the same thing: keep one of them")
    return {key: tuple(values) for key, values in flat.items()}


def cell_count(matrix: Matrix) -> int:
    return math.prod(len(values) for values in matrix.values())


def cells(matrix: Matrix) -> Iterator[Cell]:
    """Every combination, the last key turning fastest. Without a matrix there is one cell: {}."""
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _check_key(key: str) -> None:
    path = key_path(key, f"matrix.{key}")
    if path[0] not in VARIED_TABLES:
        words = unknown_key(path[0], VARIED_TABLES)
        if len(path) > 1:
            words = words.removesuffix("?") + "".join(f".{p}" for p in path[1:]) + "?"
        raise BadInput(f"matrix.{key}: names nothing that can vary{_only_nearest(words)}")
    if len(path) == 1:
        raise BadInput(f"matrix.{key}: is a table; name a key of it, such as {key}.{_EXAMPLE[key]}")


_EXAMPLE = {"setup": "kind", "sut": "kind", "load": "multiplier", "limits": "cpus"}


def _only_nearest(words: str) -> str:
    """The nearest key, or the tables there are."""
    if "did you mean" in words:
        return words
    return f"; keys begin with {', '.join(f'{t}.' for t in VARIED_TABLES)}"


def _same(a: Any, b: Any) -> bool:
    """1 and 1.0 are one load, but 1 and true are not one value."""
    if isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)
