"""How an answer writes loads: what was really sent first, then the scale of the search.

A bound is written with as many digits as are known of it: rounded outward, the carried load down
and the other up, so that rounding makes no sentence stronger and the two never read alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from nodrop.answer.finding import Finding, render
from nodrop.capacity.search_answer import Bound
from nodrop.config.search import Of
from nodrop.findings.contradiction import APART_RATIO

LEAST_KNOWN = 1e-6
"""Relative: no load is written with more than six digits."""
UNSURE = 0.01
"""Relative: what is known of a load without a confidence."""
SLACK = Decimal("0.05")
"""Tolerance when a load is rounded up or down, in steps, and no more than `APART_RATIO` of the
load: a sender that sent 3,999.96 packets/s sent 4,000, one that sent 14,950 did not send 15,000."""


def goal_words(goal: float, of: Of, by: str, form: str = "within") -> str:
    """`by`: the axis of the search; a rate is of transactions, which fail."""
    code = f"goal.{'transactions' if by == 'rate' else of}_{'some' if goal else 'none'}"
    return render(Finding(code=code, values={"goal": goal}), form)


def written(value: float, known: float = 0.0, *, up: bool | None = None) -> str:
    """`29,600`: to a decimal step of `known` times the value or less; `up`, down or nearest."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    # The largest power of ten that is no more than `known` times the value.
    least = Decimal(repr(abs(value) * max(known, LEAST_KNOWN)))
    step = Decimal(1).scaleb(least.adjusted())
    steps = Decimal(repr(value)) / step
    if up is None:
        rounded = steps.to_integral_value(ROUND_HALF_EVEN)
    else:
        rounded = _outward(steps, Decimal(APART_RATIO) * abs(steps), up=up)
        if rounded != _outward(steps, SLACK, up=up):  # just short of a step: another digit
            step, steps = step / 10, steps * 10
            rounded = _outward(steps, Decimal(APART_RATIO) * abs(steps), up=up)
    text = f"{rounded * step:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _outward(steps: Decimal, slack: Decimal, *, up: bool) -> Decimal:
    least = min(SLACK, slack)
    if up:
        return (steps - least).to_integral_value(ROUND_CEILING)
    return (steps + least).to_integral_value(ROUND_FLOOR)


def ends_words(low: float | None, high: float | None, known: float) -> tuple[str, str]:
    """Two bounds, the lower one rounded down and the higher one up, so that they differ; empty if
    one is not known."""
    if low is not None and high is not None and low < high:
        known = known_apart(low, high, known)
    return (
        "" if low is None else written(low, known, up=False),
        "" if high is None else written(high, known, up=True),
    )


def known_apart(low: float, high: float, known: float) -> float:
    """Relative: `known`, or what it takes to write the two bounds differently."""
    while known >= LEAST_KNOWN and written(low, known, up=False) == written(high, known, up=True):
        known /= 10
    return known


def value_words(by: str, value: float, known: float = 0.0, *, up: bool | None = None) -> str:
    """A load on the scale of the search."""
    return scaled(by, written(value, known, up=up))


UNITS = {
    "multiplier": "X",
    "speed": " times the trace's speed",
    "pps": " packets/s",
    "rate": " transactions/s",
}
"""Scale of a search → what stands behind a number on it."""


def scaled(by: str, number: str) -> str:
    return f"{number}{UNITS[by]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Loads of one answer: `29,600 packets/s, 67 Mbit/s (8X)`."""

    by: str
    known: float
    """Relative: bounds are written in decimal steps of that or less."""
    pps_per: float | None = None
    """Packets/s of a load of 1, for loads that no trial was of; None = not known."""
    sent_pps: Mapping[float, float] = field(default_factory=dict)
    """Load → packets/s that its trials really sent."""
    rounds_up: Mapping[float, bool] = field(default_factory=dict)
    """Bound → whether it is rounded up, in whatever sentence it stands."""

    def bound(self, bound: Bound, *, up: bool) -> str:
        """A load that was carried or, with `up`, one that was not."""
        number = written(bound.value, self.known, up=up)
        return self._joined(self._sent(bound, up=up), number)

    def both(self, lower: Bound, upper: Bound) -> tuple[str, str]:
        """The load that was carried and the one that was not."""
        if lower.pps is not None and upper.pps is not None and upper.pps <= lower.pps:
            # More was asked for, and no more was sent: their order is that of the scale alone.
            low, high = ends_words(lower.value, upper.value, self.known)
            sent = f"{scaled(self.by, high)}, of which no more packets/s were really sent"
            return self._joined(self._sent(lower, up=False), low), sent
        asked = None if lower.pps is None else upper.value * lower.pps / lower.value
        if upper.pps is None and asked is not None:  # it failed, and what was sent is not known
            upper = replace(upper, pps=asked)
        pps = ends_words(lower.pps, upper.pps, self.known)
        low, high = ends_words(lower.value, upper.value, self.known)
        return (
            self._joined(self._sent(lower, up=False, pps=pps[0]), low),
            self._joined(self._sent(upper, up=True, pps=pps[1]), high),
        )

    def at(self, value: float, known: float | None = None, *, up: bool | None = None) -> str:
        """A load that was tried, as the table of trials has it; any other is rounded as a bound."""
        tried = value in self.sent_pps
        known = 0.0 if tried else self.known if known is None else known
        up = None if tried else self.rounds_up.get(value, up)
        own = value_words(self.by, value, known, up=up)
        if self.by == "pps" or self.pps_per is None:
            return own
        return f"{written(self._pps(value), known, up=up)} packets/s ({own})"

    def _pps(self, value: float) -> float:
        sent = self.sent_pps.get(value)
        if sent is None:
            return value * (self.pps_per or 0.0)
        return float(round(sent)) if sent >= 100 else float(f"{sent:.3g}")

    def distinct(self, one: float, other: float) -> tuple[str, str]:
        """Two loads, with as many digits as tell them apart."""
        known = self.known
        while known >= LEAST_KNOWN and self.at(one, known) == self.at(other, known):
            known /= 10
        return self.at(one, known), self.at(other, known)

    def span(self, low: float, high: float, *, up: bool | None = None) -> str:
        """`4,100 to 4,300 packets/s (4.1X to 4.3X)`; `up`: how both ends are rounded, if not
        outward. Ends that were tried are not, as in `at`."""
        if self.known and {low, high} <= self.sent_pps.keys():
            return replace(self, known=0.0).span(low, high)
        own = self._span(low, high, "X" if self.by == "multiplier" else "", up=up)
        if " to " not in own:
            return self.at(low, up=up)
        if self.by == "pps" or self.pps_per is None:
            return scaled(self.by, own)
        pps = self._span(self._pps(low), self._pps(high), "", up=up)
        return f"{pps} packets/s ({scaled(self.by, own)})"

    def _span(self, low: float, high: float, unit: str, *, up: bool | None) -> str:
        alike = written(low, self.known, up=up), written(high, self.known, up=up)
        ends = alike if up is not None or low == high else ends_words(low, high, self.known)
        return ends[0] if ends[0] == ends[1] else f"{ends[0]}{unit} to {ends[1]}"

    def _sent(self, bound: Bound, *, up: bool, pps: str = "") -> str:
        """Rates that were really sent, those of a carried load in bits as well; empty if they are
        not known."""
        if bound.pps is None:
            return ""
        known = max(self.known, 1e-3)
        bits = "" if up or bound.bps is None else f", {written(bound.bps / 1e6, known)} Mbit/s"
        return f"{pps or written(bound.pps, self.known, up=up)} packets/s{bits}"

    def _joined(self, sent: str, number: str) -> str:
        if not sent:
            return scaled(self.by, number)
        own = "" if self.by == "pps" else f" ({scaled(self.by, number)})"
        return f"{sent}{own}"
