"""Workbooks of the studies: one sheet per sample, beside a `Summary` of uncomputed formulas."""

from __future__ import annotations

import copy
import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from python_calamine import CalamineError, CalamineWorkbook

from nodrop.studies.figures import TIMESTAMP, Cell, Sample, Samples, Skip, sample_of_rows
from nodrop.studies.names import BadNameError, Channel, parse_epoch
from nodrop.studies.paper import UPTIME, rowwise_median
from nodrop.untrusted.folder import Folder

# The largest of the 956 published workbooks is 1.0 MB and unpacks to 3.4 MB at a ratio of 14.
MAX_UNPACKED_BYTES = 256 << 20
MAX_ENTRIES = 5_000
CHUNK_BYTES = 1 << 20

# A reader lays a sheet out as a full rectangle: one cell at XFD1048576 costs 17 G cells.
# Published sheets end before row 400 and column W.
# No spreadsheet spells a reference with entities.
_FAR_CELL = re.compile(
    rb"""<(?:[\w.-]+:)?(?:c|row)\s(?:[^<]*?\s)?r\s*=\s*["']"""
    rb"""(?:[A-Za-z]{3,}\d|[A-Za-z]*\d{5}|[^"'&<]*&)"""
)
_UTF16 = re.compile(rb"\xff\xfe|\xfe\xff|<\0|\0<")


class UnsafeArchiveError(ValueError):
    """The file must not be opened as a workbook; the text says why."""


def check_archive(content: bytes) -> None:
    """Unpacks into nothing, counting. UnsafeArchiveError if the file is broken, huge or sparse.

    The sizes that an archive declares may lie, so each member is unpacked to its real end.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            declared = sum(member.file_size for member in members)
            if len(members) > MAX_ENTRIES or declared > MAX_UNPACKED_BYTES:
                raise UnsafeArchiveError(
                    f"unpacks to {declared} bytes in {len(members)} parts,"
                    f" allowed are {MAX_UNPACKED_BYTES} in {MAX_ENTRIES}"
                )
            for member in members:
                _check_member(archive, member)
    except UnsafeArchiveError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise UnsafeArchiveError(f"not a whole zip archive: {error}") from error
    except RuntimeError as error:  # zipfile's word for an encrypted member
        raise UnsafeArchiveError(f"cannot be unpacked: {error}") from error


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    unbounded = copy.copy(member)
    unbounded.file_size = MAX_UNPACKED_BYTES  # zipfile would stop reading at the declared size
    unpacked = 0
    tail = b""
    with archive.open(unbounded) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            unpacked += len(chunk)
            if unpacked > member.file_size:
                raise UnsafeArchiveError(
                    f"{member.filename} declares {member.file_size} bytes and unpacks to more"
                )
            # Any part may be a sheet: workbook.xml says which, by any name.
            if unpacked == len(chunk) and _UTF16.match(chunk):
                raise UnsafeArchiveError(f"{member.filename} is XML in UTF-16")
            chunk = tail + chunk
            if _FAR_CELL.search(chunk):
                raise UnsafeArchiveError(f"{member.filename} has a cell beyond ZZ9999")
            begun = chunk.rfind(b"<")
            tail = chunk[begun:] if begun >= 0 else b""
            if len(tail) > CHUNK_BYTES:
                raise UnsafeArchiveError(f"{member.filename} has a tag of more than 1 MiB")


# Its cells are =MEDIAN(..) with a cached 0: a reader that trusts them reports an idle machine.
SUMMARY_SHEET = "Summary"


def read_workbook(path: Path) -> Samples:
    """Reads all samples of one workbook; no formula is evaluated, `Summary` is never opened."""
    try:
        content = Folder(path.parent).read(path.name)
        check_archive(content)
    except (OSError, UnsafeArchiveError) as error:
        return Samples(
            samples=(),
            skips=(Skip(reason="unreadable workbook", where=path.name, detail=str(error)),),
        )
    samples: list[Sample] = []
    skips: list[Skip] = []
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(content))
        for sample, problems in _sheets(workbook, path.name):
            skips += problems
            if sample is not None:
                samples.append(sample)
    except (CalamineError, ValueError, OSError) as error:
        skips.append(Skip(reason="unreadable workbook", where=path.name, detail=str(error)))
    if not samples and not skips:
        skips.append(Skip(reason="workbook without samples", where=path.name))
    return Samples(samples=tuple(samples), skips=tuple(skips))


def _sheets(
    workbook: CalamineWorkbook, file_name: str
) -> Iterator[tuple[Sample | None, list[Skip]]]:
    seen: set[int] = set()
    for name in workbook.sheet_names:
        if name == SUMMARY_SHEET:
            continue
        where = f"{file_name}, sheet {name}"
        try:
            epoch_s = parse_epoch(name)
        except BadNameError:
            yield None, [Skip(reason="sheet is not a sample", where=where)]
            continue
        if epoch_s in seen:
            yield None, [Skip(reason="duplicate sample", where=where)]
            continue
        seen.add(epoch_s)
        header, *rows = workbook.get_sheet_by_name(name).to_python() or [[]]
        yield sample_of_rows(epoch_s, header, rows, where)


Mode = Literal["paper", "sound"]

# Curves that are kept: the studies' figures are made of these.
PLOTTED: Mapping[Channel, tuple[str, ...]] = {
    Channel.RECEIVER: ("%CPU", "%MEM"),
    Channel.EVE: ("capture.kernel_packets", "capture.kernel_drops", "decoder.pkts"),
}

EVE_STEP_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A median curve over the runs of one cell."""

    column: str
    mode: Mode
    at_s: tuple[float, ...]
    """paper: median uptime of a row. sound: since the first traffic; `eve`: since the IDS began."""
    values: tuple[float, ...]
    samples: tuple[int, ...]
    """Runs each point rests on: falling at the end means survivors. Sound curves are cut there."""
    cut_points: int = 0
    """Points left out because not all runs reach them."""


def paper_series(samples: Sequence[Sample], channel: Channel, column: str) -> Series | None:
    """Median by row index, tail of survivors included."""
    floor = channel.cumulative_counts
    try:
        values = rowwise_median(samples, column, floor=floor)
        uptimes = rowwise_median(samples, UPTIME, floor=floor)
    except ValueError:
        return None
    points = [
        (at, value, sum(sample.rows > row for sample in samples))
        for row, (at, value) in enumerate(zip(uptimes, values, strict=True))
        if at is not None and value is not None
    ]
    return _series(column, "paper", points, cut=0)


def sound_series(
    samples: Sequence[Sample],
    channel: Channel,
    column: str,
    *,
    step_s: float,
    starts: Mapping[int, float],
) -> Series | None:
    """Median at equal times, as far as ALL runs reach. `starts`: first traffic of each run."""
    if channel is Channel.EVE:
        curves = [_interpolated(sample, column) for sample in samples]
    else:
        curves = [
            _binned(sample, column, starts[sample.epoch_s], step_s)
            for sample in samples
            if sample.epoch_s in starts
        ]
    curves = [curve for curve in curves if curve]
    everywhere = sorted(set().union(*curves)) if curves else []
    whole = [at for at in everywhere if all(at in curve for curve in curves)]
    points = [(at, median(curve[at] for curve in curves), len(curves)) for at in whole]
    return _series(column, "sound", points, cut=len(everywhere) - len(whole))


def _series(
    column: str, mode: Mode, points: Sequence[tuple[float, float, int]], *, cut: int
) -> Series | None:
    if not points:
        return None
    return Series(
        column=column,
        mode=mode,
        at_s=tuple(point[0] for point in points),
        values=tuple(point[1] for point in points),
        samples=tuple(point[2] for point in points),
        cut_points=cut,
    )


def _binned(sample: Sample, column: str, start_s: float, step_s: float) -> dict[float, float]:
    """Rows by their distance from the start, rounded to the monitor's interval."""
    curve: dict[float, float] = {}
    for at, value in _pairs(sample, TIMESTAMP, column):
        curve.setdefault(round((at - start_s) / step_s) * step_s, value)
    return curve


def _interpolated(sample: Sample, column: str) -> dict[float, float]:
    """A cumulative counter read at equal times: records come every 7 s, but not in step."""
    points = _pairs(sample, UPTIME, column)
    curve: dict[float, float] = {}
    for (before_s, before), (after_s, after) in pairwise(points):
        if after_s <= before_s:
            continue
        step = int(-(-before_s // EVE_STEP_S))
        while step * EVE_STEP_S <= after_s:
            at = step * EVE_STEP_S
            curve[at] = before + (after - before) * (at - before_s) / (after_s - before_s)
            step += 1
    return curve


def _pairs(sample: Sample, x: str, y: str) -> list[tuple[float, float]]:
    try:
        xs: Sequence[Cell] = sample.column(x)
        ys: Sequence[Cell] = sample.column(y)
    except KeyError:
        return []
    return [(a, b) for a, b in zip(xs, ys, strict=True) if a is not None and b is not None]
