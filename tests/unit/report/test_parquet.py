"""Trials as a Parquet file, read back by another program."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import duckdb
import pytest
from pydantic import BaseModel

from nodrop.errors import BadInput, NotReady
from nodrop.report.parquet import write_parquet
from nodrop.results.rundir import open_run
from nodrop.results.trial import TrialRecord
from nodrop.testing.records import trial


@pytest.mark.parametrize("runs", [("demo",), ("mixed",), ("demo", "mixed")])
def test_every_field_of_every_trial_comes_back(
    runs: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    paths = [request.getfixturevalue(name) for name in runs]
    file = tmp_path / "it's all.parquet"
    records = [record for path in paths for record in open_run(path).trials.records]
    assert write_parquet(paths, file) == []
    with duckdb.connect() as base:
        found = base.execute("SELECT * FROM read_parquet(?)", [str(file)])
        names = [column[0] for column in found.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    assert {row.pop("run_directory") for row in rows} == {path.name for path in paths}
    assert [back(row, like) for row, like in zip(rows, records, strict=True)] == records
    assert [p.name for p in tmp_path.iterdir()] == [file.name], "nothing else is left"


def back(row: dict[str, str], like: TrialRecord) -> TrialRecord:
    nested = {n for n in row if isinstance(like.figure(n), BaseModel | dict | list | tuple)}
    found = {n: json.loads(value) if n in nested else value for n, value in row.items()}
    return trial(**{n: value for n, value in found.items() if n != "format"})


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
