"""Facts on what two sides of a comparison were measured on: where they differ, and if they may.

Most facts are of a whole run. In a fleet the facts of hosts are of each cell: a cell stays on the
pair that began it, and another run may deal the cells out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nodrop.config.experiment import Measure
from nodrop.errors import BadInput
from nodrop.report import escape
from nodrop.results.side import Side, SideCell

MOST_NAMED = 8
"""So many facts that differ are named, before it is said how many more there are."""
MOST_CELLS = 4
"""So many cells in which a fact differs are named, before it is said how many more there are."""
NONE = "none recorded"
WHEN_AND_HOW_OFTEN = ("mode", "repetitions", "seed")
"""Keys of `[measure]` that change no figure: in which order trials came, and how many. All others
say how a figure came about, or which trials are in it, and are facts."""
DEFAULTS: Mapping[str, Sequence[str]] = {
    f"measure.{key}": [escape.plain(default)]
    for key, default in Measure().model_dump(mode="json").items()
    if key not in WHEN_AND_HOW_OFTEN
}
"""Facts of runs that recorded none: their nodrop had no such key, and did as the default says."""

Words = Callable[[str, Sequence[str]], str]
"""A function that makes words of a fact's key and its values."""


def plainly(_: str, values: Sequence[str]) -> str:
    return ", ".join(values)


def other_facts(
    a: Side,
    b: Side,
    cells: Sequence[tuple[SideCell, SideCell]],
    *,
    words: Words = plainly,
    between: str = " and ",
) -> dict[str, str]:
    """Key → both values in words, of each fact that differs between the sides, or between any two
    of the cells that are laid against each other. Factors of a cell are no such facts."""
    factors = {key for side in (a, b) for cell in side.cells for key in cell.factors}
    of_cells = {key for pair in cells for cell in pair for key in cell.facts}
    found = {}
    for key in sorted({*a.facts, *b.facts, *of_cells} - factors):
        said: dict[tuple[str, str], list[str]] = {}
        for label, own, other in _seen(key, a, b, cells if key in of_cells else ()):
            if own != other:
                both = _said(key, own, words), _said(key, other, words)
                said.setdefault(both, []).append(label)
        if said:
            everywhere = [len(cells)] == [len(labels) for labels in said.values()]
            found[key] = f"{key}: " + ", ".join(
                between.join(both) + ("" if everywhere else _where(labels))
                for both, labels in said.items()
            )
    return found


def _seen(
    key: str, a: Side, b: Side, cells: Sequence[tuple[SideCell, SideCell]]
) -> list[tuple[str, Sequence[str] | None, Sequence[str] | None]]:
    """Cell, value of a, value of b; one without a cell if the whole run has the fact."""
    of_a, of_b = (side.facts.get(key, DEFAULTS.get(key)) for side in (a, b))
    if not cells:
        return [("", of_a, of_b)]
    return [(own.label, own.facts.get(key, of_a), other.facts.get(key, of_b))
            for own, other in cells if own.figures and other.figures]  # fmt: skip


def _said(key: str, values: Sequence[str] | None, words: Words) -> str:
    return NONE if values is None else words(key, values)


def _where(labels: Sequence[str]) -> str:
    """Empty if it is true of the whole run."""
    named = [label for label in labels[:MOST_CELLS] if label]
    more = len(labels) - len(named)
    if not named:
        return ""
    return f" ({'; '.join(named)}{f'; and {more} more' if more else ''})"


def refused(found: Mapping[str, str], allowed: set[str]) -> dict[str, str]:
    return {key: words for key, words in found.items() if not may_differ(key, allowed)}


def in_lines(found: Mapping[str, str], a: Side, b: Side, between: str = " and ") -> list[str]:
    """Lines on what differs. All facts of a table that one side alone has share a line: labs of two
    kinds have little in common."""
    lines: dict[tuple[str, bool, bool], list[str]] = {}
    for key in found:
        table, inner, _ = key.partition(".")
        of_a, of_b = _has(a, key), _has(b, key)
        group = (table, of_a, of_b) if inner and of_a != of_b else (key, True, True)
        lines.setdefault(group, []).append(key)
    return [
        found[keys[0]]
        if len(keys) == 1
        else f"{table}: "
        + between.join(f"{len(keys)} facts" if has else NONE for has in (of_a, of_b))
        for (table, of_a, of_b), keys in lines.items()
    ]


def _has(side: Side, key: str) -> bool:
    return key in {*side.facts, *DEFAULTS} or any(key in cell.facts for cell in side.cells)


def in_short(refused: Mapping[str, str], a: Side, b: Side) -> tuple[str, str]:
    """Words on what differs, and the options that allow it. Many facts are cut to some, and options
    to their tables: nobody reads a line of forty."""
    words, keys = in_lines(refused, a, b), [*refused]
    if len(words) > MOST_NAMED:
        words = [*words[:MOST_NAMED], f"and {len(words) - MOST_NAMED} more"]
    if len(keys) > MOST_NAMED:
        keys = [*dict.fromkeys(key.partition(".")[0] for key in keys)]
    return "; ".join(words), " ".join(f"--differs {key}" for key in keys)


def must_be_facts(differs: Sequence[str], sides: Sequence[Side]) -> None:
    """Checks that at least one side has each fact that may differ: a slip of the pen allows
    nothing. BadInput otherwise."""
    cells = [cell for side in sides for cell in side.cells]
    known = {key for side in sides for key in side.facts}
    known |= {key for cell in cells for key in (*cell.facts, *cell.factors)}
    for one in differs:
        if not any(may_differ(key, {one}) for key in known):
            tables = ", ".join(sorted({key.partition(".")[0] for key in known}))
            raise BadInput(
                f"--differs {escape.plain(one) or repr(one)}: neither side has such a fact",
                hint=f"there are {tables}, or one of them such as {min(known, default='host')}",
            )


def may_differ(key: str, allowed: set[str]) -> bool:
    """`sut` stands for all that begins with `sut.`."""
    return any(key == one or key.startswith(f"{one}.") for one in allowed)
