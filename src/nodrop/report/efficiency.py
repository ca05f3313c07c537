"""What a busy core carries: packets and bits for each second of CPU time that the SUT took."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from nodrop.report import numbers
from nodrop.report.tables import Column, Row, Table, Value, numeric, text, with_ends
from nodrop.results.trial import TrialRecord, count_once
from nodrop.stats.interval import Summary, summarize

LEAST_SHARE = 0.5
"""Of the highest load that was carried: far below it a SUT's own wakeups are most of its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    packets: Summary
    """For each busy second, one value for each start of the SUT."""
    bits: Summary | None
    """Of Ethernet frames."""
    runs: tuple[str, ...]
    """Trials that it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    packets: float
    bits: float | None
    cpu_s: float


def efficiency(records: Iterable[TrialRecord]) -> Efficiency | None:
    """Of trials without loss at no less than half of the highest load that was carried so."""
    carried = [r for r in records if r.valid and r.packets.loss_ratio == 0 and r.offered.per_s]
    most = max((r.offered.per_s or 0.0 for r in carried), default=0.0)
    near = [r for r in carried if (r.offered.per_s or 0.0) >= LEAST_SHARE * most]
    found = [(record, work) for record in near if (work := _work(record)) is not None]
    if not found:
        return None
    starts: dict[Hashable, list[_Work]] = {}
    for start, (_, work) in zip(count_once([r for r, _ in found]), found, strict=True):
        starts.setdefault(start, []).append(work)
    packets = summarize(
        [_per_core_s([w.packets for w in some], some) for some in starts.values()],
        starts=[*starts],
    )
    bits = {
        start: _per_core_s([w.bits or 0.0 for w in some], some)
        for start, some in starts.items()
        if all(w.bits is not None for w in some)
    }
    if packets is None:
        return None
    return Efficiency(
        packets=packets,
        bits=summarize([*bits.values()], starts=[*bits]),
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


def efficiency_words(found: Efficiency | None) -> str:
    """Empty if no trial shows it."""
    if found is None:
        return ""
    words = f"{with_spread(found.packets, numbers.count)} packets"
    if found.bits is not None:
        words += f" and {with_spread(found.bits, numbers.megabits)} Mbit"
    return f"A busy core carries {words} a second."


def with_spread(summary: Summary, shown: numbers.Shown) -> str:
    """With the interval between starts of the SUT; without one, with their range."""
    said = shown(summary.median)
    if summary.interval:
        return f"{said} {numbers.between(summary.interval.low, summary.interval.high, shown)}"
    if summary.n == 1:
        return f"{said} (one start of the SUT)"
    counted = "hosts" if summary.hosts else "starts"
    return f"{said} ({shown(summary.low)} to {shown(summary.high)} in {summary.n} {counted})"


COLUMNS = (
    Column(name="cell", title="Cell"),
    numeric("packets_per_cpu_s", "Packets per busy core-second"),
    numeric("packets_low", "from", "lower end of the 95 % interval"),
    numeric("packets_high", "to", "upper end of the 95 % interval"),
    numeric("bits_per_cpu_s", "Mbit per busy core-second"),
    numeric("bits_low", "from", "lower end of the 95 % interval"),
    numeric("bits_high", "to", "upper end of the 95 % interval"),
    numeric("starts", "Starts", "of the SUT; each counts once"),
)


def efficiency_table(found: Iterable[tuple[str, Efficiency]]) -> Table:
    """Of each cell that shows it, with its name."""
    rows = tuple(
        Row(
            values=(
                text(name),
                *with_ends(work.packets, numbers.count),
                *with_ends(work.bits, numbers.megabits),
                Value(raw=work.packets.n, shown=f"{work.packets.n}"),
            )
        )
        for name, work in found
    )
    return Table(name="efficiency", title="What a busy core carries", columns=COLUMNS, rows=rows)
