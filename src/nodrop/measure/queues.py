"""Queues in front of the SUT in one trial: looks at its rings, and the threads that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from nodrop.ledger.level import ROOMY_SLOTS, QueueLevel, RingLook, RingLooks
from nodrop.ledger.sent_flows import SentFlows
from nodrop.ledger.thread_times import TAKEN, Spans, ThreadTimeline, Went, each_interval
from nodrop.ledger.twin import (
    QUEUED,
    Queue,
    Reader,
    RingObservation,
    Sends,
    limit_times,
    reproduced,
)
from nodrop.protocol import SentProfile
from nodrop.testbed.suts.api import SutCounters

if TYPE_CHECKING:
    from nodrop.ledger.flow_work import FlowWork

FULL_RATIO = 0.98
"""Part of a ring in use at two looks from which on it may have lost packets in between."""
UNSEEN_RATIO, UNSEEN_PACKETS = 0.02, 20
"""Arrivals that the looks at a ring may lack. Its owner's own reading of the socket's counters sets
them back: what came since the look before is in no look."""
KEPT_OFF = tuple(went for went in TAKEN if went is not Went.SOFTIRQ)
"""Interrupts take packets in: they are a part of what a packet costs."""


AT_ONCE = 64
"""A worker that polls takes 32 packets at a time (Suricata's BURST_SIZE), whose places are free
before it works on them. As many come meanwhile, and more, without a queue."""


def queues(
    rings: Sequence[RingLooks],
    *,
    span_ns: tuple[int, int],
    slots: int,
    mean_frame_bytes: float,
    seen: ThreadTimeline,
    counters: SutCounters,
    sent: SentProfile | None,
    clock_offset_ns: int,
    throttled_ns: Callable[[Spans], float],
    polls: bool = False,
) -> Sequence[Queue]:
    """`slots`: packets that fit where packets share blocks; `throttled_ns`: held by a quota within
    spans of time; `polls`: the threads run without packets, too."""
    sends = None
    if sent is not None and sent["packets"]:
        sends = Sends(
            first_ns=sent["first_mono_ns"] + clock_offset_ns,
            bin_ns=sent["bin_ns"],
            packets=sent["packets"],
        )
    begin_ns, end_ns = span_ns
    found = []
    for ring, thread in zip(rings, _threads(rings, counters, seen), strict=True):
        looks = [look for look in ring.looks if begin_ns <= look.at_ns <= end_ns]
        counted = counters.per_thread.get(thread or "", {})
        lost = counted.get("dropped_ring_full_packets")
        came = counted.get("captured_packets")
        if len(rings) == 1:
            lost, came = counters.dropped_ring_full_packets, counters.captured_packets
        lost = counters.dropped_ring_full_packets if lost is None else lost
        if not ring.counted or (came is not None and _lacks(looks, came)):
            looks = by_sends(ring, looks, sends, lost or 0) if len(rings) == 1 else []
        if len(looks) < 2:
            continue
        queue = Queue(
            slots=ring.slots or slots,
            most_slots=None
            if ring.slots
            else max(slots, ring.slots_of_full_blocks(mean_frame_bytes)),
            looks=looks,
            reader=_reader(seen, thread, throttled_ns, polls=polls),
            lost=lost if lost is not None else looks[-1].dropped - looks[0].dropped,
            sends=sends,
            thread=thread or "",
            busy_from=max(QUEUED, min(AT_ONCE, (ring.slots or 0) // 8)) if polls else QUEUED,
        )
        found.append(queue)
    return found


def _lacks(looks: Sequence[RingLook], came: int) -> bool:
    """Whether the looks have fewer arrivals than the SUT counted at rest."""
    seen = looks[-1].arrived - looks[0].arrived if looks else 0
    return came - seen > max(UNSEEN_PACKETS, UNSEEN_RATIO * came)


def by_sends(
    ring: RingLooks, looks: Sequence[RingLook], sends: Sends | None, lost: int
) -> list[RingLook]:
    """Looks at the only ring, whose arrivals could not be counted beside its owner, with what the
    sender sent until then: a veth delivers at once. Lost packets fall into the times in which the
    ring was full, by what came in them. Empty without the times of the sender."""
    if sends is None or not looks:
        return []
    sent = [0, *accumulate(sends.packets)]

    def until(at_ns: int) -> float:
        bins = min(max(0.0, (at_ns - sends.first_ns) / sends.bin_ns), len(sends.packets))
        whole = int(bins)
        part = bins - whole
        return sent[whole] + part * (sent[min(whole + 1, len(sends.packets))] - sent[whole])

    came = [until(look.at_ns) for look in looks]
    full = [
        after - before if FULL_RATIO * ring.places <= max(a.full, b.full) else 0.0
        for (a, b), (before, after) in zip(pairwise(looks), pairwise(came), strict=True)
    ]
    dropped = [0.0, *accumulate(full)]
    each = lost / dropped[-1] if dropped[-1] else 0.0
    return [
        replace(look, arrived=round(n), dropped=round(each * d))
        for look, n, d in zip(looks, came, dropped, strict=True)
    ]


def _threads(
    rings: Sequence[RingLooks], counters: SutCounters, seen: ThreadTimeline
) -> Sequence[str | None]:
    """Names of the threads that read the rings: the more packets came to a ring, the more its
    thread had. Where the SUT does not count by thread, the thread that ran most reads the only
    ring."""
    had = {
        name: counted["captured_packets"]
        for name, counted in counters.per_thread.items()
        if "captured_packets" in counted
    }
    if len(had) != len(rings):
        tid = seen.ran_most(((0, 1 << 63),))
        alone = len(rings) == 1 and tid is not None
        return [seen.names[tid] if alone and tid is not None else None] * len(rings)
    by_packets = sorted(range(len(rings)), key=lambda n: _arrived(rings[n]))
    names = sorted(had, key=lambda name: had[name])
    found: list[str | None] = [None] * len(rings)
    for n, name in zip(by_packets, names, strict=True):
        found[n] = name
    return found


def _arrived(ring: RingLooks) -> int:
    return ring.looks[-1].arrived if ring.looks else 0


def _reader(
    seen: ThreadTimeline, thread: str | None, throttled_ns: Callable[[Spans], float], *, polls: bool
) -> Sequence[Reader]:
    tid = None if thread is None else seen.find(thread)
    if tid is None:
        return ()
    return [
        Reader(
            begin_ns=interval.begin_ns,
            end_ns=interval.end_ns,
            ran_ns=None if polls else (spent.of[Went.RAN] + spent.of[Went.SOFTIRQ]) * interval.ns,
            kept_off_ns=sum(spent.of[went] for went in KEPT_OFF) * interval.ns,
        )
        for interval, spent in each_interval(seen, tid, throttled_ns)
    ]


WHAT_IF_FROM, WHAT_IF_TO = 1 / 1.6, 1.6
"""Multiples of a trial's load within which its limit must lie for what it would be with other
workers or flows."""


def forecast(
    seen: QueueLevel,
    queues: Sequence[Queue],
    *,
    faster: bool,
    sent_flows: Callable[[], SentFlows | None],
    hands_on: bool = False,
) -> QueueLevel:
    """The level with the multiples of the load that its rings, larger ones, several workers' and
    the rest of its flows just hold on an undisturbed host, as the trial's own twin says. Without
    them if the twin does not reproduce the trial, or nothing waited. `hands_on`: the thread that
    reads the ring has workers behind it, and more of them get no rings."""
    observation = RingObservation(load=1.0, queues=queues, faster=faster)
    found = reproduced(observation) if queues else None
    if found is None or not found.close:
        return seen
    larger = seen.slots < ROOMY_SLOTS
    fits = limit_times(observation)
    told = replace(
        seen,
        fits_times=fits,
        roomy_fits_times=limit_times(observation, ROOMY_SLOTS) if larger else None,
    )
    if seen.rings != 1 or fits is None or not WHAT_IF_FROM <= fits <= WHAT_IF_TO:
        return told
    work = flow_work(queues, faster=faster, sent=sent_flows())
    if work is None:
        return told
    from nodrop.ledger import what_if

    return replace(
        told,
        workers_fit=()
        if hands_on
        else tuple(
            fit for n in what_if.WORKERS if (fit := what_if.with_workers(work, n)) is not None
        ),
        without=what_if.without_flow(work, fits),
    )


def flow_work(queues: Sequence[Queue], *, faster: bool, sent: SentFlows | None) -> FlowWork | None:
    """Work of the only ring's packets by flow. None if there are several rings, if the flows that
    were sent are not known, or others came; and on a far host, which has no numpy."""
    if sent is None or len(queues) != 1:
        return None
    try:
        from nodrop.ledger.flow_work import FlowWork
    except ImportError:
        return None
    found = FlowWork(RingObservation(load=1.0, queues=queues, faster=faster), sent)
    return found if found.in_step else None
