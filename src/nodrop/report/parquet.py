"""Trials of run directories as one Parquet file: for who computes on from many or long runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput, NotReady
from nodrop.report.sides import unread
from nodrop.results.rundir import RunDir, must_be_each_once, open_run
from nodrop.results.trial import TrialRecord, trial_schema
from nodrop.results.versions import FLAT
from nodrop.untrusted.words import is_utf8

TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR"}
PARTS = {"offered": "Offered", "body": "PacketBooks"}
"""Of a record; their fields are columns of their own."""
NESTED = "VARCHAR"
"""As JSON: `cell`, `lost_by_place` … have other keys in every experiment."""


def write_parquet(run_dirs: Sequence[Path], out: Path) -> list[str]:
    """One row per trial, in the order in which they were measured. Columns are `run_directory` and
    the fields of a trial record; null = not measured. Returns what could not be read."""
    try:
        import duckdb
    except ImportError:
        raise NotReady(
            "export --parquet needs duckdb, which is not installed",
            hint="pip install 'nodrop[parquet]'",
        ) from None
    if out.exists():
        raise BadInput(f"{out}: is there already", hint="give a new path")
    if not out.resolve().parent.is_dir():
        raise BadInput(f"{out}: its folder is not there", hint="make it, or give another path")
    if not is_utf8(out.resolve()):
        raise BadInput(f"{out}: is not UTF-8, and duckdb takes no other", hint="give another path")
    columns = _columns()
    runs = [open_run(path) for path in run_dirs]
    must_be_each_once(runs)
    with tempfile.TemporaryDirectory(dir=out.resolve().parent, prefix=".nodrop-") as work:
        lines, partial = Path(work) / "trials.jsonl", Path(work) / "trials.parquet"
        with lines.open("w", encoding="utf-8") as file:
            for row in _rows(runs, columns):
                file.write(json.dumps(row, ensure_ascii=True) + "\n")
        query = "read_json(?, format = 'newline_delimited', columns = ?)"
        with duckdb.connect() as base:
            base.execute(
                f"COPY (SELECT * FROM {query}) TO '{_quoted(partial)}' (FORMAT parquet)",
                [str(lines), columns],
            )
        partial.rename(out)
    return [words for run in runs for words in unread(run)]


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _columns() -> dict[str, str]:
    schema = trial_schema()
    parts = {name: schema["$defs"][model]["properties"] for name, model in PARTS.items()}
    found = {"run_directory": "VARCHAR"}
    for name, field in schema["properties"].items():
        if name not in parts:
            found[name] = _type(field)
    return found | {name: _type(parts[part][now]) for name, (part, now) in FLAT.items()}


def _type(field: Mapping[str, Any]) -> str:
    kinds = {f.get("type") for f in field.get("anyOf", [field])} - {"null"}
    return TYPES.get(next(iter(kinds)) or "", NESTED) if len(kinds) == 1 else NESTED


def _rows(runs: Sequence[RunDir], columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for run in runs:
        for record in run.trials.records:
            found = {"run_directory": run.path.resolve().name, **_figures(record)}
            yield {name: _plain(found.get(name)) for name in columns}


def _figures(record: TrialRecord) -> dict[str, Any]:
    found = record.model_dump()
    return found | {name: found[part][now] for name, (part, now) in FLAT.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return value
