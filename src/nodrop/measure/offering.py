"""Offers a load while the SUT is watched; says afterwards how it ran, and closes the packet books.

Live counters and CPU time (`Feed`), what serves the SUT on the host, and whether its CPU was
throttled are read while packets come; the rest is made of samples once it is at rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

from nodrop.config.experiment import Measure
from nodrop.ledger import sender
from nodrop.ledger.balance import balance
from nodrop.ledger.filling import filling
from nodrop.ledger.hops import places_of, ring_of
from nodrop.ledger.imbalance import (
    Arrivals,
    FlowShares,
    Running,
    SutThread,
    ThreadRole,
    lost_beyond_steal,
    times,
)
from nodrop.ledger.level import RingLooks, level
from nodrop.ledger.outcome import Problem, Reason
from nodrop.ledger.over_time import Losses, WorkedOff
from nodrop.ledger.sender import Quota, SenderLimits, Sending
from nodrop.ledger.thread_times import CpuTime, ThreadTimeline, timeline
from nodrop.ledger.verdict import judge
from nodrop.measure.api import Measured, Servants, Trial
from nodrop.measure.busy import Feed, Others
from nodrop.measure.packets import books, instances
from nodrop.measure.packets.books import Observed
from nodrop.measure.packets.instances import Places, between
from nodrop.measure.packets.readings import Reading, Readings, nothing_arrived
from nodrop.measure.packets.reassembly import Room
from nodrop.measure.queues import flow_work, forecast, queues
from nodrop.measure.sampling import Sampler, Usage, by_our_clock, rings_of, rows_of_processes
from nodrop.protocol import SampleRow
from nodrop.testbed.hosts.api import HostProcess, Json, counters_at, rise
from nodrop.testbed.hosts.control_groups import own_quotas
from nodrop.testbed.hosts.processes import allowed_cpus, usage
from nodrop.testbed.load.api import LoadGenerator, OfferedLoad, Offerer, Tick, TraceFacts
from nodrop.testbed.suts.api import NOTHING_SAID, Sut, SutCounters
from nodrop.untrusted.json_text import making_sense

# The packet books of one trial: from what was read at each place to the ledger and the verdict.

SPLIT_HOPS = 2
"""The split, and the ports behind it."""
SLOT_BYTES = 128
"""Approximate bytes that a frame takes in a ring beside itself: its header, and rounding."""


def sending(
    offered: OfferedLoad,
    *,
    handed_packets: int,
    constant_rate: bool,
    sut: Json,
    usage: Usage | None,
    quota: Quota | None,
) -> Sending:
    """`sut`: the facts that the running SUT reported."""
    error = offered.schedule_error_us
    return Sending(
        intended_packets=offered.intended_packets,
        sent_packets=handed_packets,
        duration_s=offered.duration_s,
        intended_duration_s=offered.intended_duration_s,
        constant_rate=constant_rate,
        schedule_error_p99_us=None if error is None else error.p99,
        late_bursts=offered.late_bursts,
        late_burst_packets=offered.late_burst_packets,
        first_sent_mono_ns=offered.first_sent_mono_ns,
        ring_packets=_ring_packets(sut, offered),
        stolen_ratio=_stolen_ratio(offered, usage),
        quota=quota,
    )


def _ring_packets(sut: Json, offered: OfferedLoad) -> int | None:
    """Packets that the smallest ring holds: all packets of a burst may be for one thread."""
    frames = [ring["frames"] for ring in sut.get("rings", ()) if ring.get("frames")]
    if frames:
        return int(min(frames))
    if (ring_bytes := sut.get("ring_bytes")) and offered.sent_packets:
        mean = offered.sent_bytes / offered.sent_packets
        return int(ring_bytes / (mean + SLOT_BYTES))
    return None


def _stolen_ratio(offered: OfferedLoad, usage: Usage | None) -> float | None:
    """Stolen part of the sender's CPU; if it is on none for certain, of the CPU that lost most."""
    if usage is None or not usage.stolen_ratios:
        return None
    cpu = offered.facts.get("cpu")
    if isinstance(cpu, int) and cpu in usage.stolen_ratios:
        return usage.stolen_ratios[cpu]
    return max(usage.stolen_ratios.values())


def observe(
    places: Places,
    trace: TraceFacts | None,
    sut: Sut,
    seen: Measured,
    before: Reading,
    after: Reading,
) -> Observed:
    """Everything counted so far; without the SUT's own counters before it has said its last."""
    assert seen.offered is not None
    # What the capture really set up overrules what was asked: one socket alone merges nothing.
    effective = seen.facts["sut"].get("defrag_effective")
    ways = between(places, before, after, seen.packets.each, ring=ring_of(sut))
    return Observed(
        tx_ports=[port.name for port in places.link.tx_ports],
        nic_ports=[port.name for port in places.nics],
        capture_ports=[port.name for port in places.capture],
        offered=seen.offered,
        tx=Readings(before=before.tx, after=after.tx),
        nic=Readings(before=before.nic, after=after.nic),
        capture=Readings(before=before.capture, after=after.capture),
        between=ways,
        sut=instances.total(seen.packets.each) if seen.packets.each else NOTHING_SAID,
        defrag=sut.defrag if effective is None else bool(effective),
        fragments=None if places.copies or trace is None else trace.fragments,
        never_at_tap_packets=0 if trace is None else trace.never_at_tap_packets,
        longest_frame_bytes=None if trace is None else trace.longest_frame_bytes,
        at_tap=None if places.copies or trace is None else trace.at_tap,
        room=Room.of(seen.facts["sut"]),
        split=places.split is not None,
        split_keeps_frames=places.keeps_frames and len(ways[0]) == SPLIT_HOPS,
        several=bool(places.instances),
        ignores_outgoing=bool(seen.facts["sut"].get("ignores_outgoing")),
        takes_frames=bool(seen.facts["sut"].get("takes_frames")),
        sender_here=places.link.tx.host.here,
        ring=ring_of(sut),
        sut_places=places_of(sut),
    )


def moved(places: Places, then: Reading) -> Sequence[Problem]:
    """A problem if packets came after the drain."""
    now = counters_at(places.nic_host, places.nics)
    moving = [nic.name for nic in places.nics if rise(then.nic, now, nic.name, "rx_packets")]
    if not moving:
        return []
    words = f"{', '.join(moving)} received more packets after the drain"
    return [Problem(code=Reason.COUNTERS_MOVED, words=words)]


def worked_off(places: Places, seen: Measured) -> WorkedOff | None:
    """Work that was left after the last packet; None = not known. The SUT's rings bound it only if
    nothing waits before them."""
    counted = seen.packets
    if seen.offered is None or counted.drained is None or counted.counters is None:
        return None
    offered, decoded = seen.offered, counted.counters.decoded_packets
    if decoded is None or offered.last_sent_mono_ns is None:
        return None
    last_ns = offered.last_sent_mono_ns + places.link.tx.host.clock_offset_ns
    busy_ns = counted.drained.busy_mono_ns or last_ns
    holds = seen.facts["sut"].get("holds_packets") if places.delivers_at_once else None
    before = counted.decoded_when_offered
    at_most = [max(0, decoded - before)] if before is not None else []
    at_most += [holds] if holds is not None else []
    rested = None if counted.running is None else counted.running.last_rest()
    return WorkedOff(
        packets=decoded,
        offered_s=offered.duration_s,
        drain_at_least_s=max(0, busy_ns - last_ns) / 1e9,
        drain_at_most_s=max(0, counted.drained.rested_mono_ns - last_ns) / 1e9,
        backlog_at_least_packets=counted.drained.left_packets or 0,
        backlog_at_most_packets=min(at_most, default=None),
        fastest_pps=None if counted.running is None else counted.running.fastest_pps(),
        rested_s=None if rested is None else rested[0],
        rested_packets=0 if rested is None else rested[1],
    )


def unjoined(places: Places, observed: Observed) -> Sequence[Problem]:
    """Problems of the user's cables: nothing that left one end of a cable came to the other."""
    link = places.link
    return nothing_arrived(observed.ends, tx_host=link.tx.host.name, rx_host=link.rx.host.name)


def close_books(
    observed: Observed,
    load: LoadGenerator,
    measure: Measure,
    seen: Measured,
    unjoined: Sequence[Problem] = (),
) -> None:
    """`unjoined`: of its cables. Its books close, and what they say is nothing of the SUT."""
    counted = seen.packets
    try:
        _must_not_fall(counted.decoded_when_offered, counted.counters)
        counted.ledger = balance(
            books.hops(observed),
            books.accounts(observed),
            longest_frame_bytes=observed.longest_frame_bytes,
        )
    except ValueError as nonsense:
        # A counter that ran backwards, or was reset by another program: no books, no figure.
        words = f"the books make no sense: {nonsense}"
        seen.problems.append(Problem(code=Reason.NO_BOOKS, words=words))
    seen.verdict = judge(
        counted.ledger,
        sending(
            observed.offered,
            handed_packets=observed.handed_packets,
            constant_rate=load.constant_rate,
            sut=seen.facts.get("sut", {}),
            usage=seen.resources.usage,
            quota=seen.resources.quota if observed.sender_here else None,
        ),
        bounds=_bounds(measure, load),
        problems=[*seen.problems, *unjoined],
        running=counted.running,
        worked_off=counted.worked_off,
        losses=counted.losses,
    )


def _must_not_fall(before: int | None, at_rest: SutCounters | None) -> None:
    decoded = None if at_rest is None else at_rest.decoded_packets
    if before is not None and decoded is not None and decoded < before:
        raise ValueError(f"the SUT had decoded {before} packets, and at rest {decoded}")


def _bounds(measure: Measure, load: LoadGenerator) -> SenderLimits:
    return SenderLimits(
        schedule_error_p99_us=measure.late_p99_us,
        late_burst_ratio=measure.late_burst_max_ratio,
        steal_ratio=measure.steal_max_ratio,
        late_ratio=load.late_ratio,
        unsent_ratio=measure.unsent_max_ratio,
    )


class Throttling:
    """Watched from now on, in every group that has a say: a quota may be a container's own, or that
    of what nodrop itself was started in."""

    def __init__(self, processes: Sequence[HostProcess]) -> None:
        self._processes = tuple(processes)
        self._before = self._read()
        self.readings: list[tuple[int, float]] = []
        """(when on CLOCK_MONOTONIC, seconds so far)"""

    def look(self) -> float | None:
        """Seconds so far, summed over CPUs and groups. None if the kernel does not say, or the
        SUT is gone."""
        seconds = self._seconds()
        if seconds is not None:
            self.readings.append((time.monotonic_ns(), seconds))
        return seconds

    def _seconds(self) -> float | None:
        now = self._read()
        rises = [now[file] - before for file, before in self._before.items() if file in now]
        return sum(rises) / 1e9 if rises else None

    def _read(self) -> Mapping[str, int]:
        """Throttled time of each group once, however many of the SUT's processes are in it."""
        seen = usage(self._processes).values()
        return {file: ns for one in seen for file, ns in one["throttled_ns"].items()}


STEADY_ROOM = 0.5
"""A sender that catches up with no more than this part of what the ring holds makes no burst."""


def choose(
    host: ThreadTimeline, inside: Iterable[ThreadTimeline], threads: Iterable[str]
) -> ThreadTimeline:
    """Timeline of the machine in which these threads run. A guest's own kernel has their time; this
    host has it as its emulator's."""
    seen = [one for one in inside if any(one.find(thread) is not None for thread in threads)]
    return seen[0] if seen else host


def running(
    seen: ThreadTimeline,
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
    role: Callable[[str], ThreadRole | None],
    flow_sizes: FlowShares | None,
    peaks: Sequence[tuple[int, int]] = (),
    polls: bool = False,
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
        polls=polls,
    )


def peaks(trace: TraceFacts, offered: OfferedLoad) -> Sequence[tuple[int, int]]:
    """Pairs (ns, packets): most packets that one replica sends within that time, no faster than the
    sender lets packets leave. Other replicas need not peak with it."""
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


def steal_ratio(host: ThreadTimeline, span: tuple[int, int], *cpus: frozenset[int]) -> float | None:
    """Part of the CPU time that the hypervisor gave to others: the most of these sets of CPUs."""
    found = [_part(host, span, some, lambda cpu: cpu.stolen_ns) for some in cpus]
    return max((ratio for ratio in found if ratio is not None), default=None)


def foreign_ratio(
    host: ThreadTimeline, span: tuple[int, int], cpus: frozenset[int], sender_cpu_s: float | None
) -> float | None:
    """Part of the time of these CPUs that threads other than the SUT's and the sender's used. A
    softirq is no other program: it does the receive half of the SUT's own packets, in the time of
    whichever thread it interrupts (on a veth the sender's) or in none's. `sender_cpu_s` is of use
    if the sender's threads were not seen: then all of it may have been on those CPUs."""
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
    host: ThreadTimeline,
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


def read_timeline(path: Path, clock_offset_ns: int = 0) -> ThreadTimeline:
    """Timeline from a sampler's file, by the controller's clock."""
    with making_sense(str(path)):
        return of_rows(rows_of_processes(path), clock_offset_ns)


def of_rows(rows: Sequence[SampleRow], clock_offset_ns: int = 0) -> ThreadTimeline:
    return timeline(by_our_clock(rows, clock_offset_ns))


_COUNTERS = {
    "captured_packets": "captured_packets",
    "dropped_packets": "dropped_ring_full_packets",
    "decoded_packets": "decoded_packets",
    "flows": "flows",
}


def thread_books(
    sut: Sut,
    counters: SutCounters,
    seen: ThreadTimeline,
    span: tuple[int, int],
    polls: bool = False,
) -> Sequence[SutThread]:
    """Books of the SUT's threads: those that count come first, as the SUT lists them, then others
    that it has a role for. The time that a thread polled for packets is not told apart from work:
    its share of a CPU is not known."""
    took = times(seen, span)
    listed: dict[str, int | None] = {name: seen.find(name) for name in counters.per_thread}
    known = set(listed.values())
    for number, name in seen.names.items():
        if number not in known and sut.role(name) is not None:
            listed.setdefault(name, number)
    found = []
    for name, tid in listed.items():
        counted = counters.per_thread.get(name, {})
        time = None if tid is None else took.get(tid)
        role = sut.role(_of_instance(name))
        spins = polls and role in (ThreadRole.RECEIVE, ThreadRole.WORKER)
        found.append(
            SutThread(
                name=name,
                role=role,
                **{ours: counted.get(theirs) for ours, theirs in _COUNTERS.items()},
                cpu_ratio=None if time is None or spins else time[0],
                wait_ratio=None if time is None else time[1],
            )
        )
    return found


def _of_instance(name: str) -> str:
    """`0:W#01` is its own W#01."""
    number, colon, own = name.partition(":")
    return own if colon and number.isdigit() else name


OFFER_GRACE_S = 60.0
"""Time beyond the intended duration after which a late sender is ended."""


class Offering:
    """One load of one trial: begun, offered, drained, and looked back at, in this order."""

    def __init__(
        self,
        trial: Trial,
        places: Places,
        each: instances.Each,
        offerer: Offerer,
        sampler: Sampler,
        before: Reading,
        *,
        polls: bool,
    ) -> None:
        trial.seen.resources.polls = polls
        self._trial, self._places, self._each, self._sampler = trial, places, each, sampler
        self._offerer, nics = offerer, [nic.name for nic in places.nics]
        roots = instances.roots(each)
        senders = [process for process in offerer.processes if process.host.here]
        self._cpus = allowed_cpus(roots), allowed_cpus(senders)
        """CPUs that the SUT may use, and those of the sender if it is on the same machine."""
        self._feed = Feed(
            lambda: instances.live(each),
            sampler,
            offerer,
            nics=nics,
            cpus=max(1, len(self._cpus[0])),
            received_before=sum(before.nic["links"][nic]["stats"]["rx_packets"] for nic in nics),
            tell=trial.tell,
            polls=polls,
        )
        self._feed.begin()
        servants = instances.servants(each)
        self._servants = Servants(servants)
        self._throttling = Throttling(roots)
        ours = (*roots, *senders, *servants)
        self._ours = {os.getpid(), *(one.pid for one in ours if one.host.here)}

    def offer(self) -> None:
        seen = self._trial.seen
        others, quotas = Others(self._ours), own_quotas()
        self._offer_ns = self._sampler.mark("offer")

        def tick(sent_packets: int | None) -> None:
            self._feed.tick(sent_packets)
            self._throttling.look()

        seen.offered = offer(self._offerer, tick)
        self._offered_ns = self._sampler.mark("offered")
        self._throttling.look()
        used = seen.resources
        used.programs, used.quota = others.used(), sender.rise(quotas, own_quotas())
        counted = instances.live(self._each)
        seen.packets.decoded_when_offered = None if counted is None else counted.decoded_packets

    def drained(self) -> None:
        used = self._trial.seen.resources
        used.servants, used.throttled_s = self._servants.used(), self._throttling.look()

    def look_back(self, sut: Sut, load: LoadGenerator) -> None:
        """Finds out when packets were lost, how the SUT ran, and what others took of its CPUs and
        of the sender's."""
        seen, folder, link = self._trial.seen, self._trial.folder, self._places.link
        counted, used, cpus = seen.packets, seen.resources, self._cpus
        assert seen.offered is not None and used.usage is not None
        drained_ns = used.usage.marks_mono_ns["drained"]
        counters = counted.counters = instances.total(counted.each)
        self._feed.at_rest(counters, seen.offered, drained_ns)
        offered_ns = self._offer_ns, self._offered_ns
        until_ns = self._offered_ns if self._places.delivers_at_once else drained_ns
        counted.losses = self._feed.losses(begin_ns=self._offer_ns, end_ns=until_ns)
        host = read_timeline(folder.samples(link.rx.host.name))
        guests = [read_timeline(folder.samples(n), off) for n, off in used.clock_offsets_ns.items()]
        used.busy = [b for b in self._feed.busy if offered_ns[0] <= b.mono_ns <= offered_ns[1]]
        used.sut_cpus = tuple(sorted(cpus[0]))
        used.steal_ratio = steal_ratio(host, offered_ns, *cpus)
        sender_cpu_s = seen.offered.cpu_s if link.tx.host.here else None
        each = [foreign_ratio(host, offered_ns, some, sender_cpu_s) for some in cpus]
        used.foreign_cpu_ratio = each[0]
        used.others_ratio = max((ratio for ratio in each if ratio is not None), default=None)
        used.cpus = tuple(sorted(cpus[0] | cpus[1]))
        facts = load.trace_facts()
        if facts is not None:
            counted.flow_sizes = facts.flow_sizes
            counted.withheld_packets = len(facts.withheld)
            counted.window = None if facts.source is None else facts.source.window
        counted.threads = thread_books(
            sut, counters, choose(host, guests, counters.per_thread), offered_ns, used.polls
        )
        counted.running = running(
            choose(host, guests, {loss.thread for loss in counted.losses or () if loss.thread}),
            seen.offered,
            offered_ns=offered_ns,
            losses=counted.losses,
            counters=counters,
            throttled=((self._offer_ns, 0.0), *self._throttling.readings),
            holds_packets=seen.facts["sut"].get("holds_packets"),
            constant_rate=load.constant_rate,
            clock_offset_ns=link.tx.host.clock_offset_ns,
            steal_ratio=used.steal_ratio,
            role=sut.role,
            flow_sizes=counted.flow_sizes,
            peaks=() if facts is None else peaks(facts, seen.offered),
            polls=used.polls,
        )
        self._look_at_rings(rings_of(folder.levels(link.rx.host.name)), drained_ns, load)
        used.lost_beyond_steal = lost_beyond_steal(
            counted.running, host, frozenset().union(*cpus), until_ns
        )

    def _look_at_rings(
        self, rings: Sequence[RingLooks], drained_ns: int, load: LoadGenerator
    ) -> None:
        """Level of the SUT's rings, from the first packet until it was at rest; what filled the one
        that lost most, and how much more they would hold."""
        counted, offered = self._trial.seen.packets, self._trial.seen.offered
        counters, running = counted.counters, counted.running
        if not rings or offered is None or counters is None or not offered.sent_packets:
            return
        clock_offset_ns = self._places.link.tx.host.clock_offset_ns
        begin_ns = (offered.first_sent_mono_ns or self._offer_ns) + clock_offset_ns
        mean_frame_bytes = offered.sent_bytes / offered.sent_packets
        seen = level(
            rings,
            span_ns=(begin_ns, drained_ns),
            dropped=counters.dropped_ring_full_packets,
            mean_frame_bytes=mean_frame_bytes,
        )
        counted.level = seen
        if seen is None or running is None:
            return
        found = queues(
            rings,
            span_ns=(begin_ns, drained_ns),
            slots=seen.slots,
            mean_frame_bytes=mean_frame_bytes,
            seen=running.timeline,
            counters=counters,
            sent=offered.sent_profile,
            clock_offset_ns=clock_offset_ns,
            throttled_ns=running.throttled_ns,
            polls=running.polls,
        )
        sent_flows = cache(load.sent_flows)
        faster = load.constant_rate
        hands_on = ThreadRole.RECEIVE in running.roles.values()
        counted.level = forecast(
            seen, found, faster=faster, sent_flows=sent_flows, hands_on=hands_on
        )
        lossy = [queue for queue in found if queue.lost]
        if not lossy:
            return
        told = filling(max(lossy, key=lambda queue: queue.lost))
        moment = None if told is None else told.costliest
        if told and moment and (work := flow_work(found, faster=faster, sent=sent_flows())):
            flows = work.within(moment.first_packet, moment.last_packet)
            told = replace(told, costliest=replace(moment, flows=flows))
        counted.running = replace(running, filling=told)


def offer(offerer: Offerer, tick: Tick) -> OfferedLoad:
    intended_s = offerer.intended_duration_s or 0.0
    return offerer.offer(timeout_s=intended_s * 2 + OFFER_GRACE_S, tick=tick)
