"""Words on what fits into the rings of a capture, and on what it lost before the watch began."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nodrop.answer.finding import WORDS
from nodrop.drops.capture_books import Balance
from nodrop.results.watched import WatchedLevel


def clock(real_ns: int) -> str:
    return datetime.fromtimestamp(real_ns / 1e9).strftime("%H:%M:%S")


def percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %" if ratio == 0 or ratio >= 0.005 else "< 1 %"


def headroom_words(balance: Balance) -> Iterator[str]:
    """Highest level and the forecast, or why there is none."""
    reading, level = balance.reading, balance.rings.level
    if level is None:
        return
    name = f"{reading.name} on {reading.port_name}"
    yield (
        f"{name}: highest level {percent(level.highest_ratio)} at {clock(level.highest_real_ns)}; "
        + _forecast_words(level, balance.dropped or 0)
    )


def _forecast_words(level: WatchedLevel, lost: int) -> str:
    if (forecast := level.forecast) is None:
        yet = "" if level.withheld else " yet"
        number = f"{lost:,} " if level.withheld == "lost" else ""
        why = WORDS["withheld"][level.withheld or "not_yet"]
        return f"no forecast{yet}: {number}{why}"
    if forecast.bound == "at_least":
        return (
            f"forecast: at least {times(forecast.times)} times this traffic fits before the ring "
            "overflows"
        )
    about = forecast.bound.replace("_", " ")
    larger = ""
    if forecast.larger_times is not None:
        larger = (
            f"; with a ring of {forecast.larger_slots:,} packets {about} "
            f"{times(forecast.larger_times)} times"
        )
    between = " (the highest level lies between two spells of looks)"
    between = between if forecast.bound == "at_most" else ""
    return (
        f"forecast: {about} {times(forecast.times)} times this traffic fits before the ring of "
        f"{forecast.slots:,} packets overflows{larger}{between}"
    )


def times(number: float) -> str:
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


def before_words(balance: Balance) -> Iterator[str]:
    """Loss before the watch began, which `now` and its totals leave out."""
    reading = balance.reading
    if reading.dropped is None or balance.dropped is None:
        return
    lost = reading.dropped - balance.dropped
    if lost > 0:
        came, at_least = "", "at least " if balance.lost_more else ""
        if reading.arrived is not None and balance.arrived is not None:
            came = f" of {at_least}{max(lost, reading.arrived.high - balance.arrived.high):,}"
        since = "" if at_least else ", since it opened its sockets"
        yield (
            f"{reading.name} on {reading.port_name}: {at_least}{lost:,}{came} packets were lost "
            f"there before its books began{since}"
        )
