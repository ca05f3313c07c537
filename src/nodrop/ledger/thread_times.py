"""The time of each thread and each CPU, from one row of the sampler to the next: where it went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Literal

from nodrop.protocol import CpuTimes, ProcessReading, SampleRow, ThreadReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Asleep:
    """Ten looks a second at what threads do; of those that found one asleep, where."""

    looks: int = 0
    in_futex: int = 0
    """A thread waits there for another one, and not for packets or time."""

    def __add__(self, other: Asleep) -> Asleep:
        return Asleep(looks=self.looks + other.looks, in_futex=self.in_futex + other.in_futex)

    @property
    def for_others(self) -> bool:
        """The thread waited for others: at least half of the looks that found it asleep found it in
        a futex."""
        return 2 * self.in_futex >= self.looks

    @property
    def enough(self) -> bool:
        return self.looks >= LEAST_LOOKS


LEAST_LOOKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTime:
    """One thread's time in one interval. In the time that it neither ran nor waited, it slept, was
    stopped, or was blocked."""

    ran_ns: float
    waited_ns: float
    """Ready to run, but not let."""
    came_on: bool
    """The thread was on a CPU at some time."""
    states: tuple[str, str]
    """States as ps(1) names them, at the beginning and at the end; "" = not read."""
    cpu: int | None
    """The CPU that the thread ran on last."""
    sleeps_in: str = ""
    """The kernel's function, at the end; "" = it did not sleep there, or that was not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """One CPU's time in one interval, in the kernel's ticks: rough over a tenth of a second."""

    threads_ns: float
    """user, nice, system and guest."""
    softirq_ns: float
    """Interrupts and what follows them."""
    stolen_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInterval:
    begin_ns: int
    end_ns: int
    threads: Mapping[int, ThreadTime]
    """Threads of the SUT, by thread id."""
    sender: Mapping[int, ThreadTime]
    cpus: Mapping[int, CpuTime]

    @property
    def ns(self) -> int:
        return self.end_ns - self.begin_ns

    def part(self, spans: Sequence[tuple[int, int]]) -> float:
        """How much of it lies within spans that do not overlap."""
        within = sum(max(0, min(self.end_ns, e) - max(self.begin_ns, b)) for b, e in spans)
        return within / self.ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTimeline:
    intervals: Sequence[ThreadInterval] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of the SUT's threads, in the order of its processes."""
    processes: Mapping[int, int] = field(default_factory=dict)
    """Thread id → the process that it is of."""

    def find(self, thread: str) -> int | None:
        """Thread id by the SUT's name for it; one of several instances stands before the name. None
        if the thread was not seen, or two have the name."""
        instance, _, name = thread.rpartition(":") if thread[:1].isdigit() else ("", "", thread)
        found = [tid for tid, known in self.names.items() if known[:15] == name[:15]]
        if len(found) > 1 and instance.isdigit():
            found = found[int(instance) : int(instance) + 1]
        return found[0] if len(found) == 1 else None

    def asleep(self, tid: int, spans: Sequence[tuple[int, int]]) -> Asleep:
        """Looks within `spans` that found the thread asleep."""
        seen = [
            found.sleeps_in
            for interval in self.intervals
            if any(begin <= interval.end_ns <= end for begin, end in spans)
            and (found := interval.threads.get(tid)) is not None
            and found.sleeps_in
        ]
        return Asleep(looks=len(seen), in_futex=sum("futex" in name for name in seen))

    def ran_most(self, spans: Sequence[tuple[int, int]]) -> int | None:
        def ran(tid: int) -> float:
            return sum(
                i.threads[tid].ran_ns * i.part(spans) for i in self.intervals if tid in i.threads
            )

        return max(self.names, key=ran, default=None)


def timeline(rows: Sequence[SampleRow]) -> ThreadTimeline:
    """Timeline of the rows that list processes."""
    names = {t["tid"]: str(t["name"]) for row in rows for t in _threads(_sut(row))}
    intervals = [
        ThreadInterval(
            begin_ns=before["mono_ns"],
            end_ns=after["mono_ns"],
            threads=dict(_times(before, after, _sut)),
            sender=dict(_times(before, after, _sender)),
            cpus=dict(_cpus(before, after)),
        )
        for before, after in pairwise(rows)
        if after["mono_ns"] > before["mono_ns"]
    ]
    processes = {t["tid"]: p["pid"] for row in rows for p in _sut(row) for t in p["threads"]}
    return ThreadTimeline(
        intervals=_waits_where_they_were(intervals), names=names, processes=processes
    )


def _sut(row: SampleRow) -> Sequence[ProcessReading]:
    return row.get("processes", ())


def _sender(row: SampleRow) -> Sequence[ProcessReading]:
    return row.get("beside", ())


def _threads(processes: Sequence[ProcessReading]) -> Iterator[ThreadReading]:
    for process in processes:
        yield from process["threads"]


def _times(
    before: SampleRow, after: SampleRow, part: Callable[[SampleRow], Sequence[ProcessReading]]
) -> Iterator[tuple[int, ThreadTime]]:
    earlier = {thread["tid"]: thread for thread in _threads(part(before))}
    for now in _threads(part(after)):
        then = earlier.get(now["tid"])

        def rise(
            name: Literal["cpu_ns", "wait_ns", "slices"],
            now: ThreadReading = now,
            then: ThreadReading | None = then,
        ) -> int:
            return now[name] - (then[name] if then else 0)

        yield (
            now["tid"],
            ThreadTime(
                ran_ns=min(rise("cpu_ns"), after["mono_ns"] - before["mono_ns"]),
                waited_ns=rise("wait_ns"),
                came_on=rise("cpu_ns") > 0 or rise("slices") > 0,
                states=(then["state"] if then else "", now["state"]),
                cpu=now["last_cpu"],
                sleeps_in=now.get("wait_channel", ""),
            ),
        )


def _cpus(before: SampleRow, after: SampleRow) -> Iterator[tuple[int, CpuTime]]:
    earlier = {cpu["cpu"]: cpu for cpu in before.get("cpus", ())}
    for now in after.get("cpus", ()):
        then = earlier.get(now["cpu"])
        if then is None:
            continue

        yield (
            now["cpu"],
            CpuTime(
                threads_ns=_by_threads(now) - _by_threads(then),
                softirq_ns=_by_softirqs(now) - _by_softirqs(then),
                stolen_ns=now["steal_ns"] - then["steal_ns"],
            ),
        )


def _by_threads(cpu: CpuTimes) -> int:
    guests_ns = cpu["guest_ns"] + cpu["guest_nice_ns"]
    return cpu["user_ns"] + cpu["nice_ns"] + cpu["system_ns"] + guests_ns


def _by_softirqs(cpu: CpuTimes) -> int:
    return cpu["softirq_ns"] + cpu["irq_ns"]


def _waits_where_they_were(intervals: Sequence[ThreadInterval]) -> Sequence[ThreadInterval]:
    """The kernel adds a wait when it is over: what an interval cannot hold was before it. One that
    is not over at the last row is not added at all; the state of the thread shows it."""
    found = [dict(interval.threads) for interval in intervals]
    for tid in {tid for threads in found for tid in threads}:
        carried, waits = 0.0, True
        for interval, threads in zip(reversed(intervals), reversed(found), strict=True):
            time = threads.get(tid)
            if time is None:
                break
            waits = waits and not time.came_on and time.states[1] == "R"
            room = max(0.0, interval.ns - time.ran_ns)
            whole = time.waited_ns + carried
            threads[tid] = replace(time, waited_ns=room if waits else min(room, whole))
            carried = 0.0 if waits else max(0.0, whole - room)
    return [replace(i, threads=threads) for i, threads in zip(intervals, found, strict=True)]


# Where the time of one thread went while it lost packets, and who had its CPU meanwhile.

Spans = Sequence[tuple[int, int]]
STILL_NS = 300_000_000
"""Time without a CPU after which a thread did not just sleep between packets."""
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


def shares(timeline: ThreadTimeline, tid: int, spans: Spans, throttled_ns: float) -> Shares | None:
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


def each_interval(
    timeline: ThreadTimeline, tid: int, throttled_ns: Callable[[Spans], float]
) -> Iterator[tuple[ThreadInterval, Shares]]:
    """Shares of each interval in which the thread was seen."""
    still = _still(timeline, tid)
    for interval in timeline.intervals:
        time = interval.threads.get(tid)
        if time is not None:
            sums = _Sums()
            _add(sums, interval, time, 1.0, still=interval.begin_ns in still)
            went = _split(sums, throttled_ns(((interval.begin_ns, interval.end_ns),)))
            yield (
                interval,
                Shares(ns=sums.ns, of={name: ns / sums.ns for name, ns in went.items()}),
            )


def not_running_ns(interval: ThreadInterval, tid: int, still: frozenset[int]) -> float:
    """The part of an interval in which the thread was kept from its packets (softirqs and steal
    left out)."""
    time = interval.threads.get(tid)
    if time is None:
        return 0.0
    rest = max(0.0, interval.ns - time.ran_ns - time.waited_ns)
    held = interval.begin_ns in still or _is_stopped(time) or "D" in time.states
    return time.waited_ns + (rest if held else 0.0)


def still_intervals(timeline: ThreadTimeline, tid: int) -> frozenset[int]:
    """Beginnings of the intervals that are part of a long time in which the thread was never on a
    CPU."""
    return _still(timeline, tid)


def _still(timeline: ThreadTimeline, tid: int) -> frozenset[int]:
    found: set[int] = set()
    current: list[ThreadInterval] = []
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


def _add(
    sums: _Sums, interval: ThreadInterval, time: ThreadTime, part: float, *, still: bool
) -> None:
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
