"""Contents of a folder of the published data: cells of workbooks, raw logs, and foreign files."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop.errors import BadInput
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import NotJson, decode
from nodrop_studies.samples import (
    FOLDER_PREFIX,
    WORKBOOK_SUFFIX,
    BadNameError,
    Channel,
    FigureName,
    Sample,
    Samples,
    Skip,
    StudyCondition,
    parse_folder_name,
    parse_workbook_name,
    sample_of_rows,
)
from nodrop_studies.workbooks import read_workbook

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


# Beside each workbook: "Sample size: 40", then the sheets and their record counts.
_PLANNED = re.compile(r"^Sample size:\s*(\d+)", re.MULTILINE)
_LOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFolder:
    """The raw logs of one run."""

    epoch_s: int
    path: Path


@dataclass(slots=True, kw_only=True)
class DatasetCell:
    """All files of one condition, in one part of the data set."""

    part: str
    """The folder it was found in, relative to the data set: conditions repeat between parts."""
    condition: StudyCondition
    workbooks: dict[Channel, list[Path]] = field(default_factory=dict)
    raw: list[RawFolder] = field(default_factory=list)
    planned: dict[Channel, int] = field(default_factory=dict)
    """Samples that the authors' own log announces, if there is one."""

    @property
    def sut(self) -> str:
        if {Channel.SNORT_EXIT, Channel.GUEST_SNORT} & set(self.workbooks):
            return "snort"
        return "snort" if "snort" in f"{self.part},{self.condition.vm_name}" else "suricata"

    @property
    def expected_channels(self) -> Sequence[Channel]:
        """Recorded of every condition. A passed-through NIC is not seen by the receiving host."""
        own = Channel.SNORT_EXIT if self.sut == "snort" else Channel.EVE
        seen = () if self.condition.setup == "vm-vfio" else (Channel.NIC_IN,)
        return (own, Channel.RECEIVER, Channel.SENDER, *seen, Channel.NIC_OUT)

    def channels(self) -> list[Channel]:
        """Channels in the order of `Channel`."""
        raw = {channel_of_file(p.name) for folder in self.raw for p in _files(folder.path)}
        return [c for c in Channel if c in self.workbooks or c in raw]

    def read(self, channel: Channel) -> Samples:
        """All samples of one channel, workbooks before raw logs; of two with one name the first."""
        samples: dict[int, Sample] = {}
        skips: list[Skip] = []
        for path in self.workbooks.get(channel, []):
            found = read_workbook(path)
            skips += found.skips
            _add(samples, found.samples, path.name, skips)
        for folder in self.raw:
            for path in _files(folder.path):
                if channel_of_file(path.name) is channel:
                    where = f"{folder.path.name}/{path.name}"
                    if folder.epoch_s in samples:
                        skips.append(Skip(reason="duplicate sample", where=where))
                        continue
                    sample, problems = read_raw_log(path, channel, folder.epoch_s)
                    skips += problems
                    _add(samples, [sample] if sample else [], where, skips)
        in_order = tuple(samples[epoch] for epoch in sorted(samples))
        return Samples(samples=in_order, skips=tuple(skips))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    folder: Path
    cells: tuple[DatasetCell, ...]
    skips: tuple[Skip, ...]


def discover(folder: Path) -> Dataset:
    """Looks at names only. BadInput if there is nothing to import."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: not a folder", hint="give the folder of the published data set")
    cells: dict[tuple[str, StudyCondition], DatasetCell] = {}
    raw: list[tuple[StudyCondition, RawFolder]] = []
    skips: list[Skip] = []
    for path in _walk(folder):
        where = os.fsencode(path.relative_to(folder)).decode(errors="replace")
        try:
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                skips.append(Skip(reason="a link or no regular file", where=where))
            elif path.is_dir():
                condition, epoch_s = parse_folder_name(path.name)
                raw.append((condition, RawFolder(epoch_s=epoch_s, path=path)))
                skips += _foreign_logs(path, where)
            elif path.name.endswith(WORKBOOK_SUFFIX):
                _place_workbook(path, where, cells, skips)
            elif not _is_log_of_workbook(path):
                skips.append(Skip(reason="foreign file", where=where))
        except BadNameError as error:
            reason = "foreign folder" if path.is_dir() else "foreign workbook"
            skips.append(Skip(reason=reason, where=where, detail=str(error)))
    for condition, logs in raw:
        _cell_of_raw(cells, condition, logs, folder).raw.append(logs)
    if not cells:
        raise BadInput(
            f"{folder}: nothing to import, {len(skips)} files and none is a workbook or log folder"
            " of the studies",
            hint="give the folder that holds `original/` or the workbooks",
        )
    return Dataset(
        folder=folder,
        cells=tuple(cells[key] for key in sorted(cells, key=_order)),
        skips=tuple(skips),
    )


def _walk(folder: Path) -> Iterator[Path]:
    """Files, and log folders as wholes; no link is followed."""
    for parent, folders, files in os.walk(folder):
        logs = sorted(name for name in folders if name.startswith(FOLDER_PREFIX))
        folders[:] = sorted(set(folders) - set(logs))
        for name in [*logs, *sorted(files)]:
            yield Path(parent, name)


def _place_workbook(
    path: Path, where: str, cells: dict[tuple[str, StudyCondition], DatasetCell], skips: list[Skip]
) -> None:
    name = parse_workbook_name(path.name)
    if isinstance(name, FigureName):
        skips.append(Skip(reason="the authors' figure workbook", where=where))
        return
    part = str(Path(where).parent)
    cell = cells.setdefault(
        (part, name.condition), DatasetCell(part=part, condition=name.condition)
    )
    cell.workbooks.setdefault(name.channel, []).append(path)
    planned = _planned_samples(path.with_suffix(".log"))
    if planned is not None:
        cell.planned[name.channel] = planned


def _planned_samples(log: Path) -> int | None:
    try:
        with Folder(log.parent).open(log.name) as lines:
            match = _PLANNED.search(lines.read(_LOG_BYTES).decode(errors="replace"))
    except OSError:
        return None
    return int(match[1]) if match else None


def _is_log_of_workbook(path: Path) -> bool:
    return path.suffix == ".log" and path.with_suffix(WORKBOOK_SUFFIX).exists()


def _foreign_logs(folder: Path, where: str) -> Iterator[Skip]:
    for path in map(folder.joinpath, Folder(folder).names()):
        if channel_of_file(path.name) is None:
            yield Skip(reason="foreign file", where=f"{where}/{path.name}")


def _cell_of_raw(
    cells: dict[tuple[str, StudyCondition], DatasetCell],
    condition: StudyCondition,
    logs: RawFolder,
    folder: Path,
) -> DatasetCell:
    """The cell of workbooks these logs were condensed into, or else one of their own."""
    sut = {"snort" if "snort" in path.name else "" for path in _files(logs.path)} - {""}
    fitting = [
        cell
        for cell in cells.values()
        if cell.condition == condition and cell.workbooks and (not sut or cell.sut in sut)
    ]
    if len(fitting) == 1:
        return fitting[0]
    part = str(logs.path.parent.relative_to(folder))
    return cells.setdefault((part, condition), DatasetCell(part=part, condition=condition))


def _add(
    samples: dict[int, Sample],
    found: Iterator[Sample] | tuple[Sample, ...] | list[Sample],
    where: str,
    skips: list[Skip],
) -> None:
    for sample in found:
        if sample.epoch_s in samples:
            place = f"{where}, sample {sample.epoch_s}"
            skips.append(Skip(reason="duplicate sample", where=place))
        else:
            samples[sample.epoch_s] = sample


def _files(folder: Path) -> list[Path]:
    """Regular files alone: a link, a FIFO or a device is not read."""
    inside = Folder(folder)
    return [folder / name for name in inside.names() if inside.is_file(name)]


SETUP_ORDER = ("bare", "docker", "docker-macvtap", "vm", "vm-vfio")


def _order(key: tuple[str, StudyCondition]) -> tuple[object, ...]:
    part, condition = key
    return (
        # The studies themselves before what was measured after them.
        "experiments/" not in part,
        part,
        condition.trace,
        condition.workers,
        SETUP_ORDER.index(condition.setup),
        -(condition.memory_bytes or 0),
        condition.cpuset or "",
        condition.source_nic,
        condition.dest_nic,
        condition.interval_s,
    )
