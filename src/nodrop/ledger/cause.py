"""The cause of losses within the SUT's reach: how it ran while it lost, and the knob that helps."""

from __future__ import annotations

from dataclasses import dataclass

from nodrop.ledger.hops import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyThread:
    """The SUT's busiest thread while the load was offered."""

    name: str
    cpu_ratio: float
    """Of one CPU."""

    @property
    def saturated(self) -> bool:
        return self.cpu_ratio >= 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How the SUT ran while the load was offered. None = not measured."""

    busiest: BusyThread | None = None
    idle_s: float | None = None
    """Longest time in which it did not run at all."""
    throttled_s: float | None = None
    """Not let run for want of the CPU quota of its control group or one above it, summed over CPUs:
    several threads wait more than a second in a second."""
    foreign_cpu_ratio: float | None = None
    """Part of the host's CPUs that neither the SUT nor the generator used."""


STOPPED_S = 0.5
"""A loaded SUT that does not run for so long was stopped; the scheduler never waits like this."""
FOREIGN_CPU_RATIO = 0.25
"""Beyond this other programs compete with the SUT for its CPUs."""
STOPPED_KNOB = "find what stopped the SUT; a larger ring only moves the burst"
THROTTLED_S = 0.01
"""A tenth of the kernel's period of a quota (100 ms): packets wait in the ring meanwhile."""
THROTTLED_KNOB = "the CPU quota (cpu.max, cpu.cfs_quota_us) of the SUT's control group or above it"
FOREIGN_KNOB = "a quiet host, or CPUs that the SUT does not share (limits.cpus)"
SATURATED_KNOB = "sut.threads, fewer rules, or less load; a larger ring only moves the burst"
IDLE_KNOB = "sut.ring_size: the thread had time left, so bursts are what overflows"


def cause_of(place: str | None, running: Running) -> tuple[str, str]:
    """What points at the cause of losses inside the SUT's reach, and the knob that touches it."""
    if place not in (Place.MACVTAP_QUEUE, Place.SOCKET_RING, Place.SUT):
        return "", ""
    idle_s, throttled_s = running.idle_s or 0.0, running.throttled_s or 0.0
    if throttled_s >= max(THROTTLED_S, idle_s):  # a quota stops a SUT for a while, too
        words = f"the SUT was throttled for {throttled_s:.2f} s, summed over CPUs, by its CPU quota"
        return words, THROTTLED_KNOB
    if idle_s >= STOPPED_S:
        words = f"the SUT did not run for {idle_s:.1f} s while packets arrived"
        return words, STOPPED_KNOB
    if place == Place.MACVTAP_QUEUE:
        # QEMU does not fetch for a slow guest either: what it and others used is no cause.
        return "", ""
    if running.foreign_cpu_ratio is not None and running.foreign_cpu_ratio >= FOREIGN_CPU_RATIO:
        used = f"{running.foreign_cpu_ratio * 100:.0f} % of the host's CPUs"
        return f"other programs used {used}", FOREIGN_KNOB
    busiest = running.busiest
    if busiest is None:
        return "", ""
    words = f"thread {busiest.name} used {busiest.cpu_ratio * 100:.0f} % of one CPU"
    if place != Place.SOCKET_RING:
        return words, ""
    return words, SATURATED_KNOB if busiest.saturated else IDLE_KNOB
