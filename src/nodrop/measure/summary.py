"""The trials of each cell in one row: how many count, what was lost and where."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.ledger.sustained import duration
from nodrop.ledger.verdict import percent
from nodrop.results.trial import TrialRecord, accelerator_words
from nodrop.stats.interval import Summary, summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    cell: Mapping[str, Any]
    accelerator: str
    """In words; empty where the SUT ran in no virtual machine."""
    valid: int
    invalid: int
    loss: Summary | None
    """Of loss_ratio over the valid trials; None where none is valid."""
    place: str | None
    """Where packets died in most of the valid trials that lost any."""
    reason: str | None
    """The commonest reason for which a trial is invalid."""


def summarize_cells(records: Iterable[TrialRecord]) -> tuple[CellSummary, ...]:
    """One row per cell, in the order of the cells' values and not in that of the trials."""
    cells: dict[str, list[TrialRecord]] = {}
    for record in records:
        cells.setdefault(cell_key(record.cell), []).append(record)
    rows = [_summary(found) for found in cells.values()]
    return tuple(sorted(rows, key=lambda row: _order(row.cell)))


def cell_key(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def record_words(record: TrialRecord) -> str:
    """A trial in a line: what was lost and where, or why it does not count."""
    if not record.valid:
        return record.verdict
    if not record.loss_ratio:
        load = f"{record.offered_packets or 0:,} packets"
        if record.sustained_evidence and not record.sustained:
            took = duration(record.duration_s or 0.0)
            return f"absorbed a burst of {load} in {took} without loss{_on(record)}"
        return f"no loss in {load}{_on(record)}"
    lost = f"{record.lost_packets or 0:,} of {record.offered_packets or 0:,}"
    return f"{percent(record.loss_ratio)} lost ({lost}), {record.loss_place}{_on(record)}"


def _on(record: TrialRecord) -> str:
    name = accelerator_words([record])
    return f", on {name}" if name else ""


def _summary(records: Sequence[TrialRecord]) -> CellSummary:
    valid = [r for r in records if r.valid]
    return CellSummary(
        cell=records[0].cell,
        accelerator=accelerator_words(records),
        valid=len(valid),
        invalid=len(records) - len(valid),
        loss=summarize([r.loss_ratio for r in valid if r.loss_ratio is not None]),
        place=_commonest(r.loss_place for r in valid),
        reason=_commonest(reason for r in records for reason in r.invalid_reasons),
    )


def _commonest(words: Iterable[str | None]) -> str | None:
    counted = Counter(w for w in words if w)
    return counted.most_common(1)[0][0] if counted else None


def _order(cell: Mapping[str, Any]) -> list[tuple[int, float, str]]:
    """Numbers by size, before everything else by its text."""
    return [
        (0, float(v), "")
        if isinstance(v, int | float) and not isinstance(v, bool)
        else (1, 0.0, str(v))
        for v in cell.values()
    ]
