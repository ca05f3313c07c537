"""The packet books of one trial: from what was read at each place to the ledger and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.config.experiment import Measure
from nodrop.hosts.seam import Json, counters_of, rise
from nodrop.ledger.balance import balance
from nodrop.ledger.hops import places_of, ring_of
from nodrop.ledger.over_time import WorkedOff
from nodrop.ledger.reasons import Problem, Reason
from nodrop.ledger.sender import Bounds, Quota, Sending
from nodrop.ledger.verdict import judge
from nodrop.load.seam import LoadGenerator, OfferedLoad, TraceFacts
from nodrop.measure import together
from nodrop.measure.packets import books
from nodrop.measure.packets.books import Observed
from nodrop.measure.packets.instances import (
    NOTHING_SAID,
    Places,
    between,
    each_port,
    instance_books,
)
from nodrop.measure.packets.readings import Reading, Readings, nothing_arrived
from nodrop.measure.packets.reassembly import Room
from nodrop.measure.sampling import Usage
from nodrop.measure.seam import Measured
from nodrop.suts.seam import Sut, SutCounters

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


__all__ = [
    "Observed",
    "close_books",
    "each_port",
    "instance_books",
    "moved",
    "observe",
    "unjoined",
    "worked_off",
]


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
        sut=together.total(seen.packets.each) if seen.packets.each else NOTHING_SAID,
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
    """If packets came after the drain."""
    now = counters_of(places.nics)
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


def _bounds(measure: Measure, load: LoadGenerator) -> Bounds:
    return Bounds(
        schedule_error_p99_us=measure.late_p99_us,
        late_burst_ratio=measure.late_burst_max_ratio,
        steal_ratio=measure.steal_max_ratio,
        late_ratio=load.late_ratio,
        unsent_ratio=measure.unsent_max_ratio,
    )
