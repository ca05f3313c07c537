"""The authors' own arithmetic: medians over samples row by row, then mean and sigma over time.

Row i of one sample is compared with row i of the others, whatever the clock said there, and the
sigma is one over checkpoints of the median curve: no spread between runs is in it. Kept exactly,
because published figures can only be judged by figures that were made the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from nodrop.studies.figures import Cell, Sample

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
