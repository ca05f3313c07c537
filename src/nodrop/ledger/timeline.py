"""The time of each thread and each CPU, from one row of the sampler to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from nodrop.protocol.events import CpuTimes, ProcessReading, SampleRow, ThreadReading


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
        """At least half of the looks that found it asleep found it in a futex."""
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
    """It was on a CPU at some time."""
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
class Interval:
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
class Timeline:
    intervals: Sequence[Interval] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of the SUT's threads, in the order of its processes."""
    processes: Mapping[int, int] = field(default_factory=dict)
    """Thread id → the process that it is of."""

    def find(self, thread: str) -> int | None:
        """By the SUT's name for it; one of several instances stands before the name. None if it was
        not seen, or two have the name."""
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


def timeline(rows: Sequence[SampleRow]) -> Timeline:
    """From rows that list processes."""
    names = {t["tid"]: str(t["name"]) for row in rows for t in _threads(_sut(row))}
    intervals = [
        Interval(
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
    return Timeline(intervals=_waits_where_they_were(intervals), names=names, processes=processes)


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


def _waits_where_they_were(intervals: Sequence[Interval]) -> Sequence[Interval]:
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
