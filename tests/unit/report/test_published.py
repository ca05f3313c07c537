"""The imported part of a report, from files as the importer writes them and from damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.report.story import read_story
from nodrop.report.write import write_report
from tests.made.rundirs import Fake, make_run
from tests.pages import page_of

CURVE = {
    "setup": "bare",
    "published_setup": "BM",
    "group": "BM</svg><script>",
    "load": 1,
    "column": "%CPU",
    "mode": "sound",
    "at_s": [0.0, 4.0, 8.0],
    "values": [1.0, 20.0, 2.0],
    "samples": [3, 3, 3],
    "cut_points": 2,
}
CELL = {
    "table": "IV",
    "part": "x",
    "setup": "bare",
    "published_setup": "BM",
    "load": 2,
    "memory_bytes": None,
    "column": "%CPU",
    "mean": 40.74,
    "sigma": 9.87,
    "n": 74,
    "samples": 40,
    "window_s": [16, 308],
    "row": None,
    "rows": {},
    "published_mean": 44.0,
    "published_sigma": 9.87,
    "published_disagrees": "mean printed 44.00, files give 40.74",
    "sound": {
        "median": 41.02,
        "n": 40,
        "interval_low": 40.19,
        "interval_high": 41.26,
        "coverage": 0.96,
        "smallest_run": 36.7,
        "largest_run": 41.8,
    },
}
IMPORTED: dict[str, Any] = {
    "format": 1,
    "mode": "sound",
    "tables": {"IV": {"title": "CPU at 2X", "over_time": True, "cells": [CELL]}},
    "curves": [CURVE],
    "skipped": [{"reason": "foreign file", "count": 3, "first": "<img src=x>"}],
}
FINDING = {
    "code": "start-up-race",
    "severity": "serious",
    "title": "VM: <b>early</b>",
    "evidence": "97 %",
    "effect": "Nothing follows.",
}


def report_of(run: Path, out: Path, imported: object, findings: object = None) -> str:
    (run / "imported.json").write_text(
        imported if isinstance(imported, str) else json.dumps(imported)
    )
    (run / "findings.json").write_text(json.dumps(findings or {"findings": [FINDING]}))
    return write_report(read_story([run]), out).read_text()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, Fake(repetitions=1, samples=False))


def test_tables_curves_and_findings_stand_on_the_page(run: Path, tmp_path: Path) -> None:
    page = report_of(run, tmp_path / "report", IMPORTED)
    for words in ("Table IV: CPU at 2X; uptimes 16 to 308 s", "40.19 to 41.26", "start-up-race"):
        assert words in page
    assert "mean printed 44.00, files give 40.74" in page
    assert "Cut at the end of the first run (2 points)" in page
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "<b>early" not in page
    assert (tmp_path / "report" / "figures" / "published-cpu-1x.svg").is_file()
    csv = (tmp_path / "report" / "published-iv.csv").read_text()
    assert "40.74" in csv
    assert "VM: " in (tmp_path / "report" / "report.md").read_text()


def test_other_runs_have_no_such_section(demo: Path, tmp_path: Path) -> None:
    assert 'id="published"' not in page_of(demo, out=tmp_path)


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        "{}",
        {**IMPORTED, "tables": {"IV": {"title": "x", "over_time": True, "cells": [{}]}}},
        {**IMPORTED, "tables": [1]},
        {**IMPORTED, "curves": [{**CURVE, "values": [1.0]}]},
        {**IMPORTED, "curves": [{**CURVE, "values": [float("inf")] * 3, "load": float("nan")}]},
        {**IMPORTED, "curves": [{**CURVE, "values": ["x"] * 3}]},
        {**IMPORTED, "skipped": 3},
    ],
)
def test_a_damaged_import_is_named_and_the_rest_is_reported(
    run: Path, tmp_path: Path, broken: object
) -> None:
    page = report_of(run, tmp_path / "report", broken, {"findings": [3, FINDING]})
    assert 'id="published"' in page
    assert 'id="cells"' in page
