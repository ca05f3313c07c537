"""What the verdict must know of the sender, which is a suspect."""

from __future__ import annotations

from nodrop.hosts.seam import Json
from nodrop.ledger.quota import Quota
from nodrop.ledger.sender import Sending
from nodrop.load.seam import OfferedLoad
from nodrop.measure.sampling import Usage

SLOT_BYTES = 128
"""What a frame takes in a ring beside itself, about: its header, and rounding."""


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
    """Of the smallest ring; all packets of a burst may be for one thread."""
    frames = [ring["frames"] for ring in sut.get("rings", ()) if ring.get("frames")]
    if frames:
        return int(min(frames))
    if (ring_bytes := sut.get("ring_bytes")) and offered.sent_packets:
        mean = offered.sent_bytes / offered.sent_packets
        return int(ring_bytes / (mean + SLOT_BYTES))
    return None


def _stolen_ratio(offered: OfferedLoad, usage: Usage | None) -> float | None:
    """Of its CPU; of the CPU that lost most, if it is on none for certain."""
    if usage is None or not usage.stolen_ratios:
        return None
    cpu = offered.facts.get("cpu")
    if isinstance(cpu, int) and cpu in usage.stolen_ratios:
        return usage.stolen_ratios[cpu]
    return max(usage.stolen_ratios.values())
