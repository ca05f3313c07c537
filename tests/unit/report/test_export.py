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
from nodrop.results.export import Written, write_csv, write_parquet
from tests.made.outcome_runs import Load, outcome_run


def rows_of(file: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as base:
        found = base.execute("SELECT * FROM read_parquet(?)", [str(file)])
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


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
    with pytest.raises(NotReady, match=r"needs duckdb, .*pip install duckdb"):
        write_parquet([demo], tmp_path / "a.parquet")
