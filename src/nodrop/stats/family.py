"""All that a report infers at once, and what each part of it may err.

The error of a report is shared evenly among its parts (Bonferroni), so nothing is assumed about
how its figures hang together. Half of it is kept for later looks: each time the runs of a cell have
doubled, half of what is left is spent. So a report may be repeated with more runs until it answers,
once per doubling, and all of these reports together err at most as often as one was allowed to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodrop.stats.interval import CONFIDENCE, Interval, median_interval, median_rank

SECOND_LOOK = 20
"""Runs of a cell from which on a report is a second look; 40 is a third, 80 a fourth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    parts: int
    """One for the median of each figure of each cell, and one test for the shares of lossy runs of
    each pair of cells."""
    look: int | None = None
    """From 0, if looks are counted and each is taken once; None counts doublings of the runs."""

    def error(self, n: int) -> float:
        """The error allowed to one part that rests on n runs."""
        look = (n // SECOND_LOOK).bit_length() if self.look is None else self.look
        return (1 - CONFIDENCE) * 0.5 ** (look + 1) / self.parts

    def median(self, values: Sequence[float]) -> Interval | None:
        return median_interval(values, confidence=1 - self.error(len(values)))

    def runs_needed(self, rank: int = 1) -> int:
        """Fewest runs of each cell whose medians have intervals that leave out `rank` runs less one
        at either end."""
        n = 1
        while median_rank(n, self.error(n))[0] < rank:
            n += 1
        return n
