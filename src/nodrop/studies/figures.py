"""Samples of a run, and one figure per run: what a single run says, over the time in which its
traffic flowed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from nodrop.studies.names import Channel

Cell = float | None
"""None = nothing (or no number) stands there; 0 is a measured zero."""

# A counter of 64 bits ends below 1.9e19; sums of such numbers stay finite.
LARGEST = 1e19

# Columns of words: which NIC a netstat row is about.
TEXT_COLUMNS = frozenset({"NIC"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Something that was not imported."""

    reason: str
    """One of a small set of names: they are counted."""
    where: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One channel's record of one run."""

    epoch_s: int
    """The second at which the run was started: the sample's name in all channels."""
    columns: Mapping[str, Sequence[Cell]]
    rows: int

    def column(self, name: str) -> Sequence[Cell]:
        """Header spelling wins; `Uptime` and `uptime` are the same column."""
        if name in self.columns:
            return self.columns[name]
        for other, cells in self.columns.items():
            if other.lower() == name.lower():
                return cells
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """All samples of one channel of one condition."""

    samples: tuple[Sample, ...]
    skips: tuple[Skip, ...] = field(default=())


def sample_of_rows(
    epoch_s: int, header: Sequence[object], rows: Iterable[Sequence[object]], where: str
) -> tuple[Sample | None, list[Skip]]:
    """Turns a sheet into columns. Cells that hold no number are left out, each kind named once."""
    names = [str(cell).strip() for cell in header]
    kept = list(rows)
    while kept and all(cell in ("", None) for cell in kept[-1]):
        kept.pop()
    if not any(names) or not kept:
        return None, [Skip(reason="empty sample", where=where)]
    columns: dict[str, Sequence[Cell]] = {}
    odd: Counter[tuple[str, str]] = Counter()
    width = len(names)
    padded = [row if len(row) >= width else [*row, *[""] * (width - len(row))] for row in kept]
    for name, cells in zip(names, zip(*padded, strict=False), strict=False):
        if not name or name in TEXT_COLUMNS or name in columns:
            continue
        if all(type(cell) is float for cell in cells) and _in_range(cells):
            columns[name] = cells
        else:
            columns[name] = [_number(cell, name, odd) for cell in cells]
    skips = [
        Skip(reason=reason, where=where, detail=f"{count} in column {column}")
        for (reason, column), count in odd.items()
    ]
    return Sample(epoch_s=epoch_s, columns=columns, rows=len(kept)), skips


def _number(cell: object, column: str, odd: Counter[tuple[str, str]]) -> Cell:
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        if -LARGEST <= cell <= LARGEST:  # also false for what is not a number
            return float(cell)
        odd["number out of range", column] += 1
    else:
        odd["empty cell" if cell in ("", None) else "text in a number cell", column] += 1
    return None


def _in_range(cells: Sequence[float]) -> bool:
    return math.isfinite(sum(cells)) and max(cells) <= LARGEST and min(cells) >= -LARGEST


TIMESTAMP = "Timestamp"
UPTIME = "Uptime"

# Both hosts' NICs count the frame check sequence with the bytes.
FCS_BYTES = 4

# Of the busiest interval: below it the wire is idle but for the odd ARP.
TRAFFIC_FLOOR = 0.01

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows from `first_s` to `last_s`, ends included, on the clock named by `column`."""

    column: str
    first_s: float
    last_s: float

    def rows(self, sample: Sample) -> list[int]:
        return [
            row
            for row, at in enumerate(sample.column(self.column))
            if at is not None and self.first_s <= at <= self.last_s
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """When packets flowed through one NIC, as far as its polling interval shows it."""

    first_s: float
    """End of the first interval with traffic: somewhere in it the first packet came."""
    last_s: float
    """End of the last interval with traffic."""
    busy: Span
    """Rows whose whole interval lies inside the traffic."""


def traffic(sample: Sample, column: str) -> Traffic | None:
    """None if nothing flowed. Each row's count belongs to the interval that ends with it."""
    counts = [count or 0.0 for count in sample.column(column)]
    times = sample.column(TIMESTAMP)
    floor = max(counts, default=0.0) * TRAFFIC_FLOOR
    rows = [row for row, count in enumerate(counts) if count > floor and times[row] is not None]
    if not rows:
        return None
    first, last = times[rows[0]], times[rows[-1]]
    assert first is not None and last is not None
    inner = [t for t in (times[row] for row in rows[1:-1]) if t is not None] or [first, last]
    return Traffic(
        first_s=first,
        last_s=last,
        busy=Span(column=TIMESTAMP, first_s=min(inner), last_s=max(inner)),
    )


def figures_of(
    channel: Channel, sample: Sample, span: Span | None, flow: Traffic | None
) -> Figures:
    """Figures of one channel of one run. `span` = the rows that count, None = all rows.

    A missing column is a figure that was not measured; the importer has named it by then.
    """
    try:
        match channel:
            case Channel.NIC_OUT:
                return _sent(sample, flow)
            case Channel.NIC_IN:
                return _some(received_packets=_sum(sample, "recv.pkts"))
            case Channel.GUEST_NIC:
                return _some(guest_received_packets=_sum(sample, "recv.pkts"))
            case Channel.RECEIVER:
                return _host(sample, span)
            case Channel.SENDER:
                return _some(
                    sender_cpu_pct=_mean(sample, "%CPU", span),
                    sender_cpus=_mean(sample, "NCPU", span),
                )
            case Channel.GUEST:
                return _some(guest_cpu_pct=_mean(sample, "%CPU", span))
            case Channel.QEMU:
                return _some(
                    qemu_cpu_pct=_mean(sample, "%CPU", span),
                    qemu_rss_peak_bytes=_peak_bytes(sample),
                )
            case Channel.GUEST_SURICATA | Channel.GUEST_SNORT:
                return _guest_sut(sample, span, flow)
            case Channel.EVE:
                return _eve(sample)
            case Channel.SNORT_EXIT:
                return _snort_exit(sample)
    except KeyError:
        return {}


_SYSSTAT = (TIMESTAMP, UPTIME, "NCPU", "%CPU", "%MEM")
_NETSTAT = (TIMESTAMP, UPTIME, "sent.B", "sent.pkts", "recv.pkts")
_PSSTAT = (TIMESTAMP, UPTIME, "%CPU", "mem.rss.KB", "nthreads")
REQUIRED_COLUMNS: Mapping[Channel, tuple[str, ...]] = {
    Channel.EVE: (
        "uptime",
        "capture.kernel_packets",
        "capture.kernel_drops",
        "decoder.pkts",
        "detect.alert",
    ),
    Channel.SNORT_EXIT: ("pkts_total.analyzed_pkts", "pkts_total.dropped_pkts"),
    Channel.RECEIVER: _SYSSTAT,
    Channel.SENDER: _SYSSTAT,
    Channel.GUEST: _SYSSTAT,
    Channel.NIC_IN: _NETSTAT,
    Channel.NIC_OUT: _NETSTAT,
    Channel.GUEST_NIC: _NETSTAT,
    Channel.QEMU: _PSSTAT,
    Channel.GUEST_SURICATA: _PSSTAT,
    Channel.GUEST_SNORT: _PSSTAT,
}


def missing_columns(channel: Channel, sample: Sample) -> list[str]:
    """Columns this channel must have and this sample lacks."""
    has = {name.lower() for name in sample.columns}
    return [name for name in REQUIRED_COLUMNS[channel] if name.lower() not in has]


def _sent(sample: Sample, flow: Traffic | None) -> Figures:
    packets, octets = _sum(sample, "sent.pkts"), _sum(sample, "sent.B")
    found = _some(sent_packets=packets)
    if packets is not None and octets is not None:
        found["sent_frame_bytes"] = octets - FCS_BYTES * packets
    if flow is not None:
        found["sending_s"] = flow.last_s - flow.first_s
        found |= _some(offered_pps=_rate(sample, "sent.pkts", flow.busy))
    return found


def _host(sample: Sample, span: Span | None) -> Figures:
    return _some(
        host_cpu_pct=_mean(sample, "%CPU", span),
        host_mem_pct=_mean(sample, "%MEM", span),
        host_cpus=_mean(sample, "NCPU", span),
    )


def _guest_sut(sample: Sample, span: Span | None, flow: Traffic | None) -> Figures:
    found = _some(sut_cpu_pct=_mean(sample, "%CPU", span), sut_rss_peak_bytes=_peak_bytes(sample))
    threads = sample.column("nthreads")
    found |= _some(threads_final=threads[-1] if threads else None)
    if flow is not None:
        times = sample.column(TIMESTAMP)
        early = [row for row, at in enumerate(times) if at is not None and at <= flow.first_s]
        found |= _some(threads_at_first_packet=threads[early[-1] if early else 0])
    return found


def _eve(sample: Sample) -> Figures:
    return _some(
        captured_packets=_last(sample, "capture.kernel_packets"),
        dropped_packets=_last(sample, "capture.kernel_drops"),
        decoded_packets=_last(sample, "decoder.pkts"),
        decoded_bytes=_last(sample, "decoder.bytes"),
        alerts=_last(sample, "detect.alert"),
    )


def _snort_exit(sample: Sample) -> Figures:
    return _some(
        captured_packets=_last(sample, "pkts_total.recv_pkts"),
        dropped_packets=_last(sample, "pkts_total.dropped_pkts"),
        decoded_packets=_last(sample, "pkts_total.analyzed_pkts"),
    )


def _some(**found: float | None) -> Figures:
    return {name: value for name, value in found.items() if value is not None}


def _rows(sample: Sample, column: str, span: Span | None) -> Sequence[Cell]:
    cells = sample.column(column)
    return cells if span is None else [cells[row] for row in span.rows(sample)]


def _mean(sample: Sample, column: str, span: Span | None) -> float | None:
    numbers = [cell for cell in _rows(sample, column, span) if cell is not None]
    return fmean(numbers) if numbers else None


def _sum(sample: Sample, column: str) -> float | None:
    """None if a cell is missing: a sum without it would be a smaller count, not an estimate."""
    cells = sample.column(column)
    return None if None in cells else math.fsum(cell for cell in cells if cell is not None)


def _last(sample: Sample, column: str) -> float | None:
    try:
        cells = sample.column(column)
    except KeyError:
        return None
    return cells[-1] if cells else None


def _rate(sample: Sample, column: str, span: Span) -> float | None:
    """Per second over whole intervals; a row's count is that of the time since the row before."""
    rows = [row for row in span.rows(sample) if row > 0]
    times, counts = sample.column(TIMESTAMP), sample.column(column)
    counted = elapsed = 0.0
    for row in rows:
        before, now, count = times[row - 1], times[row], counts[row]
        if before is not None and now is not None and count is not None:
            counted += count
            elapsed += now - before
    return counted / elapsed if elapsed > 0 else None


def _peak_bytes(sample: Sample) -> float | None:
    numbers = [cell for cell in sample.column("mem.rss.KB") if cell is not None]
    return max(numbers) * 1024 if numbers else None
