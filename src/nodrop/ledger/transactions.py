"""Books of a load that a SUT answers: each transaction that was started ends in one class.

started = completed + rejected + timed out + aborted + residual, and the residual is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from nodrop.config.units import count_of, noun
from nodrop.ledger.outcome import Problem, Reason, outcome_of
from nodrop.ledger.over_time import LEAST_S
from nodrop.ledger.quantities import PART, Count, NotNegative
from nodrop.ledger.sender import SenderLimits, Sending, problems_of_the_sender
from nodrop.ledger.verdict import Verdict, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Percentiles of a time, in microseconds."""

    __pydantic_config__: ClassVar = PART

    count: Count
    p50_us: NotNegative
    p90_us: NotNegative
    p99_us: NotNegative
    max_us: NotNegative

    @classmethod
    def of(cls, *, count: int, p50: float, p90: float, p99: float, max: float) -> Self | None:
        """Percentiles in microseconds, as a node says them; None of nothing."""
        if not count:
            return None
        return cls(count=count, p50_us=p50, p90_us=p90, p99_us=p99, max_us=max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Messages by name, as one end counted them."""

    sent: Mapping[str, int]
    received: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """A load's transactions, as its generator saw them."""

    name: str = "transaction"
    """Name of a transaction in the field: attach."""
    started: int
    """Transactions whose scheduled start came."""
    completed: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Transactions turned away by the SUT, by its cause."""
    timed_out: int = 0
    aborted: Mapping[str, int] = field(default_factory=dict)
    """Transactions that ended otherwise, by reason."""
    latency: Latency | None = None
    """Time from the *scheduled* start to the end of those that completed."""
    steps: Mapping[str, Latency] = field(default_factory=dict)
    """Parts of the latency, in their order."""
    peak_in_progress: int = 0
    peak_sessions: int | None = None
    """Most sessions that stood at once; None if a transaction leaves none."""
    first_completed_s: float | None = None
    """Time after the first scheduled start, within the width of a bin."""
    last_completed_s: float | None = None
    """Time after the first scheduled start; None if none completed."""
    resolved_s: float | None = None
    """Seconds from the first scheduled start until the class of each was known."""
    bin_s: float = 0.1
    completed_per_bin: Sequence[int] = ()
    """Completed transactions in each bin, from the first scheduled start on."""
    messages: Messages | None = None
    anomalies: Mapping[str, int] = field(default_factory=dict)
    """Messages of the SUT that it should not have sent, by kind."""
    setup_s: float | None = None
    """Time from the first try to the moment when every server of the SUT had taken up its
    association."""
    transport: str = ""
    retransmits: int | None = None
    """Chunks that the transport sent again; None if it does not say."""
    unreleased: int | None = None
    """Sessions that the SUT did not end in time; None if a transaction leaves none."""

    @property
    def failed(self) -> int:
        return self.timed_out + sum(self.rejected.values()) + sum(self.aborted.values())

    @property
    def residual(self) -> int:
        """Transactions in no class."""
        return self.started - self.completed - self.failed

    @property
    def failed_ratio(self) -> float | None:
        """Part that did not complete; None if the books do not close or nothing was started."""
        return None if self.residual or not self.started else self.failed / self.started

    @property
    def per_s(self) -> float | None:
        """Completed ones a second, until the last of them."""
        return self.completed / self.last_completed_s if self.last_completed_s else None


KEPT, GRACE_S = 0.005, 0.01
"""Part of the load, and seconds, by which the last may complete later than it was started."""


def sustained(seen: Transactions, offered_s: float) -> bool | None:
    """Whether they completed at the pace at which they were started; None if that is not shown."""
    if seen.last_completed_s is None or offered_s < LEAST_S:
        return None
    return seen.last_completed_s <= offered_s * (1 + KEPT) + GRACE_S


def together(each: Iterable[Messages]) -> Messages:
    """Messages of several servers."""
    sent, received = Counter[str](), Counter[str]()
    for one in each:
        sent.update(one.sent)
        received.update(one.received)
    return Messages(sent=sent, received=received)


def unmatched(load: Messages, sut: Messages) -> Mapping[str, int]:
    """Message → how many more one end sent than the other received; only those that differ. A
    message that the load never counted belongs to the setting up before it."""
    found: dict[str, int] = {}
    for name, count in load.sent.items():
        found[name] = count - sut.received.get(name, 0)
    for name, count in load.received.items():
        found[name] = found.get(name, 0) + sut.sent.get(name, 0) - count
    return {name: count for name, count in found.items() if count}


def judge_transactions(
    seen: Transactions | None,
    sending: Sending | None,
    *,
    bounds: SenderLimits,
    problems: Sequence[Problem] = (),
    of_sut: Messages | None = None,
) -> Verdict:
    """`of_sut`: messages as the SUT counted them; None if it does not."""
    found = [*problems, *problems_of_the_sender(None, sending, bounds)]
    if seen is not None:
        found += _of_the_books(seen, of_sut)
    elif not problems:
        words = "the trial ended before its books could be balanced"
        found.append(Problem(code=Reason.NO_BOOKS, words=words))
    outcome = outcome_of(problem.code for problem in found)
    said = "; ".join(problem.words for problem in found)
    return Verdict(
        outcome=outcome,
        invalid_reasons=tuple(found),
        loss_ratio=None if seen is None else seen.failed_ratio,
        words=f"{outcome}: {said}" if found else words_of(seen),
    )


def _of_the_books(seen: Transactions, of_sut: Messages | None) -> list[Problem]:
    if seen.residual:
        words = f"{seen.residual:+,d} {noun(seen.residual, seen.name)} in no class"
        return [Problem(code=Reason.RESIDUAL, words=words)]
    if seen.failed or any(seen.anomalies.values()):
        return []  # a message of a transaction that has ended may never be read
    if seen.messages is None or of_sut is None:
        return []
    lacking = unmatched(seen.messages, of_sut)
    if not lacking:
        return []
    listed = ", ".join(f"{name} {count:+,d}" for name, count in sorted(lacking.items()))
    words = f"all completed, and yet messages are missing or too many: sent less received {listed}"
    return [Problem(code=Reason.RESIDUAL, words=words)]


def words_of(seen: Transactions | None) -> str:
    """Sentence on the classes of a load, or on its latency if all completed."""
    if seen is None or seen.failed_ratio is None:
        return "not known"
    took = "" if seen.latency is None else f"; p99 {time_words(seen.latency.p99_us)}"
    if not seen.failed:
        return f"all {count_of(seen.started, seen.name)} completed{took}"
    started = count_of(seen.started, seen.name)
    return f"{seen.failed:,} of {started} failed ({percent(seen.failed_ratio)}): {why(seen)}"


def why(seen: Transactions) -> str:
    """Classes of those that failed, the largest first."""
    classes = {"timed out": seen.timed_out}
    classes |= {f"rejected (cause {cause})": count for cause, count in seen.rejected.items()}
    classes |= {f"aborted ({reason})": count for reason, count in seen.aborted.items()}
    largest = sorted(classes.items(), key=lambda one: -one[1])
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in largest if count)


def time_words(us: float) -> str:
    """Three digits: `140 µs`, `4.71 ms`, `4.2 s`."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.0f} µs"
