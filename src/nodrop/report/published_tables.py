"""The studies' tables in an imported run directory: paper and sound side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.report import escape, numbers
from nodrop.report.tables import Column, Row, Table, Value, numeric, text


def figure(value: float | None, *, whole: bool = False) -> Value:
    return Value(raw=value, shown=_shown(value, whole))


def _shown(value: float | None, whole: bool) -> str:
    if value is None:
        return numbers.NOT_MEASURED
    return numbers.count(value) if whole else f"{value:.2f}"


def _between(low: float | None, high: float | None, whole: bool) -> str:
    if low is None or high is None:
        return ""
    return f"{_shown(low, whole)} to {_shown(high, whole)}"


def _slug(name: object) -> str:
    return "".join(c for c in str(name).lower() if c.isascii() and c.isalnum())[:20] or "table"


def published_tables(content: Mapping[str, Any]) -> Iterator[Table]:
    for name, table in content.items():
        over_time = bool(table["over_time"])
        title = f"Table {name}" if over_time else str(name)
        cells = table["cells"]
        columns = [
            column
            for column in (_MEANS if over_time else _COUNTS)
            if not (column.only_if_varied or column.only_if_any) or _tells(cells, column)
        ]
        yield Table(
            name=f"published-{_slug(name)}",
            title=escape.plain(f"{title}: {table['title']}{_window_words(cells)}"),
            columns=tuple(column.column for column in columns),
            rows=tuple(
                Row(
                    values=tuple(column.value(cell) for column in columns),
                    mark="loss" if cell["published_disagrees"] else "",
                )
                for cell in cells
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableColumn:
    column: Column
    value: Callable[[Mapping[str, Any]], Value]
    only_if_varied: bool = False
    only_if_any: bool = False
    """Shown if at least one cell has something to say."""


def _tells(cells: Sequence[Mapping[str, Any]], column: _TableColumn) -> bool:
    found = {column.value(cell).raw for cell in cells} - {None}
    return bool(found - {""}) if column.only_if_any else len(found) > 1


def _window_words(cells: Sequence[Mapping[str, Any]]) -> str:
    windows = {(cell["published_setup"], *cell["window_s"]) for cell in cells if cell["window_s"]}
    spans = {window[1:] for window in windows}
    if len(spans) == 1:
        low, high = spans.pop()
        return f"; uptimes {low:g} to {high:g} s"
    said = (f"{setup} {low:g} to {high:g} s" for setup, low, high in sorted(windows))
    return f"; uptimes {', '.join(said)}" if windows else ""


def _text_of(name: str) -> Callable[[Mapping[str, Any]], Value]:
    return lambda cell: text(cell[name] or "")


def _number_of(
    *keys: str, whole: bool = False, divide: float = 1
) -> Callable[[Mapping[str, Any]], Value]:
    def value(cell: Mapping[str, Any]) -> Value:
        found: Any = cell
        for key in keys:
            found = found[key] if found is not None else None
        return figure(None if found is None else found / divide, whole=whole)

    return value


def _between_of(low: str, high: str, *, whole: bool) -> Callable[[Mapping[str, Any]], Value]:
    def value(cell: Mapping[str, Any]) -> Value:
        sound = cell["sound"] or {}
        return text(_between(sound.get(low), sound.get(high), whole))

    return value


def _left(*, whole: bool) -> tuple[_TableColumn, ...]:
    return (
        _TableColumn(column=Column(name="setup", title="Setup"), value=_text_of("published_setup")),
        _TableColumn(column=numeric("load_x", "Load, X"), value=_number_of("load", whole=True)),
        _TableColumn(
            column=numeric("memory_limit_mib", "Memory limit, MiB"),
            value=_number_of("memory_bytes", whole=True, divide=2**20),
            only_if_varied=True,
        ),
        _TableColumn(
            column=Column(name="part", title="Part"), value=_text_of("part"), only_if_varied=True
        ),
        _TableColumn(
            column=Column(name="column", title="Column"),
            value=_text_of("column"),
            only_if_varied=True,
        ),
        _TableColumn(
            column=numeric(
                "paper", "Paper", "The authors' arithmetic: means over time, or one record"
            ),
            value=_number_of("mean", whole=whole),
        ),
    )


def _right(*, whole: bool) -> tuple[_TableColumn, ...]:
    return (
        _TableColumn(
            column=numeric("sound", "Sound", "One figure per run, then the median over runs"),
            value=_number_of("sound", "median", whole=whole),
        ),
        _TableColumn(
            column=Column(name="sound_interval", title="95 % interval"),
            value=_between_of("interval_low", "interval_high", whole=whole),
        ),
        _TableColumn(
            column=Column(name="between_runs", title="All runs", help="Smallest to largest"),
            value=_between_of("smallest_run", "largest_run", whole=whole),
        ),
        _TableColumn(column=numeric("runs", "Runs"), value=_number_of("samples", whole=True)),
    )


_MEANS = (
    *_left(whole=False),
    _TableColumn(
        column=numeric("sigma_over_time", "σ over time", "Over checkpoints, not between runs"),
        value=_number_of("sigma"),
    ),
    _TableColumn(
        column=numeric("checkpoints", "n", "Checkpoints in the window"),
        value=_number_of("n", whole=True),
    ),
    _TableColumn(column=numeric("printed", "Printed"), value=_number_of("published_mean")),
    _TableColumn(column=numeric("printed_sigma", "Printed σ"), value=_number_of("published_sigma")),
    *_right(whole=False),
    _TableColumn(
        column=Column(name="flag", title="Print against files"),
        value=_text_of("published_disagrees"),
        only_if_any=True,
    ),
)
_COUNTS = (
    *_left(whole=True),
    _TableColumn(
        column=Column(name="record", title="Record"), value=_text_of("row"), only_if_varied=True
    ),
    *_right(whole=True),
)
