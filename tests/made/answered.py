"""A run of attaches that never was measured: made through the results API, the same every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nodrop.ledger.sender import SenderLimits, Sending
from nodrop.ledger.transactions import Latency, Messages, Transactions, judge_transactions
from nodrop.results.transaction_books import TransactionBooks
from nodrop.results.trial import Offered, TrialRecord
from nodrop.results.writer import RunWriter
from tests.made.judged import judged


def attaches(
    count: int, *, rejected: int = 0, timed_out: int = 0, per_s: float = 400
) -> Transactions:
    completed = count - rejected - timed_out
    took = Latency(count=completed, p50_us=1500, p90_us=1800, p99_us=4700, max_us=9000)
    return Transactions(
        name="attach",
        started=count,
        completed=completed,
        rejected={"22": rejected} if rejected else {},
        timed_out=timed_out,
        latency=took,
        steps={"authentication": took, "detach": took},
        peak_in_progress=3,
        peak_sessions=completed,
        first_completed_s=0.002,
        last_completed_s=count / per_s,
        resolved_s=count / per_s,
        messages=Messages(sent={"initial_ue_message": count}, received={}),
        setup_s=0.001,
        transport="tcp-framed (not SCTP)",
    )


def make_answered(out: Path, cells: Mapping[int, Sequence[Transactions | None]]) -> Path:
    """`cells`: load.count → the trials of that cell; None = it ended before its load began."""
    experiment = 'name = "mme"\nquestion = "How many?"\n'
    manifest: dict[str, Any] = {"controller": "blocks", "question": "How many?"}
    writer = RunWriter.create(
        out, "mme", experiment=experiment, lab="", plan_sha256="0", manifest=manifest
    )
    with writer:
        index = 0
        for count, trials in cells.items():
            for repetition, seen in enumerate(trials, 1):
                index += 1
                record = _record(seen, count, repetition, index)
                folder = writer.trial(record.run)
                if seen is not None:
                    folder.write("transactions", asdict(seen))
                writer.finish(record, {"readiness": {"phases_s": {"listen": 0.013}}})
    return writer.path


def _record(seen: Transactions | None, count: int, repetition: int, index: int) -> TrialRecord:
    sending, offered = None, Offered(unit="transactions")
    body = TransactionBooks(sut_cpu_per_completed_s=0.0011, unmatched={})
    if seen is not None:
        body = TransactionBooks.of(seen, sut_cpu_per_completed_s=0.0011, unmatched={})
        sending = Sending(
            unit="attach", intended_packets=count, sent_packets=seen.started,
            schedule_error_p99_us=90,
        )  # fmt: skip
        offered = Offered(
            unit="transactions", intended=count, sent=seen.started, unsent=0,
            duration_s=count / 400, intended_duration_s=count / 400, per_s=400.0,
        )  # fmt: skip
    verdict = judge_transactions(seen, sending, bounds=SenderLimits())
    return judged(
        verdict,
        cell={"load.count": count},
        repetition=repetition,
        index=index,
        run=f"{index:04d}-count-{count}-r{repetition:02d}",
        started_utc="2026-11-28T12:00:00+00:00",
        took_s=12.0,
        offered=offered,
        activation_s=0.013,
        sut_cpu_s=None if seen is None else seen.started * 0.0011,
        body=body,
    )  # fmt: skip
