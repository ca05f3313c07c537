"""Samples of a run, and one figure per run: what a single run says, over the time in which its
traffic flowed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

# File names of the 2016 studies: what was run is written in the name of every workbook and folder.
#
#     ENGINE,TRACE,NWORKER,SRC_NIC,DEST_NIC[.vtap],INTERVAL
#         [,MEMORY,CPUSET | ,MEMORY,VCPUS,CPUSET],SWAPPINESS[,VM_NAME,VM_IP,VM_NIC]
#         ,REPLAY_SPEED[,CHANNEL]
#
# A cpuset may hold commas itself (`1,3`), so the fields behind it are taken from the right.

WORKBOOK_SUFFIX = ".xlsx"
VTAP_SUFFIX = ".vtap"
FOLDER_PREFIX = "logs,"

_MEMORY = re.compile(r"(\d{1,12})([kmgt]?)b?", re.IGNORECASE | re.ASCII)
_DECIMAL = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)
# Names of traces, NICs and guests; anything else in a file name is not one of the studies'.
_FIELD = re.compile(r"[\w.:+-]+", re.ASCII)
_CPUSET_PART = re.compile(r"\d+(-\d+)?")
_FIGURE_TRACE = re.compile(r"[\w-]+\.(pcap|log)(\.[\w.]+)?")
_MEMORY_FACTOR = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class BadNameError(ValueError):
    """A name does not follow the grammar; the text says at which field."""


class Channel(StrEnum):
    """The content of one workbook; the values are the words of the file names."""

    EVE = "eve"
    """Suricata's cumulative counters."""
    SNORT_EXIT = "snortout"
    """Snort's totals at exit: one row per sample."""
    RECEIVER = "receiver,sysstat"
    SENDER = "sender,sysstat"
    GUEST = "vm,sysstat"
    NIC_IN = "netin,netstat"
    NIC_OUT = "netout,netstat"
    GUEST_NIC = "vm,netin,netstat"
    QEMU = "psstat"
    GUEST_SURICATA = "vm,suricata,psstat"
    GUEST_SNORT = "vm,snort,psstat"

    @property
    def cumulative_counts(self) -> bool:
        """The authors floored the medians of these (`INT(MEDIAN(..))`), and of no others."""
        return self in (Channel.EVE, Channel.SNORT_EXIT)


# The longest first: `psstat` and `eve` are also ends of longer words.
_CHANNELS = sorted(Channel, key=len, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCondition:
    """The varied factors: one combination of the studies' matrix."""

    engine: str
    """bm, docker or vm."""
    trace: str
    workers: int
    """N of "NX": that many tcpreplay processes sent the same trace at once."""
    source_nic: str
    dest_nic: str
    vtap: bool
    interval_s: float
    swappiness: int
    replay_speed: float
    memory_bytes: int | None = None
    vcpus: int | None = None
    cpuset: str | None = None
    vm_name: str | None = None
    vm_ip: str | None = None
    vm_nic: str | None = None

    @property
    def setup(self) -> str:
        """The name of the setup in the words of this project."""
        if self.engine == "bm":
            return "bare"
        if self.engine == "docker":
            return "docker-macvtap" if self.vtap else "docker"
        # Passthrough shows in two ways: `ens9` in the xenial data, and a receiving NIC that is the
        # guest's own (the host has none left) in data_vfio.
        return "vm-vfio" if self.vm_nic == "ens9" or self.vm_nic == self.dest_nic else "vm"

    @property
    def published_setup(self) -> str:
        """The column's name in the studies' tables."""
        return PUBLISHED_SETUP[self.setup]


PUBLISHED_SETUP = {
    "bare": "BM",
    "docker": "Docker",
    "docker-macvtap": "DockerV",
    "vm": "VM",
    "vm-vfio": "VFIO",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkbookName:
    condition: StudyCondition
    channel: Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureName:
    """A workbook the authors drew their figures from: derived, so never imported."""

    trace: str
    words: tuple[str, ...]


def parse_workbook_name(name: str) -> WorkbookName | FigureName:
    """Reads the name of one workbook. BadNameError if it follows no known pattern."""
    if not name.endswith(WORKBOOK_SUFFIX):
        raise BadNameError(f"not a workbook: the name does not end in {WORKBOOK_SUFFIX}")
    stem = name.removesuffix(WORKBOOK_SUFFIX)
    trace, *words = stem.split(",")
    if _FIGURE_TRACE.fullmatch(trace):
        return FigureName(trace=trace, words=tuple(words))
    for channel in _CHANNELS:
        if stem.endswith("," + channel):
            fields = stem[: -len(channel) - 1].split(",")
            return WorkbookName(condition=_condition(fields), channel=channel)
    raise BadNameError("no known channel at its end (eve, snortout, …sysstat, …netstat, …psstat)")


def parse_folder_name(name: str) -> tuple[StudyCondition, int]:
    """Reads the name of one raw log folder: the condition and the sample's epoch second."""
    if not name.startswith(FOLDER_PREFIX):
        raise BadNameError(f"not a log folder: the name does not begin with {FOLDER_PREFIX!r}")
    engine, *fields = name.removeprefix(FOLDER_PREFIX).split(",")
    if not fields:
        raise BadNameError("no sample epoch")
    return _condition([engine, *fields[1:]]), parse_epoch(fields[0])


def parse_memory(text: str) -> int:
    """`2g`, `1536m`: bytes, so that `1024m` equals `1g`."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise BadNameError(f"memory {text!r} is not a number with k, m or g")
    return int(match[1]) * _MEMORY_FACTOR[match[2].lower()]


def _condition(fields: list[str]) -> StudyCondition:
    odd = next((field for field in fields if not _FIELD.fullmatch(field)), None)
    if odd is not None:
        raise BadNameError(f"{odd!r} is no field of a name")
    if len(fields) < 8:
        raise BadNameError(f"{len(fields)} fields, at least 8 are needed")
    engine, trace, workers, source, dest, interval, *rest = fields
    memory = vcpus = cpuset = vm_name = vm_ip = vm_nic = None
    *rest, speed = rest
    if engine == "vm":
        if len(rest) < 7:
            raise BadNameError("a VM needs memory, vcpus, cpuset, swappiness, name, IP and NIC")
        *rest, vm_name, vm_ip, vm_nic = rest
    *rest, swappiness = rest
    if engine == "bm" and rest:
        raise BadNameError(f"bare metal has no field {rest[0]!r}")
    if engine in ("docker", "vm"):
        minimum = 2 if engine == "docker" else 3
        if len(rest) < minimum:
            raise BadNameError(f"{engine} needs memory and cpuset before swappiness")
        memory, *rest = rest
        if engine == "vm":
            vcpus, *rest = rest
        cpuset = _cpuset(rest)
    elif engine != "bm":
        raise BadNameError(f"engine {engine!r} is not bm, docker or vm")
    return StudyCondition(
        engine=engine,
        trace=trace,
        workers=_whole(workers, "load"),
        source_nic=source,
        dest_nic=dest.removesuffix(VTAP_SUFFIX),
        vtap=dest.endswith(VTAP_SUFFIX),
        interval_s=_number_in(interval, "interval"),
        swappiness=_whole(swappiness, "swappiness"),
        replay_speed=_number_in(speed, "replay speed"),
        memory_bytes=None if memory is None else parse_memory(memory),
        vcpus=None if vcpus is None else _whole(vcpus, "vcpus"),
        cpuset=cpuset,
        vm_name=vm_name,
        vm_ip=vm_ip,
        vm_nic=vm_nic,
    )


def _cpuset(parts: list[str]) -> str:
    for part in parts:
        if not _CPUSET_PART.fullmatch(part):
            raise BadNameError(f"{part!r} is not part of a cpuset")
    return ",".join(parts)


def parse_epoch(text: str) -> int:
    """The second at which a sample was started: a year between 1970 and 2286."""
    return _whole(text, "sample epoch", digits=10)


def _whole(text: str, what: str, *, digits: int = 6) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise BadNameError(f"{what} {text!r} is not a whole number of at most {digits} digits")
    return int(text)


def _number_in(text: str, what: str) -> float:
    if not _DECIMAL.fullmatch(text) or float(text) == 0:
        raise BadNameError(f"{what} {text!r} is not a number above 0")
    return float(text)


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
class RowSpan:
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
    """Time in which packets flowed through one NIC, as far as its polling interval shows it."""

    first_s: float
    """End of the first interval with traffic: somewhere in it the first packet came."""
    last_s: float
    """End of the last interval with traffic."""
    busy: RowSpan
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
        busy=RowSpan(column=TIMESTAMP, first_s=min(inner), last_s=max(inner)),
    )


def figures_of(
    channel: Channel, sample: Sample, span: RowSpan | None, flow: Traffic | None
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


def _host(sample: Sample, span: RowSpan | None) -> Figures:
    return _some(
        host_cpu_pct=_mean(sample, "%CPU", span),
        host_mem_pct=_mean(sample, "%MEM", span),
        host_cpus=_mean(sample, "NCPU", span),
    )


def _guest_sut(sample: Sample, span: RowSpan | None, flow: Traffic | None) -> Figures:
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


def _rows(sample: Sample, column: str, span: RowSpan | None) -> Sequence[Cell]:
    cells = sample.column(column)
    return cells if span is None else [cells[row] for row in span.rows(sample)]


def _mean(sample: Sample, column: str, span: RowSpan | None) -> float | None:
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


def _rate(sample: Sample, column: str, span: RowSpan) -> float | None:
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
