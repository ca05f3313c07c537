"""The body of a trial's record, from what load, SUT and sampler said."""

from __future__ import annotations

from dataclasses import replace

from nodrop.ledger.transactions import sustained, unmatched
from nodrop.measure.api import Measured
from nodrop.results.transaction_books import TransactionBooks


def transaction_books(seen: Measured) -> TransactionBooks:
    offered, answers, usage = seen.offered, seen.answers, seen.resources.usage
    found = None if offered is None else offered.transactions
    if offered is None or found is None or answers is None:
        return TransactionBooks()
    lacking = None
    if found.messages is not None and answers.messages is not None:
        lacking = unmatched(found.messages, answers.messages)
    cpu_s = None if usage is None else usage.sut_cpu_s
    return TransactionBooks.of(
        replace(found, steps={**found.steps, **answers.round_trips}),
        sustained=sustained(found, offered.duration_s),
        unmatched=lacking,
        generator_cpu_s=offered.cpu_s,
        sut_cpu_per_completed_s=cpu_s / found.completed if cpu_s and found.completed else None,
        memory_per_session_bytes=_memory_per_session(
            None if usage is None else usage.sut_rss_peak_bytes,
            answers.rss_before_bytes,
            found.peak_sessions,
        ),
    )


def _memory_per_session(
    peak_bytes: int | None, before_bytes: int | None, sessions: int | None
) -> int | None:
    if peak_bytes is None or before_bytes is None or not sessions:
        return None
    return max(0, peak_bytes - before_bytes) // sessions
