"""Whole runs as a Parquet or CSV file, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput
from nodrop.results.export import MOST_COLUMNS, write_csv, write_parquet
from nodrop.results.rundir import open_run
from nodrop.results.trial import TrialRecord
from tests.made.outcome_runs import Load, outcome_run, trial
from tests.unit.report.test_export import rows_of


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
