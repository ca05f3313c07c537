"""Trials of run directories as one table in a file, Parquet or CSV: for who computes on from many
or long runs."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput, NotReady
from nodrop.installation import adding
from nodrop.results.packet_books import FLAT
from nodrop.results.rundir import RunDir, must_be_each_once, open_run, unread
from nodrop.results.trial import trial_schema
from nodrop.untrusted.json_text import csv_text, is_utf8, plain

TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR"}
PARTS = ("offered", "body")
"""Parts of a record; their fields are columns of their own, by the names of tables."""
RUN = "run_directory"
MOST_COLUMNS = 2000
"""A record of nodrop's own has 120; each key of `cell` and each place of a loss adds one."""
MOST_BIGINT = 2**63


@dataclass(slots=True)
class Written:
    """Result of an export: the rows and columns of its file."""

    rows: int = 0
    columns: tuple[str, ...] = ()
    unread: list[str] = field(default_factory=list)
    """Parts of the run directories that could not be read, in words."""


def write_parquet(run_dirs: Sequence[Path], out: Path) -> Written:
    """One row per trial, in the order in which they were measured. Columns are `run_directory` and
    the fields of a trial record; null = not measured."""
    try:
        import duckdb
    except ImportError:
        raise NotReady(
            "export --parquet needs duckdb, which is not installed",
            hint=f"{adding('duckdb')}, or --csv FILE",
        ) from None
    if not is_utf8(out.resolve()):
        raise BadInput(f"{out}: is not UTF-8, and duckdb takes no other", hint="give another path")

    def write(runs: Sequence[RunDir], columns: Mapping[str, str], partial: Path) -> int:
        lines, rows = partial.with_suffix(".jsonl"), 0
        # Columns by number: duckdb holds names apart by case when it reads, and not in a table.
        with lines.open("w", encoding="utf-8") as file:
            for row in trial_rows(runs):
                numbered = {f"c{n}": row.get(name) for n, name in enumerate(columns)}
                file.write(json.dumps(numbered, ensure_ascii=True) + "\n")
                rows += 1
        types = {f"c{n}": kind for n, kind in enumerate(columns.values())}
        named = ", ".join(
            f'c{n} AS "{_doubled(x, chr(34))}"' for n, x in enumerate(_named(columns))
        )
        with duckdb.connect() as base:
            base.execute(
                f"COPY (SELECT {named} FROM read_json(?, format = 'newline_delimited', "
                f"columns = ?)) TO '{_doubled(str(partial), chr(39))}' (FORMAT parquet)",
                [str(lines), types],
            )
        return rows

    return _written(run_dirs, out, write)


def write_csv(run_dirs: Sequence[Path], out: Path) -> Written:
    """Writes the rows and columns of `write_parquet` as CSV (RFC 4180). Texts of a list are parted
    by `; `; other lists are JSON."""

    def write(runs: Sequence[RunDir], columns: Mapping[str, str], partial: Path) -> int:
        rows = 0
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\r\n")
            writer.writerow([csv_text(name) for name in _named(columns)])
            for row in trial_rows(runs):
                writer.writerow([_in_csv(row.get(name)) for name in columns])
                rows += 1
        return rows

    return _written(run_dirs, out, write)


def _written(
    run_dirs: Sequence[Path],
    out: Path,
    write: Callable[[Sequence[RunDir], Mapping[str, str], Path], int],
) -> Written:
    if out.exists():
        raise BadInput(f"{out}: is there already", hint="give a new path")
    if not out.resolve().parent.is_dir():
        raise BadInput(f"{out}: its folder is not there", hint="make it, or give another path")
    runs = [open_run(path) for path in run_dirs]
    must_be_each_once(runs)
    columns = _columns(runs)
    with tempfile.TemporaryDirectory(dir=out.resolve().parent, prefix=".nodrop-") as work:
        partial = Path(work) / "trials"
        rows = write(runs, columns, partial)
        partial.rename(out)
    return Written(
        rows=rows,
        columns=tuple(_named(columns)),
        unread=[words for run in runs for words in unread(run)],
    )


def trial_rows(runs: Sequence[RunDir]) -> Iterator[dict[str, Any]]:
    """Rows with the names of tables."""
    for run in runs:
        for record in run.trials.records:
            found = record.model_dump()
            parts = {part: found.pop(part) for part in PARTS}
            found |= {name: parts[part].pop(now, None) for name, (part, now) in FLAT.items()}
            for part in parts.values():
                found |= part
            yield {RUN: run.path.resolve().name, **dict(_flat(found))}


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """`cell.load.multiplier`: an object has a column for each of its fields."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


# --- columns -------------------------------------------------------------------------------------


def _columns(runs: Sequence[RunDir]) -> dict[str, str]:
    """Name → type. Every field of a record has its columns, and each key that some record has in
    `cell`, `effective`, `lost_by_place`, `analysis_lost`."""
    schema = trial_schema()
    defs, top = schema["$defs"], dict(schema["properties"])
    kinds = {record.body.kind for run in runs for record in run.trials.records}
    parts = {part: _fields_of(top.pop(part), defs, kinds) for part in PARTS}
    flat = {name: parts[part].pop(now) for name, (part, now) in FLAT.items() if now in parts[part]}
    fields = {**top, **flat, **parts["offered"], **parts["body"]}
    of_data = [n for n, s in fields.items() if s.get("type") == "object" and "properties" not in s]
    found = {RUN: "VARCHAR"}
    for name, said in fields.items():
        if name not in of_data:
            found |= _typed(name, said, defs)
    for name in of_data:
        found |= _by_data(name, runs)
    if len(found) > MOST_COLUMNS:
        raise BadInput(
            f"{len(found):,} columns, more than {MOST_COLUMNS:,}: the trials differ in too many "
            "keys",
            hint="export fewer run directories at once",
        )
    return found


def _fields_of(
    said: Mapping[str, Any], defs: Mapping[str, Any], kinds: AbstractSet[str]
) -> dict[str, Any]:
    """Fields of a part; of a body those of the kinds that the runs have."""
    if "$ref" in said:
        return dict(defs[said["$ref"].rpartition("/")[2]]["properties"])
    refs = [ref for kind, ref in said["discriminator"]["mapping"].items() if kind in kinds]
    found: dict[str, Any] = {}
    for ref in refs or said["discriminator"]["mapping"].values():
        found |= defs[ref.rpartition("/")[2]]["properties"]
    return found


def _typed(name: str, said: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, str]:
    inner = _model(said, defs)
    if inner is None:
        return {name: _type(said, defs)}
    found: dict[str, str] = {}
    for field_name, field_said in inner.items():
        found |= _typed(f"{name}.{field_name}", field_said, defs)
    return found


def _model(said: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields of an object; None if it is none."""
    for one in said.get("anyOf", [said]):
        if "$ref" in one:
            properties: Mapping[str, Any] = defs[one["$ref"].rpartition("/")[2]]["properties"]
            return properties
    return None


def _type(said: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """Type of a field in duckdb."""
    if inner := _model(said, defs):
        fields = ", ".join(f'"{name}" {_type(one, defs)}' for name, one in inner.items())
        return f"STRUCT({fields})"
    for one in said.get("anyOf", [said]):
        if one.get("type") == "array":
            return f"{_type(one['items'], defs)}[]"
        if one.get("type") == "object":
            return f"MAP(VARCHAR, {_type(one['additionalProperties'], defs)})"
    kinds = {one.get("type") for one in said.get("anyOf", [said])} - {"null"}
    return TYPES.get(next(iter(kinds)) or "", "VARCHAR") if len(kinds) == 1 else "VARCHAR"


def _by_data(name: str, runs: Sequence[RunDir]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for run in runs:
        for record in run.trials.records:
            for key, value in _flat({name: record.figure(name)}):
                if value is not None:
                    found.setdefault(key, set()).add(_type_of(value))
    return {key: _common(kinds) for key, kinds in found.items()}


def _common(kinds: set[str]) -> str:
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return next(iter(kinds)) if len(kinds) == 1 else "VARCHAR"


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "BOOLEAN"
        case int() if -MOST_BIGINT <= value < MOST_BIGINT:
            return "BIGINT"
        case int() | float():
            return "DOUBLE"
        case list() if all(isinstance(one, str) for one in value):
            return "VARCHAR[]"
    return "VARCHAR"


def _named(columns: Mapping[str, str]) -> Iterator[str]:
    """Names that a stranger gave, made harmless; no two are the same but for their case."""
    seen: set[str] = set()
    for name in columns:
        shown = base = plain(name)
        again = 1
        while shown.casefold() in seen:
            again += 1
            shown = f"{base} ({again})"
        seen.add(shown.casefold())
        yield shown


def _in_csv(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return csv_text(value)
        case list() if all(isinstance(one, str) for one in value):
            return csv_text("; ".join(value))
        case list() | dict():
            return csv_text(json.dumps(value, ensure_ascii=False))
    return repr(value)


def _doubled(text: str, quote: str) -> str:
    return text.replace(quote, quote * 2)
