"""How the SUT ran while the load was offered, for the verdict: from the rows of the samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path

from nodrop.ledger.imbalance import FlowSizes
from nodrop.ledger.over_time import Losses
from nodrop.ledger.running import Arrivals, Running
from nodrop.ledger.threads import Role
from nodrop.ledger.timeline import CpuTime, Timeline, timeline
from nodrop.load.seam import OfferedLoad, TraceFacts
from nodrop.measure.sampling import by_our_clock, rows_of_processes
from nodrop.protocol.events import SampleRow
from nodrop.suts.seam import SutCounters
from nodrop.untrusted.reading import making_sense

STEADY_ROOM = 0.5
"""A sender that catches up with no more than this part of what the ring holds makes no burst."""


def choose(host: Timeline, inside: Iterable[Timeline], threads: Iterable[str]) -> Timeline:
    """That of the machine in which these threads run: a guest's own kernel has their time; this
    host has it as its emulator's."""
    seen = [one for one in inside if any(one.find(thread) is not None for thread in threads)]
    return seen[0] if seen else host


def running(
    seen: Timeline,
    offered: OfferedLoad,
    *,
    offered_ns: tuple[int, int],
    losses: Sequence[Losses] | None,
    counters: SutCounters,
    throttled: Sequence[tuple[int, float]],
    holds_packets: int | None,
    constant_rate: bool,
    clock_offset_ns: int,
    steal_ratio: float | None,
    role: Callable[[str], Role | None],
    flow_sizes: FlowSizes | None,
    peaks: Sequence[tuple[int, int]] = (),
) -> Running:
    decoded = "decoded_packets"
    threads = max(1, sum("dropped_ring_full_packets" in t for t in counters.per_thread.values()))
    ring_packets = None if holds_packets is None else holds_packets // threads
    return Running(
        offered_ns=offered_ns,
        timeline=seen,
        losses=losses,
        served={name: t[decoded] for name, t in counters.per_thread.items() if decoded in t},
        over_time=counters.over_time,
        throttled=throttled,
        arrivals=_arrivals(
            offered, clock_offset_ns, ring_packets if constant_rate else None, peaks
        ),
        ring_packets=ring_packets,
        roles={tid: found for tid, name in seen.names.items() if (found := role(name))},
        flow_sizes=flow_sizes,
        steal_ratio=steal_ratio,
    )


def peaks(trace: TraceFacts, offered: OfferedLoad) -> Sequence[tuple[int, int]]:
    """(ns, packets): sent within so short a time where the trace is densest. Of one replica, as
    others need not peak with it; no faster than the sender lets packets leave."""
    if trace.peak_demand is None:
        return ()
    fastest = inf if offered.shaped_pps is None else offered.shaped_pps
    of_one = trace.raw["peak_demand"]
    return tuple(
        (ms * 1_000_000, int(min(packets, fastest * ms / 1e3)))
        for ms, packets in ((1, of_one["packets_in_1_ms"]), (10, of_one["packets_in_10_ms"]))
    )


def _arrivals(
    offered: OfferedLoad,
    clock_offset_ns: int,
    steady_into: int | None,
    peaks: Sequence[tuple[int, int]],
) -> Arrivals | None:
    """`steady_into`: what the ring holds, if a constant rate was asked for."""
    done, first_ns = offered.achieved, offered.first_sent_mono_ns
    if not done or first_ns is None:
        return None
    late_ns = max(done["largest_error_ns"], default=0)
    at_once = late_ns * max(done["packets"], default=0) / done["interval_ns"]
    return Arrivals(
        first_ns=first_ns + clock_offset_ns,
        interval_ns=done["interval_ns"],
        packets=tuple(done["packets"]),
        peaks=peaks,
        steady=steady_into is not None and at_once <= STEADY_ROOM * steady_into,
    )


def steal_ratio(host: Timeline, span: tuple[int, int], *cpus: frozenset[int]) -> float | None:
    """Of each of these sets of CPUs the part that the hypervisor gave to others; the largest."""
    found = [_part(host, span, some, lambda cpu: cpu.stolen_ns) for some in cpus]
    return max((ratio for ratio in found if ratio is not None), default=None)


def foreign_ratio(
    host: Timeline, span: tuple[int, int], cpus: frozenset[int], sender_cpu_s: float | None
) -> float | None:
    """Of the CPUs that the SUT may use: what neither it nor the sender used, as far as threads used
    it. A softirq is no other program: it does the receive half of the SUT's own packets, in the
    time of whichever thread it interrupts (on a veth the sender's) or in none's. `sender_cpu_s` is
    of use if the sender's threads were not seen: then all of it may have been on those CPUs."""
    threads = _part(host, span, cpus, lambda cpu: cpu.threads_ns)
    softirq = _part(host, span, cpus, lambda cpu: cpu.softirq_ns)
    if threads is None or softirq is None:
        return None
    seen = any(interval.sender for interval in host.intervals)
    ours, time = 0.0 if seen else (sender_cpu_s or 0.0) * 1e9, 0.0
    for interval in host.intervals:
        part = interval.part((span,))
        time += interval.ns * part * len(cpus & interval.cpus.keys())
        known = [*interval.threads.values(), *interval.sender.values()]
        ours += part * sum(t.ran_ns for t in known if t.cpu in cpus)
    # The kernel counts in ticks, so that a short load may seem to have more than all.
    return max(0.0, min(1.0, threads, threads + softirq - ours / time)) if time else None


def _part(
    host: Timeline,
    span: tuple[int, int],
    cpus: frozenset[int],
    of: Callable[[CpuTime], float],
) -> float | None:
    used = time = 0.0
    for interval in host.intervals:
        part = interval.part((span,))
        for cpu in cpus & interval.cpus.keys():
            time += interval.ns * part
            used += part * of(interval.cpus[cpu])
    return used / time if time else None


def read_timeline(path: Path, clock_offset_ns: int = 0) -> Timeline:
    """Of a sampler's file, by the controller's clock."""
    with making_sense(str(path)):
        return of_rows(rows_of_processes(path), clock_offset_ns)


def of_rows(rows: Sequence[SampleRow], clock_offset_ns: int = 0) -> Timeline:
    return timeline(by_our_clock(rows, clock_offset_ns))
