"""A made-up thread with a ring of packets that it serves at a set rate: what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from nodrop.ledger.over_time import Served
from nodrop.testing.threads import BEGIN_NS

STEP_S = 0.0005
READ_S = 0.5
"""How often its losses are asked for while packets come."""


@dataclass(slots=True, kw_only=True)
class Queue:
    """`rate(s)`: packets per second that come at that moment."""

    rate: Callable[[float], float]
    serves_pps: float
    ring_packets: int
    seconds: float = 3.0
    stalls: Callable[[float], bool] = lambda _: False
    """Whether it is kept off its CPU at that moment."""
    phase_s: float = 0.0
    """Its first reading is so long after the first packet."""
    came: list[int] = field(init=False)
    """Per tick of 0.1 s."""
    over_time: list[Served] = field(init=False)
    losses: list[tuple[float, float, int]] = field(init=False)
    """(from, to, packets)"""
    served: int = field(init=False)

    def __post_init__(self) -> None:
        self.over_time, ticks = [], [0.0] * round(self.seconds * 10)
        waiting = served = lost = 0.0
        lost_by = [0.0]
        per_tick, per_look = round(0.1 / STEP_S), round(READ_S / STEP_S)
        steps, phase = round((self.seconds + 1) / STEP_S), round(self.phase_s / STEP_S)
        for n in range(steps + 1):
            if n % per_tick == phase:
                at_ns = BEGIN_NS + round(n * STEP_S * 1e9)
                self.over_time.append(
                    Served(mono_ns=at_ns, served=int(served), lost=int(lost), waiting=int(waiting))
                )
            if n and n % per_look == 0:
                lost_by.append(lost)
            came = self.rate(n * STEP_S) * STEP_S if n * STEP_S < self.seconds else 0.0
            if n < len(ticks) * per_tick:
                ticks[n // per_tick] += came
            can = 0.0 if self.stalls(n * STEP_S) else self.serves_pps * STEP_S
            done = min(waiting + came, can)
            over = max(0.0, waiting + came - done - self.ring_packets)
            waiting, served, lost = waiting + came - done - over, served + done, lost + over
        self.came, self.served = [round(packets) for packets in ticks], round(served)
        self.losses = [
            (n * READ_S, (n + 1) * READ_S, round(now - then))
            for n, (then, now) in enumerate(pairwise(lost_by))
            if round(now - then)
        ]


def bursts(
    every_s: float, lasts_s: float, pps: float, *, between: float = 0.0
) -> Callable[[float], float]:
    """`between`: packets per second that always come."""

    def rate(at_s: float) -> float:
        # Half a step of room: floats.
        within = (at_s + STEP_S / 2) % every_s < lasts_s
        return between + (pps if within else 0.0)

    return rate
