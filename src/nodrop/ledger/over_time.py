"""A trial over time: when losses were, whether the sender was late, at which load they began, and
whether the SUT carried that load or its rings only absorbed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from nodrop.config.units import count_of

# Carried, or only absorbed: whether a SUT keeps the pace of a load, or its rings hold the rest.
#
# A SUT that serves u packets/s loses nothing of l packets/s for T seconds as long as (l - u) T fits
# into its rings. So a trial without loss says little by itself. What it does show is a bound on u:
# (N - B) / T, if B of its N packets were still to be done when the last of them came; and N / (T +
# D)
# if they took D seconds more. `sustained` is said only if that bound is l less a small tolerance.
#
# What is left at the end does not say that a SUT is slower than its load: a burst may have come
# last.
# If it was seen to serve that pace for a while, or to have nothing left late in the load, no
# backlog has grown.

TOLERANCE = 0.05
"""The pace that is shown may be lower than the pace offered by this part of it: how closely a SUT
can be looked at."""
SEEN_BEHIND = 0.01
"""A SUT that was seen to be behind by this part, however closely, is not said to keep the pace."""
LATE = 0.5
"""A SUT that had nothing left in this last part of the load was not falling behind all the time."""
LEAST_BUSY_S = 0.25
"""Least time that says how fast the SUT serves what is left."""
LEAST_S = 1.0
"""Least time that says something per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedOff:
    """The backlog when the last packet had come, and how long it took to work off. None = not
    known."""

    packets: int
    """Packets that the SUT decoded: those that were lost kept it from nothing."""
    offered_s: float
    """Time from the first to the last packet."""
    drain_at_least_s: float = 0.0
    """Time after the last packet at which the SUT was still seen at work."""
    drain_at_most_s: float | None = None
    backlog_at_least_packets: int = 0
    backlog_at_most_packets: int | None = None
    fastest_pps: float | None = None
    """The highest rate that the SUT served for a while, by its own counters."""
    rested_s: float | None = None
    """Time after the first packet at which the SUT was last seen with nothing left, while more
    came."""
    rested_packets: int = 0
    """Packets that had arrived by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePace:
    """The evidence that a trial gives of how fast the SUT serves."""

    sustained: bool | None
    """True: it kept the pace, less the tolerance at most. False: it was behind at the end. None:
    neither is shown."""
    service_pps_at_least: float | None
    evidence: str


def pace(seen: WorkedOff) -> ServicePace:
    """Pure: the rule above. The evidence says which bound decided, in figures."""
    if not seen.packets or seen.offered_s <= 0:
        lasted_nothing = "the load lasted no time" if seen.packets else ""
        return ServicePace(sustained=None, service_pps_at_least=None, evidence=lasted_nothing)
    least, most = _kept_at_least(seen), _kept_at_most(seen)
    long = seen.offered_s >= LEAST_S
    sustained: bool | None = None
    if long and least is not None and least >= 1:
        sustained = True  # a burst came last at most: the pace is served, and was
    elif most < 1 - TOLERANCE:
        sustained = None if _caught_up(seen) else False
    elif long and least is not None and least >= 1 - TOLERANCE:
        sustained = True if most >= 1 - SEEN_BEHIND or _rested_late(seen) else None
    served = None if least is None else least * seen.packets / seen.offered_s
    return ServicePace(
        sustained=sustained,
        service_pps_at_least=served,
        evidence=_evidence(seen, sustained, served),
    )


def _kept_at_least(seen: WorkedOff) -> float | None:
    """Share of the pace offered that the SUT kept at least, by the best of the bounds known; None
    if none is."""
    found = []
    if seen.drain_at_most_s is not None:
        found.append(seen.offered_s / (seen.offered_s + seen.drain_at_most_s))
    if seen.backlog_at_most_packets is not None:
        found.append(max(0.0, 1 - seen.backlog_at_most_packets / seen.packets))
    pps = seen.packets / seen.offered_s
    if seen.fastest_pps is not None:
        found.append(seen.fastest_pps / pps)
    if seen.rested_s and seen.rested_packets:
        found.append(seen.rested_packets / seen.rested_s / pps)
        if seen.drain_at_most_s is not None:
            busy_s = seen.offered_s + seen.drain_at_most_s - seen.rested_s
            left = seen.packets - seen.rested_packets
            found.append(left / busy_s / pps if busy_s >= LEAST_BUSY_S else 0.0)
    return None if not found else min(1.0, max(found))


def _caught_up(seen: WorkedOff) -> bool:
    """Whether the backlog at the end need not have grown with the load."""
    if _rested_late(seen):
        return True
    pps = seen.packets / seen.offered_s
    return seen.fastest_pps is not None and seen.fastest_pps >= (1 - TOLERANCE) * pps


def _rested_late(seen: WorkedOff) -> bool:
    return seen.rested_s is not None and seen.rested_s >= (1 - LATE) * seen.offered_s


def _kept_at_most(seen: WorkedOff) -> float:
    by_drain = seen.offered_s / (seen.offered_s + seen.drain_at_least_s)
    return min(by_drain, 1 - min(1.0, seen.backlog_at_least_packets / seen.packets))


def _evidence(seen: WorkedOff, sustained: bool | None, served: float | None) -> str:
    load = f"{count_of(seen.packets, 'packet')} in {duration(seen.offered_s)}"
    if sustained is False:
        behind = []
        if seen.backlog_at_least_packets:
            behind.append(f"{seen.backlog_at_least_packets:,} or more were still to be done")
        if seen.drain_at_least_s:
            behind.append(f"it worked on for {duration(seen.drain_at_least_s)}")
        return f"{load}; after the last of them {' and '.join(behind)}"
    left = []
    if seen.backlog_at_most_packets is not None:
        most = min(seen.backlog_at_most_packets, seen.packets)
        left.append(f"at most {most:,} were left after the last of them")
    if seen.drain_at_most_s is not None:
        left.append(f"worked off within {duration(seen.drain_at_most_s)}")
    if seen.rested_s is not None:
        left.append(f"nothing was left {duration(seen.rested_s)} after the first of them")
    if seen.fastest_pps is not None:
        left.append(f"{seen.fastest_pps:,.0f} packets/s were served for a while")
    if served is None:
        return f"{load}; what was left after the last of them is not known"
    shown = f"{load}; {', '.join(left)}: at least {served:,.0f} packets/s are served"
    if sustained:
        return shown
    short = "less than a second shows no rate" if seen.offered_s < LEAST_S else "too few"
    return f"{shown} ({short})"


def duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 0.95 else f"{seconds:,.1f} s"


def least_duration_s(
    offered_pps: float, *, holds_packets: int | None, rest_seen_s: float | None
) -> float | None:
    """How long a load must last to show that a SUT keeps its pace; None = not known.

    `holds_packets`: the most that can wait in the SUT's rings. `rest_seen_s`: how late it can be
    seen that a SUT has nothing left.
    """
    enough = []
    if holds_packets is not None:
        enough.append(holds_packets / (TOLERANCE * offered_pps))
    if rest_seen_s is not None:
        enough.append(rest_seen_s * (1 - TOLERANCE) / TOLERANCE)
    return max(LEAST_S, min(enough)) if enough else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Packets that one thread of the SUT lost between two readings of its counter."""

    thread: str
    """The SUT's name for the thread; empty if its counters are not kept per thread."""
    begin_mono_ns: int
    """Earliest moment at which they can have been lost: what the counter lags is taken off."""
    end_mono_ns: int
    packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Packets that one thread of the SUT had served and lost, and that waited, at one moment."""

    mono_ns: int
    served: int
    lost: int
    """Packets lost for want of room in its ring. The number may be a reading late."""
    waiting: int
    """Packets in its ring, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderBurst:
    """The sender was late and caught up: packets left back to back that were asked for apart."""

    begin_mono_ns: int
    """The moment at which the first of them left, on the controller's CLOCK_MONOTONIC."""
    end_mono_ns: int
    late_ns: int
    """The largest schedule error among them."""
    packets: int
    """Packets beyond what the schedule asked for within that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReading:
    """Drops since the first packet, as the SUT said at one moment. None = it did not say; each
    figure may be as old as its lag."""

    mono_ns: int
    dropped: int | None
    lag_ns: int = 0
    by_thread: Mapping[str, int] = field(default_factory=dict)
    by_thread_lag_ns: int = 0


def losses(
    readings: Sequence[DropReading], *, begin_ns: int, end_ns: int
) -> tuple[Losses, ...] | None:
    """Windows in which the counters rose; the last reading is the one at rest. Nothing can be lost
    before `begin_ns`, the first packet, or after `end_ns`, when the last one had arrived. None if
    the final counters are not known."""
    if not readings or readings[-1].dropped is None:
        return None
    totals = _windows(
        "",
        [(r.mono_ns, r.lag_ns, r.dropped) for r in readings if r.dropped is not None],
        (begin_ns, end_ns),
    )
    losers = [thread for thread, packets in readings[-1].by_thread.items() if packets]
    if not losers:
        return tuple(totals)
    if len(losers) == 1:
        return tuple(replace(window, thread=losers[0]) for window in totals)
    found = []
    for thread in losers:
        counted = [
            (r.mono_ns, r.by_thread_lag_ns, r.by_thread[thread])
            for r in readings
            if thread in r.by_thread
        ]
        found += [
            _narrowed(window, totals) for window in _windows(thread, counted, (begin_ns, end_ns))
        ]
    return tuple(sorted(found, key=lambda window: window.begin_mono_ns))


def _windows(
    thread: str, counted: Sequence[tuple[int, int, int]], within: tuple[int, int]
) -> list[Losses]:
    begin_ns, end_ns = within
    return [
        Losses(
            thread=thread,
            begin_mono_ns=min(max(begin_ns, then_ns - lag_ns), end_ns),
            end_mono_ns=max(begin_ns, min(now_ns, end_ns)),
            packets=now - before,
        )
        for (then_ns, lag_ns, before), (now_ns, _, now) in pairwise([(begin_ns, 0, 0), *counted])
        if now > before
    ]


def _narrowed(window: Losses, totals: Sequence[Losses]) -> Losses:
    """A thread loses only when the sum rises, and the sum is often reported earlier."""
    meant = [
        total
        for total in totals
        if total.begin_mono_ns < window.end_mono_ns and total.end_mono_ns > window.begin_mono_ns
    ]
    if not meant:
        return window
    return replace(
        window,
        begin_mono_ns=max(window.begin_mono_ns, min(t.begin_mono_ns for t in meant)),
        end_mono_ns=min(window.end_mono_ns, max(t.end_mono_ns for t in meant)),
    )


# The load at which a SUT no longer keeps up, estimated from one trial under a growing load.
#
# A SUT takes C packets a second, and what came beyond that was lost. From the count of the lost and
# from what was sent in each interval C follows, whenever the losses were seen. What its rings still
# held is not in it, so C is too high rather than too low. If nothing was lost, CPU time per packet
# of the busiest thread says where it would have none left.
FULL = 0.95
"""Share of one CPU at which a thread has no time left."""
TELLING = 0.2
"""Least share of one CPU that tells the CPU time of a packet: below that, waking up is most of what
a thread does."""
READINGS = 3
"""Number of last readings that say what a packet takes: the more come at once, the less each one
takes."""
SHORT = 0.8
"""Share of the rate asked for in the end, below which the sender fell short."""
AROUND_NS = 250_000_000
"""Time before a moment over which its rate is taken."""
HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """CPU use of the SUT between two readings, at the middle of that time."""

    mono_ns: int
    cpu_ratio: float
    """Share of one CPU that its busiest thread used, or share of all the CPUs that it may use, if
    that is more: threads that share a CPU are never full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRamp:
    """A trial under a growing load."""

    first_ns: int
    """Time of the first packet."""
    interval_ns: int
    sent: Sequence[int]
    """Packets of each interval from then on."""
    lost: int | None
    """Packets, in the end; None = not known."""
    end_pps: float
    """The rate that was asked for in the end."""
    lossy_ns: tuple[int, int] | None
    """The first packets were lost between these moments; None = none were, as far as is known."""
    busy: Sequence[Busy]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Rates that a ramp has shown, in packets/s as they were sent; None = not seen."""

    clean_pps: float | None
    """The highest rate up to which nothing was lost and no thread was full."""
    lossy_pps: float | None
    """The rate at which packets were lost, at the latest."""
    full_pps: float | None
    """The rate at which the busiest thread had no time left."""
    sender_pps: float | None
    """The most that was sent, if that is less than was asked for."""
    expects_pps: float | None
    """A guess at the rate that the SUT carries."""
    by: Literal["served", "cpu"] | None


def shown(seen: WatchedRamp) -> Shown:
    first = next((one for one in seen.busy if one.cpu_ratio >= FULL), None)
    full_ns = None if first is None else first.mono_ns
    begins = [ns for ns in (full_ns, seen.lossy_ns and seen.lossy_ns[0]) if ns is not None]
    clean_ns = min(begins, default=seen.first_ns + len(seen.sent) * seen.interval_ns)
    served, cpu = _served(seen), _by_cpu(seen)
    return Shown(
        clean_pps=None if seen.lost is None and not seen.busy else _pps(seen, clean_ns) or None,
        lossy_pps=None if seen.lossy_ns is None else _pps(seen, seen.lossy_ns[1]),
        full_pps=None if full_ns is None else _pps(seen, full_ns),
        sender_pps=_sender(seen),
        expects_pps=cpu if served is None else served,
        by="served" if served is not None else "cpu" if cpu is not None else None,
    )


def _pps(seen: WatchedRamp, at_ns: int) -> float:
    end = min(len(seen.sent), max(0, (at_ns - seen.first_ns) // seen.interval_ns))
    begin = max(0, end - max(1, AROUND_NS // seen.interval_ns))
    return sum(seen.sent[begin:end]) / ((end - begin) * seen.interval_ns / 1e9) if end else 0.0


def _sender(seen: WatchedRamp) -> float | None:
    ends = (seen.first_ns + n * seen.interval_ns for n in range(1, len(seen.sent) + 1))
    most = max((_pps(seen, end_ns) for end_ns in ends), default=0.0)
    return most if 0 < most < SHORT * seen.end_pps else None


def _served(seen: WatchedRamp) -> float | None:
    """C, if all that came above it within an interval was too much."""
    if not seen.lost or not seen.sent or seen.lossy_ns is None:
        return None
    low, high = 0.0, float(max(seen.sent))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if sum(max(0.0, sent - middle) for sent in seen.sent) > seen.lost:
            low = middle
        else:
            high = middle
    return high / (seen.interval_ns / 1e9)


def _by_cpu(seen: WatchedRamp) -> float | None:
    says = [
        _pps(seen, one.mono_ns + AROUND_NS // 2) / one.cpu_ratio
        for one in seen.busy
        if TELLING <= one.cpu_ratio < FULL
    ]
    return median(says[-READINGS:]) if says else None
