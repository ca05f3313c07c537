"""Loads that a trial's only ring would hold with more workers, or without a flow.

Which worker a flow falls to depends on a key that the kernel draws when it boots, and nobody knows:
flows are dealt out many times, by seeds, and the middle is said with the spread.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from nodrop.ledger.flow_work import Floats, FlowWork, RingArrivals, fits_times
from nodrop.ledger.level import WithoutFlow, WorkersFit
from nodrop.ledger.sent_flows import kind_of

WORKERS = (2, 4)
DEALS = 15


def with_workers(work: FlowWork, workers: int) -> WorkersFit | None:
    """The load that so many workers hold together, each with a CPU and a ring of its own."""
    found = []
    for seed in range(DEALS):
        rings = [work.part(weights) for weights in _dealt(work, workers, seed)]
        times = fits_times(rings, faster=work.faster, room=work.queue.room)
        if times is None:
            return None
        found.append(times)
    return WorkersFit(
        workers=workers, fits_times=median(found), low_times=min(found), high_times=max(found)
    )


def _dealt(work: FlowWork, workers: int, seed: int) -> Iterator[Floats]:
    """Part of each packet that falls to each worker. More load is more replicas of a trace, whose
    flows fall anew; a trace sent faster has the same flows."""
    flows = len(work.sent.flows) + 1
    copies = np.asarray(work.sent.copy_of_packet, dtype=np.intp)
    _, conversation = np.unique(copies * flows + work.flow, return_inverse=True)
    replicas = 1 if work.faster else workers
    deal = np.random.default_rng(seed)
    share = np.full(workers, 1 / workers)
    fallen = deal.multinomial(replicas, share, size=int(conversation.max()) + 1) / replicas
    for worker in range(workers):
        yield fallen[:, worker][conversation]


def without_flow(work: FlowWork, now_times: float) -> WithoutFlow | None:
    """The load that the ring holds without the flow that most work of its fullest filling goes to.
    `now_times`: what it holds with it."""
    by_flow = work.by_flow(_filling(work, now_times))
    chosen = int(np.argmax(by_flow))
    if chosen == len(work.sent.flows) or not by_flow[chosen]:
        return None
    flow, rest = work.sent.flows[chosen], work.flow != chosen
    if not rest.any():
        return None
    left = work.part(rest.astype(np.float64))
    if work.faster:
        # At even gaps, the others move up into the gaps that are free.
        came, whole = left.came, work.arrivals.came
        moved = np.divide(came, whole, out=np.ones_like(whole), where=whole > 0)
        left = RingArrivals(came, left.work_s, left.lasts_s * moved)
    times = fits_times([left], faster=work.faster, room=work.queue.room)
    if times is None:
        return None
    return WithoutFlow(
        flow=flow.name,
        kind=kind_of(flow.protocol, flow.port),
        packets_ratio=1 - float(rest.mean()),
        work_ratio=1 - float(work.work_s[rest].sum() / work.work_s.sum()),
        fits_times=times,
    )


def _filling(work: FlowWork, times: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Packets that came from the last moment at which nothing waited to that at which the ring is
    fullest."""
    if work.faster:
        arrivals, steps = work.arrivals.repeated(times)
        levels = arrivals.levels()
    else:
        levels, steps = work.arrivals.levels(times), np.arange(len(work.arrivals.came))
    fullest = int(np.argmax(levels))
    empty = np.flatnonzero(levels[:fullest] <= 0)
    begin = int(empty[-1]) + 1 if len(empty) else 0
    return np.isin(work.step, steps[begin : fullest + 1])
