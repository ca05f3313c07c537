"""Raw logs of one run, as the studies' monitors wrote them: a folder of CSV files and eve.json."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nodrop.imports.names import Channel
from nodrop.imports.samples import Sample, Skip, sample_of_rows
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson, decode

# A line of eve.json with statistics of four threads is about 10 kB.
MAX_LINE_BYTES = 1 << 20

EVE_COLUMNS = (
    "uptime",
    "capture.kernel_packets",
    "capture.kernel_drops",
    "decoder.pkts",
    "decoder.bytes",
    "detect.alert",
)

# First match wins: the sender's and the guest's files are longer forms of the receiver's.
_CHANNEL_OF_FILE: tuple[tuple[re.Pattern[str], Channel], ...] = tuple(
    (re.compile(pattern), channel)
    for pattern, channel in (
        (r"sysstat\.receiver\.csv", Channel.RECEIVER),
        (r"sysstat\.sender\.csv", Channel.SENDER),
        (r"sysstat\.vm\.csv", Channel.GUEST),
        (r"psstat\.qemu\.csv", Channel.QEMU),
        (r"psstat\.suricata\.vm\.csv", Channel.GUEST_SURICATA),
        (r"psstat\.snort\.vm\.csv", Channel.GUEST_SNORT),
        (r"netstat\.tcpreplay\..+\.csv", Channel.NIC_OUT),
        (r"netstat\..+\.vm\.csv", Channel.GUEST_NIC),
        (r"netstat\..+\.csv", Channel.NIC_IN),
        (r"eve\.json", Channel.EVE),
    )
)


def channel_of_file(name: str) -> Channel | None:
    """The channel a raw log file belongs to, by its name."""
    return next((c for pattern, c in _CHANNEL_OF_FILE if pattern.fullmatch(name)), None)


def read_raw_log(path: Path, channel: Channel, epoch_s: int) -> tuple[Sample | None, list[Skip]]:
    """Reads one file of a log folder."""
    where = f"{path.parent.name}/{path.name}"
    read: Callable[[Path], tuple[list[object], list[list[object]], list[Skip]]]
    read = _eve_rows if channel is Channel.EVE else _csv_rows
    try:
        header, rows, problems = read(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return None, [Skip(reason="unreadable log", where=where, detail=str(error))]
    sample, skips = sample_of_rows(epoch_s, header, rows, where)
    return sample, problems + skips


def _csv_rows(path: Path) -> tuple[list[object], list[list[object]], list[Skip]]:
    text = Folder(path.parent).read(path.name).decode()
    header, *rows = [*csv.reader(io.StringIO(text, newline=""))] or [[]]
    return list(header), [[_parsed(cell) for cell in row] for row in rows], []


def _parsed(cell: str) -> object:
    try:
        value = float(cell)
    except ValueError:
        return cell.strip()
    return value if math.isfinite(value) else cell.strip()


def _eve_rows(path: Path) -> tuple[list[object], list[list[object]], list[Skip]]:
    rows: list[list[object]] = []
    broken = 0
    for line in _lines(path):
        if b'"stats"' not in line:
            continue
        try:
            event = decode(line)
        except NotJson:
            broken += 1
            continue
        if isinstance(event, dict) and event.get("event_type") == "stats":
            rows.append([_nested(event.get("stats"), column) for column in EVE_COLUMNS])
    skips = []
    if broken:
        where = f"{path.parent.name}/{path.name}"
        skips.append(Skip(reason="line is not JSON", where=where, detail=f"{broken} lines"))
    return list(EVE_COLUMNS), rows, skips


def _lines(path: Path) -> Iterator[bytes]:
    """Line by line and never more than MAX_LINE_BYTES of one: eve.json may be many gigabytes."""
    with Folder(path.parent).open(path.name) as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            yield line


def _nested(stats: Any, column: str) -> object:
    for key in column.split("."):
        stats = stats.get(key) if isinstance(stats, dict) else None
    return stats
