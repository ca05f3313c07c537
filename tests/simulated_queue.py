"""SUTs behind a ring whose level is read: what fills it, and how much, is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nodrop.ledger.level import QueueLevel
from nodrop.measure.controllers.blocks import TrialInput
from nodrop.results.trial import Ramp, Searched, TrialRecord
from tests.made import outcome_runs

PACKETS_PER_S = 10_000.0
"""Rate of a load of 1."""
SHOWN_BEHIND = 0.01
BEHIND = 0.05
"""Parts of the time of a load: worked on for longer, the pace is not shown, or not kept
(ledger/over_time.py)."""


@dataclass(kw_only=True)
class SimulatedQueue:
    """Serves `rate` of the scale. Packets of a costly or crowded moment wait in its ring: of those
    that come in `moment_s` at each of the moments it serves `moment_rate` of the scale."""

    rate: float
    slots: int
    moment_s: float = 0.0
    moment_rate: float = 0.0
    moments: int = 1
    noise: float = 0.0
    """One-sided: |N(0, 1)| times this part of the rates is missing in a trial."""
    spread: float = 0.02
    """Standard deviation of the highest level, as a part of it."""
    thefts_per_s: float = 0.0
    """The hypervisor takes its CPU so often, 10 ms each, which the steal of the trial shows."""
    stalls: tuple[float, float] = (0.0, 0.0)
    """Part of the trials with a stall at their fullest moment, and its seconds; nothing shows
    it."""
    modes: tuple[float, float] = (0.0, 1.0)
    """This part of the trials is served so much of the rates."""
    drift: Callable[[int], float] = field(default=lambda index: 1.0)
    """Factor of a trial's rates."""
    random: Random = field(default_factory=lambda: Random(1))

    def capacity(self, index: int = 0, seconds: float = 5.0) -> float:
        """Load of a whole trial that it just carries undisturbed: no packet lost, and the pace
        kept."""
        low, high = 0.0, 10 * self.rate
        for _ in range(60):
            middle = (low + high) / 2
            lost, _, behind = self._filled(middle, seconds, self.drift(index))
            good = not lost and behind <= SHOWN_BEHIND * middle * PACKETS_PER_S * seconds
            low, high = (middle, high) if good else (low, middle)
        return low

    def least(self, index: int) -> float:
        """Load that it carries at this trial, or that its weaker ones do."""
        return self.capacity(index) * (self.modes[1] if self.modes[0] else 1.0)

    def _filled(
        self, x: float, seconds: float, served: float, stall_s: float = 0.0
    ) -> tuple[float, float, float]:
        """Lost packets, the highest level without a bound, and what is left at the end."""
        pps = x * PACKETS_PER_S
        slow, fast = (
            self.moment_rate * served * PACKETS_PER_S,
            self.rate * served * PACKETS_PER_S,
        )
        grown = max(0.0, pps - fast) * seconds
        moment = max(0.0, pps - slow) * self.moment_s
        whole = moment + pps * stall_s
        lost = max(0.0, whole - self.slots) + (self.moments - 1) * max(0.0, moment - self.slots)
        lost = max(lost, grown - self.slots, 0.0)
        return lost, max(whole, grown, pps * 2e-4), min(grown, self.slots)

    def measure(self, trial: TrialInput) -> TrialRecord:
        assert trial.searched is not None
        asked, random = trial.searched, self.random
        served = self.drift(trial.index) * (1 - self.noise * abs(random.gauss(0, 1)))
        if self.modes[0] and random.random() < self.modes[0]:
            served *= self.modes[1]
        common: dict[str, Any] = {
            "cell": dict(trial.cell),
            "repetition": trial.repetition,
            "index": trial.index,
            "run": trial.run_name,
            "took_s": asked.duration_s + 2.0,
            "searched": asked,
        }
        seconds = asked.duration_s
        thefts = sum(random.random() < self.thefts_per_s / 100 for _ in range(int(seconds * 100)))
        stall_s = self.stalls[1] if random.random() < self.stalls[0] else 0.0
        # A theft adds to the fullest moment only if it comes then.
        hit = thefts and random.random() < min(1.0, thefts * (0.02 + self.moment_s) / seconds)
        stall_s += 0.01 if hit else 0.0
        if asked.ramp is not None:
            return self._ramped(common, asked, served)
        pps = asked.value * PACKETS_PER_S
        lost, whole, left = self._filled(asked.value, seconds, served, stall_s)
        whole *= max(0.5, 1 + self.spread * random.gauss(0, 1))
        lost = max(0.0, whole - self.slots) if abs(whole - self.slots) < 0.2 * self.slots else lost
        sent = round(pps * seconds)
        return self._record(
            common, sent=sent, lost=min(round(lost), sent), whole=whole, left=left,
            served=served * self.rate * PACKETS_PER_S, steal=thefts * 0.01 / seconds,
            stolen_packets=round(0.01 * pps) if hit else 0,
            fits_times=self._twin(asked.value, seconds, served, whole / self.slots),
        )  # fmt: skip

    def _twin(self, value: float, seconds: float, served: float, excess: float) -> float | None:
        """Multiple of the load at which the ring just holds, too high where few packets waited."""
        if excess < 0.05:
            return None
        low, high = 0.0, 10 * self.rate
        for _ in range(40):
            middle = (low + high) / 2
            _, whole, _ = self._filled(middle, seconds, served)
            low, high = (middle, high) if whole <= self.slots else (low, middle)
        wrong = 1 + max(0.0, 0.3 * (0.7 - excess))
        return low / value * wrong * (1 + self.spread * self.random.gauss(0, 1))

    def _record(
        self,
        common: dict[str, Any],
        *,
        sent: int,
        lost: int,
        whole: float,
        left: float,
        served: float,
        steal: float,
        stolen_packets: int = 0,
        fits_times: float | None = None,
    ) -> TrialRecord:
        seconds = common["searched"].duration_s
        decoded, drain_s = sent - lost, left / served
        share = seconds / (seconds + drain_s)
        kept = False if share < 1 - BEHIND else True if share >= 1 - SHOWN_BEHIND else None
        made = outcome_runs.trial(
            **common,
            outcome="measured",
            valid=True,
            verdict=f"{lost / sent:.3%} lost" if lost else "no loss",
            invalid_reasons=[],
            offered_packets=sent,
            offered_pps=sent / seconds,
            offered_bps=sent / seconds * 8000,
            duration_s=seconds,
            decoded_packets=decoded,
            lost_packets=lost,
            loss_ratio=lost / sent,
            **({"loss_place": "socket ring", "knob": "sut.ring_size"} if lost else {}),
            sustained=None if lost and kept else kept,
            service_pps_at_least=decoded / (seconds + drain_s),
            steal_ratio=steal or None,
            lost_beyond_steal_packets=max(0, lost - stolen_packets) if steal else None,
        )
        highest = min(round(whole), self.slots)
        queue = QueueLevel(
            rings=1,
            slots=self.slots,
            highest_packets=highest,
            highest_ratio=highest / self.slots,
            at_s=seconds if left else seconds / 2,
            above_half_s=self.moment_s if highest > self.slots / 2 else 0.0,
            above_ninety_s=self.moment_s if highest > 0.9 * self.slots else 0.0,
            lost_packets=lost,
            excess=(highest + lost) / self.slots,
            looks=1250,
            longest_gap_s=0.005,
            fits_times=fits_times,
        )
        body = made.packets.model_copy(update={"queue": queue})
        return made.model_copy(update={"body": body})

    def _ramped(self, common: dict[str, Any], asked: Searched, served: float) -> TrialRecord:
        """Even gaps: it expects what the mean packet costs, more than a costly moment allows."""
        assert asked.ramp is not None
        rate = self.rate * served
        full = min(asked.value, rate)
        ramp = Ramp(
            start=asked.ramp.start,
            clean_to=full,
            lossy_from=full * 1.05 if asked.value > rate else None,
            expects=rate if asked.value > rate else None,
            expects_by="served" if asked.value > rate else None,
        )
        common["searched"] = asked.model_copy(update={"ramp": ramp})
        sent = round(asked.value / 4 * PACKETS_PER_S * asked.duration_s)
        lost = round(max(0.0, 1 - rate / asked.value) * sent / 2)
        return self._record(
            common, sent=sent, lost=lost, whole=lost + self.slots if lost else self.slots / 2,
            left=0.0, served=rate * PACKETS_PER_S, steal=0.0,
        )  # fmt: skip
