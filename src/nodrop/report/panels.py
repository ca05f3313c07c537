"""Panels of a trial over time: series on one axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nodrop.report.tables import Column, Row, Table, Value, numeric, text

RECEIVED, OFFERED = "Offered and received", "offered"


LARGEST = 2.0**64
"""No counter holds more, and no clock: what says so was damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    points: tuple[tuple[float, float], ...]
    """Seconds since the first packet, value."""
    style: int
    """Number of its colour and dashes: always the same, whatever is drawn beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    unit: str
    series: tuple[Series, ...]
    stacked: bool = False
    high: float | None = None
    """Upper end of the axis, if it is known beforehand."""

    @property
    def believable(self) -> bool:
        numbers = (number for s in self.series for point in s.points for number in point)
        return all(abs(number) <= LARGEST for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    panels: tuple[Panel, ...]
    marks: tuple[tuple[str, float], ...]
    """Moments of the trial, in seconds since the first packet."""
    own_cpu: Series | None = None
    """CPU of the SUT with all its threads, % of one CPU: drawn if setups stand side by side."""

    def series(self, title: str) -> Series | None:
        """The first series of a panel about the receiving host."""
        of = (s for p in self.panels if p.title == title for s in p.series if s.name != OFFERED)
        return next(of, None)

    def table(self) -> Table:
        """The numbers that are drawn."""
        return Table(name="time", title="Over time", columns=COLUMNS, rows=tuple(self._rows()))

    def _rows(self) -> Iterator[Row]:
        for panel in self.panels:
            head = (text(panel.title), text(panel.unit))
            for series in panel.series:
                for at, value in series.points:
                    point = (_number(round(at, 6)), _number(round(value, 6)))
                    yield Row(values=(*head, text(series.name), *point))


COLUMNS = (
    Column(name="panel", title="Panel"),
    Column(name="unit", title="Unit"),
    Column(name="series", title="Series"),
    numeric("seconds", "Seconds since the first packet"),
    numeric("value", "Value"),
)


def _number(value: float) -> Value:
    return Value(raw=value, shown=f"{value:g}")
