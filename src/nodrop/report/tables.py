"""Tables with one content and four forms: HTML, csv (raw values), markdown, LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, Generic, TypeVar

from nodrop.report import escape, numbers
from nodrop.stats.interval import Summary

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    """Machine name with its unit, as the csv has it."""
    title: str
    numeric: bool = False
    help: str = ""


def numeric(name: str, title: str, help: str = "") -> Column:
    return Column(name, title, numeric=True, help=help)


@dataclass(frozen=True, slots=True)
class Value:
    raw: float | str | None
    """None = not measured: an empty field in csv."""
    shown: str


@dataclass(frozen=True, slots=True)
class Row:
    values: tuple[Value, ...]
    anchor: str = ""
    mark: str = ""
    """`good`, `loss`, `failed`, `void`: said in words in some column as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Iterable[Row]
    more: str = ""
    """The way to the rows that are not here."""
    words: tuple[str, ...] = ()
    """Notes that a reader must know beside the table; a page has them in its section."""


@dataclass(frozen=True, slots=True)
class Made(Generic[ItemT]):
    """Rows made anew whenever they are gone through: those of a long run are never all there."""

    make: Callable[[], Iterator[ItemT]]

    def __iter__(self) -> Iterator[ItemT]:
        return self.make()


def text(value: object) -> Value:
    return Value(str(value), escape.plain(value))


def scaled(value: float | None, shown: Callable[[float], str], scale: float = 1) -> Value:
    """A value that the csv has times `scale`."""
    if value is None:
        return Value(None, numbers.NOT_MEASURED)
    return Value(value * scale, shown(value))


@dataclass(frozen=True, slots=True)
class Field(Generic[ItemT]):
    """A column and its value for an item: declared once, for every output."""

    column: Column
    of: Callable[[ItemT], Value]


def words(name: str, title: str, of: Callable[[ItemT], object], help: str = "") -> Field[ItemT]:
    return Field(Column(name, title, help=help), lambda item: text(of(item)))


def number(
    name: str,
    title: str,
    of: Callable[[ItemT], float | None],
    shown: Callable[[float], str] = numbers.count,
    *,
    scale: float = 1,
    help: str = "",
) -> Field[ItemT]:
    return Field(numeric(name, title, help), lambda item: scaled(of(item), shown, scale))


def own(
    name: str,
    title: str,
    of: Callable[[ItemT], float | None],
    shown: Callable[[ItemT], Callable[[float], str]],
    *,
    missing: str = numbers.NOT_MEASURED,
    help: str = "",
) -> Field[ItemT]:
    """A number that each item shows in its own way."""

    def value(item: ItemT) -> Value:
        found = of(item)
        return Value(found, missing if found is None else shown(item)(found))

    return Field(numeric(name, title, help), value)


LOWER_END, UPPER_END = "lower end of the 95 % interval", "upper end of the 95 % interval"


def interval_fields(
    names: Sequence[str],
    titles: Sequence[str],
    of: Callable[[ItemT], Summary | None],
    shown: Callable[[float], str],
    *,
    scale: float = 1,
    help: str = "",
) -> tuple[Field[ItemT], ...]:
    """A median and the two ends of its interval."""

    def part(at: int, item: ItemT) -> float | None:
        found = of(item)
        if found is None or at == 0:
            return found.median if found else None
        return (found.interval.low, found.interval.high)[at - 1] if found.interval else None

    return tuple(
        number(names[at], titles[at], partial(part, at), shown, scale=scale, help=said)
        for at, said in enumerate((help, LOWER_END, UPPER_END))
    )


def table_of(
    name: str,
    title: str,
    fields: Sequence[Field[ItemT]],
    items: Iterable[ItemT],
    *,
    anchor: Callable[[ItemT], str] | None = None,
    mark: Callable[[ItemT], str] | None = None,
    **more: Any,
) -> Table:
    """Items that are made anew are rows made anew."""

    def made() -> Iterator[Row]:
        for one in items:
            at, kind = anchor(one) if anchor else "", mark(one) if mark else ""
            yield Row(tuple(field.of(one) for field in fields), at, kind)

    rows = Made(made) if isinstance(items, Made) else tuple(made())
    columns = tuple(field.column for field in fields)
    return Table(name=name, title=title, columns=columns, rows=rows, **more)


def without(table: Table, names: Collection[str]) -> Table:
    return _only(table, [n for n, c in enumerate(table.columns) if c.name not in names])


def _only(table: Table, keep: Sequence[int]) -> Table:
    rows = (replace(row, values=tuple(row.values[n] for n in keep)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[n] for n in keep), rows=tuple(rows))


def empty(table: Table) -> set[str]:
    full = {
        n for row in table.rows for n, value in enumerate(row.values) if value.raw not in (None, "")
    }
    return {column.name for n, column in enumerate(table.columns) if n not in full}


def write_csv(table: Table, file: BinaryIO) -> None:
    """RFC 4180, with a header; numbers are raw. Row by row: a long run has no room in memory."""
    out = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([escape.csv_text(column.name) for column in table.columns])
    for row in table.rows:
        raw = ("" if value.raw is None else value.raw for value in row.values)
        writer.writerow([escape.csv_text(v) if isinstance(v, str) else repr(v) for v in raw])
    out.detach()


def to_markdown(table: Table) -> str:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [
        *(f"{escape.markdown(words, longest=2000)}.\n" for words in table.words),
        line(escape.markdown(column.title) for column in table.columns),
        line("--:" if column.numeric else ":--" for column in table.columns),
        *(line(escape.markdown(value.shown) for value in row.values) for row in table.rows),
    ]
    said = f"\n{escape.markdown(table.more)}\n" if table.more else ""
    return "\n".join(lines) + "\n" + said


MOST_ON_PAPER = 8
"""Columns that a page of a paper has room for."""


def on_paper(table: Table, chosen: Sequence[str] = ()) -> Table:
    """A table with the chosen columns, in that order. If it has none of them, or none is chosen,
    its first ones that are not empty."""
    at = {column.name: n for n, column in enumerate(table.columns)}
    names = [name for name in dict.fromkeys(chosen) if name in at]
    if not names:
        nothing = empty(table)
        names = [name for name in at if name not in nothing][:MOST_ON_PAPER]
    return _only(table, [at[name] for name in names])


def to_latex(table: Table) -> str:
    """A booktabs tabular, to be put into a table environment by its user."""
    shape = "".join("r" if column.numeric else "l" for column in table.columns)
    more = [f"% {escape.latex(said, longest=1000)}" for said in (table.more, *table.words) if said]
    head = " & ".join(escape.latex(column.title) for column in table.columns)
    body = [
        " & ".join(escape.latex(value.shown) for value in row.values) + r" \\" for row in table.rows
    ]
    top = [f"% {escape.latex(table.title)}", rf"\begin{{tabular}}{{{shape}}}", r"\toprule"]
    end = [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join([*top, head + r" \\", r"\midrule", *body, *more, *end])
