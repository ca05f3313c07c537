"""The SUT and its threads while the load was offered: how each ran, and how evenly work fell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from math import log, sqrt
from statistics import median
from typing import Annotated, ClassVar

from pydantic import Field

from nodrop.config.units import noun
from nodrop.ledger.filling import Filling
from nodrop.ledger.over_time import Losses, Served
from nodrop.ledger.quantities import PART, AtLeastOne, Count, NotNegative, Packets, Text
from nodrop.ledger.thread_times import Spans, ThreadTime, ThreadTimeline

# The reason why work falls unevenly to threads that share it by flow, judged from the flows'
# sizes.
UNEVEN = 0.1
"""The busiest has this much more than its share."""
MOST = 0.5
RARE = 0.01
"""A fair hash makes more than `by_chance` once in a hundred times, or less often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowShares:
    """How the packets of the load fall to its flows."""

    __pydantic_config__: ClassVar = PART

    flows: Count
    effective_flows: AtLeastOne
    """Number of flows of equal size that would spread over threads as unevenly."""
    largest_ratio: Annotated[float, Field(strict=True, gt=0, le=1)]
    """Share of the packets in the largest flow."""
    same_copies: AtLeastOne = 1.0
    """Copies of each flow that were sent as the same flow."""

    @property
    def distinct(self) -> FlowShares:
        """The sizes if each copy were a flow of its own."""
        copies = self.same_copies
        return FlowShares(
            flows=round(self.flows * copies),
            effective_flows=self.effective_flows * copies,
            largest_ratio=self.largest_ratio / copies,
        )


class Makes(StrEnum):
    """The reason why work falls unevenly to threads; EVEN if it does not."""

    EVEN = "even"
    ONE_FLOW = "one_flow"
    SAME_FLOWS = "same_flows"
    FEW_FLOWS = "few_flows"
    NOT_THE_SIZES = "not_the_sizes"
    """A fair hash would hardly do it to flows of these sizes."""
    NOT_BY_FLOW = "not_by_flow"
    COST = "cost"
    """Packets fall evenly, and CPU time does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    makes: Makes
    words: str


def by_chance(sizes: FlowShares, threads: int) -> float:
    """How much more than its share the busiest has at most, in 99 of 100 times or more, if a fair
    hash gives each flow its thread: Bernstein's bound, for all threads together."""
    variance = (threads - 1) / sizes.effective_flows
    likely = log(threads / RARE)
    part = sizes.largest_ratio * threads * likely / 3
    return min(threads - 1, part + sqrt(part**2 + 2 * variance * likely))


def what_makes(
    packets: Sequence[float], cpu: Sequence[float], sizes: FlowShares
) -> Imbalance | None:
    """The imbalance of threads that do the same work. CPU time stands for packets that are not
    counted by thread. None without two threads, or without work."""
    counted = over_mean(packets)
    over, threads = (over_mean(cpu), len(cpu)) if counted is None else (counted, len(packets))
    if over is None:
        return None
    spread = _Spread(over=over, threads=threads, of_packets=counted is not None)
    found = spread.judged(sizes)
    if found.makes is Makes.EVEN and spread.of_packets and (over_mean(cpu) or 0.0) >= UNEVEN:
        words = "packets fall evenly and CPU time does not: some packets cost more"
        return Imbalance(makes=Makes.COST, words=words)
    by_sizes = (Makes.ONE_FLOW, Makes.FEW_FLOWS)
    if found.makes in by_sizes and spread.judged(sizes.distinct).makes not in by_sizes:
        words = (
            f"{sizes.same_copies:g} copies are the same flows, and all copies of a flow are on its "
            f"thread; {found.words}"
        )
        return Imbalance(makes=Makes.SAME_FLOWS, words=words)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    over: float
    """Excess of the busiest thread over its share, as a part of that share."""
    threads: int
    of_packets: bool

    def judged(self, sizes: FlowShares) -> Imbalance:
        over, largest, share = self.over, sizes.largest_ratio, 1 / self.threads
        busiest = (over + 1) * share
        if over < UNEVEN:
            return Imbalance(makes=Makes.EVEN, words="even")
        if self.of_packets and busiest < largest:
            words = (
                f"the busiest has {busiest * 100:.0f} % of the packets, less than the largest flow "
                f"({largest * 100:.0f} %): packets of one flow go to several threads"
            )
            return Imbalance(makes=Makes.NOT_BY_FLOW, words=words)
        # The largest flow makes most of what the spread over threads varies by.
        rules_spread = largest**2 * sizes.effective_flows >= MOST
        if rules_spread and largest * (self.threads - 1) >= MOST * over:
            words = (
                f"one flow has {largest * 100:.0f} % of the packets and stays on one thread, whose "
                f"even share is {share * 100:.0f} %"
            )
            return Imbalance(makes=Makes.ONE_FLOW, words=words)
        flows = f"{sizes.flows} {noun(sizes.flows, 'flow')}"
        spread = f"{flows} spread like {sizes.effective_flows:.0f} equal ones"
        chance = by_chance(sizes, self.threads)
        if over <= chance:
            words = f"chance can do this with few flows: {spread}"
            return Imbalance(makes=Makes.FEW_FLOWS, words=words)
        other = "" if self.of_packets else "; or some packets cost more"
        words = (
            f"not the sizes of the flows: {spread}, and a fair hash would give the busiest at most "
            f"{chance * 100:.0f} % more than its share{other}"
        )
        return Imbalance(makes=Makes.NOT_THE_SIZES, words=words)


class ThreadRole(StrEnum):
    """A thread's part in the handling of packets."""

    RECEIVE = "receive"
    """Takes packets from its socket and hands them on to workers."""
    WORKER = "worker"
    """Does the work on a packet; if nothing receives for it, it takes them from its own socket."""
    FLOW_MANAGER = "flow manager"
    OTHER = "other"
    """A thread for which no packet waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SutThread:
    """Counts of one thread of the SUT, and where its time went. Null = the thread does not count
    that, or it was not watched."""

    __pydantic_config__: ClassVar = PART

    name: Text
    """The SUT's name for the thread; with several instances `0:W#01`."""
    role: Text | None = None
    """receive, worker, flow manager, other; null if the SUT has no role for it."""
    captured_packets: Packets | None = None
    """The kernel had for its socket, those that found no room included."""
    dropped_packets: Packets | None = None
    decoded_packets: Packets | None = None
    flows: Count | None = None
    """Flows that the thread began to follow."""
    cpu_ratio: NotNegative | None = None
    """Share of one CPU, while the load was offered."""
    wait_ratio: NotNegative | None = None
    """Share of the time of the load in which the thread was ready to run, and its CPU had other
    work."""


COUNTED = ("captured_packets", "dropped_packets", "decoded_packets")


def unexplained_packets(threads: Sequence[SutThread], whole: Mapping[str, int | None]) -> int:
    """Captured less dropped and decoded of each thread with a socket, and the SUT's own figures
    (`whole`, by the names of COUNTED) less the sums of its threads: all without their signs."""
    found = sum(
        abs(t.captured_packets - (t.dropped_packets or 0) - t.decoded_packets)
        for t in threads
        if t.captured_packets is not None and t.decoded_packets is not None
    )
    for name in COUNTED:
        parts = [n for thread in threads if (n := getattr(thread, name)) is not None]
        all_of_it = whole.get(name)
        if parts and all_of_it is not None:
            found += abs(all_of_it - sum(parts))
    return found


def times(seen: ThreadTimeline, span: tuple[int, int]) -> Mapping[int, tuple[float, float]]:
    """Thread id → parts of the span that it ran, and that it waited for a CPU."""
    ran: dict[int, float] = {}
    waited: dict[int, float] = {}
    whole_ns = 0.0
    for interval in seen.intervals:
        part = interval.part((span,))
        whole_ns += interval.ns * part
        for tid, time in interval.threads.items():
            ran[tid] = ran.get(tid, 0.0) + time.ran_ns * part
            waited[tid] = waited.get(tid, 0.0) + time.waited_ns * part
    if not whole_ns:
        return {}
    return {tid: (ns / whole_ns, waited[tid] / whole_ns) for tid, ns in ran.items()}


def over_mean(parts: Sequence[float]) -> float | None:
    """How much more than the mean the largest is: 0 = all the same. None without two of them."""
    whole = sum(parts)
    return max(parts) * len(parts) / whole - 1 if len(parts) > 1 and whole else None


def gini(parts: Sequence[float]) -> float | None:
    """0 = all the same; (n − 1) / n = one has everything. None without two of them."""
    whole = sum(parts)
    if len(parts) < 2 or not whole:
        return None
    apart = sum(abs(a - b) for a, b in product(parts, parts))
    return apart / (2 * len(parts) * whole)


WINDOW_NS = 1_000_000_000
"""A rate over less is not that of a SUT: one that was kept from its CPU may make up for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyThread:
    """The SUT's busiest thread while the load was offered."""

    __pydantic_config__: ClassVar = PART

    name: Text
    cpu_ratio: NotNegative
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
    """Pairs (ns, packets): the packets came within the time, once or more."""

    @property
    def mean_pps(self) -> float:
        """Rate from the first packet to the last, to the interval."""
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
    timeline: ThreadTimeline
    losses: Sequence[Losses] | None = None
    served: Mapping[str, int] = field(default_factory=dict)
    """Packets by thread, as the SUT names it."""
    over_time: Mapping[str, Sequence[Served]] = field(default_factory=dict)
    """Packets served over time, by thread; empty if the SUT's counters are not read often enough.
    """
    throttled: Sequence[tuple[int, float]] = ()
    """(when, seconds so far, summed over CPUs) the SUT was not let run for want of its CPU quota or
    one above it: several threads wait more than a second in a second."""
    arrivals: Arrivals | None = None
    ring_packets: int | None = None
    """Packets that the ring of one thread holds."""
    roles: Mapping[int, ThreadRole] = field(default_factory=dict)
    """Thread id → what it is for, as the SUT says."""
    flow_sizes: FlowShares | None = None
    """Flow sizes of the load."""
    filling: Filling | None = None
    """Fillings of the ring that lost most; None = its level was not read."""
    steal_ratio: float | None = None
    """Share of the time of the SUT's CPUs, or of the sender's, that the hypervisor took: the larger
    of the two."""
    polls: bool = False
    """Whether the workers poll: their CPU time is then no measure of work."""

    def fastest_pps(self) -> float | None:
        """Served by all threads together over `WINDOW_NS` or longer, in the last half of the load
        and after it; None if their counters are not read so often."""
        half_ns = sum(self.offered_ns) // 2
        served: dict[int, list[int]] = {}
        for readings in self.over_time.values():
            for reading in readings:
                if reading.mono_ns >= half_ns:
                    served.setdefault(reading.mono_ns, []).append(reading.served)
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
        needed = [
            tid
            for tid, role in self.roles.items()
            if role in (ThreadRole.RECEIVE, ThreadRole.WORKER)
        ]
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
    running: Running, host: ThreadTimeline, cpus: frozenset[int], until_ns: int
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
