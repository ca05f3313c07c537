"""Exact queues, packet by packet, and looks at their rings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from nodrop.ledger.level import RingLook
from nodrop.ledger.twin import Queue, Reader, RingObservation, Sends

MS = 1_000_000
Cost = Callable[[float], float]
"""Second of the trace → seconds that a packet of that moment takes."""


BLOCK_S = 0.01
"""A block of packets is closed so long after its first one, if it is not full before."""


@dataclass(frozen=True, slots=True)
class Served:
    """Fate of each packet that came."""

    came: Sequence[float]
    """When the accepted ones came."""
    closed: Sequence[float]
    """When the reader could have them: at once, or when their blocks were closed."""
    begins: Sequence[float]
    leaves: Sequence[float]
    back: Sequence[float]
    """When their places were free again: at once, or when the last of the block was served."""
    lost: Sequence[float]
    """When the others came."""
    highest: int


def serve(
    arrivals: Sequence[tuple[float, float]],
    slots: int,
    away: Sequence[tuple[float, float]] = (),
    block: int = 1,
) -> Served:
    """One server, `slots` places, the one in service included. `arrivals`: (second, cost). `away`:
    spans in which it does not run. `block`: so many packets share a block; then nothing is lost."""
    closed = _closed([at for at, _ in arrivals], block)
    waiting: deque[float] = deque()
    begins, leaves, came, lost, given = [], [], [], [], []
    free_at, highest = 0.0, 0
    for (at, cost), ready in zip(arrivals, closed, strict=True):
        while waiting and waiting[0] <= at:
            waiting.popleft()
        if len(waiting) >= slots:
            lost.append(at)
            continue
        begin = max(free_at, ready)
        free_at = _ends(begin, cost, away)
        waiting.append(free_at)
        begins.append(begin)
        leaves.append(free_at)
        came.append(at)
        given.append(ready)
        highest = max(highest, len(waiting))
    assert block == 1 or not lost
    last = dict(zip(given, leaves, strict=True))
    back = [last[ready] for ready in given] if block > 1 else leaves
    return Served(came, given, begins, leaves, back, lost, highest)


def _closed(came: Sequence[float], block: int) -> Sequence[float]:
    if block == 1:
        return came
    found: list[float] = []
    first = 0
    for n, at in enumerate(came):
        full, late = n - first == block, at > came[first] + BLOCK_S
        if full or late:
            found += [at if full else came[first] + BLOCK_S] * (n - first)
            first = n
    return found + [came[first] + BLOCK_S] * (len(came) - first)


def _ends(begin: float, cost: float, away: Sequence[tuple[float, float]]) -> float:
    for start, end in away:
        if end <= begin:
            continue
        if start >= begin + cost:
            break
        begin, cost = end, cost - max(0.0, start - begin)
    return begin + cost


def arrivals(packets: Sequence[float], cost: Cost, times: int) -> list[tuple[float, float]]:
    """Replicas at once of a trace whose packets come at those seconds."""
    return [(at, cost(at)) for at in packets for _ in range(times)]


def looks(served: Served, *, every_ms: float = 1.0, block: int = 1) -> list[RingLook]:
    """Looks at the ring, until it is empty."""
    found = []
    for n in range(int((max(served.back) + 0.02) * 1e3 / every_ms)):
        at = n * every_ms / 1e3
        accepted, lost = bisect_right(served.came, at), bisect_right(served.lost, at)
        back = bisect_right(served.back, at)
        waiting = bisect_right(served.closed, at) - back
        found.append(
            RingLook(int(at * 1e9), accepted - back, -(-waiting // block), accepted + lost, lost)
        )
    return found


def reader(
    served: Served, away: Sequence[tuple[float, float]] = (), every_ms: int = 100
) -> list[Reader]:
    """Rows of a sampler: the thread ran from the begin of each packet to its end, less the time
    away, in which it was ready to run."""
    end_ms = int(max(served.leaves) * 1e3) + every_ms
    starts, ends = served.begins, served.leaves
    busy = [0.0, *accumulate(end - begin for begin, end in zip(starts, ends, strict=True))]

    def done(at: float) -> float:
        n = bisect_left(ends, at)
        return busy[n] + (max(0.0, at - starts[n]) if n < len(starts) else 0.0)

    rows = []
    for begin in range(0, end_ms, every_ms):
        then, now = begin / 1e3, (begin + every_ms) / 1e3
        off = sum(max(0.0, min(e, now) - max(b, then)) for b, e in away)
        ran = max(0.0, done(now) - done(then) - off)
        rows.append(
            Reader(
                begin_ns=begin * MS,
                end_ns=(begin + every_ms) * MS,
                ran_ns=ran * 1e9,
                kept_off_ns=off * 1e9,
            )
        )
    return rows


def sends(came: Sequence[tuple[float, float]]) -> Sends:
    bins = [0] * (int(came[-1][0] * 1e3) + 1)
    for at, _ in came:
        bins[int(at * 1e3)] += 1
    return Sends(first_ns=0, bin_ns=MS, packets=bins)


def queue(
    came: Sequence[tuple[float, float]],
    slots: int,
    *,
    every_ms: float = 1.0,
    block: int = 1,
    away: Sequence[tuple[float, float]] = (),
) -> Queue:
    served = serve(came, slots, away, block)
    return Queue(
        slots=slots,
        most_slots=slots if block > 1 else None,
        looks=looks(served, every_ms=every_ms, block=block),
        reader=reader(served, away),
        lost=len(served.lost),
        sends=sends(came),
    )


def trial(
    packets: Sequence[float],
    cost: Cost,
    times: int,
    slots: int,
    *,
    every_ms: float = 1.0,
    block: int = 1,
    away: Sequence[tuple[float, float]] = (),
) -> RingObservation:
    made = queue(arrivals(packets, cost, times), slots, every_ms=every_ms, block=block, away=away)
    return RingObservation(load=float(times), queues=[made])


def highest(packets: Sequence[float], cost: Cost, times: int) -> int:
    """Packets that would wait at most in a ring without an end."""
    return serve(arrivals(packets, cost, times), 1 << 40).highest
