"""Numbers as people read them: commas between thousands, few digits, the unit beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodrop.capacity.load_words import written
from nodrop.config.units import noun
from nodrop.stats.interval import Summary

SMALL_RATE = 0.005
"""Relative: of a rate below 100."""
Shown = Callable[[float | None], str]

NOT_MEASURED = "–"


def count(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,.0f}".replace("-", "−")


def count_of(value: float | None, word: str) -> str:
    """`1 packet`, `2,072 packets`, `– packets`."""
    return f"{count(value)} {noun(value, word)}"


def rate(value: float | None, known: float = SMALL_RATE) -> str:
    """Packets/s in whole numbers, but three digits of a small one: 9.6 is not 10.2."""
    if value is None or (abs(value) >= 100 and known == SMALL_RATE):
        return count(value)
    return written(value, known)


def signed(value: float | None) -> str:
    return f"+{count(value)}" if value is not None and value > 0 else count(value)


def percent(ratio: float | None) -> str:
    """The ratio in per cent with two decimals; neither a loss of one in a million nor its absence
    is rounded away."""
    if ratio is None:
        return NOT_MEASURED
    pct = ratio * 100 or 0.0
    return f"{pct:{'.2g' if abs(pct) < 0.01 else '.2f'}}".replace("-", "−")


def whole_percent(ratio: float | None) -> str:
    return NOT_MEASURED if ratio is None else f"{ratio * 100:.0f}"


def seconds(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def mebibytes(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value / 2**20:.1f}"


def megabits(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value / 1e6:.1f}"


def micros(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value:.1f}" if value < 100 else count(value)


def millis(us: float | None) -> str:
    """Microseconds as milliseconds."""
    if us is None or not us:
        return count(us)
    if us >= 999_500:
        return count(us / 1000)
    return f"{us / 1000:.3g}" if us >= 1 else "< 0.001"


def short(value: float) -> str:
    """The number as an axis label: 1.2k, 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def least_to_most(values: Iterable[int]) -> str:
    """`3`, or `3 to 5` if they differ."""
    found = sorted(values)
    low, high = found[0], found[-1]
    return f"{low}" if low == high else f"{low} to {high}"


def between(low: float, high: float, shown: Callable[[float], str]) -> str:
    return f"[{shown(low)}, {shown(high)}]"


def with_spread(
    summary: Summary,
    shown: Callable[[float], str],
    unit: str = "",
    of: str = "",
    *,
    one: str = "one run",
    alike: str = "in each run",
) -> str:
    """`3.10 % [2.81, 3.52]`: a median with its interval, else the range of the runs and `of`; `one`
    and `alike` stand for the range of one run, or of runs that are the same."""
    said = f"{shown(summary.median)}{unit}"
    if interval := summary.interval:
        return f"{said} {between(interval.low, interval.high, shown)}"
    low, high = shown(summary.low), shown(summary.high)
    spread = alike if low == high else f"{low} to {high}{of}"
    return f"{said} ({one if summary.n == 1 else spread})"
