"""The sampler beside a trial, and what its rows say the SUT and the host used."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, Self, runtime_checkable

from nodrop.ledger.imbalance import BusyThread
from nodrop.ledger.level import RingLook, RingLooks
from nodrop.ledger.outcome import Problem, Reason
from nodrop.protocol import CpuTimes, SampleRow, WatchedRing
from nodrop.testbed.hosts.api import Host, HostProcess, Json, LabPort, SampleJob
from nodrop.testbed.hosts.node import ClockFix, fit
from nodrop.testbed.hosts.processes import allowed_cpus
from nodrop.testbed.setups.api import SamplesInside
from nodrop.untrusted.json_text import decode_object, making_sense

STOP_TIMEOUT_S = 10.0
LONGEST_ROW_BYTES = 256 * 1024
MOST_SPEED_CPUS = 8
"""The speed of no CPU is watched if the SUT may use more."""
"""300 bytes per CPU and 100 per thread: enough for hundreds of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU and memory that were used between named moments of the trial. None = not measured."""

    sut_cpu_s: float | None
    """CPU time from the first packet to the end of the drain."""
    host_cpu_ratio: float | None
    """Busy part of all CPUs while the load was offered; guest time counted once."""
    sut_rss_peak_bytes: int | None
    busiest: BusyThread | None
    """The SUT's thread with the most CPU time while the load was offered."""
    idle_s: float | None
    """Longest time within the offer in which no thread of the SUT ran at all."""
    sut_offering_cpu_s: float | None
    """CPU time while the load was offered."""
    host_cpu_s: float | None
    """CPU time of all CPUs, while the load was offered."""
    host_busy_s: float | None
    cgroup: CgroupSample | None
    """Usage of the SUT's own control group; None if it has none to itself."""
    stolen_ratios: dict[int, float] = field(default_factory=dict)
    """Share of each CPU that the hypervisor gave to others while the load was offered."""
    marks_mono_ns: dict[str, int] = field(default_factory=dict)
    sampler: Mapping[str, Any] = field(default_factory=dict)
    """The sampler's own result (SampleResult), recorded as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupSample:
    """Memory apart: anonymous pages are the SUT's; the page cache is charged to whoever touched a
    file first, and so varies with what ran before. None = the kernel does not say."""

    anon_peak_bytes: int | None
    file_peak_bytes: int | None
    memory_limit_hits: int | None
    """Times the limit was hit and pages were taken back: pressure, not yet harm."""
    oom_kills: int | None


class Sampler:
    """A `sample` job on the receiver. As a context manager it is ended on every way out."""

    def __init__(
        self,
        host: Host,
        ports: Sequence[LabPort],
        roots: Sequence[HostProcess],
        *,
        own_cgroup: bool,
        path: Path,
        interval_ms: int,
        levels_path: Path | None = None,
        level_ms: int = 0,
        beside: Sequence[HostProcess] = (),
    ) -> None:
        """`level_ms` = 0: no ring is watched."""
        self._path = path
        self._marks: dict[str, int] = {}
        self._job: SampleJob = host.job(
            {
                "job": "sample",
                "interval_ms": interval_ms,
                "pids": [process.pid for process in roots],
                "beside_pids": [process.pid for process in beside if process.host.here],
                "cgroup_of_pid": roots[0].pid if own_cgroup else None,
                "ports": [port.name for port in ports],
                "path": str(path),
                "levels_path": str(levels_path) if levels_path and level_ms else None,
                "level_ms": level_ms or 1,
                "speed_cpus": _speed_cpus(host, roots),
            }
        )
        self._job.start()

    def mark(self, name: str) -> int:
        """A moment of the trial, on the controller's CLOCK_MONOTONIC."""
        self._marks[name] = time.monotonic_ns()
        return self._marks[name]

    def newest(self) -> SampleRow | None:
        """The last row that is whole; None before the first."""
        with self._path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - LONGEST_ROW_BYTES)
            file.seek(begin)
            lines = file.read().split(b"\n")[1 if begin else 0 : -1]
        with making_sense(str(self._path)):
            rows = map(_row, reversed(lines))
            return next((row for row in rows if lists_processes(row)), None)

    def finish(self) -> Usage:
        self._job.stop()
        said = self._job.result(timeout_s=STOP_TIMEOUT_S)
        return usage(rows_of_processes(self._path), self._marks, said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()


def _speed_cpus(host: Host, roots: Sequence[HostProcess]) -> list[int]:
    """CPUs of this host that the SUT may use, if they are few: each costs a thread."""
    cpus = sorted(allowed_cpus(roots)) if host.here else []
    return cpus if len(cpus) <= MOST_SPEED_CPUS else []


def rings_of(path: Path) -> list[RingLooks]:
    """Capture rings that a sampler watched, with the looks at them; empty if it watched none."""
    if not path.exists():
        return []
    with making_sense(str(path)), path.open(encoding="utf-8") as file:
        head: Any = decode_object(next(file, "{}"))
        watched = [fit(WatchedRing, ring) for ring in head["rings"]]
        looks: list[list[RingLook]] = [[] for _ in watched]
        uncounted: set[int] = set()
        for line in file:
            at_ns, ring, packets, full, arrived, dropped = json.loads(line)
            uncounted |= {ring} if arrived is None else set()
            looks[ring].append(RingLook(at_ns, packets, full, arrived or 0, dropped or 0))
        return [
            RingLooks(
                slots=ring["slots"],
                blocks=ring["blocks"],
                block_bytes=ring["block_bytes"],
                looks=tuple(seen),
                counted=n not in uncounted,
            )
            for n, (ring, seen) in enumerate(zip(watched, looks, strict=True))
        ]


def usage_inside(samples: SamplesInside, path: Path, marks: dict[str, int]) -> Usage:
    """Usage of a machine inside the SUT's place; its rows go to `path` as they are, by its
    clock."""
    said, rows = samples.finish()
    path.write_bytes(rows)
    with making_sense(str(path)):
        told = by_our_clock(rows_of_processes(path), samples.clock_offset_ns)
    return usage(told, marks, said)


def by_our_clock(rows: Iterable[SampleRow], clock_offset_ns: int) -> list[SampleRow]:
    return [{**row, "mono_ns": row["mono_ns"] + clock_offset_ns} for row in rows]


def lists_processes(row: SampleRow) -> bool:
    """Some rows hold only the sources that are read once a second: a sampler that gets its CPU too
    late takes those in a row of their own."""
    return "processes" in row


def rows_of_processes(path: Path) -> list[SampleRow]:
    return list(filter(lists_processes, _rows(path)))


def _rows(path: Path) -> Iterator[SampleRow]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield _row(line)


def _row(line: str | bytes) -> SampleRow:
    return fit(SampleRow, decode_object(line))


@making_sense("what a sampler wrote")
def usage(rows: Sequence[SampleRow], marks: dict[str, int], sampler: Mapping[str, Any]) -> Usage:
    """Pure: rows of one trial, cut at the marks `offer`, `offered` and `drained`."""
    offering = _between(rows, marks["offer"], marks["offered"])
    until_rest = _between(rows, marks["offer"], marks["drained"])
    host_cpu_s, host_busy_s = _host_cpu_s(offering)
    return Usage(
        sut_cpu_s=_rise(until_rest, _tree_cpu_ns),
        sut_offering_cpu_s=_rise(offering, _tree_cpu_ns),
        host_cpu_s=host_cpu_s,
        host_busy_s=host_busy_s,
        host_cpu_ratio=host_busy_s / host_cpu_s if host_cpu_s and host_busy_s is not None else None,
        sut_rss_peak_bytes=_rss_peak(rows),
        busiest=busiest_thread(offering),
        idle_s=_longest_idle_s(offering),
        cgroup=_cgroup(rows),
        stolen_ratios=_stolen_ratios(offering),
        marks_mono_ns=dict(marks),
        sampler=sampler,
    )


def _between(rows: Sequence[SampleRow], begin_ns: int, end_ns: int) -> Sequence[SampleRow]:
    """The rows within, and the nearest on either side: together they cover the whole time."""
    inside = [n for n, row in enumerate(rows) if begin_ns <= row["mono_ns"] <= end_ns]
    if not inside:
        before = [n for n, row in enumerate(rows) if row["mono_ns"] < begin_ns]
        inside = [before[-1]] if before else []
    if not inside:
        return ()
    return rows[max(0, inside[0] - 1) : inside[-1] + 2]


def _rise(rows: Sequence[SampleRow], value: Callable[[SampleRow], int]) -> float | None:
    """Seconds of CPU between the first and the last row."""
    if len(rows) < 2:
        return None
    return (value(rows[-1]) - value(rows[0])) / 1e9


def _tree_cpu_ns(row: SampleRow) -> int:
    """CPU time of the SUT's whole process tree, ended processes included: it never falls."""
    return int(row["tree"]["cpu_ns"])


def _host_cpu_s(rows: Sequence[SampleRow]) -> tuple[float | None, float | None]:
    """Seconds of all CPUs: all time, and the busy part."""
    if len(rows) < 2:
        return None, None
    total = busy = 0
    for first, last in zip(rows[0]["cpus"], rows[-1]["cpus"], strict=True):
        rise = _busy_ns(last) - _busy_ns(first)
        busy += rise
        total += rise + _not_busy_ns(last) - _not_busy_ns(first)
    return total / 1e9, busy / 1e9


def _busy_ns(cpu: CpuTimes) -> int:
    guests_ns = cpu["guest_ns"] + cpu["guest_nice_ns"]
    interrupts_ns = cpu["irq_ns"] + cpu["softirq_ns"]
    return cpu["user_ns"] + cpu["nice_ns"] + cpu["system_ns"] + guests_ns + interrupts_ns


def _not_busy_ns(cpu: CpuTimes) -> int:
    return cpu["idle_ns"] + cpu["iowait_ns"] + cpu["steal_ns"]


def _stolen_ratios(rows: Sequence[SampleRow]) -> dict[int, float]:
    if len(rows) < 2:
        return {}
    took_ns = rows[-1]["mono_ns"] - rows[0]["mono_ns"]
    pairs = zip(rows[0]["cpus"], rows[-1]["cpus"], strict=True)
    stolen = {last["cpu"]: last["steal_ns"] - first["steal_ns"] for first, last in pairs}
    return {cpu: ns / took_ns for cpu, ns in stolen.items()} if took_ns else {}


def _rss_peak(rows: Sequence[SampleRow]) -> int | None:
    """VmHWM of each process if the kernel reports it: a peak between two samples counts too."""
    peaks: dict[int, int] = {}
    for row in rows:
        for process in row["processes"]:
            seen = process["rss_peak_bytes"] or process["rss_bytes"]
            peaks[process["pid"]] = max(seen, peaks.get(process["pid"], 0))
    return sum(peaks.values()) if peaks else None


def _cgroup(rows: Sequence[SampleRow]) -> CgroupSample | None:
    read = [group for row in rows if (group := row.get("cgroup")) is not None]
    if not read:
        return None

    def peak(name: Literal["anon_bytes", "file_bytes"]) -> int | None:
        return max((held for group in read if (held := group[name]) is not None), default=None)

    return CgroupSample(
        anon_peak_bytes=peak("anon_bytes"),
        file_peak_bytes=peak("file_bytes"),
        memory_limit_hits=read[-1]["memory_limit_hits"],
        oom_kills=read[-1]["oom_kills"],
    )


def _thread_cpu_ns(row: SampleRow) -> dict[tuple[int, str], int]:
    return {
        (thread["tid"], thread["name"]): thread["cpu_ns"]
        for process in row["processes"]
        for thread in process["threads"]
    }


def busiest_thread(rows: Sequence[SampleRow]) -> BusyThread | None:
    """The busiest thread between the first and the last row."""
    if len(rows) < 2:
        return None
    before, after = _thread_cpu_ns(rows[0]), _thread_cpu_ns(rows[-1])
    used = {thread: cpu - before.get(thread, 0) for thread, cpu in after.items()}
    if not used:
        return None
    (_, name), most = max(used.items(), key=lambda item: item[1])
    took_ns = rows[-1]["mono_ns"] - rows[0]["mono_ns"]
    return BusyThread(name=name, cpu_ratio=most / took_ns) if took_ns else None


def _longest_idle_s(rows: Sequence[SampleRow]) -> float | None:
    """A SUT that is handed packets and does not run for whole samples was stopped, or starved."""
    if len(rows) < 2:
        return None
    longest = current = 0
    for before, after in pairwise(rows):
        stood = _tree_cpu_ns(after) == _tree_cpu_ns(before)
        current = current + after["mono_ns"] - before["mono_ns"] if stood else 0
        longest = max(longest, current)
    return longest / 1e9


SLEW = 500e-6
"""A clock is made to run faster or slower by this at most (adjtimex(2)); a crystal is off by a
fifth of it. What goes beyond stood still, or was another machine's (a guest that was moved)."""


@runtime_checkable
class OwnClock(Protocol):
    """A Host whose CLOCK_MONOTONIC is not ours."""

    def learn_clock(self) -> ClockFix: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    at_ns: int
    """Time on our CLOCK_MONOTONIC."""
    clock: ClockFix


def fix(host: Host) -> Fix | None:
    """Fix of a host's clock; None of a host that has our clock."""
    if host.here or not isinstance(host, OwnClock):
        return None
    return Fix(clock=host.learn_clock(), at_ns=time.monotonic_ns())


def facts(host: Host, before: Fix, after: Fix) -> Json:
    return {
        "host": host.name,
        "before": asdict(before.clock),
        "after": asdict(after.clock),
        "drift_ns": after.clock.offset_ns - before.clock.offset_ns,
    }


def moved(host: Host, before: Fix, after: Fix) -> list[Problem]:
    """A problem if the clocks moved apart further than two clocks that run can drift."""
    drift_ns = abs(after.clock.offset_ns - before.clock.offset_ns)
    bound_ns = before.clock.bound_ns + after.clock.bound_ns
    if drift_ns <= bound_ns + SLEW * (after.at_ns - before.at_ns):
        return []
    words = (
        f"{host.name}: its clock moved by {drift_ns / 1e6:.3f} ms against ours in the trial (known "
        f"within {bound_ns / 1e6:.3f} ms), so its times say nothing: was it suspended, or moved?"
    )
    return [Problem(code=Reason.CLOCK_MOVED, words=words)]
