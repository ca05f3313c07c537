"""Headroom of a capture at work: the multiple of the traffic seen that its rings just hold, as the
twins of a few spells of looks forecast it (ledger/twin.py).

Nobody sends a load here: traffic differs from spell to spell, and the busiest is what counts. Each
spell's twin says which multiple of its own traffic brings the level of the busiest, and which
fills the ring; their ratio is its forecast, and the middle one of all is the answer. A spell is
short, and a large ring outlasts it: no forecast is above the multiple that leaves the reader no
time at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from statistics import median

from nodrop.ledger.twin import (
    FURTHEST,
    Queue,
    Refusal,
    RingObservation,
    TwinRefusal,
    fill,
    limit_times,
    reproduced,
)

MOST_SPELLS = 5
COMPARABLE = 0.5
"""Spells whose highest level is below this part of that of the busiest are not asked."""
LARGER = (65_536, 4)
"""Packets that the larger ring of a forecast holds, and the multiple of this ring; the larger
counts."""


class ForecastSense(StrEnum):
    """Sense in which a forecast is meant."""

    ABOUT = "about"
    AT_LEAST = "at_least"
    """Nothing waited long enough to tell what a packet costs: from the time that the reader ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Multiples of the busiest traffic seen that fit before a ring overflows."""

    times: float
    bound: ForecastSense
    slots: int
    """Packets that the ring holds."""
    larger_slots: int
    larger_times: float | None
    """Multiple that fits into a ring of `larger_slots`; None = not known."""
    spells: int
    """Spells that say it."""


@dataclass(slots=True)
class Spell:
    """A few seconds of looks at the rings of one capture."""

    real_ns: int
    """Beginning of the spell."""
    queues: Sequence[Queue]
    fits: float | Refusal
    excess: float
    """Highest level and loss of the twin, of the slots: without absences of the reader."""
    highest: float
    """Packets, of the ring that is nearest to its limit."""
    slots: int

    @property
    def observation(self) -> RingObservation:
        return RingObservation(load=1.0, queues=self.queues)


def spell_of(real_ns: int, queues: Sequence[Queue]) -> Spell:
    """A spell with what its twin says of its own traffic."""
    observation = RingObservation(load=1.0, queues=queues)
    nearest = max(queues, key=lambda queue: (queue.highest + queue.lost) / queue.slots)
    found = reproduced(observation)
    fits: float | Refusal
    if found is None:
        fits, undisturbed = Refusal(reason=TwinRefusal.NO_QUEUE), 0.0
    else:
        undisturbed = fill(nearest.steps, inf).highest_packets
        times = _fits(observation) if found.close else None
        if times is not None:
            fits = times
        elif found.close:
            fits = Refusal(reason=TwinRefusal.TOO_FAR)
        else:
            fits = Refusal(
                reason=TwinRefusal.NOT_REPRODUCED, measured=found.measured, reproduced=found.twin
            )
    return Spell(
        real_ns=real_ns,
        queues=queues,
        fits=fits,
        excess=undisturbed / nearest.slots,
        highest=undisturbed,
        slots=nearest.slots,
    )


def busiest(spells: Sequence[Spell]) -> list[Spell]:
    """The few that are worth keeping, the busiest first; of those alike, the newest."""
    return sorted(spells, key=lambda spell: (-spell.excess, -spell.real_ns))[:MOST_SPELLS]


def headroom(spells: Sequence[Spell]) -> Headroom | Refusal:
    """Forecast of the busiest of these spells; there is one at least."""
    top, *_ = ranked = busiest(spells)
    near = [spell for spell in ranked if spell.excess >= COMPARABLE * top.excess]
    larger = max(LARGER[0], LARGER[1] * top.slots)
    said = [one for one in near if isinstance(one.fits, float)]
    if 2 * len(said) > len(near):
        found, more = [], []
        for one in said:
            level = max(1, round(top.highest))
            alike = 1.0 if one is top else limit_times(one.observation, level)
            if alike is None or not isinstance(one.fits, float):
                continue
            found.append(one.fits / alike)
            if (times := _fits(one.observation, larger)) is not None:
                more.append(times / alike)
        if found:
            return Headroom(
                times=median(found),
                bound=ForecastSense.ABOUT,
                slots=top.slots,
                larger_slots=larger,
                larger_times=median(more) if more else None,
                spells=len(found),
            )
    why = next((one.fits for one in near if isinstance(one.fits, Refusal)), None)
    why = why or Refusal(reason=TwinRefusal.TOO_FAR)
    if why.reason is TwinRefusal.TOO_FAR:
        return _at_least(FURTHEST, top.slots, larger, len(near))
    if why.reason is TwinRefusal.NO_QUEUE:
        least = min((_least(queue) for one in near for queue in one.queues), default=0.0)
        if least >= 1:
            return _at_least(min(FURTHEST, least), top.slots, larger, len(near))
    return why


def _fits(observation: RingObservation, slots: int | None = None) -> float | None:
    found = min(
        limit_times(observation, slots) or inf, *map(_no_time_left, observation.queues), inf
    )
    return found if found < FURTHEST else None


def _no_time_left(queue: Queue) -> float:
    """Multiple of the traffic under which the reader runs all the time."""
    span_s = (queue.looks[-1].at_ns - queue.looks[0].at_ns) / 1e9
    work_s = sum(step.work_s for step in queue.steps)
    return span_s / work_s if work_s else inf


def _at_least(times: float, slots: int, larger: int, spells: int) -> Headroom:
    return Headroom(
        times=times,
        bound=ForecastSense.AT_LEAST,
        slots=slots,
        larger_slots=larger,
        larger_times=None,
        spells=spells,
    )


def _least(queue: Queue) -> float:
    """Multiple under which the reader still has time left in each of its readings, and the ring
    holds all that comes in two of them. 0 = its thread was not seen, or polls."""
    at = [look.at_ns for look in queue.looks]

    def arrived(ns: int) -> int:
        return queue.looks[min(bisect_left(at, ns), len(at) - 1)].arrived

    shares, came = [0.0], [0]
    for one in queue.reader:
        if one.ran_ns is None:
            return 0.0
        shares.append(one.ran_ns / max(1, one.end_ns - one.begin_ns))
        came.append(arrived(one.end_ns) - arrived(one.begin_ns))
    most = max(before + now for before, now in zip(came, [*came[1:], 0], strict=True))
    if not queue.reader or not most:
        return 0.0
    return min(1 / max(shares) if max(shares) else inf, queue.slots / most)
