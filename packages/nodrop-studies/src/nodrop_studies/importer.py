"""A folder of published data becomes a run directory that reports and comparisons work on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import stdev
from typing import Any

import nodrop
from nodrop.answer.finding import Finding
from nodrop.errors import BadInput
from nodrop.findings.observations import suspicion_json
from nodrop.findings.rules import find
from nodrop.ledger.hops import SOCKET_RING
from nodrop.results.packet_books import PacketBooks
from nodrop.results.trial import Offered, TrialRecord
from nodrop.results.writer import RunWriter, must_be_new
from nodrop_studies.dataset import Dataset, DatasetCell, discover
from nodrop_studies.paper_tables import (
    SOUND_FIGURE,
    TABLES,
    CellResult,
    SampleRun,
    TableCell,
    Wanted,
    Window,
    default_window,
    reduce_cell,
    table_cells,
)
from nodrop_studies.samples import Skip
from nodrop_studies.suspicions import ImportedRun, SpreadClaim, suspicions
from nodrop_studies.workbooks import Mode

# Packet counters of two hosts, each polled every few seconds and moved by the odd ARP: books that
# are open by less say nothing; by more, packets are missing.
OPEN_BOOKS_RATIO = 0.001


# Limits of nearly all published runs; only others are part of a name.
USUAL_MEMORY_BYTES = 2 << 30
USUAL_CPUSET = "0-3"


class Naming:
    """How cells are called: only what varies within one import is part of a name."""

    def __init__(self, results: Sequence[CellResult]) -> None:
        kinds = {(r.cell.part, r.condition.trace, r.cell.sut) for r in results}
        self._parts = len(kinds) > 1
        self._memory = len({r.condition.memory_bytes for r in results} - {None}) > 1
        self._cpus = len({r.condition.cpuset for r in results} - {None}) > 1

    def factors(self, result: CellResult) -> dict[str, Any]:
        """The cell in the words of an experiment file."""
        condition = result.condition
        found: dict[str, Any] = {
            "setup.kind": condition.setup,
            "sut.kind": result.cell.sut,
            "load.trace": condition.trace,
            "load.multiplier": condition.workers,
        }
        if self._memory and condition.memory_bytes is not None:
            found["limits.memory"] = condition.memory_bytes
        if self._cpus and condition.cpuset is not None:
            found["limits.cpus"] = condition.cpuset
        if self._parts:
            found["part"] = result.cell.part
        return found

    def group(self, result: CellResult) -> str:
        """The cell but for its load: `VM 512m`."""
        condition = result.condition
        words = [condition.published_setup]
        if self._parts:
            words += [result.cell.sut, condition.trace, result.cell.part.removeprefix("original/")]
        if condition.memory_bytes not in (None, USUAL_MEMORY_BYTES):
            words.append(f"{(condition.memory_bytes or 0) >> 20}m")
        if condition.cpuset not in (None, USUAL_CPUSET):
            words.append(f"CPUs {condition.cpuset}")
        return " ".join(words)

    def cell(self, result: CellResult) -> str:
        """`VM 512m 2X`."""
        return f"{self.group(result)} {result.condition.workers}X"


def records(results: Sequence[CellResult]) -> list[tuple[TrialRecord, dict[str, Any]]]:
    """All runs in the order in which they were made, with the figures a record has no field for."""
    naming = Naming(results)
    ordered = sorted(
        (
            (run, result, repetition)
            for result in results
            for repetition, run in enumerate(
                sorted(result.runs.values(), key=lambda run: run.epoch_s), 1
            )
        ),
        key=lambda item: item[0].epoch_s,
    )
    return [
        (
            _record(run, naming.factors(result), index, repetition, result),
            {
                "epoch_s": run.epoch_s,
                "figures": run.figures,
                "rows": {str(channel): rows for channel, rows in run.rows.items()},
            },
        )
        for index, (run, result, repetition) in enumerate(ordered)
    ]


def _record(
    run: SampleRun, cell: dict[str, Any], index: int, repetition: int, result: CellResult
) -> TrialRecord:
    figures = run.figures
    sent, decoded = _count(figures, "sent_packets"), _count(figures, "decoded_packets")
    dropped = _count(figures, "dropped_packets")
    residual = None
    if sent is not None and decoded is not None and dropped is not None:
        residual = sent - decoded - dropped
    closed = residual == 0
    reasons = _invalid_reasons(run, sent, decoded, residual)
    seconds = _figure(figures, "sending_s")
    octets = _figure(figures, "sent_frame_bytes")
    host, cpus = _figure(figures, "host_cpu_pct"), _figure(figures, "host_cpus")
    condition = result.condition
    name = f"{index:04d}-{condition.setup}-{condition.workers}x-r{repetition:02d}"
    return TrialRecord(
        cell=cell,
        repetition=repetition,
        index=index,
        run=name,
        started_utc=datetime.fromtimestamp(run.epoch_s, UTC).isoformat(timespec="seconds"),
        outcome="void" if reasons else "measured",
        valid=not reasons,
        invalid_reasons=[code for code, _ in reasons],
        verdict=_words(reasons, residual, dropped, sent),
        offered=Offered(
            sent=sent,
            duration_s=seconds,
            per_s=_figure(figures, "offered_pps"),
            bps=octets * 8 / seconds if octets is not None and seconds else None,
        ),
        body=PacketBooks(
            captured_packets=_count(figures, "captured_packets"),
            decoded_packets=decoded,
            lost_packets=dropped,
            residual_packets=residual,
            books_closed=None if residual is None else closed,
            loss_ratio=dropped / sent if closed and sent and dropped is not None else None,
            loss_place=SOCKET_RING.name if closed and dropped else None,
            lost_by_place={SOCKET_RING.name: dropped} if closed and dropped else {},
            lost_before_sut_packets=0 if closed and dropped else None,
        ),
        sut_cpu_s=_sut_cpu_s(run),
        host_cpu_ratio=host / 100 / cpus if host is not None and cpus else None,
        sut_rss_peak_bytes=_count(figures, "qemu_rss_peak_bytes"),
    )


def _invalid_reasons(
    run: SampleRun, sent: int | None, decoded: int | None, residual: int | None
) -> list[tuple[str, str]]:
    """The codes are those of the ledger's verdict, and one for who sent before the SUT was ready:
    that is the harness's failure and not the SUT's."""
    figures = run.figures
    found: list[tuple[str, str]] = []
    first, final = figures.get("threads_at_first_packet"), figures.get("threads_final")
    if first is not None and final is not None and first < final:
        words = f"the IDS had {first:g} of {final:g} threads when traffic was already arriving"
        found.append(("traffic_before_ready", words))
    if sent is None or decoded is None:
        lacking = "what was sent" if sent is None else "what was decoded"
        found.append(("not_read", f"{lacking} is not recorded for this run"))
    if residual is not None and sent and abs(residual) > OPEN_BOOKS_RATIO * sent:
        found.append(("residual", f"{residual:+,d} packets are in no class"))
    return found


def _words(
    reasons: Sequence[tuple[str, str]], residual: int | None, dropped: int | None, sent: int | None
) -> str:
    if reasons:
        return "void: " + "; ".join(words for _, words in reasons)
    if residual:
        return f"no loss verdict: {residual:+d} packets between polled counters of two hosts"
    if dropped and sent:
        return f"{dropped / sent:.2%} lost in the {SOCKET_RING}"
    return "no packet lost"


def _sut_cpu_s(run: SampleRun) -> float | None:
    """CPU time of the hypervisor, if there is one: other setups' own CPU was not recorded."""
    pct, seconds = _figure(run.figures, "qemu_cpu_pct"), _figure(run.figures, "sending_s")
    return None if pct is None or seconds is None else pct / 100 * seconds


def _count(figures: Mapping[str, float], name: str) -> int | None:
    value = _figure(figures, name)
    return None if value is None else int(value)


def _figure(figures: Mapping[str, float], name: str) -> float | None:
    """None also if a broken file gives a count below zero."""
    value = figures.get(name)
    return None if value is None or value < 0 else value


def observations(results: Sequence[CellResult]) -> list[ImportedRun]:
    """All runs, as findings look at them."""
    naming = Naming(results)
    return [
        _observation(result, run, cell=naming.cell(result), group=naming.group(result))
        for result in results
        for run in result.runs.values()
    ]


def _observation(result: CellResult, run: SampleRun, *, cell: str, group: str) -> ImportedRun:
    figures = run.figures

    def cores(name: str) -> float | None:
        return figures[name] / 100 if name in figures else None

    sender, sender_cpus = figures.get("sender_cpu_pct"), figures.get("sender_cpus")
    return ImportedRun(
        run=str(run.epoch_s),
        cell=cell,
        group=group,
        load=float(result.condition.workers),
        started_s=float(run.epoch_s),
        virtual=result.condition.engine == "vm",
        sent_packets=figures.get("sent_packets"),
        captured_packets=figures.get("captured_packets"),
        dropped_packets=figures.get("dropped_packets"),
        decoded_packets=figures.get("decoded_packets"),
        alerts=figures.get("alerts"),
        offered_pps=figures.get("offered_pps"),
        sender_cpu_ratio=sender / 100 / sender_cpus if sender and sender_cpus else None,
        host_cores=cores("host_cpu_pct"),
        process_cores=cores("qemu_cpu_pct"),
        cpus=figures.get("host_cpus"),
        threads_at_first_packet=figures.get("threads_at_first_packet"),
        threads_final=figures.get("threads_final"),
        rows={str(channel): rows for channel, rows in run.rows.items()},
    )


def planned_runs(results: Sequence[CellResult]) -> dict[str, int]:
    """Planned runs of each cell, which the authors' own logs announce."""
    naming = Naming(results)
    return {
        naming.cell(result): max(result.cell.planned.values())
        for result in results
        if result.cell.planned
    }


def spread_claims(made: Sequence[tuple[TableCell, CellResult]]) -> list[SpreadClaim]:
    """The sigmas of tables, printed or as the authors made them, beside the spreads there are."""
    claims: list[SpreadClaim] = []
    for cell, result in made:
        name = SOUND_FIGURE[cell.column]
        values = [r.figures[name] for r in result.runs.values() if name in r.figures]
        if cell.sigma is None or len(values) < 2:
            continue
        claims.append(
            SpreadClaim(
                label=f"Table {cell.table} {cell.published_setup} {cell.load}X {cell.column}",
                printed=cell.sigma if cell.published_sigma is None else cell.published_sigma,
                over_time=cell.sigma,
                between_runs=stdev(values),
            )
        )
    return claims


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
    seen = observations(results)
    more = suspicions(seen, spread_claims(made))
    findings = find(seen, planned=planned_runs(results), more=more)
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
        writer.write_beside("findings", {"findings": [*map(suspicion_json, findings)]})
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


def _read_alone(read: Callable[[DatasetCell], CellResult], cell: DatasetCell) -> CellResult:
    """Reads a cell in a process of its own, whose death costs this cell alone."""
    try:
        with ProcessPoolExecutor(max_workers=1) as pool:
            return pool.submit(read, cell).result()
    except BrokenProcessPool:
        lost = CellResult(cell=cell, window=default_window(cell))
        lost.skips.append(Skip(reason="its reader died", where=cell.part))
        return lost


def _read_cell(cell: DatasetCell, *, mode: Mode, window: Window | None) -> CellResult:
    spans = {spec.window_of(cell) for spec in TABLES.values() if spec.holds(cell)} - {None}
    windows = [span for span in spans if span is not None]
    return reduce_cell(cell, Wanted(mode=mode, window=window, windows=windows))


def _bytes(cell: DatasetCell) -> int:
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
