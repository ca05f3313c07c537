"""Transactions of a report in their own words: a card and a sentence a cell, and three tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from nodrop.config.units import count_of
from nodrop.ledger.transactions import time_words
from nodrop.ledger.verdict import percent
from nodrop.report import numbers
from nodrop.report.direct import VerdictCard, VerdictRow
from nodrop.report.sections import Section
from nodrop.report.story import RunCell, Story
from nodrop.report.tables import Field, Table, number, table_of, words
from nodrop.report.trials import StoredTrial
from nodrop.results.transaction_books import TransactionBooks
from nodrop.signalling.metrics import (
    COMPLETED_PER_S,
    CPU_PER_COMPLETED_US,
    LATENCY_P50_MS,
    LATENCY_P99_MS,
    MEMORY_PER_SESSION_KIB,
    TIME_TAKEN_S,
)

EMM_CAUSES = {
    "0": "Authentication Reject",
    "2": "IMSI unknown in HSS",
    "3": "illegal UE",
    "7": "EPS services not allowed",
    "11": "PLMN not allowed",
    "12": "tracking area not allowed",
    "15": "no suitable cells",
    "17": "network failure",
    "19": "ESM failure",
    "20": "MAC failure",
    "22": "congestion",
}
"""Causes of a reject by TS 24.301, 9.9.3.9; 0 is nodrop's own."""


def _answered(story: Story) -> list[RunCell]:
    return [cell for cell in story.cells if cell.trials[0].record.transactions is not None]


def _books(cell: RunCell) -> list[TransactionBooks]:
    """Books of its measured trials."""
    return [books for t in cell.valid if (books := t.record.transactions) is not None]


def _median(cell: RunCell, name: str) -> float | None:
    known = [value for books in _books(cell) if (value := getattr(books, name)) is not None]
    return median(known) if known else None


def _asked_per_s(cell: RunCell) -> float | None:
    known = [
        offered.intended / offered.intended_duration_s
        for trial in cell.trials
        if (offered := trial.record.offered).intended and offered.intended_duration_s
    ]
    return median(known) if known else None


def _least_s(cell: RunCell) -> float | None:
    """The load's own length: no SUT is done sooner."""
    known = [s for trial in cell.trials if (s := trial.record.offered.intended_duration_s)]
    return median(known) if known else None


def classes_words(cell: RunCell) -> str:
    """Failed transactions of all its measured trials, by class."""
    found = Counter[str]()
    for books in _books(cell):
        found["timed out"] += books.timed_out or 0
        for cause, count in books.rejected.items():
            named = EMM_CAUSES.get(cause)
            found[f"rejected: cause {cause}" + (f", {named}" if named else "")] += count
        for reason, count in books.aborted.items():
            found[f"aborted: {reason.replace('_', ' ')}"] += count
    return "; ".join(f"{count:,} {name}" for name, count in found.most_common() if count)


def sentence(cell: RunCell) -> str:
    """A cell's answer: how many completed, in what time, at what CPU."""
    books = _books(cell)
    if not books:
        outcomes = Counter(trial.outcome for trial in cell.trials)
        said = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items()))
        return f"{cell.label}: no trial was measured ({said})."
    started, failed = sum(b.started or 0 for b in books), sum(b.failed or 0 for b in books)
    name, trials = books[0].name, count_of(len(books), "trial")
    per_s = _asked_per_s(cell)
    at = "" if per_s is None else f" at {numbers.rate(per_s)} per second"
    begun = f"{cell.label}: " if cell.factors else ""
    if failed:
        said = f"{failed:,} of {count_of(started, name)}{at} failed ({percent(failed / started)})"
        said += f" in {trials}: {classes_words(cell)}"
    else:
        said = f"all {count_of(started, name)}{at} completed in {trials}"
    took, p99 = TIME_TAKEN_S.median(cell), LATENCY_P99_MS.median(cell)
    cpu_us = CPU_PER_COMPLETED_US.median(cell)
    said += "" if took is None else f"; the last after {took:.3g} s"
    said += "" if p99 is None else f"; p99 {time_words(p99 * 1e3)} from the scheduled start"
    said += "" if cpu_us is None else f"; SUT CPU {time_words(cpu_us)} each"
    return f"{begun}{said}." if begun else f"{said[0].upper()}{said[1:]}."


def _sentences(story: Story) -> Iterator[str]:
    cells = _answered(story)
    yield from map(sentence, cells)
    every = [books for cell in cells for books in _books(cell)]
    for transport in sorted({books.transport for books in every} - {""}):
        again = [b.retransmits for b in every if b.transport == transport]
        known = [count for count in again if count is not None]
        yield f"Transport: {transport}{f'; {sum(known):,} chunks sent again' if known else ''}."
    if unreleased := sum(books.unreleased or 0 for books in every):
        yield f"Sessions that the SUT did not end within 5 s of their detach: {unreleased:,}."
    odd = Counter[str]()
    for cell in cells:
        for books in _books(cell):
            odd.update(books.anomalies)
    if odd:
        listed = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in odd.most_common())
        yield f"Messages of the SUT that it should not have sent: {listed}."


CELL_FIELDS: tuple[Field[RunCell], ...] = (
    words("cell", "Cell", lambda c: c.label),
    number("trials", "n", lambda c: len(c.valid), help="measured trials"),
    number("asked_per_s", "Asked, /s", _asked_per_s, numbers.rate),
    number("started", "Started", lambda c: _median(c, "started")),
    number("completed", "Completed", lambda c: _median(c, "completed")),
    number("failed", "Failed", lambda c: _median(c, "failed"),
           help="rejected, timed out or aborted"),
    number("least_s", "Load, s", _least_s, numbers.seconds,
           help="number asked for over the rate: no SUT is done sooner"),
    number("time_taken_s", "Time taken, s", TIME_TAKEN_S.median, numbers.seconds,
           help=TIME_TAKEN_S.help),
    number("completed_per_s", "Completed, /s", COMPLETED_PER_S.median, numbers.rate,
           help=COMPLETED_PER_S.help),
    number("latency_p50_ms", "p50, ms", LATENCY_P50_MS.median, LATENCY_P50_MS.shown,
           help=LATENCY_P50_MS.help),
    number("latency_p99_ms", "p99, ms", LATENCY_P99_MS.median, LATENCY_P99_MS.shown,
           help=LATENCY_P99_MS.help),
    number("peak_in_progress", "In progress at most", lambda c: _median(c, "peak_in_progress"),
           help="started and not ended"),
    number("peak_sessions", "Sessions at most", lambda c: _median(c, "peak_sessions")),
    number("cpu_per_completed_us", "SUT CPU each, us", CPU_PER_COMPLETED_US.median,
           numbers.micros, help=CPU_PER_COMPLETED_US.help),
    number("memory_per_session_kib", "Memory a session, KiB", MEMORY_PER_SESSION_KIB.median,
           MEMORY_PER_SESSION_KIB.shown, help=MEMORY_PER_SESSION_KIB.help),
    words("classes", "Why failed", classes_words),
)  # fmt: skip


class _StepTimes:
    """A step of a cell: medians over its trials."""

    def __init__(self, cell: RunCell, name: str) -> None:
        self.cell, self.name = cell, name
        self._found = [b.steps[name] for b in _books(cell) if name in b.steps]

    def ms(self, percentile: str) -> float | None:
        known = [getattr(one, percentile) for one in self._found]
        return median(known) / 1e3 if known else None


def _steps(cell: RunCell) -> list[_StepTimes]:
    names = dict.fromkeys(name for books in _books(cell) for name in books.steps)
    return [_StepTimes(cell, name) for name in names]


STEP_FIELDS: tuple[Field[_StepTimes], ...] = (
    words("cell", "Cell", lambda s: s.cell.label),
    words("step", "Step", lambda s: s.name),
    number("p50_ms", "p50, ms", lambda s: s.ms("p50_us"), LATENCY_P50_MS.shown),
    number("p90_ms", "p90, ms", lambda s: s.ms("p90_us"), LATENCY_P50_MS.shown),
    number("p99_ms", "p99, ms", lambda s: s.ms("p99_us"), LATENCY_P50_MS.shown),
    number("max_ms", "Longest, ms", lambda s: s.ms("max_us"), LATENCY_P50_MS.shown),
)


def _phase(trial: StoredTrial, name: str) -> float | None:
    found = trial.aside.phases_s.get(name)
    return float(found) if isinstance(found, int | float) else None


def _of_trials(cell: RunCell, of: str) -> float | None:
    known = [value for trial in cell.valid if (value := _phase(trial, of)) is not None]
    return median(known) if known else None


ACTIVATION_FIELDS: tuple[Field[RunCell], ...] = (
    words("cell", "Cell", lambda c: c.label),
    number("boot_s", "Boot, s", lambda c: _of_trials(c, "boot"), numbers.seconds,
           help="until the place runs programs"),
    number("listen_s", "Listens, s", lambda c: _of_trials(c, "listen"), numbers.seconds,
           help="from the launch call"),
    number("setup_s", "Takes up, s", lambda c: _median(c, "setup_s"), numbers.seconds,
           help="from then until it has answered each association (S1 Setup)"),
    number("first_s", "First completed, s", lambda c: _median(c, "first_completed_s"),
           numbers.seconds, help="after the first scheduled start"),
)  # fmt: skip


def _tables(story: Story) -> Iterator[Table]:
    cells = _answered(story)
    measured = [cell for cell in cells if _books(cell)]
    if cells:
        yield table_of(
            "signalling", "Transactions: medians over measured trials", CELL_FIELDS, cells
        )
    if measured:
        steps = [step for cell in measured for step in _steps(cell)]
        yield table_of("signalling-steps", "Steps of a transaction", STEP_FIELDS, steps)
        title = "From the launch call to the first answer"
        yield table_of("signalling-activation", title, ACTIVATION_FIELDS, measured)


def _cards(story: Story) -> Iterable[VerdictCard]:
    cells = _answered(story)
    if not cells:
        return
    rows: list[VerdictRow] = []
    for cell in cells:
        mark = "unknown" if not _books(cell) else "different" if cell.lossy else "same"
        sign = {"unknown": "?", "different": "▼", "same": "●"}[mark]
        rows.append((mark, sign, cell.label, _row_words(cell), ""))
    good = sum(bool(_books(cell)) and not cell.lossy for cell in cells)
    yield VerdictCard(
        kicker="What is answered",
        headline=sentence(cells[0]) if len(cells) == 1 else _headline(good, len(cells)),
        tally="",
        rows=tuple(rows) if len(cells) > 1 else (),
        to_do="",
    )


def _headline(good: int, cells: int) -> str:
    if good == cells:
        return f"Every transaction of all {cells} cells completed."
    return f"In {good} of {cells} cells every transaction completed."


def _row_words(cell: RunCell) -> str:
    if not _books(cell):
        return "no trial was measured"
    failed, started = _median(cell, "failed") or 0, _median(cell, "started") or 0
    took, p99 = TIME_TAKEN_S.median(cell), LATENCY_P99_MS.median(cell)
    said = f"{failed:,.0f} of {started:,.0f} failed" if failed else f"all {started:,.0f}"
    said += "" if took is None else f" in {took:.3g} s"
    return said if p99 is None else f"{said}, p99 {time_words(p99 * 1e3)}"


SECTION = Section(
    id="signalling", title="Transactions", sentences=_sentences, lines=_sentences, tables=_tables,
    cards=_cards, place=5,
)  # fmt: skip
