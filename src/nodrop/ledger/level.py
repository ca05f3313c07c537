"""Level of the SUT's capture rings over a trial: how full they became, when, and for how long.

A ring is filled by what the SUT has not worked off. Its highest level and the packets that found no
room are one figure on both sides of the limit: (highest level + lost) / slots is below 1 where the
ring held everything, and above where it did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import ClassVar

from nodrop.ledger.quantities import PART, Count, NotNegative, Seconds

HEADER_BYTES = 82
"""Approximate bytes that a packet takes in a block of a TPACKET_V3 ring beside its frame: struct
tpacket3_hdr, the socket's address and the alignment of both."""
HALF, NINETY = 0.5, 0.9


@dataclass(frozen=True, slots=True)
class RingLook:
    """One ring at one moment."""

    at_ns: int
    packets: int
    """Packets that waited for the reader."""
    full: int
    """Frames or, of TPACKET_V3, blocks in use."""
    arrived: int
    """Packets that came to the ring since the first look, dropped ones included."""
    dropped: int
    """Packets that found the ring full since the first look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLooks:
    """A capture ring and all looks at it, in the order of time."""

    slots: int | None
    """Packets that fit; None = packets share blocks (TPACKET_V3)."""
    blocks: int
    block_bytes: int
    looks: Sequence[RingLook] = field(default_factory=tuple)
    counted: bool = True
    """The kernel counted arrivals and drops at each look. False = their looks have none of them."""

    @property
    def places(self) -> int:
        """Frames or blocks of the ring."""
        return self.blocks if self.slots is None else self.slots

    def slots_of_full_blocks(self, mean_frame_bytes: float) -> int:
        return max(1, int(self.blocks * self.block_bytes / (mean_frame_bytes + HEADER_BYTES)))


ROOMY_SLOTS = 32_768
"""Places of the larger ring that is advised: half a second of 65,000 packets/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersFit:
    """Load that several workers would hold, each with a CPU and a ring of its own."""

    __pydantic_config__: ClassVar = PART

    workers: Count
    fits_times: NotNegative
    """Multiple of the trial's load, the middle of several deals of its flows to the workers: which
    worker a flow falls to is not known."""
    low_times: NotNegative
    """The worst of these deals."""
    high_times: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutFlow:
    """Load that the ring would hold without the flow that most work of its fullest filling goes
    to."""

    __pydantic_config__: ClassVar = PART

    flow: str
    """Protocol and both ends."""
    kind: str
    """`TCP port 80`."""
    packets_ratio: NotNegative
    """Part of all packets."""
    work_ratio: NotNegative
    """Part of all work."""
    fits_times: NotNegative
    """Multiple of the trial's load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLevel:
    """Level of the SUT's capture ring that came nearest to its limit, or went furthest beyond."""

    __pydantic_config__: ClassVar = PART

    rings: Count
    """Capture rings that were watched."""
    slots: Count
    """Packets that fit into it, as its blocks were filled when it was fullest."""
    highest_packets: Count
    highest_ratio: NotNegative
    """Frames or blocks in use of all, when it was fullest."""
    at_s: Seconds
    """The moment at which the rings were fullest, after the first packet sent."""
    trace_s: Seconds | None = None
    """Moment of `at_s` by the clock of the trace; null if that is not known."""
    above_half_s: Seconds
    """Seconds in which more than half of it was in use."""
    above_ninety_s: Seconds
    lost_packets: Count
    """Packets that found it full."""
    excess: NotNegative
    """(Highest level + lost) / slots: 1 at the limit of what the ring holds."""
    looks: Count
    longest_gap_s: Seconds
    """Longest time between two looks."""
    fits_times: NotNegative | None = None
    """Multiple of this load that the rings just hold on an undisturbed host, as a queue with the
    costs of this trial's packets predicts it (ledger/twin.py); null if that queue does not show
    what the trial showed."""
    roomy_fits_times: NotNegative | None = None
    """Multiple of this load that a ring of 32,768 packets just holds."""
    workers_fit: tuple[WorkersFit, ...] = ()
    """More workers in place of one; () if the trial had several, or its flows are not known."""
    without: WithoutFlow | None = None
    """Null as above, or if most work of the fullest filling is no IP flow's."""


def level(
    rings: Sequence[RingLooks],
    *,
    span_ns: tuple[int, int],
    dropped: int | None,
    mean_frame_bytes: float,
) -> QueueLevel | None:
    """Level within a span of time; None if no look fell into it. `dropped`: packets that found any
    ring full, as the SUT counts them at rest. The looks share them out, as a ring's own count lacks
    what came just before its owner read it."""
    within = [_within(ring, span_ns) for ring in rings]
    seen = [ring for ring in within if ring.looks]
    lost = _shared(seen, dropped)
    found = [
        _of_ring(ring, lost[n], len(rings), span_ns[0], mean_frame_bytes)
        for n, ring in enumerate(seen)
    ]
    return max(found, key=lambda one: one.excess, default=None)


def _within(ring: RingLooks, span_ns: tuple[int, int]) -> RingLooks:
    begin_ns, end_ns = span_ns
    looks = tuple(look for look in ring.looks if begin_ns <= look.at_ns <= end_ns)
    return replace(ring, looks=looks)


def _shared(rings: Sequence[RingLooks], dropped: int | None) -> list[int]:
    own = [ring.looks[-1].dropped - ring.looks[0].dropped for ring in rings]
    if dropped is None or not rings:
        return own
    if not sum(own):
        # Nobody saw where: then the fullest ring has them.
        fullest = max(range(len(rings)), key=lambda n: _peak(rings[n]).full / rings[n].places)
        return [dropped if n == fullest else 0 for n in range(len(rings))]
    return [round(dropped * mine / sum(own)) for mine in own]


def _peak(ring: RingLooks) -> RingLook:
    return max(ring.looks, key=lambda look: (look.full, look.packets))


def _of_ring(
    ring: RingLooks, lost: int, rings: int, begin_ns: int, mean_frame_bytes: float
) -> QueueLevel:
    peak, looks = _peak(ring), ring.looks
    slots = ring.slots or _slots_of_blocks(ring, peak, mean_frame_bytes)
    highest = max(peak.packets, 1 if peak.full else 0)
    used = peak.full / ring.places
    return QueueLevel(
        rings=rings,
        slots=slots,
        highest_packets=highest,
        highest_ratio=used,
        at_s=max(0, peak.at_ns - begin_ns) / 1e9,
        above_half_s=_above(ring, HALF),
        above_ninety_s=_above(ring, NINETY),
        lost_packets=lost,
        excess=(highest + lost) / slots,
        looks=len(looks),
        longest_gap_s=max((b.at_ns - a.at_ns for a, b in pairwise(looks)), default=0) / 1e9,
    )


def _slots_of_blocks(ring: RingLooks, peak: RingLook, mean_frame_bytes: float) -> int:
    """Packets that a ring of shared blocks holds: so many as its full blocks had when it was
    fullest, since a block closes before it is full if packets come slowly."""
    if peak.full > 1:
        return max(1, round(peak.packets / peak.full * ring.blocks))
    return ring.slots_of_full_blocks(mean_frame_bytes)


def _above(ring: RingLooks, share: float) -> float:
    """Seconds from each look above that share to the next one."""
    pairs = pairwise(ring.looks)
    return sum(b.at_ns - a.at_ns for a, b in pairs if a.full > share * ring.places) / 1e9
