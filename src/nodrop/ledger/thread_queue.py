"""The queue of one thread of the SUT: what came to it, what it serves, what its ring holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodrop.ledger.over_time import Served
from nodrop.ledger.running import Arrivals, Running
from nodrop.ledger.shares import Shares, Spans, Went, shares
from nodrop.ledger.timeline import Interval

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


SATURATED_SHARE = 0.9
"""The tick in which the kernel accounts is 4 ms; a busy thread shows a little less than all."""
SLEEPS_SHARE = 0.25
"""A thread that sleeps so much while packets are lost had time left."""
PACE_MARGIN = 1.05
"""A pace is known no better than that, and a host is not cleared by what may be its noise."""
LONE_STALL_NS = 500_000_000
"""If it is not known what the ring holds: this long without the thread overflows any ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQueue:
    running: Running
    thread: str
    tid: int
    lost: int

    @property
    def share(self) -> float:
        """Share of all packets that came to this thread; 1 if that is not known."""
        served, losses = self.running.served, self.running.losses or ()
        every = sum(served.values()) + sum(window.packets for window in losses)
        mine = served.get(self.thread, 0) + self.lost
        return mine / every if served and every else 1.0

    @property
    def mean_pps(self) -> float:
        arrivals = self.running.arrivals
        return self.share * arrivals.mean_pps if arrivals else 0.0

    def holds(self, together: Sequence[Interval]) -> float | None:
        """Packets that the ring holds of those that come meanwhile; None if that could be all."""
        if self.running.ring_packets is not None:
            return self.running.ring_packets
        return 0.0 if sum(i.ns for i in together) >= LONE_STALL_NS else None

    def shares(self, spans: Spans) -> Shares | None:
        """Shares of the thread's time within spans; None if it was not seen there."""
        return shares(self.running.timeline, self.tid, spans, self.running.throttled_ns(spans))

    def capacity_pps(self) -> float | None:
        """Served per second on a CPU."""
        whole = self.shares((self.running.offered_ns,))
        ran_s = whole.of[Went.RAN] * whole.ns / 1e9 if whole else 0.0
        served = self.running.served.get(self.thread)
        return served / ran_s if served and ran_s else None

    def pace(self) -> Pace | None:
        """Measured; of a SUT that is not read often enough, by the CPU time that a packet takes:
        then it must not sleep while packets wait."""
        readings, ring = self.running.over_time.get(self.thread), self.running.ring_packets
        if readings:
            return pace_of(readings, ring) if ring is not None else None
        capacity = self.capacity_pps()
        return Pace(at_least_pps=SATURATED_SHARE * capacity, at_most_pps=None) if capacity else None

    def alone_pps(self, found: Shares) -> float | None:
        """Packets/s that the thread would serve if nothing kept it off its CPU, rather too many
        than too few: by its readings if it sleeps while packets wait, else by its CPU time. None =
        not known."""
        if found.of[Went.SLEPT] >= SLEEPS_SHARE:
            return fastest_pps(self.running.over_time.get(self.thread, ()))
        return self.capacity_pps()

    def lost_anyway(self, found: Shares, spans: Spans) -> tuple[float, float] | None:
        """(part, packets/s): of what it lost, the part that it would have lost with its CPU for
        itself, and what it would have served then. None if that pace is not known."""
        serves, arrivals = self.alone_pps(found), self.running.arrivals
        if serves is None or arrivals is None or not self.lost:
            return None
        overflow = self._overflow_packets(PACE_MARGIN * serves, arrivals, spans)
        return min(1.0, overflow / self.lost), serves

    def _overflow_packets(self, serves_pps: float, arrivals: Arrivals, spans: Spans) -> float:
        """Packets that overflow the ring of a server of that pace, counted from the first packet.
        If it is not known what the ring holds: the excess of what came in the windows of loss."""
        ring = self.running.ring_packets
        if ring is None:
            came = self.share * sum(arrivals.within(begin, end) for begin, end in spans)
            seconds = sum(end - begin for begin, end in spans) / 1e9
            return max(0.0, came - serves_pps * seconds)
        waiting = overflow = 0.0
        for packets in arrivals.packets:
            served = serves_pps * arrivals.interval_ns / 1e9
            waiting = max(0.0, waiting + self.share * packets - served)
            overflow += max(0.0, waiting - ring)
            waiting = min(waiting, ring)
        return overflow

    def more_at_once(self, pace: Pace, spans: Spans) -> float | None:
        """By so many packets more came than it serves meanwhile, if its ring does not hold them."""
        arrivals, ring = self.running.arrivals, self.running.ring_packets
        if arrivals is None or ring is None or arrivals.steady:
            return None
        serves = pace.at_least_pps / 1e9
        over = most = 0.0
        for n, packets in enumerate(arrivals.packets):
            at = arrivals.first_ns + n * arrivals.interval_ns
            came = self.share * packets
            if any(b < at + arrivals.interval_ns and e > at for b, e in spans):
                over = max(over + came - serves * arrivals.interval_ns, 0.0)
                most = max(most, over)
        for ns, packets in arrivals.peaks:
            most = max(most, self.share * packets - serves * ns)
        return most if most > ring else None
