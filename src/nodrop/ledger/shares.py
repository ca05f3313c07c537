"""Where the time of one thread went while it lost packets, and who had its CPU meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodrop.ledger.timeline import Interval, ThreadTime, Timeline

Spans = Sequence[tuple[int, int]]
STILL_NS = 300_000_000
"""A thread that is not on a CPU once in so long did not just sleep between packets."""
STOPPED_STATES = frozenset("Tt")


class Went(StrEnum):
    """The ways in which a thread's time goes. All but the first and the last keep it from its
    packets."""

    RAN = "ran"
    SENDER = "waiting_sender"
    SUT = "waiting_sut"
    SOFTIRQ = "softirq"
    OTHERS = "other_programs"
    STOLEN = "stolen"
    THROTTLED = "throttled"
    STOPPED = "stopped"
    STILL = "stood_still"
    BLOCKED = "blocked"
    SLEPT = "slept"


TAKEN = tuple(went for went in Went if went not in (Went.RAN, Went.SLEPT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Parts of `ns`; together 1."""

    ns: float
    of: Mapping[Went, float]

    @property
    def taken(self) -> float:
        return sum(self.of[went] for went in TAKEN)


@dataclass(slots=True)
class _Sums:
    """Sums of ns over intervals: of the thread, and of the CPU it was on."""

    ns: float = 0.0
    ran: float = 0.0
    waited: float = 0.0
    stopped: float = 0.0
    still: float = 0.0
    blocked: float = 0.0
    ready: float = 0.0
    slept: float = 0.0
    threads: float = 0.0
    softirq: float = 0.0
    stolen: float = 0.0
    sender: float = 0.0
    sut: float = 0.0


def shares(timeline: Timeline, tid: int, spans: Spans, throttled_ns: float) -> Shares | None:
    """None if the thread was not seen in that time."""
    still = _still(timeline, tid)
    sums = _Sums()
    for interval in timeline.intervals:
        part = interval.part(spans)
        time = interval.threads.get(tid)
        if part and time is not None:
            _add(sums, interval, time, part, still=interval.begin_ns in still)
    if not sums.ns:
        return None
    went = _split(sums, throttled_ns)
    return Shares(ns=sums.ns, of={name: ns / sums.ns for name, ns in went.items()})


def not_running_ns(interval: Interval, tid: int, still: frozenset[int]) -> float:
    """The part of an interval in which the thread was kept from its packets (softirqs and steal
    left out)."""
    time = interval.threads.get(tid)
    if time is None:
        return 0.0
    rest = max(0.0, interval.ns - time.ran_ns - time.waited_ns)
    held = interval.begin_ns in still or _is_stopped(time) or "D" in time.states
    return time.waited_ns + (rest if held else 0.0)


def still_intervals(timeline: Timeline, tid: int) -> frozenset[int]:
    """By their beginnings: part of a long time in which the thread was never on a CPU."""
    return _still(timeline, tid)


def _still(timeline: Timeline, tid: int) -> frozenset[int]:
    found: set[int] = set()
    current: list[Interval] = []
    for interval in [*timeline.intervals, None]:
        time = interval.threads.get(tid) if interval else None
        if interval and time and not time.came_on and time.waited_ns < interval.ns / 2:
            current.append(interval)
            continue
        if sum(i.ns for i in current) >= STILL_NS:
            found |= {i.begin_ns for i in current}
        current = []
    return frozenset(found)


def _is_stopped(time: ThreadTime) -> bool:
    return bool(STOPPED_STATES & set(time.states))


def _add(sums: _Sums, interval: Interval, time: ThreadTime, part: float, *, still: bool) -> None:
    rest = max(0.0, interval.ns - time.ran_ns - time.waited_ns) * part
    sums.ns += interval.ns * part
    sums.ran += time.ran_ns * part
    sums.waited += time.waited_ns * part
    if _is_stopped(time):
        sums.stopped += rest
    elif "D" in time.states:
        sums.blocked += rest
    elif still:
        sums.still += rest
    elif time.states == ("R", "R"):
        sums.ready += rest
    else:
        sums.slept += rest
    cpu = interval.cpus.get(time.cpu) if time.cpu is not None else None
    if cpu is None:
        return
    sums.threads += cpu.threads_ns * part
    sums.softirq += cpu.softirq_ns * part
    sums.stolen += cpu.stolen_ns * part
    sums.sender += part * sum(t.ran_ns for t in interval.sender.values() if t.cpu == time.cpu)
    sums.sut += part * sum(
        t.ran_ns for t in interval.threads.values() if t.cpu == time.cpu and t is not time
    )


def _split(sums: _Sums, throttled_ns: float) -> dict[Went, float]:
    went = dict.fromkeys(Went, 0.0)
    went |= {Went.STOPPED: sums.stopped, Went.BLOCKED: sums.blocked}
    left = {
        "waited": sums.waited,
        "ready": sums.ready,
        "slept": sums.slept,
        "still": sums.still,
        "ran": sums.ran,
    }

    def take(ns: float, *parts: str) -> float:
        taken = 0.0
        for part in parts:
            some = min(left[part], max(0.0, ns - taken))
            left[part] -= some
            taken += some
        return taken

    # A throttled thread is ready to run. Kernels before 6.18 count it as waiting; since then it is
    # held on its way back to user space for a part of the time, which is counted nowhere, not as
    # throttled either (measured: 0.62 of 1.0 s), though the state of the thread stays R.
    throttled = take(throttled_ns, "waited", "still")
    went[Went.THROTTLED] = throttled + take(throttled_ns, "ready")
    left["slept"] += left.pop("ready")
    busy = sums.threads + sums.softirq
    wanted = min(1.0, (sums.ran + sums.waited) / busy) if busy else 1.0
    # Stolen while it ran: neither on the CPU nor waiting, as the guest's kernel has it.
    went[Went.STOLEN] = take(sums.stolen * wanted, "slept", "still", "waited", "ran")
    # On a veth the sender's thread pays for the receiver's softirqs.
    softirq = max(0.0, sums.softirq - sums.sender)
    unknown = max(0.0, busy - sums.ran - sums.sender - sums.sut)
    beside = min(unknown, softirq)  # in a thread of its own, or in time that belongs to no thread
    others = unknown - beside
    # If the kernel does not keep them apart, a thread's time includes that of its interrupts.
    within = (softirq - beside) * (sums.ran / (sums.ran + sums.sut) if sums.ran else 0.0)
    went[Went.SOFTIRQ] = take(within, "ran")
    had = {Went.SENDER: sums.sender, Went.SUT: sums.sut, Went.SOFTIRQ: beside, Went.OTHERS: others}
    waited, had_ns = left["waited"], sum(had.values())
    for name, ns in had.items():
        went[name] += waited * ns / had_ns if had_ns else 0.0
    if not had_ns:
        went[Went.OTHERS] += waited
    # If the kernel does, they interrupt a thread, which then neither runs nor waits.
    if sums.ns > beside:
        over = max(0.0, beside - waited) * min(1.0, sums.ran / (sums.ns - beside))
        went[Went.SOFTIRQ] += take(over, "slept")
    went |= {Went.RAN: left["ran"], Went.SLEPT: left["slept"], Went.STILL: left["still"]}
    return went
