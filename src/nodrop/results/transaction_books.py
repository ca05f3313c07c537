"""The body of a trial whose load is transactions: what became of each, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from nodrop.ledger.quantities import Count, NotNegative, Packets, Seconds, Signed
from nodrop.ledger.transactions import Latency
from nodrop.results.model import Model

if TYPE_CHECKING:
    from nodrop.ledger.transactions import Messages, Transactions


class TransactionBooks(Model):
    """started = completed + rejected + timed out + aborted + residual."""

    kind: Literal["transactions"] = "transactions"
    name: str = "transaction"
    """Name of a transaction in the field: attach."""
    transport: str = ""
    """The protocol below the messages; `tcp-framed (not SCTP)` is the reference MME's alone."""
    started: Count | None = None
    """Transactions whose scheduled start came."""
    completed: Count | None = None
    rejected: dict[str, Count] = Field(default_factory=dict)
    """Transactions turned away by the SUT, by its cause."""
    timed_out: Count | None = None
    aborted: dict[str, Count] = Field(default_factory=dict)
    """Transactions that ended otherwise, by reason."""
    residual: Signed | None = None
    """Transactions in no class."""
    failed_ratio: NotNegative | None = None
    """Share of the started transactions that were rejected, timed out or aborted; null if the books
    do not close."""
    sustained: bool | None = None
    """True: they completed at the pace at which they were started: the last one at most 0.5 % of
    the load and 10 ms after it. False: the SUT fell behind. Null: the load lasted less than a
    second, or nothing completed."""
    per_s: NotNegative | None = None
    """Completed transactions a second, until the last of them."""
    first_completed_s: Seconds | None = None
    """Time after the first scheduled start."""
    last_completed_s: Seconds | None = None
    """Time after the first scheduled start: the study's time taken."""
    resolved_s: Seconds | None = None
    """Seconds from the first scheduled start until the class of each was known."""
    latency: Latency | None = None
    """Time from the scheduled start to the end, of those that completed."""
    steps: dict[str, Latency] = Field(default_factory=dict)
    """Parts of `latency`, and of what follows it."""
    peak_in_progress: Count | None = None
    """Most transactions that were started and had not ended."""
    peak_sessions: Count | None = None
    """Most sessions that stood at once; null if a transaction leaves none."""
    sent: dict[str, Count] = Field(default_factory=dict)
    """Messages of the load, by name."""
    received: dict[str, Count] = Field(default_factory=dict)
    """Messages of the SUT that the load read, by name."""
    unmatched: dict[str, int] | None = None
    """Message → how many more one end sent than the other received; null if the SUT counts no
    messages."""
    anomalies: dict[str, Count] = Field(default_factory=dict)
    """Messages of the SUT that it should not have sent, by kind; kinds that did not come are left
    out."""
    setup_s: Seconds | None = None
    """Time from ready to the moment when every server of the SUT had taken up its association."""
    retransmits: Count | None = None
    """Chunks that the transport sent again; null if it does not say."""
    unreleased: Count | None = None
    """Sessions that the SUT did not end in time; null if a transaction leaves none."""
    generator_cpu_s: Seconds | None = None
    sut_cpu_per_completed_s: NotNegative | None = None
    memory_per_session_bytes: Packets | None = None
    """Growth of the SUT's resident memory by its peak, over the peak of sessions."""

    @property
    def failed(self) -> int | None:
        """Failed transactions; null if the books do not close."""
        if self.failed_ratio is None or self.started is None or self.completed is None:
            return None
        return self.started - self.completed

    @classmethod
    def of(
        cls,
        seen: Transactions,
        *,
        sustained: bool | None = None,
        unmatched: Mapping[str, int] | None = None,
        generator_cpu_s: float | None = None,
        sut_cpu_per_completed_s: float | None = None,
        memory_per_session_bytes: int | None = None,
    ) -> Self:
        """Books of what was seen of the load, and of the SUT beside it."""
        messages = seen.messages
        return cls(
            name=seen.name,
            transport=seen.transport,
            started=seen.started,
            completed=seen.completed,
            rejected=dict(seen.rejected),
            timed_out=seen.timed_out,
            aborted=dict(seen.aborted),
            residual=seen.residual,
            failed_ratio=seen.failed_ratio,
            per_s=seen.per_s,
            first_completed_s=seen.first_completed_s,
            last_completed_s=seen.last_completed_s,
            resolved_s=seen.resolved_s,
            latency=seen.latency,
            steps=dict(seen.steps),
            peak_in_progress=seen.peak_in_progress,
            peak_sessions=seen.peak_sessions,
            sent=_counts(messages, "sent"),
            received=_counts(messages, "received"),
            anomalies={name: count for name, count in seen.anomalies.items() if count},
            setup_s=seen.setup_s,
            retransmits=seen.retransmits,
            unreleased=seen.unreleased,
            sustained=sustained,
            unmatched=None if unmatched is None else dict(unmatched),
            generator_cpu_s=generator_cpu_s,
            sut_cpu_per_completed_s=sut_cpu_per_completed_s,
            memory_per_session_bytes=memory_per_session_bytes,
        )


def _counts(messages: Messages | None, way: Literal["sent", "received"]) -> dict[str, int]:
    return {} if messages is None else dict(getattr(messages, way))
