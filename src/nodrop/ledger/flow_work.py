"""Work that a ring's arrivals bring, by flow, and the queue that a part of them makes.

A load is sent in a known order, and everything that was sent came to the only ring in that order:
the work of a short time is that of the packets of known flows. Packets of a flow are taken to cost
about the same, so times with different flows tell their costs apart.

It needs numpy, which a far host lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nodrop.ledger.sent_flows import CostlyFlows, SentFlows
from nodrop.ledger.twin import RingObservation, crossing

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

UNSEEN_RATIO = 0.02
"""Part of the packets sent by which the ring's arrivals may differ: they are in step then."""
ROUNDS = 60
"""Repetitions until what flows cost hardly changes."""
HALF = 0.5
LEAST_PACKETS = 16
"""Looks, and departures in lumps, blur the costs of neighbours by about as many packets."""
SAME = 1e-6
"""Relative difference of two costs that are one."""


@dataclass(frozen=True, slots=True)
class RingArrivals:
    """Packets that come in each short time, with the work they bring."""

    came: Floats
    work_s: Floats
    lasts_s: Floats

    def repeated(self, times: float) -> tuple[RingArrivals, Ints]:
        """The arrivals in less time, and as often as that time then holds them; also the short time
        that each is."""
        every, came = np.arange(len(self.came)), np.flatnonzero(self.came)
        if times > 1 and len(came):
            sent = every[came[0] : came[-1] + 1]
            ends = np.cumsum(self.lasts_s[sent])
            whole, part = divmod(times, 1)
            rest = sent[ends <= part * ends[-1]]
            every = np.concatenate([np.tile(sent, int(whole)), rest])
        some = self.came[every], self.work_s[every], self.lasts_s[every] / times
        return RingArrivals(*some), every

    def levels(self, times: float = 1.0) -> Floats:
        """Packets that wait at the end of each short time in a ring without an end, if `times` as
        many come."""
        came, work = np.cumsum(self.came) * times, np.cumsum(self.work_s) * times
        behind = work - np.cumsum(self.lasts_s)
        undone = behind - np.minimum(0.0, np.minimum.accumulate(behind))
        departed = np.interp(work - undone, np.append(0.0, work), np.append(0.0, came))
        return np.where(undone > 0, came - departed, 0.0)

    @property
    def most_times(self) -> float:
        """Multiple at which the reader has no time left."""
        came, work_s = np.flatnonzero(self.came), self.work_s.sum()
        if not len(came) or not work_s:
            return np.inf
        return float(self.lasts_s[came[0] : came[-1] + 1].sum() / work_s)


def fits_times(
    rings: Sequence[RingArrivals], *, faster: bool, room: Callable[[float], float]
) -> float | None:
    """Multiple of the load that each of the rings just holds, and that leaves each reader time;
    None if it is too far away. `room`: packets that fit into one under a multiple of what came to
    the trial's only ring."""
    whole = sum(ring.came.sum() for ring in rings)

    parts = [float(ring.came.sum() / whole) if len(rings) > 1 else 1.0 for ring in rings]

    def over(times: float) -> float:
        every = zip(rings, parts, strict=True)
        return max(_highest(ring, times, faster) / room(times * part) for ring, part in every) - 1

    held = crossing(over)
    return None if held is None else min(held, *(ring.most_times for ring in rings))


def _highest(ring: RingArrivals, times: float, faster: bool) -> float:
    if faster:
        return float(ring.repeated(times)[0].levels().max(initial=0.0))
    return float(ring.levels(times).max(initial=0.0))


class FlowWork:
    """Work of one trial's packets, in the order in which they were sent."""

    def __init__(self, observation: RingObservation, sent: SentFlows) -> None:
        (queue,) = observation.queues
        self.queue, self.faster, self.sent = queue, observation.faster, sent
        steps = queue.steps
        self.arrivals = RingArrivals(
            np.array([step.came for step in steps]),
            np.array([step.work_s for step in steps]),
            np.array([(step.end_ns - step.begin_ns) / 1e9 for step in steps]),
        )
        self.flow = np.asarray(sent.of_packet, dtype=np.intp)
        self.packets = len(self.flow)
        came = float(self.arrivals.came.sum())
        self.packets_per_arrival = self.packets / came if came else 0.0
        ends = np.cumsum(self.arrivals.came) * self.packets_per_arrival
        at = np.searchsorted(ends, np.arange(self.packets) + 0.5)
        self.step: Ints = np.minimum(at, len(steps) - 1)
        done = np.interp(
            np.arange(self.packets + 1),
            np.append(0.0, ends),
            np.append(0.0, np.cumsum(self.arrivals.work_s)),
        )
        self._alike_s = np.diff(done)

    @property
    def in_step(self) -> bool:
        """Whether what came to the ring is what was sent: packets can be told by their number."""
        return abs(self.packets_per_arrival - 1) <= UNSEEN_RATIO and self.packets > 0

    @cached_property
    def work_s(self) -> Floats:
        """Work of each packet: what packets of its flow cost, so that each stretch has the work
        that was seen."""
        stretch, flows = self._stretches[self.step], len(self.sent.flows) + 1
        stretches = int(self._stretches.max()) + 1
        seen = np.bincount(stretch, self._alike_s, stretches)
        packets = np.maximum(1, np.bincount(self.flow, minlength=flows))
        found = np.full(self.packets, self._alike_s.sum() / max(1, self.packets))
        for _ in range(ROUNDS):
            each = (np.bincount(self.flow, found, flows) / packets)[self.flow]
            guessed = np.bincount(stretch, each, stretches)
            found = each * (seen / np.where(guessed > 0, guessed, np.inf))[stretch]
        return found

    @cached_property
    def _stretches(self) -> Ints:
        """Number of the stretch of each short time, in which what single packets cost was not seen:
        packets seem to cost the same, as nothing departed or nothing waited, or are few."""
        came, work_s = self.arrivals.came, self.arrivals.work_s
        found = np.zeros(len(came), dtype=np.intp)
        number, packets, each = 0, 0.0, 0.0
        for n in np.flatnonzero(came):
            now = work_s[n] / came[n]
            if packets >= LEAST_PACKETS and abs(now - each) > SAME * now:
                number, packets = number + 1, 0.0
            packets, each = packets + came[n], now
            found[n] = number
        return found

    def part(self, weights: Floats) -> RingArrivals:
        """The arrivals of which each packet is there to that part."""
        steps = len(self.arrivals.came)
        came = np.bincount(self.step, weights, steps) / self.packets_per_arrival
        work_s = np.bincount(self.step, weights * self.work_s, steps).astype(np.float64)
        return RingArrivals(came, work_s, self.arrivals.lasts_s)

    def by_flow(self, packets: NDArray[np.bool_]) -> Floats:
        """Work of these packets by flow; the last is that of whatever is no IP."""
        flows = len(self.sent.flows) + 1
        return np.bincount(self.flow[packets], self.work_s[packets], flows).astype(np.float64)

    def within(self, begin: float, end: float) -> CostlyFlows | None:
        """The fewest flows that half of the work goes to of the arrivals from one number to
        another; None if much of it is no flow's."""
        first, last = (round(n * self.packets_per_arrival) for n in (begin, end))
        packets = np.zeros(self.packets, dtype=np.bool_)
        packets[max(0, first) : max(0, last)] = True
        work = self.by_flow(packets)
        order = np.argsort(work[:-1])[::-1]
        enough = np.cumsum(work[order]) >= HALF * work.sum()
        if not work.any() or not enough.any():
            return None
        chosen = order[: int(np.argmax(enough)) + 1]
        kinds: dict[tuple[int, int], float] = {}
        for n in chosen:
            kind = self.sent.flows[n].protocol, self.sent.flows[n].port
            kinds[kind] = kinds.get(kind, 0.0) + float(work[n])
        protocol, port = max(kinds, key=lambda kind: kinds[kind])
        theirs = int((packets & np.isin(self.flow, chosen)).sum())
        return CostlyFlows(flows=len(chosen), packets=theirs, protocol=protocol, port=port)
