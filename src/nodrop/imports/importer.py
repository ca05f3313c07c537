"""A folder of published data becomes a run directory that reports and comparisons work on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nodrop
from nodrop.errors import BadInput
from nodrop.findings.finding import Finding
from nodrop.findings.rules import find
from nodrop.imports.cells import CellResult, Wanted, Window, default_window, reduce_cell
from nodrop.imports.dataset import Cell, Dataset, discover
from nodrop.imports.samples import Skip
from nodrop.imports.series import Mode
from nodrop.imports.tables import TABLES, TableCell, table_cells
from nodrop.imports.trials import Naming, observations, planned_runs, records, spread_claims
from nodrop.results.writer import RunWriter, must_be_new

QUESTION = (
    "What do containers and virtual machines cost an intrusion detection system?"
    " Published samples of the 2016 studies, imported"
)
EXPERIMENT = """# Imported with `nodrop import cs590`: measured in 2016, not by nodrop.
# No experiment file asked for these runs; what varied is in each trial's `cell`.
"""
IMPORTED_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    path: Path
    cells: int
    runs: int
    findings: tuple[Finding, ...]
    skips: tuple[Skip, ...]


def import_dataset(folder: Path, out: Path, *, mode: Mode, window: Window | None) -> Imported:
    """Reads everything, then writes `out`. BadInput if nothing could be read."""
    must_be_new(out)
    dataset = discover(folder)
    results = read_cells(dataset, mode=mode, window=window)
    skips = [*dataset.skips, *(skip for result in results for skip in result.skips)]
    results = [result for result in results if result.runs]
    if not results:
        raise BadInput(
            f"{folder}: no sample could be read; {reasons_words(skips)}",
            hint="give the folder that holds `original/` or the workbooks",
        )
    made = _all_tables(results, window)
    findings = find(
        observations(results), planned=planned_runs(results), spreads=spread_claims(made)
    )
    manifest = {
        "question": QUESTION,
        "imported_from": "cs590-nfv",
        "import_mode": mode,
        "import_window_s": list(window) if window else None,
        "nodrop_version": nodrop.__version__,
    }
    runs = records(results)
    with RunWriter.create_at(out, "cs590-nfv", experiment=EXPERIMENT, manifest=manifest) as writer:
        writer.write_beside("imported", _imported_json(results, made, skips, mode))
        writer.write_beside("findings", {"findings": [finding.as_json() for finding in findings]})
        writer.finish_all(runs)
    return Imported(
        path=out,
        cells=len(results),
        runs=len(runs),
        findings=tuple(findings),
        skips=tuple(skips),
    )


def read_cells(dataset: Dataset, *, mode: Mode, window: Window | None) -> list[CellResult]:
    """Cell by cell on all CPUs; each process holds one workbook at a time."""
    read = partial(_read_cell, mode=mode, window=window)
    workers = min(os.cpu_count() or 1, len(dataset.cells))
    if workers < 2:
        return [read(cell) for cell in dataset.cells]
    # The largest first: no core must be left alone with it. In order again afterwards.
    by_size = sorted(range(len(dataset.cells)), key=lambda n: -_bytes(dataset.cells[n]))
    try:
        with ProcessPoolExecutor(max_workers=workers) as pool:
            cells = [dataset.cells[n] for n in by_size]
            found = dict(zip(by_size, pool.map(read, cells), strict=True))
    except BrokenProcessPool:  # one file has killed its reader; which one, is seen one by one
        return [_read_alone(read, cell) for cell in dataset.cells]
    return [found[n] for n in range(len(dataset.cells))]


def _read_alone(read: Callable[[Cell], CellResult], cell: Cell) -> CellResult:
    """In a process of its own, whose death costs this cell alone."""
    try:
        with ProcessPoolExecutor(max_workers=1) as pool:
            return pool.submit(read, cell).result()
    except BrokenProcessPool:
        lost = CellResult(cell=cell, window=default_window(cell))
        lost.skips.append(Skip(reason="its reader died", where=cell.part))
        return lost


def _read_cell(cell: Cell, *, mode: Mode, window: Window | None) -> CellResult:
    spans = {spec.window_of(cell) for spec in TABLES.values() if spec.holds(cell)} - {None}
    windows = [span for span in spans if span is not None]
    return reduce_cell(cell, Wanted(mode=mode, window=window, windows=windows))


def _bytes(cell: Cell) -> int:
    return sum(path.stat().st_size for paths in cell.workbooks.values() for path in paths)


def _all_tables(
    results: Sequence[CellResult], window: Window | None
) -> list[tuple[TableCell, CellResult]]:
    return [
        (cell, result)
        for spec in TABLES.values()
        for result in results
        if spec.holds(result.cell)
        for cell in table_cells(spec, result, window if spec.window else None)
    ]


def _imported_json(
    results: Sequence[CellResult],
    made: Sequence[tuple[TableCell, CellResult]],
    skips: Sequence[Skip],
    mode: Mode,
) -> dict[str, Any]:
    naming = Naming(results)
    tables = {
        name: {
            "title": spec.title,
            "over_time": spec.window is not None,
            "cells": [cell.as_json() for cell, _ in made if cell.table == name],
        }
        for name, spec in TABLES.items()
    }
    return {
        "format": IMPORTED_FORMAT,
        "source": "cs590-nfv",
        "mode": mode,
        "tables": {name: table for name, table in tables.items() if table["cells"]},
        "curves": [
            {
                "setup": result.condition.setup,
                "published_setup": result.condition.published_setup,
                "group": naming.group(result),
                "load": result.condition.workers,
                "column": series.column,
                "mode": series.mode,
                "at_s": list(series.at_s),
                "values": list(series.values),
                "samples": list(series.samples),
                "cut_points": series.cut_points,
            }
            for result in results
            for series in result.series
        ],
        "samples": [
            {"cell": naming.cell(result), "channels": _channel_counts(result)} for result in results
        ],
        "skipped": skipped_json(skips),
    }


def _channel_counts(result: CellResult) -> dict[str, int]:
    return dict(Counter(str(channel) for run in result.runs.values() for channel in run.rows))


def skipped_json(skips: Iterable[Skip]) -> list[dict[str, Any]]:
    """Each reason once, with how often it was met and where first."""
    found: dict[str, dict[str, Any]] = {}
    for skip in skips:
        first = f"{skip.where}: {skip.detail}" if skip.detail else skip.where
        entry = found.setdefault(skip.reason, {"reason": skip.reason, "count": 0, "first": first})
        entry["count"] += 1
    return sorted(found.values(), key=lambda entry: -entry["count"])


def reasons_words(skips: Iterable[Skip]) -> str:
    return ", ".join(f"{entry['count']} x {entry['reason']}" for entry in skipped_json(skips))
