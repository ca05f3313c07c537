"""Trials as a Parquet or CSV file, read back by another program."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from nodrop.errors import BadInput, NotReady
from nodrop.results.export import MOST_COLUMNS, Written, write_csv, write_parquet
from nodrop.results.rundir import open_run
from nodrop.results.trial import TrialRecord
from tests.made.outcome_runs import Load, outcome_run, trial


def rows_of(file: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as base:
        found = base.execute("SELECT * FROM read_parquet(?)", [str(file)])
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.parametrize("runs", [("demo",), ("mixed",), ("demo", "mixed"), ("isolation",)])
def test_every_field_of_every_trial_comes_back(
    runs: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    paths = [request.getfixturevalue(name) for name in runs]
    file = tmp_path / "it's all.parquet"
    records = [record for path in paths for record in open_run(path).trials.records]
    written = write_parquet(paths, file)
    rows = rows_of(file)
    assert (written.rows, written.unread) == (len(records), [])
    assert set(written.columns) == set(rows[0])
    assert {row.pop("run_directory") for row in rows} == {path.name for path in paths}
    assert [back(row) for row in rows] == records
    assert [p.name for p in tmp_path.iterdir()] == [file.name], "nothing else is left"


def back(row: dict[str, Any]) -> TrialRecord:
    """Record of a row; an object whose columns with dots are all null was null itself."""
    open_ended = ("cell", "effective", "lost_by_place")
    found: dict[str, Any] = {name: {} for name in open_ended}
    for name, value in row.items():
        field, _, inner = name.partition(".")
        if not inner:
            found[field] = value
        elif field in open_ended:
            found[field] |= {} if value is None else {inner: value}
        elif value is not None:
            found.setdefault(field, {})[inner] = value
    return trial(**{name: value for name, value in found.items() if name != "format"})


CELLS: list[dict[str, Any]] = [{"load.multiplier": 2}, {"load.multiplier": 0.5}]


@pytest.mark.parametrize(
    ("cells", "column", "values"),
    [
        (CELLS, "cell.load.multiplier", {2.0, 0.5}),
        ([{"load.multiplier": 4}, {"load.multiplier": 12}], "cell.load.multiplier", {4, 12}),
        ([{"sut.kind": "sink"}, {"sut.threads": 2}], "cell.sut.threads", {None, 2}),
        ([{"a": 1}, {"a": "x"}], "cell.a", {"1", "x"}),
        ([{"a": {"b": True}}, {"a": {"b": False}}], "cell.a.b", {True, False}),
        ([{"Rules": 1}, {"rules": 2}], "cell.rules (2)", {None, 2}),
    ],
)
@pytest.mark.parametrize("write", [write_parquet, write_csv])
def test_what_is_nested_has_columns_of_its_own(
    cells: list[dict[str, Any]],
    column: str,
    values: set[Any],
    write: Callable[[Sequence[Path], Path], Written],
    tmp_path: Path,
) -> None:
    loads = [Load(cell=cell, trials=[0.0, 0.25]) for cell in cells]
    run, file = outcome_run(tmp_path / "run", loads), tmp_path / "file"
    written = write([run], file)
    assert written.rows == 4 and {column, "schedule_error_us.p99"} <= set(written.columns)
    if write is write_parquet:
        rows = rows_of(file)
        lost: set[Any] = {None, 5000}
    else:
        with file.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
        values = {{None: "", True: "true", False: "false"}.get(v, str(v)) for v in values}
        if {"2.0", "0.5"} <= values:
            values = {"2", "0.5"}
        lost = {"", "5000"}
    assert {row[column] for row in rows} == values
    assert {row["lost_by_place.socket ring"] for row in rows} == lost
    assert not any("{" in str(value) for row in rows for value in row.values())
    assert list(rows[0]) == list(written.columns)


def test_what_a_stranger_calls_a_key_harms_no_table(tmp_path: Path) -> None:
    cell = {'x" FROM y; --': 1, "\x1b[2J": "=1+1"}
    run = outcome_run(tmp_path / "run", [Load(cell=cell, trials=[0.0])])
    write_csv([run], tmp_path / "a.csv")
    write_parquet([run], tmp_path / "a.parquet")
    text = (tmp_path / "a.csv").read_text()
    assert "\x1b" not in text and "'=1+1" in text
    assert rows_of(tmp_path / "a.parquet")[0]['cell.x" FROM y; --'] == 1
    many = {f"k{n}": n for n in range(MOST_COLUMNS)}
    large = outcome_run(tmp_path / "large", [Load(cell=many, trials=[0.0])])
    with pytest.raises(BadInput, match=r"columns, more than 2,000"):
        write_csv([large], tmp_path / "b.csv")
    assert not (tmp_path / "b.csv").exists()


def test_a_file_that_is_there_stays(demo: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        write_parquet([demo], file)
    with pytest.raises(BadInput, match="its folder is not there"):
        write_parquet([demo], tmp_path / "none" / "a.parquet")
    with pytest.raises(BadInput, match="is not UTF-8"):  # seen: a defect of nodrop
        write_parquet([demo], tmp_path / os.fsdecode(b"t\xff.parquet"))
    assert file.read_text() == "mine"


def test_a_run_is_in_it_once(demo: Path, mixed: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    with pytest.raises(BadInput, match="are one run: give it once"):
        write_parquet([demo, mixed, demo], file)
    assert not file.exists()


def test_without_duckdb_one_line_says_what_to_install(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(NotReady, match=r"needs duckdb, .*pip install 'nodrop\[parquet\]'"):
        write_parquet([demo], tmp_path / "a.parquet")
