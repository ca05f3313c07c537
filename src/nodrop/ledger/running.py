"""How the SUT ran while the load was offered, and what came meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from nodrop.ledger.imbalance import FlowSizes
from nodrop.ledger.over_time import Losses, Served
from nodrop.ledger.shares import Spans
from nodrop.ledger.threads import Role
from nodrop.ledger.timeline import ThreadTime, Timeline

WINDOW_NS = 500_000_000
"""A rate over less is not that of a SUT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyThread:
    """The SUT's busiest thread while the load was offered."""

    name: str
    cpu_ratio: float
    """Share of one CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Packets that the sender sent, in equal intervals."""

    first_ns: int
    interval_ns: int
    packets: Sequence[int]
    steady: bool = False
    """A constant rate was asked for, and kept: no bursts are in it."""
    peaks: Sequence[tuple[int, int]] = ()
    """(ns, packets): so many came within so short a time, once or more."""

    @property
    def mean_pps(self) -> float:
        """From the first packet to the last, to the interval."""
        seconds = len(self.packets) * self.interval_ns / 1e9
        return sum(self.packets) / seconds if seconds else 0.0

    @property
    def usual_pps(self) -> float:
        """A burst now and then does not change it."""
        return median(self.packets or (0,)) / self.interval_ns * 1e9

    def within(self, begin_ns: float, end_ns: float) -> float:
        found = 0.0
        for n, packets in enumerate(self.packets):
            begin = self.first_ns + n * self.interval_ns
            part = min(end_ns, begin + self.interval_ns) - max(begin_ns, begin)
            found += packets * max(0.0, part) / self.interval_ns
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How the SUT ran while the load was offered. None = not measured."""

    offered_ns: tuple[int, int]
    timeline: Timeline
    losses: Sequence[Losses] | None = None
    served: Mapping[str, int] = field(default_factory=dict)
    """Packets by thread, as the SUT names it."""
    over_time: Mapping[str, Sequence[Served]] = field(default_factory=dict)
    """By thread; empty if the SUT's counters are not read often enough for it."""
    throttled: Sequence[tuple[int, float]] = ()
    """(when, seconds so far, summed over CPUs) the SUT was not let run for want of its CPU quota or
    one above it: several threads wait more than a second in a second."""
    arrivals: Arrivals | None = None
    ring_packets: int | None = None
    """Packets that the ring of one thread holds."""
    roles: Mapping[int, Role] = field(default_factory=dict)
    """Thread id → what it is for, as the SUT says."""
    flow_sizes: FlowSizes | None = None
    """Flow sizes of the load."""
    steal_ratio: float | None = None
    """Share of the time of the SUT's CPUs, or of the sender's, that the hypervisor took: the larger
    of the two."""

    def fastest_pps(self) -> float | None:
        """Served by all threads together over `WINDOW_NS` or longer, in the last half of the load
        and after it; None if their counters are not read so often."""
        half_ns = sum(self.offered_ns) // 2
        served: dict[int, list[int]] = {}
        for readings in self.over_time.values():
            for one in readings:
                if one.mono_ns >= half_ns:
                    served.setdefault(one.mono_ns, []).append(one.served)
        totals = [(ns, sum(s)) for ns, s in sorted(served.items()) if len(s) == len(self.over_time)]
        rates = []
        for n, (then_ns, then) in enumerate(totals):
            later = next(((ns, s) for ns, s in totals[n:] if ns >= then_ns + WINDOW_NS), None)
            if later is not None:
                rates.append((later[1] - then) / (later[0] - then_ns) * 1e9)
        return max(rates, default=None)

    def last_rest(self) -> tuple[float, int] | None:
        """Seconds after the first packet, and what had come by then: the last look, while the load
        lasted, at which each thread that packets wait for slept in poll, which it does only if it
        has nothing left. One that sleeps for another reason may have much; so may one that lost
        packets, whose count is not that of what came."""
        if self.arrivals is None or self.losses:
            return None
        begin_ns, end_ns = self.arrivals.first_ns, self.offered_ns[1]
        needed = [tid for tid, role in self.roles.items() if role in (Role.RECEIVE, Role.WORKER)]
        for interval in reversed(self.timeline.intervals):
            if interval.end_ns > end_ns or not needed:
                continue
            if interval.begin_ns <= begin_ns:
                return None
            times = [interval.threads.get(tid) for tid in needed]
            if all(t is not None and _waits_for_packets(t) for t in times):
                came = self.arrivals.within(begin_ns, interval.begin_ns)
                return (interval.end_ns - begin_ns) / 1e9, round(came)
        return None

    def throttled_ns(self, spans: Spans) -> float:
        return sum(self._throttled_by(e) - self._throttled_by(b) for b, e in spans) * 1e9

    def _throttled_by(self, at_ns: int) -> float:
        before = (0, 0.0)
        for when, seconds in self.throttled:
            if when >= at_ns:
                part = (at_ns - before[0]) / (when - before[0]) if before[0] else 1.0
                return before[1] + part * (seconds - before[1])
            before = (when, seconds)
        return before[1]


def _waits_for_packets(time: ThreadTime) -> bool:
    return time.states[1] == "S" and "poll" in time.sleeps_in


AFTERMATH_NS = 100_000_000
"""A ring that a theft has filled overflows until the thread has caught up."""
TIMES = 2
"""Losses that a theft explains, in multiples of what came during it: as much again may be lost
while the ring empties."""


def lost_beyond_steal(
    running: Running, host: Timeline, cpus: frozenset[int], until_ns: int
) -> int | None:
    """Packets that the SUT lost at moments at which none of these CPUs of the host was taken, or
    more than came at the load's mean rate in `TIMES` the time that was. The kernel counts that time
    in ticks of 10 ms. None if it is not known when packets were lost, or came."""
    if running.losses is None or running.arrivals is None or not host.intervals:
        return None
    beyond = 0.0
    for window in _closer(running.losses, running.over_time, until_ns):
        stolen_ns = sum(
            interval.cpus[cpu].stolen_ns
            for interval in host.intervals
            if interval.end_ns > window.begin_mono_ns - AFTERMATH_NS
            and interval.begin_ns < window.end_mono_ns
            for cpu in cpus & interval.cpus.keys()
        )
        beyond += max(0.0, window.packets - TIMES * stolen_ns / 1e9 * running.arrivals.mean_pps)
    return round(beyond)


def _closer(
    losses: Sequence[Losses], over_time: Mapping[str, Sequence[Served]], until_ns: int
) -> Iterable[Losses]:
    """The losses by the SUT's own readings, if those are more frequent: each may be a reading late,
    and what came after the last of them was lost at the end."""
    for thread in dict.fromkeys(window.thread for window in losses):
        of_thread = [window for window in losses if window.thread == thread]
        left, readings = sum(window.packets for window in of_thread), over_time.get(thread, ())
        if not readings or readings[-1].lost > left:
            yield from of_thread
            continue
        lost, begins = 0, [readings[0].mono_ns] * 2
        for reading in readings:
            if reading.lost > lost:
                yield Losses(
                    thread=thread,
                    begin_mono_ns=begins[-2],
                    end_mono_ns=reading.mono_ns,
                    packets=reading.lost - lost,
                )
            lost, begins = max(lost, reading.lost), [begins[-1], reading.mono_ns]
        if left > lost:
            end_ns = max(until_ns, begins[-1])
            yield Losses(
                thread=thread, begin_mono_ns=begins[-2], end_mono_ns=end_ns, packets=left - lost
            )
