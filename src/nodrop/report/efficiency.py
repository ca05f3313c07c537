"""CPU time that a packet costs, and, for a SUT that a CPU limits, what a busy core carries.

A SUT that sleeps while packets wait would carry no more if it had a whole core: of it only the CPU
time of a packet is said.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nodrop.ledger.thread_queue import SATURATED_SHARE
from nodrop.report import numbers
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends
from nodrop.results.trial import TrialRecord, count_once
from nodrop.stats.interval import Summary, summarize

LEAST_SHARE = 0.5
"""Share of the highest load that was carried: far below that load a SUT's own wakeups are most of
its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    packets: Summary
    """For each second of CPU time, one value for each start of the SUT."""
    bits: Summary | None
    """Bits of Ethernet frames for each second of CPU time."""
    packet_us: Summary
    """CPU time of a packet."""
    busiest_ratio: float | None
    """Largest share of one CPU that a thread of the SUT had in a measured trial, at any load; None
    = not measured."""
    runs: tuple[str, ...]
    """Trials that it rests on."""

    @property
    def core_is_full(self) -> bool:
        """A thread was near a full CPU: only then is what a busy core carries more than a sum."""
        return self.busiest_ratio is not None and self.busiest_ratio >= SATURATED_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    packets: float
    bits: float | None
    cpu_s: float


def efficiency(records: Iterable[TrialRecord]) -> Efficiency | None:
    """Efficiency in the trials without loss, at no less than half of the highest load that was
    carried so."""
    measured = [record for record in records if record.valid]
    busiest = [r.busiest_thread.cpu_ratio for r in measured if r.busiest_thread is not None]
    carried = [r for r in measured if r.packets.loss_ratio == 0 and r.offered.per_s]
    most = max((r.offered.per_s or 0.0 for r in carried), default=0.0)
    near = [r for r in carried if (r.offered.per_s or 0.0) >= LEAST_SHARE * most]
    found = [(record, work) for record in near if (work := _work(record)) is not None]
    if not found:
        return None
    starts: dict[Hashable, list[_Work]] = {}
    for start, (_, work) in zip(count_once([r for r, _ in found]), found, strict=True):
        starts.setdefault(start, []).append(work)
    each = [_per_core_s([w.packets for w in some], some) for some in starts.values()]
    packets = summarize(each, starts=[*starts])
    packet_us = summarize([1e6 / per_s for per_s in each], starts=[*starts])
    bits = {
        start: _per_core_s([w.bits or 0.0 for w in some], some)
        for start, some in starts.items()
        if all(w.bits is not None for w in some)
    }
    if packets is None or packet_us is None:
        return None
    return Efficiency(
        packets=packets,
        bits=summarize([*bits.values()], starts=[*bits]),
        packet_us=packet_us,
        busiest_ratio=max(busiest, default=None),
        runs=tuple(record.run for record, _ in found),
    )


def _work(record: TrialRecord) -> _Work | None:
    """With all that works for the SUT, if that is known."""
    cpu_s = record.sut_cpu_s if record.setup_cpu_s is None else record.setup_cpu_s
    sent, offered = record.offered.sent, record.offered
    if not cpu_s or not sent:
        return None
    known = offered.bps is not None and offered.duration_s is not None
    bits = (offered.bps or 0.0) * (offered.duration_s or 0.0) if known else None
    return _Work(packets=sent, bits=bits, cpu_s=cpu_s)


def _per_core_s(amounts: Sequence[float], works: Sequence[_Work]) -> float:
    return sum(amounts) / sum(work.cpu_s for work in works)


def efficiency_words(subject: str, found: Efficiency | None) -> str:
    """Empty if no trial shows it."""
    if found is None:
        return ""
    cost = f"{subject}: CPU time of a packet {with_spread(found.packet_us, numbers.micros, ' µs')}."
    if found.busiest_ratio is None:
        return f"{cost} How busy its threads were is not known, so neither is what a core carries."
    if not found.core_is_full:
        busiest = f"{found.busiest_ratio * 100:.0f} %"
        return (
            f"{cost} No thread was near a full CPU (the busiest: {busiest}), so what a busy core "
            "would carry is not shown."
        )
    words = with_spread(found.packets, numbers.count, " packets")
    if found.bits is not None:
        words += f" and {with_spread(found.bits, numbers.megabits, ' Mbit')}"
    return f"{cost} A busy core carries {words} a second."


def with_spread(summary: Summary, shown: numbers.Shown, unit: str = "") -> str:
    """With the interval between starts of the SUT; without one, with their range."""
    said = f"{shown(summary.median)}{unit}"
    if summary.interval:
        return f"{said} {numbers.between(summary.interval.low, summary.interval.high, shown)}"
    if summary.n == 1:
        return f"{said} (one start of the SUT)"
    counted = "hosts" if summary.hosts else "starts"
    if shown(summary.low) == shown(summary.high):
        return f"{said} (the same in {summary.n} {counted})"
    return f"{said} ({shown(summary.low)} to {shown(summary.high)} in {summary.n} {counted})"


COLUMNS = (
    Column(name="cell", title="Cell"),
    numeric("cpu_us_per_packet", "CPU time of a packet, µs"),
    numeric("cpu_us_low", "from", "lower end of the 95 % interval"),
    numeric("cpu_us_high", "to", "upper end of the 95 % interval"),
    numeric("busiest_thread_pct", "Busiest thread, %", "of one CPU, in any measured trial"),
    numeric(
        "packets_per_cpu_s",
        "Packets per busy core-second",
        "not known unless a thread was near a full CPU",
    ),
    numeric("packets_low", "from", "lower end of the 95 % interval"),
    numeric("packets_high", "to", "upper end of the 95 % interval"),
    numeric("bits_per_cpu_s", "Mbit per busy core-second"),
    numeric("bits_low", "from", "lower end of the 95 % interval"),
    numeric("bits_high", "to", "upper end of the 95 % interval"),
    numeric("starts", "Starts", "of the SUT; each counts once"),
)


def efficiency_table(found: Iterable[tuple[str, Efficiency]]) -> Table:
    """Table of efficiencies: one row for each cell that shows it, with the cell's name."""
    rows = tuple(Row(values=(text(name), *_values(work))) for name, work in found)
    return Table(name="efficiency", title="What a packet costs", columns=COLUMNS, rows=rows)


def _values(work: Efficiency) -> Iterator[Value]:
    busiest = None if work.busiest_ratio is None else work.busiest_ratio * 100
    yield from with_ends(work.packet_us, numbers.micros)
    yield Value(raw=busiest, shown=numbers.count(busiest))
    yield from with_ends(work.packets if work.core_is_full else None, numbers.count)
    yield from with_ends(work.bits if work.core_is_full else None, numbers.megabits)
    yield Value(raw=work.packets.n, shown=f"{work.packets.n}")
