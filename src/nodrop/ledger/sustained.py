"""Carried, or only absorbed: whether a SUT keeps the pace of a load, or its rings hold the rest.

A SUT that serves u packets/s loses nothing of l packets/s for T seconds as long as (l - u) T fits
into its rings. So a trial without loss says little by itself. What it does show is a bound on u:
(N - B) / T, if B of its N packets were still to be done when the last of them came; and N / (T + D)
if they took D seconds more. `sustained` is said only if that bound is l less a small tolerance.

What is left at the end does not say that a SUT is slower than its load: a burst may have come last.
If it was seen to serve that pace for a while, or to have nothing left late in the load, no
backlog has grown.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodrop.config.units import count_of

TOLERANCE = 0.05
"""The pace that is shown may be lower than the pace offered by this part of it: how closely a SUT
can be looked at."""
SEEN_BEHIND = 0.01
"""A SUT that was seen to be behind by this part, however closely, is not said to keep the pace."""
LATE = 0.5
"""A SUT that had nothing left in this last part of the load was not falling behind all the time."""
LEAST_BUSY_S = 0.25
"""From less than that nothing is said of how fast it serves what is left."""
LEAST_S = 1.0
"""From less than a second nothing is said per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedOff:
    """The backlog when the last packet had come, and how long it took to work off. None = not
    known."""

    packets: int
    """Packets that the SUT decoded: those that were lost kept it from nothing."""
    offered_s: float
    """From the first to the last packet."""
    drain_at_least_s: float = 0.0
    """It was seen at work so long after the last packet."""
    drain_at_most_s: float | None = None
    backlog_at_least_packets: int = 0
    backlog_at_most_packets: int | None = None
    fastest_pps: float | None = None
    """It served so many a second for a while, by its own counters."""
    rested_s: float | None = None
    """So long after the first packet it was last seen with nothing left, while more came."""
    rested_packets: int = 0
    """Packets that had arrived by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The evidence that a trial gives of how fast the SUT serves."""

    sustained: bool | None
    """True: it kept the pace, less the tolerance at most. False: it was behind at the end. None:
    neither is shown."""
    service_pps_at_least: float | None
    evidence: str


def pace(seen: WorkedOff) -> Pace:
    """Pure: the rule above. The evidence says which bound decided, in figures."""
    if not seen.packets or seen.offered_s <= 0:
        lasted_nothing = "the load lasted no time" if seen.packets else ""
        return Pace(sustained=None, service_pps_at_least=None, evidence=lasted_nothing)
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
    return Pace(
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
