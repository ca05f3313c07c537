"""The profiler beside a trial (`[measure] profile = true`): a `profile` job beside the SUT.

A guest profiles itself: its node looks at the SUT there, and names come from the guest's own files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from nodrop.errors import NodeRefused
from nodrop.hosts.seam import AnyJob, HostProcess, Json
from nodrop.ledger.threads import Role

READY_TIMEOUT_S = 120.0
"""It reads the names of the kernel and of every library, under emulation too."""
RESULT_TIMEOUT_S = 60.0
INTERVAL_IN_GUEST_MS = 400
"""Each look into the rings and /proc takes time that an emulated guest does not have; the rings
hold half a second."""


class Unseen(Exception):
    """Why there is no profile, in words."""


def unseen(why: str) -> Json:
    """A profile without a sample."""
    return {
        "began_mono_ns": 0,
        "ended_mono_ns": 0,
        "own_cpu_ns": 0,
        "missing": [{"what": "functions", "why": why}],
        "functions": [],
        "stacks": [],
        "threads": [],
        "concurrency": None,
    }


class Profiling:
    """As a context manager it is ended on every way out. It has read all names when it is made.

    Unseen if the kernel that runs these programs does not show them.
    """

    def __init__(self, programs: Sequence[HostProcess], *, hardware: bool) -> None:
        if not programs:
            raise Unseen("the SUT has ended")
        self._host = programs[0].host
        if any(one.host is not self._host and not one.host.here for one in programs):
            raise Unseen("several guests, each with a kernel of its own: profile one of them")
        pids = [process.pid for process in programs]
        spec: Json = {"job": "profile", "pids": pids, "hardware": hardware}
        if not self._host.here:
            spec["interval_ms"] = INTERVAL_IN_GUEST_MS
        try:
            self._job: AnyJob = self._host.job(spec, timeout_s=READY_TIMEOUT_S)
        except NodeRefused as refused:
            if refused.kind not in ("permission", "unsupported"):
                raise
            raise Unseen(refused.said) from None

    def begin(self) -> None:
        self._job.start()

    def stop(self) -> None:
        """What it has seen waits on its side: to fetch it now would take time from the drain."""
        self._job.stop()

    def found(self, role: Callable[[str], Role | None]) -> Json:
        """What was seen between the two, each thread with its role; times by our clock."""
        found: Json = dict(self._job.result(timeout_s=RESULT_TIMEOUT_S))
        found.pop("type", None)
        for moment in ("began_mono_ns", "ended_mono_ns"):
            found[moment] += self._host.clock_offset_ns
        for thread in found["threads"]:
            known = role(thread["name"])
            thread["role"] = None if known is None else str(known)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()
