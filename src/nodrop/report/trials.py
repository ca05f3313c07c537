"""A trial as a report takes it: its record, held against its own books."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodrop.ledger.balance import Ledger, ledger_from_json
from nodrop.ledger.hops import Class
from nodrop.report import escape
from nodrop.results.rundir import Damage, RunDir
from nodrop.results.trial import TrialRecord, mark_of

Json = dict[str, Any]

BOOKS_DIFFER = "books_differ"
BOOKS_MISSING = "books_missing"
"""Reasons that only a report finds."""
DETAILS = (
    "clock_offsets_ns",
    "facts",
    "foreign_cpu_ratio",
    "imbalance_ratio",
    "inside",
    "instances",
    "readiness",
    "usage",
)
"""What a report reads of a trial's details; the rest is most of it, and stays on disk."""
COUNTED: Mapping[str, Callable[[Ledger], int | bool | None]] = {
    "offered_packets": lambda books: books.packets_at("sent"),
    "decoded_packets": lambda books: books.packets_at("decoded"),
    "lost_packets": lambda books: books.total(Class.LOST),
    "merged_packets": lambda books: books.total(Class.MERGED) + books.total(Class.HELD),
    "foreign_packets": lambda books: books.total(Class.FOREIGN),
    "copied_packets": lambda books: books.total(Class.COPIED),
    "residual_packets": lambda books: books.residual_packets,
    "books_closed": lambda books: books.closed,
}
"""Figures of a record that its books hold as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial record beside the files of its run folder."""

    source: int
    """Which of the run directories."""
    record: TrialRecord
    ledger: Ledger | None
    ledger_problem: str
    """Why there are no books to show; empty if there are."""
    details: Json
    """`DETAILS` of trial.json; empty if it cannot be read."""

    @property
    def anchor(self) -> str:
        return f"t{self.source}-{self.record.run}"

    @property
    def start(self) -> tuple[int, int | str]:
        """Of the SUT, among all run directories."""
        return self.source, self.record.start

    @property
    def mark(self) -> str:
        """`good`, `loss`, `failed` or `void`; it colours, and stands in words beside."""
        return mark_of(self.record)


def read_trial(source: int, run: RunDir, record: TrialRecord) -> Trial:
    ledger, problem = _ledger(run, record)
    if ledger is not None:
        record = _by_its_books(record, ledger)
    elif not run.manifest.get("imported_from"):
        record = _without_books(record, problem)
    if run.manifest.get("imported_from") and record.outcome == "failed":
        # Older imports: traffic that came before the SUT was ready is the harness's failure.
        record = record.model_copy(update={"outcome": "void"})
    found = run.detail(record.run, "trial")
    details = found.get("details", {}) if isinstance(found, dict) else {}
    return Trial(
        source=source,
        record=record,
        ledger=ledger,
        ledger_problem=problem,
        details={n: details[n] for n in DETAILS if n in details}
        if isinstance(details, dict)
        else {},
    )


def _by_its_books(record: TrialRecord, books: Ledger) -> TrialRecord:
    """A record that says otherwise than its own books vouches for nothing."""
    recorded = {name: record.figure(name) for name in COUNTED}
    differ = [n for n, v in recorded.items() if v is not None and v != COUNTED[n](books)]
    ratio, by_books = record.packets.loss_ratio, books.loss_ratio
    if ratio is not None and by_books is not None and abs(ratio - by_books) > 1e-9:
        differ.append("loss_ratio")
    if not differ:
        return record
    return _void(
        record, BOOKS_DIFFER, f"{', '.join(differ)}: the record says otherwise than its books"
    )


def _without_books(record: TrialRecord, problem: str) -> TrialRecord:
    """What was measured, and nothing is there to show it: the record alone proves no figure."""
    if record.outcome != "measured":
        return record
    return _void(record, BOOKS_MISSING, f"its books are not there: {problem}")


def _void(record: TrialRecord, reason: str, words: str) -> TrialRecord:
    found = {"outcome": "void", "valid": False, "verdict": f"void: {words}"}
    return record.model_copy(update={**found, "invalid_reasons": [reason]})


def _ledger(run: RunDir, record: TrialRecord) -> tuple[Ledger | None, str]:
    found = run.detail(record.run, "ledger")
    if found is None:
        if run.manifest.get("imported_from"):
            return None, "an imported run says only what was sent, dropped and decoded"
        missing = "the trial ended before its books could be balanced"
        return None, missing if record.error else "ledger.json is missing"
    if isinstance(found, Damage):
        return None, escape.plain(f"{found.where} cannot be read: {found.words}")
    try:
        return ledger_from_json(found), ""
    except (KeyError, TypeError, ValueError) as failed:
        return None, escape.plain(f"ledger.json makes no sense: {failed}")
