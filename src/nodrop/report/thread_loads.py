"""How the load falls on the threads: a panel for each thread model, a bar for each thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodrop.findings.observations import known_median
from nodrop.ledger.threads import Role
from nodrop.report import numbers
from nodrop.report.chart import Chart
from nodrop.report.charts import MOST_BARS, Bar, Part, stacked_bars
from nodrop.report.tables import Column, Row, Table, Value, numeric, text
from nodrop.results.trial import SutThread, TrialRecord

TITLE = "How the load falls on the threads"
DREW = (Role.RECEIVE, Role.WORKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadLoad:
    """One thread of one model: medians over its trials. None = not measured."""

    model: str
    name: str
    role: str
    cpu_ratio: float | None
    wait_ratio: float | None
    share: float | None
    """Of what the threads of its kind had."""
    of: str
    """What is shared: packets captured, or flows begun."""


def thread_loads(models: Mapping[str, Sequence[TrialRecord]]) -> list[ThreadLoad]:
    """Of models by name, each with its trials."""
    return [load for name, trials in models.items() for load in _loads(name, trials)]


def _loads(model: str, trials: Sequence[TrialRecord]) -> Iterator[ThreadLoad]:
    found: dict[str, list[tuple[TrialRecord, SutThread]]] = {}
    for record in trials:
        for thread in record.threads:
            if thread.role in DREW:
                found.setdefault(thread.name, []).append((record, thread))
    for name, seen in found.items():
        role = str(seen[0][1].role)
        captures = any(thread.captured_packets is not None for _, thread in seen)
        field = "captured_packets" if captures else "flows"
        yield ThreadLoad(
            model=model,
            name=name,
            role=role,
            cpu_ratio=known_median(thread.cpu_ratio for _, thread in seen),
            wait_ratio=known_median(thread.wait_ratio for _, thread in seen),
            share=known_median(_share(record, thread, field) for record, thread in seen),
            of="packets captured" if captures else "flows begun",
        )


def _share(record: TrialRecord, thread: SutThread, field: str) -> float | None:
    own = getattr(thread, field)
    alike = [getattr(t, field) for t in record.threads if t.role == thread.role]
    total = sum(n for n in alike if n is not None)
    return own / total if own is not None and total else None


def thread_loads_picture(found: Sequence[ThreadLoad]) -> Chart:
    """Empty if no thread was watched."""
    return stacked_bars(
        TITLE, "% of one CPU while the load was offered", [_bar(one) for one in found], high=100
    )


def beyond_picture(found: Sequence[ThreadLoad]) -> str:
    """In words, if not all threads are drawn; else empty."""
    more = len(found) - MOST_BARS
    return f"{more} more threads stand in the table alone" if more > 0 else ""


def _bar(one: ThreadLoad) -> Bar:
    parts = (("ran", one.cpu_ratio, "p-ran"), ("waited for a CPU", one.wait_ratio, "p-waited"))
    words = "not known" if one.share is None else f"{numbers.percent(one.share)} % of {one.of}"
    return Bar(
        name=f"{one.role} {one.name}",
        parts=tuple(
            Part(
                kind=kind,
                value=ratio * 100,
                says=f"{one.model}: {one.role} {one.name} {kind} "
                f"{numbers.percent(ratio)} % of the time",
                style=style,
            )
            for kind, ratio, style in parts
            if ratio is not None
        ),
        words=words,
        group=one.model,
    )


def thread_loads_table(found: Sequence[ThreadLoad]) -> Table:
    percents: Sequence[tuple[str, str, str, Callable[[ThreadLoad], float | None]]] = (
        ("cpu_pct", "Ran, %", "of one CPU", lambda one: one.cpu_ratio),
        (
            "wait_pct",
            "Waited, %",
            "it was ready, and its CPU had other work",
            lambda o: o.wait_ratio,
        ),
        ("share_pct", "Share, %", "of what the threads of its role had", lambda one: one.share),
    )
    return Table(
        name="thread-loads",
        title=TITLE,
        columns=(
            Column(name="cell", title="Cell"),
            Column(name="thread", title="Thread"),
            Column(name="role", title="Role"),
            *(numeric(n, t, h) for n, t, h, _ in percents),
            Column(name="of", title="Share of"),
        ),
        rows=tuple(
            Row(
                values=(
                    text(one.model),
                    text(one.name),
                    text(one.role),
                    *(_percent(figure(one)) for *_, figure in percents),
                    text(one.of),
                )
            )
            for one in found
        ),
    )


def _percent(ratio: float | None) -> Value:
    raw = None if ratio is None else ratio * 100
    return Value(raw=raw, shown=numbers.percent(ratio))
