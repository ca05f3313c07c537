"""What is drawn of a trial over time: panels of series on one axis."""

from __future__ import annotations

from dataclasses import dataclass

RECEIVED = "Offered and received"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    points: tuple[tuple[float, float], ...]
    """Seconds since the first packet, value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    unit: str
    series: tuple[Series, ...]
    stacked: bool = False
    high: float | None = None
    """Upper end of the axis, where it is known beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    panels: tuple[Panel, ...]
    marks: tuple[tuple[str, float], ...]
    """Moments of the trial, in seconds since the first packet."""

    def series(self, title: str) -> Series | None:
        """The first series of a panel."""
        return next((p.series[0] for p in self.panels if p.title == title and p.series), None)
