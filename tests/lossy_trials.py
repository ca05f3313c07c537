"""Trials of a SUT whose loss curve is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from random import Random
from statistics import median

from nodrop.stats.loss_curve import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class LossySut:
    """Takes 1 of the scale, more or less by trial and by start."""

    noise: float = 0.0
    """Standard deviation of ln C between trials."""
    between_starts: float = 0.0
    one_sided: bool = False
    """Each trial lacks noise x |N(0, 1)|: no log-normal."""
    stalls: float = 0.0
    """Part of the trials that take a tenth less."""
    packets: int = 50_000
    """Packets in a load of 1."""

    def trials(self, n: int, random: Random, *, starts: int = 1, wide: bool = False) -> list[Offer]:
        """Offered as a search does, most of them just above the limits seen, or, if `wide`,
        anything from half to one and a half."""
        found: list[Offer] = []
        for start in range(starts):
            of_start = exp(random.gauss(0, self.between_starts)) if self.between_starts else 1.0
            limits: list[float] = []
            for number in range(n // starts):
                near = median(limits) if limits else random.uniform(0.9, 1.3)
                above = 0.98 if number % 5 == 4 else 1.02 + 0.01 * (number % 3)
                load = random.uniform(0.5, 1.5) if wide else near * above
                sent = round(load * self.packets)
                lost = max(0, round(sent - of_start * self._taken(random) * self.packets))
                limits += [load * (1 - lost / sent)] * bool(lost)
                pps = load * 10_000
                found.append(Offer(pps=pps, loss_ratio=lost / sent, packets=sent, start=start))
        return found

    def _taken(self, random: Random) -> float:
        drawn = random.gauss(0, 1)
        taken = 1 - self.noise * abs(drawn) if self.one_sided else exp(self.noise * drawn)
        return taken * (0.9 if random.random() < self.stalls else 1)
