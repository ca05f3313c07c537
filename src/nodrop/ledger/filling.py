"""The fillings of a ring that led to losses: what filled it, and which packets cost so much.

From the last moment at which the ring was as good as empty to the last loss, more packets came than
departed. The difference is told apart: the reader was kept off its CPU (absence), packets cost more
than this load's usually do (cost), more came at once than usually (burst), or usually more comes
than is served (overload). The few per cent of a CPU that kernel threads and samplers always take
are no absence: a reader that lacks them alone is overloaded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from nodrop.ledger.sent_flows import CostlyFlows
from nodrop.ledger.twin import Gap, Queue

EMPTY = 1 / 32
"""A ring of which less is in use is as good as empty."""
LEAST_ABSENT = 0.1
"""A reader kept off its CPU for less than this part of the time in which it serves as many packets
as its ring holds is not absent."""


class Filler(StrEnum):
    ABSENCE = "absence"
    COST = "cost"
    BURST = "burst"
    OVERLOAD = "overload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Packets that cost more than the others of a filling."""

    begin_s: float
    end_s: float
    """The interval in which they came, after the first packet."""
    first_packet: float
    last_packet: float
    """Their numbers among all that came, those included that found no room."""
    packets: int
    each_us: float
    """Time on its CPU, or asleep, that the reader took for each."""
    usual_us: float
    """Time of each packet of the whole trial."""
    flows: CostlyFlows | None = None
    """Flows that half of the time went to; None = not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """All fillings of a ring in one trial that led to losses."""

    thread: str
    """The thread that reads the ring; empty = not known."""
    spans: Sequence[tuple[int, int]]
    lost: int
    slots: int
    parts: dict[Filler, float]
    """Parts of the packets by which more came than departed; together 1."""
    asleep_ratio: float
    """Part of the time in which packets waited that the reader slept."""
    burst_packets: int
    """Packets that came beyond the usual, in the filling that lost most."""
    serves_pps: float
    """Packets of this load that the reader serves per second on its CPU."""
    served_pps: float
    """Packets per second that departed while others waited."""
    mean_pps: float
    """Packets per second that came, over the whole load."""
    costliest: Moment | None
    """None = in no part of a filling were packets costlier than usually."""


def filling(queue: Queue) -> Filling | None:
    """None if the looks show no loss, or neither what packets cost nor how often they came."""
    gaps = queue.service.gaps
    usual_ns = _usual_ns(queue)
    parts = _fillings(queue)
    if not parts or not usual_ns:
        return None
    mean_ns = _mean_ns(gaps)
    if not mean_ns:
        return None
    every = [_told_apart(queue, part, usual_ns, mean_ns) for part in parts]
    together = {name: sum(one[name] for one in every) for name in Filler}
    over = {name: max(0.0, packets) for name, packets in together.items()}
    whole = sum(over.values())
    if not whole:
        return None
    worst = max(range(len(parts)), key=lambda n: _lost(gaps, parts[n]))
    within = [n for part in parts for n in part]
    queued_ns = sum(gaps[n].ns for n in within if gaps[n].queued)
    asleep_ns = sum(queue.service.asleep_ns[n] for n in within)
    return Filling(
        thread=queue.thread,
        spans=[(gaps[part[0]].begin_ns, gaps[part[-1]].end_ns) for part in parts],
        lost=sum(_lost(gaps, part) for part in parts),
        slots=queue.slots,
        parts={name: packets / whole for name, packets in over.items()},
        asleep_ratio=asleep_ns / queued_ns if queued_ns else 0.0,
        burst_packets=round(max(0.0, every[worst][Filler.BURST])),
        serves_pps=1e9 / usual_ns,
        served_pps=sum(gaps[n].left for n in within if gaps[n].queued) * 1e9 / max(1, queued_ns),
        mean_pps=1e9 / mean_ns,
        costliest=_costliest(queue, parts[worst], usual_ns),
    )


def _lost(gaps: Sequence[Gap], part: range) -> int:
    return sum(gaps[n].came - gaps[n].taken for n in part)


def _fillings(queue: Queue) -> list[range]:
    """Gaps from each moment at which the ring was as good as empty to the last loss before the next
    one."""
    looks, gaps = queue.looks, queue.service.gaps
    found: list[range] = []
    begin = 0
    last: int | None = None
    for n, gap in enumerate(gaps):
        if gap.came > gap.taken:
            last = n
        if looks[n + 1].packets <= max(1.0, EMPTY * queue.slots):
            if last is not None:
                found.append(range(begin, last + 1))
            begin, last = n + 1, None
    if last is not None:
        found.append(range(begin, last + 1))
    return found


def _usual_ns(queue: Queue) -> float:
    """Time that the reader takes for a packet of this load: on its CPU, or, if it sleeps while
    packets wait, at its own pace."""
    service, gaps = queue.service, queue.service.gaps
    bound = max(1.0, EMPTY * queue.slots)
    queued = [
        n
        for n, gap in enumerate(gaps)
        if gap.queued and min(queue.looks[n].packets, queue.looks[n + 1].packets) > bound
    ]
    ns = sum(gaps[n].ns - service.absent_ns[n] for n in queued)
    left = sum(gaps[n].left for n in queued)
    asleep = sum(service.asleep_ns[n] for n in queued)
    if ns and asleep >= ns / 4:
        return ns / left if left else 0.0
    *_, (departed, took) = service.knots(absences=False)
    return took / departed if departed else 0.0


def _mean_ns(gaps: Sequence[Gap]) -> float:
    """Mean time from one arrival to the next."""
    busy = [gap for gap in gaps if gap.came]
    came = sum(gap.came for gap in busy)
    return (busy[-1].end_ns - busy[0].begin_ns) / came


def _told_apart(queue: Queue, part: range, usual_ns: float, mean_ns: float) -> dict[Filler, float]:
    """Packets by which more came than departed, by what made them so many. Together they are the
    level and the losses at the end of a filling; time that the reader usually has left is in it as
    an overload below zero."""
    gaps, absent = queue.service.gaps, queue.service.absent_ns
    found = dict.fromkeys(Filler, 0.0)
    away_ns = _away_ns(queue, part, queue.slots * usual_ns)
    for n in part:
        gap = gaps[n]
        queued = gap.ns - absent[n] if gap.queued else min(gap.ns, gap.left * usual_ns)
        # Time in which nothing waited is no capacity that was lost, nor used.
        served = queued / usual_ns
        comes = gap.ns / mean_ns
        away = away_ns[n] / usual_ns
        found[Filler.ABSENCE] += away
        found[Filler.COST] += served - gap.left
        found[Filler.BURST] += gap.came - comes
        found[Filler.OVERLOAD] += comes - served - away
    return found


def _away_ns(queue: Queue, part: range, ring_ns: float) -> dict[int, float]:
    """Gap → time in which the reader was absent.

    `ring_ns`: time in which it serves a whole ring.
    """
    gaps, absent = queue.service.gaps, queue.service.absent_ns
    away = dict.fromkeys(part, 0.0)
    stretch: list[int] = []
    ns = 0
    for n in part:
        stretch.append(n)
        ns += gaps[n].ns
        if ns < ring_ns and n != part[-1]:
            continue
        if sum(absent[k] for k in stretch) >= LEAST_ABSENT * min(ring_ns, ns):
            away.update({k: absent[k] for k in stretch})
        stretch, ns = [], 0
    return away


def _costliest(queue: Queue, part: range, usual_ns: float) -> Moment | None:
    """The stretch of a filling in which most time went beyond what as many packets usually take."""
    service, gaps = queue.service, queue.service.gaps
    best, best_sum, begin, total = range(0), 0.0, part.start, 0.0
    took = {n: gaps[n].ns - service.absent_ns[n] for n in part if gaps[n].queued}
    for n in part:
        over = took[n] - gaps[n].left * usual_ns if n in took else 0.0
        # Half of the usual time is granted, or a stretch would go on through what is a bit above.
        total += over - 0.5 * gaps[n].ns if n in took else 0.0
        if total <= 0:
            begin, total = n + 1, 0.0
        elif total > best_sum:
            best, best_sum = range(begin, n + 1), total
    packets = sum(gaps[n].left for n in best)
    if not packets or not any(gap.taken for gap in gaps):
        return None  # what departed had been there before the first look
    first = sum(gap.left for gap in gaps[: best.start])
    came_at = _arrivals(gaps)
    begin_s, first_packet = came_at(first)
    end_s, last_packet = came_at(first + packets - 1)
    return Moment(
        begin_s=begin_s,
        end_s=end_s,
        first_packet=first_packet,
        last_packet=last_packet,
        packets=packets,
        each_us=sum(took.get(n, 0.0) for n in best) / packets / 1e3,
        usual_us=usual_ns / 1e3,
    )


def _arrivals(gaps: Sequence[Gap]) -> Callable[[float], tuple[float, float]]:
    """Number of a packet that found room → seconds after the first one at which it came, and its
    number among all that came."""
    busy = [gap for gap in gaps if gap.taken]
    taken = [0, *accumulate(gap.taken for gap in busy)]
    before = [
        came - gap.came
        for gap, came in zip(gaps, accumulate(g.came for g in gaps), strict=True)
        if gap.taken
    ]

    def came_at(packet: float) -> tuple[float, float]:
        n = min(max(0, bisect_right(taken, packet) - 1), len(busy) - 1)
        gap = busy[n]
        part = (packet - taken[n]) / gap.taken
        at_ns = gap.begin_ns + part * gap.ns
        return max(0.0, at_ns - busy[0].begin_ns) / 1e9, before[n] + part * gap.came

    return came_at
