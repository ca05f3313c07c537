"""The threads of a SUT: what each is for, what it counted, and where its time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from nodrop.ledger.timeline import Timeline


class Role(StrEnum):
    """A thread's part in the handling of packets."""

    RECEIVE = "receive"
    """Takes packets from its socket and hands them on to workers."""
    WORKER = "worker"
    """Does the work on a packet; if nothing receives for it, it takes them from its own socket."""
    FLOW_MANAGER = "flow manager"
    OTHER = "other"
    """No packet waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadBooks:
    """One thread of the SUT. None = the SUT does not count it for this thread, or the thread was
    not watched."""

    name: str
    """The SUT's name for the thread; with several instances `0:W#01`."""
    role: Role | None
    captured_packets: int | None
    """The kernel had for its socket, those that found no room included."""
    dropped_packets: int | None
    decoded_packets: int | None
    flows: int | None
    """Flows that the thread began to follow."""
    cpu_ratio: float | None
    """Share of one CPU, while the load was offered."""
    wait_ratio: float | None
    """Share of the time of the load in which the thread was ready, and other threads had the
    CPU."""


COUNTED = ("captured_packets", "dropped_packets", "decoded_packets")


def unexplained_packets(threads: Sequence[ThreadBooks], whole: Mapping[str, int | None]) -> int:
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


def times(seen: Timeline, span: tuple[int, int]) -> Mapping[int, tuple[float, float]]:
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
