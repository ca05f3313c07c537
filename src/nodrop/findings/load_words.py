"""How an answer writes loads: what was really sent first, then the scale of the search.

A bound is written with as many digits as are known of it: rounded outward, the carried load down
and the other up, so that rounding makes no sentence stronger and the two never read alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from nodrop.findings.answer import Bound
from nodrop.ledger.verdict import percent

LEAST_KNOWN = 1e-6
"""Relative: no load is written with more than six digits."""
SLACK = Decimal("0.05")
"""Of a step: a sender that sent 3,999.96 packets/s sent 4,000."""


def goal_words(goal: float) -> str:
    return "without loss" if goal == 0 else f"with at most {percent(goal)} lost"


def step_of(value: float, known: float) -> Decimal:
    """The largest 1, 2 or 5 times a power of ten that is no more than `known` times the value."""
    most = Decimal(repr(abs(value) * max(known, LEAST_KNOWN)))
    power = Decimal(1).scaleb(most.adjusted())
    return max(n * power for n in (1, 2, 5) if n * power <= most)


def written(value: float, known: float = 0.0, *, up: bool | None = None) -> str:
    """`29,600`: in steps of `known` times the value; `up` and down, or to the nearest."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    step = step_of(value, known)
    steps = Decimal(repr(value)) / step
    if up is None:
        rounded = steps.to_integral_value(ROUND_HALF_EVEN)
    elif up:
        rounded = (steps - SLACK).to_integral_value(ROUND_CEILING)
    else:
        rounded = (steps + SLACK).to_integral_value(ROUND_FLOOR)
    text = f"{rounded * step:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def apart(low: float, high: float, known: float = 0.0) -> tuple[str, str]:
    """Two bounds, the lower one rounded down and the higher one up, so that they differ."""
    if low >= high:
        return written(low), written(high)
    while True:
        found = written(low, known, up=False), written(high, known, up=True)
        if found[0] != found[1] or known < LEAST_KNOWN:
            return found
        known /= 10


def value_words(by: str, value: float, known: float = 0.0, *, up: bool | None = None) -> str:
    """A load on the scale of the search."""
    return scaled(by, written(value, known, up=up))


def scaled(by: str, number: str) -> str:
    if by == "multiplier":
        return f"{number}X"
    return f"{number} times the trace's speed" if by == "speed" else f"{number} packets/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Loads of one answer: `29,600 packets/s, 67 Mbit/s (8X)`."""

    by: str
    known: float
    """Relative: bounds are written in steps of that."""
    pps_per: float | None = None
    """Packets/s of a load of 1, for loads that no one trial stands for; None = not known."""

    def carried(self, bound: Bound) -> str:
        return self._bound(bound, up=False)

    def too_much(self, bound: Bound) -> str:
        return self._bound(bound, up=True)

    def both(self, lower: Bound, upper: Bound) -> tuple[str, str]:
        """The load that was carried and the one that was not."""
        if lower.pps is not None and upper.pps is not None and upper.pps <= lower.pps:
            # More was asked for, and no more was sent: their order is that of the scale alone.
            low, high = apart(lower.value, upper.value, self.known)
            sent = f"{scaled(self.by, high)}, of which no more packets/s were really sent"
            return self._joined(self._sent(lower, up=False), low), sent
        pps = apart(lower.pps or 0.0, upper.pps or 0.0, self.known)
        low, high = apart(lower.value, upper.value, self.known)
        return (
            self._joined(self._sent(lower, up=False, pps=pps[0]), low),
            self._joined(self._sent(upper, up=True, pps=pps[1], bits=False), high),
        )

    def at(self, value: float) -> str:
        """A load that trials came to together."""
        if self.by == "pps" or self.pps_per is None:
            return value_words(self.by, value, self.known)
        pps = written(value * self.pps_per, self.known)
        return f"{pps} packets/s ({value_words(self.by, value, self.known)})"

    def span(self, low: float, high: float) -> str:
        """`4,100 to 4,300 packets/s (4.1X to 4.3X)`."""
        if low == high:
            return self.at(low)
        ends = apart(low, high, self.known)
        own = scaled(self.by, f"{ends[0]}{_unit(self.by)} to {ends[1]}")
        if self.by == "pps" or self.pps_per is None:
            return own
        pps = apart(low * self.pps_per, high * self.pps_per, self.known)
        return f"{pps[0]} to {pps[1]} packets/s ({own})"

    def _bound(self, bound: Bound, *, up: bool) -> str:
        number = written(bound.value, self.known, up=up)
        return self._joined(self._sent(bound, up=up), number)

    def _sent(
        self, bound: Bound, *, up: bool, pps: str | None = None, bits: bool = True
    ) -> Sequence[str]:
        return tuple(self._rates(bound, up=up, pps=pps, bits=bits))

    def _rates(self, bound: Bound, *, up: bool, pps: str | None, bits: bool) -> Iterator[str]:
        if bound.pps is None:
            return
        yield f"{pps or written(bound.pps, self.known, up=up)} packets/s"
        if bits and bound.bps is not None:
            yield f"{written(bound.bps / 1e6, max(self.known, 1e-3))} Mbit/s"

    def _joined(self, sent: Sequence[str], number: str) -> str:
        if not sent:
            return scaled(self.by, number)
        own = "" if self.by == "pps" else f" ({scaled(self.by, number)})"
        return f"{', '.join(sent)}{own}"


def _unit(by: str) -> str:
    return "X" if by == "multiplier" else ""
