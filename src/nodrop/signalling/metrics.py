"""Figures of loads that a SUT answers: columns of a report's cells, and metrics of comparisons."""

from __future__ import annotations

from collections.abc import Callable

from nodrop.report.costs import Figure
from nodrop.report.trials import StoredTrial
from nodrop.results.transaction_books import TransactionBooks

Of = Callable[[TransactionBooks], float | None]


def _figure(name: str, title: str, unit: str, digits: int, of: Of, help: str) -> Figure:
    def told(trial: StoredTrial) -> float | None:
        books = trial.record.transactions
        return None if books is None else of(books)

    return Figure(
        name=name, title=title, unit=unit, scale=1.0, digits=digits, of=told, help=help,
        ways=("has", "have", f"a higher {title.lower()}", f"a lower {title.lower()}"),
    )  # fmt: skip


def _ms(percentile: str) -> Of:
    def of(books: TransactionBooks) -> float | None:
        return None if books.latency is None else getattr(books.latency, percentile) / 1e3

    return of


def _cpu_us(books: TransactionBooks) -> float | None:
    spent_s = books.sut_cpu_per_completed_s
    return None if spent_s is None else spent_s * 1e6


def _memory_kib(books: TransactionBooks) -> float | None:
    each = books.memory_per_session_bytes
    return None if each is None else each / 1024


COMPLETED_PER_S = _figure(
    "completed_per_s", "Completed", "/s", 1, lambda books: books.per_s,
    "completed transactions a second, until the last of them",
)  # fmt: skip
TIME_TAKEN_S = _figure(
    "time_taken_s", "Time taken", "s", 3, lambda books: books.last_completed_s,
    "from the first scheduled start until the last transaction completed",
)  # fmt: skip
LATENCY_P50_MS = _figure(
    "latency_p50_ms", "Latency p50", "ms", 2, _ms("p50_us"),
    "from the scheduled start to completion, half of those that completed",
)  # fmt: skip
LATENCY_P99_MS = _figure(
    "latency_p99_ms", "Latency p99", "ms", 2, _ms("p99_us"),
    "from the scheduled start to completion, 99 % of those that completed",
)  # fmt: skip
CPU_PER_COMPLETED_US = _figure(
    "cpu_per_completed_us", "SUT CPU each", "us", 1, _cpu_us,
    "CPU time of the SUT for each completed transaction",
)  # fmt: skip
MEMORY_PER_SESSION_KIB = _figure(
    "memory_per_session_kib", "Memory a session", "KiB", 1, _memory_kib,
    "growth of the SUT's resident memory over the most sessions that stood at once",
)  # fmt: skip
