"""How long the rest of a plan takes, from what the trials so far took."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, pstdev


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    seconds: float
    spread_s: float | None
    """One standard deviation; None where no cell has been measured twice."""


@dataclass(slots=True, kw_only=True)
class Eta:
    """Trials of one cell take about the same time, trials of different cells need not."""

    guess_s: float
    """Per trial, until one has ended."""
    _took: dict[str, list[float]] = field(default_factory=dict)

    def ended(self, cell: str, seconds: float) -> None:
        self._took.setdefault(cell, []).append(seconds)

    def remaining(self, cells: Iterable[str], *, begun_s: float = 0.0) -> Remaining:
        """For the cells of the trials still to be run, one entry per trial; the first of them was
        begun so long ago."""
        ahead = list(cells)
        everything = [s for took in self._took.values() for s in took]
        otherwise = fmean(everything) if everything else self.guess_s
        each = [fmean(self._took[c]) if c in self._took else otherwise for c in ahead]
        seconds = sum(each) - min(begun_s, each[0] if each else 0.0)
        within = [s - fmean(took) for took in self._took.values() if len(took) > 1 for s in took]
        spread = pstdev(within) * math.sqrt(len(ahead)) if within else None
        return Remaining(seconds=seconds, spread_s=spread)
