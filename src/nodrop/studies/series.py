"""Curves over time of one cell: the authors' row by row, and one in which equal times meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from nodrop.studies.figures import TIMESTAMP, Cell, Sample
from nodrop.studies.names import Channel
from nodrop.studies.paper import UPTIME, rowwise_median

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
