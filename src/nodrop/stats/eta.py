"""How long the rest of a plan takes, from what the trials so far took."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodrop.config.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    trials: int
    seconds: float
    spread_s: float | None
    """One standard deviation; None if no cell has been measured twice."""

    @property
    def words(self) -> str:
        """`1 min 10 s ± 4 s`."""
        spread = f" ± {format_seconds(self.spread_s)}" if self.spread_s is not None else ""
        return f"{format_seconds(self.seconds)}{spread}"


@dataclass(slots=True)
class _Took:
    """The time that trials of one cell took. Sums only: a run of any length costs the same."""

    n: int = 0
    mean_s: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean (Welford)."""

    def add(self, seconds: float) -> None:
        self.n += 1
        before = seconds - self.mean_s
        self.mean_s += before / self.n
        self.squares += before * (seconds - self.mean_s)


@dataclass(slots=True, kw_only=True)
class Eta:
    """Trials of one cell take about the same time, trials of different cells need not."""

    guess_s: float
    """Per trial, until one has ended."""
    _took: dict[str, _Took] = field(default_factory=dict)
    _all: _Took = field(default_factory=_Took)

    def ended(self, cell: str, seconds: float) -> None:
        self._took.setdefault(cell, _Took()).add(seconds)
        self._all.add(seconds)

    def remaining(
        self, ahead: Mapping[str, int], *, begun: str | None = None, begun_s: float = 0.0
    ) -> Remaining:
        """For so many trials of each cell; the one of cell `begun` was begun so long ago."""
        seconds = sum(n * self._each_s(cell) for cell, n in ahead.items())
        if begun is not None and ahead.get(begun):
            seconds -= min(begun_s, self._each_s(begun))
        repeated = [took for took in self._took.values() if took.n > 1]
        spread = None
        if repeated:
            variance = sum(t.squares for t in repeated) / sum(t.n for t in repeated)
            spread = math.sqrt(variance * sum(ahead.values()))
        return Remaining(trials=sum(ahead.values()), seconds=seconds, spread_s=spread)

    def _each_s(self, cell: str) -> float:
        if cell in self._took:
            return self._took[cell].mean_s
        return self._all.mean_s if self._all.n else self.guess_s
