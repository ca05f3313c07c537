"""Workbooks of the studies: one sheet per sample, beside a `Summary` of uncomputed formulas."""

from __future__ import annotations

import copy
import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Literal

from python_calamine import CalamineError, CalamineWorkbook

from nodrop.untrusted.folder import Folder
from nodrop_studies.samples import (
    TIMESTAMP,
    BadNameError,
    Cell,
    Channel,
    Sample,
    Samples,
    Skip,
    parse_epoch,
    sample_of_rows,
)

# The authors' own arithmetic: medians over samples row by row, then mean and sigma over time.
#
# Row i of one sample is compared with row i of the others, whatever the clock said there, and the
# sigma is one over checkpoints of the median curve: no spread between runs is in it. Kept exactly,
# because published figures can only be judged by figures that were made the same way.

UPTIME = "Uptime"


class NoValueError(ValueError):
    """The figure cannot be computed from these samples; the text says why."""


def rowwise_median(
    samples: Sequence[Sample], column: str, *, floor: bool = False
) -> list[float | None]:
    """For row i, the median over the samples that have a row i. None = no number in that row."""
    cells = [_column(sample, column) for sample in samples]
    longest = max((len(series) for series in cells), default=0)
    return [_median([s[row] for s in cells if row < len(s)], floor) for row in range(longest)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigure:
    """Mean and sigma over the checkpoints of a window; `sigma` is spread over TIME."""

    mean: float
    sigma: float | None
    """n-1 standard deviation; None if the window holds a single checkpoint."""
    checkpoints: int


def window(
    samples: Sequence[Sample],
    column: str,
    *,
    lo_s: float,
    hi_s: float,
    minus: Sequence[Sample] | None = None,
    floor: bool = False,
) -> WindowFigure:
    """Mean and sigma of the row-wise medians whose uptime lies in [lo_s, hi_s], ends included.

    With `minus`, of the row-by-row difference of the two medians, at the uptime of `samples`.
    """
    values = rowwise_median(samples, column, floor=floor)
    uptimes = rowwise_median(samples, UPTIME)
    if minus is not None:
        taken = rowwise_median(minus, column, floor=floor)
        values = [
            None if a is None or b is None else a - b for a, b in zip(values, taken, strict=False)
        ]
    inside = [
        value
        for value, uptime in zip(values, uptimes, strict=False)
        if value is not None and uptime is not None and lo_s <= uptime <= hi_s
    ]
    if not inside:
        raise NoValueError(f"no checkpoint of {column} lies between {lo_s:g} and {hi_s:g} s")
    sigma = stdev(inside) if len(inside) > 1 else None
    return WindowFigure(mean=fmean(inside), sigma=sigma, checkpoints=len(inside))


def record(
    samples: Sequence[Sample], column: str, row: int, *, floor: bool = False, divide: float = 1
) -> float:
    """The row-wise median at one row, counted from 1."""
    medians = rowwise_median(samples, column, floor=floor)
    if not 1 <= row <= len(medians):
        raise NoValueError(f"there is no row {row}, samples have at most {len(medians)}")
    return _present(medians[row - 1], column) / divide


def last_record(
    samples: Sequence[Sample], column: str, *, floor: bool = False, divide: float = 1
) -> float:
    """The row-wise median of the last row that ANY sample reaches."""
    longest = max(sample.rows for sample in samples)
    return record(samples, column, longest, floor=floor, divide=divide)


def last_common_row(samples: Sequence[Sample]) -> int:
    """The last row, from 1, that ALL samples reach."""
    return min(sample.rows for sample in samples)


def plateau(samples: Sequence[Sample], column: str, *, floor: bool = False) -> float:
    """The row-wise median of the last row that all samples reach."""
    return record(samples, column, last_common_row(samples), floor=floor)


def plateau_time(
    samples: Sequence[Sample], columns: Sequence[str], *, floor: bool = False
) -> float:
    """Uptime of the first row from which all columns stay at their plateau."""
    if not columns:
        raise NoValueError("no column is named")
    last = last_common_row(samples)
    settled = 0
    for column in columns:
        medians = rowwise_median(samples, column, floor=floor)[:last]
        first = last - 1
        while first > 0 and medians[first - 1] == medians[last - 1]:
            first -= 1
        settled = max(settled, first)
    return _present(rowwise_median(samples, UPTIME, floor=floor)[settled], UPTIME)


def run_value(samples: Sequence[Sample], column: str, *, floor: bool = False) -> float:
    """Median over samples of the single row."""
    several = next((s for s in samples if s.rows != 1), None)
    if several is not None:
        raise NoValueError(f"sample {several.epoch_s} has {several.rows} rows, one is expected")
    return _present(rowwise_median(samples, column, floor=floor)[0], column)


def run_sum(samples: Sequence[Sample], column: str, *, floor: bool = False) -> float:
    """Median over samples of the column's sum."""
    sums: list[Cell] = []
    for sample in samples:
        cells = _column(sample, column)
        sums.append(None if None in cells else math.fsum(c for c in cells if c is not None))
    return _present(_median(sums, floor), column)


def peak(
    samples: Sequence[Sample], column: str, *, floor: bool = False, divide: float = 1
) -> float:
    """The maximum over rows of the row-wise median."""
    medians = [m for m in rowwise_median(samples, column, floor=floor) if m is not None]
    if not medians:
        raise NoValueError(f"column {column} holds no number")
    return max(medians) / divide


def _column(sample: Sample, column: str) -> Sequence[Cell]:
    try:
        return sample.column(column)
    except KeyError:
        has = ", ".join(sample.columns)
        raise NoValueError(f"sample {sample.epoch_s} has no column {column} (has {has})") from None


def _median(cells: Sequence[Cell], floor: bool) -> float | None:
    numbers = [cell for cell in cells if cell is not None]
    if not numbers:
        return None
    middle = median(numbers)
    return float(math.floor(middle)) if floor else middle


def _present(value: float | None, column: str) -> float:
    if value is None:
        raise NoValueError(f"column {column} holds no number there")
    return value


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
class MedianCurve:
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


def paper_series(samples: Sequence[Sample], channel: Channel, column: str) -> MedianCurve | None:
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
) -> MedianCurve | None:
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
) -> MedianCurve | None:
    if not points:
        return None
    return MedianCurve(
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
