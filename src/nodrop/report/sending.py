"""A trial over time as its sender and its SUT reported it: rate, lateness, packets counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodrop.report.panels import LARGEST, OFFERED, RECEIVED, Panel, Series

MOST_POINTS = 120
SHORTEST = 0.2
"""Of an interval: a last one that is shorter has no rate worth drawing."""


def sent_over_time(offered: object, start_ns: int) -> tuple[Panel, Panel]:
    """Offered rate and largest schedule error; panels without series if the sender did not say.

    From offered.json, whose intervals begin with the first packet.
    """
    rate = Panel(title=RECEIVED, unit="packets/s", series=())
    error = Panel(title="Schedule error, largest", unit="ms", series=())
    try:
        assert isinstance(offered, Mapping)
        achieved = offered["achieved"]
        first, last = int(offered["first_sent_mono_ns"]), int(offered["last_sent_mono_ns"])
        step = int(achieved["interval_ns"])
        packets = [float(n) for n in achieved["packets"]]
        errors = [float(n) for n in achieved.get("largest_error_ns") or ()]
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return rate, error
    if step <= 0 or not all(abs(n) <= LARGEST for n in (first, last, step, *packets, *errors)):
        return rate, error
    whole = (last - first) / step
    if packets and whole < len(packets) - 1 + SHORTEST:
        packets, errors = packets[:-1], errors[: len(packets) - 1]
    together = max(1, -(-len(packets) // MOST_POINTS))

    def at(n: int) -> float:
        """Seconds: the end of interval n, the last of which may be cut short."""
        return (first - start_ns + min(n + 1.0, whole) * step) / 1e9

    rates, late = [], []
    for n in range(0, len(packets), together):
        end = min(n + together, len(packets)) - 1
        took = (min(end + 1.0, whole) - n) * step / 1e9
        if took > 0:
            rates.append((at(end), sum(packets[n : end + 1]) / took))
        if n < len(errors):
            late.append((at(end), max(errors[n : end + 1]) / 1e6))
    return (
        Panel(title=rate.title, unit=rate.unit, series=_named(OFFERED, rates, 0)),
        Panel(title=error.title, unit=error.unit, series=_named("sent after due", late, 0)),
    )


COUNTED = {
    "sent": "sent_packets",
    "captured": "captured_packets",
    "decoded": "decoded_packets",
    "dropped": "dropped_packets",
}


def counted_over_time(rows: Iterable[Mapping[str, Any]], start_ns: int) -> Iterable[Panel]:
    """The SUT's counters in steps, as it reported them: what it did in between is not known."""
    readings = [row for row in rows if "intended_packets" in row]
    kept = readings[:: max(1, -(-len(readings) // MOST_POINTS))]
    if readings and kept[-1] is not readings[-1]:
        kept.append(readings[-1])
    series: list[Series] = []
    for style, (name, field) in enumerate(COUNTED.items()):
        told = [
            ((row["mono_ns"] - start_ns) / 1e9, float(row[field]))
            for row in kept
            if _counted(row.get(field)) and _counted(row.get("mono_ns"))
        ]
        series += _named(name, _steps(told), style)
    if series:
        yield Panel(title="Counted, as reported while it ran", unit="packets", series=tuple(series))


def _counted(value: object) -> bool:
    return isinstance(value, int) and abs(value) <= LARGEST


def _steps(told: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for at, value in told:
        if found and found[-1][1] != value:
            found.append((at, found[-1][1]))
        found.append((at, value))
    return found


def _named(name: str, points: list[tuple[float, float]], style: int) -> tuple[Series, ...]:
    return (Series(name=name, points=tuple(points), style=style),) if len(points) > 1 else ()
