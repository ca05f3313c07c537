"""Tables for the terminal and JSON for machines: what a check found, what a table holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from nodrop.studies.check import Checked, Outcome
from nodrop.studies.tables import TableCell, TableSpec

GIB = 2**30
MIB = 2**20


def check_table(outcomes: Sequence[Outcome]) -> Table:
    """One row per entry, in the file's order."""
    table = _table("entry", "ours >", "expected >", "published >", "status", "result")
    for outcome in outcomes:
        entry = outcome.entry
        result = "ok" if outcome.hit else f"MISS {outcome.problem}".strip()
        if outcome.published_disagrees:
            result += ", published value disagrees"
        table.add_row(
            *map(
                Text,
                (
                    entry.id,
                    number(outcome.ours),
                    number(entry.expected),
                    number(entry.published),
                    entry.status,
                    result,
                ),
            )
        )
    return table


def check_words(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The figures that print and files disagree on, and their count."""
    for outcome in outcomes:
        if outcome.published_disagrees:
            entry = outcome.entry
            note = f": {entry.note}" if entry.note else ""
            yield (
                f"flag: {entry.id}: published {number(entry.published)}, the files give "
                f"{number(outcome.ours)} ({entry.source}){note}"
            )
    hits = sum(outcome.hit for outcome in outcomes)
    yield f"{hits} of {len(outcomes)} figures reproduced, {len(outcomes) - hits} missed"


def check_json(checked: Checked) -> dict[str, Any]:
    return {
        "entries": [
            {
                "id": outcome.entry.id,
                "ours": outcome.ours,
                "expected": outcome.entry.expected,
                "tolerance": outcome.entry.tolerance,
                "published": outcome.entry.published,
                "status": outcome.entry.status,
                "hit": outcome.hit,
                "published_disagrees": outcome.published_disagrees,
                "problem": outcome.problem or None,
            }
            for outcome in checked.outcomes
        ],
        "hits": sum(outcome.hit for outcome in checked.outcomes),
        "misses": sum(not outcome.hit for outcome in checked.outcomes),
    }


def figure_table(spec: TableSpec, cells: Sequence[TableCell]) -> tuple[Table, int]:
    """Paper and sound side by side, and how many columns name a row. Sigma is over time, the
    interval is between runs."""
    over_time = spec.window is not None
    parts = len({cell.part for cell in cells}) > 1
    paper = (
        ("mean >", "sigma over time >", "n >", "window s", "published >")
        if over_time
        else ("record >", "at")
    )
    table = _table(
        *(["part"] if parts else []),
        *("setup", "load", "memory", "column"),
        *paper,
        *("sound: median of runs >", "95 % interval", "runs >", "flag"),
    )
    table.title = f"{'Table ' if over_time else ''}{spec.name}: {spec.title}"
    for cell in cells:
        where = [cell.part] if parts else []
        words = [*where, *_cell_words(cell), *_paper_words(cell, over_time), *_sound_words(cell)]
        table.add_row(*map(Text, words))
    return table, 4 + parts


def _cell_words(cell: TableCell) -> tuple[str, ...]:
    return cell.published_setup, f"{cell.load}X", memory(cell.memory_bytes), cell.column


def _paper_words(cell: TableCell, over_time: bool) -> tuple[str, ...]:
    if not over_time:
        return number(cell.mean), cell.row
    window = f"{cell.window[0]:g}:{cell.window[1]:g}" if cell.window else ""
    figures = number(cell.mean, 2), number(cell.sigma, 2), number(cell.n)
    return *figures, window, number(cell.published_mean, 2)


def _sound_words(cell: TableCell) -> tuple[str, ...]:
    interval = cell.sound.interval if cell.sound else None
    return (
        number(cell.sound.median, 2) if cell.sound else "",
        f"{number(interval.low, 2)} to {number(interval.high, 2)}" if interval else "",
        str(cell.samples),
        cell.flag,
    )


def number(value: float | None, digits: int | None = None) -> str:
    """Empty if nothing was measured; whole numbers without a point."""
    if value is None:
        return ""
    if value == int(value) and (digits is None or abs(value) >= 1000):
        return str(int(value))
    return f"{value:.{6 if digits is None else digits}f}"


def memory(limit: int | None) -> str:
    if limit is None:
        return "all"
    return f"{limit // GIB}g" if limit % GIB == 0 else f"{limit // MIB}m"


def _table(*columns: str) -> Table:
    """A column whose title ends in `>` holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        numeric = column.endswith(" >")
        table.add_column(
            column.removesuffix(" >"), justify="right" if numeric else "left", no_wrap=numeric
        )
    return table
