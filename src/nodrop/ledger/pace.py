"""How many packets a thread serves in a second, from its own counters while packets waited.

Its CPU time does not say that: a thread that sleeps between packets uses little and serves few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodrop.ledger.over_time import Served

SHORTEST_NS = 50_000_000
"""Packets are counted some at a time: a shorter interval says little."""
WAITING_PART = 0.25
"""Least part of a ring that shows waiting: packets that wait at both ends of an interval waited in
between as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Served per second."""

    at_least_pps: float
    at_most_pps: float | None
    """None: never seen while packets waited all the time, so it may be able to serve more."""


def fastest_pps(readings: Sequence[Served]) -> float | None:
    """Rate served in the best interval, in packets/s; None without an interval that is long enough.
    A host that keeps the thread from nothing lets it serve that all the time, or more. It may have
    been catching up then, and be no faster alone."""
    rates = [
        (now.served - then.served) / (now.mono_ns - then.mono_ns) * 1e9
        for then, now in pairwise(readings)
        if now.mono_ns - then.mono_ns >= SHORTEST_NS
    ]
    return max(rates, default=None)


def pace_of(readings: Sequence[Served], ring_packets: int) -> Pace | None:
    """None if nothing was read over time."""
    fastest = served = ns = 0.0
    for n, (then, now) in enumerate(pairwise(readings)):
        took_ns = now.mono_ns - then.mono_ns
        if took_ns < SHORTEST_NS:
            continue
        packets = now.served - then.served
        fastest = max(fastest, packets / took_ns * 1e9)
        # The counter of losses may be a reading late.
        later = readings[min(n + 2, len(readings) - 1)]
        waiting = min(then.waiting, now.waiting)
        if later.lost > then.lost and waiting >= max(2, WAITING_PART * ring_packets):
            served, ns = served + packets, ns + took_ns
    if ns:
        return Pace(at_least_pps=served / ns * 1e9, at_most_pps=served / ns * 1e9)
    return Pace(at_least_pps=fastest, at_most_pps=None) if fastest else None
